//! TCP as a core has it, whichever its executor.

use std::io;
use std::os::fd::{FromRawFd, IntoRawFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_lite::io::{AsyncRead, AsyncWrite};

use super::local;

/// A socket that listens, on one core.
pub struct Listener(AnyListener);

enum AnyListener {
    Glommio(glommio::net::TcpListener),
    Local(local::TcpListener),
}

/// A connection, on one core; closed when dropped.
pub struct Stream(AnyStream);

enum AnyStream {
    Glommio(glommio::net::TcpStream),
    Local(local::TcpStream),
}

impl Listener {
    pub(super) fn glommio(socket: std::net::TcpListener) -> Self {
        // SAFETY: `into_raw_fd` gives up the only owner of this open, listening socket, and the listener becomes the next one.
        Self(AnyListener::Glommio(unsafe { glommio::net::TcpListener::from_raw_fd(socket.into_raw_fd()) }))
    }

    pub(super) fn local(listener: local::TcpListener) -> Self {
        Self(AnyListener::Local(listener))
    }

    /// The next connection, which sends what it is given at once (`TCP_NODELAY`).
    ///
    /// # Errors
    /// That of the system: no descriptors, no memory, or a connection that is gone already.
    pub async fn accept(&self) -> io::Result<Stream> {
        let stream = match &self.0 {
            AnyListener::Glommio(listener) => Stream::glommio(listener.accept().await?),
            AnyListener::Local(listener) => Stream::local(listener.accept().await?),
        };
        Ok(stream)
    }
}

impl Stream {
    // What is sent is written whole, so waiting to fill a packet could only delay it; a connection that refuses works all the same.
    pub(super) fn glommio(stream: glommio::net::TcpStream) -> Self {
        let _ = stream.set_nodelay(true);
        Self(AnyStream::Glommio(stream))
    }

    pub(super) fn local(stream: local::TcpStream) -> Self {
        let _ = stream.set_nodelay(true);
        Self(AnyStream::Local(stream))
    }
}

impl AsyncRead for Stream {
    #[inline]
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().0 {
            AnyStream::Glommio(stream) => Pin::new(stream).poll_read(context, bytes),
            AnyStream::Local(stream) => Pin::new(stream).poll_read(context, bytes),
        }
    }
}

impl AsyncWrite for Stream {
    #[inline]
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().0 {
            AnyStream::Glommio(stream) => Pin::new(stream).poll_write(context, bytes),
            AnyStream::Local(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            AnyStream::Glommio(stream) => Pin::new(stream).poll_flush(context),
            AnyStream::Local(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            AnyStream::Glommio(stream) => Pin::new(stream).poll_close(context),
            AnyStream::Local(stream) => Pin::new(stream).poll_close(context),
        }
    }
}
