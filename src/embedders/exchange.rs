//! Requests to embedding services and their responses, described by JSON values with placeholders.
//!
//! `{{text}}` (or `{{fragment}}`) stands for what is to be embedded, `{{embedding}}` for its vector. In a list whose second item
//! is `{{..}}`, the first item is repeated once per text; without such a list a request takes one text.

use serde_json::Value;
use simd_json::prelude::ValueAsScalar;
use simd_json::tape;

/// Stands for a text in a request.
pub const TEXT: &str = "{{text}}";
/// Stands for a rendered fragment in a request.
pub const FRAGMENT: &str = "{{fragment}}";
/// Stands for a vector in an answer.
pub const EMBEDDING: &str = "{{embedding}}";
const REPEAT: &str = "{{..}}";

/// A JSON value with one placeholder.
#[derive(Clone, Debug, PartialEq)]
pub struct Pattern {
    value: Value,
    /// The way to the list that is repeated.
    list: Option<Vec<Step>>,
    /// The way to the placeholder: from the repeated item, where there is one, else from the top.
    place: Vec<Step>,
    /// What the placeholder is.
    placeholder: &'static str,
}

/// One step into a JSON value.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Key(String),
    Index(usize),
}

impl Pattern {
    /// Finds the one placeholder of those `wanted`.
    ///
    /// # Errors
    /// Why there is not exactly one, or why it is not repeated as it should be; without the name of the setting.
    pub fn parse(value: &Value, wanted: &[&'static str]) -> Result<Self, String> {
        let mut scan = Scan { wanted, found: Vec::new(), lists: Vec::new(), misplaced: false };
        scan.walk(value, &mut Vec::new());
        let names = wanted.join("` or `");
        let Scan { mut found, lists, misplaced, .. } = scan;
        if misplaced {
            return Err("has a `{{..}}` that is not the second item of its list".into());
        }
        if lists.len() > 1 {
            return Err("has more than one `{{..}}`".into());
        }
        let (placeholder, path) = match (found.pop(), found.is_empty()) {
            (Some(only), true) => only,
            (None, _) => return Err(format!("has no `{names}`")),
            _ => return Err(format!("has more than one `{names}`")),
        };
        let list = lists.into_iter().next();
        let place = match &list {
            None => path,
            Some(list) => {
                let inside = path.strip_prefix(&list[..]).and_then(|rest| rest.strip_prefix(&[Step::Index(0)]));
                inside.ok_or("has its placeholder outside the list that `{{..}}` repeats")?.to_vec()
            }
        };
        Ok(Self { value: value.clone(), list, place, placeholder })
    }

    /// Whether it takes or gives several texts at once.
    pub fn is_repeated(&self) -> bool {
        self.list.is_some()
    }

    /// What the placeholder is.
    pub fn placeholder(&self) -> &'static str {
        self.placeholder
    }

    /// The value with these in place of the placeholder. Without a repetition only the first is taken.
    pub fn fill(&self, inputs: &[Value]) -> Value {
        let mut filled = self.value.clone();
        match &self.list {
            None => {
                if let (Some(place), Some(input)) = (at_mut(&mut filled, &self.place), inputs.first()) {
                    *place = input.clone();
                }
            }
            Some(list) => {
                if let Some(Value::Array(items)) = at_mut(&mut filled, list) {
                    let item = items.first().cloned().unwrap_or_default();
                    *items = inputs.iter().map(|input| filled_item(&item, &self.place, input)).collect();
                }
            }
        }
        filled
    }

    /// Reads the `count` vectors of an answer, of which no more is kept in memory than where its parts begin.
    ///
    /// # Errors
    /// What does not fit.
    pub fn vectors(&self, answer: tape::Value<'_, '_>, count: usize) -> Result<Vec<Vec<f32>>, String> {
        let Some(list) = &self.list else {
            let vector = vector(at(answer, &self.place)?)?;
            return if count == 1 { Ok(vec![vector]) } else { Err(format!("gives 1 vector, expected {count}")) };
        };
        let items = at(answer, list)?.as_array().ok_or_else(|| format!("has no list at `{}`", show(list)))?;
        if items.len() != count {
            return Err(format!("gives {} vectors, expected {count}", items.len()));
        }
        items.iter().map(|item| vector(at(item, &self.place)?)).collect()
    }
}

fn filled_item(item: &Value, place: &[Step], input: &Value) -> Value {
    let mut item = item.clone();
    if let Some(place) = at_mut(&mut item, place) {
        *place = input.clone();
    }
    item
}

fn at<'t, 'b>(value: tape::Value<'t, 'b>, path: &[Step]) -> Result<tape::Value<'t, 'b>, String> {
    path.iter().enumerate().try_fold(value, |value, (depth, step)| {
        let inner = match step {
            Step::Key(key) => value.as_object().and_then(|object| object.get(key.as_str())),
            Step::Index(index) => value.as_array().and_then(|array| array.get(*index)),
        };
        inner.ok_or_else(|| format!("has nothing at `{}`", show(&path[..=depth])))
    })
}

fn at_mut<'v>(value: &'v mut Value, path: &[Step]) -> Option<&'v mut Value> {
    path.iter().try_fold(value, |value, step| match step {
        Step::Key(key) => value.get_mut(key),
        Step::Index(index) => value.get_mut(index),
    })
}

fn show(path: &[Step]) -> String {
    let step = |step: &Step| match step {
        Step::Key(key) => key.clone(),
        Step::Index(index) => index.to_string(),
    };
    path.iter().map(step).collect::<Vec<_>>().join(".")
}

fn vector(value: tape::Value<'_, '_>) -> Result<Vec<f32>, String> {
    let items = value.as_array().ok_or("has no list of numbers where the vector should be")?;
    let number =
        |item: tape::Value<'_, '_>| item.cast_f64().map(|number| number as f32).filter(|number| number.is_finite());
    let numbers: Option<Vec<f32>> = items.iter().map(number).collect();
    numbers.ok_or_else(|| "has something else than numbers in a vector".into())
}

struct Scan<'a> {
    wanted: &'a [&'static str],
    found: Vec<(&'static str, Vec<Step>)>,
    lists: Vec<Vec<Step>>,
    misplaced: bool,
}

impl Scan<'_> {
    fn walk(&mut self, value: &Value, path: &mut Vec<Step>) {
        match value {
            Value::String(text) if text == REPEAT => self.misplaced = true,
            Value::String(text) => {
                if let Some(wanted) = self.wanted.iter().find(|wanted| *wanted == text) {
                    self.found.push((wanted, path.clone()));
                }
            }
            Value::Array(items) => {
                let repeats = items.len() > 1 && items[1] == REPEAT && items[0] != REPEAT;
                if repeats {
                    self.lists.push(path.clone());
                }
                for (index, item) in items.iter().enumerate().filter(|(index, _)| !(repeats && *index == 1)) {
                    self.step(Step::Index(index), item, path);
                }
            }
            Value::Object(fields) => {
                fields.iter().for_each(|(key, value)| self.step(Step::Key(key.clone()), value, path));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn step(&mut self, step: Step, value: &Value, path: &mut Vec<Step>) {
        path.push(step);
        self.walk(value, path);
        path.pop();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(value: Value) -> Pattern {
        Pattern::parse(&value, &[TEXT]).unwrap()
    }

    #[test]
    fn a_request_has_one_placeholder_and_at_most_one_repetition() {
        let repeated = |value: &Value| Pattern::parse(value, &[TEXT]).map(|found| found.is_repeated()).ok();
        for (value, wanted) in [
            (json!("{{text}}"), Some(false)),
            (json!({"input": ["{{text}}"]}), Some(false)),
            (json!({"input": ["{{text}}", "{{..}}", "ignored"]}), Some(true)),
            (json!({"x": [{"y": "{{text}}"}, "{{..}}"]}), Some(true)),
            (json!(3), None),
            (json!("a {{text}} b"), None),
            (json!({"input": "{{..}}"}), None),
            (json!(["{{..}}", "{{text}}"]), None),
            (json!(["{{text}}", "x", "{{..}}"]), None),
            (json!(["{{text}}", "{{..}}", "{{..}}"]), None),
            (json!([["{{text}}", "{{..}}"], "{{..}}"]), None),
            (json!({"a": ["x", "{{..}}"], "b": "{{text}}"}), None),
            (json!({"a": ["{{text}}", "{{..}}"], "b": "{{text}}"}), None),
        ] {
            assert_eq!(repeated(&value), wanted, "{value}");
        }
    }

    #[test]
    fn requests_are_filled() {
        let texts = [json!("a"), json!({"b": 1})];
        assert_eq!(request(json!({"m": 1, "t": "{{text}}"})).fill(&texts[..1]), json!({"m": 1, "t": "a"}));
        let many = request(json!({"x": [{"y": ["{{text}}"], "z": 2}, "{{..}}", "dropped"]}));
        assert_eq!(many.fill(&texts), json!({"x": [{"y": ["a"], "z": 2}, {"y": [{"b": 1}], "z": 2}]}));
        assert_eq!(request(json!("{{text}}")).fill(&texts[..1]), json!("a"));
    }

    #[test]
    fn answers_are_read() {
        let read = |pattern: Value, answer: Value, count| {
            let mut answer = serde_json::to_vec(&answer).unwrap();
            let answer = simd_json::to_tape(&mut answer).unwrap();
            Pattern::parse(&pattern, &[EMBEDDING]).unwrap().vectors(answer.as_value(), count).ok()
        };
        let many = json!({"data": [{"e": "{{embedding}}"}, "{{..}}"]});
        let two = json!({"data": [{"e": [1, 2.5]}, {"e": [3, 4], "more": 1}], "other": 0});
        assert_eq!(read(many.clone(), two.clone(), 2), Some(vec![vec![1.0, 2.5], vec![3.0, 4.0]]));
        assert_eq!(read(many.clone(), two.clone(), 3), None);
        assert_eq!(read(many.clone(), json!({"data": [{"f": [1]}]}), 1), None);
        assert_eq!(read(many.clone(), json!({"data": [{"e": ["x"]}]}), 1), None);
        assert_eq!(read(many.clone(), json!({"data": [{"e": [1e300]}]}), 1), None);
        assert_eq!(read(many, json!({"data": {"e": [1]}}), 1), None);
        let one = json!({"data": [7, "{{embedding}}"]});
        assert_eq!(read(one.clone(), json!({"data": [0, [5]]}), 1), Some(vec![vec![5.0]]));
        assert_eq!(read(one, json!({"data": [0]}), 1), None);
    }
}
