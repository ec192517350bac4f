//! Look-ups of names: the system's resolver, on threads of its own.
//!
//! It blocks for as long as name servers are silent, which may be half a minute, and a thread cannot be called back. So look-ups
//! have a few threads that nobody else waits for, and those of one name at one time share one, whichever core asks. One more
//! thread keeps the books. When all are busy, further names wait; the request that asks has a deadline.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Weak};

use futures_channel::oneshot;

/// Look-ups at once.
const LOOK_UPS_MAX: usize = 4;
/// Requests that may wait for a name, in all.
const WAITING_MAX: usize = 1024;

type LookUp = Arc<dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync>;
/// What a look-up came to, for each who asked.
type Found = Result<Vec<SocketAddr>, LookUpError>;

/// Why a name has no address.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum LookUpError {
    /// Too many wait; try later.
    #[error("too many names are being looked up")]
    Full,
    /// What the resolver said.
    #[error("{0}")]
    Failed(Arc<io::Error>),
    /// The thread has ended.
    #[error("the resolver gave no answer")]
    Ended,
}

enum Message {
    Ask { host: String, asker: oneshot::Sender<Found> },
    Found { host: String, found: Found },
}

/// The way to the resolver, for the whole process; the threads end when the last one is dropped.
#[derive(Clone)]
pub struct Names {
    book: Arc<SyncSender<Message>>,
}

impl Names {
    /// Starts the thread that keeps the books. Before any executor is pinned: a thread inherits the affinity of the one that
    /// makes it.
    ///
    /// # Errors
    /// No thread can be made.
    pub fn start() -> io::Result<Self> {
        Self::with(Arc::new(|host| (host, 0).to_socket_addrs().map(Iterator::collect)))
    }

    fn with(look_up: LookUp) -> io::Result<Self> {
        let (sender, inbox) = sync_channel(WAITING_MAX);
        let names = Self { book: Arc::new(sender) };
        let book = Book {
            look_up,
            inbox,
            sender: Arc::downgrade(&names.book),
            asked: HashMap::new(),
            waiting: VecDeque::new(),
            busy: 0,
        };
        std::thread::Builder::new().name("names".to_owned()).spawn(move || book.keep())?;
        Ok(names)
    }

    /// The addresses of a name, with this port. Dropping the future gives up.
    pub(super) fn look_up(&self, host: String, port: u16) -> impl Future<Output = Found> + use<> {
        let (asker, found) = oneshot::channel();
        let refused = match self.book.try_send(Message::Ask { host, asker }) {
            Ok(()) => None,
            Err(TrySendError::Full(_)) => Some(LookUpError::Full),
            Err(TrySendError::Disconnected(_)) => Some(LookUpError::Ended),
        };
        async move {
            if let Some(error) = refused {
                return Err(error);
            }
            let mut addresses = found.await.unwrap_or(Err(LookUpError::Ended))?;
            addresses.iter_mut().for_each(|address| address.set_port(port));
            Ok(addresses)
        }
    }
}

/// What is asked and who asks.
struct Book {
    look_up: LookUp,
    inbox: Receiver<Message>,
    /// For the threads, so that the last handle's end is seen here.
    sender: Weak<SyncSender<Message>>,
    /// Who asks for each name, looked up or waiting.
    asked: HashMap<String, Vec<oneshot::Sender<Found>>>,
    waiting: VecDeque<String>,
    busy: usize,
}

impl Book {
    fn keep(mut self) {
        while let Ok(message) = self.inbox.recv() {
            match message {
                Message::Ask { host, asker } => self.ask(host, asker),
                Message::Found { host, found } => {
                    self.busy -= 1;
                    self.answer(&host, &found);
                }
            }
            while self.busy < LOOK_UPS_MAX
                && let Some(host) = self.waiting.pop_front()
            {
                self.begin(host);
            }
        }
    }

    fn ask(&mut self, host: String, asker: oneshot::Sender<Found>) {
        if self.askers() >= WAITING_MAX {
            self.asked.values_mut().for_each(|askers| askers.retain(|asker| !asker.is_canceled()));
            if self.askers() >= WAITING_MAX {
                // It may have gone away.
                let _ = asker.send(Err(LookUpError::Full));
                return;
            }
        }
        match self.asked.get_mut(&host) {
            Some(askers) => askers.push(asker),
            None => {
                self.asked.insert(host.clone(), vec![asker]);
                self.waiting.push_back(host);
            }
        }
    }

    fn askers(&self) -> usize {
        self.asked.values().map(Vec::len).sum()
    }

    /// Looks a name up, unless those who asked have gone away.
    fn begin(&mut self, host: String) {
        let is_wanted = self.asked.get(&host).is_some_and(|askers| askers.iter().any(|asker| !asker.is_canceled()));
        let Some(sender) = self.sender.upgrade().filter(|_| is_wanted) else {
            self.asked.remove(&host);
            return;
        };
        let (look_up, name) = (self.look_up.clone(), host.clone());
        let started = std::thread::Builder::new().name("name".to_owned()).spawn(move || {
            let looked_up = catch_unwind(AssertUnwindSafe(|| look_up(&name)));
            let found = looked_up.unwrap_or_else(|_| Err(io::Error::other("the resolver panicked")));
            let found = found.map_err(|error| LookUpError::Failed(Arc::new(error)));
            // The books are kept as long as anything can be sent.
            let _ = sender.send(Message::Found { host: name, found });
        });
        match started {
            Ok(_) => self.busy += 1,
            Err(error) => self.answer(&host, &Err(LookUpError::Failed(Arc::new(error)))),
        }
    }

    fn answer(&mut self, host: &str, found: &Found) {
        for asker in self.asked.remove(host).unwrap_or_default() {
            // It may have gone away.
            let _ = asker.send(found.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Condvar, Mutex};
    use std::time::{Duration, Instant};

    use futures_lite::future::block_on;
    use futures_util::FutureExt;

    use super::*;

    /// Name servers that say nothing about names with `silent` before the gate is opened.
    #[derive(Default)]
    struct Servers {
        open: Mutex<bool>,
        opened: Condvar,
        asked: AtomicUsize,
    }

    impl Servers {
        fn names(self: &Arc<Self>) -> Names {
            let servers = self.clone();
            let look_up = move |host: &str| {
                servers.asked.fetch_add(1, Ordering::Relaxed);
                if host.contains("silent") {
                    let minute = Duration::from_secs(60);
                    let _ = servers.opened.wait_timeout_while(servers.open.lock().unwrap(), minute, |open| !*open);
                }
                match host {
                    "nobody" => Err(io::Error::other("not known")),
                    _ => Ok(vec![SocketAddr::from(([127, 0, 0, 1], 0))]),
                }
            };
            Names::with(Arc::new(look_up)).unwrap()
        }

        fn open(&self) {
            *self.open.lock().unwrap() = true;
            self.opened.notify_all();
        }

        /// Waits until so many look-ups have begun.
        fn wait_for(&self, count: usize) {
            while self.asked.load(Ordering::Relaxed) < count {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn names_have_addresses_with_the_port_or_an_error() {
        let names = Arc::new(Servers::default()).names();
        let found = block_on(names.look_up("somebody".into(), 80)).unwrap();
        assert_eq!(found, [SocketAddr::from(([127, 0, 0, 1], 80))]);
        assert_eq!(block_on(names.look_up("nobody".into(), 80)).unwrap_err().to_string(), "not known");
    }

    /// A dead host that many ask for must not take all threads, nor be asked for anew by each.
    #[test]
    fn look_ups_of_one_name_share_one() {
        let servers = Arc::new(Servers::default());
        let names = servers.names();
        let asking: Vec<_> = (0..100).map(|port| names.look_up("silent".into(), port)).collect();
        assert!(block_on(names.look_up("other".into(), 1)).is_ok());
        servers.open();
        for (port, found) in (0..).zip(asking) {
            assert_eq!(block_on(found).unwrap()[0].port(), port);
        }
        assert_eq!(servers.asked.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn when_all_are_busy_others_wait_and_the_dropped_are_passed_over() {
        let servers = Arc::new(Servers::default());
        let names = servers.names();
        let silent: Vec<_> = (0..LOOK_UPS_MAX).map(|number| names.look_up(format!("silent {number}"), 1)).collect();
        servers.wait_for(LOOK_UPS_MAX);
        let mut waiting = Box::pin(names.look_up("waiting".into(), 1));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(names.look_up("dropped".into(), 1));
        servers.open();
        assert!(silent.into_iter().map(block_on).all(|found| found.is_ok()));
        assert!(block_on(waiting).is_ok());
        assert!(block_on(names.look_up("last".into(), 1)).is_ok());
        assert_eq!(servers.asked.load(Ordering::Relaxed), LOOK_UPS_MAX + 2);
    }

    #[test]
    fn too_many_are_refused_until_some_have_gone_away() {
        let servers = Arc::new(Servers::default());
        let names = servers.names();
        let mut asking = Vec::new();
        // The way to the book is bounded as well, and may be full before it.
        while asking.len() < WAITING_MAX {
            let mut found = Box::pin(names.look_up("silent".into(), 1));
            match found.as_mut().now_or_never() {
                None => asking.push(found),
                Some(refused) => assert!(matches!(refused, Err(LookUpError::Full))),
            }
        }
        let refused = block_on(async { futures_lite::future::or(names.look_up("one more".into(), 1), wait()).await });
        assert!(matches!(refused, Err(LookUpError::Full)), "{refused:?}");
        drop(asking);
        // Those who have gone away are struck out when the next one finds no room.
        let latest = Instant::now() + Duration::from_secs(30);
        while block_on(names.look_up("one more".into(), 1)).is_err() {
            assert!(Instant::now() < latest);
            std::thread::yield_now();
        }
        servers.open();
    }

    /// A minute, for what must not take so long.
    async fn wait() -> Found {
        let (never, ends) = oneshot::channel::<()>();
        std::thread::spawn(move || {
            std::thread::park_timeout(Duration::from_secs(60));
            drop(never);
        });
        let _ = ends.await;
        Err(LookUpError::Ended)
    }
}
