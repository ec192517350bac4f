//! Responses of a model: events, pieces of text, and function calls that are spread over several events.

use serde_json::{Map, Value, json};

/// Bytes of one event at most.
const EVENT_BYTES_MAX: usize = 4 << 20;
/// Calls of functions in one answer at most.
const CALLS_MAX: usize = 128;
/// Bytes of the arguments of one call at most: more than any search takes.
const ARGUMENTS_BYTES_MAX: usize = 1 << 20;

/// Why an answer ends that waits for calls.
const CALLS_MADE: &str = "tool_calls";

/// Cuts a stream of bytes into the data of its events.
#[derive(Debug, Default)]
pub struct EventReader {
    /// What of the current line has come.
    line: Vec<u8>,
    /// Whether the line before ended with a carriage return, of which a line feed may be the rest.
    after_return: bool,
    data: Option<String>,
}

/// Why a stream cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// An event is larger than any model writes.
    #[error("an event is too large")]
    TooLarge,
    /// A line is no text.
    #[error("a line is not UTF-8")]
    NotText,
}

impl EventReader {
    /// Takes some bytes; gives the data of the events that they complete.
    ///
    /// # Errors
    /// See [`EventError`]; the stream is of no use after it.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<String>, EventError> {
        let mut events = Vec::new();
        let mut rest = bytes;
        while let Some(end) = memchr::memchr2(b'\n', b'\r', rest) {
            let (line, is_return) = (&rest[..end], rest[end] == b'\r');
            rest = &rest[end + 1..];
            let is_rest = std::mem::replace(&mut self.after_return, is_return) && !is_return;
            if is_rest && line.is_empty() && self.line.is_empty() {
                continue;
            }
            self.line.extend_from_slice(line);
            let line = std::mem::take(&mut self.line);
            events.extend(self.line(std::str::from_utf8(&line).map_err(|_| EventError::NotText)?)?);
        }
        self.line.extend_from_slice(rest);
        match self.line.len() > EVENT_BYTES_MAX {
            true => Err(EventError::TooLarge),
            false => Ok(events),
        }
    }

    fn line(&mut self, line: &str) -> Result<Option<String>, EventError> {
        if line.is_empty() {
            return Ok(self.data.take());
        }
        if let Some(data) = line.strip_prefix("data:") {
            let data = data.strip_prefix(' ').unwrap_or(data);
            match &mut self.data {
                Some(known) => {
                    known.push('\n');
                    known.push_str(data);
                }
                None => self.data = Some(data.to_owned()),
            }
        }
        match self.data.as_ref().is_some_and(|data| data.len() > EVENT_BYTES_MAX) {
            true => Err(EventError::TooLarge),
            false => Ok(None),
        }
    }
}

/// A call of a function by the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionCall {
    /// By which its answer is known.
    pub id: String,
    /// The function.
    pub name: String,
    /// Its arguments, as the model wrote them: JSON, if all is well.
    pub arguments: String,
}

impl FunctionCall {
    /// As an assistant's message names it.
    pub fn json(&self) -> Value {
        json!({"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}})
    }
}

/// Adds the pieces of calls that a delta holds to those that came before, by their numbers. False when it holds none. What is
/// beyond the bounds is left out: a call whose arguments end early is then answered as one with faulty JSON.
fn gather(calls: &mut Vec<FunctionCall>, delta: &Value) -> bool {
    let Some(pieces) = delta["tool_calls"].as_array().filter(|pieces| !pieces.is_empty()) else { return false };
    for piece in pieces {
        let at = piece["index"].as_u64().unwrap_or(0) as usize;
        if at >= CALLS_MAX {
            continue;
        }
        if calls.len() <= at {
            calls.resize(at + 1, FunctionCall::default());
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let call = &mut calls[at];
        if call.id.is_empty() {
            call.id = text(&piece["id"]);
        }
        if call.name.is_empty() {
            call.name = text(&piece["function"]["name"]);
        }
        let arguments = piece["function"]["arguments"].as_str().unwrap_or_default();
        let room = ARGUMENTS_BYTES_MAX - call.arguments.len();
        call.arguments.push_str(&arguments[..arguments.floor_char_boundary(room)]);
    }
    true
}

/// What of one answer has been heard, and what is to be done about it.
#[derive(Debug, Default)]
pub struct Listener {
    calls: Vec<FunctionCall>,
    /// The piece that a call came with last.
    called_at: Value,
    finish: Option<String>,
}

/// What a piece of an answer is good for.
#[derive(Debug, PartialEq)]
pub enum Heard {
    /// It is a part of a call; the rest is still to come.
    Part,
    /// The client is told.
    Words(Value),
    /// The calls are complete with this piece.
    Calls(Vec<FunctionCall>, Value),
    /// Nothing of the answer comes after it.
    End,
    /// It is no piece of an answer: perhaps an error that the model met within one.
    Other(Value),
}

impl Listener {
    /// Hears a piece. Calls are complete when one says why the answer ends, be it the last piece of a call itself, or when one
    /// has no part of a call.
    pub fn hear(&mut self, chunk: Value) -> Heard {
        let Some(choices) = chunk["choices"].as_array() else { return Heard::Other(chunk) };
        let Some(choice) = choices.first() else { return Heard::End };
        let finish = choice["finish_reason"].as_str().map(str::to_owned);
        let is_part = gather(&mut self.calls, &choice["delta"]);
        let goes_on = is_part && finish.is_none();
        self.finish = finish.or(self.finish.take());
        if goes_on {
            self.called_at = chunk;
            return Heard::Part;
        }
        match self.calls.is_empty() {
            true => Heard::Words(chunk),
            false => Heard::Calls(std::mem::take(&mut self.calls), chunk),
        }
    }

    /// The answer has ended: calls that no piece has completed, and the last piece of them.
    pub fn end(&mut self) -> Option<(Vec<FunctionCall>, Value)> {
        let calls = std::mem::take(&mut self.calls);
        if calls.is_empty() {
            return None;
        }
        // What says nothing of its end ended so that they be made.
        self.finish.get_or_insert_with(|| CALLS_MADE.to_owned());
        Some((calls, self.called_at.take()))
    }

    /// Whether the model waits for what its calls give.
    pub fn is_waiting(&self) -> bool {
        self.finish.as_deref() == Some(CALLS_MADE)
    }
}

/// A piece of an answer as clients get it: every field that it may have, absent ones as null.
pub fn piece(chunk: &Value) -> Value {
    let mut piece = picked(chunk, &["id"]);
    let choices = chunk["choices"].as_array().map(Vec::as_slice).unwrap_or_default();
    piece.insert("choices".into(), choices.iter().map(choice).collect());
    piece.extend(picked(chunk, &["created", "model", "service_tier", "system_fingerprint", "object", "usage"]));
    piece.into()
}

fn choice(choice: &Value) -> Value {
    let mut shown = picked(choice, &["index"]);
    let delta = picked(&choice["delta"], &["content", "function_call", "tool_calls", "role", "refusal"]);
    shown.insert("delta".into(), delta.into());
    shown.extend(picked(choice, &["finish_reason", "logprobs"]));
    shown.into()
}

fn picked(object: &Value, names: &[&str]) -> Map<String, Value> {
    names.iter().map(|name| ((*name).to_owned(), object[*name].clone())).collect()
}

/// A piece beside `chunk` by which the client's function `name` is called.
pub fn call_of_client(chunk: &Value, id: &str, name: &str, arguments: &Value) -> Value {
    let call = json!({"index": 0, "id": id, "type": "function",
        "function": {"name": name, "arguments": arguments.to_string()}});
    let mut called = chunk.clone();
    called["choices"] = json!([{"index": 0, "delta": {"role": "assistant", "tool_calls": [call]}}]);
    called["usage"] = Value::Null;
    piece(&called)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_may_be_cut_anywhere() {
        let text = "retry: 1\n\ndata: {\"a\":\r\ndata: 1}\r\n\r\n: note\ndata:[DONE]\n\ndata: é\n\ndata: b\rdata: c\r\rdata: d\r\r\n";
        for size in [1, 2, 7, 100] {
            let mut reader = EventReader::default();
            let events: Vec<String> =
                text.as_bytes().chunks(size).flat_map(|part| reader.push(part).unwrap()).collect();
            assert_eq!(events, ["{\"a\":\n1}", "[DONE]", "é", "b\nc", "d"], "{size}");
        }
        assert_eq!(EventReader::default().push(b"data: \xff\n"), Err(EventError::NotText));
        assert_eq!(EventReader::default().push(&vec![b'x'; EVENT_BYTES_MAX + 1]), Err(EventError::TooLarge));
    }

    #[test]
    fn calls_are_put_together_from_their_pieces() {
        let mut calls = Vec::new();
        assert!(!gather(&mut calls, &json!({"content": "x", "tool_calls": []})));
        for delta in [
            json!({"tool_calls": [{"index": 1, "id": "b", "function": {"name": "g"}}]}),
            json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{\"q"}}]}),
            json!({"tool_calls": [{"index": 0, "function": {"arguments": "\":1}"}}, {"index": 1_u64 << 40}]}),
        ] {
            assert!(gather(&mut calls, &delta));
        }
        let call = |id: &str, name: &str, arguments: &str| FunctionCall {
            id: id.into(),
            name: name.into(),
            arguments: arguments.into(),
        };
        assert_eq!(calls, [call("a", "f", "{\"q\":1}"), call("b", "g", "")]);
    }

    /// Some services say with the last piece of a call, or nowhere, that the answer ends. Their calls were dropped, and they
    /// were asked the same again and again.
    #[test]
    fn calls_are_made_wherever_the_answer_ends() {
        let chunk =
            |delta: Value, finish: Option<&str>| json!({"choices": [{"delta": delta, "finish_reason": finish}]});
        let call = json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}]});
        let made = vec![FunctionCall { id: "a".into(), name: "f".into(), arguments: "{}".into() }];

        let mut apart = Listener::default();
        assert_eq!(apart.hear(chunk(call.clone(), None)), Heard::Part);
        let last = chunk(json!({}), Some("tool_calls"));
        assert_eq!(apart.hear(last.clone()), Heard::Calls(made.clone(), last));
        assert!(apart.end().is_none() && apart.is_waiting());

        let mut together = Listener::default();
        let words = chunk(json!({"content": ""}), None);
        assert_eq!(together.hear(words.clone()), Heard::Words(words));
        let last = chunk(call.clone(), Some("tool_calls"));
        assert_eq!(together.hear(last.clone()), Heard::Calls(made.clone(), last));
        assert!(together.end().is_none() && together.is_waiting());

        let mut open = Listener::default();
        let last = chunk(call, None);
        assert_eq!(open.hear(last.clone()), Heard::Part);
        assert!(!open.is_waiting());
        assert_eq!(open.hear(json!({"choices": []})), Heard::End);
        assert_eq!(open.end(), Some((made, last)));
        assert!(open.end().is_none() && open.is_waiting());

        let mut broken = Listener::default();
        for other in [json!({"error": {"message": "no"}}), json!({"choices": null})] {
            assert_eq!(broken.hear(other.clone()), Heard::Other(other));
        }

        let mut plain = Listener::default();
        let last = chunk(json!({"content": "x"}), Some("stop"));
        assert_eq!(plain.hear(last.clone()), Heard::Words(last));
        assert!(plain.end().is_none() && !plain.is_waiting());
    }

    #[test]
    fn arguments_without_an_end_are_cut() {
        let mut calls = Vec::new();
        let piece = json!({"tool_calls": [{"index": 0, "function": {"arguments": "é".repeat(100_001)}}]});
        for _ in 0..20 {
            gather(&mut calls, &piece);
        }
        assert_eq!(calls[0].arguments, "é".repeat(ARGUMENTS_BYTES_MAX / 2));
    }

    #[test]
    fn pieces_have_all_their_fields() {
        let chunk = json!({"id": "c", "choices": [{"index": 0, "delta": {"content": "x"}, "extra": 1}], "more": 1});
        assert_eq!(
            piece(&chunk).to_string(),
            r#"{"id":"c","choices":[{"index":0,"delta":{"content":"x","function_call":null,"tool_calls":null,"role":null,"refusal":null},"finish_reason":null,"logprobs":null}],"created":null,"model":null,"service_tier":null,"system_fingerprint":null,"object":null,"usage":null}"#
        );
    }
}
