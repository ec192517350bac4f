//! Cuts any text as a query and draws its graph, under settings that use every part of the parser.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use shards::fields::FieldsMap;
use shards::search::{MatchingStrategy, Planner, SearchRequest};
use shards::settings::Settings;
use shards::text::TextTokenizer;

thread_local! {
    static PLANNER: (Settings, Planner) = {
        let settings: Settings = serde_json::from_str(
            r##"{"stopWords": ["the", "of"], "synonyms": {"new york": ["ny", "big apple"]}, "separatorTokens": ["&"],
                "nonSeparatorTokens": ["#"], "dictionary": ["j.k."]}"##,
        )
        .expect("they are settings");
        let planner = Planner::new(&settings, Arc::new(TextTokenizer::new(&settings)), None);
        (settings, planner)
    };
}

fuzz_target!(|text: &str| {
    PLANNER.with(|(settings, planner)| {
        for matching_strategy in [MatchingStrategy::Last, MatchingStrategy::All, MatchingStrategy::Frequency] {
            let request = SearchRequest { query: Some(text.into()), matching_strategy, ..SearchRequest::default() };
            let graph = planner.sketch(&request, settings, &FieldsMap::default());
            assert!(graph.term_count <= 10);
        }
    });
});
