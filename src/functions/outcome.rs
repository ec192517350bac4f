//! Turns what a function left in `doc` into a change of the document.

use rquickjs::Type;
use serde_json::{Map, Value};
use shards::error::UserError;

use super::{DEPTH_MAX, ITEMS_MAX, MEMORY_BYTES_MAX, failed};

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

/// Bytes that a value takes as JSON in memory, whatever it is: itself, and what goes with memory of its own.
const VALUE_BYTES: usize = size_of::<Value>() + 16;
/// Bytes that a member of an object takes beside the bytes of its name and its value.
const MEMBER_BYTES: usize = size_of::<String>() + 40;
/// Bytes copied between two looks at whether the result is still wanted.
const LOOK_BYTES: usize = 1 << 20;

/// The copy of what a function left. The engine shares values, the copy writes each out wherever it is held, so that a few of
/// them may come to more than any memory: everything in it counts against one budget. No operation of the engine runs
/// meanwhile, so the copy asks by itself whether to go on.
pub(super) struct Copier<'a> {
    bytes_left: usize,
    next_look: usize,
    is_unwanted: &'a dyn Fn() -> bool,
}

impl<'a> Copier<'a> {
    pub(super) fn new(is_unwanted: &'a dyn Fn() -> bool) -> Self {
        Self { bytes_left: MEMORY_BYTES_MAX, next_look: MEMORY_BYTES_MAX - LOOK_BYTES, is_unwanted }
    }

    /// A JavaScript value as JSON. Members that are undefined are left out, as JSON's own writer does.
    pub(super) fn copy<'js>(&mut self, value: &rquickjs::Value<'js>, depth: usize) -> Result<Value, UserError> {
        if depth > DEPTH_MAX {
            return Err(failed(format!("the document is nested deeper than {DEPTH_MAX} levels, or holds itself")));
        }
        let broken = |error: rquickjs::Error| failed(error.to_string());
        self.take(VALUE_BYTES)?;
        match value.type_of() {
            Type::Null => Ok(Value::Null),
            Type::Bool => Ok(Value::Bool(value.as_bool().unwrap_or_default())),
            Type::Int => Ok(Value::from(value.as_int().unwrap_or_default())),
            Type::Float => number(value.as_float().unwrap_or(f64::NAN)),
            Type::String => {
                let text = value.as_string().map(rquickjs::String::to_string).transpose().map_err(broken)?;
                let text = text.unwrap_or_default();
                self.take(text.len())?;
                Ok(Value::String(text))
            }
            Type::Array => {
                let items = value.as_array().ok_or_else(|| failed("an array could not be read"))?;
                bounded(items.len())?;
                // Not more room than there are items: an array takes what they count for.
                let mut copied = Vec::with_capacity(items.len());
                for at in 0..items.len() {
                    copied.push(self.copy(&items.get(at).map_err(broken)?, depth + 1)?);
                }
                Ok(Value::Array(copied))
            }
            Type::Object => {
                let object = value.as_object().ok_or_else(|| failed("an object could not be read"))?;
                bounded(object.len())?;
                let mut fields = Map::new();
                for entry in object.props::<String, rquickjs::Value<'js>>() {
                    let (name, member) = entry.map_err(broken)?;
                    if !member.is_undefined() {
                        self.take(MEMBER_BYTES + name.len())?;
                        fields.insert(name, self.copy(&member, depth + 1)?);
                    }
                }
                Ok(Value::Object(fields))
            }
            other => Err(failed(format!("a document cannot hold a value of type {other}"))),
        }
    }

    /// Counts so many bytes.
    fn take(&mut self, bytes: usize) -> Result<(), UserError> {
        let Some(left) = self.bytes_left.checked_sub(bytes) else {
            return Err(failed(format!("the document takes more than {MEMORY_BYTES_MAX} bytes")));
        };
        self.bytes_left = left;
        if left <= self.next_look {
            self.next_look = left.saturating_sub(LOOK_BYTES);
            if (self.is_unwanted)() {
                return Err(failed("interrupted"));
            }
        }
        Ok(())
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
