//! Adding documents: the payload is checked whole before it is accepted, so that a refused request leaves no task.

use std::rc::Rc;

use shards::document::{PayloadCheck, PayloadFormat};
use shards::error::UserError;
use shards::runtime::steps::doing;
use shards::runtime::{Queue, Runtime, once};

use crate::api::decode::{MediaType, Params, invalid_content_type, media_type, missing_content_type, missing_payload};
use crate::api::error::{ApiError, ErrorCode};
use crate::api::router::{Answer, Call};
use crate::api::tasks::{accepted, register};
use crate::app::App;
use crate::auth::Action;
use crate::network::headers;
use crate::network::task::TaskNetwork;
use crate::tasks::task::{Content, Format, Method, NewTask};

/// The types of documents, for messages.
const ACCEPTED_TYPES: &str = "`application/json`, `application/x-ndjson`, `text/csv`";

/// Bytes of a payload that are checked between two looks at the clock: less than a tenth of a millisecond.
const CHECK_BYTES: usize = 16 << 10;

/// What the query string says of an addition.
#[derive(Debug, Default, PartialEq)]
struct AddQuery {
    primary_key: Option<String>,
    csv_delimiter: Option<u8>,
    custom_metadata: Option<String>,
    skip_creation: bool,
}

pub(super) async fn replace(call: Call<App>) -> Answer {
    add(call, Method::Replace).await
}

pub(super) async fn update(call: Call<App>) -> Answer {
    add(call, Method::Update).await
}

async fn add(mut call: Call<App>, method: Method) -> Answer {
    let query = AddQuery::decode(&call.query())?;
    let index = call.index_uid()?.to_string();
    let format = format(call.content_type(), query.csv_delimiter)?;
    call.bytes()?;
    let body = std::mem::replace(&mut call.request.body, Ok(Vec::new())).unwrap_or_default();
    if body.is_empty() {
        return Err(missing_payload(format_name(format)));
    }
    // An instance that has no document to send says so by an empty payload.
    let says_nothing = body.iter().all(u8::is_ascii_whitespace)
        && matches!(headers::read(&call.request.headers), Ok(Some(TaskNetwork::Import { .. })));
    let (body, received) = match says_nothing {
        true => (body, 0),
        false => check_payload(&call.app.runtime, payload_format(format), body).await?,
    };
    let content = Content::DocumentAddition {
        may_create_index: call.grant.allows(Action::IndexesCreate, &index),
        index,
        format,
        method,
        primary_key: query.primary_key,
        skip_creation: query.skip_creation,
        received,
        payload_bytes: body.len() as u64,
    };
    let task = NewTask::new(content, query.custom_metadata);
    Ok(accepted(&register(&call, task, Some(body)).await?))
}

/// Checks a payload and counts its documents; gives the payload back. A large one is checked with the shares of indexing, as
/// it is part of a load: beside searches it would take every second turn.
async fn check_payload(
    runtime: &Rc<dyn Runtime>,
    format: PayloadFormat,
    body: Vec<u8>,
) -> Result<(Vec<u8>, u64), ApiError> {
    if body.len() <= CHECK_BYTES {
        let documents = shards::document::check(format, &body).map_err(UserError::from)?;
        return Ok((body, documents));
    }
    let (done, checked) = once();
    let on = runtime.clone();
    let check = async move {
        let documents = check_in_steps(&*on, format, &body).await;
        done.send(documents.map(|documents| (body, documents)));
    };
    runtime.spawn(Queue::Indexing, Box::pin(check));
    let checked = checked.await.ok_or_else(|| ApiError::internal("the check of the payload ended early"))?;
    Ok(checked?)
}

async fn check_in_steps(runtime: &dyn Runtime, format: PayloadFormat, body: &[u8]) -> Result<u64, UserError> {
    doing("check of a payload");
    let mut check = PayloadCheck::new(body, format)?;
    loop {
        if let Some(documents) = check.advance(CHECK_BYTES)? {
            return Ok(documents);
        }
        if runtime.should_yield() {
            runtime.yield_now().await;
        }
    }
}

impl AddQuery {
    fn decode(params: &Params) -> Result<Self, ApiError> {
        let mut query = Self::default();
        for param in params.iter() {
            match param.name() {
                "primaryKey" => query.primary_key = Some(param.text().to_string()),
                "csvDelimiter" => {
                    let code = ErrorCode::InvalidDocumentCsvDelimiter;
                    let delimiter = match param.text().as_bytes() {
                        [delimiter] if delimiter.is_ascii() => *delimiter,
                        _ => return Err(param.expected("one ASCII character", code)),
                    };
                    query.csv_delimiter = Some(delimiter);
                }
                "customMetadata" => query.custom_metadata = Some(param.text().to_string()),
                "skipCreation" => {
                    query.skip_creation = match param.text().to_ascii_lowercase().as_str() {
                        "true" => true,
                        "false" => false,
                        _ => return Err(param.expected("`true` or `false`", ErrorCode::InvalidSkipCreation)),
                    };
                }
                _ => return Err(param.unknown()),
            }
        }
        Ok(query)
    }
}

/// How the payload is written. A delimiter means something for CSV only.
fn format(content_type: Option<&str>, csv_delimiter: Option<u8>) -> Result<Format, ApiError> {
    let header = content_type.ok_or_else(|| missing_content_type(ACCEPTED_TYPES))?;
    let wanted = if csv_delimiter.is_some() { "`text/csv` when `csvDelimiter` is given" } else { ACCEPTED_TYPES };
    match (media_type(header), csv_delimiter) {
        (MediaType::Csv, delimiter) => Ok(Format::Csv { delimiter: delimiter.unwrap_or(b',') }),
        (MediaType::Json, None) => Ok(Format::Json),
        (MediaType::Ndjson, None) => Ok(Format::Ndjson),
        _ => Err(invalid_content_type(header, wanted)),
    }
}

fn format_name(format: Format) -> &'static str {
    match format {
        Format::Json => "json",
        Format::Ndjson => "ndjson",
        Format::Csv { .. } => "csv",
    }
}

fn payload_format(format: Format) -> PayloadFormat {
    match format {
        Format::Json => PayloadFormat::Json,
        Format::Ndjson => PayloadFormat::Ndjson,
        Format::Csv { delimiter } => PayloadFormat::Csv { delimiter },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_strings_are_checked() {
        let decode = |query: &str| AddQuery::decode(&Params::parse(query)).map_err(|error| error.code);
        let all = decode("primaryKey=id&csvDelimiter=%09&customMetadata=&skipCreation=TRUE").unwrap();
        let wanted = AddQuery {
            primary_key: Some("id".into()),
            csv_delimiter: Some(b'\t'),
            custom_metadata: Some(String::new()),
            skip_creation: true,
        };
        assert_eq!(all, wanted);
        for bad in ["csvDelimiter=", "csvDelimiter=;;", "csvDelimiter=%C3%A9"] {
            assert_eq!(decode(bad), Err(ErrorCode::InvalidDocumentCsvDelimiter));
        }
        assert_eq!(decode("skipCreation=1"), Err(ErrorCode::InvalidSkipCreation));
        assert_eq!(decode("primarykey=id"), Err(ErrorCode::BadRequest));
    }

    #[test]
    fn delimiters_are_for_csv_alone() {
        assert_eq!(format(Some("text/CSV; charset=utf-8"), Some(b';')).unwrap(), Format::Csv { delimiter: b';' });
        assert_eq!(format(Some("application/x-ndjson"), None).unwrap(), Format::Ndjson);
        let code = |header, delimiter| format(header, delimiter).unwrap_err().code;
        assert_eq!(code(Some("application/json"), Some(b',')), ErrorCode::InvalidContentType);
        assert_eq!(code(Some("application/ndjson"), None), ErrorCode::InvalidContentType);
        assert_eq!(code(Some("application/ld+json"), None), ErrorCode::InvalidContentType);
        assert_eq!(code(None, Some(b',')), ErrorCode::MissingContentType);
    }
}
