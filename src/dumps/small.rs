//! The small records of a dump: its metadata, API keys, and index metadata.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use shards::settings::Settings;
use shards::timestamp::Timestamp;
use time::OffsetDateTime;
use uuid::Uuid;

use super::known::only_known;
use super::{FORMAT, INTERFACE_VERSION};
use crate::api;
use crate::api::settings::{GatedFeatures, Setting, SettingsPatch, export_all};
use crate::auth::{ActionName, ApiKey, IndexPattern};
use crate::chats::{ChatAccess, ChatPrompts, ChatSettings};
use crate::search_rules::SearchRule;
use crate::webhooks::Webhooks;

/// The longest name of a workspace that is also that of its file: with an end it must be one.
const FILE_NAME_BYTES_MAX: usize = 200;
/// Where a workspace's file holds the name, and that of a rule its own.
const UID: &str = "uid";
/// Where a workspace's file holds the prompts.
const PROMPTS: &str = "prompts";
/// What else the file of a rule holds.
const RULE_FIELDS: [&str; 5] = ["description", "priority", "active", "conditions", "actions"];

/// What a dump says of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// The version of the format.
    pub dump_version: String,
    /// The version of the server that wrote it.
    #[serde(default)]
    pub db_version: String,
    /// When it was made.
    #[serde(default)]
    pub dump_date: Option<String>,
}

impl Metadata {
    /// That of a dump made now.
    pub fn of(date: Timestamp) -> Self {
        Self { dump_version: FORMAT.into(), db_version: INTERFACE_VERSION.into(), dump_date: Some(date.to_string()) }
    }
}

/// A key as dumps have it: without its value.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeyLine {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    uid: Uuid,
    actions: Vec<ActionName>,
    indexes: Vec<IndexPattern>,
    #[serde(with = "time::serde::rfc3339::option")]
    expires_at: Option<OffsetDateTime>,
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    updated_at: OffsetDateTime,
}

impl From<ApiKey> for KeyLine {
    fn from(key: ApiKey) -> Self {
        let ApiKey { uid, name, description, actions, indexes, expires_at, created_at, updated_at } = key;
        Self { description, name, uid, actions, indexes, expires_at, created_at, updated_at }
    }
}

impl From<KeyLine> for ApiKey {
    fn from(line: KeyLine) -> Self {
        let KeyLine { description, name, uid, actions, indexes, expires_at, created_at, updated_at } = line;
        Self { uid, name, description, actions, indexes, expires_at, created_at, updated_at }
    }
}

/// What a dump says of an index.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IndexLine {
    /// Its name.
    pub uid: String,
    /// Its primary key.
    pub primary_key: Option<String>,
    /// RFC 3339.
    pub created_at: String,
    /// RFC 3339.
    pub updated_at: String,
}

/// The webhooks of an instance, without that of its command line.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WebhooksFile {
    /// By uid.
    #[serde(default)]
    pub webhooks: Webhooks,
}

/// All settings, with their secrets in clear.
pub fn settings_value(settings: &Settings) -> Value {
    let mut shown = export_all(settings, GatedFeatures::default());
    if let Value::Object(shown) = &mut shown {
        if let Some(chat) = &settings.chat {
            shown.insert("chat".into(), chat.clone());
        }
        if !settings.foreign_keys.is_empty() {
            let keys = serde_json::to_value(&settings.foreign_keys).unwrap_or_default();
            shown.insert("foreignKeys".into(), keys);
        }
    }
    shown
}

/// The settings that a dump gives to an index; what it leaves out has its default.
///
/// # Errors
/// What is wrong with them, for people.
pub fn settings_of(value: &Value) -> Result<Settings, String> {
    settings_patch(value)?.apply(&Settings::default()).map_err(|error| error.message)
}

/// A change of settings. Versions before this one had settings that are gone, and later ones have others.
///
/// # Errors
/// What is wrong with it, for people.
pub fn settings_patch(value: &Value) -> Result<SettingsPatch, String> {
    let known = only_known(value.clone(), "settings", |name| Setting::of_key(name).is_some());
    SettingsPatch::decode(&known).map_err(|error| error.message)
}

/// The name of a workspace's file, without its end, and what it holds. The reference knows a workspace by its file alone. One may
/// have a name that no file can have: then the file is named by a digest and holds the name too.
pub fn chat_file(name: &str, settings: &ChatSettings) -> (String, Value) {
    let mut value = api::chats::export(settings);
    if is_file_name(name) {
        return (name.to_owned(), value);
    }
    value[UID] = name.into();
    (hex::encode(Sha256::digest(name)), value)
}

/// Whether a file within a folder can have this name.
fn is_file_name(name: &str) -> bool {
    (1..=FILE_NAME_BYTES_MAX).contains(&name.len())
        && !name.starts_with('.')
        && !name.contains(|c: char| matches!(c, '/' | '\\') || c.is_control())
}

/// The workspace in a file of this name.
///
/// # Errors
/// What is wrong with it, for people.
pub fn chat_of(file: &str, mut value: Value) -> Result<(String, ChatSettings), String> {
    let own = value.as_object_mut().and_then(|object| object.shift_remove(UID));
    let is_known = |name: &str| ["source", PROMPTS].contains(&name) || ChatAccess::NAMES.contains(&name);
    let mut value = only_known(value, "a workspace of chats", is_known);
    if let Some(prompts) = value.get_mut(PROMPTS) {
        *prompts = only_known(prompts.take(), "prompts", |name| ChatPrompts::NAMES.contains(&name));
    }
    let name = own.as_ref().and_then(Value::as_str).unwrap_or(file);
    let settings = api::chats::import(name, &value).map_err(|error| error.message)?;
    Ok((name.to_owned(), settings))
}

/// The rule that a file holds.
///
/// # Errors
/// What is wrong with it, for people.
pub fn rule_of(value: Value) -> Result<SearchRule, String> {
    let known = only_known(value, "a search rule", |name| name == UID || RULE_FIELDS.contains(&name));
    api::search_rules::import(known).map_err(|error| error.message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// One field of another version once made the whole dump useless.
    #[test]
    fn fields_of_other_versions_are_left_out() {
        let settings = settings_of(&json!({"vectorStore": "experimental", "stopWords": ["the"]})).unwrap();
        assert_eq!(settings, settings_of(&json!({"stopWords": ["the"]})).unwrap());
        assert!(settings_of(&json!({"typoTolerance": {"later": 1}})).is_err(), "inside a setting all counts");
        let chat = json!({"source": "openAi", "apiKey": "k", "later": 1, "prompts": {"system": "s", "later": "x"}});
        let known = json!({"source": "openAi", "apiKey": "k", "prompts": {"system": "s"}});
        assert_eq!(chat_of("w", chat).unwrap(), chat_of("w", known).unwrap());
        let rule = json!({"uid": "r", "active": true, "conditions": [], "later": null,
            "actions": [{"selector": {"indexUid": "i", "id": "1"}, "action": {"type": "pin", "position": 0}}]});
        assert_eq!(rule_of(rule).unwrap().uid, "r");
        assert!(rule_of(json!({"active": true})).is_err(), "it has no name");
    }

    #[test]
    fn settings_come_back_with_their_secrets() {
        let value = json!({
            "searchableAttributes": ["a", "b.c"],
            "filterableAttributes": ["a", {"attributePatterns": ["x*"], "features": {"facetSearch": false,
                "filter": {"equality": true, "comparison": true}}}],
            "sortableAttributes": ["a"],
            "rankingRules": ["words", "a:asc"],
            "stopWords": ["the"],
            "synonyms": {"a": ["b"]},
            "distinctAttribute": "a",
            "proximityPrecision": "byAttribute",
            "typoTolerance": {"minWordSizeForTypos": {"oneTypo": 3, "twoTypos": 8}, "disableOnWords": ["x"]},
            "faceting": {"maxValuesPerFacet": 7, "sortFacetValuesBy": {"a": "count"}},
            "pagination": {"maxTotalHits": 17},
            "embedders": {"e": {"source": "rest", "url": "http://h.example", "apiKey": "a-very-secret-key-indeed",
                "dimensions": 3, "request": {"input": "{{text}}"}, "response": {"embedding": "{{embedding}}"}}},
            "searchCutoffMs": 150,
            "localizedAttributes": [{"attributePatterns": ["*"], "locales": ["jpn"]}],
            "facetSearch": false,
            "prefixSearch": "disabled",
            "chat": {"description": "d"},
            "foreignKeys": [{"foreignIndexUid": "f", "fieldName": "n"}],
        });
        let settings = settings_of(&value).unwrap();
        let dumped = settings_value(&settings);
        assert_eq!(dumped["embedders"]["e"]["apiKey"], "a-very-secret-key-indeed");
        assert_eq!(settings_of(&dumped).unwrap(), settings);
        assert_eq!(settings_of(&json!({})).unwrap(), Settings::default());
        assert_eq!(settings_of(&settings_value(&Settings::default())).unwrap(), Settings::default());
        assert!(settings_of(&json!({"rankingRules": 1})).is_err());
    }

    #[test]
    fn workspaces_come_back_whatever_their_names() {
        let settings = json!({"source": "vLlm", "baseUrl": "http://h.example/v1", "apiKey": "a-secret",
            "prompts": {"system": "Be short."}});
        let settings = api::chats::import("w", &settings).unwrap();
        let long = "w".repeat(300);
        for name in ["support", "é x", "../up", "a b/c", "", "..", "a\0", &long] {
            let (file, value) = chat_file(name, &settings);
            assert!(is_file_name(&file), "{file}");
            assert_eq!(file == name, ["support", "é x"].contains(&name), "{file}");
            assert_eq!(value["apiKey"], "a-secret");
            assert_eq!(value["prompts"]["system"], "Be short.");
            assert_ne!(value["prompts"]["searchDescription"], Value::Null);
            assert_eq!(chat_of(&file, value).unwrap(), (name.to_owned(), settings.clone()));
        }
        assert!(chat_of("w", json!({"source": "vLlm"})).is_err());
    }

    #[test]
    fn keys_come_back() {
        let text = r#"{"name":"n","uid":"7d1c0000-0000-4000-8000-0000000000aa","actions":["search","*.get"],"indexes":["fi*"],"expires_at":"2030-01-01T00:00:00Z","created_at":"2023-01-01T00:00:00Z","updated_at":"2023-01-02T00:00:00Z"}"#;
        let line: KeyLine = serde_json::from_str(text).unwrap();
        let key = ApiKey::from(line);
        assert_eq!(key.description, None);
        assert_eq!(serde_json::to_string(&KeyLine::from(key)).unwrap(), text);
    }
}
