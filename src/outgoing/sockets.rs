//! The network as a client reaches it, and the real one: the system's resolver and the executor's sockets.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use futures_lite::io::{AsyncRead, AsyncWrite};
use futures_util::future::{FutureExt, LocalBoxFuture};
use glommio::net::TcpStream;
use shards::runtime::Runtime;

/// A connection to the other side.
pub trait Socket: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket for S {}

/// How a core reaches the network. Dropping a future gives up.
pub trait Sockets {
    /// The addresses of a name, in the order in which they are to be tried.
    fn resolve(&self, host: String, port: u16) -> LocalBoxFuture<'static, io::Result<Vec<SocketAddr>>>;
    /// Connects to an address.
    fn connect(&self, address: SocketAddr) -> LocalBoxFuture<'static, io::Result<Box<dyn Socket>>>;
}

/// The network of the machine.
pub struct SystemSockets {
    runtime: Rc<dyn Runtime>,
}

impl SystemSockets {
    /// For the core of this runtime, which runs on the executor.
    pub fn new(runtime: Rc<dyn Runtime>) -> Self {
        Self { runtime }
    }
}

impl Sockets for SystemSockets {
    fn resolve(&self, host: String, port: u16) -> LocalBoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        let found = Arc::new(Mutex::new(None));
        let place = found.clone();
        // The system's resolver blocks, for as long as name servers are silent.
        let job = self.runtime.side_thread(Box::new(move || {
            let addresses = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(addresses);
        }));
        async move {
            job.await.map_err(io::Error::other)?;
            let found = found.lock().unwrap_or_else(PoisonError::into_inner).take();
            found.unwrap_or_else(|| Err(io::Error::other("the resolver gave no answer")))
        }
        .boxed_local()
    }

    fn connect(&self, address: SocketAddr) -> LocalBoxFuture<'static, io::Result<Box<dyn Socket>>> {
        async move {
            let stream = TcpStream::connect(address).await.map_err(io::Error::from)?;
            // Requests are written whole, so waiting to fill a packet could only delay them.
            let _ = stream.set_nodelay(true);
            Ok(Box::new(stream) as Box<dyn Socket>)
        }
        .boxed_local()
    }
}
