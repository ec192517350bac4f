//! Engines on simulated cores over one disk.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use serde_json::Value;
use storage_engine::Disk;
use uuid::Uuid;

use crate::engine::messages::Place;
use crate::engine::*;
use crate::ids::{CoreId, FieldId, LocalDocId, PartitionNo};
use crate::mesh::Mesh;
use crate::partition::reader::PartitionReader;
use crate::query::TermSource;
use crate::runtime::{Nanos, Runtime, SimCluster, SimConfig, SimEnd};
use crate::timestamp::Timestamp;
use crate::vectors::EmbedderHost;

/// Steps of a simulated run; more means that something runs for ever.
const STEPS_MAX: u64 = 200_000_000;

struct SimMesh(Mesh<Question, Answer>);

impl EngineMesh for SimMesh {
    fn ask(&self, to: CoreId, question: Question) -> LocalBoxFuture<'static, Result<Answer, AskError>> {
        self.0.ask(to, question)
    }
}

type Engines = Rc<RefCell<BTreeMap<CoreId, Rc<Engine>>>>;

/// Ends the other cores when the test ends, also by a panic.
struct Done(Rc<Cell<bool>>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

/// What a test runs with, on core 0.
#[derive(Clone)]
pub struct Bench {
    pub engine: Rc<Engine>,
    engines: Engines,
}

pub const INDEX: Uuid = Uuid::from_u128(7 << 100 | 5);

/// Runs a test on core 0 of simulated cores and returns what it returns.
pub fn run<T: 'static, Fut: Future<Output = T> + 'static>(
    disk: &Rc<dyn Disk>,
    seed: u64,
    cores: u16,
    config: EngineConfig,
    test: impl FnOnce(Bench) -> Fut + 'static,
) -> T {
    let engines = Engines::default();
    let result: Rc<RefCell<Option<T>>> = Rc::default();
    let done = Rc::new(Cell::new(false));
    let test = Rc::new(Cell::new(Some(test)));
    let for_cores = disk.clone();
    let sim = SimConfig::new(seed, cores, Rc::new(move |_| for_cores.clone()));
    let (kept, outcome) = (engines.clone(), result.clone());
    let cluster = SimCluster::new(&sim, move |runtime: Rc<dyn Runtime>, mesh: Mesh<Question, Answer>| {
        let engine = Engine::new(runtime.clone(), Rc::new(SimMesh(mesh.clone())), config.clone());
        kept.borrow_mut().insert(runtime.core(), engine.clone());
        let handler = engine.clone();
        mesh.serve_in(Rc::new(Question::manner), Rc::new(move |from, question| handler.clone().handle(from, question)));
        let (done, test, outcome) = (done.clone(), test.clone(), outcome.clone());
        let bench = Bench { engine, engines: kept.clone() };
        async move {
            if runtime.core() == CoreId(0) {
                let _done = Done(done.clone());
                let test = test.take().expect("the test runs once");
                while bench.engines.borrow().len() < usize::from(cores) {
                    runtime.sleep(std::time::Duration::from_millis(1)).await;
                }
                let result = test(bench).await;
                *outcome.borrow_mut() = Some(result);
            }
            while !done.get() {
                runtime.sleep(std::time::Duration::from_millis(1)).await;
            }
        }
    });
    let end = cluster.run(STEPS_MAX, Nanos(u64::MAX));
    assert_eq!(end, SimEnd::Finished(Vec::new()), "seed {seed}");
    drop(cluster);
    engines.borrow_mut().clear();
    result.take().expect("the test ended")
}

pub fn config(forced_partitions: Option<u16>, split_documents: u32) -> EngineConfig {
    let root = PathBuf::from("/indexes");
    EngineConfig { root, forced_partitions, split_documents, preload_graphs: true, core_memory_bytes: 1 << 30 }
}

impl Bench {
    /// Names who embeds texts, on all cores.
    pub fn set_embedders(&self, host: &Rc<dyn EmbedderHost>) {
        self.engines.borrow().values().for_each(|engine| engine.set_embedders(host.clone()));
    }

    /// Prepares and commits.
    pub async fn batch(&self, view: &IndexView, batch: Batch) -> (IndexView, Vec<Result<OpOutcome, &'static str>>) {
        let prepared = self.engine.prepare(view, batch).await.unwrap();
        let outcomes = prepared.outcomes.iter().map(|outcome| outcome.clone().map_err(|error| error.code)).collect();
        (self.engine.commit(prepared, Vec::new()).await.unwrap(), outcomes)
    }

    /// All documents in order.
    pub async fn documents(&self, view: &IndexView) -> Vec<Value> {
        let query = DocumentsQuery { limit: u64::MAX, ..DocumentsQuery::default() };
        let page = self.engine.documents(view, query).await.unwrap();
        assert_eq!(page.total, page.documents.len() as u64);
        let mut after = None;
        for part in page.documents.chunks(3) {
            let query = DocumentsQuery { after, limit: 3, ..DocumentsQuery::default() };
            let found = self.engine.documents(view, query).await.unwrap();
            assert_eq!(found.total, page.total);
            assert!(found.documents.iter().map(|one| one.doc).eq(part.iter().map(|one| one.doc)), "after {after:?}");
            after = part.last().map(|last| last.doc);
        }
        page.documents.iter().map(|document| json_of(document, view)).collect()
    }

    pub fn reader(&self, view: &IndexView, partition: PartitionNo) -> Rc<PartitionReader> {
        let place = Place { index: view.id, layout: view.layout, partition };
        let owner = self.engine.owner(view.id, partition);
        self.engines.borrow()[&owner].reader(place, view.epoch).unwrap()
    }

    /// The inverted index of all partitions: term to document number to places.
    pub fn postings(&self, view: &IndexView) -> BTreeMap<String, BTreeMap<u32, Vec<(FieldId, u16)>>> {
        let mut all: BTreeMap<String, BTreeMap<u32, Vec<(FieldId, u16)>>> = BTreeMap::new();
        for (partition, _) in view.owners() {
            let reader = self.reader(view, partition);
            reader.dictionary().for_each(|term, _| {
                let docs = reader.postings(term).unwrap();
                assert_eq!(u64::from(reader.doc_count(term).unwrap()), docs.len(), "count of {term}");
                let of_term = all.entry(term.to_owned()).or_default();
                let (docs, mut places): (Vec<u32>, _) = (docs.iter().collect(), Vec::new());
                reader.packed(term, &docs, &mut places);
                assert_eq!(reader.fault_since(0), None);
                let mut seen = 0;
                for of_doc in places.chunk_by(|a, b| a >> 32 == b >> 32) {
                    seen += 1;
                    let place = |packed: &u64| (FieldId((packed >> 16) as u16), *packed as u16);
                    let doc = reader.global(LocalDocId((of_doc[0] >> 32) as u32));
                    of_term.insert(doc.0, of_doc.iter().map(place).collect());
                }
                assert_eq!(seen, docs.len(), "occurrences of {term}");
                true
            });
        }
        all
    }
}

pub fn json_of(document: &RawDocument, view: &IndexView) -> Value {
    let mut text = Vec::new();
    document.write_json(&view.fields, &mut text);
    serde_json::from_slice(&text).unwrap()
}

pub fn add(method: Method, documents: &Value) -> BatchOp {
    BatchOp::Add {
        payload: Arc::new(documents.to_string().into_bytes()),
        format: PayloadFormat::Json,
        method,
        primary_key: None,
        skip_creation: false,
    }
}

pub fn batch(ops: Vec<BatchOp>) -> Batch {
    Batch { ops, updated_at: Some(Timestamp(1)), ..Batch::default() }
}
