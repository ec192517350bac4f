//! Embedders: tables of bodies with what becomes of them.

use super::super::{GatedFeatures, SettingsPatch, show};
use super::*;

const ALL: GatedFeatures =
    GatedFeatures { chat_completions: true, foreign_keys: true, composite_embedders: true, multimodal: true };

fn decoded(body: &Value) -> Result<SettingsPatch, ApiError> {
    SettingsPatch::decode(&json!({"embedders": body}))
}

/// What a request with this embedder `e` is answered: a code, or "" when it is accepted.
fn at_request(embedder: Value) -> &'static str {
    let result = decoded(&json!({"e": embedder})).and_then(|patch| patch.check_meaning(ALL));
    result.map_or_else(|error| error.code.name(), |()| "")
}

/// The settings after a change of embedder `e`, or the code with which the task fails.
fn in_task(settings: &Settings, embedder: Value) -> Result<Settings, &'static str> {
    let patch = decoded(&json!({"e": embedder})).unwrap();
    patch.check_meaning(ALL).unwrap();
    patch.apply(settings).map_err(|error| error.code)
}

fn with(embedder: Value) -> Settings {
    in_task(&Settings::default(), embedder).unwrap()
}

fn shown(settings: &Settings) -> Value {
    show::embedders(settings)["e"].clone()
}

fn rest(more: Value) -> Value {
    let mut embedder = json!({"source": "rest", "url": "http://127.0.0.1:9/x", "dimensions": 4,
        "request": {"input": ["{{text}}", "{{..}}"]}, "response": {"data": ["{{embedding}}", "{{..}}"]}});
    for (field, value) in more.as_object().unwrap() {
        embedder[field] = value.clone();
    }
    embedder
}

const SETTINGS_CODE: &str = "invalid_settings_embedders";
const EMBEDDING_CODE: &str = "vector_embedding_error";

#[test]
fn bodies_are_checked_at_the_request() {
    for (embedder, wanted) in [
        (json!({"size": 3}), SETTINGS_CODE),
        (json!({"source": "magic"}), SETTINGS_CODE),
        (json!({"source": "userProvided"}), SETTINGS_CODE),
        (json!({"source": "userProvided", "dimensions": 2}), ""),
        (json!({"source": "userProvided", "dimensions": 0}), SETTINGS_CODE),
        (json!({"source": "userProvided", "dimensions": 65536}), ""),
        (json!({"source": "userProvided", "dimensions": 65537}), SETTINGS_CODE),
        (json!({"source": "userProvided", "dimensions": 2, "model": null}), SETTINGS_CODE),
        (json!({"source": "openAi", "model": "gpt"}), SETTINGS_CODE),
        (json!({"source": "openAi", "dimensions": 1537}), SETTINGS_CODE),
        (json!({"source": "openAi", "model": "text-embedding-ada-002", "dimensions": 1000}), SETTINGS_CODE),
        (json!({"source": "openAi", "request": {}}), EMBEDDING_CODE),
        (json!({"source": "ollama", "model": "m", "url": "http://localhost/x"}), ""),
        (json!({"source": "ollama", "model": "m", "url": "/x"}), SETTINGS_CODE),
        (json!({"documentTemplate": "{{doc.t"}), SETTINGS_CODE),
        (json!({"documentTemplate": "x", "documentTemplateMaxBytes": 0}), SETTINGS_CODE),
        (json!({"documentTemplateMaxBytes": 0}), ""),
        (json!({"url": "not a url"}), SETTINGS_CODE),
        (json!({"url": "http://h:99999"}), SETTINGS_CODE),
        (json!({"url": "http:h"}), ""),
        (json!({"distribution": {"mean": 0.5}}), SETTINGS_CODE),
        (json!({"distribution": {"mean": 0.5, "sigma": 0}}), SETTINGS_CODE),
        (json!({"model": "m"}), ""),
        (rest(json!({})), ""),
        (rest(json!({"request": null})), SETTINGS_CODE),
        (rest(json!({"request": 3})), EMBEDDING_CODE),
        (rest(json!({"response": "{{embedding}}"})), EMBEDDING_CODE),
        (rest(json!({"indexingFragments": {"a": {"value": "{{doc.t"}}})), EMBEDDING_CODE),
        (rest(json!({"indexingFragments": {"a": "x"}})), SETTINGS_CODE),
        // Of several mistakes one in a single field comes first, then one in the request, then one of the table.
        (rest(json!({"request": 3, "dimensions": 0})), SETTINGS_CODE),
        (rest(json!({"request": 3, "model": "m"})), EMBEDDING_CODE),
        (rest(json!({"request": null, "response": 3})), SETTINGS_CODE),
        (json!({"response": 3}), ""),
        (json!({"request": "{{text}}", "indexingFragments": {"a": null}}), ""),
        (json!({"indexingFragments": {"a": {"value": "{{doc.t"}}}), ""),
        (json!({"searchEmbedder": {"source": "composite"}}), ""),
        (
            json!({"source": "composite", "searchEmbedder": rest(json!({})), "indexingEmbedder": rest(json!({"request": 3, "url": "/x"}))}),
            "",
        ),
        (json!({"source": "composite", "searchEmbedder": rest(json!({}))}), SETTINGS_CODE),
        (json!({"source": "composite", "searchEmbedder": {}, "indexingEmbedder": rest(json!({}))}), SETTINGS_CODE),
        (json!({"source": "composite", "searchEmbedder": rest(json!({})), "indexingEmbedder": rest(json!({}))}), ""),
        (
            json!({"source": "composite", "searchEmbedder": rest(json!({"documentTemplate": "x"})),
            "indexingEmbedder": rest(json!({}))}),
            SETTINGS_CODE,
        ),
        (
            json!({"source": "composite", "searchEmbedder": rest(json!({})),
            "indexingEmbedder": rest(json!({"binaryQuantized": true}))}),
            SETTINGS_CODE,
        ),
    ] {
        assert_eq!(at_request(embedder.clone()), wanted, "{embedder}");
    }
    let unnamed = decoded(&json!({"": {"source": "userProvided", "dimensions": 2}})).unwrap().check_meaning(ALL);
    assert_eq!(unnamed.unwrap_err().code, CODE);
}

#[test]
fn what_only_the_merged_embedder_shows_fails_the_task() {
    let own = with(json!({"source": "userProvided", "dimensions": 4}));
    for (change, wanted) in [
        (json!({"model": "m"}), SETTINGS_CODE),
        (json!({"documentTemplate": "{{doc.t}}"}), SETTINGS_CODE),
        (json!({"dimensions": null}), SETTINGS_CODE),
    ] {
        assert_eq!(in_task(&own, change.clone()).unwrap_err(), wanted, "{change}");
    }
    assert_eq!(in_task(&Settings::default(), json!({"searchFragments": null})).unwrap_err(), SETTINGS_CODE);
    assert_eq!(in_task(&Settings::default(), json!({"response": 3})).unwrap_err(), SETTINGS_CODE);
    assert_eq!(in_task(&with(rest(json!({}))), json!({"response": 3})).unwrap_err(), EMBEDDING_CODE);
    let half = json!({"indexingFragments": {"a": {"value": "{{doc.t"}}});
    assert_eq!(in_task(&own, half).unwrap_err(), EMBEDDING_CODE);
    let ollama = json!({"source": "ollama", "model": "m", "url": "http://localhost/x"});
    assert_eq!(in_task(&Settings::default(), ollama).unwrap_err(), EMBEDDING_CODE);
    let side = json!({"source": "composite", "searchEmbedder": rest(json!({})), "indexingEmbedder": rest(json!({"url": "/x"}))});
    assert_eq!(in_task(&Settings::default(), side).unwrap_err(), EMBEDDING_CODE);
    let fragments = json!({"request": {"input": "{{fragment}}"}, "response": "{{embedding}}", "indexingFragments": {"a": {"value": "x"}}});
    assert_eq!(in_task(&Settings::default(), rest(fragments)).unwrap_err(), EMBEDDING_CODE);
}

#[test]
fn quantization_is_not_taken_back() {
    let quantized = with(json!({"source": "userProvided", "dimensions": 4, "binaryQuantized": true}));
    assert_eq!(in_task(&quantized, json!({"binaryQuantized": false})).unwrap_err(), SETTINGS_CODE);
    let reset = in_task(&quantized, json!({"binaryQuantized": null})).unwrap();
    assert_eq!(shown(&reset), json!({"source": "userProvided", "dimensions": 4}));
}

#[test]
fn a_new_embedder_is_an_open_ai_one_with_its_defaults() {
    let wanted = json!({"source": "openAi", "model": "text-embedding-3-small", "documentTemplate": DEFAULT_TEMPLATE,
        "documentTemplateMaxBytes": 400});
    assert_eq!(shown(&with(json!({}))), wanted);
    let back = in_task(&with(json!({"model": "text-embedding-3-large"})), json!({"model": null})).unwrap();
    assert_eq!(shown(&back), wanted);
}

#[test]
fn a_change_of_source_drops_what_belongs_to_the_old_one() {
    let first = with(rest(json!({"headers": {"X-A": "1"}, "apiKey": "secretsecret", "documentTemplate": "{{doc.t}}",
        "documentTemplateMaxBytes": 99, "distribution": {"mean": 0.5, "sigma": 0.3}})));
    let second = in_task(&first, json!({"source": "openAi"})).unwrap();
    assert_eq!(
        shown(&second),
        json!({"source": "openAi", "model": "text-embedding-3-small", "apiKey": "seXXXX...",
        "documentTemplate": "{{doc.t}}", "documentTemplateMaxBytes": 99, "distribution": {"mean": 0.5, "sigma": 0.3}})
    );
    // The key stays whatever the source, and userProvided does not take one.
    assert_eq!(in_task(&second, json!({"source": "userProvided", "dimensions": 4})).unwrap_err(), SETTINGS_CODE);
}

#[test]
fn sizes_without_a_template_are_ignored_at_first() {
    let first = with(rest(json!({"documentTemplate": "{{doc.t}}"})));
    let second = in_task(&first, json!({"documentTemplate": null, "documentTemplateMaxBytes": 90})).unwrap();
    assert_eq!(
        (&shown(&second)["documentTemplate"], &shown(&second)["documentTemplateMaxBytes"]),
        (&json!(DEFAULT_TEMPLATE), &json!(400))
    );
    let third = in_task(&second, json!({"documentTemplateMaxBytes": 90})).unwrap();
    assert_eq!(shown(&third)["documentTemplateMaxBytes"], json!(90));
    assert_eq!(shown(&with(json!({"documentTemplateMaxBytes": 30})))["documentTemplateMaxBytes"], json!(400));
}

#[test]
fn fragments_merge_by_name() {
    let both = rest(json!({"request": {"input": "{{fragment}}"}, "response": "{{embedding}}",
        "indexingFragments": {"a": {"value": "{{doc.t}}"}}, "searchFragments": {"b": {"value": "{{q}}"}}}));
    let first = with(both);
    assert!(shown(&first).get("documentTemplate").is_none());
    let second = in_task(&first, json!({"indexingFragments": {"a": null, "c": {"value": 1}}})).unwrap();
    assert_eq!(shown(&second)["indexingFragments"], json!({"c": {"value": 1}}));
    assert_eq!(in_task(&second, json!({"indexingFragments": {"c": null}})).unwrap_err(), EMBEDDING_CODE);
    let none = json!({"indexingFragments": null, "searchFragments": null});
    assert_eq!(in_task(&second, none).unwrap_err(), EMBEDDING_CODE);
    let text = json!({"indexingFragments": null, "searchFragments": null, "request": "{{text}}"});
    assert_eq!(shown(&in_task(&second, text).unwrap())["documentTemplate"], json!(DEFAULT_TEMPLATE));
}

/// An embedder with a template of its own once could not be given fragments.
#[test]
fn fragments_take_the_place_of_a_template() {
    let first = with(rest(json!({"documentTemplate": "{{doc.t}}", "documentTemplateMaxBytes": 7})));
    let fragments = json!({"request": "{{fragment}}", "response": "{{embedding}}",
        "indexingFragments": {"a": {"value": "x", "more": 1}}, "searchFragments": {"b": {"value": "y"}}});
    let second = in_task(&first, fragments).unwrap();
    assert_eq!(shown(&second)["indexingFragments"], json!({"a": {"value": "x"}}));
    assert!(shown(&second).get("documentTemplate").is_none());
    assert!(shown(&second).get("documentTemplateMaxBytes").is_none());
    let back = json!({"request": "{{text}}", "indexingFragments": null, "searchFragments": null});
    let third = in_task(&second, back).unwrap();
    assert_eq!(shown(&third)["documentTemplate"], json!(DEFAULT_TEMPLATE));
    assert_eq!(shown(&third)["documentTemplateMaxBytes"], json!(400));
}

#[test]
fn nested_embedders_show_their_keys_and_defaults() {
    let composite = with(json!({"source": "composite", "searchEmbedder": rest(json!({"apiKey": "0123456789"})),
        "indexingEmbedder": rest(json!({}))}));
    let shown = shown(&composite);
    assert_eq!(shown["searchEmbedder"]["apiKey"], json!("0123456789"));
    // Each side shows the defaults of its own, and only the indexing side has a template.
    assert_eq!((&shown["searchEmbedder"]["headers"], &shown["indexingEmbedder"]["headers"]), (&json!({}), &json!({})));
    assert!(shown["searchEmbedder"].get("documentTemplate").is_none());
    assert_eq!(shown["indexingEmbedder"]["documentTemplateMaxBytes"], json!(400));
}
