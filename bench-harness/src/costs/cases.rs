//! The kinds of requests.

use serde_json::{Value, json};

use super::documents::{GROUPS, WORDS};

/// One kind of request.
pub struct Case {
    pub name: &'static str,
    /// Behind `/indexes/INDEX/`.
    pub route: &'static str,
    /// The body of the request of a number: each is another one, so that no answer is known before.
    pub body: fn(u32) -> Value,
}

const fn search(name: &'static str, body: fn(u32) -> Value) -> Case {
    Case { name, route: "search", body }
}

const fn facet_search(name: &'static str, body: fn(u32) -> Value) -> Case {
    Case { name, route: "facet-search", body }
}

/// One of the words, each in turn.
fn word(number: u32) -> &'static str {
    WORDS[number as usize % WORDS.len()]
}

fn direction(number: u32) -> &'static str {
    if number.is_multiple_of(2) { "asc" } else { "desc" }
}

/// A number of the field `group` below which about half of the documents lie.
fn half(number: u32) -> u32 {
    GROUPS / 2 - 50 + number
}

/// Two letters that some names begin with, others for each number.
fn prefix(number: u32) -> String {
    let at = |letters: &str, at: u32| letters.chars().cycle().nth(at as usize).unwrap_or_default();
    [at("bcdfghjklmnprstvz", number), at("aeiou", number), at("bcdfghjklmnprstvz", number / 5 + 3)].iter().collect()
}

/// In the order of the table that they make.
pub const CASES: &[Case] = &[
    search("sort by 1,000 numbers", |n| json!({"sort": [format!("group:{}", direction(n))], "limit": 20 + n})),
    search("sort by unique numbers", |n| json!({"sort": [format!("size:{}", direction(n))], "limit": 20 + n})),
    search("sort by unique strings", |n| json!({"sort": [format!("name:{}", direction(n))], "limit": 20 + n})),
    search(
        "sort, half pass a filter",
        |n| json!({"filter": format!("group < {}", half(n)), "sort": [format!("size:{}", direction(n))]}),
    ),
    search(
        "sort, first values filtered out",
        |n| json!({"filter": format!("size > {}", n * 20_000_000), "sort": ["size:asc"], "limit": 20}),
    ),
    search(
        "sort by strings, a prefix passes",
        |n| json!({"filter": format!("name STARTS WITH {}", &prefix(n)[..1]), "sort": [format!("name:{}", direction(n))]}),
    ),
    search("geo sort", |n| json!({"sort": [format!("_geoPoint({}, {}):asc", n * 3, n * 7)]})),
    search(
        "geo sort, 1 of 20 passes",
        |n| json!({"filter": format!("group < {}", 40 + n), "sort": [format!("_geoPoint({}, {}):asc", n * 3, n * 7)]}),
    ),
    search(
        "word, sorted by unique numbers",
        |n| json!({"q": word(n), "sort": [format!("size:{}", direction(n / 20))]}),
    ),
    search(
        "word, sorted by 1,000 numbers",
        |n| json!({"q": word(n), "sort": [format!("group:{}", direction(n / 20))]}),
    ),
    search("facets of 1,000 numbers", |n| json!({"facets": ["group"], "limit": n})),
    search("facets of unique strings", |n| json!({"facets": ["name"], "limit": n})),
    search(
        "all facets, half pass a filter",
        |n| json!({"facets": ["*"], "filter": format!("group < {}", half(n)), "limit": 1}),
    ),
    search("number range", |n| json!({"filter": format!("size {} TO {}", n * 1_000_000, 500_000_000 + n)})),
    search("strings that start so", |n| json!({"filter": format!("name STARTS WITH {}", &prefix(n)[..2])})),
    search("_geoRadius of 1,000 km", |n| json!({"filter": format!("_geoRadius({}, {}, 1000000)", n * 3, n * 7)})),
    search("_geoRadius of 5,000 km", |n| json!({"filter": format!("_geoRadius({}, {}, 5000000)", n * 3, n * 7)})),
    search(
        "_geoBoundingBox of 2 degrees",
        |n| json!({"filter": format!("_geoBoundingBox([{}, {}], [{}, {}])", n + 2, n * 7 + 2, n, n * 7)}),
    ),
    search(
        "_geoBoundingBox of 40 degrees",
        |n| json!({"filter": format!("_geoBoundingBox([{}, {}], [{}, {}])", n + 40, n * 5 + 40, n, n * 5)}),
    ),
    facet_search("facet search, prefix", |n| json!({"facetName": "name", "facetQuery": prefix(n)})),
    facet_search(
        "facet search, misspelt",
        |n| json!({"facetName": "name", "facetQuery": format!("{}xxo{}", &prefix(n)[..2], &prefix(n + 1)[..2])}),
    ),
    facet_search("facet search, no query", |n| json!({"facetName": "name", "filter": format!("price >= -{n}")})),
    facet_search(
        "facet search, half pass a filter",
        |n| json!({"facetName": "name", "facetQuery": prefix(n), "filter": format!("group < {}", half(n))}),
    ),
    search("distinct, a page", |n| json!({"q": word(n), "distinct": "name", "limit": 20 + n})),
    search("distinct with hitsPerPage", |n| json!({"distinct": "name", "hitsPerPage": 20 + n})),
    search("word at offset 10,000", |n| json!({"q": word(n), "offset": 10_000 + n})),
    search("sorted at offset 100,000", |n| json!({"sort": [format!("size:{}", direction(n))], "offset": 100_000 + n})),
    Case { name: "documents at offset 450,000", route: "documents/fetch", body: |n| json!({"offset": 450_000 + n}) },
    Case {
        name: "documents, sorted, at 100,000",
        route: "documents/fetch",
        body: |n| json!({"sort": [format!("size:{}", direction(n))], "offset": 100_000 + n}),
    },
    Case {
        name: "documents, first filtered out",
        route: "documents/fetch",
        body: |n| json!({"filter": format!("size > {}", n * 20_000_000), "sort": ["size:asc"]}),
    },
];
