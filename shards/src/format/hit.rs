//! Writes one hit.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::crop::Span;
use super::matcher::TextMatch;
use super::plan::FormatPlan;
use super::text::{TextStyle, format_text};
use crate::document::walk::literal_text;
use crate::fields::FieldsMap;
use crate::ids::FieldId;
use crate::query::Cutter;

/// What a hit shows besides its document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HitExtras {
    /// Metres to the point that the search sorts by.
    pub geo_distance: Option<f64>,
    /// `_federation`
    pub federation: Option<FederationMark>,
    /// `_vectors`, as JSON.
    pub vectors: Option<Vec<u8>>,
    /// `_rankingScore`
    pub score: Option<f64>,
    /// `_rankingScoreDetails`
    pub score_details: Option<Map<String, Value>>,
}

/// Where a hit of a federated search comes from, as it is shown.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FederationMark {
    /// The name of the index.
    pub index_uid: Arc<str>,
    /// The number of the query.
    pub queries_position: u64,
    /// Its score times the query's weight.
    #[serde(rename = "weightedRankingScore")]
    pub weighted_score: f64,
    /// The instance that has the hit, when that is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<Option<Arc<str>>>,
    /// What another instance needs to merge the hit, when one asked.
    #[serde(skip)]
    pub merging: Option<MergingMark>,
}

/// What an instance that merges hits of several instances is told besides.
#[derive(Clone, Debug, PartialEq)]
pub struct MergingMark {
    /// The steps of the hit's order, as JSON.
    pub score_values: Value,
    /// Its place, when it has one of its own.
    pub pinned_position: Option<u32>,
    /// Paths whose values are needed, also where the hit does not show them.
    pub paths: Arc<Vec<String>>,
}

/// Writes hits of one search.
pub struct HitWriter<'p> {
    plan: &'p FormatPlan,
    names: &'p FieldsMap,
    cutter: &'p dyn Cutter,
}

impl<'p> HitWriter<'p> {
    /// A writer for documents of one partition.
    pub fn new(plan: &'p FormatPlan, names: &'p FieldsMap, cutter: &'p dyn Cutter) -> Self {
        Self { plan, names, cutter }
    }

    /// Appends the hit as a JSON object. `fields` are the stored ones in order, each with its JSON text.
    pub fn write<'v>(
        &self,
        fields: impl Iterator<Item = (FieldId, &'v [u8])> + Clone,
        extras: HitExtras,
        out: &mut Vec<u8>,
    ) {
        let mut writer = MemberWriter { out, first: true };
        writer.out.push(b'{');
        for (field, bytes) in fields.clone() {
            let name = self.names.name(field).unwrap_or_default();
            if name == "_vectors" {
                continue;
            }
            if self.plan.retrieve.names(name) {
                writer.raw(name, bytes);
            } else if self.plan.retrieve.reaches_below(name)
                && let Ok(value) = serde_json::from_slice::<Value>(bytes)
                && let Some(kept) = self.plan.retrieve.select(name, &value, false)
            {
                writer.value(name, &kept);
            }
        }
        if let Some(vectors) = &extras.vectors {
            writer.raw("_vectors", vectors);
        }
        if let Some(distance) = extras.geo_distance {
            writer.value("_geoDistance", &json!(distance.round() as u64));
        }
        if let Some(mark) = &extras.federation {
            match &mark.merging {
                None => writer.value("_federation", mark),
                Some(merging) => writer.value("_federation", &self.merging(mark, merging, fields.clone())),
            }
        }
        if self.plan.formatted.is_some() || self.plan.matches_position {
            self.write_formatted(fields, &mut writer);
        }
        if let Some(score) = extras.score {
            writer.value("_rankingScore", &json!(score));
        }
        if let Some(details) = extras.score_details {
            writer.value("_rankingScoreDetails", &Value::Object(details));
        }
        writer.out.push(b'}');
    }

    fn merging<'v>(
        &self,
        mark: &FederationMark,
        merging: &MergingMark,
        fields: impl Iterator<Item = (FieldId, &'v [u8])>,
    ) -> Value {
        let mut shown = json!(mark);
        shown["weightedScoreValues"] = merging.score_values.clone();
        if let Some(place) = merging.pinned_position {
            shown["pinnedPosition"] = place.into();
        }
        let mut hidden = Map::new();
        for (field, bytes) in fields {
            let name = self.names.name(field).unwrap_or_default();
            let is_needed = |path: &String| {
                path.as_str() == name || path.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'))
            };
            if merging.paths.iter().any(is_needed)
                && !self.plan.retrieve.names(name)
                && let Ok(value) = serde_json::from_slice::<Value>(bytes)
            {
                hidden.insert(name.to_owned(), value);
            }
        }
        shown["extra_document"] = hidden.into();
        shown
    }

    fn write_formatted<'v>(&self, fields: impl Iterator<Item = (FieldId, &'v [u8])>, writer: &mut MemberWriter<'_>) {
        let mut formatted = Map::new();
        let mut positions = BTreeMap::new();
        for (field, bytes) in fields {
            // What is stored of `_vectors`, that of embedders which the index does not have, is a field like any other here.
            let name = self.names.name(field).unwrap_or_default();
            let kept = self.plan.formatted.as_ref().filter(|paths| paths.names(name) || paths.reaches_below(name));
            let shown = self.plan.displayed.names(name) || self.plan.displayed.reaches_below(name);
            if kept.is_none() && !(shown && self.plan.matches_position) {
                continue;
            }
            let Ok(value) = serde_json::from_slice::<Value>(bytes) else { continue };
            if self.plan.matches_position {
                match self.plan.displayed.names(name) {
                    true => self.positions(name, &value, &mut Vec::new(), &mut positions),
                    false => {
                        let shown = self.plan.displayed.select(name, &value, false);
                        shown.iter().for_each(|value| self.positions(name, value, &mut Vec::new(), &mut positions));
                    }
                }
            }
            let value = match kept {
                None => None,
                // A long text is not copied.
                Some(paths) if paths.names(name) => Some(value),
                Some(paths) => paths.select(name, &value, true),
            };
            if let Some(mut value) = value {
                self.format_value(name, &mut value);
                formatted.insert(name.to_owned(), value);
            }
        }
        if !formatted.is_empty() {
            writer.value("_formatted", &Value::Object(formatted));
        }
        if self.plan.matches_position {
            writer.value("_matchesPosition", &positions);
        }
    }

    /// The matches in a text, and the places of its tokens where these are wanted. It is cut in the languages that the request names,
    /// else those of the rule that covers the path. A token at a time: all of them take forty times the memory of the text.
    fn matches(&self, text: &str, path: &str, mut spans: Option<&mut Vec<Span>>) -> Vec<TextMatch> {
        let languages = self.plan.languages.as_deref().or_else(|| self.cutter.languages(path));
        let mut finder = self.plan.words.finder(text);
        self.cutter.each_shown_token(text, languages, &mut |token| {
            if let Some(spans) = &mut spans {
                spans.push(Span::of(&token));
            }
            finder.push(token);
        });
        finder.finish()
    }

    /// Formats the leaves of a value; numbers become strings.
    fn format_value(&self, path: &str, value: &mut Value) {
        let text = match value {
            Value::Object(object) => {
                object.iter_mut().for_each(|(key, value)| self.format_value(&format!("{path}.{key}"), value));
                return;
            }
            Value::Array(items) => {
                items.iter_mut().for_each(|item| self.format_value(path, item));
                return;
            }
            Value::String(text) => std::mem::take(text),
            Value::Number(number) => literal_text(&number.to_string()).into_owned(),
            Value::Bool(_) | Value::Null => return,
        };
        let words_max = self.plan.words_max(path);
        let highlighted = self.plan.highlights(path);
        if words_max.is_none() && (!highlighted || self.plan.words.is_empty()) {
            *value = Value::String(text);
            return;
        }
        let mut spans = Vec::new();
        let matches = self.matches(&text, path, words_max.is_some().then_some(&mut spans));
        let (open, close) = &self.plan.tags;
        let tags = highlighted.then_some((open.as_str(), close.as_str()));
        let style = TextStyle { tags, words_max, marker: &self.plan.marker };
        let shown = format_text(&text, &spans, &matches, style);
        *value = Value::String(shown);
    }

    /// Notes the matches of each leaf; of the leaves on one path the last that has matches stays.
    fn positions(
        &self,
        path: &str,
        value: &Value,
        indices: &mut Vec<usize>,
        found: &mut BTreeMap<String, MatchPositions>,
    ) {
        let text = match value {
            Value::Object(object) => {
                for (key, value) in object {
                    self.positions(&format!("{path}.{key}"), value, indices, found);
                }
                return;
            }
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    indices.push(at);
                    self.positions(path, item, indices, found);
                    indices.pop();
                }
                return;
            }
            Value::String(text) => Cow::Borrowed(text.as_str()),
            Value::Number(number) => Cow::Owned(literal_text(&number.to_string()).into_owned()),
            Value::Bool(_) | Value::Null => return,
        };
        let matches = self.matches(&text, path, None);
        if !matches.is_empty() {
            found.insert(path.to_owned(), MatchPositions { matches, indices: indices.clone() });
        }
    }
}

/// The matches in one text, as `_matchesPosition` has them.
struct MatchPositions {
    matches: Vec<TextMatch>,
    /// The places of the text in the arrays around it, outermost first.
    indices: Vec<usize>,
}

impl Serialize for MatchPositions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Position<'p> {
            start: u32,
            length: u32,
            #[serde(skip_serializing_if = "<[usize]>::is_empty")]
            indices: &'p [usize],
        }
        let position = |m: &TextMatch| Position { start: m.start, length: m.length, indices: &self.indices };
        serializer.collect_seq(self.matches.iter().map(position))
    }
}

/// Members of an object, one after the other.
struct MemberWriter<'o> {
    out: &'o mut Vec<u8>,
    first: bool,
}

impl MemberWriter<'_> {
    fn name(&mut self, name: &str) {
        if !self.first {
            self.out.push(b',');
        }
        self.first = false;
        // Writing to memory fails only for keys that are no strings.
        let _ = serde_json::to_writer(&mut *self.out, name);
        self.out.push(b':');
    }

    fn raw(&mut self, name: &str, json: &[u8]) {
        self.name(name);
        self.out.extend_from_slice(json);
    }

    fn value(&mut self, name: &str, value: &impl Serialize) {
        self.name(name);
        let _ = serde_json::to_writer(&mut *self.out, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::MatchWords;
    use crate::query::{Derivations, Node, PrefixMode, QueryGraph};
    use crate::search::{FormatRequest, SearchRequest};
    use crate::settings::Settings;

    fn words(word: &str) -> MatchWords {
        let prefix = Some(PrefixMode::List(None));
        let derivations = Derivations { text: word.into(), word: true, prefix, ..Derivations::default() };
        let node = Node { first: 0, len: 1, position: 0, last_position: 0, derivations };
        MatchWords::of(&QueryGraph {
            nodes: vec![node],
            term_count: 1,
            drop_ranks: vec![None],
            ..QueryGraph::default()
        })
    }

    fn hit(format: FormatRequest, displayed: &[&str], document: &Value) -> Value {
        let mut names = FieldsMap::default();
        let object = document.as_object().unwrap();
        let fields: Vec<(FieldId, Vec<u8>)> =
            object.iter().map(|(k, v)| (names.insert(k).unwrap(), v.to_string().into_bytes())).collect();
        names.insert("o.w");
        let settings = Settings {
            displayed_attributes: displayed.iter().map(|name| (*name).to_owned()).collect(),
            ..Settings::default()
        };
        let request = SearchRequest { format, ..SearchRequest::default() };
        let plan = FormatPlan::new(&request, &settings, &names, words("winter"));
        let mut out = Vec::new();
        let fields = fields.iter().map(|(field, value)| (*field, value.as_slice()));
        HitWriter::new(&plan, &names, &charabia::TokenizerBuilder::<Vec<u8>>::new().build()).write(
            fields,
            HitExtras::default(),
            &mut out,
        );
        serde_json::from_slice(&out).unwrap()
    }

    fn list(names: &[&str]) -> Option<Vec<String>> {
        Some(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn displayed_and_asked_attributes_meet_by_exact_name() {
        let document = json!({"a": 1, "o": {"b": 2, "w": 3}});
        let retrieve =
            |names: &[&str]| FormatRequest { attributes_to_retrieve: list(names), ..FormatRequest::default() };
        assert_eq!(hit(retrieve(&["*"]), &["*"], &document), document);
        assert_eq!(hit(retrieve(&["o.w", "zz"]), &["*"], &document), json!({"o": {"w": 3}}));
        assert_eq!(hit(retrieve(&["o"]), &["o.w"], &document), json!({}));
        assert_eq!(hit(retrieve(&["o.w"]), &["o"], &document), json!({}));
        assert_eq!(hit(retrieve(&[]), &["*"], &document), json!({}));
        assert_eq!(hit(FormatRequest::default(), &["a"], &document), json!({"a": 1}));
    }

    #[test]
    fn numbers_become_strings_and_matches_are_marked() {
        let document = json!({"t": "winter is here", "n": 7, "b": true, "o": [{"w": "winters"}, {"x": 1}]});
        let format = FormatRequest { attributes_to_highlight: list(&["t"]), ..FormatRequest::default() };
        let formatted =
            json!({"t": "<em>winter</em> is here", "n": "7", "b": true, "o": [{"w": "winters"}, {"x": "1"}]});
        assert_eq!(hit(format, &["*"], &document)["_formatted"], formatted);
        let format = FormatRequest {
            attributes_to_highlight: list(&["o.w"]),
            attributes_to_retrieve: list(&["n"]),
            show_matches_position: true,
            ..FormatRequest::default()
        };
        let want = json!({"n": 7, "_formatted": {"n": "7", "o": [{"w": "<em>winter</em>s"}]},
            "_matchesPosition": {"t": [{"start": 0, "length": 6}], "o.w": [{"start": 0, "length": 6, "indices": [0]}]}});
        assert_eq!(hit(format, &["*"], &document), want);
        let format = FormatRequest { attributes_to_highlight: list(&["zz"]), ..FormatRequest::default() };
        assert_eq!(hit(format, &["*"], &document), document);
    }
}
