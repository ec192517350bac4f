//! What a change of settings requires of an embedder's vectors.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::host::{EmbedderFacts, template_fields};
use super::{EmbedContext, TemplateField};
use crate::fields::FieldsMap;
use crate::settings::Settings;
use crate::settings::embedder::{EmbedderConfig, EmbedderInput};

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

/// Whether documents must bring their vectors.
pub fn is_user_provided(embedder: &Value) -> bool {
    !EmbedderConfig::of(embedder).generates()
}

/// Whether only the signs of vectors are kept.
pub fn is_quantized(embedder: &Value) -> bool {
    EmbedderConfig::of(embedder).quantized
}

/// The names of an embedder's indexing fragments, sorted.
pub fn fragments(embedder: &Value) -> Vec<String> {
    match EmbedderConfig::of(embedder).input {
        EmbedderInput::Fragments(fragments) => fragments.into_keys().collect(),
        EmbedderInput::Nothing | EmbedderInput::Template(_) => Vec::new(),
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
    matches!(EmbedderConfig::of(embedder).input, EmbedderInput::Template(_))
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
    use super::*;

    #[test]
    fn fragments_keep_their_slots() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let first = slots(&[], &names(&["pic", "text"]));
        assert_eq!(first, [("pic".to_owned(), 0), ("text".to_owned(), 1)]);
        let second = slots(&first, &names(&["text"]));
        assert_eq!(slots(&second, &names(&["new", "text"])), [("new".to_owned(), 0), ("text".to_owned(), 1)]);
    }
}
