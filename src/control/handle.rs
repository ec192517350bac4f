//! The control plane's interface for handlers on any core.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use shards::ids::CoreId;
use uuid::Uuid;

use super::acknowledge::{Awaited, Ticket, Verdict};
use super::features::Features;
use super::inbox::Signal;
use super::message::{
    ControlAnswer, ControlChange, ControlError, ControlFigures, ControlMesh, ControlQuestion, ControlStatus, ListQuery,
    Payload, Selection,
};
use super::state::ControlState;
use crate::api::error::{ApiError, ErrorCode};
use crate::network::change::Message;
use crate::tasks::batch::EmbedderRequests;
use crate::tasks::filter::Scope;
use crate::tasks::task::{BatchUid, NewTask, Task, TaskUid};

/// The core of the one writer.
pub const CONTROL_CORE: CoreId = CoreId(0);

/// One core's access to the control plane. Cheap to clone.
#[derive(Clone)]
pub struct ControlHandle {
    shared: Rc<Shared>,
}

struct Shared {
    mesh: Rc<dyn ControlMesh>,
    state: RefCell<Arc<ControlState>>,
    opened: Signal,
    /// Writes that have no answer yet.
    awaited: Rc<Awaited>,
}

impl ControlHandle {
    /// The handle of a core that has not heard of core 0 yet: its state is empty until [`Self::opened`].
    pub fn new(mesh: Rc<dyn ControlMesh>) -> Self {
        let state = RefCell::new(Arc::new(ControlState::default()));
        Self { shared: Rc::new(Shared { mesh, state, opened: Signal::default(), awaited: Rc::default() }) }
    }

    /// Waits for the first state from core 0. One caller at a time.
    pub async fn opened(&self) {
        if self.state().version == 0 {
            self.shared.opened.wait().await;
        }
    }

    /// The newest state this core has heard of.
    pub fn state(&self) -> Arc<ControlState> {
        self.shared.state.borrow().clone()
    }

    /// The switches of the newest state; cheaper than the state, for what every request asks.
    pub fn features(&self) -> Features {
        self.shared.state.borrow().features
    }

    /// Takes over a state from core 0; an older one than the present is passed over.
    pub fn publish(&self, state: Arc<ControlState>) {
        let mut present = self.shared.state.borrow_mut();
        if state.version > present.version {
            *present = state;
            self.shared.opened.raise();
        }
    }

    /// Takes over what core 0 says of writes that wait.
    pub fn settle(&self, verdicts: Vec<Verdict>) {
        self.shared.awaited.settle(verdicts);
    }

    /// Ends the wait of all writes: core 0 has ended.
    pub fn abandon(&self) {
        self.shared.awaited.abandon();
    }

    /// Accepts a task; durable when it returns. The payload of a document addition goes to the log beside it. One that other
    /// instances get too is given once each has it or is known to be away.
    ///
    /// # Errors
    /// `no_space_left_on_device` or `internal`, when the log cannot be written; `too_many_search_requests`, when too many writes
    /// wait for other instances; those of [`ControlPlane::delivered`](super::ControlPlane::delivered).
    pub async fn register(&self, task: NewTask, payload: Option<Vec<u8>>) -> Result<Task, ApiError> {
        self.registered(|ticket| ControlQuestion::Register(Box::new(task), payload, ticket)).await
    }

    /// Accepts a cancelation or deletion of the tasks that match now.
    ///
    /// # Errors
    /// As [`Self::register`].
    pub async fn register_selection(&self, selection: Selection) -> Result<Task, ApiError> {
        self.registered(|ticket| ControlQuestion::RegisterSelection(Box::new(selection), ticket)).await
    }

    /// Changes keys or switches; durable and known on every core when it returns.
    ///
    /// # Errors
    /// Those named at [`ControlChange`]; `no_space_left_on_device` or `internal`, when the store cannot be written;
    /// `too_many_search_requests`, when too many changes wait.
    pub async fn change(&self, change: ControlChange) -> Result<(), ApiError> {
        let place = self.shared.awaited.enter();
        match self.ask(ControlQuestion::Change(change, place.ticket())).await? {
            ControlAnswer::UnderWay => Ok(place.verdict().await?),
            _ => Err(mismatch()),
        }
    }

    /// Takes in what another instance says about the change to a version of the network.
    ///
    /// # Errors
    /// `import_task_without_network_task`, `network_version_mismatch`, `import_task_unknown_remote`,
    /// `receive_import_finished_unknown_remote`, `internal`.
    pub async fn hear(&self, version: Uuid, message: Message) -> Result<(), ApiError> {
        match self.ask(ControlQuestion::Network(version, message)).await? {
            ControlAnswer::Changed => Ok(()),
            _ => Err(mismatch()),
        }
    }

    /// Checks that the instance `name` may send documents for the change to a version of the network by now.
    ///
    /// # Errors
    /// `import_task_without_network_task`, `network_version_mismatch`, `import_task_unknown_remote`, `internal`.
    pub async fn may_import(&self, version: Uuid, name: String) -> Result<(), ApiError> {
        match self.ask(ControlQuestion::MayImport(version, name)).await? {
            ControlAnswer::Changed => Ok(()),
            _ => Err(mismatch()),
        }
    }

    /// A page of tasks, as the body of the answer.
    ///
    /// # Errors
    /// `internal`, when a record cannot be read.
    pub async fn tasks(&self, query: ListQuery) -> Result<Vec<u8>, ApiError> {
        self.json(ControlQuestion::Tasks(Box::new(query))).await
    }

    /// One task, as the body of the answer.
    ///
    /// # Errors
    /// `task_not_found`, also for one that the scope hides; `internal`.
    pub async fn task(&self, uid: TaskUid, scope: Scope) -> Result<Vec<u8>, ApiError> {
        self.json(ControlQuestion::Task(uid, scope)).await
    }

    /// The payload of a document addition that is not finished.
    ///
    /// # Errors
    /// `task_not_found`, `task_file_not_found`, `internal`.
    pub async fn payload(&self, uid: TaskUid, scope: Scope) -> Result<Payload, ApiError> {
        match self.ask(ControlQuestion::Payload(uid, scope)).await? {
            ControlAnswer::Payload(payload) => Ok(payload),
            _ => Err(mismatch()),
        }
    }

    /// A page of batches, as the body of the answer.
    ///
    /// # Errors
    /// `internal`, when a record cannot be read.
    pub async fn batches(&self, query: ListQuery) -> Result<Vec<u8>, ApiError> {
        self.json(ControlQuestion::Batches(Box::new(query))).await
    }

    /// One batch, as the body of the answer.
    ///
    /// # Errors
    /// `batch_not_found`, also for one that the scope hides; `internal`.
    pub async fn batch(&self, uid: BatchUid, scope: Scope) -> Result<Vec<u8>, ApiError> {
        self.json(ControlQuestion::Batch(uid, scope)).await
    }

    /// What the statistics need beyond the indexes.
    ///
    /// # Errors
    /// `internal`.
    pub async fn status(&self) -> Result<ControlStatus, ApiError> {
        match self.ask(ControlQuestion::Status).await? {
            ControlAnswer::Status(status) => Ok(status),
            _ => Err(mismatch()),
        }
    }

    /// What the metrics need beyond the indexes.
    ///
    /// # Errors
    /// `internal`.
    pub async fn figures(&self) -> Result<ControlFigures, ApiError> {
        match self.ask(ControlQuestion::Figures).await? {
            ControlAnswer::Figures(figures) => Ok(*figures),
            _ => Err(mismatch()),
        }
    }

    /// Counts more requests to embedding services for the batch in progress.
    ///
    /// # Errors
    /// The control core does not answer. It is no request's error, so it is left to the caller to say so.
    pub async fn count_requests(&self, requests: EmbedderRequests) -> Result<(), ControlError> {
        self.shared.mesh.ask(CONTROL_CORE, ControlQuestion::EmbedderRequests(requests)).await.map(drop)
    }

    /// Gives back space of the control store: its bytes before and after.
    ///
    /// # Errors
    /// `internal`.
    pub async fn compact_queue(&self) -> Result<(u64, u64), ApiError> {
        match self.ask(ControlQuestion::CompactQueue).await? {
            ControlAnswer::Compacted { before, after } => Ok((before, after)),
            _ => Err(mismatch()),
        }
    }

    async fn registered(&self, question: impl FnOnce(Ticket) -> ControlQuestion) -> Result<Task, ApiError> {
        let place = self.shared.awaited.enter();
        match self.ask(question(place.ticket())).await? {
            ControlAnswer::Registered(task) => Ok(*task),
            ControlAnswer::OnItsWay(task) => {
                place.verdict().await?;
                Ok(*task)
            }
            _ => Err(mismatch()),
        }
    }

    async fn json(&self, question: ControlQuestion) -> Result<Vec<u8>, ApiError> {
        match self.ask(question).await? {
            ControlAnswer::Json(body) => Ok(body),
            _ => Err(mismatch()),
        }
    }

    async fn ask(&self, question: ControlQuestion) -> Result<ControlAnswer, ApiError> {
        self.shared.mesh.ask(CONTROL_CORE, question).await.map_err(ApiError::from)
    }
}

/// An answer that does not belong to its question: a defect of ours, reported instead of guessed at.
fn mismatch() -> ApiError {
    ApiError::internal("the control core answered another question")
}

impl From<ControlError> for ApiError {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::User(error) => error.into(),
            ControlError::OutOfSpace => ApiError::new(
                ErrorCode::NoSpaceLeftOnDevice,
                "There is no more space left on the device. Free some and try again.",
            ),
            ControlError::TooManyFiles => ApiError::new(
                ErrorCode::TooManyOpenFiles,
                "Too many files are open. Raise the limit (`ulimit -n`, or `LimitNOFILE=` of the unit) and try again.",
            ),
            other => ApiError::internal(other),
        }
    }
}
