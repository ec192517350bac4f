//! Ready tasks in queues that share one core.
//!
//! Queues take turns by virtual runtime: the ready queue that has had the least of the core for its shares is next. A queue that
//! becomes ready starts at the runtime of the one that ran last, so that sleeping saves nothing up but a [`HEAD_START`].

use std::collections::VecDeque;
use std::time::Duration;

use crate::runtime::Queue;

/// How far behind the one that ran last a queue starts that serves clients, in nanoseconds of its own runtime: a search that
/// arrives now and then is answered without indexing in between, while many at once leave indexing its share.
const HEAD_START: u64 = 3_000_000;
/// What a nanosecond costs a queue, times its shares.
const RUNTIME_UNIT: u64 = 1000;

impl Queue {
    pub(super) const ALL: [Queue; 4] = [Queue::Search, Queue::Messages, Queue::Indexing, Queue::Upkeep];

    fn shares(self) -> u64 {
        match self {
            Queue::Search | Queue::Messages => 1000,
            Queue::Indexing => 300,
            Queue::Upkeep => 50,
        }
    }

    fn head_start(self) -> u64 {
        if self.is_background() { 0 } else { HEAD_START }
    }

    /// Whether no client waits for its tasks.
    pub(super) fn is_background(self) -> bool {
        matches!(self, Queue::Indexing | Queue::Upkeep)
    }
}

struct ReadyTasks<T> {
    tasks: VecDeque<T>,
    /// Nanoseconds of the core that the queue has had, weighted by its shares.
    runtime: u64,
}

/// See the module.
pub(super) struct ReadyQueues<T> {
    queues: [ReadyTasks<T>; 4],
    /// The runtime of the queue that ran last, when its turn began.
    runtime: u64,
}

impl<T> Default for ReadyQueues<T> {
    fn default() -> Self {
        Self { queues: [(); 4].map(|()| ReadyTasks { tasks: VecDeque::new(), runtime: 0 }), runtime: 0 }
    }
}

impl<T> ReadyQueues<T> {
    /// Adds a task behind those of its queue.
    pub(super) fn push(&mut self, queue: Queue, task: T) {
        let ready = &mut self.queues[queue as usize];
        if ready.tasks.is_empty() {
            ready.runtime = ready.runtime.max(self.runtime.saturating_sub(queue.head_start()));
        }
        ready.tasks.push_back(task);
    }

    /// The next task of a queue.
    pub(super) fn pop(&mut self, queue: Queue) -> Option<T> {
        self.queues[queue as usize].tasks.pop_front()
    }

    /// The queue whose turn it is.
    pub(super) fn next(&self) -> Option<Queue> {
        let ready = Queue::ALL.into_iter().filter(|queue| !self.queues[*queue as usize].tasks.is_empty());
        ready.min_by_key(|queue| self.queues[*queue as usize].runtime)
    }

    /// Begins a turn of a queue: how many tasks are ready. Those that become ready meanwhile wait for the next turn.
    pub(super) fn begin(&mut self, queue: Queue) -> usize {
        let ready = &self.queues[queue as usize];
        self.runtime = ready.runtime;
        ready.tasks.len()
    }

    /// Ends a turn of a queue that took so long.
    pub(super) fn end(&mut self, queue: Queue, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.queues[queue as usize].runtime += took.saturating_mul(RUNTIME_UNIT) / queue.shares();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: Duration = Duration::from_micros(200);

    /// Gives one turn: whose it was.
    fn turn(queues: &mut ReadyQueues<()>, stays_ready: bool) -> Queue {
        let queue = queues.next().unwrap();
        queues.begin(queue);
        queues.pop(queue).unwrap();
        queues.end(queue, TURN);
        if stays_ready || queue.is_background() {
            queues.push(queue, ());
        }
        queue
    }

    #[test]
    fn queues_that_are_always_ready_share_the_core() {
        let mut queues = ReadyQueues::default();
        queues.push(Queue::Search, ());
        queues.push(Queue::Indexing, ());
        queues.push(Queue::Upkeep, ());
        let turns: Vec<Queue> = (0..13_500).map(|_| turn(&mut queues, true)).collect();
        for (queue, share) in [(Queue::Search, 10_000), (Queue::Indexing, 3_000), (Queue::Upkeep, 500)] {
            let count = turns.iter().filter(|other| **other == queue).count();
            assert!(count.abs_diff(share) <= 20, "{queue:?} had {count} turns of {share}");
        }
    }

    #[test]
    fn a_search_among_indexing_is_answered_in_one_go() {
        let mut queues = ReadyQueues::default();
        queues.push(Queue::Indexing, ());
        (0..1000).for_each(|_| assert_eq!(turn(&mut queues, true), Queue::Indexing));
        queues.push(Queue::Search, ());
        // What it is ahead at most, and no more: it slept for longer than that.
        let in_one_go = HEAD_START / TURN.as_nanos() as u64;
        for at in 0..in_one_go {
            assert_eq!(turn(&mut queues, true), Queue::Search, "turn {at}");
        }
        let next: Vec<Queue> = (0..13).map(|_| turn(&mut queues, true)).collect();
        assert_eq!(next.iter().filter(|queue| **queue == Queue::Indexing).count(), 3, "{next:?}");
    }

    #[test]
    fn searches_that_come_one_after_the_other_leave_indexing_its_share() {
        let mut queues = ReadyQueues::default();
        queues.push(Queue::Indexing, ());
        let mut indexed = 0;
        for _ in 0..13_000 {
            // The queue is empty after each search, and ready again at once.
            if queues.queues[Queue::Search as usize].tasks.is_empty() {
                queues.push(Queue::Search, ());
            }
            indexed += usize::from(turn(&mut queues, false) == Queue::Indexing);
        }
        assert!(indexed.abs_diff(3_000) <= 20, "indexing had {indexed} turns of 3000");
    }
}
