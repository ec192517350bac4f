//! Idle connections of one core, kept for the next request to the same place.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::time::Duration;

use shards::runtime::{Nanos, Queue, Runtime};

use super::connection::Connection;

/// Idle connections of one core; beyond that the oldest is closed.
const IDLE_MAX: usize = 64;
/// Idle connections to one place.
const IDLE_PER_PLACE_MAX: usize = 8;
/// How long a connection may be idle. Shorter than what servers usually allow, so that they seldom close first.
const IDLE_TIME: Duration = Duration::from_secs(30);

/// Where a connection leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) is_tls: bool,
    pub(super) host: String,
    pub(super) port: u16,
}

/// The idle connections.
pub(super) struct Pool {
    runtime: Rc<dyn Runtime>,
    /// The oldest first.
    idle: RefCell<VecDeque<Idle>>,
    is_swept: Cell<bool>,
}

struct Idle {
    key: Key,
    connection: Connection,
    since: Nanos,
}

impl Pool {
    pub(super) fn new(runtime: Rc<dyn Runtime>) -> Rc<Self> {
        Rc::new(Self { runtime, idle: RefCell::default(), is_swept: Cell::new(false) })
    }

    /// The connection to this place that was used last, if one is still good.
    pub(super) fn take(&self, key: &Key) -> Option<Connection> {
        self.close_old();
        loop {
            let found = {
                let mut idle = self.idle.borrow_mut();
                let at = idle.iter().rposition(|idle| idle.key == *key)?;
                idle.remove(at)?
            };
            let mut connection = found.connection;
            if connection.is_usable() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection.
    pub(super) fn put(self: &Rc<Self>, key: Key, mut connection: Connection) {
        connection.rest();
        let since = self.runtime.now();
        let mut idle = self.idle.borrow_mut();
        let of_place = idle.iter().filter(|idle| idle.key == key).count();
        let surplus = match of_place >= IDLE_PER_PLACE_MAX {
            true => idle.iter().position(|idle| idle.key == key),
            false => (idle.len() >= IDLE_MAX).then_some(0),
        };
        if let Some(at) = surplus {
            idle.remove(at);
        }
        idle.push_back(Idle { key, connection, since });
        drop(idle);
        if !self.is_swept.replace(true) {
            self.runtime.spawn(Queue::Upkeep, Box::pin(sweep(self.runtime.clone(), Rc::downgrade(self))));
        }
    }

    fn close_old(&self) {
        let now = self.runtime.now();
        let mut idle = self.idle.borrow_mut();
        while idle.front().is_some_and(|oldest| now.since(oldest.since) >= IDLE_TIME) {
            idle.pop_front();
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.idle.borrow().len()
    }
}

/// Closes connections that nobody has used for long, until there are none.
async fn sweep(runtime: Rc<dyn Runtime>, pool: Weak<Pool>) {
    loop {
        runtime.sleep(IDLE_TIME).await;
        let Some(pool) = pool.upgrade() else { return };
        pool.close_old();
        if pool.idle.borrow().is_empty() {
            pool.is_swept.set(false);
            return;
        }
    }
}
