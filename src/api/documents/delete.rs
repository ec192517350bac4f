//! Deleting documents: one, several by their ids, those that a filter chooses, or all.

use std::borrow::Cow;

use serde_json::Value;
use shards::document::DocumentIds;
use shards::facets::parse_filter;

use super::{custom_metadata, filter_features};
use crate::api::decode::Node;
use crate::api::error::{ApiError, ErrorCode};
use crate::api::router::{Answer, Call};
use crate::api::tasks::{accepted, register as register_task};
use crate::app::App;
use crate::tasks::task::{Content, NewTask};

pub(super) async fn one(call: Call<App>) -> Answer {
    let custom_metadata = custom_metadata(&call)?;
    let (index, ids) = (call.index_uid()?.to_string(), [call.param(1)].iter().collect());
    register(call, Content::DocumentDeletion { index, ids }, custom_metadata).await
}

pub(super) async fn all(call: Call<App>) -> Answer {
    let custom_metadata = custom_metadata(&call)?;
    let index = call.index_uid()?.to_string();
    register(call, Content::DocumentClear { index }, custom_metadata).await
}

pub(super) async fn batch(mut call: Call<App>) -> Answer {
    // Of several faults that of the syntax comes first, and that of the parameters before those of the ids.
    let ids = call.decoded(|body| Ok(ids(&body))).await?;
    let custom_metadata = custom_metadata(&call)?;
    let ids = ids?;
    let index = call.index_uid()?.to_string();
    register(call, Content::DocumentDeletion { index, ids }, custom_metadata).await
}

pub(super) async fn by_filter(mut call: Call<App>) -> Answer {
    let custom_metadata = custom_metadata(&call)?;
    let filter = call.decoded(|body| filter(&body)).await?;
    let index = call.index_uid()?.to_string();
    check_filter(&call, &filter)?;
    register(call, Content::DocumentDeletionByFilter { index, filter }, custom_metadata).await
}

async fn register(call: Call<App>, content: Content, custom_metadata: Option<String>) -> Answer {
    let task = NewTask::new(content, custom_metadata);
    Ok(accepted(&register_task(&call, task, None).await?))
}

fn ids(body: &Value) -> Result<DocumentIds, ApiError> {
    Ok(Node::body(body).items(ErrorCode::BadRequest)?.map(id).collect())
}

/// Strings are ids as they are; any other value is turned into its JSON text, which may well be no document's id.
fn id(item: Node<'_>) -> Cow<'_, str> {
    match item.value() {
        Value::String(id) => Cow::Borrowed(id),
        other => Cow::Owned(other.to_string()),
    }
}

fn filter(body: &Value) -> Result<Value, ApiError> {
    let (mut filter, body) = (None, Node::body(body));
    for field in body.fields(ErrorCode::BadRequest)? {
        match field.name() {
            "filter" => filter = Some(field.value().clone()),
            _ => return Err(field.unknown(ErrorCode::BadRequest)),
        }
    }
    filter.ok_or_else(|| body.missing("filter", ErrorCode::MissingDocumentFilter))
}

/// Checks what can be known of a filter before its task: its syntax, that it is not empty, and the features it uses.
pub(super) fn check_filter(call: &Call<App>, filter: &Value) -> Result<(), ApiError> {
    let code = ErrorCode::InvalidDocumentFilter;
    let empty = || ApiError::new(code, "The filter is empty: it would choose every document.");
    let parsed = parse_filter(filter, code.name())?.ok_or_else(empty)?;
    Ok(parsed.check_features(&filter_features(call))?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn any_value_is_an_id() {
        assert_eq!(
            ids(&json!(["a", 1, 1.5, true, null, {"b": 1}])).unwrap().iter().collect::<Vec<_>>(),
            ["a", "1", "1.5", "true", "null", r#"{"b":1}"#]
        );
        assert_eq!(ids(&json!({"a": 1})).unwrap_err().code, ErrorCode::BadRequest);
    }

    #[test]
    fn a_filter_is_required() {
        assert_eq!(filter(&json!({})).unwrap_err().code, ErrorCode::MissingDocumentFilter);
        assert_eq!(filter(&json!({"filter": "a = 1", "x": 1})).unwrap_err().code, ErrorCode::BadRequest);
        assert_eq!(filter(&json!({"filter": null})).unwrap(), Value::Null);
    }
}
