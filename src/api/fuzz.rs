//! Random search and settings bodies made from the words of the interface. Whatever they contain, they are either decoded or
//! rejected, nothing else.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use shards::settings::Settings;

use super::search::params::SearchParams;
use super::settings::{GatedFeatures, SettingsPatch};

const SEARCH_KEYS: [&str; 30] = [
    "q",
    "offset",
    "limit",
    "page",
    "hitsPerPage",
    "attributesToRetrieve",
    "attributesToCrop",
    "cropLength",
    "cropMarker",
    "attributesToHighlight",
    "highlightPreTag",
    "highlightPostTag",
    "showMatchesPosition",
    "filter",
    "sort",
    "distinct",
    "facets",
    "matchingStrategy",
    "attributesToSearchOn",
    "rankingScoreThreshold",
    "locales",
    "hybrid",
    "vector",
    "retrieveVectors",
    "media",
    "personalize",
    "useNetwork",
    "showRankingScore",
    "showRankingScoreDetails",
    "showPerformanceDetails",
];

const SETTINGS_KEYS: [&str; 34] = [
    "displayedAttributes",
    "searchableAttributes",
    "filterableAttributes",
    "sortableAttributes",
    "rankingRules",
    "stopWords",
    "nonSeparatorTokens",
    "separatorTokens",
    "dictionary",
    "synonyms",
    "distinctAttribute",
    "proximityPrecision",
    "typoTolerance",
    "faceting",
    "pagination",
    "embedders",
    "searchCutoffMs",
    "localizedAttributes",
    "facetSearch",
    "prefixSearch",
    "attributePatterns",
    "features",
    "minWordSizeForTypos",
    "oneTypo",
    "twoTypos",
    "maxValuesPerFacet",
    "sortFacetValuesBy",
    "maxTotalHits",
    "locales",
    "source",
    "documentTemplate",
    "dimensions",
    "request",
    "*",
];

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        any::<String>().prop_map(Value::from),
        proptest::sample::select(vec![
            "a:asc",
            "_geoPoint(1,2):desc",
            "_geoPoint(",
            "a = 1",
            "NOT",
            "*",
            "words",
            "last",
            "all",
            "en",
            "eng",
            "{{doc.a}}",
            "{% for x in y %}",
            "rest",
            "userProvided",
            "byWord",
            "alpha",
            "count",
            "disabled",
            "",
        ])
        .prop_map(Value::from),
    ]
}

fn value(keys: &'static [&'static str]) -> impl Strategy<Value = Value> {
    leaf().prop_recursive(4, 32, 5, move |inner| {
        let members = proptest::collection::vec((proptest::sample::select(keys), inner.clone()), 0..5);
        prop_oneof![
            proptest::collection::vec(inner, 0..5).prop_map(Value::from),
            members.prop_map(|members| {
                members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>().into()
            }),
        ]
    })
}

fn body(keys: &'static [&'static str]) -> impl Strategy<Value = Value> {
    proptest::collection::vec((proptest::sample::select(keys), value(keys)), 0..4).prop_map(|members| {
        members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>().into()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn no_body_of_a_search_is_more_than_refused(body in body(&SEARCH_KEYS)) {
        let _ = SearchParams::from_body(&body);
    }

    #[test]
    fn no_settings_are_more_than_refused(body in body(&SETTINGS_KEYS)) {
        if let Ok(patch) = SettingsPatch::decode(&body) {
            let features =
                GatedFeatures { chat_completions: true, foreign_keys: true, composite_embedders: true, multimodal: true };
            let _ = patch.check_meaning(features);
            let _ = patch.apply(&Settings::default());
            let _ = patch.details();
        }
    }
}
