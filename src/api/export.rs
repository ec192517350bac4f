//! Sending indexes to another server.

use std::collections::BTreeMap;

use super::decode::Node;
use super::error::{ApiError, ErrorCode};
use super::router::{Answer, Call, Route};
use super::tasks::register;
use crate::app::App;
use crate::auth::{AuthError, Grant, IndexPattern};
use crate::export::{ExportIndexes, ExportRequest};
use crate::http::Response;
use crate::options::values::ByteSize;
use crate::routes;
use crate::tasks::task::Content;
use crate::tasks::view;

/// The routes of this file.
pub fn routes() -> Vec<Route<App>> {
    routes! { Post "/export" Export => export; }
}

/// The one route that accepts a task with 200.
async fn export(mut call: Call<App>) -> Answer {
    let mut request = call.decoded(|body| decode(&Node::body(&body))).await?;
    narrow(&mut request, &call.grant)?;
    let task = register(&call, Content::Export { request }.into(), None).await?;
    Ok(Response::from_json(200, &view::summary(&task)))
}

/// Leaves out the indexes that the caller's key does not open, and refuses those that the request names. What is renamed before
/// the task runs goes by its name then.
fn narrow(request: &mut ExportRequest, grant: &Grant) -> Result<(), AuthError> {
    for name in request.indexes.keys().filter(|pattern| !pattern.ends_with('*')) {
        grant.check_index(name)?;
    }
    if let Some(key) = grant.key() {
        request.indexes = narrowed(std::mem::take(&mut request.indexes), &key.indexes);
    }
    Ok(())
}

/// Patterns for those indexes alone that these patterns open, too.
fn narrowed(asked: BTreeMap<String, ExportIndexes>, opened: &[IndexPattern]) -> BTreeMap<String, ExportIndexes> {
    let mut narrowed: Vec<(IndexPattern, ExportIndexes)> = Vec::new();
    for (pattern, indexes) in asked {
        let Some(pattern) = IndexPattern::parse(&pattern) else { continue };
        for common in opened.iter().filter_map(|opened| pattern.intersection(opened)) {
            // An index goes by the first pattern that is about it; one that says more may come to stand before it.
            if !narrowed.iter().any(|(earlier, _)| earlier.covers(&common)) {
                narrowed.push((common, indexes.clone()));
            }
        }
    }
    narrowed.into_iter().map(|(pattern, indexes)| (pattern.as_str().to_owned(), indexes)).collect()
}

fn decode(body: &Node<'_>) -> Result<ExportRequest, ApiError> {
    let mut request = ExportRequest::default();
    let mut patterns = None;
    for field in body.fields(ErrorCode::BadRequest)? {
        match field.name() {
            "url" => request.url = field.string(ErrorCode::InvalidExportUrl)?,
            "apiKey" => request.api_key = field.nullable(|key| key.string(ErrorCode::InvalidExportApiKey))?,
            "payloadSize" => request.payload_bytes = field.nullable(size)?,
            "indexes" => patterns = field.nullable(indexes)?,
            _ => return Err(field.unknown(ErrorCode::BadRequest)),
        }
    }
    request.indexes = patterns.unwrap_or_else(|| BTreeMap::from([("*".to_owned(), ExportIndexes::default())]));
    Ok(request)
}

/// A number of bytes, or a text with a unit. A small `b` at the end of a text stands for bits.
fn size(node: &Node<'_>) -> Result<u64, ApiError> {
    const CODE: ErrorCode = ErrorCode::InvalidExportPayloadSize;
    match node.value().as_str() {
        Some(text) => {
            let size = text.parse::<ByteSize>().map_err(|why| node.invalid(why, CODE))?.0;
            Ok(if text.trim_end().ends_with('b') { size.div_ceil(8) } else { size })
        }
        None => node.u64(CODE),
    }
}

fn indexes(node: &Node<'_>) -> Result<BTreeMap<String, ExportIndexes>, ApiError> {
    let mut indexes = BTreeMap::new();
    for field in node.fields(ErrorCode::BadRequest)? {
        let pattern = field.name().to_owned();
        if IndexPattern::parse(&pattern).is_none() {
            let why = "it is neither the name of an index nor the begin of one with `*` behind it.";
            return Err(field.invalid(why, ErrorCode::BadRequest));
        }
        indexes.insert(pattern, of_pattern(&field)?);
    }
    Ok(indexes)
}

fn of_pattern(node: &Node<'_>) -> Result<ExportIndexes, ApiError> {
    let mut indexes = ExportIndexes::default();
    for field in node.fields(ErrorCode::BadRequest)? {
        match field.name() {
            "filter" => indexes.filter = Some(field.value().clone()).filter(|filter| !filter.is_null()),
            "overrideSettings" => {
                indexes.override_settings = field.boolean(ErrorCode::InvalidExportIndexOverrideSettings)?;
            }
            _ => return Err(field.unknown(ErrorCode::BadRequest)),
        }
    }
    Ok(indexes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patterns(texts: &[&str]) -> Vec<IndexPattern> {
        texts.iter().map(|text| IndexPattern::parse(text).unwrap()).collect()
    }

    /// A key for one index once exported all of them.
    #[test]
    fn only_indexes_that_the_key_opens_are_exported() {
        let request = |texts: &[&str]| ExportRequest {
            indexes: texts
                .iter()
                .map(|text| {
                    ((*text).to_owned(), ExportIndexes { filter: Some(json!(text)), ..ExportIndexes::default() })
                })
                .collect(),
            ..ExportRequest::default()
        };
        for (asked, opened) in [
            (&["*"][..], &["a"][..]),
            (&["*", "b"], &["b*", "c"]),
            (&["a", "a*", "ab*", "c"], &["a*", "abc"]),
            (&["ab*", "c*"], &["a*", "d"]),
            (&["x*"], &["a", "b*"]),
            (&["*", "a*"], &["*"]),
        ] {
            let (asked, opened) = (request(asked), patterns(opened));
            let mut narrow = asked.clone();
            narrow.indexes = narrowed(narrow.indexes, &opened);
            for uid in ["a", "ab", "abc", "b", "bc", "c", "ca", "d", "x"] {
                let is_opened = opened.iter().any(|pattern| pattern.matches(uid));
                let wanted = asked.of_index(uid).filter(|_| is_opened);
                assert_eq!(narrow.of_index(uid), wanted, "{uid} of {:?}", narrow.indexes);
            }
        }
    }
}
