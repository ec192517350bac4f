//! What searches find, to be compared from one layout of the network to another.

use std::io;
use std::path::Path;

use serde_json::{Value, json};

use crate::http::Client;
use crate::queries::{self, Kind};

/// Hits of one search. A word that finds more is not compared: which of them are shown is left to chance.
const HITS_MAX: usize = 1000;

/// What some searches found, in the order in which they were made.
#[derive(Debug, Default)]
pub struct Found {
    answers: Vec<Hits>,
    instances: usize,
}

/// The ids and scores of an answer, sorted: documents that rank alike come in the order of wherever they are stored.
type Hits = Vec<(String, String)>;

/// Words of the file, in quotes: each instance corrects words by those it has, and quoted ones not at all.
pub fn words(file: &Path, count: usize) -> io::Result<Vec<String>> {
    let bodies = queries::bodies(file, Kind::One, 1, queries::QUERIES)?;
    let quoted = |body: &Vec<u8>| {
        let body: Value = serde_json::from_slice(body).map_err(io::Error::other)?;
        Ok(format!("\"{}\"", body["q"].as_str().unwrap_or_default().trim()))
    };
    bodies.iter().take(count).map(quoted).collect()
}

/// How many documents a search without words finds.
pub fn total(client: &mut Client, path: &str) -> io::Result<u64> {
    let answer = search(client, path, &json!({"q": "", "page": 1, "hitsPerPage": 1}))?;
    answer["totalHits"].as_u64().ok_or_else(|| io::Error::other(format!("no total in {answer}")))
}

/// A search to which every instance has contributed.
fn search(client: &mut Client, path: &str, body: &Value) -> io::Result<Value> {
    let answer = client.json("POST", path, Some(body))?;
    match answer["remoteErrors"].as_object() {
        Some(errors) if errors.is_empty() => Ok(answer),
        _ => Err(io::Error::other(format!("an answer is not that of the whole network: {answer}"))),
    }
}

impl Found {
    /// Makes the searches through one more instance.
    pub fn add(&mut self, client: &mut Client, path: &str, words: &[String]) -> io::Result<()> {
        for word in words {
            let body = json!({"q": word, "limit": HITS_MAX, "attributesToRetrieve": ["id"], "showRankingScore": true});
            let answer = search(client, path, &body)?;
            self.answers.push(hits_of(&answer));
        }
        self.instances += 1;
        Ok(())
    }

    /// How many hits one instance gave.
    pub fn hits(&self) -> usize {
        self.answers.iter().map(Vec::len).sum::<usize>() / self.instances.max(1)
    }

    /// How many answers are not those of `other`, to the same searches.
    pub fn differing(&self, other: &Self) -> usize {
        let pairs = self.answers.iter().zip(&other.answers);
        let differing = pairs.filter(|(one, other)| one.len().min(other.len()) < HITS_MAX && one != other).count();
        differing + self.answers.len().abs_diff(other.answers.len())
    }
}

fn hits_of(answer: &Value) -> Hits {
    let hits = answer["hits"].as_array().map_or(&[][..], Vec::as_slice);
    let mut hits: Hits = hits.iter().map(|hit| (hit["id"].to_string(), hit["_rankingScore"].to_string())).collect();
    hits.sort();
    hits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(hits: &Value) -> Found {
        Found { answers: vec![hits_of(&json!({ "hits": hits }))], instances: 1 }
    }

    #[test]
    fn documents_that_are_missing_twice_there_or_ranked_otherwise_are_differences() {
        let (a, b) = (json!({"id": 1, "_rankingScore": 0.5}), json!({"id": "b", "_rankingScore": 0.5}));
        let whole = found(&json!([a, b]));
        assert_eq!((whole.differing(&found(&json!([b, a]))), whole.hits()), (0, 2));
        assert_eq!(whole.differing(&found(&json!([a]))), 1);
        assert_eq!(whole.differing(&found(&json!([a, b, b]))), 1);
        assert_eq!(whole.differing(&found(&json!([{"id": 1, "_rankingScore": 0.25}, b]))), 1);
    }
}
