//! The headers by which instances tell each other what a request is part of. Each is written with and without `X-`, and
//! either form is read; values are percent-encoded.

use uuid::Uuid;

use super::task::{ImportFrom, ImportMetadata, Origin, TaskNetwork};
use crate::api::error::{ApiError, ErrorCode};
use crate::http::Headers;
use crate::outgoing::Request;

const ORIGIN_REMOTE: &str = "Meili-Proxy-Origin-Remote";
const ORIGIN_TASK: &str = "Meili-Proxy-Origin-TaskUid";
const ORIGIN_VERSION: &str = "Meili-Proxy-Origin-Network-Version";
const IMPORT_REMOTE: &str = "Meili-Proxy-Import-Remote";
const IMPORT_INDEX: &str = "Meili-Proxy-Import-Index";
const IMPORT_DOCUMENTS: &str = "Meili-Proxy-Import-Docs";
const IMPORT_INDEX_COUNT: &str = "Meili-Proxy-Import-Index-Count";
const IMPORT_KEY: &str = "Meili-Proxy-Import-Task-Key";
const IMPORT_TOTAL: &str = "Meili-Proxy-Import-Total-Index-Docs";
/// The version that a change of the topology takes the place of: a leader that others have left behind changes nothing.
pub const PREVIOUS_VERSION: &str = "X-Skerry-Previous-Network-Version";
/// In its place where no leader dealt documents out before.
pub const UNLED: &str = "none";

/// Says of a write that it makes no index: the leader's client may not.
pub const NO_NEW_INDEX: &str = "X-Skerry-No-New-Index";

/// Which network shards an instance is asked to answer for; [`super::routing`] writes and reads it.
pub const ASKED_SHARDS: &str = "X-Skerry-Network-Shards";

/// Says that the queries of a request are the shares of one search by words and meaning, which merge by the weights of these.
pub const HYBRID_SHARE: &str = "X-Skerry-Hybrid-Share";

/// Asks for hits in the layout of `api::search::network::share`, shown as those of the instance of this name. Who does not know
/// the header answers as the interface has it, so that another layout is to have another header.
pub const HIT_LINES: &str = "X-Skerry-Hit-Lines";

/// What a request is part of; `None` for that of a client.
///
/// # Errors
/// `invalid_header_value`, `inconsistent_document_change_headers`.
pub fn read(headers: &Headers) -> Result<Option<TaskNetwork>, ApiError> {
    let (remote, task) = (text(headers, ORIGIN_REMOTE)?, value::<u32>(headers, ORIGIN_TASK)?);
    let version = value::<Uuid>(headers, ORIGIN_VERSION)?;
    let (from, index) = (text(headers, IMPORT_REMOTE)?, text(headers, IMPORT_INDEX)?);
    let documents = value::<u64>(headers, IMPORT_DOCUMENTS)?;
    let (count, key) = (value::<u64>(headers, IMPORT_INDEX_COUNT)?, value::<u32>(headers, IMPORT_KEY)?);
    let total = value::<u64>(headers, IMPORT_TOTAL)?;
    let origin = match (remote, task) {
        (Some(remote_name), Some(task_uid)) => {
            Some(Origin { remote_name, task_uid, network_version: version.unwrap_or_default() })
        }
        (None, None) => None,
        _ => return Err(inconsistent("the name and the task of an origin")),
    };
    let from = match (from, documents) {
        (Some(remote_name), Some(document_count)) => {
            Some(ImportFrom { remote_name, index_name: index, document_count })
        }
        (None, None) => None,
        _ => return Err(inconsistent("the instance and the number of documents of an import")),
    };
    let metadata = match (count, total) {
        (Some(index_count), Some(total_index_documents)) => {
            Some(ImportMetadata { index_count, task_key: key, total_index_documents })
        }
        (None, None) => None,
        _ => return Err(inconsistent("the numbers of indexes and of documents of an import")),
    };
    match (origin, from, metadata) {
        (None, None, None) => Ok(None),
        (Some(origin), None, None) => Ok(Some(TaskNetwork::Origin(origin))),
        (Some(change), Some(from), Some(metadata)) => Ok(Some(TaskNetwork::Import { from, metadata, change })),
        _ => Err(inconsistent("the origin, the import and its metadata")),
    }
}

/// Adds the headers to a request.
pub fn write(mut request: Request, network: &TaskNetwork) -> Request {
    let mut put = |name: &str, value: &str| {
        let value = percent_encode(value);
        request = request.clone().header(format!("X-{name}"), value.clone()).header(name, value);
    };
    let mut put_origin = |origin: &Origin| {
        put(ORIGIN_REMOTE, &origin.remote_name);
        put(ORIGIN_TASK, &origin.task_uid.to_string());
        put(ORIGIN_VERSION, &origin.network_version.to_string());
    };
    match network {
        TaskNetwork::Leader { .. } => {}
        TaskNetwork::Origin(origin) => put_origin(origin),
        TaskNetwork::Import { from, metadata, change } => {
            put_origin(change);
            put(IMPORT_REMOTE, &from.remote_name);
            if let Some(index) = &from.index_name {
                put(IMPORT_INDEX, index);
            }
            put(IMPORT_DOCUMENTS, &from.document_count.to_string());
            put(IMPORT_INDEX_COUNT, &metadata.index_count.to_string());
            if let Some(key) = metadata.task_key {
                put(IMPORT_KEY, &key.to_string());
            }
            put(IMPORT_TOTAL, &metadata.total_index_documents.to_string());
        }
    }
    request
}

fn text(headers: &Headers, name: &str) -> Result<Option<String>, ApiError> {
    let value = headers.get(&format!("X-{name}")).or_else(|| headers.get(name));
    let Some(value) = value else { return Ok(None) };
    percent_decode(value).map(Some).ok_or_else(|| invalid(name))
}

fn value<T: std::str::FromStr>(headers: &Headers, name: &str) -> Result<Option<T>, ApiError> {
    let text = text(headers, name)?;
    text.map(|text| text.parse().map_err(|_| invalid(name))).transpose()
}

fn invalid(name: &str) -> ApiError {
    ApiError::new(ErrorCode::InvalidHeaderValue, format!("The value of the header `{name}` cannot be read."))
}

fn inconsistent(what: &str) -> ApiError {
    let message = format!("Headers about {what} go together: all or none.");
    ApiError::new(ErrorCode::InconsistentDocumentChangeHeaders, message)
}

/// Text as it may stand in a header or in a path.
pub fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'-' | b'_' | b'.' | b'~' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// The other way; `None` for what is no text.
pub fn percent_decode(bytes: &[u8]) -> Option<String> {
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, after @ ..] = rest {
        let code = if *first == b'%' { after.get(..2) } else { None };
        let code = code.and_then(|code| std::str::from_utf8(code).ok()).and_then(|c| u8::from_str_radix(c, 16).ok());
        decoded.push(code.unwrap_or(*first));
        rest = &after[if code.is_some() { 2 } else { 0 }..];
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_group_is_refused() {
        let code = |pairs: &[(&str, &str)]| read(&Headers::from_pairs(pairs)).map_err(|error| error.code);
        assert_eq!(code(&[]), Ok(None));
        let origin = [("X-Meili-Proxy-Origin-Remote", "a%20b"), ("meili-proxy-origin-taskuid", "7")];
        let wanted = Origin { remote_name: "a b".into(), task_uid: 7, network_version: Uuid::nil() };
        assert_eq!(code(&origin), Ok(Some(TaskNetwork::Origin(wanted))));
        assert_eq!(code(&origin[..1]), Err(ErrorCode::InconsistentDocumentChangeHeaders));
        assert_eq!(code(&[(ORIGIN_REMOTE, "%ff"), (ORIGIN_TASK, "7")]), Err(ErrorCode::InvalidHeaderValue));
        let import = [(IMPORT_REMOTE, "x"), (IMPORT_DOCUMENTS, "1")];
        assert_eq!(code(&import), Err(ErrorCode::InconsistentDocumentChangeHeaders));
        let metadata = [(IMPORT_INDEX_COUNT, "1"), (IMPORT_TOTAL, "9")];
        let all: Vec<_> = origin.iter().chain(&import).chain(&metadata).copied().collect();
        assert!(matches!(code(&all), Ok(Some(TaskNetwork::Import { .. }))));
    }

    #[test]
    fn any_name_survives_encoding() {
        for name in ["", "a b", "é%", "100%25", "x\r\ny"] {
            assert_eq!(percent_decode(percent_encode(name).as_bytes()).as_deref(), Some(name));
        }
    }
}
