//! The body as a whole: its type, its presence, its syntax.

use serde_json::Value;

use crate::api::error::{ApiError, ErrorCode};

/// The types that some route reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaType {
    /// `application/json`
    Json,
    /// Another type that ends in `+json`: good for requests, not for documents.
    JsonLike,
    /// `application/x-ndjson`
    Ndjson,
    /// `text/csv`
    Csv,
    /// Anything else.
    Other,
}

/// The type that a `Content-Type` header names; its parameters and its letter case do not count.
pub fn media_type(header: &str) -> MediaType {
    let essence = header.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        "application/json" => MediaType::Json,
        "application/x-ndjson" => MediaType::Ndjson,
        "text/csv" => MediaType::Csv,
        other if other.starts_with("application/") && other.ends_with("+json") => MediaType::JsonLike,
        _ => MediaType::Other,
    }
}

/// Reads a JSON body, given the request's `Content-Type` and its bytes.
///
/// # Errors
/// `missing_content_type`, `invalid_content_type`, `missing_payload` (no byte at all), `malformed_payload` (not one JSON
/// value with nothing after it, nested more than 127 deep, or not UTF-8).
pub fn json_body(content_type: Option<&str>, body: &[u8]) -> Result<Value, ApiError> {
    let wanted = "`application/json`";
    match content_type.map(media_type) {
        Some(MediaType::Json | MediaType::JsonLike) => {}
        Some(_) => return Err(invalid_content_type(content_type.unwrap_or_default(), wanted)),
        None => return Err(missing_content_type(wanted)),
    }
    if body.is_empty() {
        return Err(missing_payload());
    }
    serde_json::from_slice(body).map_err(|error| malformed_payload("json", error))
}

/// `missing_content_type`; `wanted` lists what the route takes.
pub fn missing_content_type(wanted: &str) -> ApiError {
    ApiError::new(
        ErrorCode::MissingContentType,
        format!("A Content-Type header is missing. Accepted values: {wanted}."),
    )
}

/// `invalid_content_type`; `wanted` lists what the route takes.
pub fn invalid_content_type(found: &str, wanted: &str) -> ApiError {
    let message = format!("The Content-Type `{found}` is invalid. Accepted values: {wanted}.");
    ApiError::new(ErrorCode::InvalidContentType, message)
}

/// `missing_payload`.
pub fn missing_payload() -> ApiError {
    ApiError::new(ErrorCode::MissingPayload, "The request has no body.")
}

/// `malformed_payload`; `format` is what the body should have been.
pub fn malformed_payload(format: &str, why: impl std::fmt::Display) -> ApiError {
    ApiError::new(ErrorCode::MalformedPayload, format!("The `{format}` payload is malformed: {why}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_fault_of_a_body_is_reported() {
        let code = |content_type, body: &str| json_body(content_type, body.as_bytes()).map_err(|error| error.code);
        assert_eq!(code(None, ""), Err(ErrorCode::MissingContentType));
        assert_eq!(code(Some("text/plain"), ""), Err(ErrorCode::InvalidContentType));
        assert_eq!(code(Some("*/*"), "{}"), Err(ErrorCode::InvalidContentType));
        assert_eq!(code(Some("application/json"), ""), Err(ErrorCode::MissingPayload));
        for broken in [" ", "{", "{} x", "\u{7}", r#""\ud800""#] {
            assert_eq!(code(Some("application/json"), broken), Err(ErrorCode::MalformedPayload), "{broken}");
        }
        assert!(code(Some("application/json; charset=latin1"), " {} ").is_ok());
        assert!(code(Some("Application/Vnd.Api+JSON"), "[]").is_ok());
    }
}
