//! Vectors of documents through engines, against a twin that keeps them in a map.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{FutureExt, LocalBoxFuture};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use storage_engine::Disk;
use storage_engine::io::mem::MemDisk;
use storage_engine::io::sim::{Faults, SimDisk};

use super::harness::*;
use crate::document::RawDocument;
use crate::engine::*;
use crate::error::UserError;
use crate::facets::parse_filter_text;
use crate::fields::FieldsMap;
use crate::search::{SearchRequest, SemanticQuery, SimilarRequest};
use crate::settings::Settings;
use crate::timestamp::Timestamp;
use crate::vectors::*;

const DIMENSIONS: usize = 4;

/// Embeds the field `t`: the same text always gives the same vector, one of a wrong length when it says so.
#[derive(Default)]
struct FakeHost {
    /// Texts that were embedded.
    asked: RefCell<Vec<String>>,
}

pub(super) fn fake() -> Rc<dyn EmbedderHost> {
    Rc::new(FakeHost::default())
}

fn of_text(text: &str) -> Vec<f32> {
    let sum = |by: u32| text.bytes().fold(by, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    (0..DIMENSIONS as u32).map(|at| (sum(at + 7) % 17) as f32 - 8.0).collect()
}

fn text_of(document: &RawDocument, context: &EmbedContext) -> String {
    let field = context.fields.iter().find(|field| &*field.name == "t");
    let value = field.and_then(|field| document.get(field.id)).unwrap_or(b"null");
    String::from_utf8(value.to_vec()).unwrap()
}

impl EmbedderHost for FakeHost {
    fn prepare(&self, _: &str, embedder: &Arc<Value>) -> LocalBoxFuture<'static, Result<EmbedderFacts, UserError>> {
        let dimensions = embedder["dimensions"].as_u64().unwrap_or(DIMENSIONS as u64) as u32;
        async move { Ok(EmbedderFacts { dimensions }) }.boxed_local()
    }

    fn embed(&self, request: EmbedRequest) -> LocalBoxFuture<'static, Result<Vec<DocumentEmbedding>, UserError>> {
        let embed = |document: &EmbedDocument| {
            let text = text_of(&document.document, &request.context);
            if document.before.as_ref().is_some_and(|before| text_of(before, &request.before) == text) {
                return DocumentEmbedding::Unchanged;
            }
            self.asked.borrow_mut().push(text.clone());
            let vector = if text.contains("wrong") { vec![1.0] } else { of_text(&text) };
            DocumentEmbedding::Replace(vec![(0, vector)])
        };
        let found = request.documents.iter().map(embed).collect();
        async move { Ok(found) }.boxed_local()
    }

    fn embed_query(&self, request: QueryRequest) -> LocalBoxFuture<'static, Result<Vec<f32>, UserError>> {
        async move { Ok(of_text(&json!(request.text).to_string())) }.boxed_local()
    }
}

pub(super) fn settings(quantized: bool) -> Settings {
    let mut given = json!({"source": "userProvided", "dimensions": DIMENSIONS});
    if quantized {
        given["binaryQuantized"] = true.into();
    }
    let made = json!({"source": "rest", "documentTemplate": "{{doc.t}}"});
    Settings {
        embedders: [("given".to_owned(), given), ("made".to_owned(), made)].into(),
        filterable_attributes: vec![crate::settings::FilterableRule::Name("n".into())],
        ..Settings::default()
    }
}

/// What one document should have.
#[derive(Clone, Default, Debug, PartialEq)]
struct Twin {
    text: String,
    number: u32,
    given: Vec<Vec<f32>>,
    /// What is generated for it, unless it brought its own.
    made: Vec<Vec<f32>>,
    made_is_own: bool,
}

type Model = BTreeMap<u32, Twin>;

fn some_vector(random: &mut StdRng) -> Vec<f32> {
    (0..DIMENSIONS).map(|_| random.random_range(-4i32..=4) as f32).collect()
}

/// A batch of random changes, and what it makes of the twin.
fn some_batch(random: &mut StdRng, model: &mut Model, id_max: u32) -> Batch {
    let mut ops = Vec::new();
    for _ in 0..random.random_range(1..4) {
        if random.random_range(0..12) == 0 {
            ops.push(BatchOp::Clear);
            model.clear();
            continue;
        }
        if random.random_range(0..4) == 0 {
            let ids: Vec<u32> = (0..3).map(|_| random.random_range(0..id_max)).collect();
            ids.iter().for_each(|id| drop(model.remove(id)));
            ops.push(BatchOp::DeleteIds(ids.iter().map(u32::to_string).collect()));
            continue;
        }
        let method = if random.random() { Method::Replace } else { Method::Update };
        let (mut documents, before) = (Vec::new(), model.clone());
        for _ in 0..random.random_range(1..9) {
            let id = random.random_range(0..id_max);
            let text = format!("text {}", random.random_range(0..6));
            let number = random.random_range(0..4);
            let mut vectors = json!({});
            // Of several versions in one addition the last one is put on top of what was there before.
            let known = before.contains_key(&id);
            let twin = model.entry(id).or_default();
            *twin = before.get(&id).cloned().unwrap_or_default();
            if !known || random.random() {
                twin.given = (0..random.random_range(0..3)).map(|_| some_vector(random)).collect();
                vectors["given"] = json!(twin.given);
            }
            let same_text = twin.text == text;
            (twin.text, twin.number) = (text.clone(), number);
            match random.random_range(0..5) {
                0 => {
                    twin.made = vec![some_vector(random)];
                    twin.made_is_own = true;
                    vectors["made"] = json!(twin.made);
                }
                1 => {
                    twin.made = vec![of_text(&json!(text).to_string())];
                    twin.made_is_own = false;
                    vectors["made"] = json!({"regenerate": true});
                }
                _ if known && (twin.made_is_own || same_text) => {}
                _ => twin.made = vec![of_text(&json!(text).to_string())],
            }
            documents.push(json!({"id": id, "t": text, "n": number, "_vectors": vectors}));
        }
        ops.push(add(method, &json!(documents)));
    }
    batch(ops)
}

/// The documents of the twin as they are shown, by id.
fn shown(model: &Model) -> BTreeMap<u32, Value> {
    let show = |(id, twin): (&u32, &Twin)| {
        let vectors = json!({
            "given": {"embeddings": twin.given, "regenerate": false},
            "made": {"embeddings": twin.made, "regenerate": !twin.made_is_own},
        });
        (*id, json!({"id": id, "t": twin.text, "n": twin.number, "_vectors": vectors}))
    };
    model.iter().map(show).collect()
}

pub(super) async fn stored(bench: &Bench, view: &IndexView) -> BTreeMap<u32, Value> {
    let query = DocumentsQuery { limit: u64::MAX, vectors: true, ..DocumentsQuery::default() };
    let page = bench.engine.documents(view, query).await.unwrap();
    let document = |document| -> (u32, Value) {
        let json = json_of(document, view);
        (json["id"].as_u64().unwrap() as u32, json)
    };
    page.documents.iter().map(document).collect()
}

/// Ids with scores, as a plain comparison with all vectors orders them; equal ones by their numbers, which `order` gives.
fn expected(model: &Model, embedder: &str, query: &[f32], number: Option<u32>, order: &[u32]) -> Vec<(u32, f32)> {
    let similarity = |vector: &Vec<f32>| -> f32 {
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        let norms = dot(query, query).sqrt() * dot(vector, vector).sqrt();
        if norms <= f32::EPSILON { 1.0 } else { 1.0 - (1.0 - (dot(query, vector) / norms).clamp(-1.0, 1.0)) / 2.0 }
    };
    let mut found: Vec<(u32, f32)> = Vec::new();
    for id in order {
        let twin = &model[id];
        if number.is_some_and(|number| number != twin.number) {
            continue;
        }
        let vectors = if embedder == "given" { &twin.given } else { &twin.made };
        found.push((*id, vectors.iter().map(similarity).fold(-1.0, f32::max)));
    }
    found.sort_by(|a, b| b.1.total_cmp(&a.1));
    found
}

async fn by_meaning(
    bench: &Bench,
    view: &IndexView,
    embedder: &str,
    query: &[f32],
    filter: Option<u32>,
) -> Vec<(u32, f32)> {
    let filter = filter.map(|number| parse_filter_text(&format!("n = {number}"), "invalid_search_filter"));
    let semantic = SemanticQuery { embedder: embedder.into(), ratio: 1.0, vector: Some(query.into()), media: None };
    let request = SearchRequest {
        filter: filter.transpose().unwrap().flatten(),
        page: crate::search::PageRequest::Window { offset: 0, limit: 100 },
        semantic: Some(semantic),
        show_ranking_score: true,
        ..SearchRequest::default()
    };
    let answer = bench.engine.search(view, request).await.unwrap();
    assert_eq!(answer.semantic_hits, Some(answer.hit_count as u64));
    let hits: Vec<Value> = serde_json::from_slice(&answer.hits).unwrap();
    hits.iter().map(|hit| (hit["id"].as_u64().unwrap() as u32, hit["_rankingScore"].as_f64().unwrap() as f32)).collect()
}

async fn check(bench: &Bench, view: &IndexView, model: &Model, random: &mut StdRng) {
    let found = stored(bench, view).await;
    assert_eq!(found, shown(model));
    let made = model.values().map(|twin| (twin.given.len() + twin.made.len()) as u64).sum();
    let with = model.values().filter(|twin| !twin.given.is_empty() || !twin.made.is_empty()).count() as u64;
    assert_eq!((view.vectors.embeddings, view.vectors.documents), (made, with));
    let order: Vec<u32> = bench.documents(view).await.iter().map(|hit| hit["id"].as_u64().unwrap() as u32).collect();
    for embedder in ["given", "made"] {
        let query = some_vector(random);
        for filter in [None, Some(1)] {
            let found = by_meaning(bench, view, embedder, &query, filter).await;
            let wanted = expected(model, embedder, &query, filter, &order);
            assert_eq!(found.len(), wanted.len(), "{embedder}");
            for (at, ((_, score), (_, best))) in found.iter().zip(&wanted).enumerate() {
                assert!((score - best.max(0.0)).abs() < 1e-5, "{embedder} {at}: {found:?} {wanted:?}");
            }
        }
    }
}

fn run_model(cores: u16, config: EngineConfig, seed: u64) -> BTreeMap<u32, Value> {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    let reopened = config.clone();
    let model = run(&disk, seed, cores, config, move |bench| async move {
        bench.set_embedders(&fake());
        let mut random = StdRng::seed_from_u64(seed);
        let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
        let first = Batch { settings: Some(Arc::new(settings(false))), ..batch(Vec::new()) };
        let (mut view, _) = bench.batch(&view, first).await;
        let mut model = Model::new();
        for _ in 0..12 {
            let next = some_batch(&mut random, &mut model, 40);
            let (after, outcomes) = bench.batch(&view, next).await;
            assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
            view = after;
            check(&bench, &view, &model, &mut random).await;
        }
        model
    });
    run(&disk, seed, cores, reopened, move |bench| async move {
        let (view, _) = bench.engine.open_index(INDEX).await.unwrap();
        check(&bench, &view, &model, &mut StdRng::seed_from_u64(seed)).await;
        stored(&bench, &view).await
    })
}

/// Whatever is added, changed and deleted, vectors and searches are those of the twin, with any number of partitions, also
/// while an index is spread, and after a start.
#[test]
fn vectors_follow_their_documents() {
    for seed in 1..4 {
        let whole = run_model(1, config(Some(1), 0), seed);
        assert_eq!(run_model(2, config(Some(2), 0), seed), whole);
        assert_eq!(run_model(3, config(Some(5), 0), seed), whole);
        assert_eq!(run_model(2, config(None, 12), seed), whole);
    }
}

/// Embedders come and go: vectors that came with documents are in these meanwhile.
#[test]
fn embedders_take_vectors_from_documents_and_give_them_back() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    run(&disk, 1, 2, config(Some(2), 0), |bench| async move {
        let host = Rc::new(FakeHost::default());
        let shared: Rc<dyn EmbedderHost> = host.clone();
        bench.set_embedders(&shared);
        let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
        let documents = json!([
            {"id": 1, "t": "a", "_vectors": {"given": [1, 2, 3, 4]}},
            {"id": 2, "t": "b", "_vectors": {"given": null, "other": [9]}},
            {"id": 3, "t": "a", "_vectors": {"given": {"embeddings": [[0, 0, 0, 1], [1, 1, 1, 1]], "regenerate": false}}},
        ]);
        let (view, _) = bench.batch(&view, batch(vec![add(Method::Replace, &documents)])).await;
        let change = |settings| Batch { settings: Some(Arc::new(settings)), ..batch(Vec::new()) };
        let (view, _) = bench.batch(&view, change(settings(false))).await;
        assert_eq!((view.vectors.embeddings, view.vectors.documents), (6, 3));
        assert_eq!(*host.asked.borrow(), ["\"a\"", "\"b\"", "\"a\""]);
        let found = stored(&bench, &view).await;
        assert_eq!(found[&1]["_vectors"]["given"], json!({"embeddings": [[1.0, 2.0, 3.0, 4.0]], "regenerate": false}));
        assert_eq!(found[&2]["_vectors"]["given"], json!({"embeddings": [], "regenerate": false}));
        assert_eq!(found[&2]["_vectors"]["other"], json!([9]));
        // Signs alone are kept from now on.
        let (view, _) = bench.batch(&view, change(settings(true))).await;
        assert_eq!(stored(&bench, &view).await[&3]["_vectors"]["given"]["embeddings"][0], json!([0.0, 0.0, 0.0, 1.0]));
        let (view, _) = bench.batch(&view, change(Settings::default())).await;
        assert_eq!(view.vectors.embeddings, 0);
        let found = stored(&bench, &view).await;
        assert_eq!(
            found[&1]["_vectors"],
            json!({"given": {"embeddings": [[1.0, 1.0, 1.0, 1.0]], "regenerate": false}})
        );
        assert_eq!(found[&2]["_vectors"]["given"], json!({"embeddings": [], "regenerate": false}));
        // A document without vectors keeps such an embedder away, and the attempt leaves nothing behind.
        let (view, _) = bench.batch(&view, batch(vec![add(Method::Replace, &json!([{"id": 4, "t": "c"}]))])).await;
        let refused = bench.engine.prepare(&view, change(settings(false))).await.map(drop);
        assert!(matches!(refused, Err(EngineError::User(error)) if error.code == "vector_embedding_error"));
        let (view, _) = bench.batch(&view, batch(vec![BatchOp::DeleteIds(["4"].iter().collect())])).await;
        let (view, _) = bench.batch(&view, change(settings(false))).await;
        assert_eq!(view.vectors.embeddings, 6);
    });
}

/// Signs are kept in files of their own. Where no vector was left to come into these, the next start once looked for the old ones.
#[test]
fn signs_of_no_vectors_are_found_again() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    run(&disk, 1, 2, config(Some(2), 0), |bench| async move {
        bench.set_embedders(&fake());
        let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
        let change = |settings| Batch { settings: Some(Arc::new(settings)), ..batch(Vec::new()) };
        let (view, _) = bench.batch(&view, change(settings(false))).await;
        let documents = json!([
            {"id": 1, "t": "a", "_vectors": {"given": [1, 2, 3, 4]}},
            {"id": 2, "t": "b", "_vectors": {"given": null}},
        ]);
        let (view, _) = bench.batch(&view, batch(vec![add(Method::Replace, &documents)])).await;
        let (view, _) = bench.batch(&view, batch(vec![BatchOp::DeleteIds(["1"].iter().collect())])).await;
        bench.batch(&view, change(settings(true))).await;
    });
    run(&disk, 2, 2, config(Some(2), 0), |bench| async move {
        bench.set_embedders(&fake());
        let (view, _) = bench.engine.open_index(INDEX).await.unwrap();
        let documents = json!([{"id": 3, "t": "c", "_vectors": {"given": [1, -2, 3, 4]}}]);
        let (view, _) = bench.batch(&view, batch(vec![add(Method::Replace, &documents)])).await;
        assert_eq!(stored(&bench, &view).await[&3]["_vectors"]["given"]["embeddings"], json!([[1.0, 0.0, 1.0, 1.0]]));
    });
}

/// A power cut anywhere in a batch: what was committed is there, documents with their vectors, and nothing else is.
#[test]
fn a_power_cut_never_parts_documents_from_their_vectors() {
    let mut cut = 0;
    loop {
        let disk = SimDisk::new();
        let shared: Rc<dyn Disk> = Rc::new(disk.clone());
        let faulty = disk.clone();
        let (before, after, committed) = run(&shared, 3, 1, config(Some(2), 0), move |bench| async move {
            bench.set_embedders(&fake());
            let mut random = StdRng::seed_from_u64(11);
            let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
            let first = Batch { settings: Some(Arc::new(settings(false))), ..batch(Vec::new()) };
            let (mut view, _) = bench.batch(&view, first).await;
            let mut model = Model::new();
            for _ in 0..3 {
                let next = some_batch(&mut random, &mut model, 30);
                (view, _) = bench.batch(&view, next).await;
            }
            let before = model.clone();
            let next = some_batch(&mut random, &mut model, 30);
            faulty.set_faults(Faults { cut_before: Some(cut), ..Faults::default() });
            let committed = match bench.engine.prepare(&view, next).await {
                Ok(prepared) => bench.engine.commit(prepared, Vec::new()).await.is_ok(),
                Err(_) => false,
            };
            (before, model, committed)
        });
        for seed in 0..3 {
            let left: Rc<dyn Disk> = Rc::new(disk.after_power_cut(seed));
            let (before, after) = (before.clone(), after.clone());
            run(&left, 4, 1, config(Some(2), 0), move |bench| async move {
                bench.set_embedders(&fake());
                let (view, _) = bench.engine.open_index(INDEX).await.unwrap();
                let found = stored(&bench, &view).await;
                let is_after = found == shown(&after);
                assert!(is_after || !committed, "cut {cut}: a commit was lost");
                let model = if is_after { after } else { before };
                check(&bench, &view, &model, &mut StdRng::seed_from_u64(1)).await;
                let mut model = model;
                let next = some_batch(&mut StdRng::seed_from_u64(5), &mut model, 30);
                let (view, _) = bench.batch(&view, next).await;
                check(&bench, &view, &model, &mut StdRng::seed_from_u64(2)).await;
            });
        }
        if committed {
            assert!(cut > 10, "the cuts came in the middle");
            break;
        }
        // Every fourth is enough to meet each kind of step.
        cut += 4;
    }
}

/// Hybrid answers, similar documents and the filter by vectors do not show how an index is spread.
#[test]
fn answers_do_not_depend_on_partitions() {
    let answers = |cores: u16, partitions: u16| {
        let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
        run(&disk, 9, cores, config(Some(partitions), 0), |bench| async move {
            bench.set_embedders(&fake());
            let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
            let first = Batch { settings: Some(Arc::new(settings(true))), ..batch(Vec::new()) };
            let (view, _) = bench.batch(&view, first).await;
            let mut random = StdRng::seed_from_u64(4);
            let documents: Vec<Value> = (0..60)
                .map(|id| {
                    let given = if id % 7 == 0 { json!(null) } else { json!(some_vector(&mut random)) };
                    json!({"id": id, "t": format!("word{} common", id % 9), "n": id % 4, "_vectors": {"given": given}})
                })
                .collect();
            let (view, outcomes) = bench.batch(&view, batch(vec![add(Method::Replace, &json!(documents))])).await;
            assert_eq!(outcomes, [Ok(OpOutcome { documents: 60, named: 60 })]);
            let mut found: Vec<(u64, Value)> = Vec::new();
            for (query, ratio, distinct) in
                [("word3", 0.5, None), ("common", 0.9, None), ("word3 common", 0.6, Some("n")), ("", 1.0, Some("n"))]
            {
                let vector = (ratio > 0.55).then(|| some_vector(&mut random).into());
                let text = if query.is_empty() { None } else { Some(query.to_owned()) };
                let vector = if text.is_none() { Some([1.0, -1.0, 1.0, 1.0].into()) } else { vector };
                let request = SearchRequest {
                    query: text,
                    distinct: distinct.map(str::to_owned),
                    semantic: Some(SemanticQuery { embedder: "given".into(), ratio, vector, media: None }),
                    show_ranking_score_details: true,
                    ..SearchRequest::default()
                };
                let answer = bench.engine.search(&view, request).await.unwrap();
                found.push((answer.total, serde_json::from_slice(&answer.hits).unwrap()));
                found.push((answer.semantic_hits.unwrap(), Value::Null));
            }
            let filter = parse_filter_text("_vectors.given.userProvided EXISTS AND n = 1", "invalid_search_filter");
            let request = SearchRequest { filter: filter.unwrap(), ..SearchRequest::default() };
            let answer = bench.engine.search(&view, request).await.unwrap();
            found.push((answer.total, serde_json::from_slice(&answer.hits).unwrap()));
            let request = SimilarRequest {
                id: "5".into(),
                embedder: "made".into(),
                offset: 1,
                limit: 9,
                filter: None,
                attributes_to_retrieve: None,
                retrieve_vectors: true,
                show_ranking_score: true,
                show_ranking_score_details: false,
                ranking_score_threshold: None,
            };
            let answer = bench.engine.similar(&view, request).await.unwrap();
            found.push((answer.total, serde_json::from_slice(&answer.hits).unwrap()));
            found
        })
    };
    let whole = answers(1, 1);
    assert_eq!(whole.last().map(|(total, hits)| (*total, hits.as_array().map(Vec::len))), Some((59, Some(9))));
    assert_eq!(answers(2, 2), whole);
    assert_eq!(answers(3, 5), whole);
}

/// Names are looked up once for each index, so a document that never had `_vectors` shows them all the same.
#[test]
fn the_field_of_vectors_is_known_with_the_first_embedder() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    run(&disk, 1, 1, config(None, 10), |bench| async move {
        bench.set_embedders(&fake());
        let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
        let mut only_made = settings(false);
        only_made.embedders.remove("given");
        let first = Batch { settings: Some(Arc::new(only_made)), ..batch(Vec::new()) };
        let (view, _) = bench.batch(&view, first).await;
        assert_eq!(FieldsMap::len(&view.fields), 1);
        let (view, _) = bench.batch(&view, batch(vec![add(Method::Replace, &json!([{"id": 1, "t": "x"}]))])).await;
        assert_eq!(stored(&bench, &view).await[&1]["_vectors"]["made"]["regenerate"], json!(true));
    });
}
