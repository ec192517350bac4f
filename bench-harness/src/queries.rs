//! Queries made of a data set's own words, the same for the same seed.

use std::io;
use std::path::Path;

use clap::ValueEnum;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

/// What a query looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    One,
    Two,
    Three,
    Prefix,
    Misspelt,
    Filtered,
    Faceted,
}

/// How many queries a run cycles through unless it is told.
pub const QUERIES: usize = 2000;
/// Shortest word that a query is made of, in characters.
const WORD_CHARS_MIN: usize = 4;

/// The words of a document, in order: all strings at any depth, its id aside.
fn words(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            let found = text.split(|c: char| !c.is_alphabetic()).filter(|word| word.chars().count() >= WORD_CHARS_MIN);
            out.extend(found.map(str::to_lowercase));
        }
        Value::Array(items) => items.iter().for_each(|item| words(item, out)),
        _ => {}
    }
}

fn misspell(word: &str, rng: &mut StdRng) -> String {
    let mut letters: Vec<char> = word.chars().collect();
    // The first letter stays: that is where people seldom err, and where engines differ most.
    let at = rng.random_range(1..letters.len());
    match rng.random_range(0..3) {
        0 => letters[at] = char::from(b'a' + rng.random_range(0..26u8)),
        1 => letters.insert(at, char::from(b'a' + rng.random_range(0..26u8))),
        _ => {
            letters.remove(at);
        }
    }
    letters.into_iter().collect()
}

/// So many bodies of search requests of one kind, from the NDJSON file that was loaded.
pub fn bodies(file: &Path, kind: Kind, seed: u64, count: usize) -> io::Result<Vec<Vec<u8>>> {
    let text = std::fs::read_to_string(file)?;
    let lines: Vec<&str> = text.lines().collect();
    let mut rng = StdRng::seed_from_u64(seed);
    let mut out = Vec::with_capacity(count);
    while out.len() < count && !lines.is_empty() {
        let document: Value =
            serde_json::from_str(lines[rng.random_range(0..lines.len())]).map_err(io::Error::other)?;
        let mut found = Vec::new();
        for name in ["words", "definition", "name"] {
            words(&document[name], &mut found);
        }
        let need = match kind {
            Kind::Two => 2,
            Kind::Three => 3,
            _ => 1,
        };
        if found.len() < need {
            continue;
        }
        let start = rng.random_range(0..=found.len() - need);
        let chosen = &found[start..start + need];
        let pos = document["pos"].as_str().unwrap_or("noun");
        let body = match kind {
            Kind::One | Kind::Two | Kind::Three => json!({"q": format!("{} ", chosen.join(" "))}),
            Kind::Prefix => {
                let letters = rng.random_range(1..=chosen[0].chars().count().min(6));
                json!({"q": chosen[0].chars().take(letters).collect::<String>()})
            }
            Kind::Misspelt if chosen[0].len() < 6 => continue,
            Kind::Misspelt => json!({"q": format!("{} ", misspell(&chosen[0], &mut rng))}),
            Kind::Filtered => json!({"q": chosen[0], "filter": format!("pos = {pos} AND senses > 1")}),
            Kind::Faceted => json!({"q": chosen[0], "facets": ["pos", "category"]}),
        };
        out.push(body.to_string().into_bytes());
    }
    Ok(out)
}
