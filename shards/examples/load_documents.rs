//! Loads a file of documents into a fresh index and says how long each step took and what it takes on disk:
//! `cargo run --release -p shards --example load_documents -- documents.ndjson [cores]`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::LocalBoxFuture;
use shards::document::{PayloadFormat, check};
use shards::engine::{
    Answer, AskError, Batch, BatchOp, Engine, EngineConfig, EngineError, EngineMesh, IndexView, Method, Question,
};
use shards::ids::CoreId;
use shards::mesh::Mesh;
use shards::runtime::{CoresConfig, Queue, Runtime, run_cores};
use shards::settings::{FilterableRule, Settings};
use shards::timestamp::Timestamp;
use storage_engine::io::system::SystemDisk;
use uuid::Uuid;

/// One-document batches measured.
const SMALL_BATCHES: u32 = 200;

struct Asker(Mesh<Question, Answer>);

impl EngineMesh for Asker {
    fn ask(&self, to: CoreId, question: Question) -> LocalBoxFuture<'static, Result<Answer, AskError>> {
        self.0.ask(to, question)
    }
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let Some(file) = args.next() else {
        eprintln!("usage: load_documents documents.ndjson [cores]");
        return ExitCode::FAILURE;
    };
    let cores = args.next().and_then(|cores| cores.parse().ok());
    let root = std::env::temp_dir().join(format!("load-documents-{}", std::process::id()));
    let config = CoresConfig { cores, ..CoresConfig::new(Arc::new(|_| Rc::new(SystemDisk::default()))) };
    let folder = root.clone();
    let started = run_cores(config, move |runtime, mesh| core(runtime, mesh, file.clone().into(), folder.clone()));
    match started {
        Ok(handle) => drop(handle.join()),
        Err(error) => eprintln!("{error}"),
    }
    ExitCode::SUCCESS
}

async fn core(runtime: Rc<dyn Runtime>, mesh: Mesh<Question, Answer>, file: PathBuf, root: PathBuf) {
    let config = EngineConfig {
        root: root.clone(),
        forced_partitions: None,
        split_documents: 10_000,
        preload_graphs: false,
        core_memory_bytes: 1 << 30,
    };
    let engine = Engine::new(runtime.clone(), Rc::new(Asker(mesh.clone())), config);
    let handler = engine.clone();
    mesh.serve_in(
        Rc::new(Question::manner),
        Rc::new(move |from, question| {
            let engine = handler.clone();
            Box::pin(async move { engine.handle(from, question).await })
        }),
    );
    if runtime.core() != CoreId(0) {
        // Core 0 ends the process.
        return std::future::pending().await;
    }
    let (done, wait) = futures_util::future::abortable(std::future::pending::<()>());
    let task_runtime = runtime.clone();
    runtime.spawn(
        Queue::Indexing,
        Box::pin(async move {
            if let Err(error) = measure(&*task_runtime, &engine, &file).await {
                eprintln!("{error}");
            }
            // Nothing else uses this folder, and the process ends with it.
            let _ = task_runtime.disk().remove_dir_all(&root).await;
            wait.abort();
            std::process::exit(0);
        }),
    );
    let _ = done.await;
}

async fn measure(runtime: &dyn Runtime, engine: &Rc<Engine>, file: &std::path::Path) -> Result<(), EngineError> {
    let disk = runtime.disk();
    let opened = disk.open(file, storage_engine::OpenMode::Existing).await?;
    let payload = Arc::new(opened.read_at(0, opened.len() as usize).await?);
    let bytes = payload.len() as f64;
    let start = Instant::now();
    let documents = check(PayloadFormat::Ndjson, &payload).map_err(|error| EngineError::User(error.into()))?;
    println!("checked   {documents} documents, {:.1} MB, in {:?}", bytes / 1e6, start.elapsed());
    let id = Uuid::from_u128(1 << 100);
    let view = engine.create_index(id, Timestamp(0)).await?;
    let view = settings(engine, &view).await?;
    let start = Instant::now();
    let prepared = engine.prepare(&view, batch(payload)).await?;
    let between = Instant::now();
    let view = engine.commit(prepared, Vec::new()).await?;
    println!(
        "prepared  in {:?}, committed in {:?}, {} partitions",
        between - start,
        between.elapsed(),
        view.partition_count()
    );
    println!(
        "on disk   {:.1} MB, {:.2} times the JSON",
        view.store_bytes.file as f64 / 1e6,
        view.store_bytes.file as f64 / bytes
    );
    let view = small_batches(engine, view).await?;
    let start = Instant::now();
    let (view, _) = engine.open_index(view.id).await?;
    println!("reopened  {} documents in {:?}", view.documents, start.elapsed());
    Ok(())
}

async fn settings(engine: &Rc<Engine>, view: &IndexView) -> Result<IndexView, EngineError> {
    let name = |name: &str| FilterableRule::Name(name.to_owned());
    let settings = Settings {
        searchable_attributes: ["words", "definition", "examples"].map(str::to_owned).to_vec(),
        filterable_attributes: ["pos", "category", "relations", "senses"].map(name).to_vec(),
        ..Settings::default()
    };
    let prepared = engine.prepare(view, Batch { settings: Some(Arc::new(settings)), ..Batch::default() }).await?;
    engine.commit(prepared, Vec::new()).await
}

async fn small_batches(engine: &Rc<Engine>, mut view: IndexView) -> Result<IndexView, EngineError> {
    let mut times = Vec::new();
    for number in 0..SMALL_BATCHES {
        let document = format!(
            r#"{{"id":"new{number}","words":["fresh {number}"],"definition":"one more document","pos":"noun"}}"#
        );
        let start = Instant::now();
        let prepared = engine.prepare(&view, batch(Arc::new(document.into_bytes()))).await?;
        view = engine.commit(prepared, Vec::new()).await?;
        times.push(start.elapsed());
    }
    times.sort();
    println!("one document: median {:?}, worst {:?}", times[times.len() / 2], times[times.len() - 1]);
    Ok(view)
}

fn batch(payload: Arc<Vec<u8>>) -> Batch {
    let op = BatchOp::Add {
        payload,
        format: PayloadFormat::Ndjson,
        method: Method::Replace,
        primary_key: Some("id".into()),
        skip_creation: false,
    };
    Batch { ops: vec![op], ..Batch::default() }
}
