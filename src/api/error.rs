//! The error object of rejected requests and failed tasks.

use serde::{Deserialize, Serialize};
use shards::engine::EngineError;
use shards::error::UserError;
use shards::search::SearchError;

mod codes;

pub use codes::{ErrorCode, ErrorKind};

/// Where the documentation of errors begins; clients read the code after `#`.
const LINK_BASE: &str = "https://docs.meilisearch.com/errors#";

/// Seconds after which a client turned away for lack of room may come back.
pub const RETRY_AFTER_SECONDS: u32 = 10;

/// Why a request is refused: a code for programs and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// Decides type and link, and as a rule the status.
    pub code: ErrorCode,
    /// The HTTP status of the answer.
    pub status: u16,
    /// Names the value at fault and what was expected.
    pub message: String,
}

impl ApiError {
    /// An error with this code and message.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, status: code.status(), message: message.into() }
    }

    /// `bad_request` with this message.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::BadRequest, message)
    }

    /// `internal`: a defect or a failing machine. The cause goes to the log, not to the client.
    pub fn internal(cause: impl std::fmt::Display) -> Self {
        tracing::error!(%cause, "a request failed inside the server");
        Self::new(ErrorCode::Internal, "An internal error has occurred; the server's log has the details.")
    }

    /// `index_not_found` for this uid.
    pub fn index_not_found(uid: &str) -> Self {
        Self::new(ErrorCode::IndexNotFound, format!("Index `{uid}` not found."))
    }

    /// `feature_not_enabled`: `action` says what was asked for, `feature` is the name of its toggle.
    pub fn feature_not_enabled(action: &str, feature: &str) -> Self {
        let message = format!(
            "{action} requires enabling the `{feature}` experimental feature. \
             Set it to true with `PATCH /experimental-features`."
        );
        Self::new(ErrorCode::FeatureNotEnabled, message)
    }

    /// The object that clients see, also kept with a failed task.
    pub fn object(&self) -> ErrorObject {
        let code = self.code.name();
        ErrorObject {
            message: self.message.clone(),
            code: code.into(),
            kind: self.code.kind().name().into(),
            link: format!("{LINK_BASE}{code}"),
        }
    }

    /// The body of an error answer: the object as JSON.
    pub fn body(&self) -> Vec<u8> {
        // Four strings cannot fail to serialize; an empty body would still carry the status.
        serde_json::to_vec(&self.object()).unwrap_or_default()
    }
}

/// A mistake found below the interface, with a code of the interface. An unknown code would be a defect of ours and shows as
/// `internal` with the message kept.
impl From<UserError> for ApiError {
    fn from(error: UserError) -> Self {
        let code = ErrorCode::from_name(error.code).unwrap_or_else(|| {
            tracing::error!(code = error.code, "an error code that the interface does not have");
            ErrorCode::Internal
        });
        Self::new(code, error.message)
    }
}

/// What the engine could not do. Its own troubles go to the log.
impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::User(error) => error.into(),
            EngineError::Dropped => Self::new(ErrorCode::IndexNotFound, error.to_string()),
            other => Self::internal(other),
        }
    }
}

/// What a search could not do. Its own troubles go to the log.
impl From<SearchError> for ApiError {
    fn from(error: SearchError) -> Self {
        match error {
            SearchError::User(error) => error.into(),
            SearchError::Dropped => Self::new(ErrorCode::IndexNotFound, error.to_string()),
            other => Self::internal(other),
        }
    }
}

/// The other way: settings and keys checked here may be refused inside a task.
impl From<ApiError> for UserError {
    fn from(error: ApiError) -> Self {
        Self { code: error.code.name(), message: error.message }
    }
}

/// An error as JSON: always these four fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorObject {
    /// For people.
    pub message: String,
    /// For programs.
    pub code: String,
    /// `invalid_request`, `auth`, `internal` or `system`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Documentation of the code.
    pub link: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_has_four_fields_and_a_link_that_ends_in_the_code() {
        let error = ApiError::index_not_found("films");
        let object: serde_json::Value = serde_json::from_slice(&error.body()).unwrap();
        assert_eq!(
            object,
            serde_json::json!({"message": "Index `films` not found.", "code": "index_not_found",
                "type": "invalid_request", "link": "https://docs.meilisearch.com/errors#index_not_found"})
        );
    }

    #[test]
    fn errors_from_below_keep_their_code() {
        let error = ApiError::from(UserError::new("invalid_document_id", "bad id"));
        assert_eq!((error.code, error.message.as_str()), (ErrorCode::InvalidDocumentId, "bad id"));
        assert_eq!(ApiError::from(UserError::new("surprise", "x")).code, ErrorCode::Internal);
    }
}
