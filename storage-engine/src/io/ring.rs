//! A core's own io_uring, for reads that wait for the device: many in flight, begun together by one system call.
//!
//! A read is queued when its future is first polled and begun by the next [`Driver::turn`], which also collects what has ended.
//! The kernel finishes reads only within that call (deferred task work), so none interrupts a computation.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::future::Future;
use std::io::{Error, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use io_uring::{IoUring, opcode, types};
use slab::Slab;

use super::Driver;
use super::ring_buffers::{Buffer, Buffers};

/// Reads in flight at once, of one core; the others wait. It is the ring's length, too.
const READS_IN_FLIGHT_MAX: usize = 128;

/// See the module. It belongs to the thread that made it.
pub struct Ring {
    inner: RefCell<Inner>,
    /// An eventfd that the kernel writes to when a read has ended.
    ended: OwnedFd,
}

struct Inner {
    ring: IoUring,
    buffers: Buffers,
    reads: Slab<Reading>,
    /// Reads that the kernel does not know of yet.
    queued: usize,
    /// Those that found [`READS_IN_FLIGHT_MAX`] reads in flight, by their tickets: at most the reads that searches wait for. Whoever
    /// is told that there is room is taken out, and one that is dropped takes itself out: it would be told in another's place.
    waiting: BTreeMap<u64, Waker>,
    /// Tickets given out so far.
    tickets: u64,
}

/// A read that is queued or in flight, or has ended and was not fetched yet.
struct Reading {
    buffer: Buffer,
    /// Keeps the descriptor open.
    _file: Arc<File>,
    state: State,
}

enum State {
    InFlight(Waker),
    /// Nobody wants it any more, but the kernel still writes into its buffer.
    Abandoned,
    Ended(Result<usize>),
}

/// What to read.
#[derive(Clone, Copy)]
struct Wanted {
    offset: u64,
    len: usize,
    /// Of what the file's reads must begin and end at multiples, in bytes; 1 for any.
    alignment: usize,
}

impl Wanted {
    /// The bytes that are read in front of the wanted ones.
    fn skipped(&self) -> usize {
        (self.offset % self.alignment as u64) as usize
    }

    fn read_bytes(&self) -> usize {
        (self.skipped() + self.len).next_multiple_of(self.alignment)
    }
}

impl Ring {
    /// A ring of this thread.
    ///
    /// # Errors
    /// The kernel, or a sandbox, refuses it.
    pub fn new() -> Result<Rc<Self>> {
        let build = |builder: &mut io_uring::Builder| builder.build(READS_IN_FLIGHT_MAX as u32);
        let ring = build(IoUring::builder().setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag())
            // Linux before 6.1.
            .or_else(|_| build(&mut IoUring::builder()))?;
        // SAFETY: the call takes no pointers.
        let ended = match unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) } {
            -1 => return Err(Error::last_os_error()),
            // SAFETY: it was just opened, and nobody else has it.
            descriptor => unsafe { OwnedFd::from_raw_fd(descriptor) },
        };
        ring.submitter().register_eventfd(ended.as_raw_fd())?;
        let inner = Inner {
            ring,
            buffers: Buffers::default(),
            reads: Slab::new(),
            queued: 0,
            waiting: BTreeMap::new(),
            tickets: 0,
        };
        Ok(Rc::new(Self { inner: RefCell::new(inner), ended }))
    }

    /// Reads up to `len` bytes from `offset`, fewer where the file ends before. `alignment`: of what the file's reads
    /// must begin and end at multiples, in bytes, at most [`BLOCK_BYTES`](super::ring_buffers::BLOCK_BYTES); 1 for any.
    pub(super) fn read(self: &Rc<Self>, file: Arc<File>, offset: u64, len: usize, alignment: usize) -> Read {
        Read { ring: self.clone(), file, wanted: Wanted { offset, len, alignment }, key: None, ticket: None }
    }
}

impl Inner {
    fn has_room(&self) -> bool {
        self.reads.len() < READS_IN_FLIGHT_MAX
    }

    /// Queues a read. None where the ring is full: who asked must [`wait`](Self::wait).
    fn begin(&mut self, file: &Arc<File>, wanted: Wanted, waker: &Waker) -> Option<usize> {
        if !self.has_room() {
            return None;
        }
        let mut buffer = self.buffers.take(wanted.read_bytes(), &self.ring);
        let (descriptor, at) = (types::Fd(file.as_raw_fd()), wanted.offset - wanted.skipped() as u64);
        let (start, len) = (buffer.as_mut_ptr(), wanted.read_bytes() as u32);
        let read = match buffer.slot() {
            Some(slot) => opcode::ReadFixed::new(descriptor, start, len, slot).offset(at).build(),
            None => opcode::Read::new(descriptor, start, len).offset(at).build(),
        };
        let entry = self.reads.vacant_entry();
        let key = entry.key();
        // SAFETY: `reads` holds the buffer and the descriptor until the kernel has said that the read has ended, also where nobody
        // wants it any more; see `drop`, too.
        if unsafe { self.ring.submission().push(&read.user_data(key as u64)) }.is_err() {
            // It has as many places as there may be reads; those of reads that were begun are free again.
            self.buffers.give(buffer);
            return None;
        }
        entry.insert(Reading { buffer, _file: file.clone(), state: State::InFlight(waker.clone()) });
        self.queued += 1;
        Some(key)
    }

    /// Has `waker` told when there may be room. Who has a ticket keeps its place in the line; the ticket.
    fn wait(&mut self, ticket: Option<u64>, waker: &Waker) -> u64 {
        let ticket = ticket.unwrap_or_else(|| {
            self.tickets += 1;
            self.tickets
        });
        self.waiting.insert(ticket, waker.clone());
        ticket
    }

    /// Begins what is queued, and puts into `woken` whoever waits for what has ended.
    fn turn(&mut self, wait_for: usize, woken: &mut Vec<Waker>) {
        let submission = self.ring.submission();
        let is_due = self.queued > 0 || wait_for > 0 || submission.taskrun() || submission.cq_overflow();
        drop(submission);
        if is_due && let Ok(begun) = self.ring.submit_and_wait(wait_for) {
            self.queued = self.queued.saturating_sub(begun);
        }
        let Self { ring, buffers, reads, .. } = self;
        for ended in ring.completion() {
            let key = ended.user_data() as usize;
            let Some(reading) = reads.get_mut(key) else { continue };
            let result = usize::try_from(ended.result()).map_err(|_| Error::from_raw_os_error(-ended.result()));
            match std::mem::replace(&mut reading.state, State::Ended(result)) {
                State::InFlight(waker) => woken.push(waker),
                State::Abandoned | State::Ended(_) => buffers.give(reads.remove(key).buffer),
            }
        }
        let free = READS_IN_FLIGHT_MAX.saturating_sub(self.reads.len());
        woken.extend(std::iter::from_fn(|| self.waiting.pop_first()).map(|(_, waker)| waker).take(free));
    }

    fn in_flight(&self) -> usize {
        self.reads.iter().filter(|(_, reading)| !matches!(reading.state, State::Ended(_))).count()
    }
}

impl Driver for Ring {
    fn ended(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    fn turn(&self) -> bool {
        let mut woken = Vec::new();
        let mut inner = self.inner.borrow_mut();
        inner.turn(0, &mut woken);
        // Of those who are told of the room some may not want it any more: then it is the next one's.
        let is_all_begun = inner.queued == 0 && (inner.waiting.is_empty() || !inner.has_room());
        drop(inner);
        woken.into_iter().for_each(Waker::wake);
        is_all_begun
    }
}

impl Drop for Ring {
    /// The kernel writes into the buffers as long as reads are in flight.
    fn drop(&mut self) {
        let inner = self.inner.get_mut();
        while inner.in_flight() > 0 {
            let before = inner.queued;
            inner.turn(1, &mut Vec::new());
            if inner.queued > 0 && inner.queued == before {
                // It begins no more, so nobody knows what is in flight.
                std::mem::forget(std::mem::take(&mut inner.reads));
            }
        }
    }
}

/// A read; dropped, it is forgotten.
pub(super) struct Read {
    ring: Rc<Ring>,
    file: Arc<File>,
    wanted: Wanted,
    /// Where the ring has it, from when it is queued until it is fetched.
    key: Option<usize>,
    /// Its place among those that wait for room.
    ticket: Option<u64>,
}

impl Future for Read {
    type Output = Result<Vec<u8>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Vec<u8>>> {
        let this = &mut *self;
        let mut inner = this.ring.inner.borrow_mut();
        let Some(key) = this.key else {
            this.key = inner.begin(&this.file, this.wanted, context.waker());
            if this.key.is_none() {
                this.ticket = Some(inner.wait(this.ticket, context.waker()));
            } else if let Some(ticket) = this.ticket.take() {
                inner.waiting.remove(&ticket);
            }
            return Poll::Pending;
        };
        if let Some(Reading { state: State::InFlight(waker), .. }) = inner.reads.get_mut(key) {
            waker.clone_from(context.waker());
            return Poll::Pending;
        }
        this.key = None;
        let Some(reading) = inner.reads.try_remove(key) else { return Poll::Ready(Err(polled_again())) };
        let bytes = match reading.state {
            State::Ended(Ok(read)) => {
                let start = this.wanted.skipped();
                Ok(reading.buffer.copy(start..read.clamp(start, start + this.wanted.len)))
            }
            State::Ended(Err(error)) => Err(error),
            State::InFlight(_) | State::Abandoned => Err(polled_again()),
        };
        inner.buffers.give(reading.buffer);
        Poll::Ready(bytes)
    }
}

fn polled_again() -> Error {
    Error::other("a read was polled after its end")
}

impl Drop for Read {
    fn drop(&mut self) {
        let waiting = self.ticket.and_then(|ticket| self.ring.inner.borrow_mut().waiting.remove(&ticket));
        drop(waiting);
        let Some(key) = self.key else { return };
        let mut inner = self.ring.inner.borrow_mut();
        let Some(reading) = inner.reads.get_mut(key) else { return };
        match reading.state {
            State::Ended(_) => {
                let reading = inner.reads.remove(key);
                inner.buffers.give(reading.buffer);
            }
            State::InFlight(_) | State::Abandoned => reading.state = State::Abandoned,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use futures_lite::future::{block_on, or, poll_once, yield_now};
    use futures_util::future::join_all;

    use super::super::ring_buffers::BLOCK_BYTES;
    use super::*;

    /// Numbers, four bytes each, so that every place in the file is told from the others.
    fn content(bytes: usize) -> Vec<u8> {
        (0..bytes as u32 / 4).flat_map(u32::to_le_bytes).collect()
    }

    fn file(bytes: usize) -> (tempfile::NamedTempFile, Arc<File>, Option<Arc<File>>) {
        // Not where temporary files are: that may be memory, which has no reads past the page cache.
        let mut named = tempfile::NamedTempFile::new_in(".").unwrap();
        named.write_all(&content(bytes)).unwrap();
        named.as_file().sync_all().unwrap();
        let direct = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(named.path());
        let plain = Arc::new(named.reopen().unwrap());
        (named, plain, direct.ok().map(Arc::new))
    }

    /// Runs a future to its end, turning the ring as an executor does.
    fn drive<T>(ring: &Rc<Ring>, future: impl Future<Output = T>) -> T {
        let turning = async {
            loop {
                ring.turn();
                yield_now().await;
            }
        };
        block_on(or(future, turning))
    }

    #[test]
    fn more_reads_than_fit_all_end_and_say_what_is_there() {
        const BYTES: usize = 1 << 20;
        let (_named, plain, direct) = file(BYTES);
        let (ring, expected) = (Ring::new().unwrap(), content(BYTES));
        let plain = [(plain.clone(), 1), (plain, 512)];
        for (file, alignment) in plain.into_iter().chain(direct.map(|file| (file, BLOCK_BYTES))) {
            // Around the size of a registered buffer, at places that are no block's.
            let wanted = |number: usize| (number * 2_777 % (BYTES - 40_000), 1 + number * 97 % 40_000);
            let reads = (0..3 * READS_IN_FLIGHT_MAX).map(|number| {
                let (offset, len) = wanted(number);
                ring.read(file.clone(), offset as u64, len, alignment)
            });
            for (number, read) in drive(&ring, join_all(reads)).into_iter().enumerate() {
                let (offset, len) = wanted(number);
                assert!(
                    read.unwrap() == expected[offset..offset + len],
                    "{len} bytes at {offset}, aligned to {alignment}"
                );
            }
            let end = drive(&ring, ring.read(file.clone(), BYTES as u64 - 10, 100, alignment)).unwrap();
            assert_eq!(end, expected[BYTES - 10..], "no more than there is");
        }
        assert_eq!(ring.inner.borrow().reads.len(), 0);
    }

    /// A search that is given up leaves its reads to the kernel. They must not keep others from theirs.
    #[test]
    fn dropped_reads_free_their_places() {
        let (_named, plain, direct) = file(1 << 16);
        let (file, alignment) = direct.map_or((plain, 1), |file| (file, BLOCK_BYTES));
        let ring = Ring::new().unwrap();
        for turned in [false, true, false, true] {
            let mut reads: Vec<Read> =
                (0..2 * READS_IN_FLIGHT_MAX).map(|_| ring.read(file.clone(), 0, 64, alignment)).collect();
            for read in &mut reads {
                assert!(block_on(poll_once(read)).is_none());
            }
            if turned {
                ring.turn();
            }
            drop(reads);
        }
        assert_eq!(drive(&ring, ring.read(file.clone(), 8, 4, alignment)).unwrap(), [2, 0, 0, 0]);
        while ring.inner.borrow().in_flight() > 0 {
            ring.turn();
        }
        assert_eq!(ring.inner.borrow().reads.len(), 0);
        assert_eq!(Arc::strong_count(&file), 1, "nothing holds the file open");
    }

    /// Counts how often a task is woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Woken {
        fn poll(self: &Arc<Self>, read: &mut Read) -> bool {
            Pin::new(read).poll(&mut Context::from_waker(&Waker::from(self.clone()))).is_ready()
        }
    }

    /// Reads that were given up while they waited for room once were told of it in the place of those behind them, which nobody woke
    /// again: the core slept over an empty ring.
    #[test]
    fn a_read_behind_dropped_ones_is_woken() {
        let (_named, file, _) = file(1 << 16);
        // Given up before there is room, and when they have been told of it.
        for is_told in [false, true] {
            let ring = Ring::new().unwrap();
            let reads = |count: usize| -> Vec<(Read, Arc<Woken>)> {
                let read = || (ring.read(file.clone(), 0, 64, 1), Arc::default());
                std::iter::repeat_with(read).take(count).collect()
            };
            let (mut first, mut given_up, mut last) =
                (reads(READS_IN_FLIGHT_MAX), reads(3 * READS_IN_FLIGHT_MAX), reads(1));
            for (read, woken) in first.iter_mut().chain(&mut given_up).chain(&mut last) {
                assert!(!woken.poll(read));
            }
            if !is_told {
                given_up.clear();
            }
            while ring.inner.borrow().in_flight() > 0 {
                ring.turn();
            }
            for (read, woken) in &mut first {
                assert!(woken.poll(read), "it has ended");
            }
            assert_eq!(ring.turn(), !is_told, "whoever is left has to be told, too");
            given_up.clear();
            // The core sleeps once all is begun.
            while !ring.turn() {}
            let (read, woken) = &mut last[0];
            assert_eq!(woken.0.load(Ordering::Relaxed), 1, "there is room");
            assert!(!woken.poll(read));
            while ring.inner.borrow().in_flight() > 0 {
                ring.turn();
            }
            assert!(woken.poll(read));
            assert!(ring.inner.borrow().waiting.is_empty());
        }
    }

    /// A task polls all its reads whenever it is woken: one that waits must not be told of room twice.
    #[test]
    fn a_read_polled_again_keeps_its_place() {
        let (_named, file, _) = file(1 << 16);
        let ring = Ring::new().unwrap();
        let mut reads: Vec<Read> = (0..2 * READS_IN_FLIGHT_MAX).map(|_| ring.read(file.clone(), 0, 64, 1)).collect();
        let woken = Arc::new(Woken::default());
        for _ in 0..3 {
            assert!(reads.iter_mut().all(|read| !woken.poll(read)));
            assert_eq!(ring.inner.borrow().waiting.len(), READS_IN_FLIGHT_MAX);
        }
        assert!(drive(&ring, join_all(reads)).into_iter().all(|read| read.is_ok()));
        assert!(ring.inner.borrow().waiting.is_empty());
    }

    #[test]
    fn errors_are_told() {
        let (_named, plain, _) = file(1 << 12);
        let write_only = Arc::new(std::fs::OpenOptions::new().write(true).open(_named.path()).unwrap());
        let ring = Ring::new().unwrap();
        let error = drive(&ring, ring.read(write_only, 0, 4, 1)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
        assert_eq!(drive(&ring, ring.read(plain, 4, 4, 1)).unwrap(), [1, 0, 0, 0]);
    }

    /// Memory that the kernel writes to must not be used again before it is done.
    #[test]
    fn a_dropped_ring_waits_for_its_reads() {
        let (_named, plain, direct) = file(1 << 20);
        let (file, alignment) = direct.map_or((plain, 1), |file| (file, BLOCK_BYTES));
        for turned in [false, true] {
            let ring = Ring::new().unwrap();
            for number in 0..64 {
                assert!(block_on(poll_once(ring.read(file.clone(), number * 4096, 4096, alignment))).is_none());
            }
            if turned {
                ring.turn();
            }
            drop(ring);
            assert_eq!(Arc::strong_count(&file), 1);
        }
    }
}
