//! Delivery of the leader's tasks to the other instances.
//!
//! Each instance has its own queue, sent strictly in the order of the tasks. A task stays in the log until every instance has
//! accepted it or rejected it for good, also while an instance is away and across restarts; its `network` member shows its
//! progress. An instance that sees a task twice recognizes it by its origin.
//!
//! While an instance is away or its disk is full, its queue grows: a number per task in memory, the payloads on the leader's
//! disk. Only the disk bounds it. When it is full, writes are rejected with `no_space_left_on_device` and the operator removes
//! the instance from the network, which frees what waits for it; an instance that joins again starts empty. One that returns
//! before that receives everything in order and is stale until then.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_channel::oneshot;
use futures_util::future::{Either, select};
use roaring::RoaringBitmap;
use shards::error::UserError;
use shards::runtime::{Checkpoint, Nanos, Queue};
use url::Url;

use super::change::Change;
use super::failure;
use super::forward::{Forward, forward};
use super::headers;
use super::task::{Origin, RemoteTask, TaskNetwork};
use super::topology;
use super::{Network, Remote};
use crate::api::error::{ApiError, ErrorCode};
use crate::control::inbox::Signal;
use crate::control::plane::ControlPlane;
use crate::control::storage::record::Changes;
use crate::outgoing::{Deadlines, Request};
use crate::tasks::task::{Content, NewTask, Task, TaskUid};

/// The first pause between two tries.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
/// The longest.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// The largest answer that is read, in bytes.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// What the way to an instance must carry, in bytes a second: half a megabit. A body has as much more time as it takes at this
/// rate. Tasks go in strict order, so that one which never gets across would hold up all after it for ever.
const RATE_MIN: u64 = 64 << 10;
/// Bytes that the kernels on the way may hold when the last has been handed to them: as long as these take at the least rate,
/// nothing is seen to move.
const BUFFERED_BYTES_MAX: u64 = 4 << 20;

/// Writes that may wait at once until other instances have them; each holds a connection, a place in a table and a task.
pub(crate) const WAITING_WRITES_MAX: u64 = 4096;

/// Times of the messages of a leader.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// To connect.
    pub connect: Duration,
    /// For one try, beside the time that its body takes at the least rate.
    pub request: Duration,
    /// For all tries until a client is told that an instance is away.
    pub backoff: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { connect: seconds(3), request: seconds(30), backoff: seconds(25) }
    }
}

impl Patience {
    /// The deadlines of one try to send a body of this length.
    fn deadlines(&self, body_bytes: usize) -> Deadlines {
        let body_bytes = body_bytes as u64;
        let at_least_rate = |bytes: u64| Duration::from_millis(bytes * 1000 / RATE_MIN);
        Deadlines {
            connect: self.connect,
            idle: self.request + at_least_rate(body_bytes.min(BUFFERED_BYTES_MAX)),
            total: self.request + at_least_rate(body_bytes),
        }
    }

    /// How long a client waits for an instance that takes no task before it is told.
    fn untold(&self) -> Duration {
        self.request + self.backoff
    }
}

/// What is on its way. On the control core.
#[derive(Default)]
pub struct Outbox {
    queues: RefCell<BTreeMap<String, Rc<RemoteQueue>>>,
    /// Tasks of which a client has not been told yet how they fared; they are not processed before that.
    undecided: RefCell<RoaringBitmap>,
    /// Whether another instance has said that this leader was left behind.
    deposed: std::cell::Cell<bool>,
}

/// The tasks that one instance has not taken.
#[derive(Default)]
struct RemoteQueue {
    pending: RefCell<RoaringBitmap>,
    waiting: RefCell<Vec<(u32, oneshot::Sender<()>)>>,
    wake: Signal,
    failing_since: std::cell::Cell<Option<Nanos>>,
}

impl Outbox {
    /// The smallest number of a task that must not be processed yet.
    pub fn first_undecided(&self) -> Option<u32> {
        self.undecided.borrow().min()
    }

    /// Whether this leader was left behind by a later version of the network.
    pub fn is_deposed(&self) -> bool {
        self.deposed.get()
    }

    /// Takes note that the network has another version now. Queues of instances that are not of it end, once they are empty.
    pub fn network_changed(&self) {
        self.deposed.set(false);
        self.queues.borrow().values().for_each(|queue| queue.wake.raise());
    }

    /// Whether an instance has still to take this task.
    pub fn is_pending(&self, uid: u32) -> bool {
        self.queues.borrow().values().any(|queue| queue.pending.borrow().contains(uid))
    }

    /// The finished and waiting tasks that some instance has still to take.
    pub fn pending(&self) -> RoaringBitmap {
        let queues = self.queues.borrow();
        queues.values().fold(RoaringBitmap::new(), |all, queue| all | &*queue.pending.borrow())
    }

    /// Checks that one more task may wait for other instances, beside those that wait and `more`. A change of the topology
    /// always may: it takes out the instance that the others wait for.
    ///
    /// # Errors
    /// `too_many_search_requests`: the interface has one code for a server that has too much to do.
    pub fn check_room(&self, new: &NewTask, more: u64) -> Result<(), UserError> {
        let is_sent_on = matches!(new.network, Some(TaskNetwork::Leader { .. }));
        let is_change = matches!(new.content, Content::NetworkTopologyChange { .. });
        if !is_sent_on || is_change || self.undecided.borrow().len() + more < WAITING_WRITES_MAX {
            return Ok(());
        }
        let message = "Too many writes wait for other instances of the network. Try again later.";
        Err(UserError::new("too_many_search_requests", message))
    }

    /// Marks a task as not to be processed before [`ControlPlane::delivered`] says so.
    pub fn hold(&self, uid: u32) {
        self.undecided.borrow_mut().insert(uid);
    }
}

impl RemoteQueue {
    /// Tells those who wait for tasks that are decided.
    fn tell(&self, is_decided: impl Fn(u32) -> bool) {
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        for (uid, sender) in waiting {
            if is_decided(uid) {
                // The client may have gone away.
                let _ = sender.send(());
            } else {
                self.waiting.borrow_mut().push((uid, sender));
            }
        }
    }
}

impl ControlPlane {
    /// Puts a leader's task on its way; gives what to wait for.
    pub(crate) fn send_on(self: &Rc<Self>, task: &Task) -> Vec<oneshot::Receiver<()>> {
        let Some(TaskNetwork::Leader { remote_tasks, .. }) = &task.network else { return Vec::new() };
        let unsent = receivers(&self.network.borrow(), &task.content);
        let unsent = unsent.into_iter().filter(|name| remote_tasks.get(name).is_none_or(|task| task.pending));
        unsent.map(|name| self.enqueue_for(name, task.uid.0)).collect()
    }

    fn enqueue_for(self: &Rc<Self>, name: String, uid: u32) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let mut is_new = false;
        let queue = {
            let mut queues = self.outbox.queues.borrow_mut();
            let made = || {
                is_new = true;
                Rc::new(RemoteQueue::default())
            };
            queues.entry(name.clone()).or_insert_with(made).clone()
        };
        queue.pending.borrow_mut().insert(uid);
        queue.waiting.borrow_mut().push((uid, sender));
        queue.wake.raise();
        if is_new {
            let plane = self.clone();
            self.runtime.spawn(Queue::Indexing, Box::pin(async move { plane.deliver_tasks(&name, queue).await }));
        }
        receiver
    }

    /// Waits until every instance has taken a task, has refused it, or is known to be away. The task may be processed then.
    ///
    /// # Errors
    /// The task is not to be acknowledged, because what becomes of it is not for this instance to say: `not_leader` when another
    /// one has taken over, `remote_could_not_send_request` when so few have the task that another one might.
    pub(crate) async fn delivered(&self, uid: TaskUid, waits: Vec<oneshot::Receiver<()>>) -> Result<(), UserError> {
        for wait in waits {
            // A queue that went with its instance says nothing more.
            let _ = wait.await;
        }
        let taken = self.taken(uid);
        self.outbox.undecided.borrow_mut().remove(uid.0);
        self.work.raise();
        if self.outbox.is_deposed() {
            return Err(UserError::new("not_leader", "A later version of the network has another leader."));
        }
        let network = self.network.borrow();
        if network.is_quorum(taken) || network.leader.is_none() {
            return Ok(());
        }
        let message = format!(
            "Only {taken} of the {} instances of the network have task {}. It goes to the others when they are back, unless \
             another instance leads them by then.",
            network.remotes.len(),
            uid.0
        );
        Err(UserError::new("remote_could_not_send_request", message))
    }

    /// How many instances of the network have a task, or have refused it and so are there. This one is counted.
    fn taken(&self, uid: TaskUid) -> usize {
        let queue = self.queue.borrow();
        let network = queue.held(uid).and_then(|task| task.network.as_ref());
        let Some(TaskNetwork::Leader { remote_tasks, .. }) = network else { return usize::MAX / 2 };
        1 + remote_tasks.values().filter(|task| !task.pending).count()
    }

    /// Whether enough instances have taken the change of the topology under way, where this instance leads it. Another one may
    /// have been asked for a change at the same moment: the instances that both need take only one of them.
    pub(crate) fn is_change_taken(&self, change: &Change) -> bool {
        let before = &change.topology.before;
        let queue = self.queue.borrow();
        let network = queue.held(change.task).and_then(|task| task.network.as_ref());
        let Some(TaskNetwork::Leader { remote_tasks, .. }) = network else { return true };
        let has_taken = |name: &&String| remote_tasks.get(*name).is_some_and(|task| task.task_uid.is_some());
        before.leader.is_none() || before.is_quorum(1 + before.remotes.keys().filter(has_taken).count())
    }

    /// Sends one instance its tasks, in order; ends, and takes the queue away, when the instance is no longer of the network and
    /// nothing waits for it.
    async fn deliver_tasks(&self, name: &str, queue: Rc<RemoteQueue>) {
        let mut pause = PAUSE_FIRST;
        loop {
            let first = queue.pending.borrow().min();
            let Some(uid) = first else {
                if !self.network.borrow().remotes.contains_key(name) {
                    self.outbox.queues.borrow_mut().remove(name);
                    return;
                }
                queue.wake.wait().await;
                continue;
            };
            queue.wake.clear();
            let Err(error) = self.deliver_telling(name, &queue, uid).await else {
                (pause, _) = (PAUSE_FIRST, queue.failing_since.take());
                continue;
            };
            let now = self.runtime.now();
            let since = queue.failing_since.get().unwrap_or(now);
            queue.failing_since.set(Some(since));
            // Nothing brings it back, and what comes after it must not be taken without it.
            let is_gone = matches!(self.task(TaskUid(uid)), Ok(None));
            let gives_up = is_gone
                || error.code == ErrorCode::RemoteInvalidApiKey
                || now.since(since) >= self.config.patience.backoff;
            if gives_up {
                if !self.network.borrow().remotes.contains_key(name) {
                    self.settle_lost(name, &queue, &error).await;
                    continue;
                }
                self.note_away(name, &queue, uid, &error).await;
            }
            if is_gone {
                tracing::error!(remote = name, task = uid, "a remote cannot receive its tasks: {}", error.message);
                queue.wake.wait().await;
                continue;
            }
            let woken = pin!(queue.wake.wait());
            match select(self.runtime.sleep(pause), woken).await {
                Either::Left(_) => pause = (pause * 2).min(PAUSE_MAX),
                Either::Right(_) => pause = PAUSE_FIRST,
            }
        }
    }

    /// As [`Self::deliver_and_settle`]. While a long body is on its way, clients are told no later than where tries fail.
    async fn deliver_telling(&self, name: &str, queue: &RemoteQueue, uid: u32) -> Result<(), ApiError> {
        let mut delivery = pin!(self.deliver_and_settle(name, queue, uid));
        loop {
            match select(delivery.as_mut(), self.runtime.sleep(self.config.patience.untold())).await {
                Either::Left((delivered, _)) => return delivered,
                Either::Right(_) => self.note_away(name, queue, uid, &failure::behind(name)).await,
            }
        }
    }

    /// Sends one task, and settles what was taken or refused for good. Fails where it must be tried again.
    async fn deliver_and_settle(&self, name: &str, queue: &RemoteQueue, uid: u32) -> Result<(), ApiError> {
        let settled = match self.deliver_one(name, TaskUid(uid)).await {
            Ok(task_uid) => RemoteTask { task_uid: Some(task_uid), error: None, pending: false },
            Err(error) => {
                tracing::warn!(remote = name, task = uid, %error, "a remote did not accept a task");
                if error.code != ErrorCode::RemoteBadRequest || failure::may_be_mended(&error) {
                    return Err(error);
                }
                self.look_for_successor(uid, &error);
                RemoteTask { task_uid: None, error: Some(error.object()), pending: false }
            }
        };
        self.settle_delivery(name, queue, uid, settled).await;
        Ok(())
    }

    /// Settles all that an instance has still to take that was removed from the network and cannot be told.
    async fn settle_lost(&self, name: &str, queue: &RemoteQueue, error: &ApiError) {
        let lost_tasks = queue.pending.take();
        for uid in lost_tasks {
            let lost = RemoteTask { task_uid: None, error: Some(error.object()), pending: false };
            self.settle_delivery(name, queue, uid, lost).await;
        }
    }

    /// Says of a task, and of those whose clients wait, that the instance is away. Those before them say so already; there may be
    /// very many.
    async fn note_away(&self, name: &str, queue: &RemoteQueue, uid: u32, error: &ApiError) {
        let waiting: BTreeSet<u32> = queue.waiting.borrow().iter().map(|(uid, _)| *uid).chain([uid]).collect();
        let mut checkpoint = Checkpoint::default();
        for uid in &waiting {
            let away = RemoteTask { task_uid: None, error: Some(error.object()), pending: true };
            self.note_delivery(name, *uid, away);
            checkpoint.tick(&*self.runtime).await;
        }
        // Those who came in between have not been noted: they woke this queue, which says so of them after its next try.
        queue.tell(|uid| waiting.contains(&uid));
    }

    /// A task for the present network that is too old elsewhere shows that another leader has taken over.
    fn look_for_successor(&self, uid: u32, error: &ApiError) {
        let task = self.task(TaskUid(uid)).ok().flatten();
        let version = task.and_then(|task| task.network.as_ref().map(TaskNetwork::version));
        let is_too_old = error.message.contains(ErrorCode::NetworkVersionTooOld.name());
        if is_too_old && version == Some(self.network.borrow().version) {
            tracing::error!("another leader has taken over the network; this instance refuses writes from now on");
            self.outbox.deposed.set(true);
        }
    }

    /// Sends one task; the number that it has there.
    async fn deliver_one(&self, name: &str, uid: TaskUid) -> Result<u32, ApiError> {
        let task = self.whole_task(uid).map_err(|error| failure::unreadable_here(uid, &error))?;
        let task = task.ok_or_else(|| failure::gone(name, uid))?;
        let network = self.network.borrow().clone();
        let before = match &task.content {
            Content::NetworkTopologyChange { change } => Some(&change.before),
            _ => None,
        };
        let remote = network.remotes.get(name).or_else(|| before.and_then(|before| before.remotes.get(name))).cloned();
        let remote = remote.ok_or_else(|| failure::unreadable(name, "it is not of the network any more"))?;
        let message = match &task.content {
            Content::NetworkTopologyChange { change } => topology::message(change, name),
            _ => {
                let payload = if task.content.has_payload() { self.log.payload(uid).await } else { Ok(Arc::default()) };
                let payload = payload.map_err(|error| failure::unreadable(name, error))?;
                forward(&task, payload)
            }
        };
        let gone = || ApiError::new(ErrorCode::RemoteBadRequest, "The task is not one that is sent on.");
        let message = message.ok_or_else(gone)?;
        let own_name = network.own_name.clone().unwrap_or_default();
        let version = task.network.as_ref().map(TaskNetwork::version).unwrap_or_default();
        let origin = Origin { remote_name: own_name, task_uid: uid.0, network_version: version };
        let mut request = self.message(name, &remote, message)?;
        if let Some(before) = before {
            let replaced = before.leader.as_ref().map_or(headers::UNLED.to_owned(), |_| before.version.to_string());
            request = request.header(headers::PREVIOUS_VERSION, replaced);
        }
        if !task.content.may_create_index() {
            request = request.header(headers::NO_NEW_INDEX, "true");
        }
        let request = headers::write(request, &TaskNetwork::Origin(origin));
        let answer = self.outgoing.fetch(request, ANSWER_BYTES_MAX).await;
        let answer = answer.map_err(|error| failure::unanswered(name, &error))?;
        if let Some(error) = failure::refused(name, &answer) {
            return Err(error);
        }
        let body: serde_json::Value =
            serde_json::from_slice(&answer.body).map_err(|error| failure::unreadable(name, error))?;
        let uid = body["taskUid"].as_u64().and_then(|uid| u32::try_from(uid).ok());
        uid.ok_or_else(|| failure::unreadable(name, "it names no task"))
    }

    /// A request of the leader's kind to an instance: the path of its URL gives way.
    pub(crate) fn message(&self, name: &str, remote: &Remote, message: Forward) -> Result<Request, ApiError> {
        let url = Url::parse(&remote.url).and_then(|url| url.join(&message.target));
        let url = url.map_err(|error| {
            let message = format!("The URL of the remote `{name}` cannot be called: {error}.");
            ApiError::new(ErrorCode::RemoteCouldNotSendRequest, message)
        })?;
        let deadlines = self.config.patience.deadlines(message.body.as_ref().map_or(0, |(_, body)| body.len()));
        let request = Request::new(message.verb, url, deadlines).bearer(remote.write_api_key.as_deref());
        Ok(match message.body {
            Some((kind, body)) => request.body(kind, Rc::new(Arc::unwrap_or_clone(body))),
            None => request,
        })
    }

    /// Takes note of what became of a task for good.
    async fn settle_delivery(&self, name: &str, queue: &RemoteQueue, uid: u32, outcome: RemoteTask) {
        queue.pending.borrow_mut().remove(uid);
        self.note_delivery(name, uid, outcome.clone());
        let is_held = self.queue.borrow().held(TaskUid(uid)).is_some();
        if !is_held && let Ok(Some(mut task)) = self.store.task(TaskUid(uid)) {
            if let Some(TaskNetwork::Leader { remote_tasks, .. }) = &mut task.network {
                remote_tasks.insert(name.to_owned(), outcome);
            }
            let undelivered = Some(self.outbox.pending());
            let changes = Changes { rewritten: vec![task], undelivered, ..Changes::default() };
            if let Err(error) = self.store.commit(changes).await {
                tracing::warn!(%error, task = uid, "cannot record the state of a task on a remote");
            }
            if !self.outbox.is_pending(uid) {
                self.log.release(std::iter::once(TaskUid(uid))).await;
            }
        }
        queue.tell(|other| other == uid);
    }

    /// Shows what became of a task that is held here.
    fn note_delivery(&self, name: &str, uid: u32, outcome: RemoteTask) {
        self.queue.borrow_mut().change_network(TaskUid(uid), |network| {
            if let TaskNetwork::Leader { remote_tasks, .. } = network {
                remote_tasks.insert(name.to_owned(), outcome);
            }
        });
    }
}

/// The instances that a task is for.
fn receivers(network: &Network, content: &Content) -> Vec<String> {
    let mut names: BTreeSet<&String> = network.remotes.keys().collect();
    let mut own = vec![network.own_name.as_ref()];
    if let Content::NetworkTopologyChange { change } = content {
        names.extend(change.before.remotes.keys());
        names.extend(change.after.remotes.keys());
        own.extend([change.before.own_name.as_ref(), change.after.own_name.as_ref()]);
    }
    names.into_iter().filter(|name| !own.contains(&Some(*name))).cloned().collect()
}

#[cfg(test)]
mod tests;
