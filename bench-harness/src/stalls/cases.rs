//! Requests that ask for as much work as one request can.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::differ::corpus::Corpus;

/// Values of one `IN` list, and members of one chain of `OR`.
const LIST_VALUES: usize = 10_000;
/// Bytes of the longest query text.
const QUERY_BYTES: usize = 64 << 10;
/// Words of a long document.
const LONG_WORDS: usize = 150_000;
/// How many long documents there are.
const LONG_DOCUMENTS: usize = 12;
/// Parentheses around each other; one more is refused.
const DEPTH_MAX: usize = 49;
/// Negations in a row; one more is refused.
const NOTS_MAX: usize = 197;

/// One kind of request. `make` gives the body of the request of a number, so that no two are the same.
pub struct Case {
    pub name: String,
    pub path: String,
    pub make: Box<dyn Fn(usize) -> Value + Send + Sync>,
}

/// What the requests are made of.
struct Material {
    index: String,
    /// The corpus's words, the most frequent first.
    words: Vec<String>,
    texts: Vec<String>,
    numbers: Vec<String>,
    facets: Vec<String>,
    points: bool,
    cases: Vec<Case>,
}

/// The settings that the index needs for these requests.
pub fn settings(corpus: &Corpus) -> Value {
    let mut names: Vec<&str> = corpus.texts.keys().chain(corpus.numbers.keys()).map(String::as_str).collect();
    if !corpus.points.is_empty() {
        names.push("_geo");
    }
    json!({"filterableAttributes": names, "sortableAttributes": names})
}

/// The documents of the index of long documents, as NDJSON.
pub fn long_documents(corpus: &Corpus) -> String {
    let words = frequent_words(corpus);
    let document = |id: usize| {
        let text = (0..LONG_WORDS).map(|at| words[(at * 7 + at / 13 + id) % words.len().min(3000)].as_str());
        json!({"id": id, "text": text.collect::<Vec<_>>().join(" ")}).to_string()
    };
    (0..LONG_DOCUMENTS).map(document).collect::<Vec<_>>().join("\n")
}

fn frequent_words(corpus: &Corpus) -> Vec<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for word in corpus.texts.values().flatten().flatten() {
        *counts.entry(word.to_lowercase()).or_default() += 1;
    }
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| Reverse(*count));
    counts.into_iter().map(|(word, _)| word).collect()
}

/// All kinds of requests to an index that holds the corpus and `long`, an index of long documents.
pub fn cases(corpus: &Corpus, index: &str, long: &str) -> Vec<Case> {
    let mut material = Material {
        index: index.to_owned(),
        words: frequent_words(corpus),
        texts: corpus.texts.keys().cloned().collect(),
        numbers: corpus.numbers.keys().cloned().collect(),
        facets: corpus.facets.keys().cloned().collect(),
        points: !corpus.points.is_empty(),
        cases: Vec::new(),
    };
    material.filters();
    material.deep_filters();
    material.lists();
    material.long_queries();
    material.orders();
    material.others();
    material.long_hits(long);
    material.cases
}

fn letter(at: usize) -> char {
    char::from(b'a' + (at % 26) as u8)
}

impl Material {
    fn add(&mut self, name: impl Into<String>, path: &str, make: impl Fn(usize) -> Value + Send + Sync + 'static) {
        let path = format!("/indexes/{}/{path}", self.index);
        self.cases.push(Case { name: name.into(), path, make: Box::new(make) });
    }

    fn search(&mut self, name: impl Into<String>, make: impl Fn(usize) -> Value + Send + Sync + 'static) {
        self.add(name, "search", make);
    }

    fn filters(&mut self) {
        for field in self.texts.clone() {
            let of = field.clone();
            self.search(
                format!("CONTAINS {field}"),
                move |at| json!({"filter": format!("{of} CONTAINS '{}{}'", letter(at), letter(at / 26))}),
            );
            let of = field.clone();
            self.search(format!("strings {field}"), move |at| json!({"filter": format!("{of} > '{at}'")}));
        }
        for field in self.numbers.clone() {
            self.search(format!("numbers {field}"), move |at| json!({"filter": format!("{field} >= 0.{at}")}));
        }
        if self.points {
            self.search("geo radius", |at| json!({"filter": format!("_geoRadius(48.{at}, 2.3, 3000000)")}));
            self.search("geo box", |at| json!({"filter": format!("_geoBoundingBox([80.{at}, 170], [-80, -170])")}));
            self.search("geo sort", |at| json!({"sort": [format!("_geoPoint(48.{at}, 2.3):asc")]}));
            self.search("geo sort far", |at| json!({"sort": [format!("_geoPoint(48.{at}, 2.3):desc")], "limit": 1000}));
            let words = self.words.clone();
            self.search("geo sort words", move |at| {
                json!({"q": words[at % 3], "sort": [format!("_geoPoint(48.{at}, 2.3):asc")], "showRankingScoreDetails": true, "limit": 1000})
            });
        }
    }

    fn deep_filters(&mut self) {
        let field = self.facets.first().or(self.texts.first()).cloned().unwrap_or_default();
        let of = field.clone();
        self.search(
            "nested parentheses",
            move |at| json!({"filter": format!("{}{of} != '{at}'{}", "(".repeat(DEPTH_MAX), ")".repeat(DEPTH_MAX))}),
        );
        let of = field.clone();
        self.search(
            "nested NOT",
            move |at| json!({"filter": format!("{} {of} = '{at}'", "NOT ".repeat(NOTS_MAX - 1))}),
        );
        let of = field.clone();
        self.search("chain of OR", move |at| {
            let tests: Vec<String> = (0..LIST_VALUES).map(|n| format!("{of} != 'v{at}-{n}'")).collect();
            json!({"filter": tests.join(" OR ")})
        });
        let of = field;
        self.search("chain of AND NOT", move |at| {
            let tests: Vec<String> = (0..LIST_VALUES).map(|n| format!("NOT {of} = 'v{at}-{n}'")).collect();
            json!({"filter": tests.join(" AND ")})
        });
    }

    fn lists(&mut self) {
        for field in self.texts.iter().chain(&self.numbers).cloned().collect::<Vec<_>>() {
            let words = self.words.clone();
            self.search(format!("IN {field}"), move |at| {
                let value = |n: usize| match n % 2 {
                    0 => format!("'{}'", words[(n * 3 + at) % words.len()]),
                    _ => (n + at).to_string(),
                };
                let values: Vec<String> = (0..LIST_VALUES).map(value).collect();
                json!({"filter": format!("{field} IN [{}]", values.join(", "))})
            });
        }
    }

    fn long_queries(&mut self) {
        let some = |words: &[String], count: usize, skip: usize| -> String {
            let chosen = (0..count).map(|n| words[(n * (skip % 5 + 1) + skip) % words.len()].as_str());
            chosen.collect::<Vec<_>>().join(" ")
        };
        for (name, count, strategy) in [
            ("ten frequent words", 10, "last"),
            ("ten words, frequency", 10, "frequency"),
            ("ten words, all", 10, "all"),
            ("200 words", 200, "last"),
            ("64 KiB of words", QUERY_BYTES / 6, "last"),
        ] {
            let words = self.words.clone();
            self.search(name, move |at| json!({"q": some(&words, count, at), "matchingStrategy": strategy}));
            let words = self.words.clone();
            self.search(format!("{name}, scored"), move |at| {
                json!({"q": some(&words, count, at), "matchingStrategy": strategy, "showRankingScoreDetails": true,
                    "limit": 1000})
            });
        }
        self.search("64 KiB word", |at| json!({"q": format!("{at}{}", "x".repeat(QUERY_BYTES))}));
        self.search("64 KiB of letters", |at| json!({"q": format!("{at} {}", "a ".repeat(QUERY_BYTES / 2))}));
        self.search("64 KiB unsegmented", |at| json!({"q": format!("{at}{}", "東京大学".repeat(QUERY_BYTES / 12))}));
        self.search("250 letters", |at| json!({"q": format!("{at}{}", "ab".repeat(120))}));
        let words = self.words.clone();
        self.search("misspelt words", move |at| {
            let long: Vec<&String> = words.iter().filter(|word| word.len() >= 9).collect();
            let misspell = |n: usize| format!("{}{}", &long[(n + at * 10) % long.len()], letter(at + n));
            json!({"q": (0..10).map(misspell).collect::<Vec<_>>().join(" ")})
        });
        let words = self.words.clone();
        self.search("phrases", move |at| {
            let pair = |n: usize| format!("\"{} {}\"", words[(n + at) % 40], words[(n * 3 + at) % 40]);
            json!({"q": (0..10).map(pair).collect::<Vec<_>>().join(" ")})
        });
        let words = self.words.clone();
        self.search("one long phrase", move |at| json!({"q": format!("\"{}\"", some(&words, 400, at))}));
        let words = self.words.clone();
        self.search("negative words", move |at| {
            let negative = |n: usize| format!("-{}", words[(n + at * 100) % words.len()]);
            json!({"q": (0..300).map(negative).collect::<Vec<_>>().join(" ")})
        });
        self.search("one letter", |at| json!({"q": letter(at).to_string(), "showRankingScore": true, "limit": 1000}));
        let words = self.words.clone();
        let field = self.texts.last().cloned().unwrap_or_default();
        self.search(
            "one field",
            move |at| json!({"q": some(&words, 10, at), "attributesToSearchOn": [field], "showRankingScore": true}),
        );
    }

    fn orders(&mut self) {
        for field in self.texts.iter().chain(&self.numbers).cloned().collect::<Vec<_>>() {
            let of = field.clone();
            self.search(
                format!("sort {field}"),
                move |at| json!({"sort": [format!("{of}:asc")], "limit": 1000 - at % 500}),
            );
            let (of, words) = (field.clone(), self.words.clone());
            self.search(
                format!("sort {field} words"),
                move |at| json!({"q": words[at % 20], "sort": [format!("{of}:desc")], "showRankingScore": true}),
            );
            let (of, words) = (field.clone(), self.words.clone());
            self.search(format!("distinct {field}"), move |at| json!({"q": words[at % 20], "distinct": of}));
            let (of, words) = (field.clone(), self.words.clone());
            self.search(format!("distinct {field}, pages"), move |at| {
                let q = format!("{} {}", words[at % 20], words[at % 31]);
                json!({"q": q, "distinct": of, "hitsPerPage": 20, "showRankingScore": true})
            });
        }
        let words = self.words.clone();
        self.search("threshold, pages", move |at| {
            let q = format!("{} {}", words[at % 20], words[at % 31]);
            json!({"q": q, "rankingScoreThreshold": 0.5, "hitsPerPage": 20})
        });
    }

    fn others(&mut self) {
        self.search("facets *", |at| json!({"facets": ["*"], "offset": at}));
        let words = self.words.clone();
        self.search("facets * words", move |at| json!({"q": words[at % 50], "facets": ["*"]}));
        for field in self.texts.clone() {
            let of = field.clone();
            self.add(
                format!("facet search {field}"),
                "facet-search",
                move |at| json!({"facetName": of, "facetQuery": letter(at).to_string()}),
            );
            self.add(
                format!("facet typos {field}"),
                "facet-search",
                move |at| json!({"facetName": field, "facetQuery": format!("co{}position", letter(at))}),
            );
        }
        self.add("fetch", "documents/fetch", |at| json!({"limit": 20_000, "offset": at}));
        if let Some(field) = self.texts.first().cloned() {
            self.add(
                "fetch sorted",
                "documents/fetch",
                move |at| json!({"limit": 1000, "offset": at, "sort": [format!("{field}:desc")]}),
            );
        }
        let (words, index) = (self.words.clone(), self.index.clone());
        let queries = move |at: usize, limit: Option<usize>| {
            let query = |n: usize| {
                let mut query = json!({"indexUid": index, "q": format!("{} {}", words[(n + at) % 300], words[n])});
                if let Some(limit) = limit {
                    query["limit"] = json!(limit);
                }
                query
            };
            (0..200).map(query).collect::<Vec<_>>()
        };
        let of = queries.clone();
        let plain = move |at| json!({"queries": of(at, Some(100))});
        self.cases.push(Case { name: "multi-search".into(), path: "/multi-search".into(), make: Box::new(plain) });
        let merged = move |at| json!({"federation": {"limit": 500}, "queries": queries(at, None)});
        self.cases.push(Case { name: "federated".into(), path: "/multi-search".into(), make: Box::new(merged) });
    }

    fn long_hits(&mut self, long: &str) {
        let path = format!("/indexes/{long}/search");
        for (name, extra) in [
            ("highlight long", json!({"attributesToHighlight": ["*"]})),
            ("crop long", json!({"attributesToCrop": ["*"], "attributesToRetrieve": ["id"]})),
            ("positions long", json!({"showMatchesPosition": true, "attributesToRetrieve": ["id"]})),
        ] {
            let words = self.words.clone();
            let make = move |at: usize| {
                let mut body = extra.clone();
                body["q"] = json!(format!("{} {}", words[at % 50], words[at % 7]));
                body
            };
            self.cases.push(Case { name: name.into(), path: path.clone(), make: Box::new(make) });
        }
    }
}
