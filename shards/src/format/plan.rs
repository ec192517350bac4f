//! The format plan of a search: which parts of its hits are shown, and how.

use charabia::Language;

use super::matcher::MatchWords;
use super::select::Paths;
use crate::fields::FieldsMap;
use crate::search::{FormatRequest, SearchRequest};
use crate::settings::{Settings, covers_subtree};

/// Plain data that travels to the owners of the hits.
#[derive(Clone, Debug, PartialEq)]
pub struct FormatPlan {
    /// Attributes of the hit itself.
    pub retrieve: Paths,
    /// What `_formatted` and `_matchesPosition` may show.
    pub displayed: Paths,
    /// What `_formatted` holds; `None`: there is no `_formatted`.
    pub formatted: Option<Paths>,
    /// Attributes whose matches are wrapped.
    pub highlight: Paths,
    /// Attributes that are cropped, each with its number of words; a later entry overrides an earlier one.
    pub crop: Vec<(String, usize)>,
    /// Put around matches.
    pub tags: (String, String),
    /// Put where a text was cut.
    pub marker: String,
    /// Whether `_matchesPosition` is added.
    pub matches_position: bool,
    /// Whether `_vectors` is shown.
    pub vectors: bool,
    /// What is looked for in texts.
    pub words: MatchWords,
    /// The languages of texts, when the request names them.
    pub languages: Option<Vec<Language>>,
}

impl FormatPlan {
    /// Whether words are looked for in the hits' texts.
    pub fn marks_up(&self) -> bool {
        self.formatted.is_some() || self.matches_position
    }

    /// The plan of a request.
    pub fn new(request: &SearchRequest, settings: &Settings, fields: &FieldsMap, words: MatchWords) -> Self {
        let format = &request.format;
        let displayed = if settings.displayed_attributes.iter().any(|name| name == "*") {
            Paths::All
        } else {
            let known = settings.displayed_attributes.iter().filter(|name| fields.id(name).is_some());
            Paths::Named(known.cloned().collect())
        };
        let displayed_all = displayed == Paths::All;
        let shows_vectors = settings.displayed_attributes.iter().any(|name| name == "_vectors");
        let retrieve = match (&displayed, &format.attributes_to_retrieve) {
            (_, Some(asked)) if asked.iter().any(|name| name == "*") => displayed.clone(),
            (_, None) => displayed.clone(),
            (Paths::All, Some(asked)) => {
                Paths::Named(asked.iter().filter(|name| fields.id(name).is_some()).cloned().collect())
            }
            (Paths::Named(shown), Some(asked)) => {
                Paths::Named(asked.iter().filter(|name| shown.contains(name)).cloned().collect())
            }
        };
        let valid = |name: &str| fields.id(name).is_some() && settings.displayed(name);
        let highlight = highlight_paths(format, &valid);
        let crop = crop_lengths(format, &valid);
        let all = matches!(highlight, Paths::All) || crop.iter().any(|(name, _)| name == "*");
        let formatted = if all {
            (!fields.is_empty() && !displayed.is_empty()).then(|| displayed.clone())
        } else if highlight.is_empty() && crop.is_empty() {
            None
        } else {
            Some(joined(&retrieve, &highlight, &crop))
        };
        Self {
            retrieve,
            displayed,
            formatted,
            highlight,
            crop,
            tags: (format.highlight_pre_tag.clone(), format.highlight_post_tag.clone()),
            marker: format.crop_marker.clone(),
            matches_position: format.show_matches_position,
            vectors: request.retrieve_vectors && (displayed_all || shows_vectors),
            words,
            languages: crate::search::plan::named_languages(request),
        }
    }

    /// Whether a hit is the stored document as it is.
    pub fn is_whole(&self) -> bool {
        self.retrieve == Paths::All && self.formatted.is_none() && !self.matches_position
    }

    /// Words that a text at `path` may show; `None`: all. What is said of a path below counts too, as the interface has it: an
    /// array may hold texts beside objects.
    pub fn words_max(&self, path: &str) -> Option<usize> {
        let concerns = |name: &str| name == "*" || covers_subtree(name, path) || covers_subtree(path, name);
        self.crop.iter().rev().find(|(name, _)| concerns(name)).map(|(_, words)| *words)
    }

    /// Whether matches in a text at `path` are wrapped, by the same rule.
    pub fn highlights(&self, path: &str) -> bool {
        let covers = |paths: &Paths| paths.covers(path) || paths.reaches_below(path);
        covers(&self.highlight) && covers(&self.displayed)
    }
}

fn highlight_paths(format: &FormatRequest, valid: &dyn Fn(&str) -> bool) -> Paths {
    let Some(names) = &format.attributes_to_highlight else { return Paths::Named(Vec::new()) };
    if names.iter().any(|name| name == "*") {
        return Paths::All;
    }
    Paths::Named(names.iter().filter(|name| valid(name)).cloned().collect())
}

fn crop_lengths(format: &FormatRequest, valid: &dyn Fn(&str) -> bool) -> Vec<(String, usize)> {
    let default = usize::try_from(format.crop_length).unwrap_or(usize::MAX);
    let items = format.attributes_to_crop.iter().flatten().map(|item| match item.rsplit_once(':') {
        Some((name, length)) => (name, length.parse().unwrap_or(default)),
        None => (item.as_str(), default),
    });
    items.filter(|(name, _)| *name == "*" || valid(name)).map(|(name, words)| (name.to_owned(), words)).collect()
}

fn joined(retrieve: &Paths, highlight: &Paths, crop: &[(String, usize)]) -> Paths {
    match (retrieve, highlight) {
        (Paths::Named(retrieve), Paths::Named(highlight)) => {
            let crop = crop.iter().map(|(name, _)| name);
            Paths::Named(retrieve.iter().chain(highlight).chain(crop).cloned().collect())
        }
        _ => Paths::All,
    }
}
