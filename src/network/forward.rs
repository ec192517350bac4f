//! A leader's task as the request that makes the same task elsewhere.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::headers::percent_encode;
use crate::api::settings::SettingsPatch;
use crate::http::Method as Verb;
use crate::tasks::task::{Content, Format, Method, Task};

/// A request to another instance.
#[derive(Clone, Debug, PartialEq)]
pub struct Forward {
    /// The verb.
    pub verb: Verb,
    /// Path and query; they take the place of those of the instance's URL.
    pub target: String,
    /// The type of the body and the body.
    pub body: Option<(&'static str, Arc<Vec<u8>>)>,
}

impl Forward {
    fn plain(verb: Verb, target: String) -> Self {
        Self { verb, target, body: None }
    }

    pub(super) fn json(verb: Verb, target: String, body: &impl Serialize) -> Self {
        // Writing to memory does not fail, and all keys are strings.
        let body = serde_json::to_vec(body).unwrap_or_default();
        Self { verb, target, body: Some(("application/json", Arc::new(body))) }
    }
}

/// The request for a task; `None` for those that concern this instance alone. `payload` is that of an addition.
pub fn forward(task: &Task, payload: Arc<Vec<u8>>) -> Option<Forward> {
    let metadata = task.custom_metadata.as_deref().map(|words| ("customMetadata", words.to_owned()));
    let at = |index: &str, rest: &str| format!("/indexes/{}{rest}", percent_encode(index));
    Some(match &task.content {
        Content::DocumentAddition { index, format, method, primary_key, skip_creation, .. } => {
            let mut query: Vec<(&str, String)> = metadata.into_iter().collect();
            query.extend(primary_key.clone().map(|key| ("primaryKey", key)));
            query.extend(skip_creation.then(|| ("skipCreation", "true".to_owned())));
            let kind = match format {
                Format::Json => "application/json",
                Format::Ndjson => "application/x-ndjson",
                Format::Csv { delimiter } => {
                    query.push(("csvDelimiter", char::from(*delimiter).to_string()));
                    "text/csv"
                }
            };
            let verb = if *method == Method::Replace { Verb::Post } else { Verb::Put };
            Forward { verb, target: with_query(at(index, "/documents"), &query), body: Some((kind, payload)) }
        }
        Content::DocumentDeletion { index, ids } => {
            let target = with_query(at(index, "/documents/delete-batch"), metadata.as_slice());
            Forward::json(Verb::Post, target, ids)
        }
        Content::DocumentDeletionByFilter { index, filter } => {
            let target = with_query(at(index, "/documents/delete"), metadata.as_slice());
            Forward::json(Verb::Post, target, &json!({ "filter": filter }))
        }
        Content::DocumentClear { index } => {
            Forward::plain(Verb::Delete, with_query(at(index, "/documents"), metadata.as_slice()))
        }
        Content::DocumentEdition { index, filter, context, function } => {
            let target = with_query(at(index, "/documents/edit"), metadata.as_slice());
            Forward::json(Verb::Post, target, &json!({ "filter": filter, "context": context, "function": function }))
        }
        Content::Settings { index, change, is_reset, .. } => settings(&at(index, "/settings"), change, *is_reset),
        Content::IndexCreation { index, primary_key } => {
            Forward::json(Verb::Post, "/indexes".into(), &json!({ "uid": index, "primaryKey": primary_key }))
        }
        Content::IndexUpdate { index, primary_key, new_index, .. } => {
            let mut body = Map::new();
            body.extend(primary_key.as_ref().map(|key| ("primaryKey".to_owned(), key.as_str().into())));
            body.extend(new_index.as_ref().map(|uid| ("uid".to_owned(), uid.as_str().into())));
            Forward::json(Verb::Patch, at(index, ""), &body)
        }
        Content::IndexDeletion { index } => Forward::plain(Verb::Delete, at(index, "")),
        Content::IndexSwap { swaps } => {
            let swaps: Vec<Value> = swaps.iter().map(crate::tasks::view::swap).collect();
            Forward::json(Verb::Post, "/swap-indexes".into(), &swaps)
        }
        _ => return None,
    })
}

fn settings(target: &str, change: &SettingsPatch, is_reset: bool) -> Forward {
    if !is_reset {
        return Forward::json(Verb::Patch, target.to_owned(), change);
    }
    let change = json!(change);
    let mut keys = change.as_object().into_iter().flatten().map(|(key, _)| key);
    match (keys.next(), keys.next()) {
        (Some(only), None) => Forward::plain(Verb::Delete, format!("{target}/{}", route_of(only))),
        _ => Forward::plain(Verb::Delete, target.to_owned()),
    }
}

/// The route of a setting by its key.
fn route_of(key: &str) -> &str {
    let settings = crate::api::settings::SETTINGS.iter();
    settings.clone().find(|setting| setting.key == key).map_or(key, |setting| setting.route)
}

fn with_query(path: String, query: &[(&str, String)]) -> String {
    let pairs: Vec<String> = query.iter().map(|(name, value)| format!("{name}={}", percent_encode(value))).collect();
    if pairs.is_empty() { path } else { format!("{path}?{}", pairs.join("&")) }
}

#[cfg(test)]
mod tests {
    use shards::timestamp::Timestamp;

    use super::*;
    use crate::tasks::task::{NewTask, TaskUid};

    fn of(content: Content) -> Forward {
        let new = NewTask { custom_metadata: Some("a&b".into()), ..NewTask::from(content) };
        forward(&Task::accepted(TaskUid(3), new, Timestamp(0)), Arc::new(b"x".to_vec())).expect("a write is sent on")
    }

    #[test]
    fn writes_are_sent_as_they_came() {
        let addition = of(Content::DocumentAddition {
            index: "i".into(),
            format: Format::Csv { delimiter: b';' },
            method: Method::Update,
            primary_key: Some("k".into()),
            may_create_index: true,
            skip_creation: true,
            received: 1,
            payload_bytes: 1,
        });
        let target = "/indexes/i/documents?customMetadata=a%26b&primaryKey=k&skipCreation=true&csvDelimiter=%3B";
        assert_eq!((addition.verb, addition.target.as_str()), (Verb::Put, target));
        assert_eq!(addition.body.map(|(kind, _)| kind), Some("text/csv"));
        let reset =
            |change| of(Content::Settings { index: "i".into(), change, is_reset: true, may_create_index: false });
        assert_eq!(reset(SettingsPatch::reset_all()).target, "/indexes/i/settings");
        let stop_words = crate::api::settings::Setting::of_route("stop-words").expect("it is one");
        assert_eq!(reset(SettingsPatch::reset(stop_words)).target, "/indexes/i/settings/stop-words");
        let renamed =
            Content::IndexUpdate { index: "i".into(), primary_key: None, new_index: Some("j".into()), renamed: None };
        assert_eq!(of(renamed).body.map(|(_, body)| body.to_vec()), Some(br#"{"uid":"j"}"#.to_vec()));
    }
}
