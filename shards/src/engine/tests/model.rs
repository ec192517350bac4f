//! Random batches against a model that is a map.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Map, Value, json};
use storage_engine::Disk;
use storage_engine::io::mem::MemDisk;

use super::harness::*;
use crate::engine::*;
use crate::ids::FieldId;
use crate::settings::{FilterableRule, Settings};
use crate::timestamp::Timestamp;

const WORDS: [&str; 12] = ["ant", "bee", "cat", "cod", "dog", "eel", "elk", "fox", "gnu", "hen", "jay", "owl"];

/// What an index should hold.
#[derive(Default, Clone)]
struct Model {
    numbers: BTreeMap<String, u32>,
    /// Of documents that were there before or in the current batch: they keep their numbers to its end.
    kept_numbers: BTreeMap<String, u32>,
    documents: BTreeMap<u32, Map<String, Value>>,
    settings: Settings,
}

impl Model {
    fn number(&mut self, id: &str) -> u32 {
        if let Some(number) = self.numbers.get(id) {
            return *number;
        }
        let kept = self.kept_numbers.get(id).copied();
        let taken: BTreeSet<u32> = self.kept_numbers.values().copied().collect();
        let number = kept.unwrap_or_else(|| (0..).find(|number| !taken.contains(number)).unwrap());
        self.numbers.insert(id.to_owned(), number);
        self.kept_numbers.insert(id.to_owned(), number);
        number
    }

    fn add(&mut self, documents: &[Map<String, Value>], method: Method, skip: bool) {
        for document in documents {
            let id = document["id"].as_str().map_or_else(|| document["id"].to_string(), str::to_owned);
            if skip && !self.numbers.contains_key(&id) {
                continue;
            }
            let number = self.number(&id);
            let stored = self.documents.entry(number).or_default();
            if method == Method::Replace {
                stored.clear();
            }
            stored.extend(document.clone());
        }
    }

    fn delete(&mut self, id: &str) -> bool {
        let Some(number) = self.numbers.remove(id) else { return false };
        self.documents.remove(&number).is_some()
    }

    fn clear(&mut self) -> u64 {
        self.numbers.clear();
        self.kept_numbers.clear();
        std::mem::take(&mut self.documents).len() as u64
    }

    fn distribution(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for name in self.documents.values().flat_map(Map::keys) {
            *counts.entry(name.clone()).or_default() += 1;
        }
        counts
    }

    /// Where each word stands, by the rules of positions.
    fn postings(&self, view: &IndexView) -> BTreeMap<String, BTreeMap<u32, Vec<(FieldId, u16)>>> {
        let mut all: BTreeMap<String, BTreeMap<u32, Vec<(FieldId, u16)>>> = BTreeMap::new();
        for (number, document) in &self.documents {
            // The index reads top-level fields in its own order of names.
            let mut fields: Vec<(FieldId, &Value)> =
                document.iter().map(|(name, value)| (view.fields.id(name).unwrap(), value)).collect();
            fields.sort_by_key(|(field, _)| *field);
            let mut next = BTreeMap::new();
            for (field, value) in fields {
                self.words(view, field, value, &mut next, &mut |word, field, position| {
                    all.entry(word).or_default().entry(*number).or_default().push((field, position));
                });
            }
        }
        for places in all.values_mut().flat_map(BTreeMap::values_mut) {
            places.sort_unstable();
        }
        all
    }

    fn words(
        &self,
        view: &IndexView,
        field: FieldId,
        value: &Value,
        next: &mut BTreeMap<FieldId, u16>,
        found: &mut impl FnMut(String, FieldId, u16),
    ) {
        let name = view.fields.name(field).unwrap();
        let text = match value {
            Value::Array(items) => return items.iter().for_each(|item| self.words(view, field, item, next, found)),
            Value::Object(members) => {
                for (key, value) in members {
                    let child = view.fields.id(&format!("{name}.{key}")).unwrap();
                    self.words(view, child, value, next, found);
                }
                return;
            }
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        if self.settings.searchable_weight(name).is_none() {
            return;
        }
        let start = next.get(&field).copied().unwrap_or(0);
        let mut position = start;
        let mut last = start;
        let mut last_found = start;
        for (at, sentence) in text.split(". ").enumerate() {
            if at > 0 {
                position = last + 8;
            }
            for word in sentence.split_whitespace() {
                if !self.settings.stop_words.contains(word) {
                    found(word.to_owned(), field, position);
                    last_found = position;
                }
                last = position;
                position += 1;
            }
        }
        next.insert(field, last_found + 8);
    }
}

fn document(random: &mut StdRng) -> Map<String, Value> {
    let text = |random: &mut StdRng| {
        let words = (0..random.random_range(1..6)).map(|_| *WORDS.choose(random).unwrap());
        words.collect::<Vec<_>>().join(if random.random_bool(0.3) { ". " } else { " " })
    };
    let mut fields = Map::new();
    let id = random.random_range(0..40u32);
    fields.insert("id".into(), if random.random_bool(0.5) { json!(id) } else { json!(id.to_string()) });
    for name in ["a", "b", "c"] {
        let value = match random.random_range(0..6) {
            0 => continue,
            1 => json!([text(random), null, text(random)]),
            2 => json!({"x": text(random), "y": [{"z": text(random)}, {"z": random.random_range(0..50)}]}),
            3 => json!(random.random_bool(0.5)),
            _ => json!(text(random)),
        };
        fields.insert(name.into(), value);
    }
    fields
}

fn documents(random: &mut StdRng) -> Vec<Map<String, Value>> {
    (0..random.random_range(1..12)).map(|_| document(random)).collect()
}

/// One operation for the engine and what it does to the model.
fn operation(random: &mut StdRng, model: &mut Model) -> (BatchOp, Result<u64, &'static str>) {
    match random.random_range(0..20) {
        0 => (BatchOp::Clear, Ok(model.clear())),
        1..4 => {
            let ids: Vec<String> = (0..6).map(|_| random.random_range(0..45u32).to_string()).collect();
            let deleted = ids.iter().filter(|id| model.delete(id)).count() as u64;
            (BatchOp::DeleteIds(ids.iter().collect()), Ok(deleted))
        }
        4 => {
            let mut documents = documents(random);
            documents.push(json!({"id": 1.5, "new": {"name": 1}}).as_object().unwrap().clone());
            (add(Method::Replace, &json!(documents)), Err("invalid_document_id"))
        }
        kind => {
            let method = if kind % 2 == 0 { Method::Replace } else { Method::Update };
            let skip_creation = kind == 19;
            let documents = documents(random);
            let ids: BTreeSet<String> =
                documents.iter().map(|d| d["id"].as_str().map_or_else(|| d["id"].to_string(), str::to_owned)).collect();
            model.add(&documents, method, skip_creation);
            let mut op = add(method, &json!(documents));
            if let BatchOp::Add { skip_creation: skip, .. } = &mut op {
                *skip = skip_creation;
            }
            (op, Ok(ids.len() as u64))
        }
    }
}

fn new_settings(random: &mut StdRng) -> Settings {
    let searchable = [vec!["*"], vec!["a", "b.x"], vec!["b", "a"], vec!["a", "b"]];
    Settings {
        searchable_attributes: searchable.choose(random).unwrap().iter().map(|name| (*name).to_owned()).collect(),
        stop_words: WORDS.choose_multiple(random, 2).map(|word| (*word).to_owned()).collect(),
        filterable_attributes: if random.random_bool(0.5) {
            vec![FilterableRule::Name("a".into())]
        } else {
            Vec::new()
        },
        ..Settings::default()
    }
}

async fn check(bench: &Bench, view: &IndexView, model: &Model, context: &str) {
    let expected: Vec<Value> = model.documents.values().cloned().map(Value::Object).collect();
    assert_eq!(bench.documents(view).await, expected, "{context}");
    assert_eq!(view.documents, expected.len() as u64, "{context}");
    let mut scan = DocumentScan::new(Arc::new(view.clone()));
    let mut scanned = Vec::new();
    loop {
        let documents = bench.engine.scan(&mut scan).await.unwrap();
        if documents.is_empty() {
            break;
        }
        scanned.extend(documents.into_iter().map(|document| document.doc.0));
    }
    assert_eq!(scanned, model.documents.keys().copied().collect::<Vec<_>>(), "{context}");
    assert_eq!(*view.field_distribution, model.distribution(), "{context}");
    assert_eq!(bench.postings(view), model.postings(view), "{context}");
    for (id, number) in &model.numbers {
        let found = bench.engine.document(view, id).await.unwrap().unwrap();
        assert_eq!(found.doc.0, *number, "{context}");
    }
    if view.settings.filterable("a").is_some() {
        let query = DocumentsQuery { filter: Some(json!("a EXISTS")), limit: 0, ..DocumentsQuery::default() };
        let total = bench.engine.documents(view, query).await.unwrap().total;
        assert_eq!(total, model.distribution().get("a").copied().unwrap_or(0), "{context}");
    }
}

fn random_history(seed: u64, cores: u16, config: EngineConfig) {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    let rounds = 12;
    let reopened = config.clone();
    let first = run(&disk, seed, cores, config, move |bench| async move {
        let mut random = StdRng::seed_from_u64(seed);
        let mut model = Model::default();
        let mut view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
        for round in 0..rounds {
            let mut ops = Vec::new();
            let mut expected = Vec::new();
            model.kept_numbers.clone_from(&model.numbers);
            let settings = random.random_bool(0.3).then(|| new_settings(&mut random));
            model.settings = settings.clone().unwrap_or(model.settings);
            for _ in 0..random.random_range(1..6) {
                let (op, outcome) = operation(&mut random, &mut model);
                ops.push(op);
                expected.push(outcome);
            }
            let whole = Batch { settings: settings.map(Arc::new), ..batch(ops) };
            // What is prepared and not committed must leave no trace.
            let forgotten = bench.engine.prepare(&view, batch(vec![BatchOp::Clear])).await.unwrap();
            if random.random_bool(0.5) {
                bench.engine.abort(forgotten).await;
            }
            let (next, outcomes) = bench.batch(&view, whole).await;
            let outcomes: Vec<_> =
                outcomes.into_iter().map(|outcome| outcome.map(|outcome| outcome.documents)).collect();
            let context = format!("seed {seed}, round {round}");
            assert_eq!(outcomes, expected, "{context}");
            check(&bench, &next, &model, &context).await;
            view = next;
        }
        (view, model)
    });
    run(&disk, seed, cores, reopened, move |bench| async move {
        let (view, _) = bench.engine.open_index(INDEX).await.unwrap();
        assert_eq!((view.epoch, view.layout, &view.primary_key), (first.0.epoch, first.0.layout, &first.0.primary_key));
        check(&bench, &view, &first.1, &format!("seed {seed}, reopened")).await;
        bench.engine.drop_index(INDEX).await.unwrap();
        assert!(matches!(bench.engine.open_index(INDEX).await, Err(EngineError::Gone)));
    });
}

/// The same history gives the same documents, numbers, words and counts whatever the number of partitions.
#[test]
fn random_batches_do_as_a_map_does_with_any_number_of_partitions() {
    for (seed, (cores, partitions)) in [(1, 1), (2, 2), (2, 5), (3, 2), (1, 2)].into_iter().enumerate() {
        for history in 0..4 {
            random_history(seed as u64 * 100 + history, cores, config(Some(partitions), 0));
        }
    }
}

/// An index that grows past the limit is laid out anew in the middle of its history.
#[test]
fn growing_indexes_are_spread_over_the_cores() {
    for seed in 500..508 {
        random_history(seed, 3, config(None, 10));
    }
}
