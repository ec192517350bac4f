//! Errors that are reported to the caller.

/// A mistake of the request or of a document, with the interface's error code. The server turns the code into status,
/// type and link; the message is for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct UserError {
    /// One of the interface's codes, such as `invalid_document_id`.
    pub code: &'static str,
    /// A sentence that names the value and what was expected.
    pub message: String,
}

impl UserError {
    /// An error with this code and message.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The one of two that is told, whose text sorts first: which that is does not depend on where the documents at fault are.
    pub fn or_sooner(self, other: Option<Self>) -> Self {
        match other {
            Some(other) if other.message < self.message => other,
            _ => self,
        }
    }
}
