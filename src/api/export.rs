//! Sending indexes to another server.

use std::collections::BTreeMap;

use super::decode::Node;
use super::error::{ApiError, ErrorCode};
use super::router::{Answer, Call, Route};
use super::tasks::register;
use crate::app::App;
use crate::auth::IndexPattern;
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
    let request = call.decoded(|body| decode(&Node::body(&body))).await?;
    let task = register(&call, Content::Export { request }.into(), None).await?;
    Ok(Response::from_json(200, &view::summary(&task)))
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
