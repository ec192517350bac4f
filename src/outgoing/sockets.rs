//! The network as a client reaches it, and the real one: the system's resolver and the core's sockets.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use futures_lite::io::{AsyncRead, AsyncWrite};
use futures_util::future::{FutureExt, LocalBoxFuture};
use shards::runtime::Runtime;

use super::names::{LookUpError, Names};

/// How long to wait before a name that there was no room for is asked for again.
const FULL_PAUSE: Duration = Duration::from_millis(20);

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
    names: Names,
}

impl SystemSockets {
    /// For the core of this runtime.
    pub fn new(runtime: Rc<dyn Runtime>, names: Names) -> Self {
        Self { runtime, names }
    }
}

impl Sockets for SystemSockets {
    fn resolve(&self, host: String, port: u16) -> LocalBoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        let (runtime, names) = (self.runtime.clone(), self.names.clone());
        async move {
            loop {
                match names.look_up(host.clone(), port).await {
                    // The request's own deadline ends this.
                    Err(LookUpError::Full) => runtime.sleep(FULL_PAUSE).await,
                    found => return found.map_err(io::Error::other),
                }
            }
        }
        .boxed_local()
    }

    fn connect(&self, address: SocketAddr) -> LocalBoxFuture<'static, io::Result<Box<dyn Socket>>> {
        let connecting = self.runtime.connect(address);
        async move { Ok(Box::new(connecting.await?) as Box<dyn Socket>) }.boxed_local()
    }
}
