//! Metrics in the Prometheus text format.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Labels;

/// Metrics as text, family by family in the order of their names.
#[derive(Debug, Default)]
pub struct Exposition {
    /// The text of each family.
    families: BTreeMap<String, String>,
    /// The family that values are added to.
    family: String,
}

impl Exposition {
    /// Begins a family of metrics, unless it was begun already. `name` goes without the prefix that all have.
    pub fn family(&mut self, name: &str, kind: &str, about: &str) {
        self.family_named(&format!("meilisearch_{name}"), kind, about);
    }

    /// As [`Self::family`], of a name without the prefix.
    pub(super) fn family_named(&mut self, name: &str, kind: &str, about: &str) {
        if !self.families.contains_key(name) {
            let head = format!("# HELP {name} {about}\n# TYPE {name} {kind}\n");
            self.families.insert(name.to_owned(), head);
        }
        name.clone_into(&mut self.family);
    }

    /// A value of the family.
    pub fn value(&mut self, labels: &Labels, value: f64) {
        self.suffixed("", labels, value);
    }

    /// A family of one value without labels.
    pub fn gauge(&mut self, name: &str, about: &str, value: f64) {
        self.family(name, "gauge", about);
        self.value(&Vec::new(), value);
    }

    /// The text.
    pub fn into_text(self) -> String {
        self.families.into_values().collect()
    }

    /// How many values of the family lie within `bound`.
    pub(super) fn bucket(&mut self, labels: &Labels, bound: &str, count: u64) {
        let mut labels = labels.clone();
        labels.push(("le", bound.to_owned()));
        self.suffixed("_bucket", &labels, count as f64);
    }

    /// A value of the family's member of this ending.
    pub(super) fn suffixed(&mut self, suffix: &str, labels: &Labels, value: f64) {
        let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let text = self.families.entry(self.family.clone()).or_default();
        // Writing to a text cannot fail.
        let _ = writeln!(text, "{}{suffix}{labels} {value}", self.family);
    }
}
