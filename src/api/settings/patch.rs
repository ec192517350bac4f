//! A change to the settings of an index, from the request to the task.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use shards::error::UserError;
use shards::settings::Settings;

use super::mask::mask_embedders;
use super::{SETTINGS, Setting, embedders};
use crate::api::decode::Node;
use crate::api::error::{ApiError, ErrorCode};

/// Settings whose values are merged by field, with how many levels of names are merged.
const MERGED: [(&str, usize); 5] =
    [("typoTolerance", 2), ("faceting", 1), ("pagination", 1), ("embedders", 2), ("chat", 2)];

/// The settings that a client sent, checked, in canonical form: only the keys that were sent, null for those taken back.
/// Serialized, it is kept with the task; it holds secrets, which [`SettingsPatch::details`] hides. A clone is the same one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SettingsPatch(Arc<Map<String, Value>>);

/// The experimental features that some settings need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatedFeatures {
    /// `chat`
    pub chat_completions: bool,
    /// `foreignKeys`
    pub foreign_keys: bool,
    /// Embedders made of two.
    pub composite_embedders: bool,
    /// Fragments of embedders.
    pub multimodal: bool,
}

impl SettingsPatch {
    /// Reads the body of `PATCH /indexes/{uid}/settings`.
    ///
    /// # Errors
    /// `bad_request` for a body that is no object or an unknown key, else the code of the setting at fault.
    pub fn decode(body: &Value) -> Result<Self, ApiError> {
        let mut sent = Map::new();
        for field in Node::body(body).fields(ErrorCode::BadRequest)? {
            let setting = Setting::of_key(field.name()).ok_or_else(|| field.unknown(ErrorCode::BadRequest))?;
            sent.insert(setting.key.into(), checked(setting, &field)?);
        }
        let in_order = SETTINGS.iter().filter_map(|setting| sent.shift_remove_entry(setting.key));
        Ok(Self(Arc::new(in_order.collect())))
    }

    /// Reads the body of a setting's own route: the bare value.
    ///
    /// # Errors
    /// The setting's code.
    pub fn decode_one(setting: &Setting, body: &Value) -> Result<Self, ApiError> {
        let value = checked(setting, &Node::body(body))?;
        Ok(Self(Arc::new(Map::from_iter([(setting.key.to_string(), value)]))))
    }

    /// Takes one setting back to its default.
    pub fn reset(setting: &Setting) -> Self {
        Self(Arc::new(Map::from_iter([(setting.key.to_string(), Value::Null)])))
    }

    /// Takes every setting back to its default.
    pub fn reset_all() -> Self {
        Self(Arc::new(SETTINGS.iter().map(|setting| (setting.key.to_string(), Value::Null)).collect()))
    }

    /// Checks what needs more than types: experimental features first, then what embedders mean.
    ///
    /// # Errors
    /// `feature_not_enabled`, `invalid_settings_embedders`, `vector_embedding_error`.
    pub fn check_meaning(&self, features: GatedFeatures) -> Result<(), ApiError> {
        let set = |key: &str| self.0.get(key).filter(|value| !value.is_null());
        if set("chat").is_some() && !features.chat_completions {
            return Err(ApiError::feature_not_enabled("Setting `chat`", "chatCompletions"));
        }
        if set("foreignKeys").is_some() && !features.foreign_keys {
            return Err(ApiError::feature_not_enabled("Setting `foreignKeys`", "foreignKeys"));
        }
        let Some(embedders) = set("embedders") else { return Ok(()) };
        for embedder in embedders.as_object().into_iter().flat_map(Map::values) {
            let set = |field: &str| embedder.get(field).is_some_and(|value| !value.is_null());
            let composite = embedder.get("source").and_then(Value::as_str) == Some("composite");
            if (composite || set("searchEmbedder") || set("indexingEmbedder")) && !features.composite_embedders {
                return Err(ApiError::feature_not_enabled("A composite embedder", "compositeEmbedders"));
            }
            if (set("indexingFragments") || set("searchFragments")) && !features.multimodal {
                return Err(ApiError::feature_not_enabled("An embedder with fragments", "multimodal"));
            }
        }
        embedders::check_meaning(embedders)
    }

    /// The settings that come of this change.
    ///
    /// # Errors
    /// What only the merged settings show: `invalid_settings_typo_tolerance`, `invalid_settings_embedders`,
    /// `vector_embedding_error`. Nothing is changed then.
    pub fn apply(&self, settings: &Settings) -> Result<Settings, UserError> {
        let mut changed = settings.clone();
        // The table's order has separators, dictionary and stop words before the synonyms that are read with them.
        for setting in SETTINGS {
            if let Some(value) = self.0.get(setting.key) {
                (setting.apply)(&mut changed, value)?;
            }
        }
        changed.note_synonym_stop_words(settings);
        Ok(changed)
    }

    /// The change as a task shows it: what was sent, keys of embedders hidden.
    pub fn details(&self) -> Map<String, Value> {
        let mut details = Map::clone(&self.0);
        for (key, value) in &mut details {
            match key.as_str() {
                "displayedAttributes" | "searchableAttributes" if value.is_null() => *value = vec!["*"].into(),
                "embedders" => mask_embedders(value),
                _ => {}
            }
        }
        details
    }

    /// This change followed by `later`, for the details of a batch of both.
    pub fn followed_by(mut self, later: &Self) -> Self {
        let merged = Arc::make_mut(&mut self.0);
        for (key, value) in &*later.0 {
            let depth = MERGED.iter().find(|(name, _)| name == key).map_or(0, |(_, depth)| *depth);
            merge(merged.entry(key).or_insert(Value::Null), value, depth);
        }
        self
    }
}

fn checked(setting: &Setting, node: &Node<'_>) -> Result<Value, ApiError> {
    Ok(node.nullable(|node| (setting.check)(node, setting.code))?.unwrap_or(Value::Null))
}

fn merge(earlier: &mut Value, later: &Value, depth: usize) {
    match (earlier, later) {
        (Value::Object(fields), Value::Object(changes)) if depth > 0 => {
            for (name, value) in changes {
                merge(fields.entry(name).or_insert(Value::Null), value, depth - 1);
            }
        }
        (earlier, _) => *earlier = later.clone(),
    }
}

#[cfg(test)]
mod tests;
