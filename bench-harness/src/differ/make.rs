//! Settings and queries out of a seed.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use serde_json::{Map, Value, json};

use super::corpus::Corpus;

/// What is special about a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Word,
    Words,
    Prefix,
    Misspelt,
    Phrase,
    Negative,
    Filter,
    Sort,
    Facets,
    Strategy,
    Distinct,
    Pages,
    SearchOn,
    Formatted,
    Threshold,
    Details,
    Geo,
    Mixed,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::Word,
        Self::Words,
        Self::Prefix,
        Self::Misspelt,
        Self::Phrase,
        Self::Negative,
        Self::Filter,
        Self::Sort,
        Self::Facets,
        Self::Strategy,
        Self::Distinct,
        Self::Pages,
        Self::SearchOn,
        Self::Formatted,
        Self::Threshold,
        Self::Details,
        Self::Geo,
        Self::Mixed,
    ];
}

/// A search, in parts that can be taken away one by one.
#[derive(Clone, Debug)]
pub struct Query {
    /// Words, phrases and negatives; they are put together with blanks between.
    pub terms: Vec<String>,
    /// The other members of the body.
    pub options: Map<String, Value>,
}

impl Query {
    /// The request's body.
    pub fn body(&self) -> Value {
        let mut body = self.options.clone();
        body.insert("q".into(), self.terms.join(" ").into());
        body.insert("showRankingScore".into(), true.into());
        if !body.contains_key("attributesToRetrieve") {
            body.insert("attributesToRetrieve".into(), json!(["id"]));
        }
        Value::Object(body)
    }
}

/// Settings for a file. The first round's are plain.
pub fn settings(corpus: &Corpus, rng: &mut StdRng, round: usize) -> Value {
    let mut texts: Vec<&String> = corpus.texts.keys().collect();
    let mut filterable: Vec<&str> = corpus.facets.keys().chain(corpus.numbers.keys()).map(String::as_str).collect();
    let mut sortable = filterable.clone();
    if !corpus.points.is_empty() {
        filterable.push("_geo");
        sortable.push("_geo");
    }
    let mut settings = json!({
        "searchableAttributes": texts,
        "filterableAttributes": filterable,
        "sortableAttributes": sortable,
        // What is compared are answers: none may be cut short by a machine that is busy.
        "searchCutoffMs": 60_000,
    });
    if round == 0 {
        return settings;
    }
    texts.shuffle(rng);
    texts.truncate(rng.random_range(1..=texts.len()));
    settings["searchableAttributes"] = if rng.random_bool(0.3) { json!(["*"]) } else { json!(texts) };
    let mut word = || some_words(corpus, rng, 1).pop().unwrap_or_default().to_lowercase();
    let words: Vec<String> = (0..8).map(|_| word()).collect();
    let choices = [
        ("rankingRules", json!(["words", "typo", "proximity", "attribute", "sort", "exactness"])),
        ("rankingRules", json!(["sort", "words", "proximity", "typo", "exactness", "wordPosition"])),
        ("rankingRules", json!(["attributeRank", "words", "exactness", "typo", "sort", "proximity"])),
        ("typoTolerance", json!({"minWordSizeForTypos": {"oneTypo": 3, "twoTypos": 6}})),
        ("typoTolerance", json!({"enabled": false})),
        ("typoTolerance", json!({"disableOnWords": [words[0], words[1]]})),
        ("stopWords", json!(["of", "the", "a", "an", "to", "in", words[2]])),
        ("synonyms", json!({&words[3]: [&words[4], format!("{} {}", words[5], words[6])], &words[6]: [&words[3]]})),
        ("proximityPrecision", json!("byAttribute")),
        ("prefixSearch", json!("disabled")),
        ("separatorTokens", json!(["e"])),
        ("faceting", json!({"sortFacetValuesBy": {"*": "count"}, "maxValuesPerFacet": 20})),
        ("pagination", json!({"maxTotalHits": 30})),
    ];
    for (name, value) in choices.choose_multiple(rng, 4) {
        settings[*name] = value.clone();
    }
    settings
}

/// Consecutive words of some text.
fn some_words(corpus: &Corpus, rng: &mut StdRng, count: usize) -> Vec<String> {
    let fields: Vec<_> = corpus.texts.values().collect();
    let Some(field) = fields.choose(rng) else { return Vec::new() };
    let Some(text) = field.choose(rng) else { return Vec::new() };
    let start = rng.random_range(0..=text.len().saturating_sub(count));
    text.iter().skip(start).take(count).map(|word| word.to_lowercase()).collect()
}

fn misspelt(word: &str, rng: &mut StdRng) -> String {
    let mut letters: Vec<char> = word.chars().collect();
    let at = rng.random_range(0..letters.len());
    let letter = char::from(b'a' + rng.random_range(0..26u8));
    match rng.random_range(0..4) {
        0 => letters[at] = letter,
        1 => letters.insert(at, letter),
        2 if at + 1 < letters.len() => letters.swap(at, at + 1),
        _ if letters.len() > 1 => drop(letters.remove(at)),
        _ => {}
    }
    letters.into_iter().collect()
}

/// One to four words, the last perhaps cut short or followed by a blank.
fn words(corpus: &Corpus, rng: &mut StdRng) -> Vec<String> {
    let count = rng.random_range(1..=4);
    let mut words = some_words(corpus, rng, count);
    if rng.random_bool(0.3) {
        words.extend(some_words(corpus, rng, 1));
    }
    match rng.random_range(0..3) {
        0 => words.push(String::new()),
        1 => {
            if let Some(last) = words.pop() {
                let letters = rng.random_range(1..=last.chars().count());
                words.push(last.chars().take(letters).collect());
            }
        }
        _ => {}
    }
    words
}

/// One query.
pub fn query(corpus: &Corpus, rng: &mut StdRng, kind: Kind) -> Query {
    let mut query = Query { terms: Vec::new(), options: Map::new() };
    if !matches!(kind, Kind::Filter | Kind::Sort | Kind::Facets | Kind::Distinct | Kind::Geo) || rng.random_bool(0.6) {
        query.terms = words(corpus, rng);
    }
    shape(corpus, rng, kind, &mut query);
    if kind == Kind::Mixed {
        for _ in 0..3 {
            let other = *Kind::ALL.choose(rng).unwrap_or(&Kind::Word);
            shape(corpus, rng, other, &mut query);
        }
    }
    query
}

fn shape(corpus: &Corpus, rng: &mut StdRng, kind: Kind, query: &mut Query) {
    let mut set = |name: &str, value: Value| drop(query.options.insert(name.into(), value));
    match kind {
        Kind::Word => query.terms = some_words(corpus, rng, 1),
        Kind::Words | Kind::Mixed => {}
        Kind::Prefix => {
            let word = some_words(corpus, rng, 1).pop().unwrap_or_default();
            query.terms.pop();
            query.terms.push(word.chars().take(rng.random_range(1..=6)).collect());
        }
        Kind::Misspelt => {
            for term in query.terms.iter_mut().filter(|term| term.chars().count() > 2) {
                if rng.random_bool(0.7) {
                    *term = misspelt(term, rng);
                }
            }
        }
        Kind::Phrase => {
            let count = rng.random_range(1..=3);
            let phrase = some_words(corpus, rng, count).join(" ");
            query.terms.insert(0, format!("\"{phrase}\""));
        }
        Kind::Negative => {
            let count = rng.random_range(1..=2);
            let not = some_words(corpus, rng, count);
            let not = if not.len() == 1 { format!("-{}", not[0]) } else { format!("-\"{}\"", not.join(" ")) };
            query.terms.push(not);
        }
        Kind::Filter => set("filter", filter(corpus, rng, 0).into()),
        Kind::Sort => set("sort", sort(corpus, rng)),
        Kind::Facets => {
            let all: Vec<_> = corpus.facets.keys().chain(corpus.numbers.keys()).collect();
            let some: Vec<_> = all.choose_multiple(rng, 2).collect();
            set("facets", if rng.random_bool(0.2) { json!(["*"]) } else { json!(some) });
        }
        Kind::Strategy => {
            set("matchingStrategy", if rng.random_bool(0.3) { json!("all") } else { json!("frequency") });
        }
        Kind::Distinct => {
            if let Some(field) = corpus.facets.keys().collect::<Vec<_>>().choose(rng) {
                set("distinct", json!(field));
            }
        }
        Kind::Pages if rng.random_bool(0.5) => {
            set("page", rng.random_range(1..4).into());
            set("hitsPerPage", rng.random_range(0..9).into());
        }
        Kind::Pages => {
            set("offset", rng.random_range(0..40).into());
            set("limit", rng.random_range(0..60).into());
        }
        Kind::SearchOn => {
            if let Some(field) = corpus.texts.keys().collect::<Vec<_>>().choose(rng) {
                set("attributesToSearchOn", json!([field]));
            }
        }
        Kind::Formatted => {
            set("attributesToRetrieve", json!(["*"]));
            set("attributesToHighlight", json!(["*"]));
            set("showMatchesPosition", true.into());
            if rng.random_bool(0.6) {
                set("attributesToCrop", json!(["*"]));
                set("cropLength", rng.random_range(1..12).into());
            }
        }
        Kind::Threshold => set("rankingScoreThreshold", (f64::from(rng.random_range(1..100)) / 100.0).into()),
        Kind::Details => set("showRankingScoreDetails", true.into()),
        Kind::Geo => geo(corpus, rng, query),
    }
}

fn geo(corpus: &Corpus, rng: &mut StdRng, query: &mut Query) {
    let Some((lat, lng)) = corpus.points.choose(rng) else { return };
    let filter = match rng.random_range(0..3) {
        0 => format!("_geoRadius({lat}, {lng}, {})", rng.random_range(0..500_000)),
        1 => format!(
            "_geoBoundingBox([{}, {}], [{}, {}])",
            (lat + 2.0).min(90.0),
            (lng + 3.0).min(180.0),
            (lat - 1.0).max(-90.0),
            (lng - 2.5).max(-180.0)
        ),
        _ => String::new(),
    };
    if !filter.is_empty() {
        query.options.insert("filter".into(), filter.into());
    }
    let direction = if rng.random_bool(0.7) { "asc" } else { "desc" };
    query.options.insert("sort".into(), json!([format!("_geoPoint({lat}, {lng}):{direction}")]));
}

fn sort(corpus: &Corpus, rng: &mut StdRng) -> Value {
    let fields: Vec<_> = corpus.numbers.keys().chain(corpus.facets.keys()).collect();
    let count = rng.random_range(1..=2);
    let some = fields.choose_multiple(rng, count).cloned().collect::<Vec<_>>();
    let directions = some.iter().map(|field| format!("{field}:{}", if rng.random_bool(0.5) { "asc" } else { "desc" }));
    directions.collect::<Vec<_>>().into()
}

fn filter(corpus: &Corpus, rng: &mut StdRng, depth: usize) -> String {
    if depth < 2 && rng.random_bool(0.4) {
        let join = if rng.random_bool(0.5) { "AND" } else { "OR" };
        return format!("({} {join} {})", filter(corpus, rng, depth + 1), filter(corpus, rng, depth + 1));
    }
    if rng.random_bool(0.15) {
        return format!("NOT {}", filter(corpus, rng, depth + 1));
    }
    let facets: Vec<_> = corpus.facets.iter().collect();
    let numbers: Vec<_> = corpus.numbers.iter().collect();
    let quoted = |value: &String| format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"));
    match (rng.random_bool(0.5), facets.choose(rng), numbers.choose(rng)) {
        (true, Some((field, values)), _) | (_, Some((field, values)), None) => {
            let some: Vec<String> = values.choose_multiple(rng, 3).map(quoted).collect();
            match rng.random_range(0..6) {
                0 => format!("{field} != {}", some[0]),
                1 => format!("{field} IN [{}]", some.join(", ")),
                2 => format!("{field} >= {}", some[0]),
                3 => format!("{field} STARTS WITH {}", quoted(&some[0].chars().skip(1).take(2).collect())),
                4 => format!("{field} IS EMPTY"),
                _ => format!("{field} = {}", some[0]),
            }
        }
        (_, _, Some((field, values))) => {
            let (a, b) = (values.choose(rng).unwrap_or(&0.0), values.choose(rng).unwrap_or(&1.0));
            match rng.random_range(0..5) {
                0 => format!("{field} > {a}"),
                1 => format!("{field} {} TO {}", a.min(*b), a.max(*b)),
                2 => format!("{field} <= {a}"),
                3 => format!("{field} EXISTS"),
                _ => format!("{field} = {a}"),
            }
        }
        _ => "id EXISTS".into(),
    }
}
