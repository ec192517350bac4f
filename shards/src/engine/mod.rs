//! The engine: the server's interface to the indexes. There is one engine per core; they communicate by messages.
//!
//! A partition lives on one core ([`home`]). The owner of an index's partition 0 also keeps its catalog and coordinates its
//! batches ([`catalog_side`]). Reads start on any core and are answered from the epoch of the view they begin with.
//!
//! A batch is first *prepared*: every partition builds its next state, nothing is durable yet. Then it is *committed*: the
//! partitions other than 0 make their states durable, then partition 0 does, with the catalog and the record of the batch. The
//! latter is the commit. A crash before it leaves partitions with a state newer than the catalog's, which is dropped on opening.
//! A failed batch is rolled back in all partitions ([`batch_end`]) once none of them is still working on it.

mod apply;
mod batch_end;
mod catalog_side;
mod documents;
mod embedding;
mod home;
mod kept_memory;
mod listing;
pub mod messages;
mod partition_side;
mod planners;
mod relayout;
pub mod scan;
mod search_side;
mod storage_side;
#[cfg(test)]
mod tests;
pub mod types;

use std::cell::{OnceCell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;

use ahash::AHashMap;
use futures_util::future::{LocalBoxFuture, join_all};
use uuid::Uuid;

use self::catalog_side::CatalogHome;
use self::home::PartitionHome;
use self::kept_memory::KeptMemory;
use self::planners::PlannerCache;
use self::search_side::KnownFactsCache;
pub use crate::document::{PayloadFormat, RawDocument};
use crate::error::UserError;
use crate::ids::{CoreId, Epoch, PartitionNo};
pub use crate::mesh::AskError;
use crate::placement;
use crate::runtime::Runtime;
use crate::search::KeptSearches;
use crate::stages::StageProgress;
use crate::timestamp::Timestamp;
use crate::vectors::EmbedderHost;
pub use messages::{Answer, EngineMesh, Prepared, Question};
use messages::{PartitionQuestion, Place, ReadQuestion};
pub use scan::DocumentScan;
pub use types::*;

/// How an engine works.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The folder of all indexes.
    pub root: PathBuf,
    /// How many partitions every new index has from the start; such an index is never laid out anew.
    pub forced_partitions: Option<u16>,
    /// An index with one partition is spread over the cores once it has more documents than this.
    pub split_documents: u32,
    /// Loads the graphs of vectors into memory when an index is opened, instead of when searches need them.
    pub preload_graphs: bool,
    /// Memory that the process may use, for each of its processors: caches take parts of it.
    pub core_memory_bytes: u64,
}

/// The indexes as one core sees them.
pub struct Engine {
    runtime: Rc<dyn Runtime>,
    mesh: Rc<dyn EngineMesh>,
    config: EngineConfig,
    partitions: RefCell<AHashMap<Place, Rc<PartitionHome>>>,
    catalogs: RefCell<AHashMap<Uuid, Rc<CatalogHome>>>,
    planners: PlannerCache,
    known: KnownFactsCache,
    searches: Rc<KeptSearches>,
    kept: KeptMemory,
    embedders: OnceCell<Rc<dyn EmbedderHost>>,
}

/// The value of the one answer that fits a question.
macro_rules! answer_as {
    ($answer:expr, $pattern:pat => $value:expr) => {
        match $answer {
            Ok($pattern) => Ok($value),
            Ok($crate::engine::Answer::Failed(error)) => Err(error),
            Ok(_) => Err($crate::engine::EngineError::Unreachable("the answer does not fit the question".into())),
            Err(error) => Err(error),
        }
    };
}
use answer_as;

/// The values of all, or an error, once every one has ended. A question that changes something is answered to the end even when
/// nobody waits any more: what follows must not meet a partition that is still at work on what failed elsewhere. Of several
/// errors it is the first that is no request's, else the one whose text sorts first: documents at fault are of any partition.
async fn all_done<T, F>(asked: impl IntoIterator<Item = F>) -> Result<Vec<T>, EngineError>
where
    F: Future<Output = Result<T, EngineError>>,
{
    let ended = join_all(asked).await;
    let mut values = Vec::with_capacity(ended.len());
    let mut refused: Option<UserError> = None;
    for value in ended {
        match value {
            Ok(value) => values.push(value),
            Err(EngineError::User(error)) => refused = Some(error.or_sooner(refused)),
            Err(error) => return Err(error),
        }
    }
    refused.map_or(Ok(values), |error| Err(error.into()))
}

impl Engine {
    /// The engine of this core.
    pub fn new(runtime: Rc<dyn Runtime>, mesh: Rc<dyn EngineMesh>, config: EngineConfig) -> Rc<Self> {
        let memory_bytes = config.core_memory_bytes;
        Rc::new(Self {
            runtime,
            mesh,
            config,
            partitions: RefCell::default(),
            catalogs: RefCell::default(),
            planners: PlannerCache::default(),
            known: KnownFactsCache::default(),
            searches: Rc::new(KeptSearches::of_core(memory_bytes)),
            kept: KeptMemory::of_core(memory_bytes),
            embedders: OnceCell::new(),
        })
    }

    /// Names who embeds texts, once, before the engine has work. Without a host only vectors that come with documents and queries
    /// can be used.
    pub fn set_embedders(&self, host: Rc<dyn EmbedderHost>) {
        // The first one stays: batches under way hold it.
        let _ = self.embedders.set(host);
    }

    /// Answers a question of an engine. Call it for each that the mesh brings, in the manner that [`Question::manner`] says.
    ///
    /// The work on each kind is allocated by itself: that on a read, which comes often, takes a quarter of what a write takes.
    pub fn handle(self: Rc<Self>, _from: CoreId, question: Question) -> LocalBoxFuture<'static, Answer> {
        match question {
            Question::Read(place, epoch, question) => answered(async move { self.read(place, epoch, question).await }),
            Question::Partition(place, question) => {
                answered(async move { self.handle_partition(place, question).await })
            }
            Question::View(index) => {
                answered(async move { self.catalog(index).map(|home| Answer::View(Box::new(home.view()))) })
            }
            Question::Progress(index) => {
                answered(async move { self.catalog(index).map(|home| Answer::Progress(home.stages.now())) })
            }
            Question::Create(index, at) => answered(async move { self.create_here(index, at).await }),
            Question::Open(index) => answered(async move { self.open_here(index).await }),
            Question::Drop(index) => answered(async move { self.drop_here(index).await }),
            Question::Prepare(index, batch) => {
                answered(async move { self.prepare_here(index, *batch).await.map(Answer::Prepared) })
            }
            Question::Commit(index, epoch, record) => {
                answered(async move { self.commit_here(index, epoch, &record).await })
            }
            Question::Abort(index, epoch) => answered(async move { self.abort_here(index, epoch).await }),
            Question::Compact(index) => answered(async move { self.compact_here(index).await }),
        }
    }

    /// Makes an index; one that is there already is taken as made.
    pub async fn create_index(&self, id: Uuid, created_at: Timestamp) -> Result<IndexView, EngineError> {
        answer_as!(self.ask_first(id, Question::Create(id, created_at)).await, Answer::View(view) => *view)
    }

    /// Opens an index after a start, with the record of its last commit. [`EngineError::Gone`] when there is no such index.
    pub async fn open_index(&self, id: Uuid) -> Result<(IndexView, Option<Vec<u8>>), EngineError> {
        answer_as!(self.ask_first(id, Question::Open(id)).await, Answer::Opened(view, record) => (*view, record))
    }

    /// Removes an index and its files; none there is no error.
    pub async fn drop_index(&self, id: Uuid) -> Result<(), EngineError> {
        answer_as!(self.ask_first(id, Question::Drop(id)).await, Answer::Done => ())
    }

    /// The newest state of an open index.
    pub async fn latest(&self, id: Uuid) -> Result<IndexView, EngineError> {
        answer_as!(self.ask_first(id, Question::View(id)).await, Answer::View(view) => *view)
    }

    /// The newest state of an index whose older one is kept no longer.
    pub(super) async fn moved_on(&self, id: Uuid) -> Result<IndexView, EngineError> {
        self.latest(id).await.map_err(|error| match error {
            EngineError::Gone => EngineError::Dropped,
            other => other,
        })
    }

    /// Does all the work of a batch; nothing of it is visible or durable. Preparing again forgets what was prepared before.
    /// One batch of an index at a time.
    pub async fn prepare(&self, index: &IndexView, batch: Batch) -> Result<Prepared, EngineError> {
        let question = Question::Prepare(index.id, Box::new(batch));
        answer_as!(self.ask_first(index.id, question).await, Answer::Prepared(prepared) => prepared)
    }

    /// How far the work of a batch on an index is; `None` where none is under way.
    pub async fn progress(&self, index: &IndexView) -> Result<Option<StageProgress>, EngineError> {
        answer_as!(self.ask_first(index.id, Question::Progress(index.id)).await, Answer::Progress(progress) => progress)
    }

    /// Makes a prepared batch durable and visible; `record` is stored with it. When it fails the index is as before.
    pub async fn commit(&self, prepared: Prepared, record: Vec<u8>) -> Result<IndexView, EngineError> {
        let question = Question::Commit(prepared.index, prepared.epoch, record);
        answer_as!(self.ask_first(prepared.index, question).await, Answer::View(view) => *view)
    }

    /// Forgets a prepared batch.
    pub async fn abort(&self, prepared: Prepared) {
        // A core that does not answer is ending, and takes what was prepared with it.
        let _ = self.ask_first(prepared.index, Question::Abort(prepared.index, prepared.epoch)).await;
    }

    /// Rewrites an index's files without their free pages; bytes before and after.
    pub async fn compact(&self, index: &IndexView) -> Result<(u64, u64), EngineError> {
        answer_as!(
            self.ask_first(index.id, Question::Compact(index.id)).await,
            Answer::Compacted(before, after) => (before, after)
        )
    }

    /// The folder of all files of an index as the view shows it.
    pub fn folder(&self, index: &IndexView) -> PathBuf {
        Place { index: index.id, layout: index.layout, partition: PartitionNo(0) }.folder(&self.config.root)
    }

    /// Asks the owner of an index's partition 0.
    async fn ask_first(&self, index: Uuid, question: Question) -> Result<Answer, EngineError> {
        let core = placement::first_core(index, self.runtime.core_count());
        self.ask(core, question).await
    }

    /// Asks the owner of a partition to read at an epoch.
    async fn ask_to_read(&self, place: Place, epoch: Epoch, question: ReadQuestion) -> Result<Answer, EngineError> {
        self.ask(self.owner(place.index, place.partition), Question::Read(place, epoch, question)).await
    }

    /// Asks the owner of a partition.
    async fn ask_partition(&self, place: Place, question: PartitionQuestion) -> Result<Answer, EngineError> {
        self.ask(self.owner(place.index, place.partition), Question::Partition(place, question)).await
    }

    async fn ask(&self, core: CoreId, question: Question) -> Result<Answer, EngineError> {
        self.mesh.ask(core, question).await.map_err(|error| match error {
            AskError::Closed { .. } => EngineError::Left(error.to_string()),
            error => EngineError::Unreachable(error.to_string()),
        })
    }

    /// The core that owns a partition.
    fn owner(&self, index: Uuid, partition: PartitionNo) -> CoreId {
        let cores = self.runtime.core_count();
        placement::owner(placement::first_core(index, cores), partition, cores)
    }

    /// A partition of this core.
    fn partition(&self, place: Place) -> Result<Rc<PartitionHome>, EngineError> {
        self.partitions.borrow().get(&place).cloned().ok_or(EngineError::Gone)
    }

    /// The catalog of an index whose partition 0 is on this core.
    fn catalog(&self, index: Uuid) -> Result<Rc<CatalogHome>, EngineError> {
        self.catalogs.borrow().get(&index).cloned().ok_or(EngineError::Gone)
    }

    /// A partition of this core at an epoch.
    fn reader(&self, place: Place, epoch: Epoch) -> Result<Rc<crate::partition::reader::PartitionReader>, EngineError> {
        self.partition(place)?.reader(epoch).ok_or(EngineError::Gone)
    }
}

/// The work on a question; a failure of it is an answer as well.
fn answered(work: impl Future<Output = Result<Answer, EngineError>> + 'static) -> LocalBoxFuture<'static, Answer> {
    Box::pin(async move { work.await.unwrap_or_else(Answer::Failed) })
}
