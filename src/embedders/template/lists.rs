//! Filters of lists that the library makes of copies, in which it would not find the objects again.

use std::cmp::Ordering;

use liquid_core::ValueView;
use liquid_core::error::{Error, Result};
use liquid_core::model::{Value, ValueViewCmp};

use super::super::view::NIL;

/// The items in their order, or that of one of their fields; what cannot be compared counts as equal.
pub(super) fn sorted(input: &dyn ValueView, field: Option<&str>) -> Result<Value> {
    let mut items = keyed(input, field)?;
    items.sort_by(|(left, _), (right, _)| {
        nil_last(left.is_nil(), right.is_nil()).unwrap_or_else(|| {
            ValueViewCmp::new(*left).partial_cmp(&ValueViewCmp::new(*right)).unwrap_or(Ordering::Equal)
        })
    });
    Ok(Value::array(items.into_iter().map(|(_, item)| item.to_value())))
}

/// As [`sorted`], by their texts without letter case.
pub(super) fn sorted_naturally(input: &dyn ValueView, field: Option<&str>) -> Result<Value> {
    let text = |key: &dyn ValueView| (!key.is_nil()).then(|| key.to_kstr().to_lowercase());
    let mut items: Vec<_> = keyed(input, field)?.into_iter().map(|(key, item)| (text(key), item)).collect();
    items.sort_by(|(left, _), (right, _)| nil_last(left.is_none(), right.is_none()).unwrap_or_else(|| left.cmp(right)));
    Ok(Value::array(items.into_iter().map(|(_, item)| item.to_value())))
}

/// The items without those that equal an earlier one.
pub(super) fn unique(input: &dyn ValueView) -> Result<Value> {
    let items = input.as_array().ok_or_else(|| Error::with_msg("Invalid input: expected an array"))?;
    let mut kept: Vec<&dyn ValueView> = Vec::new();
    for item in items.values() {
        if !kept.iter().any(|earlier| ValueViewCmp::new(*earlier) == ValueViewCmp::new(item)) {
            kept.push(item);
        }
    }
    Ok(Value::array(kept.into_iter().map(ValueView::to_value)))
}

/// An item, and before it what it is sorted by.
type Keyed<'i> = (&'i dyn ValueView, &'i dyn ValueView);

fn keyed<'i>(input: &'i dyn ValueView, field: Option<&str>) -> Result<Vec<Keyed<'i>>> {
    let items: Vec<&dyn ValueView> = match input.as_array() {
        Some(items) => items.values().collect(),
        None if input.is_nil() => Vec::new(),
        None => vec![input],
    };
    let Some(field) = field else { return Ok(items.into_iter().map(|item| (item, item)).collect()) };
    let key = |item: &'i dyn ValueView| {
        let fields = item.as_object().ok_or_else(|| Error::with_msg("Invalid input: expected an array of objects"))?;
        Ok((fields.get(field).unwrap_or(&NIL), item))
    };
    items.into_iter().map(key).collect()
}

/// The order of two values of which at least one is nil.
fn nil_last(left: bool, right: bool) -> Option<Ordering> {
    (left || right).then(|| left.cmp(&right))
}
