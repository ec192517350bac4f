//! State shared by the connections of one core: the service, the clock, the limits, and who is waiting.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_lite::io::AsyncRead;
use time::OffsetDateTime;
use time::macros::format_description;

use super::drain::{Attendance, Attending};
use crate::http::Service;

/// The buffer that all connections of a core read into, in bytes. A connection that waits holds none.
const READ_BYTES: usize = 64 * 1024;

/// What one tick may add to the clock of deadlines, in milliseconds. A core that stood still, because the process was suspended
/// or the machine had no processor for it, could not hear its clients: that time is not theirs.
const TICK_MAX_MS: u64 = 1000;

/// Bytes of an answer that a client may take at the rate of bodies.
const SLOW_ANSWER_BYTES: u64 = 256 * 1024;

/// The bounds that connections keep.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections of one core; beyond that, new ones wait in the backlog until one closes.
    pub connections_max: usize,
    /// Bytes of bodies that one core holds at once, being received or being worked on, and of answers being sent. Beyond
    /// that, a request is answered 503 and its connection closed.
    pub body_bytes_max: usize,
    /// Time for a whole head from its first byte (from the accept for the first one), in milliseconds.
    pub head_ms: u64,
    /// Time without a request on a connection that is kept alive, in milliseconds.
    pub idle_ms: u64,
    /// Time that a body or an answer may take beside what its rate allows, in milliseconds.
    pub transfer_ms: u64,
    /// The least rate of bodies and short answers, in bytes a second.
    pub transfer_rate_min: u64,
    /// The least rate of what an answer has beyond [`SLOW_ANSWER_BYTES`], in bytes a second: until it is sent, it is in memory.
    pub long_answer_rate_min: u64,
    /// Time for the answer to a request that only reads once its client has closed its side, in milliseconds: a little more than
    /// a search may take unless its index says otherwise.
    pub half_closed_ms: u64,
    /// Bytes of a refused body that are read and thrown away to keep the connection.
    pub skip_bytes_max: u64,
    /// Bytes that are read and thrown away after the last answer, so that a client still sending can read it.
    pub linger_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: 16 * 1024,
            body_bytes_max: 512 * 1024 * 1024,
            head_ms: 30_000,
            idle_ms: 90_000,
            transfer_ms: 30_000,
            transfer_rate_min: 1024,
            long_answer_rate_min: 64 * 1024,
            half_closed_ms: 2_000,
            skip_bytes_max: 1024 * 1024,
            linger_bytes_max: 256 * 1024 * 1024,
        }
    }
}

impl Limits {
    /// The time in which a body must have come as far as `bytes`, in milliseconds.
    pub(super) fn body_ms(&self, bytes: u64) -> u64 {
        self.transfer_ms.saturating_add(at_rate_ms(bytes, self.transfer_rate_min))
    }

    /// The time in which a client must have taken `bytes` of an answer, in milliseconds.
    pub(super) fn answer_ms(&self, bytes: u64) -> u64 {
        let slow_bytes = bytes.min(SLOW_ANSWER_BYTES);
        let rate = self.long_answer_rate_min.max(self.transfer_rate_min);
        self.body_ms(slow_bytes).saturating_add(at_rate_ms(bytes - slow_bytes, rate))
    }
}

/// What so many bytes take at a rate in bytes a second, in milliseconds.
fn at_rate_ms(bytes: u64, rate: u64) -> u64 {
    bytes.saturating_mul(1000) / rate.max(1)
}

/// What the connections of one core share. Made once on the core, never leaves it.
pub struct CoreNet {
    /// What answers requests.
    pub service: Rc<dyn Service>,
    /// The bounds.
    pub limits: Limits,
    scratch: RefCell<Box<[u8]>>,
    /// The clock of deadlines.
    now_ms: Cell<u64>,
    /// When the last tick was.
    ticked_ms: Cell<Option<u64>>,
    date: RefCell<String>,
    date_second: Cell<i64>,
    body_bytes: Cell<usize>,
    draining: Cell<bool>,
    next_watch: Cell<u64>,
    watches: RefCell<BTreeMap<u64, Rc<Watch>>>,
    /// Counts the connections of all cores.
    attendance: Arc<Attendance>,
    /// The loops that accept, where they wait for room or for the stop.
    accepting: RefCell<Vec<Waker>>,
}

/// What a connection is waiting for, as far as its deadline is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// For the next request; the orderly stop ends it at once.
    Idle,
    /// For the client to close after the last answer; nothing is owed to it, and the orderly stop ends it at once, too.
    Closing,
    /// For bytes of a request, or for the client to take bytes of an answer.
    Transfer,
    /// For the service; it has no deadline here.
    Service,
    /// For the service, while the client has closed its side.
    HalfClosed,
}

/// One connection's deadline and how to wake it.
pub struct Watch {
    deadline_ms: Cell<u64>,
    phase: Cell<Phase>,
    expired: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl CoreNet {
    /// The shared part of a core whose requests `service` answers, alone.
    pub fn new(service: Rc<dyn Service>, limits: Limits) -> Rc<CoreNet> {
        Self::among(service, limits, &Attendance::of(1).attend())
    }

    /// As [`Self::new`], for one of several cores.
    pub fn among(service: Rc<dyn Service>, limits: Limits, place: &Attending) -> Rc<CoreNet> {
        Rc::new(CoreNet {
            service,
            limits,
            scratch: RefCell::new(vec![0; READ_BYTES].into_boxed_slice()),
            now_ms: Cell::new(0),
            ticked_ms: Cell::new(None),
            date: RefCell::new(String::new()),
            date_second: Cell::new(0),
            body_bytes: Cell::new(0),
            draining: Cell::new(false),
            next_watch: Cell::new(0),
            watches: RefCell::new(BTreeMap::new()),
            attendance: place.all().clone(),
            accepting: RefCell::new(Vec::new()),
        })
    }

    /// Moves the clock on and ends what has passed its deadline: the granularity of every deadline is how often this is
    /// called. `now_ms` counts from any fixed moment.
    pub fn tick(&self, now_ms: u64, unix: OffsetDateTime) {
        let passed_ms = now_ms.saturating_sub(self.ticked_ms.replace(Some(now_ms)).unwrap_or(now_ms));
        let now_ms = self.now_ms.get() + passed_ms.min(TICK_MAX_MS);
        self.now_ms.set(now_ms);
        if self.date_second.replace(unix.unix_timestamp()) != unix.unix_timestamp() {
            *self.date.borrow_mut() = http_date(unix);
        }
        let due: Vec<Rc<Watch>> =
            self.watches.borrow().values().filter(|watch| watch.is_due(now_ms)).cloned().collect();
        for watch in due {
            watch.expired.set(true);
            watch.wake();
        }
    }

    /// The clock of deadlines as of the last tick, in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.now_ms.get()
    }

    /// Calls `write` with the value of the `Date` header.
    pub fn with_date<T>(&self, write: impl FnOnce(&str) -> T) -> T {
        write(&self.date.borrow())
    }

    /// Reads what has arrived to the end of `input`, and says how many bytes. 0: nothing more will come.
    pub fn poll_more<S: AsyncRead + Unpin>(
        &self,
        context: &mut Context<'_>,
        stream: &mut S,
        input: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        let scratch = &mut *self.scratch.borrow_mut();
        Pin::new(stream).poll_read(context, scratch).map_ok(|count| {
            input.extend_from_slice(&scratch[..count]);
            count
        })
    }

    /// Begins the orderly stop: idle connections end now, the others after their answer.
    pub fn drain(&self) {
        self.draining.set(true);
        let watches: Vec<Rc<Watch>> = self.watches.borrow().values().cloned().collect();
        for watch in watches {
            watch.wake();
        }
        self.wake_accepting();
    }

    /// Whether the orderly stop has begun.
    pub fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// How many connections are open.
    pub fn connection_count(&self) -> usize {
        self.watches.borrow().len()
    }

    /// Ready once another connection may be accepted, or once there is to be none any more.
    pub fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.is_draining() || self.connection_count() < self.limits.connections_max {
            return Poll::Ready(());
        }
        self.register_accepting(context.waker());
        Poll::Pending
    }

    /// Ready once the orderly stop has begun.
    pub fn poll_draining(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.is_draining() {
            return Poll::Ready(());
        }
        self.register_accepting(context.waker());
        Poll::Pending
    }

    fn register_accepting(&self, waker: &Waker) {
        let mut accepting = self.accepting.borrow_mut();
        if !accepting.iter().any(|known| known.will_wake(waker)) {
            accepting.push(waker.clone());
        }
    }

    fn wake_accepting(&self) {
        let wakers = std::mem::take(&mut *self.accepting.borrow_mut());
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Counts a new connection; it is counted until what is returned is dropped.
    pub fn watch(self: &Rc<CoreNet>) -> WatchGuard {
        let id = self.next_watch.get();
        self.next_watch.set(id + 1);
        let watch = Rc::new(Watch {
            deadline_ms: Cell::new(self.now_ms() + self.limits.head_ms),
            phase: Cell::new(Phase::Transfer),
            expired: Cell::new(false),
            waker: RefCell::new(None),
        });
        self.watches.borrow_mut().insert(id, watch.clone());
        self.attendance.open();
        WatchGuard { net: self.clone(), id, watch }
    }

    /// A share of the core's memory for bodies, empty at first.
    pub fn lease(self: &Rc<CoreNet>) -> BodyLease {
        BodyLease { net: self.clone(), bytes: 0 }
    }
}

impl Watch {
    fn is_due(&self, now_ms: u64) -> bool {
        self.phase.get() != Phase::Service && now_ms >= self.deadline_ms.get()
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

/// A connection as its core counts it.
pub struct WatchGuard {
    net: Rc<CoreNet>,
    id: u64,
    watch: Rc<Watch>,
}

impl WatchGuard {
    /// From now on, and until `after_ms` from now, the connection waits for this. An earlier deadline that has passed is
    /// forgotten.
    pub fn enter(&self, phase: Phase, after_ms: u64) {
        self.watch.expired.set(false);
        self.watch.phase.set(phase);
        self.watch.deadline_ms.set(self.net.now_ms() + after_ms);
    }

    /// Moves the deadline, counted from the moment `start_ms`.
    pub fn allow_until(&self, start_ms: u64, after_ms: u64) {
        self.watch.deadline_ms.set(start_ms + after_ms);
    }

    /// Whether the deadline has passed.
    pub fn is_expired(&self) -> bool {
        self.watch.expired.get()
    }

    /// Whether the wait is over without what was waited for: by the deadline, or by the orderly stop while nothing is owed.
    pub fn is_over(&self) -> bool {
        let owed_nothing = matches!(self.watch.phase.get(), Phase::Idle | Phase::Closing);
        self.is_expired() || (self.is_draining() && owed_nothing)
    }

    /// Whether the orderly stop has begun.
    pub fn is_draining(&self) -> bool {
        self.net.is_draining()
    }

    /// Whether the connection waits for the next request.
    pub fn is_idle(&self) -> bool {
        self.watch.phase.get() == Phase::Idle
    }

    /// Has this task woken when the wait is over.
    pub fn register(&self, waker: &Waker) {
        let mut slot = self.watch.waker.borrow_mut();
        if !slot.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *slot = Some(waker.clone());
        }
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        let was_full = self.net.connection_count() >= self.net.limits.connections_max;
        self.net.watches.borrow_mut().remove(&self.id);
        self.net.attendance.close();
        if was_full {
            self.net.wake_accepting();
        }
    }
}

/// The bytes of one request's body or of its answer, counted against [`Limits::body_bytes_max`] until dropped.
pub struct BodyLease {
    net: Rc<CoreNet>,
    bytes: usize,
}

impl BodyLease {
    /// Makes the lease this large; `false` when the core has no room for that.
    pub fn resize(&mut self, bytes: usize) -> bool {
        let others = self.net.body_bytes.get() - self.bytes;
        if bytes > self.bytes && others + bytes > self.net.limits.body_bytes_max {
            return false;
        }
        self.set(bytes);
        true
    }

    /// Makes the lease this large, whether or not there is room: for what is in memory already.
    pub fn set(&mut self, bytes: usize) {
        self.net.body_bytes.set(self.net.body_bytes.get() - self.bytes + bytes);
        self.bytes = bytes;
    }
}

impl Drop for BodyLease {
    fn drop(&mut self) {
        self.net.body_bytes.set(self.net.body_bytes.get() - self.bytes);
    }
}

/// A moment as the `Date` header writes it.
fn http_date(moment: OffsetDateTime) -> String {
    let format =
        format_description!("[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT");
    moment.to_offset(time::UtcOffset::UTC).format(format).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use futures_util::future::{FutureExt, LocalBoxFuture};

    use super::*;

    fn no_service() -> Rc<CoreNet> {
        struct Nothing;
        impl Service for Nothing {
            fn admit(&self, _: &crate::http::Head) -> Result<u64, crate::http::Response> {
                Ok(0)
            }
            fn call(&self, _: crate::http::Request) -> LocalBoxFuture<'static, crate::http::Response> {
                async { crate::http::Response::empty(200) }.boxed_local()
            }
        }
        CoreNet::new(Rc::new(Nothing), Limits::default())
    }

    /// After a machine has slept, the requests that came meanwhile must not find their connections closed.
    #[test]
    fn time_in_which_the_core_stood_still_ends_no_connection() {
        let net = no_service();
        let tick = |now_ms| net.tick(now_ms, OffsetDateTime::UNIX_EPOCH);
        tick(5_000_000);
        let watch = net.watch();
        watch.enter(Phase::Idle, 90_000);
        tick(5_000_100);
        tick(6_000_000);
        assert!(!watch.is_expired());
        (0..1000).for_each(|number| tick(6_000_000 + number * 100));
        assert!(watch.is_expired());
    }

    /// A long answer once could be read for hours, a kilobyte a second, and was in memory meanwhile.
    #[test]
    fn long_answers_have_to_be_taken_faster_than_short_ones() {
        let limits = Limits::default();
        assert_eq!(limits.answer_ms(1024), limits.transfer_ms + 1000);
        assert_eq!(limits.answer_ms(1024), limits.body_ms(1024));
        assert!(limits.answer_ms(100 << 20) < 2_000_000);
        let fast = Limits { transfer_ms: 7, transfer_rate_min: u64::MAX, ..limits };
        assert_eq!(fast.answer_ms(100 << 20), 7);
    }

    #[test]
    fn dates_have_the_form_of_http() {
        let moment = OffsetDateTime::from_unix_timestamp(784_111_777).unwrap();
        assert_eq!(http_date(moment), "Sun, 06 Nov 1994 08:49:37 GMT");
    }
}
