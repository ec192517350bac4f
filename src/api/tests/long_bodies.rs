//! Long JSON bodies are read on another thread, whichever route they are sent to.

use std::cell::Cell;
use std::time::Duration;

use shards::ids::CoreId;
use shards::runtime::{Nanos, Queue, SideThreadError, UntrustedError, UntrustedJob};
use storage_engine::Disk;

use super::*;
use crate::control::testing::TestRuntime;

/// Counts the jobs that are given to other threads.
struct Counting {
    runtime: Rc<TestRuntime>,
    side_jobs: Cell<usize>,
}

impl Runtime for Counting {
    fn core(&self) -> CoreId {
        self.runtime.core()
    }

    fn core_count(&self) -> u16 {
        self.runtime.core_count()
    }

    fn now(&self) -> Nanos {
        self.runtime.now()
    }

    fn unix_time(&self) -> Duration {
        self.runtime.unix_time()
    }

    fn random_u64(&self) -> u64 {
        self.runtime.random_u64()
    }

    fn spawn(&self, queue: Queue, task: LocalBoxFuture<'static, ()>) {
        self.runtime.spawn(queue, task);
    }

    fn sleep(&self, duration: Duration) -> LocalBoxFuture<'static, ()> {
        self.runtime.sleep(duration)
    }

    fn should_yield(&self) -> bool {
        self.runtime.should_yield()
    }

    fn yield_now(&self) -> LocalBoxFuture<'static, ()> {
        self.runtime.yield_now()
    }

    fn interrupt(&self, core: CoreId) {
        self.runtime.interrupt(core);
    }

    fn disk(&self) -> Rc<dyn Disk> {
        self.runtime.disk()
    }

    fn side_thread(&self, job: Box<dyn FnOnce() + Send>) -> LocalBoxFuture<'static, Result<(), SideThreadError>> {
        self.side_jobs.set(self.side_jobs.get() + 1);
        self.runtime.side_thread(job)
    }

    fn untrusted_thread(&self, job: UntrustedJob) -> LocalBoxFuture<'static, Result<(), UntrustedError>> {
        self.runtime.untrusted_thread(job)
    }
}

/// Ten megabytes of zeros, parsed where they arrived, once kept all other requests of the core waiting for seconds.
#[test]
fn long_bodies_are_read_on_another_thread() {
    let instance = World::new().start();
    let runtime = Rc::new(Counting { runtime: instance.runtime.clone(), side_jobs: Cell::new(0) });
    let client = Client::with(instance, runtime.clone(), Rc::default());
    let routes = [
        (Method::Post, "/indexes"),
        (Method::Patch, "/indexes/a"),
        (Method::Post, "/swap-indexes"),
        (Method::Patch, "/experimental-features"),
        (Method::Post, "/indexes/a/search"),
        (Method::Post, "/indexes/a/facet-search"),
        (Method::Post, "/indexes/a/similar"),
        (Method::Post, "/multi-search"),
        (Method::Post, "/indexes/a/fields"),
        (Method::Post, "/indexes/a/documents/fetch"),
        (Method::Post, "/indexes/a/documents/delete"),
        (Method::Post, "/indexes/a/documents/delete-batch"),
        (Method::Post, "/indexes/a/documents/edit"),
        (Method::Patch, "/indexes/a/settings"),
        (Method::Put, "/indexes/a/settings/stop-words"),
        (Method::Post, "/export"),
        (Method::Post, "/webhooks"),
        (Method::Patch, "/webhooks/a"),
        (Method::Post, "/logs/stream"),
        (Method::Post, "/logs/stderr"),
        (Method::Post, "/dynamic-search-rules"),
        (Method::Patch, "/dynamic-search-rules/a"),
        (Method::Patch, "/chats/a/settings"),
        (Method::Post, "/chats/a/chat/completions"),
        (Method::Patch, "/network"),
        (Method::Post, "/network/control"),
    ];
    for (method, path) in routes {
        for (count, side_jobs) in [(1_000, 0), (200_000, 1)] {
            let before = runtime.side_jobs.get();
            let (status, body) = client.json(method, path, json!(vec![0; count]));
            assert!(status >= 400 || path.ends_with("delete-batch"), "{path}: {status} {body}");
            assert_eq!(runtime.side_jobs.get() - before, side_jobs, "{path} with {count} values");
        }
    }
}
