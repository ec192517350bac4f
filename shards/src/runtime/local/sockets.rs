//! TCP over a core's reactor.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use futures_lite::io::{AsyncRead, AsyncWrite};
use futures_util::future::poll_fn;

use super::reactor::{Reactor, Watched};

/// A socket that listens.
pub(in crate::runtime) struct TcpListener(Watched<mio::net::TcpListener>);

/// A connection.
pub(in crate::runtime) struct TcpStream(Watched<mio::net::TcpStream>);

impl TcpListener {
    pub(super) fn new(reactor: &Rc<Reactor>, socket: std::net::TcpListener) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self(Watched::new(reactor, mio::net::TcpListener::from_std(socket))?))
    }

    /// The next connection.
    pub(in crate::runtime) async fn accept(&self) -> io::Result<TcpStream> {
        let watched = &self.0;
        let accept = || watched.socket.accept().map(|(stream, _)| (stream, true));
        let stream = poll_fn(|context| watched.readiness.read.poll(context, accept)).await?;
        TcpStream::new(watched.reactor(), stream)
    }
}

impl TcpStream {
    fn new(reactor: &Rc<Reactor>, stream: mio::net::TcpStream) -> io::Result<Self> {
        Ok(Self(Watched::new(reactor, stream)?))
    }

    /// Connects to an address.
    pub(super) async fn connect(reactor: Rc<Reactor>, address: SocketAddr) -> io::Result<Self> {
        let stream = Self::new(&reactor, mio::net::TcpStream::connect(address)?)?;
        let watched = &stream.0;
        watched.expect_edge();
        let connected = || {
            if let Some(error) = watched.socket.take_error()? {
                return Err(error);
            }
            match watched.socket.peer_addr() {
                Err(error) if error.kind() == io::ErrorKind::NotConnected => Err(io::ErrorKind::WouldBlock.into()),
                other => other.map(|_| ((), true)),
            }
        };
        poll_fn(|context| watched.readiness.write.poll(context, connected)).await?;
        Ok(stream)
    }

    pub(in crate::runtime) fn set_nodelay(&self, on: bool) -> io::Result<()> {
        self.0.socket.set_nodelay(on)
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        let Watched { socket, readiness, .. } = &mut self.get_mut().0;
        readiness.read.poll(context, || socket.read(bytes).map(|count| (count, count == bytes.len())))
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Watched { socket, readiness, .. } = &mut self.get_mut().0;
        readiness.write.poll(context, || socket.write(bytes).map(|count| (count, count == bytes.len())))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut().0.socket.shutdown(Shutdown::Write) {
            // The other side was faster.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            other => Poll::Ready(other),
        }
    }
}
