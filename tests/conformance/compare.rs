//! When two answers are the same: what no two runs share is replaced, numbers are equal within 1e-4, the rest exactly.

use serde_json::{Map, Value};

/// Keys whose values depend on the machine or the build, compared by type only.
const BY_TYPE: [&str; 18] = [
    "processingTimeMs",
    "databaseSize",
    "usedDatabaseSize",
    "rawDocumentDbSize",
    "avgDocumentSize",
    "commitSha",
    "commitDate",
    "pkgVersion",
    "progressTrace",
    "writeChannelCongestion",
    "internalDatabaseSizes",
    "dumpUid",
    "requestUid",
    "progress",
    "performanceDetails",
    "embedderRequests",
    "batchStrategy",
    "version",
];
const TOLERANCE: f64 = 1e-4;

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float",
        Value::Number(_) => "int",
        Value::String(_) => "str",
        Value::Array(_) => "list",
        Value::Object(_) => "dict",
    }
}

fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    let shape = b"0000-00-00T00:00:00";
    bytes.len() > shape.len()
        && shape.iter().zip(bytes).all(|(want, got)| if *want == b'0' { got.is_ascii_digit() } else { want == got })
        && {
            let rest = text[shape.len()..].strip_prefix('.').unwrap_or(&text[shape.len()..]);
            let zone = rest.trim_start_matches(|c: char| c.is_ascii_digit());
            zone == "Z" || (zone.len() == 6 && zone.starts_with(['+', '-']) && zone.as_bytes()[3] == b':')
        }
}

fn is_duration(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('P') else { return false };
    rest.starts_with(|c: char| c == 'T' || c.is_ascii_digit())
        && rest[1..].chars().all(|c| c.is_ascii_digit() || "DHMS.T".contains(c))
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn is_uuid(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12]) && parts.iter().all(|part| is_hex(part))
}

fn without_ports(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("127.0.0.1:") {
        let after = &rest[at + 10..];
        let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        out.push_str(&rest[..at]);
        out.push_str(if digits > 0 { "<addr>" } else { "127.0.0.1:" });
        rest = &after[digits..];
    }
    out + rest
}

/// Replaces dates, durations, uuids, keys, ports, sizes and message texts by placeholders.
pub fn normal(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(key, v)| (key.clone(), normal_field(key, v))).collect())
        }
        Value::Array(items) => items.iter().map(normal).collect(),
        Value::String(text) if is_date(text) => "<date>".into(),
        Value::String(text) if is_duration(text) => "<duration>".into(),
        Value::String(text) if is_uuid(text) => "<uuid>".into(),
        Value::String(text) if text.len() == 64 && is_hex(text) => "<key>".into(),
        Value::String(text) => without_ports(text).into(),
        other => other.clone(),
    }
}

fn normal_field(key: &str, value: &Value) -> Value {
    match value {
        Value::Null if BY_TYPE.contains(&key) || key == "databaseSizes" => Value::Null,
        _ if BY_TYPE.contains(&key) || key == "databaseSizes" => format!("<{}>", type_name(value)).into(),
        Value::String(text) if key == "link" => format!("<link>#{}", text.rsplit('#').next().unwrap_or("")).into(),
        Value::String(text) if key == "message" => if text.is_empty() { "" } else { "<message>" }.into(),
        _ => normal(value),
    }
}

/// Every place where `got` is not what was recorded.
pub fn differ(want: &Value, got: &Value, at: &str) -> Vec<String> {
    let place = if at.is_empty() { "/" } else { at };
    let short = |v: &Value| format!("{:.300}", v.to_string());
    match (want, got) {
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().unwrap_or(f64::NAN), b.as_f64().unwrap_or(f64::NAN));
            if (a - b).abs() <= TOLERANCE * a.abs().max(1.0) {
                Vec::new()
            } else {
                vec![format!("{place}: want {a}, got {b}")]
            }
        }
        (Value::Object(a), Value::Object(b)) => {
            let missing = a.iter().filter(|(key, _)| !b.contains_key(*key));
            let missing = missing.map(|(key, v)| format!("{at}/{key}: missing, want {}", short(v)));
            let shared = b.iter().flat_map(|(key, v)| match a.get(key) {
                None => vec![format!("{at}/{key}: not expected, got {}", short(v))],
                Some(want) => differ(want, v, &format!("{at}/{key}")),
            });
            missing.chain(shared).collect()
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let pairs = a.iter().zip(b).enumerate();
            pairs.flat_map(|(i, (a, b))| differ(a, b, &format!("{at}/{i}"))).collect()
        }
        (Value::Array(a), Value::Array(b)) => {
            vec![format!("{place}: want {} items, got {}: want {}, got {}", a.len(), b.len(), short(want), short(got))]
        }
        _ if want == got => Vec::new(),
        _ => vec![format!("{place}: want {}, got {}", short(want), short(got))],
    }
}

/// The value at a path of keys and positions.
pub fn pointer<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('/').try_fold(value, |value, part| match value {
        Value::Array(items) => items.get(part.parse::<usize>().ok()?),
        _ => value.get(part),
    })
}

fn pointer_mut<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    path.split('/').try_fold(value, |value, part| match value {
        Value::Array(items) => items.get_mut(part.parse::<usize>().ok()?),
        _ => value.get_mut(part),
    })
}

/// Takes out what is not compared: pointers from the answer's root, with `*` for any key or position.
pub fn drop_paths(value: &mut Value, paths: &[String]) {
    for path in paths {
        let parts: Vec<&str> = path.split('/').collect();
        drop_path(value, &parts);
    }
}

fn drop_path(value: &mut Value, parts: &[&str]) {
    match (value, parts) {
        (Value::Object(fields), [last]) => {
            fields.shift_remove(*last);
        }
        (Value::Object(fields), ["*", rest @ ..]) => fields.values_mut().for_each(|v| drop_path(v, rest)),
        (Value::Array(items), ["*", rest @ ..]) if !rest.is_empty() => {
            items.iter_mut().for_each(|v| drop_path(v, rest))
        }
        (Value::Object(fields), [first, rest @ ..]) => {
            if let Some(v) = fields.get_mut(*first) {
                drop_path(v, rest);
            }
        }
        (Value::Array(items), [first, rest @ ..]) if !rest.is_empty() => {
            if let Some(v) = first.parse::<usize>().ok().and_then(|at| items.get_mut(at)) {
                drop_path(v, rest);
            }
        }
        _ => {}
    }
}

/// Sorted keys at every depth, so that equal objects have equal texts.
fn canonical(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut keys: Vec<&String> = fields.keys().collect();
            keys.sort();
            Value::Object(keys.into_iter().map(|key| (key.clone(), canonical(&fields[key]))).collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(canonical).collect(),
        other => other.clone(),
    }
}

/// Sorts the arrays at these pointers, whose order does not count.
pub fn unordered(value: &mut Value, paths: &[String]) {
    for path in paths {
        if let Some(Value::Array(items)) = pointer_mut(value, path) {
            items.sort_by_cached_key(|item| canonical(item).to_string());
        }
    }
}

/// Turns the objects at these pointers into arrays of [key, value], so that the order of their keys is compared.
pub fn key_order(value: &mut Value, paths: &[String]) {
    for path in paths {
        if let Some(found @ Value::Object(_)) = pointer_mut(value, path) {
            let fields = found.as_object().cloned().unwrap_or_default();
            *found = fields.into_iter().map(|(key, v)| Value::Array(vec![key.into(), v])).collect();
        }
    }
}
