//! The client of one core.

use std::net::SocketAddr;
use std::rc::Rc;

use shards::runtime::Runtime;
use url::{Host, Url};

use super::address::AddressPolicy;
use super::answer::{Response, WholeResponse};
use super::clock::{Clock, within};
use super::connection::{Connection, Scratch};
use super::error::{Phase, SendError};
use super::payload::StreamedBody;
use super::pool::{Key, Pool};
use super::request::Request;
use super::room::{Room, Share};
use super::sockets::Sockets;
use super::tls::Tls;

/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;
/// Bodies up to this size go out with their head: in two packets, the other side wakes for each.
const CONTIGUOUS_BYTES_MAX: usize = 16 * 1024;

/// Makes requests from one core. Cheap to clone; never leaves its core.
#[derive(Clone)]
pub struct Client {
    shared: Rc<Shared>,
}

struct Shared {
    runtime: Rc<dyn Runtime>,
    sockets: Rc<dyn Sockets>,
    policy: AddressPolicy,
    tls: Tls,
    pool: Rc<Pool>,
    scratch: Scratch,
}

impl Client {
    /// A client over these sockets that calls no address which the policy does not allow.
    pub fn new(runtime: Rc<dyn Runtime>, sockets: Rc<dyn Sockets>, policy: AddressPolicy) -> Self {
        Self::with_tls(runtime, sockets, policy, Tls::default())
    }

    pub(super) fn with_tls(
        runtime: Rc<dyn Runtime>,
        sockets: Rc<dyn Sockets>,
        policy: AddressPolicy,
        tls: Tls,
    ) -> Self {
        let pool = Pool::new(runtime.clone());
        Self { shared: Rc::new(Shared { runtime, sockets, policy, tls, pool, scratch: Scratch::default() }) }
    }

    /// Makes a request, following redirects, and gives the answer as soon as its head is there. Every status is an answer,
    /// not an error. Dropping the future gives up and closes the connection.
    ///
    /// # Errors
    /// See [`SendError`]. A request that changes something is never sent twice by itself.
    pub async fn send(&self, mut request: Request) -> Result<Response, SendError> {
        let clock = Clock::start(self.shared.runtime.clone(), request.deadlines);
        let redirects_max = request.redirects_max;
        for _ in 0..=redirects_max {
            let response = self.send_once(&request, &clock).await?;
            match request.redirected(response.status, response.headers.get("location")) {
                Some(next) if redirects_max > 0 => request = next,
                _ => return Ok(response),
            }
        }
        Err(SendError::Redirects(redirects_max))
    }

    /// Makes a request, by a connection of its own, with a body that is read while it is sent. Redirects are not followed.
    ///
    /// # Errors
    /// As [`Self::send`], and [`SendError::Unreadable`].
    pub async fn send_streamed(
        &self,
        mut request: Request,
        body: &mut dyn StreamedBody,
    ) -> Result<Response, SendError> {
        (request.streamed_bytes, request.keeps_alive) = (Some(body.len()), false);
        let clock = Clock::start(self.shared.runtime.clone(), request.deadlines);
        let (key, head) = (key(&request.url)?, request.head()?);
        let mut connection = clock.within(Phase::Connect, self.connect(&request.url, &key, &clock)).await?;
        let answer = connection.ask_streamed(request.method, head, body, &clock).await?;
        Ok(self.response(answer, connection, &clock, None))
    }

    /// Makes a request and reads the answer, of which the body has at most `body_bytes_max` bytes.
    ///
    /// # Errors
    /// As [`Self::send`], and [`SendError::TooLarge`].
    pub async fn fetch(&self, request: Request, body_bytes_max: u64) -> Result<WholeResponse, SendError> {
        self.send(request).await?.whole(body_bytes_max).await
    }

    /// As [`Self::fetch`]. The body has the share of the room that comes with it; it waits where others have all of it.
    ///
    /// # Errors
    /// As [`Self::fetch`].
    pub async fn fetch_within<'r>(
        &self,
        request: Request,
        body_bytes_max: u64,
        room: &'r Room,
    ) -> Result<(WholeResponse, Share<'r>), SendError> {
        let mut response = self.send(request).await?;
        let (mut share, mut body) = (room.enter(), Vec::new());
        while let Some(bytes) = response.body.chunk().await? {
            if (body.len() + bytes.len()) as u64 > body_bytes_max {
                return Err(SendError::TooLarge { limit: body_bytes_max });
            }
            share.grow(bytes.len() as u64).await;
            body.extend_from_slice(&bytes);
        }
        Ok((WholeResponse { status: response.status, headers: response.headers, body }, share))
    }

    /// How many idle connections are kept.
    #[cfg(test)]
    pub(super) fn idle_count(&self) -> usize {
        self.shared.pool.len()
    }

    async fn send_once(&self, request: &Request, clock: &Clock) -> Result<Response, SendError> {
        let key = key(&request.url)?;
        let (mut head, mut body) = (request.head()?, &request.body[..]);
        if body.len() <= CONTIGUOUS_BYTES_MAX {
            head.extend_from_slice(std::mem::take(&mut body));
        }
        while request.keeps_alive
            && let Some(mut connection) = self.shared.pool.take(&key)
        {
            match connection.ask(request.method, &head, body, clock).await {
                Ok((answer, is_whole)) => return Ok(self.response(answer, connection, clock, is_whole.then_some(key))),
                // The other side closed it at the same moment, as it may; it has done nothing then, or may do it again.
                Err(SendError::Broken(_)) if request.is_repeatable() && !connection.has_answered() => {}
                Err(error) => return Err(error),
            }
        }
        let mut connection = clock.within(Phase::Connect, self.connect(&request.url, &key, clock)).await?;
        let (answer, is_whole) = connection.ask(request.method, &head, body, clock).await?;
        Ok(self.response(answer, connection, clock, (is_whole && request.keeps_alive).then_some(key)))
    }

    fn response(
        &self,
        answer: super::answer::AnswerHead,
        connection: Connection,
        clock: &Clock,
        key: Option<Key>,
    ) -> Response {
        let home = key.map(|key| (self.shared.pool.clone(), key));
        Response::new(answer, connection, clock.clone(), home)
    }

    async fn connect(&self, url: &Url, key: &Key, clock: &Clock) -> Result<Connection, SendError> {
        let addresses = self.addresses(url, key).await?;
        let mut failure = SendError::Connect("there is no address".into());
        for (tried, address) in addresses.iter().enumerate() {
            // What an address that does not answer may take of the time is not missing for the others.
            let share = clock.connect_time() / u32::try_from(addresses.len() - tried).unwrap_or(1);
            let connected = within(&*self.shared.runtime, share, self.shared.sockets.connect(*address)).await;
            match connected {
                Some(Ok(socket)) if key.is_tls => {
                    let socket = self.shared.tls.connect(&*self.shared.runtime, &key.host, socket).await?;
                    return Ok(Connection::new(socket, self.shared.scratch.clone()));
                }
                Some(Ok(socket)) => return Ok(Connection::new(socket, self.shared.scratch.clone())),
                Some(Err(error)) => failure = SendError::Connect(format!("{address}: {error}")),
                None => failure = SendError::TimedOut(Phase::Connect),
            }
        }
        Err(failure)
    }

    /// The addresses of a URL's host that may be called.
    async fn addresses(&self, url: &Url, key: &Key) -> Result<Vec<SocketAddr>, SendError> {
        let found = match url.host() {
            Some(Host::Ipv4(address)) => vec![SocketAddr::from((address, key.port))],
            Some(Host::Ipv6(address)) => vec![SocketAddr::from((address, key.port))],
            Some(Host::Domain(name)) => {
                let failed = |reason: String| SendError::Resolve { host: name.to_owned(), reason };
                let found = self.shared.sockets.resolve(name.to_owned(), key.port).await;
                found.map_err(|error| failed(error.to_string()))?
            }
            None => return Err(SendError::Url(url.to_string())),
        };
        let Some(first) = found.first().map(SocketAddr::ip) else {
            return Err(SendError::Resolve { host: key.host.clone(), reason: "it has no address".into() });
        };
        let allowed = found.into_iter().filter(|address| self.shared.policy.allows(address.ip()));
        let allowed: Vec<SocketAddr> = allowed.take(ADDRESSES_MAX).collect();
        match allowed.is_empty() {
            true => {
                Err(SendError::Forbidden { address: first, is_of_name: matches!(url.host(), Some(Host::Domain(_))) })
            }
            false => Ok(allowed),
        }
    }
}

/// Where a URL leads.
fn key(url: &Url) -> Result<Key, SendError> {
    let is_tls = match url.scheme() {
        "http" => false,
        "https" => true,
        _ => return Err(SendError::Url(url.to_string())),
    };
    match (url.host_str(), url.port_or_known_default()) {
        (Some(host), Some(port)) => Ok(Key { is_tls, host: host.to_owned(), port }),
        _ => Err(SendError::Url(url.to_string())),
    }
}
