//! A conversation with a model: forwards its output and runs the searches it asks for, until it asks for no more.

use std::time::Duration;

use futures_channel::mpsc::{SendError as SendEventError, Sender};
use futures_util::future::poll_fn;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::body::ClientFunctions;
use crate::api::error::ApiError;
use crate::api::router::Call;
use crate::api::search::chat::{self, ModelHits, ModelSearchError};
use crate::api::uuids;
use crate::app::App;
use crate::chats::model::{SEARCH_FUNCTION, address, headers};
use crate::chats::stream::{EventReader, FunctionCall, Heard, Listener, call_of_client, piece};
use crate::chats::{ChatSettings, ChatSource};
use crate::http::Method;
use crate::metrics::Counter;
use crate::outgoing::{Body, Deadlines, Request, SendError, Url};

/// How often a model is asked in one talk.
const ROUNDS_MAX: usize = 20;
/// Bytes read of an answer that is an error.
const ERROR_BYTES_MAX: u64 = 1 << 20;
/// Bytes of an event that is no piece of an answer that the client is told.
const TOLD_BYTES_MAX: usize = 1000;
/// A model may think for long, but neither for ever nor without a word.
const DEADLINES: Deadlines =
    Deadlines { connect: Duration::from_secs(10), idle: Duration::from_secs(120), total: Duration::from_secs(900) };

/// One request for a completion while it is answered.
pub(super) struct Talk {
    pub(super) call: Call<App>,
    pub(super) settings: ChatSettings,
    pub(super) functions: ClientFunctions,
    pub(super) events: Sender<Vec<u8>>,
}

/// Why a talk ends early.
enum Ended {
    /// An error that the client is told.
    Told(TalkError),
    /// The client has gone.
    Gone,
}

/// An error as clients are told it.
struct TalkError {
    kind: String,
    code: Option<String>,
    message: String,
    param: Option<String>,
}

/// An error as Mistral tells it; others put it below `error`.
#[derive(Deserialize)]
struct ModelError {
    #[serde(rename = "type")]
    kind: String,
    code: Option<String>,
    message: String,
    param: Option<String>,
}

#[derive(Deserialize)]
struct NestedError {
    error: ModelError,
}

impl TalkError {
    fn new(kind: &str, message: impl ToString) -> Self {
        Self { kind: kind.to_owned(), code: None, message: message.to_string(), param: None }
    }

    /// Of an event that is no piece of an answer.
    fn unreadable(message: impl ToString) -> Self {
        Self { code: Some("internal".to_owned()), ..Self::new("json_deserialize_error", message) }
    }

    /// From the body of an answer that is no stream: the source's own error, or the body as it is.
    fn of_model(body: &[u8], source: ChatSource) -> Self {
        let told = match source {
            ChatSource::Mistral => serde_json::from_slice(body),
            _ => serde_json::from_slice(body).map(|NestedError { error }| error),
        };
        match told {
            Ok(ModelError { kind, code, message, param }) => Self { kind, code, message, param },
            Err(_) => Self::new("reqwest_error", String::from_utf8_lossy(body)),
        }
    }

    fn json(&self, call: &Call<App>) -> Value {
        let error = json!({"type": self.kind, "code": self.code, "message": self.message, "param": self.param,
            "event_id": null});
        json!({"event_id": uuids::v4(&*call.app.runtime).to_string(), "type": "error", "error": error})
    }
}

impl From<SendError> for Ended {
    fn from(error: SendError) -> Self {
        Self::Told(TalkError::new("transport_error", error))
    }
}

impl Talk {
    /// Talks until the model has answered. `body` is that of the first request.
    pub(super) async fn run(mut self, mut body: Map<String, Value>) {
        match self.rounds(&mut body).await {
            Ok(()) => {}
            Err(Ended::Gone) => return,
            Err(Ended::Told(error)) => {
                let event = error.json(&self.call);
                if self.tell(&event).await.is_err() {
                    return;
                }
            }
        }
        // There is nobody to be told that the last event was not taken.
        let _ = send(&mut self.events, b"data: [DONE]\n\n".to_vec()).await;
    }

    async fn rounds(&mut self, body: &mut Map<String, Value>) -> Result<(), Ended> {
        for _ in 0..ROUNDS_MAX {
            if !self.round(body).await? {
                return Ok(());
            }
        }
        let message = format!("the model was asked {ROUNDS_MAX} times and still wants to search");
        Err(Ended::Told(TalkError::new("too_many_rounds", message)))
    }

    async fn tell(&mut self, event: &Value) -> Result<(), Ended> {
        send(&mut self.events, format!("data: {event}\n\n").into_bytes()).await.map_err(|_| Ended::Gone)
    }

    /// Asks the model once. True when it made searches and waits for what they found, which `body` then holds.
    async fn round(&mut self, body: &mut Map<String, Value>) -> Result<bool, Ended> {
        let mut answer = self.ask(body).await?;
        let (mut reader, mut listener) = (EventReader::default(), Listener::default());
        'answer: loop {
            // Who has not said so has not ended: what has come may be half an answer.
            let bytes = answer.chunk().await?;
            let bytes = bytes.ok_or_else(|| Ended::Told(TalkError::new("stream_ended", "Stream ended")))?;
            let events = reader.push(&bytes).map_err(|error| Ended::Told(TalkError::new("parser_error", error)))?;
            for event in events {
                if event == "[DONE]" {
                    break 'answer;
                }
                let chunk: Value =
                    serde_json::from_str(&event).map_err(|error| Ended::Told(TalkError::unreadable(error)))?;
                self.count_tokens(&chunk["usage"], body);
                match listener.hear(chunk) {
                    Heard::Part => {}
                    Heard::Words(chunk) => self.tell(&piece(&chunk)).await?,
                    Heard::Calls(calls, chunk) => self.make_calls(calls, &chunk, body).await?,
                    Heard::End => break 'answer,
                    Heard::Other(other) => {
                        let mut told = other.to_string();
                        told.truncate(told.floor_char_boundary(TOLD_BYTES_MAX));
                        return Err(Ended::Told(TalkError::unreadable(format!("missing field `choices` in {told}"))));
                    }
                }
            }
        }
        if let Some((calls, chunk)) = listener.end() {
            self.make_calls(calls, &chunk, body).await?;
        }
        Ok(listener.is_waiting())
    }

    /// Sends the conversation to the model. Gives its answer, which is a stream of events.
    async fn ask(&self, body: &Map<String, Value>) -> Result<Body, Ended> {
        let invalid = |why: &str| Ended::Told(TalkError::new("invalid_argument", why));
        let url = address(&self.settings).ok_or_else(|| invalid("the workspace lacks the address of its model"))?;
        let url = Url::parse(&url).map_err(|error| invalid(&error.to_string()))?;
        let bytes = serde_json::to_vec(body).map_err(|error| invalid(&error.to_string()))?;
        let mut request = Request::new(Method::Post, url, DEADLINES).body("application/json", bytes);
        for (name, value) in headers(&self.settings) {
            request = request.header(name, value);
        }
        let answer = self.call.app.outgoing.send(request.header("Accept", "text/event-stream")).await?;
        if (200..300).contains(&answer.status) && is_stream(answer.headers.get_str("content-type")) {
            return Ok(answer.body);
        }
        let body = answer.body.collect(ERROR_BYTES_MAX).await?;
        Err(Ended::Told(TalkError::of_model(&body, self.settings.source)))
    }

    /// Makes the searches that the model asks for, and adds them with what they found to the conversation. `chunk` is the
    /// piece of the answer at which this happens.
    async fn make_calls(
        &mut self,
        calls: Vec<FunctionCall>,
        chunk: &Value,
        body: &mut Map<String, Value>,
    ) -> Result<(), Ended> {
        let calls: Vec<FunctionCall> = calls.into_iter().filter(|call| call.name == SEARCH_FUNCTION).collect();
        let asked: Vec<Value> = calls.iter().map(FunctionCall::json).collect();
        add_message(body, json!({"role": "assistant", "tool_calls": asked}));
        for call in calls {
            if self.functions.progress {
                let progress = json!({"call_id": call.id, "function_name": call.name,
                    "function_arguments": call.arguments});
                self.call_client(chunk, "_meiliSearchProgress", &progress).await?;
            }
            self.append(chunk, &json!({"role": "assistant", "tool_calls": [call.json()]})).await?;
            let (content, sources, error) = self.search(&call).await;
            if let Some(sources) = sources.filter(|_| self.functions.sources) {
                let sources = json!({"call_id": call.id, "sources": sources});
                self.call_client(chunk, "_meiliSearchSources", &sources).await?;
            }
            let message = json!({"role": "tool", "content": content, "tool_call_id": call.id});
            self.append(chunk, &message).await?;
            if let Some(error) = error {
                let event = error.json(&self.call);
                self.tell(&event).await?;
            }
            add_message(body, message);
        }
        Ok(())
    }

    /// What the model is told of its search, the documents found where it was made, and an error that the client is told.
    async fn search(&self, call: &FunctionCall) -> (String, Option<Vec<Value>>, Option<TalkError>) {
        let query = match serde_json::from_str(&call.arguments) {
            Ok(query) => query,
            Err(error) => return (error.to_string(), None, None),
        };
        match chat::search(&self.call, query).await {
            Ok(ModelHits { sources, text }) => {
                self.call.app.counting.count(Counter::ChatSearches, vec![("type", "internal".into())], 1);
                (text, Some(sources), None)
            }
            Err(ModelSearchError::Search(error)) => (error.message, Some(Vec::new()), None),
            Err(ModelSearchError::Other(error)) => {
                (format!("the search tool call failed with {}", error.message), None, Some(refused(&error)))
            }
        }
    }

    /// Counts the tokens that a piece of an answer tells of.
    fn count_tokens(&self, usage: &Value, body: &Map<String, Value>) {
        let model = body.get("model").and_then(Value::as_str).unwrap_or_default();
        for (counter, name) in [
            (Counter::ChatPromptTokens, "prompt_tokens"),
            (Counter::ChatCompletionTokens, "completion_tokens"),
            (Counter::ChatTokens, "total_tokens"),
        ] {
            if let Some(tokens) = usage[name].as_u64() {
                let labels = vec![("model", model.to_owned()), ("workspace", self.call.param(0).to_owned())];
                self.call.app.counting.count(counter, labels, tokens);
            }
        }
    }

    async fn append(&mut self, chunk: &Value, message: &Value) -> Result<(), Ended> {
        match self.functions.append {
            true => self.call_client(chunk, "_meiliAppendConversationMessage", message).await,
            false => Ok(()),
        }
    }

    async fn call_client(&mut self, chunk: &Value, name: &str, arguments: &Value) -> Result<(), Ended> {
        let id = uuids::v4(&*self.call.app.runtime).to_string();
        self.tell(&call_of_client(chunk, &id, name, arguments)).await
    }
}

/// Whether a content type is that of a stream of events.
fn is_stream(content_type: Option<&str>) -> bool {
    let kind = content_type.map(|text| text.split(';').next().unwrap_or_default().trim());
    kind.is_some_and(|kind| kind.eq_ignore_ascii_case("text/event-stream"))
}

/// Waits until the client has taken enough of the events before, and adds one more.
///
/// # Errors
/// The client has gone.
pub(super) async fn send(events: &mut Sender<Vec<u8>>, event: Vec<u8>) -> Result<(), SendEventError> {
    poll_fn(|context| events.poll_ready(context)).await?;
    events.start_send(event)
}

fn add_message(body: &mut Map<String, Value>, message: Value) {
    if let Some(Value::Array(messages)) = body.get_mut("messages") {
        messages.push(message);
    }
}

/// The error of a search that the client is told.
fn refused(error: &ApiError) -> TalkError {
    TalkError { code: Some(error.status.to_string()), ..TalkError::new("response_error", &error.message) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_known_by_their_type() {
        for kind in ["text/event-stream", "Text/Event-Stream; charset=utf-8", "text/event-stream ;x"] {
            assert!(is_stream(Some(kind)), "{kind}");
        }
        for kind in [None, Some("application/json"), Some("text/event-streams"), Some("")] {
            assert!(!is_stream(kind), "{kind:?}");
        }
    }

    #[test]
    fn errors_of_models_are_told_in_their_words() {
        let told = |source, body: &str| {
            let error = TalkError::of_model(body.as_bytes(), source);
            (error.kind, error.code, error.message)
        };
        let nested = r#"{"error": {"message": "no", "type": "refused", "param": null, "code": "x"}}"#;
        assert_eq!(told(ChatSource::OpenAi, nested), ("refused".into(), Some("x".into()), "no".into()));
        let flat = r#"{"object": "error", "message": "slow", "type": "rate"}"#;
        assert_eq!(told(ChatSource::Mistral, flat), ("rate".into(), None, "slow".into()));
        let numbered = r#"{"error": {"message": "no", "type": "refused", "code": 7}}"#;
        for (source, body) in [
            (ChatSource::OpenAi, flat),
            (ChatSource::Mistral, nested),
            (ChatSource::AzureOpenAi, numbered),
            (ChatSource::VLlm, r#"{"error": {"message": "no"}}"#),
            (ChatSource::OpenAi, "<html>"),
        ] {
            assert_eq!(told(source, body), ("reqwest_error".into(), None, body.into()));
        }
    }
}
