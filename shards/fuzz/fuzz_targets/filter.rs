//! Parses any text as a filter, as an expression and as a parameter, and checks what parsed against features and settings.
#![no_main]

use libfuzzer_sys::fuzz_target;
use shards::facets::{FilterFeatureSet, parse_filter_parameter, parse_filter_text};
use shards::settings::Settings;

fuzz_target!(|text: &str| {
    let parsed = [parse_filter_text(text, "code"), parse_filter_parameter(text, "code")];
    for filter in parsed.into_iter().flatten().flatten() {
        let _ = filter.check_features(&FilterFeatureSet::default());
        let _ = filter.check_attributes(&Settings::default());
    }
});
