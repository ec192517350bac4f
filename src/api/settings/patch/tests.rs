//! Whole changes: what is accepted, what comes of it, what is shown.

use serde_json::json;

use super::super::{show_all, show_one};
use super::*;

fn patch(body: Value) -> SettingsPatch {
    SettingsPatch::decode(&body).unwrap_or_else(|error| panic!("{body}: {error}"))
}

fn applied(settings: &Settings, body: Value) -> Settings {
    patch(body).apply(settings).unwrap()
}

fn code(body: Value) -> &'static str {
    SettingsPatch::decode(&body).map_or_else(|error| error.code.name(), |_| "")
}

fn shown(settings: &Settings, key: &str) -> Value {
    show_one(Setting::of_key(key).unwrap(), settings)
}

/// Every setting refuses a value of another type with its own code, and takes null.
#[test]
fn each_setting_has_its_code() {
    for setting in SETTINGS {
        let wrong = if setting.key == "distinctAttribute" { json!(["x"]) } else { json!("x") };
        assert_eq!(code(json!({setting.key: wrong})), setting.code.name());
        assert_eq!(patch(json!({setting.key: null})), SettingsPatch::reset(setting));
        assert_eq!(setting.pattern, format!("/indexes/{{uid}}/settings/{}", setting.route));
    }
}

#[test]
fn values_are_checked_one_by_one() {
    for (body, wanted) in [
        (json!({"stopWords": 1, "zzz": 1}), "invalid_settings_stop_words"),
        (json!({"zzz": 1, "stopWords": 1}), "bad_request"),
        (json!([]), "bad_request"),
        (json!({"displayedAttributes": [null]}), "invalid_settings_displayed_attributes"),
        (json!({"filterableAttributes": [{"features": {}}]}), "invalid_settings_filterable_attributes"),
        (
            json!({"filterableAttributes": [{"attributePatterns": [], "features": null}]}),
            "invalid_settings_filterable_attributes",
        ),
        (json!({"filterableAttributes": [{"attributePatterns": []}]}), ""),
        (json!({"rankingRules": ["attribute", "wordPosition"]}), "invalid_settings_ranking_rules"),
        (json!({"rankingRules": ["words", "words"]}), ""),
        (json!({"synonyms": {"a": [null]}}), "invalid_settings_synonyms"),
        (
            json!({"typoTolerance": {"minWordSizeForTypos": {"oneTypo": 9, "twoTypos": 8}}}),
            "invalid_settings_typo_tolerance",
        ),
        (json!({"typoTolerance": {"minWordSizeForTypos": {"oneTypo": 12, "twoTypos": null}}}), ""),
        (json!({"faceting": {"sortFacetValuesBy": {"a": null}}}), "invalid_settings_faceting"),
        (json!({"pagination": {"maxTotalHits": 0}}), "invalid_settings_pagination"),
        (json!({"searchCutoffMs": u64::MAX}), ""),
        (json!({"localizedAttributes": [{"attributePatterns": [], "locales": [], "more": 1}]}), ""),
        (
            json!({"localizedAttributes": [{"attributePatterns": [], "locales": ["FR"]}]}),
            "invalid_settings_localized_attributes",
        ),
        (json!({"foreignKeys": [{"foreignIndexUid": "a"}]}), "invalid_settings_foreign_keys"),
        (json!({"chat": {"searchParameters": {"hybrid": {}}}}), "invalid_settings_index_chat"),
    ] {
        assert_eq!(code(body.clone()), wanted, "{body}");
    }
}

#[test]
fn details_show_what_was_sent_in_canonical_form() {
    let sent = json!({
        "sortableAttributes": ["b", "a", "b"],
        "searchableAttributes": null,
        "filterableAttributes": ["x", {"attributePatterns": ["t*"]}],
        "localizedAttributes": [{"attributePatterns": ["a"], "locales": ["fr"]}],
        "embedders": {"e": {"source": "openAi", "apiKey": "0123456789"}},
        "pagination": {"maxTotalHits": null},
    });
    let wanted = json!({
        "searchableAttributes": ["*"],
        "filterableAttributes": ["x", {"attributePatterns": ["t*"], "features":
            {"facetSearch": false, "filter": {"equality": true, "comparison": false}}}],
        "sortableAttributes": ["a", "b"],
        "pagination": {"maxTotalHits": null},
        "embedders": {"e": {"source": "openAi", "apiKey": "01XXXX..."}},
        "localizedAttributes": [{"attributePatterns": ["a"], "locales": ["fr"]}],
    });
    assert_eq!(Value::Object(patch(sent).details()), wanted);
    assert_eq!(SettingsPatch::reset_all().details().len(), SETTINGS.len());
}

#[test]
fn objects_merge_and_lists_are_replaced() {
    let first = applied(
        &Settings::default(),
        json!({
            "typoTolerance": {"enabled": false, "minWordSizeForTypos": {"oneTypo": 4}, "disableOnWords": ["Éclair"]},
            "faceting": {"maxValuesPerFacet": 7, "sortFacetValuesBy": {"a": "count"}},
            "stopWords": ["b", "ﬁ"],
        }),
    );
    let second = applied(
        &first,
        json!({
            "typoTolerance": {"enabled": null, "minWordSizeForTypos": {"twoTypos": 12}},
            "faceting": {"sortFacetValuesBy": {"b": "count"}},
            "stopWords": ["c"],
        }),
    );
    assert_eq!(shown(&first, "stopWords"), json!(["b", "fi"]));
    assert_eq!(shown(&second, "stopWords"), json!(["c"]));
    assert_eq!(
        shown(&second, "faceting"),
        json!({"maxValuesPerFacet": 7, "sortFacetValuesBy": {"*": "alpha", "b": "count"}})
    );
    assert_eq!(
        shown(&second, "typoTolerance"),
        json!({
            "enabled": true, "minWordSizeForTypos": {"oneTypo": 4, "twoTypos": 12}, "disableOnWords": ["eclair"],
            "disableOnAttributes": [], "disableOnNumbers": false,
        })
    );
    assert_eq!(SettingsPatch::reset_all().apply(&second).unwrap(), Settings::default());
}

#[test]
fn sizes_are_compared_with_the_stored_ones_in_the_task() {
    let settings =
        applied(&Settings::default(), json!({"typoTolerance": {"minWordSizeForTypos": {"oneTypo": 7, "twoTypos": 7}}}));
    let sizes = |one: Value, two: Value| {
        let body = json!({"typoTolerance": {"minWordSizeForTypos": {"oneTypo": one, "twoTypos": two}}});
        patch(body).apply(&settings).map(drop).map_err(|error| error.code)
    };
    assert_eq!(sizes(json!(10), Value::Null), Err("invalid_settings_typo_tolerance"));
    assert_eq!(sizes(json!(6), Value::Null), Ok(()));
}

#[test]
fn empty_and_null_differ_where_they_should() {
    let settings = applied(
        &Settings::default(),
        json!({
            "searchableAttributes": ["title", "*"], "displayedAttributes": [], "rankingRules": [], "localizedAttributes": [],
        }),
    );
    assert_eq!(shown(&settings, "searchableAttributes"), json!(["*"]));
    assert_eq!(shown(&settings, "displayedAttributes"), json!([]));
    assert_eq!(shown(&settings, "rankingRules"), json!([]));
    assert_eq!(shown(&settings, "localizedAttributes"), json!([]));
    assert_eq!(shown(&Settings::default(), "localizedAttributes"), Value::Null);
}

/// Synonyms read back as they were first written while their meaning stays the same.
#[test]
fn synonyms_of_the_same_meaning_keep_their_text() {
    let first = applied(&Settings::default(), json!({"synonyms": {"Car": ["Automobile"]}}));
    let same = applied(&first, json!({"synonyms": {"car": ["automobile"]}}));
    assert_eq!(shown(&same, "synonyms"), json!({"Car": ["Automobile"]}));
    assert_eq!(shown(&applied(&same, json!({"synonyms": {}})), "synonyms"), json!({}));
}

#[test]
fn gated_values_need_their_feature() {
    let refused = |body: Value| patch(body).check_meaning(GatedFeatures::default()).map_err(|error| error.code.name());
    let gated = Err("feature_not_enabled");
    assert_eq!(refused(json!({"chat": {}})), gated);
    assert_eq!(refused(json!({"chat": null, "foreignKeys": null})), Ok(()));
    assert_eq!(refused(json!({"foreignKeys": []})), gated);
    assert_eq!(refused(json!({"embedders": {"e": {"source": "composite"}}})), gated);
    assert_eq!(refused(json!({"embedders": {"e": {"source": "rest", "searchEmbedder": {"source": "rest"}}}})), gated);
    assert_eq!(refused(json!({"embedders": {"e": {"searchFragments": {"words": null}}}})), gated);
    assert_eq!(refused(json!({"embedders": {"e": {"searchFragments": null}}})), Ok(()));
    let all = show_all(&Settings::default(), GatedFeatures::default());
    assert!(all.get("chat").is_none() && all.get("foreignKeys").is_none() && all.get("prefixSearch").is_some());
}

#[test]
fn chat_merges_its_search_parameters() {
    let first = applied(
        &Settings::default(),
        json!({"chat": {"description": "d", "searchParameters": {"limit": 2, "sort": ["a:asc"]}}}),
    );
    let second = applied(&first, json!({"chat": {"searchParameters": {"limit": null}}}));
    assert_eq!(shown(&second, "chat")["searchParameters"], json!({"sort": ["a:asc"]}));
    assert_eq!(shown(&second, "chat")["description"], json!("d"));
    let zero = patch(json!({"chat": {"documentTemplateMaxBytes": 0}})).apply(&first);
    assert_eq!(zero.unwrap_err().code, "invalid_settings_embedders");
}

#[test]
fn details_of_a_batch_merge_like_the_settings() {
    let first = patch(json!({"typoTolerance": {"enabled": true}, "stopWords": ["a"]}));
    let second = patch(json!({"typoTolerance": {"disableOnNumbers": true}, "stopWords": ["b"]}));
    let both = first.followed_by(&second);
    assert_eq!(both, patch(json!({"typoTolerance": {"enabled": true, "disableOnNumbers": true}, "stopWords": ["b"]})));
}
