//! The body as a whole: its type, its presence, its syntax.

use memchr::memmem;
use serde_json::Value;
use shards::vectors::numbers;

use crate::api::error::{ApiError, ErrorCode};

/// Bytes of a body from which on a vector may be in it that is worth to be read apart.
const APART_MIN: usize = 256;

/// The types in which documents come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaType {
    /// `application/json`
    Json,
    /// `application/x-ndjson`
    Ndjson,
    /// `text/csv`
    Csv,
    /// Anything else.
    Other,
}

/// The type that a `Content-Type` header names; what a `+` adds to it and its letter case do not count.
pub fn media_type(header: &str) -> MediaType {
    let header = header.to_ascii_lowercase();
    match essence(&header) {
        Some(("application", "json", _)) => MediaType::Json,
        Some(("application", "x-ndjson", _)) => MediaType::Ndjson,
        Some(("text", "csv", _)) => MediaType::Csv,
        _ => MediaType::Other,
    }
}

/// Whether a `Content-Type` header names JSON, or something that is written in it: good for requests, not for documents.
fn is_json(header: &str) -> bool {
    essence(header)
        .is_some_and(|(_, subtype, suffix)| [subtype, suffix].iter().any(|name| name.eq_ignore_ascii_case("json")))
}

/// The type, the subtype and what a `+` adds to that, of a well-formed header.
fn essence(header: &str) -> Option<(&str, &str, &str)> {
    let header = header.trim_matches([' ', '\t']);
    let (essence, parameters) = header.split_once(';').unwrap_or((header, ""));
    let (kind, name) = essence.split_once('/')?;
    let (subtype, suffix) = name.rsplit_once('+').filter(|(subtype, _)| !subtype.is_empty()).unwrap_or((name, ""));
    (is_token(kind) && is_token(name) && are_parameters(parameters)).then_some((kind, subtype, suffix))
}

/// Whether these are `name=value` with semicolons between them and perhaps after them. Blanks are taken before a name and after
/// a quoted value only; an unquoted value may be empty where it is the last, a quoted one never.
fn are_parameters(mut rest: &str) -> bool {
    loop {
        rest = rest.trim_start_matches(' ');
        if rest.is_empty() {
            return true;
        }
        let Some((name, value)) = rest.split_once('=') else { return false };
        let (is_good, after) = match value.strip_prefix('"') {
            Some(quoted) => {
                let Some((text, after)) = quoted.split_once('"') else { return false };
                let after = after.trim_start_matches(' ');
                let is_text = !text.is_empty() && text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
                (is_text && (after.is_empty() || after.starts_with(';')), after.get(1..).unwrap_or_default())
            }
            None => {
                let (token, after) = value.split_once(';').unwrap_or((value, ""));
                (is_token(token) || value.is_empty(), after)
            }
        };
        if !is_token(name) || !is_good {
            return false;
        }
        rest = after;
    }
}

/// Whether HTTP calls this a token.
fn is_token(text: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_good)
}

/// Reads a JSON body, given the request's `Content-Type` and its bytes.
///
/// # Errors
/// `missing_content_type`, `invalid_content_type`, `missing_payload` (no byte at all), `malformed_payload` (not one JSON
/// value with nothing after it, nested more than 127 deep, or not UTF-8).
pub fn json_body(content_type: Option<&str>, body: &[u8]) -> Result<Value, ApiError> {
    check_json(content_type, body)?;
    serde_json::from_slice(body).map_err(|error| malformed_payload("json", error))
}

/// As [`json_body`], but a list of numbers in the field `name` is read apart, which is several times faster, and is not in the value.
/// Where that field is anything else it is in the value.
///
/// # Errors
/// As [`json_body`].
pub fn json_body_and_vector(
    content_type: Option<&str>,
    body: &[u8],
    name: &str,
) -> Result<(Value, Option<Vec<f32>>), ApiError> {
    check_json(content_type, body)?;
    if body.len() >= APART_MIN
        && let Some((value, vector)) = apart(body, name)
    {
        return Ok((value, Some(vector)));
    }
    serde_json::from_slice(body).map(|value| (value, None)).map_err(|error| malformed_payload("json", error))
}

/// Checks that a body says to be JSON, and that there is one.
///
/// # Errors
/// Those of a missing or another content type, and of no body.
pub fn check_json(content_type: Option<&str>, body: &[u8]) -> Result<(), ApiError> {
    let wanted = "`application/json`";
    let header = content_type.ok_or_else(|| missing_content_type(wanted))?;
    if !is_json(header) {
        return Err(invalid_content_type(header, wanted));
    }
    if body.is_empty() {
        return Err(missing_payload("json"));
    }
    Ok(())
}

/// The fields of an object but `name`, and the list of numbers in that; none for whatever this does not understand. The list, nearly all
/// of the body, is looked at once only: the general reader gets the body with `null` in its place.
fn apart(body: &[u8], name: &str) -> Option<(Value, Vec<f32>)> {
    let field = format!("\"{name}\"");
    let from = fields(body, field.as_bytes()).next()?;
    let (vector, after) = numbers::leading_list(&body[from..])?;
    let rest = [&body[..from], b"null", after].concat();
    // A quote without a backslash before it begins or ends a string, so in what the reader understands the one place is a field of
    // that name. It is the object's own if that has one: no other is written so, nor in code points of letters.
    let letters = [br"\u006".as_slice(), br"\u007"];
    let is_one = fields(&rest, field.as_bytes()).eq([from]);
    if !is_one || letters.iter().any(|letter| memmem::find(&rest, letter).is_some()) {
        return None;
    }
    let Ok(Value::Object(mut others)) = serde_json::from_slice(&rest) else { return None };
    others.shift_remove(name)?.is_null().then_some((Value::Object(others), vector))
}

/// Where values of what may be a field called so begin; it comes with its quotes.
fn fields<'b>(json: &'b [u8], field: &'b [u8]) -> impl Iterator<Item = usize> + 'b {
    let is_space = |byte: &u8| b" \t\r\n".contains(byte);
    memmem::find_iter(json, field).filter_map(move |at| {
        let colon = at + field.len() + json[at + field.len()..].iter().position(|byte| !is_space(byte))?;
        let value = json[colon..].strip_prefix(b":")?.iter().position(|byte| !is_space(byte))?;
        (at == 0 || json[at - 1] != b'\\').then_some(colon + 1 + value)
    })
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

/// `missing_payload`; `format` is what the body should have been.
pub fn missing_payload(format: &str) -> ApiError {
    ApiError::new(ErrorCode::MissingPayload, format!("The request has no body; a `{format}` payload is needed."))
}

/// `malformed_payload`; `format` is what the body should have been.
pub fn malformed_payload(format: &str, why: impl std::fmt::Display) -> ApiError {
    ApiError::new(ErrorCode::MalformedPayload, format!("The `{format}` payload is malformed: {why}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With and without the way apart the same fields come out, and nothing is taken for a vector that is none.
    #[test]
    fn vectors_are_read_apart_and_nothing_else_is() {
        let numbers = vec!["0.25"; APART_MIN].join(", ");
        let read =
            |body: &str| json_body_and_vector(Some("application/json"), body.as_bytes(), "v").map_err(|e| e.code);
        let general = |body: &str| json_body(Some("application/json"), body.as_bytes()).map_err(|e| e.code);
        let (rest, vector) = read(&format!(r#"{{"a":1,"v":[{numbers}],"b":[2],"a":3}}"#)).expect("a body");
        assert_eq!((rest, vector), (serde_json::json!({"a": 3, "b": [2]}), Some(vec![0.25; APART_MIN])));
        let spaced = read(&format!("{{ \"a\" : \"v\" , \"v\" :\n[{numbers}] }}")).expect("a body");
        assert_eq!(spaced, (serde_json::json!({"a": "v"}), Some(vec![0.25; APART_MIN])));
        let escaped = read(&format!(r#"{{"a":"\"v\" = \u00e9","v":[{numbers}]}}"#)).expect("a body");
        assert_eq!(escaped, (serde_json::json!({"a": "\"v\" = é"}), Some(vec![0.25; APART_MIN])));
        // Where it is not plain which field it is.
        for body in [
            r#"{"v":[1],"v":[N]}"#,
            r#"{"v":[N],"v":[1]}"#,
            r#"{"v":[N],"v":null}"#,
            r#"{"a":{"v":[N]},"v":[1]}"#,
            r#"{"a":{"v":[N]}}"#,
            r#"{"a":{"v":[N]},"v":null}"#,
            r#"{"a":{"v":[N]},"\u0076":null}"#,
            r#"[{"v":[N]}]"#,
            r#"{"\u0076":[N]}"#,
            r#"{"x\"v":[N],"\u0076":null}"#,
            r#"{"x\"v":[N]}"#,
            r#"{"a":"v":[N]}"#,
            r#"{"v":[N]"#,
            r#"{"v":[N]}}"#,
            r#"{"a":"b\\"v":[N]}"#,
            r#"{"v":[N],"a":"#,
        ] {
            let body = body.replace('N', &numbers);
            assert_eq!(read(&body), general(&body).map(|value| (value, None)), "{body}");
        }
        for value in ["null", "[[1]]", "[\"1\"]", "[1e39]", "[1e400]", "[ 1]", "{}", "[1", "[1]}"] {
            for rest in ["", r#","v":[2]"#] {
                let body = format!(r#"{{"w":[{numbers}]{rest},"v":{value}}}"#);
                assert_eq!(read(&body), general(&body).map(|value| (value, None)), "{value}");
            }
        }
        let list = format!("[{numbers}]");
        assert_eq!(read(&list), general(&list).map(|value| (value, None)));
    }

    /// Some of these were taken for JSON, and types of which documents are written in something else were not.
    #[test]
    fn types_are_well_formed_and_json_in_one_of_two_places() {
        for header in [
            "application/json",
            " application/json\t",
            "APPLICATION/JSON;charset=utf-8",
            "application/json; a=b;  c=d",
            "application/json;",
            "application/json;a=b; ",
            "application/json;a=",
            r#"application/json;a="b; c" ;d=e"#,
            r#"application/json;a="\""#,
            "application/json+",
            "application/json+xml",
            "text/csv+json",
            "application/x-ndjson+json",
            "application/a+b+json",
            "*/json",
        ] {
            assert!(is_json(header), "{header}");
        }
        for header in [
            "",
            "/json",
            "application/",
            "application",
            "application/+json",
            "application/json+a+b",
            "application /json",
            "application/ json",
            "application/json ;a=b",
            "application/x/json",
            "application/x{+json",
            "\u{e9}/json",
            "application/json,application/json",
            "application/json;a",
            "application/json;a=b;c",
            "application/json;;a=b",
            "application/json;a=b;;",
            "application/json;a=;b=c",
            "application/json;=b",
            "application/json;a =b",
            "application/json;a= b",
            "application/json;a=b c",
            "application/json;a=b ;c=d",
            "application/json;\ta=b",
            "application/json;a=b/c",
            r#"application/json;a="b"#,
            r#"application/json;a="""#,
            r#"application/json;a="b"c"#,
            "application/json;a=\"\u{e9}\"",
        ] {
            assert!(!is_json(header), "{header}");
            assert_eq!(media_type(header), MediaType::Other, "{header}");
        }
        let types = ["Text/CSV+json; a=b", "application/x-ndjson", "application/json+x", "text/json", "text/csv;a"];
        let wanted = [MediaType::Csv, MediaType::Ndjson, MediaType::Json, MediaType::Other, MediaType::Other];
        assert_eq!(types.map(media_type), wanted);
    }

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
