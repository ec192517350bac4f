//! From what a function left in `doc` to what becomes of the document.

use rquickjs::Type;
use serde_json::{Map, Value};
use shards::error::UserError;

use super::{DEPTH_MAX, ITEMS_MAX, failed};

/// What becomes of a document.
#[derive(Clone, Debug, PartialEq)]
pub enum Edit {
    /// Nothing changed: nothing is written.
    Keep,
    /// It is replaced by this one.
    Replace(Map<String, Value>),
    /// It is deleted.
    Delete,
}

/// A JavaScript value as JSON. Members that are undefined are left out, as JSON's own writer does.
pub(super) fn to_json<'js>(value: &rquickjs::Value<'js>, depth: usize) -> Result<Value, UserError> {
    if depth > DEPTH_MAX {
        return Err(failed(format!("the document is nested deeper than {DEPTH_MAX} levels, or holds itself")));
    }
    let broken = |error: rquickjs::Error| failed(error.to_string());
    match value.type_of() {
        Type::Null => Ok(Value::Null),
        Type::Bool => Ok(Value::Bool(value.as_bool().unwrap_or_default())),
        Type::Int => Ok(Value::from(value.as_int().unwrap_or_default())),
        Type::Float => number(value.as_float().unwrap_or(f64::NAN)),
        Type::String => {
            let text = value.as_string().map(rquickjs::String::to_string).transpose().map_err(broken)?;
            Ok(Value::String(text.unwrap_or_default()))
        }
        Type::Array => {
            let items = value.as_array().ok_or_else(|| failed("an array could not be read"))?;
            bounded(items.len())?;
            (0..items.len()).map(|at| to_json(&items.get(at).map_err(broken)?, depth + 1)).collect()
        }
        Type::Object => {
            let object = value.as_object().ok_or_else(|| failed("an object could not be read"))?;
            bounded(object.len())?;
            let mut fields = Map::new();
            for entry in object.props::<String, rquickjs::Value<'js>>() {
                let (name, member) = entry.map_err(broken)?;
                if !member.is_undefined() {
                    fields.insert(name, to_json(&member, depth + 1)?);
                }
            }
            Ok(Value::Object(fields))
        }
        other => Err(failed(format!("a document cannot hold a value of type {other}"))),
    }
}

fn bounded(items: usize) -> Result<(), UserError> {
    if items > ITEMS_MAX {
        return Err(failed(format!(
            "an array or object of the document holds {items} items, at most {ITEMS_MAX} are allowed"
        )));
    }
    Ok(())
}

/// Whole numbers within JavaScript's exact range are written as integers.
fn number(value: f64) -> Result<Value, UserError> {
    const EXACT: f64 = 9_007_199_254_740_991.0;
    if value.fract() == 0.0 && value.abs() <= EXACT {
        return Ok(Value::from(value as i64));
    }
    serde_json::Number::from_f64(value)
        .map(Value::Number)
        .ok_or_else(|| failed(format!("JSON cannot hold the number {value}")))
}

/// Whether `left` is what `stored` looks like from JavaScript, where all numbers are 64-bit floats.
fn same(stored: &Value, left: &Value) -> bool {
    match (stored, left) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        _ => stored == left,
    }
}

/// `left`, with every part that the function did not touch as it was stored, so that no large integer is rounded.
fn restore(stored: &Value, left: Value) -> Value {
    match (stored, left) {
        (stored, left) if same(stored, &left) => stored.clone(),
        (Value::Object(stored), Value::Object(left)) => {
            let fields = left.into_iter().map(|(name, value)| match stored.get(&name) {
                Some(old) => (name, restore(old, value)),
                None => (name, value),
            });
            Value::Object(fields.collect())
        }
        (_, left) => left,
    }
}

/// What becomes of `stored` when the function left this in `doc` (`None`: null or undefined).
pub(super) fn of(left: Option<Value>, stored: &Map<String, Value>) -> Result<Edit, UserError> {
    let Some(left) = left else { return Ok(Edit::Delete) };
    if !left.is_object() {
        return Err(failed("the function must leave an object, or null to delete the document, in `doc`"));
    }
    let stored = Value::Object(stored.clone());
    if same(&stored, &left) {
        return Ok(Edit::Keep);
    }
    match restore(&stored, left) {
        Value::Object(fields) => Ok(Edit::Replace(fields)),
        _ => Err(failed("the function must leave an object in `doc`")),
    }
}
