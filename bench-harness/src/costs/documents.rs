//! Small documents from a seed: half a million of them are 50 MB.

use std::fmt::Write;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

/// Words of which each is in about one of twenty documents.
pub const WORDS: [&str; 20] = [
    "amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath", "inlet", "jetty", "knoll", "lagoon",
    "meadow", "nectar", "ocean", "prairie", "quarry", "ridge", "summit", "tundra",
];
/// Values of the field `group`.
pub const GROUPS: u32 = 1000;
const CONSONANTS: &[u8] = b"bcdfghjklmnprstvz";
const VOWELS: &[u8] = b"aeiou";

/// Documents that are to be made.
pub struct Documents {
    random: StdRng,
    count: u32,
}

/// Five filterable fields, four of them sortable, and one that is searched.
pub fn settings() -> Value {
    json!({
        "searchableAttributes": ["title"],
        "filterableAttributes": ["name", "size", "price", "group", "_geo"],
        "sortableAttributes": ["name", "size", "group", "_geo"],
        "pagination": {"maxTotalHits": 1_000_000},
    })
}

/// The change of a number: what one of so many documents becomes in part.
pub fn change(number: u32, count: u32) -> Value {
    let number = number.wrapping_mul(0x9e37_79b9);
    let (id, size) = (number % count.max(1), number % 1_000_000_000);
    json!({"id": id, "size": size, "price": f64::from(size) / 1e6, "group": number % GROUPS, "_geo": {"lat": 1, "lng": id % 180}})
}

impl Documents {
    /// So many documents of this seed.
    pub fn new(seed: u64, count: u32) -> Self {
        Self { random: StdRng::seed_from_u64(seed), count }
    }

    /// As NDJSON. `name` and `size` are of one document each, nearly; `group` is a number below [`GROUPS`].
    pub fn lines(mut self) -> String {
        let mut out = String::with_capacity(self.count as usize * 110);
        for id in 0..self.count {
            let (word, name) = (WORDS[self.random.random_range(0..WORDS.len())], self.name());
            let (size, group) = (self.random.random_range(0..1_000_000_000u32), self.random.random_range(0..GROUPS));
            let price = f64::from(self.random.random_range(0..1_000_000u32)) / 1000.0;
            let (lat, lng) = (self.random.random_range(-90.0..90.0f64), self.random.random_range(-180.0..180.0f64));
            let written = writeln!(
                out,
                r#"{{"id":{id},"title":"{word}","name":"{name}","size":{size},"price":{price},"group":{group},"_geo":{{"lat":{lat:.4},"lng":{lng:.4}}}}}"#
            );
            // Writing into a string does not fail.
            debug_assert!(written.is_ok());
        }
        out
    }

    /// Two made-up words.
    fn name(&mut self) -> String {
        let mut name = String::new();
        for at in 0..6 {
            if at == 2 {
                name.push(' ');
            }
            for letters in [CONSONANTS, VOWELS] {
                name.push(char::from(letters[self.random.random_range(0..letters.len())]));
            }
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_documents_again() {
        let lines = Documents::new(3, 50).lines();
        assert_eq!(lines, Documents::new(3, 50).lines());
        assert_ne!(lines, Documents::new(4, 50).lines());
        let documents: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(documents.len(), 50);
        assert!(documents.iter().all(|document| document["group"].as_u64().is_some_and(|group| group < GROUPS.into())));
    }
}
