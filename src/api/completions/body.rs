//! The body of a chat completion request: known fields are checked for their type, others are ignored.

use serde_json::{Map, Value};

use crate::api::decode::Node;
use crate::api::error::{ApiError, ErrorCode};
use crate::chats::model::SEARCH_FUNCTION;

/// Every mistake in a body has this code here.
const CODE: ErrorCode = ErrorCode::BadRequest;

/// The functions that a front end may declare to be told how the answer comes about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientFunctions {
    /// `_meiliSearchProgress`: which search is made.
    pub progress: bool,
    /// `_meiliSearchSources`: which documents were found.
    pub sources: bool,
    /// `_meiliAppendConversationMessage`: what the conversation goes on with.
    pub append: bool,
}

/// A request for a completion.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletionBody {
    /// The fields that go to the model, as they came.
    pub fields: Map<String, Value>,
    /// The names of the functions declared.
    functions: Vec<String>,
    choices: u64,
    streams: bool,
}

impl CompletionBody {
    /// Reads a body.
    ///
    /// # Errors
    /// `bad_request` for a field of the wrong type, and for one that is missing.
    pub fn decode(body: &Value) -> Result<Self, ApiError> {
        let node = Node::body(body);
        let mut fields = Map::new();
        for field in node.fields(CODE)? {
            let value = field.value();
            let is_required = matches!(field.name(), "model" | "messages");
            match (is_right(field.name(), value), value.is_null() && !is_required) {
                (None, _) | (_, true) => {}
                (Some(true), false) => {
                    fields.insert(field.name().to_owned(), value.clone());
                }
                (Some(false), false) => return Err(field.expected("what models take", CODE)),
            }
        }
        for name in ["messages", "model"] {
            if !fields.contains_key(name) {
                return Err(node.missing(name, CODE));
            }
        }
        let tools = fields.get("tools").and_then(Value::as_array).into_iter().flatten();
        let functions = tools.filter_map(|tool| tool["function"]["name"].as_str().map(str::to_owned)).collect();
        let choices = fields.get("n").and_then(Value::as_u64).unwrap_or(1);
        let streams = fields.get("stream").and_then(Value::as_bool).unwrap_or(false);
        Ok(Self { fields, functions, choices, streams })
    }

    /// Refuses what no model is asked for here.
    ///
    /// # Errors
    /// `unimplemented_multi_choice_chat_completions`, `unimplemented_non_streaming_chat_completions`.
    pub fn check_manner(&self) -> Result<(), ApiError> {
        if self.choices != 1 {
            let message = "`n` must be 1: an answer with several choices is not implemented.";
            return Err(ApiError::new(ErrorCode::UnimplementedMultiChoiceChatCompletions, message));
        }
        if !self.streams {
            let message = "`stream` must be true: answers in one piece are not implemented.";
            return Err(ApiError::new(ErrorCode::UnimplementedNonStreamingChatCompletions, message));
        }
        Ok(())
    }

    /// What the front end wants to be told.
    ///
    /// # Errors
    /// `bad_request` for the search function, which is the server's own; `unimplemented_external_function_calling`.
    pub fn client_functions(&self) -> Result<ClientFunctions, ApiError> {
        let mut functions = ClientFunctions::default();
        for name in &self.functions {
            match name.as_str() {
                "_meiliSearchProgress" => functions.progress = true,
                "_meiliSearchSources" => functions.sources = true,
                "_meiliAppendConversationMessage" => functions.append = true,
                SEARCH_FUNCTION => {
                    let message = format!("The function `{SEARCH_FUNCTION}` is the server's and cannot be declared.");
                    return Err(ApiError::bad_request(message));
                }
                other => {
                    let message = format!(
                        "The function `{other}` is unknown: calls of functions of one's own are not implemented."
                    );
                    return Err(ApiError::new(ErrorCode::UnimplementedExternalFunctionCalling, message));
                }
            }
        }
        Ok(functions)
    }
}

/// Whether a value fits a field; `None` for a field that models do not know.
fn is_right(name: &str, value: &Value) -> Option<bool> {
    Some(match name {
        "model" | "user" => value.is_string(),
        "messages" => all(value, is_message),
        "stream" | "logprobs" | "parallel_tool_calls" | "store" => value.is_boolean(),
        "temperature" | "top_p" | "frequency_penalty" | "presence_penalty" => value.is_number(),
        "n" | "top_logprobs" => value.as_u64().is_some_and(|number| number <= u64::from(u8::MAX)),
        "max_tokens" | "max_completion_tokens" => value.as_u64().is_some_and(|number| u32::try_from(number).is_ok()),
        "seed" => value.is_i64(),
        "stop" => value.is_string() || all(value, Value::is_string),
        "tools" => all(value, is_tool),
        "tool_choice" => is_one_of(value, &["none", "auto", "required"]) || is_tool(value),
        "stream_options" => value["include_usage"].is_boolean(),
        "response_format" => is_one_of(&value["type"], &["text", "json_object", "json_schema"]),
        "logit_bias" | "prediction" | "audio" => value.is_object(),
        "functions" => all(value, |function| function["name"].is_string()),
        "function_call" => is_one_of(value, &["none", "auto"]) || value["name"].is_string(),
        "service_tier" => is_one_of(value, &["auto", "default", "flex", "scale", "priority"]),
        "modalities" => all(value, |modality| is_one_of(modality, &["text", "audio"])),
        "reasoning_effort" => is_one_of(value, &["minimal", "low", "medium", "high"]),
        "metadata" | "web_search_options" => true,
        _ => return None,
    })
}

fn all(value: &Value, is_right: impl Fn(&Value) -> bool) -> bool {
    value.as_array().is_some_and(|items| items.iter().all(is_right))
}

fn is_one_of(value: &Value, names: &[&str]) -> bool {
    value.as_str().is_some_and(|value| names.contains(&value))
}

fn is_tool(tool: &Value) -> bool {
    let function = &tool["function"];
    let or_null = |value: &Value, is_right: fn(&Value) -> bool| value.is_null() || is_right(value);
    tool["type"] == "function"
        && function["name"].is_string()
        && or_null(&function["description"], Value::is_string)
        && or_null(&function["strict"], Value::is_boolean)
}

fn is_message(message: &Value) -> bool {
    let content = &message["content"];
    let text_or = |parts: &[&str]| content.is_string() || all(content, |part| is_one_of(&part["type"], parts));
    let is_name = message["name"].is_null() || message["name"].is_string();
    let is_right = match message["role"].as_str() {
        Some("user") => text_or(&["text", "image_url", "input_audio"]),
        Some("system" | "developer") => text_or(&["text"]),
        Some("assistant") => {
            let calls = &message["tool_calls"];
            let is_call =
                |call: &Value| call["id"].is_string() && is_tool(call) && call["function"]["arguments"].is_string();
            (content.is_null() || text_or(&["text", "refusal"])) && (calls.is_null() || all(calls, is_call))
        }
        Some("tool") => text_or(&["text"]) && message["tool_call_id"].is_string(),
        Some("function") => (content.is_null() || content.is_string()) && message["name"].is_string(),
        _ => false,
    };
    is_right && is_name
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn decode(more: Value) -> Result<CompletionBody, ErrorCode> {
        let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": true});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        CompletionBody::decode(&body).map_err(|error| error.code)
    }

    #[test]
    fn fields_are_of_their_types() {
        for more in [
            json!({"unknown": 1, "n": null, "tools": null, "metadata": 1, "temperature": 1}),
            json!({"messages": [{"role": "assistant"}, {"role": "tool", "content": "x", "tool_call_id": "a"}]}),
            json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}], "stop": ["a"]}),
        ] {
            assert!(decode(more.clone()).is_ok(), "{more}");
        }
        for more in [
            json!({"model": null}),
            json!({"messages": "x"}),
            json!({"messages": [{"role": "user"}]}),
            json!({"messages": [{"role": "nobody", "content": "x"}]}),
            json!({"messages": [{"role": "tool", "content": "x"}]}),
            json!({"stream": "true"}),
            json!({"n": -1}),
            json!({"tools": [{"type": "function"}]}),
            json!({"temperature": "hot"}),
        ] {
            assert_eq!(decode(more.clone()), Err(ErrorCode::BadRequest), "{more}");
        }
        assert_eq!(decode(json!({"unknown": 1, "user": null})).unwrap().fields.len(), 3);
    }

    #[test]
    fn what_is_not_implemented_is_refused() {
        let manner = |more: Value| decode(more).unwrap().check_manner().map_err(|error| error.code);
        assert_eq!(manner(json!({"n": 1})), Ok(()));
        assert_eq!(manner(json!({"n": 2, "stream": false})), Err(ErrorCode::UnimplementedMultiChoiceChatCompletions));
        assert_eq!(manner(json!({"stream": null})), Err(ErrorCode::UnimplementedNonStreamingChatCompletions));
        let functions = |name: &str| {
            let tool = json!({"type": "function", "function": {"name": name}});
            decode(json!({"tools": [tool]})).unwrap().client_functions().map_err(|error| error.code)
        };
        assert_eq!(functions("_meiliSearchSources"), Ok(ClientFunctions { sources: true, ..Default::default() }));
        assert_eq!(functions("_meiliSearchInIndex"), Err(ErrorCode::BadRequest));
        assert_eq!(functions("mine"), Err(ErrorCode::UnimplementedExternalFunctionCalling));
    }
}
