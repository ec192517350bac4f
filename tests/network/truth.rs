//! What is known of the documents: what was acknowledged, and what may have come to pass without an answer.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::hosts::Host;
use crate::instance::ask;

/// The index of the documents.
pub const INDEX: &str = "load";
/// Documents that are read at once.
const PAGE: usize = 5000;

/// Which instances have which shard, by names.
pub type Layout = BTreeMap<&'static str, BTreeSet<&'static str>>;

/// A document as far as it matters: its text, or that it is not there.
type State = Option<String>;

/// The vector that a document is given.
fn vector(id: u64) -> [f32; 2] {
    [(id % 97) as f32 + 1.0, 1.0]
}

/// A document as it is written.
pub fn document(id: u64, text: &str) -> Value {
    json!({"id": id, "text": text, "_vectors": {"m": vector(id)}})
}

/// The settings of the index.
pub fn settings() -> Value {
    let embedder = json!({"source": "userProvided", "dimensions": 2});
    json!({"pagination": {"maxTotalHits": 1_000_000}, "sortableAttributes": ["id"], "embedders": {"m": embedder}})
}

/// What each document may be.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    documents: BTreeMap<u64, Known>,
}

#[derive(Clone, Debug, Default)]
struct Known {
    acknowledged: State,
    /// Without an answer, each of these may have come after it.
    perhaps: Vec<State>,
}

impl Truth {
    /// Takes note of a write and of whether it was acknowledged.
    pub fn note(&mut self, ids: impl IntoIterator<Item = u64>, state: &State, is_acknowledged: bool) {
        for id in ids {
            let known = self.documents.entry(id).or_default();
            if is_acknowledged {
                *known = Known { acknowledged: state.clone(), perhaps: Vec::new() };
            } else {
                known.perhaps.push(state.clone());
            }
        }
    }

    /// The documents that are surely there; what was sent without an answer is left alone.
    pub fn present(&self) -> Vec<u64> {
        let is_sure = |known: &Known| known.acknowledged.is_some() && known.perhaps.is_empty();
        self.documents.iter().filter(|(_, known)| is_sure(known)).map(|(id, _)| *id).collect()
    }

    /// Why `found` cannot be, if so.
    fn contradicted(&self, found: &BTreeMap<u64, String>) -> Option<String> {
        let wrong: Vec<String> = self
            .documents
            .iter()
            .filter(|(id, known)| {
                let found = found.get(id).cloned();
                found != known.acknowledged && !known.perhaps.contains(&found)
            })
            .map(|(id, known)| format!("{id} is {:?} but should be {:?}", found.get(id), known.acknowledged))
            .collect();
        let unknown = found.keys().find(|id| !self.documents.contains_key(id));
        match (wrong.first(), unknown) {
            (Some(first), _) => Some(format!("{} documents are not as acknowledged: {first}", wrong.len())),
            (None, Some(id)) => Some(format!("nobody wrote {id}")),
            (None, None) => None,
        }
    }

    /// Looks whether each shard is on its instances alone, whole, and as was acknowledged; why not. What may or may not have
    /// come to pass is known afterwards.
    pub fn check(&mut self, hosts: &BTreeMap<&'static str, Host>, layout: &Layout) -> Option<String> {
        let mut everywhere = BTreeMap::new();
        for (shard, on) in layout {
            let mut replicas: Vec<(&str, BTreeMap<u64, String>)> = Vec::new();
            for (name, host) in hosts {
                let Some(documents) = documents(host, shard) else {
                    return Some(format!("{name} does not tell its {shard}"));
                };
                if on.contains(name) {
                    replicas.push((name, documents));
                } else if !documents.is_empty() {
                    return Some(format!("{name} has {} documents of {shard}, which it should not", documents.len()));
                }
            }
            let (first, others) = replicas.split_first().expect("a shard is somewhere");
            for (name, documents) in others {
                if let Some(id) = differing(&first.1, documents) {
                    let counts = (first.1.len(), documents.len());
                    return Some(format!(
                        "{shard} differs between {} and {name}: {counts:?} documents, such as {id}",
                        first.0
                    ));
                }
            }
            let before = everywhere.len() + first.1.len();
            everywhere.extend(first.1.clone());
            if everywhere.len() != before {
                return Some(format!("a document of {shard} is in another shard, too"));
            }
        }
        let wrong = self.contradicted(&everywhere);
        if wrong.is_none() {
            let known = |(id, text)| (id, Known { acknowledged: Some(text), perhaps: Vec::new() });
            self.documents = everywhere.into_iter().map(known).collect();
        }
        wrong
    }
}

/// A document that the two do not have alike.
fn differing(one: &BTreeMap<u64, String>, other: &BTreeMap<u64, String>) -> Option<u64> {
    let ids = one.keys().chain(other.keys());
    ids.copied().find(|id| one.get(id) != other.get(id))
}

/// The documents of a shard on an instance.
fn documents(host: &Host, shard: &str) -> Option<BTreeMap<u64, String>> {
    let mut found = BTreeMap::new();
    loop {
        let body = json!({"filter": format!("_shard = {shard}"), "limit": PAGE, "offset": found.len(),
            "fields": ["id", "text"], "retrieveVectors": true});
        let (status, page) = ask(host, "POST", &format!("/indexes/{INDEX}/documents/fetch"), &body)?;
        let results = page["results"].as_array().filter(|_| status == 200)?;
        for document in results {
            let (id, mut text) = (document["id"].as_u64()?, document["text"].as_str()?.to_owned());
            if document["_vectors"]["m"]["embeddings"] != json!([vector(id)]) {
                text.push_str(" without its vector");
            }
            found.insert(id, text);
        }
        if results.len() < PAGE {
            return Some(found);
        }
    }
}

/// What is wrong with an answer to a search for documents of which `wanted` are there all the time, if anything. It may be
/// partial when it says so.
pub fn search_is_wrong(answer: &Value, wanted: Option<&BTreeSet<u64>>) -> Option<String> {
    let hits = answer["hits"].as_array()?;
    let ids: BTreeSet<u64> = hits.iter().filter_map(|hit| hit["id"].as_u64()).collect();
    if ids.len() != hits.len() {
        return Some(format!("{} hits are {} documents", hits.len(), ids.len()));
    }
    let wanted = wanted?;
    let errors = answer["remoteErrors"].as_object()?;
    let is_partial = !errors.is_empty();
    if !ids.is_subset(wanted) {
        return Some("a search found what it did not ask for".into());
    }
    (!is_partial && ids != *wanted)
        .then(|| format!("{} of {} documents were found, and nothing said", ids.len(), wanted.len()))
}
