//! What a file holds that queries can be made of.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use serde_json::Value;

/// Fields with more different texts than this are not used as facets.
const FACET_VALUES_MAX: usize = 400;

/// The documents of a file, looked at field by field.
#[derive(Default)]
pub struct Corpus {
    /// Words of each text field, in document order, one list for each value.
    pub texts: BTreeMap<String, Vec<Vec<String>>>,
    /// Fields of few different texts, with these.
    pub facets: BTreeMap<String, Vec<String>>,
    /// Fields of numbers, with these.
    pub numbers: BTreeMap<String, Vec<f64>>,
    /// Latitudes and longitudes.
    pub points: Vec<(f64, f64)>,
}

impl Corpus {
    /// Looks at all documents of an NDJSON text.
    pub fn new(documents: &str) -> io::Result<Self> {
        let mut corpus = Self::default();
        let mut strings: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for line in documents.lines() {
            let document: Value = serde_json::from_str(line).map_err(io::Error::other)?;
            for (name, value) in document.as_object().into_iter().flatten() {
                if let (Some(lat), Some(lng)) = (value["lat"].as_f64(), value["lng"].as_f64()) {
                    corpus.points.push((lat, lng));
                } else if name != "id" {
                    corpus.learn(name, value, &mut strings);
                }
            }
        }
        for (name, values) in strings {
            if values.len() <= FACET_VALUES_MAX {
                corpus.facets.insert(name, values.into_iter().collect());
            }
        }
        Ok(corpus)
    }

    fn learn(&mut self, name: &str, value: &Value, strings: &mut BTreeMap<String, BTreeSet<String>>) {
        match value {
            Value::String(text) => {
                let known = strings.entry(name.to_owned()).or_default();
                if known.len() <= FACET_VALUES_MAX {
                    known.insert(text.clone());
                }
                let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
                let words: Vec<String> = words.map(str::to_owned).collect();
                if !words.is_empty() {
                    self.texts.entry(name.to_owned()).or_default().push(words);
                }
            }
            Value::Number(number) => self.numbers.entry(name.to_owned()).or_default().extend(number.as_f64()),
            Value::Array(items) => items.iter().for_each(|item| self.learn(name, item, strings)),
            _ => {}
        }
    }
}
