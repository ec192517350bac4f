//! Reading what a client sent: bodies, JSON fields, query parameters.
//!
//! A route reads its input with one loop and one `match`, which is also the table of what it takes:
//!
//! ```
//! # use skerry::api::{decode::Node, error::{ApiError, ErrorCode}};
//! # fn page(body: &serde_json::Value) -> Result<(u64, Option<String>), ApiError> {
//! let (mut limit, mut name) = (20, None);
//! for field in Node::body(body).fields(ErrorCode::BadRequest)? {
//!     match field.name() {
//!         "limit" => limit = field.u64(ErrorCode::InvalidIndexLimit)?,
//!         "name" => name = field.nullable(|f| f.string(ErrorCode::InvalidApiKeyName))?,
//!         _ => return Err(field.unknown(ErrorCode::BadRequest)),
//!     }
//! }
//! # Ok((limit, name)) }
//! # assert_eq!(page(&serde_json::json!({"name": null})).unwrap(), (20, None));
//! ```
//!
//! The first mistake in the order of the body is the one reported. A key written twice keeps its first place and its last
//! value.

mod body;
mod date;
mod json;
mod query;

pub use body::{
    MediaType, check_json, invalid_content_type, json_body, json_body_and_vector, malformed_payload, media_type,
    missing_content_type, missing_payload,
};
pub use date::{Bound, parse_date};
pub use json::Node;
pub use query::{Param, Params, percent_decode};

use super::error::{ApiError, ErrorCode};

/// Most characters of an index's name.
const INDEX_UID_CHARS_MAX: usize = 400;

/// Whether this may name an index: 1 to 400 of `A-Z a-z 0-9 - _`.
pub fn is_index_uid(uid: &str) -> bool {
    (1..=INDEX_UID_CHARS_MAX).contains(&uid.len())
        && uid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

/// Checks an index's name.
///
/// # Errors
/// `invalid_index_uid`.
pub fn check_index_uid(uid: &str) -> Result<(), ApiError> {
    if is_index_uid(uid) {
        return Ok(());
    }
    let message = format!(
        "`{uid}` is not a valid index uid. It takes 1 to {INDEX_UID_CHARS_MAX} characters of a-z, A-Z, 0-9, hyphen (-) \
         and underscore (_)."
    );
    Err(ApiError::new(ErrorCode::InvalidIndexUid, message))
}
