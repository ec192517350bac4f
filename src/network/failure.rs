//! What goes wrong when another instance is asked, in the interface's words.

use crate::api::error::{ApiError, ErrorCode};
use crate::control::message::ControlError;
use crate::outgoing::{SendError, WholeResponse};
use crate::tasks::task::TaskUid;

/// Characters of another instance's own words that are passed on.
const WORDS_MAX: usize = 400;

/// Why the instance `name` gave no answer.
pub fn unanswered(name: &str, error: &SendError) -> ApiError {
    let code = match error {
        error if error.is_timeout() && !error.is_before_sending() => ErrorCode::RemoteTimeout,
        error if error.is_before_sending() => ErrorCode::RemoteCouldNotSendRequest,
        SendError::Broken(_) => ErrorCode::RemoteCouldNotSendRequest,
        _ => ErrorCode::RemoteBadResponse,
    };
    ApiError::new(code, format!("The remote `{name}` cannot be asked: {error}."))
}

/// The instance `name` is still being sent a task, which takes long.
pub fn behind(name: &str) -> ApiError {
    let message =
        format!("The remote `{name}` has not taken the tasks before this one yet, or is still being sent it.");
    ApiError::new(ErrorCode::RemoteTimeout, message)
}

/// A task that cannot be read here, and so cannot be sent for now.
pub fn unreadable_here(uid: TaskUid, error: &ControlError) -> ApiError {
    let message = format!("Task {} cannot be read, so it is not sent yet: {error}.", uid.0);
    ApiError::new(ErrorCode::RemoteCouldNotSendRequest, message)
}

/// A task that the instance `name` has still to take is not here any more.
pub fn gone(name: &str, uid: TaskUid) -> ApiError {
    let message = format!(
        "Task {} no longer exists, so the remote `{name}` can receive neither it nor any later task. Remove the remote from the \
         network and add it again: it then receives all documents.",
        uid.0
    );
    ApiError::new(ErrorCode::RemoteCouldNotSendRequest, message)
}

/// What the status of an answer says; `None` for success.
pub fn refused(name: &str, answer: &WholeResponse) -> Option<ApiError> {
    let (code, what) = match answer.status {
        200..=299 => return None,
        401 | 403 => (ErrorCode::RemoteInvalidApiKey, "does not take the key"),
        400..=499 => (ErrorCode::RemoteBadRequest, "refuses the request"),
        500..=599 => (ErrorCode::RemoteRemoteError, "has failed"),
        _ => (ErrorCode::RemoteBadResponse, "gives an answer that cannot be understood"),
    };
    let words: String = String::from_utf8_lossy(&answer.body).chars().take(WORDS_MAX).collect();
    Some(ApiError::new(code, format!("The remote `{name}` {what} (status {}): {words}", answer.status)))
}

/// Whether a task that an instance refuses may be taken later, when someone there has mended what is wrong. To pass over it
/// would leave that instance without it for ever.
pub fn may_be_mended(error: &ApiError) -> bool {
    let codes = [
        ErrorCode::NoSpaceLeftOnDevice,
        ErrorCode::TooManyOpenFiles,
        ErrorCode::FeatureNotEnabled,
        ErrorCode::PayloadTooLarge,
    ];
    codes.iter().any(|code| error.message.contains(code.name()))
}

/// `remote_bad_response`: the answer cannot be understood.
pub fn unreadable(name: &str, why: impl std::fmt::Display) -> ApiError {
    let message = format!("The answer of the remote `{name}` cannot be understood: {why}.");
    ApiError::new(ErrorCode::RemoteBadResponse, message)
}

/// Whether asking again may help: the network or the other side failed, not the request.
pub fn is_passing(error: &ApiError) -> bool {
    let codes = [ErrorCode::RemoteCouldNotSendRequest, ErrorCode::RemoteRemoteError, ErrorCode::RemoteBadResponse];
    codes.contains(&error.code)
}
