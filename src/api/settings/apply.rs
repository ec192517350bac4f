//! Applies checked values to an index's settings. Null always means the default. The values were checked when the task was
//! accepted, so only what the merged settings show can still be wrong.

use std::collections::BTreeSet;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use shards::error::UserError;
use shards::settings::{FacetOrder, LocalizedRule, Settings, TypoTolerance};
use shards::text::tokenizer::normalise_stop_word;

use super::{locales, words};
use crate::api::error::ErrorCode;

/// Replaces a setting whole.
pub(super) fn whole<T: DeserializeOwned + Default>(target: &mut T, value: &Value) -> Result<(), UserError> {
    *target = if value.is_null() { T::default() } else { typed(value.clone())? };
    Ok(())
}

/// Merges an object into a setting by field; a null field goes back to its default.
pub(super) fn merged<T>(target: &mut T, value: &Value) -> Result<(), UserError>
where
    T: DeserializeOwned + Serialize + Default,
{
    let Value::Object(change) = value else {
        *target = T::default();
        return Ok(());
    };
    let mut fields = json!(target);
    overlay(&mut fields, change, &json!(T::default()), &["minWordSizeForTypos"]);
    *target = typed(fields)?;
    Ok(())
}

/// Lays `change` over `fields`. Objects under the names in `deep` are merged too, others replaced.
fn overlay(fields: &mut Value, change: &Map<String, Value>, defaults: &Value, deep: &[&str]) {
    for (name, value) in change {
        match value {
            Value::Null => fields[name] = defaults[name].clone(),
            Value::Object(inner) if deep.contains(&name.as_str()) => {
                overlay(&mut fields[name], inner, &defaults[name], deep);
            }
            _ => fields[name] = value.clone(),
        }
    }
}

/// A checked value as its type. A failure would be a defect of the checks, and fails the task instead of the server.
fn typed<T: DeserializeOwned>(value: Value) -> Result<T, UserError> {
    serde_json::from_value(value).map_err(|error| UserError::new(ErrorCode::Internal.name(), error.to_string()))
}

pub(super) fn displayed_attributes(settings: &mut Settings, value: &Value) -> Result<(), UserError> {
    settings.displayed_attributes = attributes(value)?;
    Ok(())
}

pub(super) fn searchable_attributes(settings: &mut Settings, value: &Value) -> Result<(), UserError> {
    settings.searchable_attributes = attributes(value)?;
    Ok(())
}

/// A list in which `*` anywhere means all, and of which the first of equal names stays.
fn attributes(value: &Value) -> Result<Vec<String>, UserError> {
    let names: Option<Vec<String>> = typed(value.clone())?;
    let names = names.unwrap_or_else(|| vec!["*".into()]);
    if names.iter().any(|name| name == "*") {
        return Ok(vec!["*".into()]);
    }
    let mut seen = BTreeSet::new();
    Ok(names.into_iter().filter(|name| seen.insert(name.clone())).collect())
}

pub(super) fn ranking_rules(settings: &mut Settings, value: &Value) -> Result<(), UserError> {
    settings.ranking_rules = if value.is_null() { Settings::default().ranking_rules } else { typed(value.clone())? };
    Ok(())
}

pub(super) fn stop_words(settings: &mut Settings, value: &Value) -> Result<(), UserError> {
    let words: Option<BTreeSet<String>> = typed(value.clone())?;
    settings.stop_words = words.unwrap_or_default().iter().map(|word| normalise_stop_word(word)).collect();
    Ok(())
}

/// The text is kept as it was sent, but only when the words that it means differ from those of the stored text.
pub(super) fn synonyms(settings: &mut Settings, value: &Value) -> Result<(), UserError> {
    let mut sent = settings.synonyms.clone();
    whole(&mut sent, value)?;
    if sent.is_empty() || words::synonym_words(settings, &sent) != words::synonym_words(settings, &settings.synonyms) {
        settings.synonyms = sent;
    }
    Ok(())
}

pub(super) fn typo_tolerance(settings: &mut Settings, value: &Value) -> Result<(), UserError> {
    let mut tolerance: TypoTolerance = settings.typo_tolerance.clone();
    merged(&mut tolerance, value)?;
    let sizes = tolerance.min_word_size_for_typos;
    if sizes.one_typo > sizes.two_typos {
        let message =
            format!("`oneTypo` ({}) must not be larger than `twoTypos` ({}).", sizes.one_typo, sizes.two_typos);
        return Err(UserError::new(ErrorCode::InvalidSettingsTypoTolerance.name(), message));
    }
    if value.get("disableOnWords").is_some() {
        tolerance.disable_on_words = words::normalized(&settings.stop_words, &tolerance.disable_on_words);
    }
    settings.typo_tolerance = tolerance;
    Ok(())
}

pub(super) fn faceting(settings: &mut Settings, value: &Value) -> Result<(), UserError> {
    merged(&mut settings.faceting, value)?;
    settings.faceting.sort_facet_values_by.entry("*".into()).or_insert(FacetOrder::Alpha);
    Ok(())
}

pub(super) fn localized_attributes(settings: &mut Settings, value: &Value) -> Result<(), UserError> {
    let mut rules: Option<Vec<LocalizedRule>> = typed(value.clone())?;
    for locale in rules.iter_mut().flatten().flat_map(|rule| &mut rule.locales) {
        if let Some(long) = locales::three_letters(locale) {
            *locale = long.into();
        }
    }
    settings.localized_attributes = rules;
    Ok(())
}

pub(super) fn chat(settings: &mut Settings, value: &Value) -> Result<(), UserError> {
    let Value::Object(change) = value else {
        settings.chat = None;
        return Ok(());
    };
    if change.get("documentTemplateMaxBytes").and_then(Value::as_u64) == Some(0) {
        let message = "`chat.documentTemplateMaxBytes` must be at least 1.";
        return Err(UserError::new(ErrorCode::InvalidSettingsEmbedders.name(), message));
    }
    let mut chat = settings.chat.take().unwrap_or_else(|| json!({}));
    overlay(&mut chat, change, &Value::Null, &["searchParameters"]);
    without_nulls(&mut chat);
    settings.chat = Some(chat);
    Ok(())
}

fn without_nulls(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.retain(|_, value| !value.is_null());
        fields.values_mut().for_each(without_nulls);
    }
}
