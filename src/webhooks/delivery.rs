//! Telling webhooks what has ended.
//!
//! Every webhook is told of each batch that ends after it was made, in order, until it says that it has it: one that does not
//! answer, or answers that it cannot now, is asked again and again, also after a restart. A refusal is final. Each webhook is
//! served by a task of its own, so that one that does not answer holds up nobody else. What is owed is a number
//! ([`super::marks`]): what is told is read from the store when its turn comes, and a task that was forgotten meanwhile is left
//! out.

use std::cell::RefCell;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{Either, select};
use roaring::RoaringBitmap;
use shards::runtime::{Checkpoint, Queue};
use url::Url;
use uuid::Uuid;

use super::Webhook;
use super::marks::{MarkChanges, Marks};
use crate::control::inbox::Signal;
use crate::control::plane::ControlPlane;
use crate::control::storage::record::Changes;
use crate::http::Method;
use crate::outgoing::{Deadlines, GzipPayload, Request};
use crate::tasks::task::{BatchUid, TaskUid};
use crate::tasks::view;

/// How long one delivery may take.
const DELIVERY_TIME: Duration = Duration::from_secs(30);
/// How much of an answer is read, to use the connection again. What it says does not matter.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;
/// The first pause before a batch is told again.
const PAUSE_FIRST: Duration = Duration::from_secs(2);
/// The longest.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long a mark that moved waits for the next batch to be stored with it, before it is stored alone.
const MARKS_WAIT: Duration = Duration::from_millis(250);

/// What webhooks are still to be told.
#[derive(Default)]
pub struct Deliveries {
    marks: RefCell<Marks>,
    arrived: Signal,
    moved: Signal,
}

impl Deliveries {
    /// Those that these marks say.
    pub fn new(marks: Marks) -> Self {
        Self { marks: RefCell::new(marks), ..Self::default() }
    }

    /// The marks to be stored with whatever is stored next.
    pub fn take_moved(&self) -> MarkChanges {
        self.marks.borrow_mut().take_moved()
    }

    /// The mark of a webhook that is made now.
    pub fn present(&self) -> u32 {
        self.marks.borrow().present()
    }

    /// Takes note that webhooks have changed.
    pub fn webhooks_changed(&self) {
        self.marks.borrow().webhooks_changed();
    }

    fn pass(&self, uid: Uuid, batch: BatchUid) {
        self.marks.borrow_mut().pass(uid, batch.0);
        self.moved.raise();
    }
}

impl ControlPlane {
    /// Tells every webhook of a batch whose tasks are shown as ended; returns at once.
    pub(crate) fn announce(&self, batch: BatchUid) {
        let webhooks = self.state().webhooks.clone();
        self.deliveries.marks.borrow_mut().batch_ended(batch.0, &webhooks);
        if !webhooks.is_empty() {
            self.deliveries.arrived.raise();
        }
    }

    /// The next batch for a webhook, its tasks, and the webhook as it is now; `None` when nothing waits or the webhook is gone.
    async fn next_delivery(&self, uid: Uuid) -> Option<(Webhook, BatchUid, RoaringBitmap)> {
        let mut checkpoint = Checkpoint::default();
        loop {
            let Some(webhook) = self.state().webhooks.get(&uid).cloned() else {
                self.deliveries.marks.borrow_mut().forget(uid);
                return None;
            };
            let batch = BatchUid(self.deliveries.marks.borrow_mut().next(uid)?);
            let tasks = self.queue.borrow().in_batch(batch);
            if !tasks.is_empty() {
                return Some((webhook, batch, tasks));
            }
            self.deliveries.pass(uid, batch);
            checkpoint.look(&*self.runtime).await;
        }
    }

    /// Tells a webhook of a batch; whether that is settled.
    async fn deliver(&self, uid: Uuid, webhook: Webhook, tasks: &RoaringBitmap) -> bool {
        let answer = match self.delivery(&webhook, tasks).await {
            Ok(request) => self.outgoing.fetch(request, ANSWER_BYTES_MAX).await.map_err(io::Error::other),
            Err(error) => Err(error),
        };
        match answer.map(|answer| answer.status) {
            Ok(200..300) => true,
            Ok(status) => {
                let is_final = is_refusal(status);
                tracing::warn!(webhook = %uid, status, is_final, "a webhook did not accept a batch");
                is_final
            }
            Err(error) => {
                tracing::warn!(webhook = %uid, %error, "cannot deliver a batch to a webhook");
                false
            }
        }
    }

    /// The request that tells of a batch: its tasks, one a line, packed.
    async fn delivery(&self, webhook: &Webhook, tasks: &RoaringBitmap) -> io::Result<Request> {
        let url = Url::parse(&webhook.url).map_err(io::Error::other)?;
        let mut payload = GzipPayload::default();
        for uid in tasks {
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

/// Whether a webhook that answers so would not take the same batch at another time either: asked again and again, it would never
/// hear of the batches that come after.
fn is_refusal(status: u16) -> bool {
    !matches!(status, 408 | 425 | 429 | 500..)
}

/// Sees to it that every webhook is told what it is owed; never returns.
pub async fn run(plane: Rc<ControlPlane>) {
    plane.runtime.spawn(Queue::Upkeep, Box::pin(store_marks(plane.clone())));
    loop {
        let unserved = plane.deliveries.marks.borrow_mut().unserved();
        for uid in unserved {
            plane.runtime.spawn(Queue::Upkeep, Box::pin(serve(plane.clone(), uid)));
        }
        plane.deliveries.arrived.wait().await;
    }
}

/// Tells one webhook what it is owed, until that is nothing.
async fn serve(plane: Rc<ControlPlane>, uid: Uuid) {
    let mut pause = PAUSE_FIRST;
    while let Some((webhook, batch, tasks)) = plane.next_delivery(uid).await {
        let changed = plane.deliveries.marks.borrow().changed(uid).unwrap_or_default();
        changed.clear();
        if plane.deliver(uid, webhook, &tasks).await {
            plane.deliveries.pass(uid, batch);
            pause = PAUSE_FIRST;
            continue;
        }
        pause = match select(plane.runtime.sleep(pause), pin!(changed.wait())).await {
            Either::Left(_) => (pause * 2).min(PAUSE_MAX),
            Either::Right(_) => PAUSE_FIRST,
        };
    }
}

/// Stores marks that moved, where no batch does so; never returns. One that is not stored costs a repetition after a restart.
async fn store_marks(plane: Rc<ControlPlane>) {
    loop {
        plane.deliveries.moved.wait().await;
        plane.runtime.sleep(MARKS_WAIT).await;
        let webhook_marks = plane.deliveries.take_moved();
        if webhook_marks.is_empty() {
            continue;
        }
        if let Err(error) = plane.store.commit(Changes { webhook_marks, ..Changes::default() }).await {
            tracing::warn!(%error, "cannot record webhook deliveries");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_tried_again() {
        let again = [408, 425, 429, 500, 502, 503, 504, 599];
        assert!(again.into_iter().all(|status| !is_refusal(status)));
        assert!([300, 304, 400, 401, 403, 404, 410, 413, 422].into_iter().all(is_refusal));
    }
}
