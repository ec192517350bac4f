//! Which sockets of a core are ready, by epoll.
//!
//! Edge-triggered: the kernel tells once that a socket has become ready, and it stays so here until a call finds it is not.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use mio::event::Source;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll as Selector, Registry, Token};
use slab::Slab;

/// The token of wakes from other threads.
const WAKE: Token = Token(usize::MAX);
/// The token of the descriptor that tells of ended file operations.
const DRIVER: Token = Token(usize::MAX - 1);
/// Events taken from the kernel at once; more come with the next look.
const EVENTS_MAX: usize = 512;

/// One direction of a socket.
#[derive(Default)]
pub(super) struct Direction {
    is_ready: Cell<bool>,
    /// The other side has closed it: every call returns at once from now on, and no edge will come.
    is_closed: Cell<bool>,
    waiting: RefCell<Option<Waker>>,
}

impl Direction {
    /// Calls `io` if the socket may be ready, and waits where it is not. `io` says what it did, and whether the socket may
    /// have more to give: one that did less than it could has emptied the kernel's buffer, which saves a call that would fail.
    pub(super) fn poll<T>(
        &self,
        context: &Context<'_>,
        mut io: impl FnMut() -> io::Result<(T, bool)>,
    ) -> Poll<io::Result<T>> {
        while self.is_ready.get() || self.is_closed.get() {
            match io() {
                Ok((done, may_go_on)) => {
                    self.is_ready.set(may_go_on);
                    return Poll::Ready(Ok(done));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_ready.set(false);
                    self.is_closed.set(false);
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        let mut waiting = self.waiting.borrow_mut();
        match &mut *waiting {
            Some(waker) => waker.clone_from(context.waker()),
            None => *waiting = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    fn is_now_ready(&self, is_closed: bool) {
        self.is_ready.set(true);
        self.is_closed.set(self.is_closed.get() || is_closed);
        // Woken when the borrow has ended.
        let waiting = self.waiting.borrow_mut().take();
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// Both directions of a socket.
#[derive(Default)]
pub(super) struct Readiness {
    pub(super) read: Direction,
    pub(super) write: Direction,
}

/// What a reactor needs of the system. Made before the core's thread, so that a lack of descriptors is told at once.
pub(super) struct Opened {
    selector: Selector,
    registry: Registry,
}

impl Opened {
    /// Opens it, with what wakes the reactor from other threads.
    ///
    /// # Errors
    /// The system gives no descriptors.
    pub(super) fn new() -> io::Result<(Self, mio::Waker)> {
        let selector = Selector::new()?;
        let registry = selector.registry().try_clone()?;
        let waker = mio::Waker::new(&registry, WAKE)?;
        Ok((Self { selector, registry }, waker))
    }
}

/// The sockets of a core.
pub(super) struct Reactor {
    selector: RefCell<Selector>,
    events: RefCell<Events>,
    registry: Registry,
    sockets: RefCell<Slab<Rc<Readiness>>>,
}

impl Reactor {
    /// One without sockets.
    pub(super) fn new(Opened { selector, registry }: Opened) -> Self {
        let events = RefCell::new(Events::with_capacity(EVENTS_MAX));
        Self { selector: RefCell::new(selector), events, registry, sockets: RefCell::default() }
    }

    /// Ends waits when this descriptor has become readable, too.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn watch_driver(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.registry.register(&mut SourceFd(&descriptor.as_raw_fd()), DRIVER, Interest::READABLE)
    }

    /// Waits for so long at most, for ever where nothing is given, and wakes whoever waits for what has become ready.
    ///
    /// # Errors
    /// The kernel refuses, for other reasons than a signal.
    pub(super) fn look(&self, wait: Option<Duration>) -> io::Result<()> {
        let mut events = self.events.borrow_mut();
        match self.selector.borrow_mut().poll(&mut events, wait) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            other => other?,
        }
        for event in events.iter().filter(|event| ![WAKE, DRIVER].contains(&event.token())) {
            // Of a socket that was dropped since, or of the one that has its number now: a call in vain does no harm.
            let Some(socket) = self.sockets.borrow().get(event.token().0).cloned() else { continue };
            if event.is_readable() || event.is_read_closed() || event.is_error() {
                socket.read.is_now_ready(event.is_read_closed() || event.is_error());
            }
            if event.is_writable() || event.is_write_closed() || event.is_error() {
                socket.write.is_now_ready(event.is_write_closed() || event.is_error());
            }
        }
        Ok(())
    }
}

/// A socket that a reactor watches; closed when dropped.
pub(super) struct Watched<S: Source> {
    pub(super) socket: S,
    pub(super) readiness: Rc<Readiness>,
    reactor: Rc<Reactor>,
    number: usize,
}

impl<S: Source> Watched<S> {
    /// Has `reactor` watch a socket, which must not block.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn new(reactor: &Rc<Reactor>, mut socket: S) -> io::Result<Self> {
        // It may be ready already: the first call need not wait to be told.
        let readiness = Rc::new(Readiness::default());
        readiness.read.is_ready.set(true);
        readiness.write.is_ready.set(true);
        let number = reactor.sockets.borrow_mut().insert(readiness.clone());
        let registered = reactor.registry.register(&mut socket, Token(number), Interest::READABLE | Interest::WRITABLE);
        if let Err(error) = registered {
            reactor.sockets.borrow_mut().remove(number);
            return Err(error);
        }
        Ok(Self { socket, readiness, reactor: reactor.clone(), number })
    }

    pub(super) fn reactor(&self) -> &Rc<Reactor> {
        &self.reactor
    }

    /// Forgets that the socket may be ready: for one that is being connected.
    pub(super) fn expect_edge(&self) {
        self.readiness.write.is_ready.set(false);
    }
}

impl<S: Source> Drop for Watched<S> {
    fn drop(&mut self) {
        // Closing it takes it out of the kernel's list in any case.
        let _ = self.reactor.registry.deregister(&mut self.socket);
        self.reactor.sockets.borrow_mut().remove(self.number);
    }
}
