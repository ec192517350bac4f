//! Telling webhooks what has ended.
//!
//! Each webhook has a queue of finished batches and a task of its own that works through it, so that one that does not answer
//! holds up nobody else. A queue holds numbers of tasks, not tasks: what is told is read from the store when its turn comes,
//! and a task that was forgotten meanwhile is left out.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use roaring::RoaringBitmap;
use shards::runtime::Queue;
use url::Url;
use uuid::Uuid;

use super::Webhook;
use crate::control::inbox::Signal;
use crate::control::plane::ControlPlane;
use crate::http::Method;
use crate::outgoing::{Deadlines, GzipPayload, Request};
use crate::tasks::task::TaskUid;
use crate::tasks::view;

/// Batches that may wait for one webhook. When it is full, the newest is dropped.
const BATCHES_MAX: usize = 1024;
/// How long one delivery may take.
const DELIVERY_TIME: Duration = Duration::from_secs(30);
/// How much of an answer is read, to use the connection again. What it says does not matter.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// What webhooks are still to be told.
#[derive(Default)]
pub struct Deliveries {
    queues: RefCell<BTreeMap<Uuid, WebhookQueue>>,
    arrived: Signal,
}

/// What one webhook is still to be told.
#[derive(Default)]
struct WebhookQueue {
    /// The tasks of each batch.
    batches: VecDeque<RoaringBitmap>,
    /// Whether a task works through it.
    is_served: bool,
    /// Batches dropped since the last that was taken in.
    dropped: u64,
}

impl WebhookQueue {
    fn push(&mut self, uid: Uuid, batch: &RoaringBitmap) {
        if self.batches.len() >= BATCHES_MAX {
            if self.dropped == 0 {
                tracing::warn!(webhook = %uid, "a webhook is too slow: finished batches are not told to it");
            }
            self.dropped += 1;
            return;
        }
        if self.dropped > 0 {
            let batches = std::mem::take(&mut self.dropped);
            tracing::warn!(webhook = %uid, batches, "a webhook is told of batches again; some were dropped");
        }
        self.batches.push_back(batch.clone());
    }
}

impl ControlPlane {
    /// Tells every webhook of a batch whose tasks are shown as ended; returns at once.
    pub(crate) fn announce(&self, batch: &RoaringBitmap) {
        let webhooks = self.state().webhooks.clone();
        if webhooks.is_empty() {
            return;
        }
        let mut queues = self.deliveries.queues.borrow_mut();
        for uid in webhooks.keys() {
            queues.entry(*uid).or_default().push(*uid, batch);
        }
        self.deliveries.arrived.raise();
    }

    /// The next batch for a webhook, and the webhook as it is now; `None` when nothing waits or the webhook is gone.
    fn next_delivery(&self, uid: Uuid) -> Option<(Webhook, RoaringBitmap)> {
        let webhook = self.state().webhooks.get(&uid).cloned();
        let mut queues = self.deliveries.queues.borrow_mut();
        let batch = queues.get_mut(&uid).and_then(|queue| queue.batches.pop_front());
        let next = webhook.zip(batch);
        if next.is_none() {
            queues.remove(&uid);
        }
        next
    }

    async fn deliver(&self, uid: Uuid, webhook: Webhook, batch: &RoaringBitmap) {
        let answer = match self.delivery(&webhook, batch).await {
            Ok(request) => self.outgoing.fetch(request, ANSWER_BYTES_MAX).await.map_err(io::Error::other),
            Err(error) => Err(error),
        };
        match answer {
            Ok(answer) if answer.status >= 300 => {
                tracing::warn!(webhook = %uid, status = answer.status, "a webhook did not take a batch");
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(webhook = %uid, %error, "a webhook was not told of a batch"),
        }
    }

    /// The request that tells of a batch: its tasks, one a line, packed.
    async fn delivery(&self, webhook: &Webhook, batch: &RoaringBitmap) -> io::Result<Request> {
        let url = Url::parse(&webhook.url).map_err(io::Error::other)?;
        let mut payload = GzipPayload::default();
        for uid in batch {
            let Some(task) = self.task(TaskUid(uid)).map_err(io::Error::other)? else { continue };
            let mut line = serde_json::to_vec(&view::object(&task))?;
            line.push(b'\n');
            payload.push(&*self.runtime, &line).await?;
        }
        let request = Request::new(Method::Post, url, Deadlines::all(DELIVERY_TIME))
            .body("application/x-ndjson", payload.finish()?)
            .header("Content-Encoding", "gzip");
        Ok(webhook.headers.iter().fold(request, |request, (name, value)| request.header(name, value)))
    }
}

/// Sees to it that every queue is worked through; never returns.
pub async fn run(plane: Rc<ControlPlane>) {
    loop {
        plane.deliveries.arrived.wait().await;
        for (uid, queue) in &mut *plane.deliveries.queues.borrow_mut() {
            if !std::mem::replace(&mut queue.is_served, true) {
                plane.runtime.spawn(Queue::Upkeep, Box::pin(serve(plane.clone(), *uid)));
            }
        }
    }
}

/// Works through the queue of one webhook, until it is empty.
async fn serve(plane: Rc<ControlPlane>, uid: Uuid) {
    while let Some((webhook, batch)) = plane.next_delivery(uid) {
        plane.deliver(uid, webhook, &batch).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A webhook that never answers must cost a bounded queue, and none of what waits in it already.
    #[test]
    fn a_full_queue_drops_the_newest() {
        let mut queue = WebhookQueue::default();
        for number in 0..BATCHES_MAX as u32 + 5 {
            queue.push(Uuid::nil(), &RoaringBitmap::from([number]));
        }
        assert_eq!((queue.batches.len(), queue.dropped), (BATCHES_MAX, 5));
        assert!(queue.batches.pop_front().unwrap().contains(0));
        queue.push(Uuid::nil(), &RoaringBitmap::from([7777]));
        assert_eq!(queue.dropped, 0);
        assert!(queue.batches.back().unwrap().contains(7777));
    }
}
