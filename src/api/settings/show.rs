//! Settings as clients read them.

use serde::Serialize;
use serde_json::{Map, Value, json};
use shards::settings::Settings;

use super::mask::mask_embedders;
use super::{DEFAULT_TEMPLATE, DEFAULT_TEMPLATE_BYTES, GatedFeatures, SETTINGS, Setting};

/// The whole. Settings whose experimental feature is off are left out.
pub fn show_all(settings: &Settings, features: GatedFeatures) -> Value {
    let shown = |setting: &&Setting| match setting.key {
        "chat" => features.chat_completions,
        "foreignKeys" => features.foreign_keys,
        _ => true,
    };
    let entries = SETTINGS.iter().filter(shown).map(|setting| (setting.key.to_string(), show_one(setting, settings)));
    Value::Object(entries.collect())
}

/// The whole as another server is to take it over: secrets in clear.
pub fn export_all(settings: &Settings, features: GatedFeatures) -> Value {
    let mut all = show_all(settings, features);
    all["embedders"] = json(&settings.embedders);
    all
}

/// One setting, as a bare value.
pub fn show_one(setting: &Setting, settings: &Settings) -> Value {
    (setting.show)(settings)
}

pub(super) fn json(value: &impl Serialize) -> Value {
    // Settings are lists, maps with string keys and scalars, all of which JSON holds.
    serde_json::to_value(value).unwrap_or_default()
}

pub(super) fn embedders(settings: &Settings) -> Value {
    let mut embedders = json(&settings.embedders);
    mask_embedders(&mut embedders);
    embedders
}

/// The settings `chat` whole. Only what was set is stored; the rest shows its default.
pub fn chat(settings: &Settings) -> Value {
    let mut shown = json!({
        "description": "",
        "documentTemplate": DEFAULT_TEMPLATE,
        "documentTemplateMaxBytes": DEFAULT_TEMPLATE_BYTES,
        "searchParameters": Map::new(),
    });
    for (name, value) in settings.chat.iter().filter_map(Value::as_object).flatten() {
        shown[name] = value.clone();
    }
    shown
}
