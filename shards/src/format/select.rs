//! Selects paths of a document.

use serde_json::{Map, Value};

use crate::settings::covers_subtree;

/// Flattened names that are kept, each with all below it.
#[derive(Clone, Debug, PartialEq)]
pub enum Paths {
    /// Everything.
    All,
    /// These names only.
    Named(Vec<String>),
}

impl Paths {
    /// Whether a path is kept whole: it or a parent is named.
    pub fn covers(&self, path: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.iter().any(|name| covers_subtree(name, path)),
        }
    }

    /// Whether something below a path is named.
    pub fn reaches_below(&self, path: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.iter().any(|name| name != path && covers_subtree(path, name)),
        }
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Named(names) if names.is_empty())
    }

    /// Whether exactly this path is named. A literal top-level key `a.b` does not belong to `a`.
    pub fn names(&self, path: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.iter().any(|name| name == path),
        }
    }

    /// What is kept of the value at `path`; `None` when nothing is. Where only something below the path is named, objects
    /// keep those members, and arrays their items by the same rule; what has nothing below it stays as it is. When
    /// `drop_empty`, such scalars go, and so do objects in arrays that keep no member.
    pub fn select(&self, path: &str, value: &Value, drop_empty: bool) -> Option<Value> {
        if self.names(path) {
            return Some(value.clone());
        }
        if !self.reaches_below(path) {
            return None;
        }
        match value {
            Value::Object(object) => Some(Value::Object(self.select_members(path, object, drop_empty))),
            Value::Array(items) => {
                Some(items.iter().filter_map(|item| self.select_item(path, item, drop_empty)).collect())
            }
            scalar => (!drop_empty).then(|| scalar.clone()),
        }
    }

    fn select_item(&self, path: &str, item: &Value, drop_empty: bool) -> Option<Value> {
        match item {
            Value::Object(object) => {
                let kept = self.select_members(path, object, drop_empty);
                (!drop_empty || !kept.is_empty()).then_some(Value::Object(kept))
            }
            _ => self.select(path, item, drop_empty),
        }
    }

    fn select_members(&self, path: &str, object: &Map<String, Value>, drop_empty: bool) -> Map<String, Value> {
        let kept = |(key, value): (&String, &Value)| {
            Some((key.clone(), self.select(&format!("{path}.{key}"), value, drop_empty)?))
        };
        object.iter().filter_map(kept).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn branches_are_kept_and_empty_objects_of_arrays_stay() {
        let paths = Paths::Named(vec!["o.w".into(), "a".into()]);
        assert_eq!(paths.select("a", &json!([1]), false), Some(json!([1])));
        assert_eq!(paths.select("b", &json!(1), false), None);
        let objects = json!([{"w": 1, "x": 2}, {"x": 3}]);
        assert_eq!(paths.select("o", &objects, false), Some(json!([{"w": 1}, {}])));
        assert_eq!(paths.select("o", &objects, true), Some(json!([{"w": 1}])));
        assert_eq!(paths.select("o", &json!({"x": 1}), false), Some(json!({})));
        let mixed = json!([1, null, {"x": 3}, [], [{"w": 1}, 2]]);
        assert_eq!(paths.select("o", &mixed, false), Some(json!([1, null, {}, [], [{"w": 1}, 2]])));
        assert_eq!(paths.select("o", &mixed, true), Some(json!([[], [{"w": 1}]])));
        assert_eq!((paths.select("o", &json!(1), false), paths.select("o", &json!(1), true)), (Some(json!(1)), None));
    }
}
