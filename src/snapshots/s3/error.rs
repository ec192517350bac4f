//! Why a snapshot did not get into its bucket.

use crate::archive::CopyError;
use crate::outgoing::SendError;

/// Why a snapshot did not get into its bucket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum S3Error {
    /// What was set at the start leads nowhere.
    #[error("{0}")]
    Parameters(String),
    /// The service says that the request is wrong.
    #[error("{0}")]
    Refused(String),
    /// The service fails, or cannot be reached, though it was tried again and again.
    #[error("{0}")]
    Failed(String),
    /// The snapshot's file cannot be read.
    #[error("{0}")]
    Io(String),
    /// The server stops.
    #[error("the server stops")]
    Stopping,
}

impl From<S3Error> for CopyError {
    fn from(error: S3Error) -> Self {
        match error {
            S3Error::Parameters(text) => Self::Remote { code: "invalid_s3_snapshot_parameters", text },
            S3Error::Refused(text) => Self::Remote { code: "invalid_s3_snapshot_request", text },
            S3Error::Failed(text) => Self::Remote { code: "s3_snapshot_server_error", text },
            S3Error::Io(text) => Self::Io(text),
            S3Error::Stopping => Self::Stopping(error.to_string()),
        }
    }
}

impl From<CopyError> for S3Error {
    fn from(error: CopyError) -> Self {
        Self::Io(error.to_string())
    }
}

/// The error of a request that has no answer; `doing` says what it was for.
pub fn unanswered(doing: &str, error: &SendError) -> S3Error {
    let text = format!("the service did not answer while {doing}: {error}");
    match error {
        SendError::Url(_) | SendError::Header(_) => S3Error::Parameters(text),
        SendError::Unreadable(_) => S3Error::Io(format!("{doing}: {error}")),
        _ => S3Error::Failed(text),
    }
}
