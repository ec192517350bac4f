//! Listening sockets, one set per core, and the accept loop.
//!
//! Every core listens on the same addresses, and the kernel distributes the connections (`SO_REUSEPORT`). That option would also
//! let a second server silently take half of the traffic, so each address is first bound without it.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_lite::future::or;
use futures_util::future::poll_fn;
use shards::ids::CoreId;
use shards::runtime::{Listener, Queue, Runtime, Stream};
use socket2::{Domain, Protocol, Socket, Type};
use time::OffsetDateTime;

use super::connection::serve;
use super::core::{CoreNet, WatchGuard};
use super::drain::Attending;
use super::tls::{self, CoreTls};

/// Connections that may wait to be accepted, on each socket.
const BACKLOG: i32 = 4096;
/// How often deadlines are looked at.
const TICK: Duration = Duration::from_millis(100);
/// How long the orderly stop waits for answers that are under way.
const DRAIN_MAX: Duration = Duration::from_secs(5);
/// How long the core that leaves last waits for the others beyond that.
const LEAVE_MAX: Duration = Duration::from_secs(1);
/// The pause after an accept that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The text is no address, or the name has none.
    #[error("`{address}` is not a valid listen address ({source}); use `host:port`, such as `localhost:7700`")]
    Unresolvable {
        /// As it was given.
        address: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// Something listens there already.
    #[error("the address {address} is in use; stop the other server or choose another `--http-addr`")]
    InUse {
        /// The address.
        address: SocketAddr,
    },
    /// Any other refusal.
    #[error("cannot listen on {address} ({source}); choose another `--http-addr`")]
    Refused {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// The sockets of one core: bound, not yet listening.
pub struct CoreListeners {
    sockets: Vec<Socket>,
}

/// Binds `address` (`host:port`; a name may have several addresses) for so many cores. Returns a set of sockets for each
/// core and the addresses, with the port that was chosen where 0 was asked for. Blocks while a name is resolved.
pub fn bind(address: &str, core_count: u16) -> Result<(Vec<CoreListeners>, Vec<SocketAddr>), BindError> {
    let resolved =
        address.to_socket_addrs().map_err(|source| BindError::Unresolvable { address: address.to_owned(), source })?;
    let mut cores: Vec<CoreListeners> = (0..core_count).map(|_| CoreListeners { sockets: Vec::new() }).collect();
    let mut bound = Vec::new();
    let mut first_failure = None;
    for address in resolved {
        match bind_all(address, core_count) {
            Ok((sockets, local)) => {
                for (core, socket) in cores.iter_mut().zip(sockets) {
                    core.sockets.push(socket);
                }
                bound.push(local);
            }
            Err(error @ BindError::InUse { .. }) => return Err(error),
            // A host name often has an IPv6 address on machines without IPv6; one that works is enough.
            Err(error) => first_failure = first_failure.or(Some(error)),
        }
    }
    if bound.is_empty() {
        let nothing = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        let unresolvable = || BindError::Unresolvable { address: address.to_owned(), source: nothing() };
        return Err(first_failure.unwrap_or_else(unresolvable));
    }
    Ok((cores, bound))
}

fn bind_all(address: SocketAddr, core_count: u16) -> Result<(Vec<Socket>, SocketAddr), BindError> {
    let failure = |source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse { address },
        _ => BindError::Refused { address, source },
    };
    // This socket closes at once; while another server listens, binding it fails.
    let probe = bind_one(address, false).map_err(failure)?;
    let local = probe.local_addr().map_err(failure)?.as_socket().unwrap_or(address);
    drop(probe);
    let sockets = (0..core_count).map(|_| bind_one(local, core_count > 1)).collect::<Result<_, _>>();
    Ok((sockets.map_err(failure)?, local))
}

fn bind_one(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Serves on one core, which calls this on its executor: accepts until `stop` is set, then lets what is under way finish
/// within a bound: on all cores, since what is under way on one may need any other. Core 0, which every core needs, goes last.
pub async fn serve_core(
    runtime: Rc<dyn Runtime>,
    net: Rc<CoreNet>,
    listeners: CoreListeners,
    tls: Option<CoreTls>,
    stop: Arc<AtomicBool>,
    place: Attending,
) -> io::Result<()> {
    let tick = || {
        let unix = OffsetDateTime::UNIX_EPOCH + runtime.unix_time();
        net.tick(runtime.now().0 / 1_000_000, unix);
    };
    tick();
    for socket in listeners.sockets {
        socket.listen(BACKLOG)?;
        let listener = runtime.listen(socket.into())?;
        runtime.spawn(Queue::Search, Box::pin(accept_loop(runtime.clone(), net.clone(), listener, tls.clone())));
    }
    while !stop.load(Ordering::Relaxed) {
        runtime.sleep(TICK).await;
        tick();
    }
    net.drain();
    place.accept_no_more();
    let drain_start = runtime.now();
    let goes_last = runtime.core() == CoreId(0);
    loop {
        let drained = runtime.now().since(drain_start);
        let is_needed = place.is_needed() && drained < DRAIN_MAX;
        let is_awaited = goes_last && !place.is_last() && drained < DRAIN_MAX + LEAVE_MAX;
        if !is_needed && !is_awaited {
            return Ok(());
        }
        runtime.sleep(TICK / 10).await;
        tick();
    }
}

async fn accept_loop(runtime: Rc<dyn Runtime>, net: Rc<CoreNet>, listener: Listener, tls: Option<CoreTls>) {
    loop {
        poll_fn(|context| net.poll_room(context)).await;
        let draining = async {
            poll_fn(|context| net.poll_draining(context)).await;
            None
        };
        match or(draining, async { Some(listener.accept().await) }).await {
            None => return,
            Some(Ok(stream)) => {
                let watch = net.watch();
                runtime.spawn(Queue::Search, Box::pin(serve_stream(net.clone(), watch, stream, tls.clone())));
            }
            Some(Err(error)) => {
                tracing::warn!(%error, "cannot accept a connection");
                runtime.sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve_stream(net: Rc<CoreNet>, watch: WatchGuard, stream: Stream, tls: Option<CoreTls>) {
    match tls {
        None => serve(net, watch, stream).await,
        // Boxed, so that plain connections are not as large as those with TLS.
        Some(tls) => Box::pin(serve_tls(net, watch, stream, tls)).await,
    }
}

async fn serve_tls(net: Rc<CoreNet>, watch: WatchGuard, stream: Stream, tls: CoreTls) {
    match tls::accept(&tls, &watch, stream).await {
        Ok(stream) => serve(net, watch, stream).await,
        Err(error) => tracing::debug!(%error, "a TLS handshake failed"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// The caller waits for addresses; waiting here as well once made a mistake cost twice the time.
    #[test]
    fn an_address_in_use_is_reported_at_once() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let began = Instant::now();
        assert!(matches!(bind(&address, 1), Err(BindError::InUse { .. })));
        assert!(began.elapsed() < Duration::from_secs(1));
    }
}
