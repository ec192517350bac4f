//! The runtime of a core over io_uring: one glommio executor. Outside of this folder `cores` and `sockets` alone name glommio.

mod pulse;
mod start;

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use glommio::{Latency, Shares, TaskQueueHandle};
use storage_engine::Disk;

use self::pulse::Presence;
use super::cores::Seat;
use super::own::Own;
use super::{Listener, Nanos, Queue, Runtime, SideThreadError, Stream, UntrustedError, UntrustedJob, guarded};
use crate::ids::CoreId;

pub(super) use self::start::Executors;

/// How soon any loop is asked to yield. Also the executor's own preemption timer: it looks at sockets only between two turns,
/// and its default of 100 ms would let a request wait that long for a core that indexes.
const PREEMPTION: Duration = Duration::from_micros(300);

/// One core, on its own thread.
struct GlommioRuntime {
    own: Own,
    queues: [TaskQueueHandle; 4],
    presence: Presence,
    background: Background,
}

impl GlommioRuntime {
    /// Called on the executor's thread, within its future: the queues belong to it.
    fn new<Q, A>(seat: &Seat<Q, A>, presence: Presence) -> Self {
        let queue =
            |shares, latency, name| glommio::executor().create_task_queue(Shares::Static(shares), latency, name);
        let queues = [
            queue(1000, Latency::Matters(PREEMPTION), "search"),
            queue(1000, Latency::NotImportant, "messages"),
            queue(300, Latency::NotImportant, "indexing"),
            queue(50, Latency::NotImportant, "upkeep"),
        ];
        Self {
            own: Own::new(seat),
            queues,
            background: Background { presence: presence.clone(), was_cut_short: Rc::default() },
            presence,
        }
    }

    /// Starts the task that the pulse wakes, which is no work of the core's.
    fn spawn_beat(&self, beat: impl Future<Output = ()> + 'static) {
        match glommio::spawn_local_into(beat, self.queue(Queue::Search)) {
            Ok(task) => drop(task.detach()),
            Err(error) => tracing::error!(core = self.own.core.0, %error, "task not started"),
        }
    }

    fn queue(&self, queue: Queue) -> TaskQueueHandle {
        match queue {
            Queue::Search => self.queues[0],
            Queue::Messages => self.queues[1],
            Queue::Indexing => self.queues[2],
            Queue::Upkeep => self.queues[3],
        }
    }
}

/// Lets what woke during a turn of indexing or upkeep go before the next such turn.
///
/// glommio 0.9 places a queue that wakes one unit of virtual time *behind* the first of those that are ready. Beside a queue
/// that is always ready, every wake would wait for one whole further turn of it, on each of the two or three cores' turns that a
/// search takes. So the first poll after a turn that was cut short gives the turn back unused: that costs the queue some
/// units, and those that woke are then before it.
#[derive(Clone)]
struct Background {
    presence: Presence,
    was_cut_short: Rc<Cell<bool>>,
}

impl Background {
    /// Polls a task of such a queue, unless it must stand back once.
    fn poll<T>(&self, context: &mut Context<'_>, task: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        if self.was_cut_short.replace(false) {
            let _ = pin!(glommio::executor().yield_task_queue_now()).poll(context);
            return Poll::Pending;
        }
        self.presence.set_in_background(true);
        let polled = task(context);
        self.presence.set_in_background(false);
        self.was_cut_short.set(glommio::executor().need_preempt());
        polled
    }
}

impl Runtime for GlommioRuntime {
    fn core(&self) -> CoreId {
        self.own.core
    }

    fn core_count(&self) -> u16 {
        self.own.core_count
    }

    fn now(&self) -> Nanos {
        self.own.now()
    }

    fn unix_time(&self) -> Duration {
        self.own.unix_time()
    }

    fn random_u64(&self) -> u64 {
        self.own.random_u64()
    }

    fn spawn(&self, queue: Queue, task: LocalBoxFuture<'static, ()>) {
        let presence = self.presence.clone();
        let background = matches!(queue, Queue::Indexing | Queue::Upkeep).then(|| self.background.clone());
        let task = guarded(self.own.core, queue, task);
        let counted = async move {
            let mut task = pin!(task);
            poll_fn(|context| {
                presence.count_poll();
                match &background {
                    Some(background) => background.poll(context, |context| task.as_mut().poll(context)),
                    None => task.as_mut().poll(context),
                }
            })
            .await;
        };
        match glommio::spawn_local_into(counted, self.queue(queue)) {
            Ok(task) => drop(task.detach()),
            Err(error) => tracing::error!(core = self.own.core.0, %error, "task not started"),
        }
    }

    fn sleep(&self, duration: Duration) -> LocalBoxFuture<'static, ()> {
        Box::pin(glommio::timer::sleep(duration))
    }

    fn should_yield(&self) -> bool {
        glommio::executor().need_preempt()
    }

    fn yield_now(&self) -> LocalBoxFuture<'static, ()> {
        Box::pin(async {
            if glommio::executor().need_preempt() {
                // Ends this queue's turn, so that the one in need is chosen by its shares.
                glommio::executor().yield_task_queue_now().await;
            } else {
                futures_lite::future::yield_now().await;
            }
        })
    }

    fn interrupt(&self, core: CoreId) {
        self.presence.interrupt(core);
    }

    fn disk(&self) -> Rc<dyn Disk> {
        self.own.disk.clone()
    }

    fn side_thread(&self, job: Box<dyn FnOnce() + Send>) -> LocalBoxFuture<'static, Result<(), SideThreadError>> {
        self.own.side_threads.run(job)
    }

    fn untrusted_thread(&self, job: UntrustedJob) -> LocalBoxFuture<'static, Result<(), UntrustedError>> {
        self.own.untrusted_threads.run(job)
    }

    fn listen(&self, socket: std::net::TcpListener) -> io::Result<Listener> {
        Ok(Listener::glommio(socket))
    }

    fn connect(&self, address: SocketAddr) -> LocalBoxFuture<'static, io::Result<Stream>> {
        Box::pin(async move { Ok(Stream::glommio(glommio::net::TcpStream::connect(address).await?)) })
    }
}
