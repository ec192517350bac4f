//! Bodies of JSON routes: a short one is parsed at once, a long one on another thread. Parsing, decoding and freeing many values
//! can take seconds, during which the core would do nothing else.

use serde_json::Value;

use super::decode::json_body;
use super::error::ApiError;
use super::router::Call;
use crate::app::App;
use crate::archive::aside;

/// Longer bodies are read on another thread.
const LONG_BODY_BYTES: usize = 256 << 10;

impl Call<App> {
    /// What `decode` makes of the JSON body, which is gone afterwards.
    ///
    /// # Errors
    /// As [`Call::read`], [`json_body`]'s, and those of `decode`.
    pub async fn decoded<T, F>(&mut self, decode: F) -> Result<T, ApiError>
    where
        T: Send + 'static,
        F: FnOnce(Value) -> Result<T, ApiError> + Send + 'static,
    {
        self.read(move |content_type, body| decode(json_body(content_type, body)?)).await
    }

    /// What `read` makes of the content type and of the bytes of a body that holds JSON, which is gone afterwards.
    ///
    /// # Errors
    /// As [`Call::json_bytes`], and those of `read`.
    pub async fn read<T, F>(&mut self, read: F) -> Result<T, ApiError>
    where
        T: Send + 'static,
        F: FnOnce(Option<&str>, &[u8]) -> Result<T, ApiError> + Send + 'static,
    {
        let body = self.json_bytes()?;
        if body.len() <= LONG_BODY_BYTES {
            return read(self.content_type(), body);
        }
        let content_type = self.content_type().map(str::to_owned);
        let body = std::mem::replace(&mut self.request.body, Ok(Vec::new())).unwrap_or_default();
        let job = move || read(content_type.as_deref(), &body);
        Box::pin(aside(&*self.app.runtime, job)).await.map_err(ApiError::internal)?
    }
}
