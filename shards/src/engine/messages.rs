//! Messages between engines.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use uuid::Uuid;

use super::listing::Listed;
use super::types::{Batch, EngineError, IndexView, OpOutcome, StoreBytes};
use crate::document::RawDocument;
use crate::error::UserError;
use crate::facets::columns::{Cut, Mark};
use crate::facets::{Filter, SortCriterion};
use crate::fields::FieldsMap;
use crate::ids::{CoreId, DocId, Epoch, LocalDocId, PartitionNo};
use crate::mesh::{AskError, Manner};
use crate::partition::writer::{PartitionDelta, RecordChunk};
use crate::runtime::Queue;
use crate::search::messages::{PartQuestion, PartReply};
use crate::settings::Settings;
use crate::stages::{Stage, StageProgress};
use crate::text::TextTokenizer;
use crate::timestamp::Timestamp;
use crate::vectors::writer::{CarriedVectors, WantedText};
use crate::vectors::{DocumentEmbedding, EmbedderStates};

/// The way from one core's engine to the others'.
pub trait EngineMesh {
    /// Asks the engine of a core, possibly this one's own.
    fn ask(&self, to: CoreId, question: Question) -> LocalBoxFuture<'static, Result<Answer, AskError>>;
}

/// The files of one partition in one layout of its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Which index.
    pub index: Uuid,
    /// Which layout of it.
    pub layout: u32,
    /// Which partition of the layout.
    pub partition: PartitionNo,
}

impl Place {
    /// The folder of an index.
    pub fn index_folder(root: &Path, index: Uuid) -> PathBuf {
        root.join(index.simple().to_string())
    }

    /// The folder of a layout.
    pub fn folder(self, root: &Path) -> PathBuf {
        Self::index_folder(root, self.index).join(format!("l{}", self.layout))
    }

    /// The partition's file.
    pub fn file(self, root: &Path) -> PathBuf {
        self.folder(root).join(format!("p{}.store", self.partition.0))
    }
}

/// What all partitions of an index share at one epoch.
#[derive(Clone, Debug)]
pub struct EpochShare {
    /// The epoch.
    pub epoch: Epoch,
    /// All names.
    pub fields: Arc<FieldsMap>,
    /// Complete settings.
    pub settings: Arc<Settings>,
    /// What cuts texts under them.
    pub tokenizer: Arc<TextTokenizer>,
    /// Partitions of the index.
    pub partition_count: u16,
    /// What is known of the embedders of the settings.
    pub embedders: Arc<EmbedderStates>,
    /// The field that identifies documents, once known.
    pub primary_key: Option<String>,
}

/// A question to an engine.
#[derive(Debug)]
pub enum Question {
    /// To the owner of partition 0: makes an index.
    Create(Uuid, Timestamp),
    /// To the owner of partition 0: opens an index.
    Open(Uuid),
    /// To the owner of partition 0: removes an index.
    Drop(Uuid),
    /// To the owner of partition 0: the newest state.
    View(Uuid),
    /// To the owner of partition 0: does the work of a batch.
    Prepare(Uuid, Box<Batch>),
    /// To the owner of partition 0: how far the work of a batch is.
    Progress(Uuid),
    /// To the owner of partition 0: makes the prepared batch visible.
    Commit(Uuid, Epoch, Vec<u8>),
    /// To the owner of partition 0: forgets the prepared batch.
    Abort(Uuid, Epoch),
    /// To the owner of partition 0: gives space back; answers bytes before and after.
    Compact(Uuid),
    /// To a partition's owner: reads at an epoch.
    Read(Place, Epoch, ReadQuestion),
    /// To a partition's owner: opens it, or changes it.
    Partition(Place, PartitionQuestion),
}

/// A question to one partition.
#[derive(Debug)]
pub enum PartitionQuestion {
    /// Opens the file (made when it is not there), at the newest state up to the epoch, and publishes that.
    Open(EpochShare),
    /// Lets go of the partition.
    Forget,
    /// Begins the next state.
    Begin {
        /// What it is built with.
        share: EpochShare,
        /// The settings before.
        before: Arc<Settings>,
        /// Takes all documents out first.
        clear: bool,
    },
    /// Changes documents.
    Apply(RecordChunk),
    /// Asks for documents of the state being built whose texts an embedder's host must look at.
    Wanted {
        /// The embedder.
        name: Arc<str>,
        /// The first number.
        from: LocalDocId,
        /// Documents at most.
        count: usize,
        /// No further document is handed over beyond so many bytes.
        bytes: usize,
    },
    /// Brings what an embedder's host gave.
    Embedded(Arc<str>, Vec<(LocalDocId, DocumentEmbedding)>),
    /// Brings vectors of documents that come from another partition.
    Carry(Vec<CarriedVectors>),
    /// Ends building.
    Finish,
    /// Makes what was built durable, but does not publish it.
    Commit(Epoch),
    /// Goes back to the state of the epoch, whatever was begun, built or made durable since.
    Abort(Epoch),
    /// Publishes the newest durable state as that of an epoch.
    Publish(EpochShare),
    /// Rewrites the file without its free pages.
    Compact,
}

/// A question to one partition at one epoch.
#[derive(Debug)]
pub enum ReadQuestion {
    /// The numbers of documents by external id; partition 0 only.
    LookUp(Vec<String>),
    /// The documents that a filter admits, with their external ids.
    Choose {
        /// The filter.
        filter: Box<Filter>,
        /// The field that holds the ids.
        primary_key: String,
    },
    /// The first documents of a listing.
    List(Box<Listing>),
    /// Marks along the order of a listing, to begin it behind one of them.
    Marks(Box<Listing>),
    /// Stored documents.
    Documents {
        /// Which, in this order.
        docs: Vec<LocalDocId>,
        /// Whether with their vectors, as `_vectors`.
        vectors: bool,
    },
    /// Stored documents by rising number.
    Scan {
        /// The first number.
        from: LocalDocId,
        /// No further document is handed over beyond so many bytes.
        bytes: usize,
        /// Whether with their vectors, as `_vectors`.
        vectors: bool,
    },
    /// A part of a search.
    Search(Box<PartQuestion>),
}

/// A listing of documents as one partition sees it.
#[derive(Clone, Debug)]
pub struct Listing {
    /// Only these.
    pub among: Option<Vec<LocalDocId>>,
    /// Only what this admits.
    pub filter: Option<Filter>,
    /// The order, before that of the numbers.
    pub sort: Vec<SortCriterion>,
    /// Only documents from this one on.
    pub from: LocalDocId,
    /// Where to begin in this order, if not with the first.
    pub behind: Option<Cut>,
    /// Documents to pass over in this partition, where there is an order.
    pub skip: usize,
    /// Documents to name after that.
    pub limit: usize,
}

/// An engine's answer.
#[derive(Debug)]
pub enum Answer {
    /// It was not done.
    Failed(EngineError),
    /// It was done.
    Done,
    /// To [`Question::Create`], [`Question::View`], [`Question::Commit`].
    View(Box<IndexView>),
    /// To [`Question::Open`]: with the last commit's record.
    Opened(Box<IndexView>, Option<Vec<u8>>),
    /// To [`Question::Prepare`].
    Prepared(Prepared),
    /// To [`Question::Progress`]; `None` where none is under way.
    Progress(Option<StageProgress>),
    /// To [`Question::Compact`] and [`PartitionQuestion::Compact`]: bytes of files before and after.
    Compacted(u64, u64),
    /// To [`PartitionQuestion::Open`]: how many documents there are, and the store's bytes.
    PartitionOpened(u64, StoreBytes),
    /// To [`PartitionQuestion::Wanted`].
    Wanted(Vec<WantedText>),
    /// To [`PartitionQuestion::Finish`].
    Finished(PartitionDelta),
    /// To [`PartitionQuestion::Publish`].
    Published(StoreBytes),
    /// To [`ReadQuestion::LookUp`]: in the order of the ids.
    Numbers(Vec<Option<DocId>>),
    /// To [`ReadQuestion::Choose`].
    Chosen(Vec<(DocId, String)>),
    /// To [`ReadQuestion::List`]: how many there are, and the first in order.
    Listed(u64, Listed),
    /// To [`ReadQuestion::Marks`]; `None` where there are none.
    Marks(Option<Vec<Mark>>),
    /// To [`ReadQuestion::Documents`]: in the order asked for.
    Documents(Vec<RawDocument>),
    /// To [`ReadQuestion::Scan`]: with the number to go on from, if there is more.
    Scanned(Vec<RawDocument>, Option<LocalDocId>),
    /// To [`ReadQuestion::Search`].
    Search(Box<PartReply>),
}

/// A batch that is done but not visible.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The index.
    pub index: Uuid,
    /// The epoch that the batch makes.
    pub epoch: Epoch,
    /// One for each operation, in order.
    pub outcomes: Vec<Result<OpOutcome, UserError>>,
    /// How long each stage of the work took.
    pub stages: Vec<(Stage, Duration)>,
}

impl Question {
    /// How it is handled. Reads are dropped when nobody waits for them; all else is done to its end, since what follows must not
    /// meet a partition that is half-way.
    pub fn manner(&self) -> Manner {
        let queue = match self {
            Self::Read(..) => return Manner { queue: Queue::Search, is_droppable: true },
            Self::View(_) | Self::Progress(_) | Self::Partition(_, PartitionQuestion::Publish(_)) => Queue::Search,
            Self::Compact(_) | Self::Drop(_) | Self::Partition(_, PartitionQuestion::Compact) => Queue::Upkeep,
            _ => Queue::Indexing,
        };
        queue.into()
    }
}
