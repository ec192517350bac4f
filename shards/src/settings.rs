//! The complete settings of one index, as indexing and search read them. The server's interface validates and merges changes;
//! here every field has a value.

pub mod embedder;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use embedder::{Distribution, EmbedderConfig, EmbedderInput, EmbedderSource, Reembedding};

/// All settings of an index. Serialized, it is the form kept on disk and close to the interface's own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Settings {
    /// `["*"]` for all.
    pub displayed_attributes: Vec<String>,
    /// `["*"]` for all; the position in the list is the attribute's weight.
    pub searchable_attributes: Vec<String>,
    /// In order; the first rule that matches a field decides for it.
    pub filterable_attributes: Vec<FilterableRule>,
    /// Names that cover themselves and what is below them.
    pub sortable_attributes: BTreeSet<String>,
    /// Documents of other indexes that stand in for ids when hits are written.
    pub foreign_keys: Vec<ForeignKey>,
    /// As written by the user, such as `words` or `year:desc`.
    pub ranking_rules: Vec<String>,
    /// In the tokenizer's compatibility-decomposed form.
    pub stop_words: BTreeSet<String>,
    /// Taken out of the default separators.
    pub non_separator_tokens: BTreeSet<String>,
    /// Added to the default separators.
    pub separator_tokens: BTreeSet<String>,
    /// Strings cut out of a text as one word each.
    pub dictionary: BTreeSet<String>,
    /// As written by the user.
    pub synonyms: BTreeMap<String, Vec<String>>,
    /// The stop words that the synonyms were read with, where these were others than now: synonyms are read anew when they,
    /// the separators or the dictionary change, not with the stop words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synonym_stop_words: Option<BTreeSet<String>>,
    /// At most one document for each value of this field is returned.
    pub distinct_attribute: Option<String>,
    /// How near two words count.
    pub proximity_precision: ProximityPrecision,
    /// Typo budgets.
    pub typo_tolerance: TypoTolerance,
    /// Facet limits and order.
    pub faceting: Faceting,
    /// Limits of paging.
    pub pagination: Pagination,
    /// By name; the interface's validated objects.
    pub embedders: BTreeMap<String, Value>,
    /// Milliseconds; `None` means 1500.
    pub search_cutoff_ms: Option<u64>,
    /// `None` and an empty list read back differently.
    pub localized_attributes: Option<Vec<LocalizedRule>>,
    /// Whether facet search is possible at all.
    pub facet_search: bool,
    /// Whether the last word of a query may be the beginning of a word.
    pub prefix_search: PrefixSearch,
    /// The interface's validated object.
    pub chat: Option<Value>,
    /// The names among which documents are dealt out over a network; empty where there is none. No client sets it.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub network_shards: BTreeSet<String>,
}

/// Which fields may be filtered, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FilterableRule {
    /// The field and all below it, with every feature.
    Name(String),
    /// The fields that match one of the patterns, with the features said.
    Patterns {
        /// `*` alone, or at the start and/or the end.
        #[serde(rename = "attributePatterns")]
        attribute_patterns: Vec<String>,
        /// What may be done with those fields.
        #[serde(default)]
        features: FilterableFeatures,
    },
}

/// Names that a message lists at most.
const NAMES_TOLD_MAX: usize = 50;

/// What may be done with a filterable field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct FilterableFeatures {
    /// The facet-search route.
    pub facet_search: bool,
    /// Operators of filters.
    pub filter: FilterFeatures,
}

/// Which operators a filterable field takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct FilterFeatures {
    /// `=`, `!=`, `IN`, `NOT IN`.
    pub equality: bool,
    /// `<`, `<=`, `>`, `>=`, `TO`.
    pub comparison: bool,
}

/// A field whose values are ids of another index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ForeignKey {
    /// The other index.
    pub foreign_index_uid: String,
    /// The field that holds ids.
    pub field_name: String,
}

/// How near two words count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase")]
pub enum ProximityPrecision {
    /// Distance in words.
    #[default]
    ByWord,
    /// In the same field or not.
    ByAttribute,
}

/// Whether words are found by their beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase")]
pub enum PrefixSearch {
    /// They are.
    #[default]
    IndexingTime,
    /// Only whole words.
    Disabled,
}

/// Typo budgets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TypoTolerance {
    /// False: no typos at all.
    pub enabled: bool,
    /// By characters of the query word.
    pub min_word_size_for_typos: MinWordSize,
    /// Normalised query words that get no typos.
    pub disable_on_words: BTreeSet<String>,
    /// Fields (with all below) whose words are only found as written.
    pub disable_on_attributes: BTreeSet<String>,
    /// Words of digits and ASCII punctuation are only found as written.
    pub disable_on_numbers: bool,
}

/// From how many characters on a word may hold typos.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MinWordSize {
    /// One typo.
    pub one_typo: u8,
    /// Two typos.
    pub two_typos: u8,
}

/// Facet limits and order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Faceting {
    /// Values returned for one facet.
    pub max_values_per_facet: u64,
    /// By field; `*` is the fallback and always there.
    pub sort_facet_values_by: BTreeMap<String, FacetOrder>,
}

/// The order of a facet's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FacetOrder {
    /// By normalised value.
    Alpha,
    /// By falling count.
    Count,
}

/// Limits of paging.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pagination {
    /// No hit beyond this one is reachable.
    pub max_total_hits: u64,
}

/// The languages of some fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalizedRule {
    /// `*` alone, or at the start and/or the end.
    pub attribute_patterns: Vec<String>,
    /// Three-letter codes.
    pub locales: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        let rules = ["words", "typo", "proximity", "attributeRank", "sort", "wordPosition", "exactness"];
        Self {
            displayed_attributes: vec!["*".into()],
            searchable_attributes: vec!["*".into()],
            filterable_attributes: Vec::new(),
            sortable_attributes: BTreeSet::new(),
            foreign_keys: Vec::new(),
            ranking_rules: rules.map(String::from).to_vec(),
            stop_words: BTreeSet::new(),
            non_separator_tokens: BTreeSet::new(),
            separator_tokens: BTreeSet::new(),
            dictionary: BTreeSet::new(),
            synonyms: BTreeMap::new(),
            synonym_stop_words: None,
            distinct_attribute: None,
            proximity_precision: ProximityPrecision::default(),
            typo_tolerance: TypoTolerance::default(),
            faceting: Faceting::default(),
            pagination: Pagination::default(),
            embedders: BTreeMap::new(),
            search_cutoff_ms: None,
            localized_attributes: None,
            facet_search: true,
            prefix_search: PrefixSearch::default(),
            chat: None,
            network_shards: BTreeSet::new(),
        }
    }
}

impl Default for FilterFeatures {
    fn default() -> Self {
        Self { equality: true, comparison: false }
    }
}

impl Default for TypoTolerance {
    fn default() -> Self {
        Self {
            enabled: true,
            min_word_size_for_typos: MinWordSize::default(),
            disable_on_words: BTreeSet::new(),
            disable_on_attributes: BTreeSet::new(),
            disable_on_numbers: false,
        }
    }
}

impl Default for MinWordSize {
    fn default() -> Self {
        Self { one_typo: 5, two_typos: 9 }
    }
}

impl Faceting {
    /// The order of a field's values.
    pub fn order(&self, field: &str) -> FacetOrder {
        let orders = &self.sort_facet_values_by;
        orders.get(field).or_else(|| orders.get("*")).copied().unwrap_or(FacetOrder::Alpha)
    }
}

impl Default for Faceting {
    fn default() -> Self {
        Self { max_values_per_facet: 100, sort_facet_values_by: BTreeMap::from([("*".into(), FacetOrder::Alpha)]) }
    }
}

impl Default for Pagination {
    fn default() -> Self {
        Self { max_total_hits: 1000 }
    }
}

/// Whether `field` is `name` or lies below it.
pub fn covers_subtree(name: &str, field: &str) -> bool {
    field.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Whether `field` matches an attribute pattern: `*` alone, or at the start and/or the end; else equality.
pub fn matches_pattern(pattern: &str, field: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        _ if pattern == "*" => true,
        (Some(inner), Some(_)) => field.contains(inner.strip_suffix('*').unwrap_or(inner)),
        (Some(end), None) => field.ends_with(end),
        (None, Some(start)) => field.starts_with(start),
        (None, None) => field == pattern,
    }
}

impl Settings {
    /// Notes, after a change from `before`, which stop words the synonyms are read with.
    pub fn note_synonym_stop_words(&mut self, before: &Self) {
        let read_anew = self.synonyms != before.synonyms
            || self.separator_tokens != before.separator_tokens
            || self.non_separator_tokens != before.non_separator_tokens
            || self.dictionary != before.dictionary;
        let read_with = before.synonym_stop_words.as_ref().unwrap_or(&before.stop_words);
        let differs = !read_anew && !self.synonyms.is_empty() && *read_with != self.stop_words;
        self.synonym_stop_words = differs.then(|| read_with.clone());
    }

    /// An embedder of the index by its name.
    pub fn embedder(&self, name: &str) -> Option<EmbedderConfig> {
        self.embedders.get(name).map(EmbedderConfig::of)
    }

    /// What may be done with `field`: the first rule that matches it decides; `None` when no rule does.
    pub fn filterable(&self, field: &str) -> Option<FilterableFeatures> {
        self.filterable_attributes.iter().find_map(|rule| match rule {
            FilterableRule::Name(name) => covers_subtree(name, field).then_some(FilterableFeatures {
                facet_search: true,
                filter: FilterFeatures { equality: true, comparison: true },
            }),
            FilterableRule::Patterns { attribute_patterns, features } => {
                attribute_patterns.iter().any(|pattern| matches_pattern(pattern, field)).then_some(*features)
            }
        })
    }

    /// What may be filtered by, for who named something else.
    pub fn filterable_told(&self) -> String {
        told(
            "filterable",
            self.filterable_attributes.iter().flat_map(|rule| match rule {
                FilterableRule::Name(name) => std::slice::from_ref(name),
                FilterableRule::Patterns { attribute_patterns, .. } => attribute_patterns,
            }),
        )
    }

    /// What may be sorted by, for who named something else.
    pub fn sortable_told(&self) -> String {
        told("sortable", self.sortable_attributes.iter())
    }

    /// Whether `field` or a parent of it is sortable.
    pub fn sortable(&self, field: &str) -> bool {
        self.sortable_attributes.iter().any(|name| covers_subtree(name, field))
    }

    /// The weight of a searchable field: the place of the first name that covers it, 0 for all under `*`. `None` when it is
    /// not searchable; reserved fields never are.
    pub fn searchable_weight(&self, field: &str) -> Option<u16> {
        if ["_vectors", "_geo", "_geojson"].iter().any(|reserved| covers_subtree(reserved, field)) {
            return None;
        }
        if self.searchable_attributes.iter().any(|name| name == "*") {
            return Some(0);
        }
        self.searchable_attributes.iter().position(|name| covers_subtree(name, field)).map(|at| at as u16)
    }

    /// Whether a field is displayed by its own name. Hits show it as well where a parent is displayed, but it is not marked up
    /// there, and scores do not tell its values.
    pub fn displayed(&self, field: &str) -> bool {
        self.displayed_attributes.iter().any(|name| name == "*" || name == field)
    }

    /// Whether facts about this field's values must be kept in the columns.
    pub fn faceted(&self, field: &str) -> bool {
        self.filterable(field).is_some_and(|f| f.facet_search || f.filter.equality || f.filter.comparison)
            || self.sortable(field)
            || self.distinct_attribute.as_deref() == Some(field)
            || self
                .ranking_rules
                .iter()
                .any(|rule| matches!(rule.rsplit_once(':'), Some((name, "asc" | "desc")) if name == field))
    }
}

/// The names that are of a kind, as a message has them.
fn told<'n>(kind: &str, names: impl Iterator<Item = &'n String>) -> String {
    let mut names = names.map(|name| format!("`{name}`"));
    let shown: Vec<String> = names.by_ref().take(NAMES_TOLD_MAX).collect();
    match (shown.is_empty(), names.next()) {
        (true, _) => format!("no attribute is {kind}"),
        (false, None) => format!("{kind} are: {}", shown.join(", ")),
        (false, Some(_)) => format!("{kind} are: {} and others", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_and_subtrees_match_as_documented() {
        assert!(covers_subtree("title", "title") && covers_subtree("title", "title.x"));
        assert!(!covers_subtree("title", "titles") && !covers_subtree("title", "a.title"));
        assert!(matches_pattern("meta*", "meta.k") && !matches_pattern("meta", "meta.k"));
        assert!(matches_pattern("*ta*", "meta.k") && matches_pattern("*.k", "meta.k"));
        assert!(!matches_pattern("a*b", "acb") && matches_pattern("*", "anything"));
    }

    #[test]
    fn weights_follow_the_first_covering_name() {
        let mut settings = Settings { searchable_attributes: vec!["r".into(), "r.s".into()], ..Settings::default() };
        assert_eq!(settings.searchable_weight("r.s"), Some(0));
        settings.searchable_attributes = vec!["r.s".into(), "r".into()];
        assert_eq!((settings.searchable_weight("r.s"), settings.searchable_weight("r.t")), (Some(0), Some(1)));
        assert_eq!(settings.searchable_weight("_geo.lat"), None);
    }
}
