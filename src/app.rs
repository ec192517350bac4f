//! What the handlers of one core have access to, and how the cores of the server communicate.

use std::cell::OnceCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{FutureExt, LocalBoxFuture, ready};
use shards::document::RawDocument;
use shards::engine::{
    self, AskError, DocumentsPage, DocumentsQuery, Engine, EngineConfig, EngineError, EngineMesh, IndexView,
};
use shards::ids::CoreId;
use shards::mesh::{Manner, Mesh};
use shards::placement::{memory_bytes, processor_count};
use shards::runtime::{Nanos, Queue, Runtime};
use shards::search::federated::{FederatedAnswer, FederatedError, FederatedRequest, Part, Rescored, Shares};
use shards::search::{FacetSearchRequest, SearchAnswer, SearchError, SearchRequest, SimilarAnswer, SimilarRequest};
use shards::timestamp::Timestamp;
use time::OffsetDateTime;

use crate::api::reader::Reader;
use crate::api::router::{Asked, Host};
use crate::api::search::personalize::Personalizer;
use crate::api::search::room::SearchRoom;
use crate::archive::aside;
use crate::auth::KeySet;
use crate::control::engine::EngineIndexes;
use crate::control::indexes::SharedIndexes;
use crate::control::message::{ControlAnswer, ControlMesh, ControlQuestion};
use crate::control::{
    CONTROL_CORE, ControlConfig, ControlError, ControlHandle, ControlPlane, Features, indexes_folder,
};
use crate::dumps;
use crate::embedders::{Embedders, Tally};
use crate::http::Method;
use crate::imports::{Import, ImportError};
use crate::metrics::{Counting, Counts};
use crate::network::deliveries::Patience;
use crate::options::Options;
use crate::options::values::AllowedNetworks;
use crate::outgoing::{AddressPolicy, Client, Names, Room, SystemSockets};
use crate::snapshots::s3::SnapshotBucket;
use crate::snapshots::schedule;
use crate::tasks::batch::EmbedderRequests;
use crate::tasks::batcher::Limits;
use crate::webhooks::Webhook;

/// Bytes of payloads that one batch may hold when nothing is set: they are in memory at once.
const BATCH_PAYLOAD_BYTES: u64 = 512 << 20;
/// And no more than this part of the memory: a batch takes several times its payloads while it is built.
const BATCH_MEMORY_PART: u64 = 16;
/// At most this many, whatever memory indexing may take.
const BATCH_PAYLOAD_BYTES_MAX: u64 = 10 << 30;

/// Bytes of documents in one request of an export at least, when nothing is said: the limit of bodies here, with some room
/// below it, is a guess at the target's.
const EXPORT_PAYLOAD_BYTES_MIN: u64 = 20 << 20;

/// Tasks that are kept, finished ones included; a tenth of them is forgotten when there are so many.
const TASKS_MAX: u64 = 1_000_000;

/// An index with more documents than this is spread over the cores: below, asking several costs more than it saves.
const SPLIT_DOCUMENTS: u32 = 10_000;

/// Bytes that the answers of other instances to searches take together on one core until they are read, beside those of the
/// oldest.
const SHARES_BYTES_MAX: u64 = 64 << 20;

/// The server as one core's handlers see it.
pub struct App {
    /// This core: its clock, its tasks, its disk.
    pub runtime: Rc<dyn Runtime>,
    /// The control plane.
    pub control: ControlHandle,
    /// What was set from outside.
    pub options: Arc<Options>,
    /// Documents and searches.
    pub reader: Rc<dyn Reader>,
    /// The way to other servers.
    pub outgoing: Client,
    /// What the answers of other instances to searches take here.
    pub shares_room: Room,
    /// How many searches run and wait here.
    pub search_room: SearchRoom,
    /// What puts hits in the order of a person; none without a key for it.
    pub personalizer: Option<Personalizer>,
    /// What this core counts.
    pub counting: Rc<Counting>,
    /// On core 0, the bucket that takes the snapshots.
    bucket: Option<Rc<SnapshotBucket>>,
    /// The way to the other cores' counts; none where there is one core alone.
    mesh: Option<ServerMesh>,
}

impl App {
    /// What one core's handlers need.
    pub fn new(
        runtime: Rc<dyn Runtime>,
        control: ControlHandle,
        options: Arc<Options>,
        reader: Rc<dyn Reader>,
        outgoing: Client,
    ) -> Self {
        let search_room = search_room(&options, &*runtime);
        let personalizer = Personalizer::new(&runtime, &outgoing, &options);
        let counting = Rc::default();
        let shares_room = Room::new(SHARES_BYTES_MAX);
        Self {
            runtime,
            control,
            options,
            reader,
            outgoing,
            shares_room,
            search_room,
            personalizer,
            counting,
            bucket: None,
            mesh: None,
        }
    }

    /// What all cores have counted so far. A core that does not answer is left out.
    pub async fn all_counts(&self) -> Counts {
        let mut counts = counts(&self.counting, &self.search_room);
        let Some(way) = &self.mesh else { return counts };
        for core in (0..way.core_count).map(CoreId).filter(|core| *core != self.runtime.core()) {
            match way.mesh.ask(core, Question::Counts).await {
                Ok(Answer::Counts(more)) => counts.add(*more),
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, core = core.0, "a core does not report its counts"),
            }
        }
        counts
    }
}

/// Why a core's part of the server cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The data cannot be read.
    #[error("the database cannot be opened: {0}")]
    Database(#[from] ControlError),
    /// The dump cannot be taken over.
    #[error("the dump cannot be imported: {0}")]
    Dump(#[from] dumps::import::ImportError),
    /// What was imported cannot be made the database.
    #[error(transparent)]
    Import(#[from] ImportError),
}

/// What one core asks another.
pub enum Question {
    /// About tasks, keys, switches and the state of the instance.
    Control(ControlQuestion),
    /// About the partitions of indexes.
    Engine(engine::Question),
    /// What the core has counted.
    Counts,
}

/// The answer to a question of the same kind.
pub enum Answer {
    /// See [`ControlQuestion`].
    Control(Result<ControlAnswer, ControlError>),
    /// See [`engine::Question`].
    Engine(engine::Answer),
    /// See [`Question::Counts`].
    Counts(Box<Counts>),
}

/// The way from this core to the others.
#[derive(Clone)]
struct ServerMesh {
    mesh: Mesh<Question, Answer>,
    core_count: u16,
}

impl App {
    /// Opens this core's part of the server, and on core 0 the control plane, then waits until core 0 has told its state.
    /// Tasks are processed from then on. With an import, core 0 first fills the database with what was unpacked.
    ///
    /// # Errors
    /// On core 0: [`OpenError`]. The other cores then wait in vain, so the server must be stopped.
    pub async fn start(
        runtime: Rc<dyn Runtime>,
        mesh: Mesh<Question, Answer>,
        options: Arc<Options>,
        names: Names,
        import: Option<Import>,
    ) -> Result<Rc<Self>, OpenError> {
        let server_mesh = ServerMesh { mesh: mesh.clone(), core_count: runtime.core_count() };
        let way = Rc::new(server_mesh.clone());
        let core = Rc::new(Core {
            engine: Engine::new(runtime.clone(), way.clone(), engine_config(&options)),
            control: ControlHandle::new(way.clone()),
            plane: OnceCell::new(),
            counting: Rc::default(),
            search_room: search_room(&options, &*runtime),
        });
        let mut own_bucket = None;
        let sockets = Rc::new(SystemSockets::new(runtime.clone(), names));
        let policy = AddressPolicy::new(options.allowed_networks.clone());
        let outgoing = Client::new(runtime.clone(), sockets.clone(), policy);
        let cached = options.embedding_cache_entries.div_ceil(usize::from(runtime.core_count()));
        let tally = Rc::new(core.control.clone());
        let embedders = Embedders::new(runtime.clone(), outgoing.clone(), tally, options.embedders.clone(), cached);
        core.engine.set_embedders(Rc::new(embedders));
        let served = core.clone();
        mesh.serve_in(Rc::new(Question::manner), Rc::new(move |from, question| served.clone().answer(from, question)));
        if runtime.core() == CONTROL_CORE {
            let indexes: SharedIndexes = Rc::new(EngineIndexes(core.engine.clone()));
            let mut config = control_config(&options);
            config.bucket = bucket(&runtime, sockets, &options);
            own_bucket = config.bucket.clone();
            if let Some(import) = import {
                take_over(&runtime, &indexes, &config.root, import).await?;
                config.imported = true;
            }
            let plane = ControlPlane::open(runtime.clone(), way, indexes, config, outgoing.clone()).await?;
            let plane = core.plane.get_or_init(|| plane);
            plane.publish(|_| {}).await;
            plane.start();
            if let Some(seconds) = options.snapshot_interval_seconds {
                schedule::start(&runtime, core.control.clone(), Duration::from_secs(seconds));
            }
        }
        core.control.opened().await;
        if runtime.core() != CONTROL_CORE {
            let (control, ended) = (core.control.clone(), mesh.ended(CONTROL_CORE));
            runtime.spawn(Queue::Search, ended.map(move |()| control.abandon()).boxed_local());
        }
        let reader = Rc::new(EngineReader(core.engine.clone()));
        let app = Self::new(runtime, core.control.clone(), options, reader, outgoing);
        let (counting, search_room) = (core.counting.clone(), core.search_room.clone());
        Ok(Rc::new(Self { counting, search_room, bucket: own_bucket, mesh: Some(server_mesh), ..app }))
    }

    /// Ends what would stay elsewhere when the server has stopped: the parts of a snapshot that is being sent. Its task begins
    /// again at the next start.
    pub async fn leave_nothing_behind(&self) {
        if let Some(bucket) = &self.bucket {
            bucket.stop().await;
        }
    }
}

/// Fills the empty database with an unpacked dump.
async fn take_over(
    runtime: &Rc<dyn Runtime>,
    indexes: &SharedIndexes,
    root: &Path,
    import: Import,
) -> Result<(), OpenError> {
    dumps::import::import(runtime, indexes, root, &import.unpacked()).await?;
    Ok(aside(&**runtime, move || import.complete()).await.map_err(dumps::import::ImportError::from)??)
}

/// What answers the other cores' questions.
struct Core {
    engine: Rc<Engine>,
    control: ControlHandle,
    /// On core 0, once it is open.
    plane: OnceCell<Rc<ControlPlane>>,
    counting: Rc<Counting>,
    search_room: SearchRoom,
}

impl Core {
    fn answer(self: Rc<Self>, from: CoreId, question: Question) -> LocalBoxFuture<'static, Answer> {
        match question {
            Question::Engine(question) => self.engine.clone().handle(from, question).map(Answer::Engine).boxed_local(),
            Question::Counts => {
                let counts = counts(&self.counting, &self.search_room);
                ready(Answer::Counts(Box::new(counts))).boxed_local()
            }
            Question::Control(question) => {
                async move { Answer::Control(self.answer_control(from, question).await) }.boxed_local()
            }
        }
    }

    async fn answer_control(&self, from: CoreId, question: ControlQuestion) -> Result<ControlAnswer, ControlError> {
        match question {
            ControlQuestion::Publish(state) => {
                self.control.publish(state);
                Ok(ControlAnswer::Published)
            }
            ControlQuestion::Settled(verdicts) => {
                self.control.settle(verdicts);
                Ok(ControlAnswer::Heard)
            }
            question => match self.plane.get() {
                Some(plane) => plane.answer(from, question).await,
                None => Err(ControlError::Unreachable),
            },
        }
    }
}

impl Question {
    /// How it is handled.
    fn manner(&self) -> Manner {
        match self {
            Self::Control(_) | Self::Counts => Queue::Search.into(),
            Self::Engine(question) => question.manner(),
        }
    }
}

/// The engine as handlers read it.
struct EngineReader(Rc<Engine>);

impl Reader for EngineReader {
    fn document(
        &self,
        view: Arc<IndexView>,
        id: String,
    ) -> LocalBoxFuture<'static, Result<Option<RawDocument>, EngineError>> {
        let engine = self.0.clone();
        async move { engine.document(&view, &id).await }.boxed_local()
    }

    fn documents(
        &self,
        view: Arc<IndexView>,
        query: DocumentsQuery,
    ) -> LocalBoxFuture<'static, Result<DocumentsPage, EngineError>> {
        let engine = self.0.clone();
        async move { engine.documents(&view, query).await }.boxed_local()
    }

    fn search(
        &self,
        view: Arc<IndexView>,
        request: SearchRequest,
    ) -> LocalBoxFuture<'static, Result<SearchAnswer, SearchError>> {
        let engine = self.0.clone();
        async move { engine.search(&view, request).await }.boxed_local()
    }

    fn facet_search(
        &self,
        view: Arc<IndexView>,
        request: FacetSearchRequest,
    ) -> LocalBoxFuture<'static, Result<Vec<(String, u64)>, SearchError>> {
        let engine = self.0.clone();
        async move { engine.facet_search(&view, request).await }.boxed_local()
    }

    fn similar(
        &self,
        view: Arc<IndexView>,
        request: SimilarRequest,
    ) -> LocalBoxFuture<'static, Result<SimilarAnswer, SearchError>> {
        let engine = self.0.clone();
        async move { engine.similar(&view, request).await }.boxed_local()
    }

    fn federated_search(
        &self,
        views: Vec<Arc<IndexView>>,
        request: FederatedRequest,
    ) -> LocalBoxFuture<'static, Result<FederatedAnswer, FederatedError>> {
        let engine = self.0.clone();
        async move { engine.federated_search(&views, &request).await }.boxed_local()
    }

    fn score_together(
        &self,
        view: Arc<IndexView>,
        shares: Shares,
        mut parts: Vec<Part>,
    ) -> LocalBoxFuture<'static, (Vec<Part>, Vec<Rescored>)> {
        let engine = self.0.clone();
        async move {
            let rescored = engine.score_together(&view, &shares, &mut parts).await;
            (parts, rescored)
        }
        .boxed_local()
    }
}

impl EngineMesh for ServerMesh {
    fn ask(&self, to: CoreId, question: engine::Question) -> LocalBoxFuture<'static, Result<engine::Answer, AskError>> {
        let asked = self.mesh.ask(to, Question::Engine(question));
        async move {
            match asked.await? {
                Answer::Engine(answer) => Ok(answer),
                Answer::Control(_) | Answer::Counts(_) => Err(AskError::Nobody { core: to }),
            }
        }
        .boxed_local()
    }
}

impl ControlMesh for ServerMesh {
    fn core_count(&self) -> u16 {
        self.core_count
    }

    fn ask(
        &self,
        to: CoreId,
        question: ControlQuestion,
    ) -> LocalBoxFuture<'static, Result<ControlAnswer, ControlError>> {
        let asked = self.mesh.ask(to, Question::Control(question));
        async move {
            match asked.await {
                Ok(Answer::Control(answer)) => answer,
                Ok(Answer::Engine(_) | Answer::Counts(_)) => Err(ControlError::Unreachable),
                Err(error) => {
                    tracing::error!(%error, core = to.0, "a request to the control plane got no answer");
                    Err(ControlError::Unreachable)
                }
            }
        }
        .boxed_local()
    }
}

impl Tally for ControlHandle {
    fn tell(&self, requests: EmbedderRequests) -> LocalBoxFuture<'static, ()> {
        let control = self.clone();
        async move {
            // Without a control plane, which an import has not, no batch is there to count them.
            if let Err(error) = control.count_requests(requests).await {
                tracing::debug!(%error, "requests to an embedding service are not counted");
            }
        }
        .boxed_local()
    }
}

fn search_room(options: &Options, runtime: &dyn Runtime) -> SearchRoom {
    SearchRoom::new(options.searches_per_core, options.search_queue_max, runtime.core_count())
}

/// What a core has counted, and how it stands.
fn counts(counting: &Counting, room: &SearchRoom) -> Counts {
    let now = room.occupancy();
    let mut counts = counting.so_far();
    (counts.searches_running, counts.searches_waiting) = (now.running, now.waiting);
    counts
}

fn engine_config(options: &Options) -> EngineConfig {
    EngineConfig {
        root: indexes_folder(&options.db_path),
        forced_partitions: options.partitions,
        split_documents: SPLIT_DOCUMENTS,
        preload_graphs: options.prefetch_graphs,
        core_memory_bytes: memory_bytes() / processor_count(),
    }
}

/// The bucket that takes the snapshots. It may lie in the server's own network: who starts the server has named it, not a client.
fn bucket(runtime: &Rc<dyn Runtime>, sockets: Rc<SystemSockets>, options: &Options) -> Option<Rc<SnapshotBucket>> {
    let client = Client::new(runtime.clone(), sockets, AddressPolicy::new(AllowedNetworks::Any));
    Some(Rc::new(SnapshotBucket::new(runtime.clone(), client, options.s3.clone()?)))
}

fn control_config(options: &Options) -> ControlConfig {
    let by_default = BATCH_PAYLOAD_BYTES.min(memory_bytes() / BATCH_MEMORY_PART);
    let payload_bytes = options.indexing_bytes_max.map_or(by_default, |bytes| bytes / 2);
    ControlConfig {
        root: options.db_path.clone(),
        master_key: options.master_key.clone(),
        webhook: options.webhook_url.as_deref().map(|url| Webhook::new(url, options.webhook_authorization.as_deref())),
        export_payload_bytes: options.payload_bytes_max.saturating_sub(1 << 20).max(EXPORT_PAYLOAD_BYTES_MIN),
        features: Features {
            metrics: options.enable_metrics,
            logs_route: options.enable_logs_route,
            contains_filter: options.enable_contains_filter,
            ..Features::default()
        },
        dump_dir: options.dump_dir.clone(),
        snapshot_dir: options.snapshot_dir.clone(),
        bucket: None,
        imported: false,
        patience: Patience {
            connect: Duration::from_secs(options.proxy_connect_seconds),
            request: Duration::from_secs(options.proxy_request_seconds),
            backoff: Duration::from_secs(options.proxy_backoff_seconds),
        },
        // Who numbers tasks from outside forgets them from outside, too.
        tasks_max: (!options.replication_parameters).then_some(TASKS_MAX),
        limits: Limits {
            tasks_max: options.batched_tasks_max.unwrap_or(usize::MAX).max(1),
            payload_bytes_max: options.batched_bytes_max.unwrap_or(payload_bytes.min(BATCH_PAYLOAD_BYTES_MAX)),
        },
    }
}

impl Host for App {
    fn keys(&self) -> Arc<KeySet> {
        self.control.state().keys.clone()
    }

    fn now(&self) -> OffsetDateTime {
        Timestamp::from_unix(self.runtime.unix_time()).date()
    }

    fn payload_bytes_max(&self) -> u64 {
        self.options.payload_bytes_max
    }

    fn stopwatch(&self) -> Option<Nanos> {
        self.control.features().metrics.then(|| self.runtime.now())
    }

    fn answered(&self, method: Method, path: Asked<'_>, status: u16, started: Option<Nanos>) {
        tracing::debug!(?method, ?path, status, "answered");
        match path {
            Asked::Route(pattern) => {
                let took = started.map(|started| self.runtime.now().since(started));
                self.counting.request(method, pattern, status, took);
            }
            Asked::Stray(path) => self.counting.stray_request(method, path, status),
        }
    }
}
