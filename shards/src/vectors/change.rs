//! What a change of settings does to the vectors of an embedder.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::host::{EmbedderFacts, template_fields};
use super::{EmbedContext, TemplateField};
use crate::fields::FieldsMap;
use crate::settings::Settings;

/// What an index keeps of an embedder besides its settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EmbedderState {
    /// What the host said.
    pub facts: EmbedderFacts,
    /// The slots of its indexing fragments, by name. A fragment keeps its slot as long as it is there.
    pub slots: Vec<(String, u16)>,
}

/// The embedders of an index, by name.
pub type EmbedderStates = BTreeMap<String, EmbedderState>;

/// Which documents are embedded again after a change of settings, of those that are to be regenerated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Again {
    /// None.
    Nothing,
    /// Those that render differently.
    Changed,
    /// All.
    All,
}

/// The field of an embedder, or of the side of a composite one that embeds documents.
fn part<'v>(embedder: &'v Value, field: &str) -> Option<&'v Value> {
    let side = embedder.get("indexingEmbedder").filter(|side| side.is_object());
    side.unwrap_or(embedder).get(field).filter(|value| !value.is_null())
}

fn source(embedder: &Value) -> &str {
    part(embedder, "source").and_then(Value::as_str).unwrap_or("openAi")
}

/// Whether documents must bring their vectors.
pub fn is_user_provided(embedder: &Value) -> bool {
    embedder.get("source").and_then(Value::as_str) == Some("userProvided")
}

/// Whether only the signs of vectors are kept.
pub fn is_quantized(embedder: &Value) -> bool {
    embedder.get("binaryQuantized").and_then(Value::as_bool) == Some(true)
}

/// The names of an embedder's indexing fragments, sorted.
pub fn fragments(embedder: &Value) -> Vec<String> {
    let members = part(embedder, "indexingFragments").and_then(Value::as_object);
    let mut names: Vec<String> = members.into_iter().flatten().map(|(name, _)| name.clone()).collect();
    names.sort_unstable();
    names
}

/// What must be embedded again when an embedder goes from `before` to `now`.
pub fn again(before: &Value, now: &Value) -> Again {
    let differs = |field: &str| part(before, field) != part(now, field);
    let inner = before.get("indexingEmbedder").is_some() != now.get("indexingEmbedder").is_some();
    let source_now = source(now);
    let by_url = matches!(source_now, "ollama" | "rest") && differs("url");
    let by_dimensions = source_now == "openAi" && differs("dimensions");
    let (had, has) = (!fragments(before).is_empty(), !fragments(now).is_empty());
    if inner
        || source(before) != source_now
        || ["model", "revision", "pooling", "request", "response"].into_iter().any(differs)
        || by_url
        || by_dimensions
        || had != has
    {
        Again::All
    } else if differs("documentTemplate") || differs("indexingFragments") {
        Again::Changed
    } else {
        Again::Nothing
    }
}

/// Whether the host must say anew what an embedder is.
pub fn facts_change(before: Option<&Value>, now: &Value) -> bool {
    let Some(before) = before else { return true };
    ["source", "model", "revision", "pooling", "dimensions", "url", "request", "response", "apiKey", "headers"]
        .into_iter()
        .chain(["indexingEmbedder", "searchEmbedder", "indexingFragments", "searchFragments"])
        .any(|field| before.get(field) != now.get(field))
}

/// Whether texts of documents depend on which attributes are searchable.
pub fn uses_template(embedder: &Value) -> bool {
    !is_user_provided(embedder) && fragments(embedder).is_empty()
}

/// The slots of the fragments that there are now: known ones keep theirs, new ones take the smallest free ones in the order of
/// their names.
pub fn slots(before: &[(String, u16)], names: &[String]) -> Vec<(String, u16)> {
    let known = |name: &str| before.iter().find(|(other, _)| other == name).map(|(_, slot)| *slot);
    let mut taken: Vec<u16> = names.iter().filter_map(|name| known(name)).collect();
    let place = |name: &String| {
        let slot = known(name).unwrap_or_else(|| {
            let free = (0..u16::MAX).find(|slot| !taken.contains(slot)).unwrap_or(u16::MAX);
            taken.push(free);
            free
        });
        (name.clone(), slot)
    };
    names.iter().map(place).collect()
}

/// What texts of an embedder depend on under some settings.
pub fn context(embedder: &Value, fields: &Arc<Vec<TemplateField>>) -> EmbedContext {
    EmbedContext { embedder: Arc::new(embedder.clone()), fields: fields.clone() }
}

/// The fields that templates see; nothing where no embedder has a template.
pub fn fields_for(settings: &Settings, fields: &FieldsMap) -> Arc<Vec<TemplateField>> {
    if settings.embedders.values().all(is_user_provided) { Arc::default() } else { template_fields(settings, fields) }
}

/// Whether the searchable attributes differ as templates see them.
pub fn searchable_change(before: &Settings, now: &Settings) -> bool {
    before.searchable_attributes != now.searchable_attributes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_makes_other_vectors_embeds_again() {
        let rest = |more: Value| {
            let mut embedder = json!({"source": "rest", "url": "http://a", "request": {}, "response": {}});
            embedder.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            embedder
        };
        let plain = rest(json!({}));
        for (now, expected) in [
            (rest(json!({"apiKey": "x", "headers": {"a": "b"}, "distribution": {}})), Again::Nothing),
            (rest(json!({"dimensions": 3, "binaryQuantized": true})), Again::Nothing),
            (rest(json!({"documentTemplate": "x", "documentTemplateMaxBytes": 9})), Again::Changed),
            (rest(json!({"url": "http://b"})), Again::All),
            (rest(json!({"request": {"a": 1}})), Again::All),
            (rest(json!({"indexingFragments": {"a": {"value": 1}}})), Again::All),
            (json!({"source": "openAi"}), Again::All),
        ] {
            assert_eq!(again(&plain, &now), expected, "{now}");
        }
        let open = |dimensions: u32| json!({"source": "openAi", "dimensions": dimensions});
        assert_eq!(again(&open(1), &open(2)), Again::All);
        let composite = |template: &str| json!({"source": "composite", "indexingEmbedder": rest(json!({"documentTemplate": template}))});
        assert_eq!(again(&composite("a"), &composite("b")), Again::Changed);
        assert_eq!(again(&plain, &composite("b")), Again::All);
    }

    #[test]
    fn fragments_keep_their_slots() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let first = slots(&[], &names(&["pic", "text"]));
        assert_eq!(first, [("pic".to_owned(), 0), ("text".to_owned(), 1)]);
        let second = slots(&first, &names(&["text"]));
        assert_eq!(slots(&second, &names(&["new", "text"])), [("new".to_owned(), 0), ("text".to_owned(), 1)]);
    }
}
