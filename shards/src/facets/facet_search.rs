//! Facet search: the values of a facet that begin with what a user has typed, allowing typos.

use std::cmp::Reverse;
use std::ops::ControlFlow;

use roaring::RoaringBitmap;
use storage_engine::vector::Pace;

use crate::error::UserError;
use crate::facets::columns::ColumnError;
use crate::facets::folding::Folding;
use crate::facets::source::FacetSource;
use crate::ids::{DocId, LocalDocId};
use crate::runtime::pause_at;
use crate::settings::{FacetOrder, Settings, covers_subtree};
use crate::text::dictionary::TypoAutomaton;

/// Checks that the index can be searched for facets; fails with `facet_search_disabled`.
pub fn check_facet_search_enabled(settings: &Settings) -> Result<(), UserError> {
    if settings.facet_search {
        return Ok(());
    }
    Err(UserError::new("facet_search_disabled", "the facet search is disabled for this index"))
}

/// Checks that a field can be searched for its values; fails with `invalid_facet_search_facet_name`.
pub fn check_facet_name(field: &str, settings: &Settings) -> Result<(), UserError> {
    if settings.filterable(field).is_some_and(|features| features.facet_search) {
        return Ok(());
    }
    let message = format!("attribute `{field}` is not facet-searchable");
    Err(UserError::new("invalid_facet_search_facet_name", message))
}

/// The values found, of one partition or of several together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FacetHits {
    /// By normalised value, rising.
    hits: Vec<(Box<str>, Hit)>,
}

/// Values that are merged or put into order between two looks at whether others wait.
const VALUES_PER_LOOK: usize = 128;

/// One value: also those that no matching document of this partition has, because another partition may have one while the
/// first document of all is here.
#[derive(Clone, Debug, PartialEq)]
struct Hit {
    /// Matching documents with this value.
    count: u64,
    /// The least document with this value, matching or not.
    first: DocId,
    /// How that document spells it.
    spelling: Box<str>,
}

/// Finds the strings of a field that match, and how many of `documents` have each. Without a query, which comes folded as
/// [`Folding::of_query`] does it, all strings match. Numbers are never found.
pub async fn search_facet(
    source: &dyn FacetSource,
    field: &str,
    query: Option<&str>,
    documents: &RoaringBitmap,
    pace: &dyn Pace,
) -> Result<FacetHits, ColumnError> {
    let mut hits = Vec::new();
    let Some(number) = source.fields().id(field) else { return Ok(FacetHits::default()) };
    let columns = source.columns();
    let matcher = Matcher::new(query, field, source.settings());
    let mut visit = |value: &str, with_value: RoaringBitmap| {
        if let Some(first) = with_value.min()
            && matcher.matches(value)
        {
            let values = columns.values(number, LocalDocId(first))?;
            let spelling = values.and_then(|values| values.strings().find(|(found, _)| *found == value));
            let spelling = spelling.map_or(value, |(_, spelling)| spelling).into();
            let hit = Hit {
                count: with_value.intersection_len(documents),
                first: source.global(LocalDocId(first)),
                spelling,
            };
            hits.push((value.into(), hit));
        }
        Ok(ControlFlow::Continue(()))
    };
    columns.walk_strings(number, false, &mut visit, pace).await?;
    Ok(FacetHits { hits })
}

impl FacetHits {
    /// These and what another partition found for the same question.
    pub async fn merged(self, other: Self, pace: &dyn Pace) -> Self {
        let mut hits = Vec::with_capacity(self.hits.len().max(other.hits.len()));
        let (mut mine, mut theirs) = (self.hits.into_iter().peekable(), other.hits.into_iter().peekable());
        while let Some((value, mut hit)) = match (mine.peek(), theirs.peek()) {
            (Some((one, _)), Some((other, _))) if other < one => theirs.next(),
            (Some(_), _) => mine.next(),
            (None, _) => theirs.next(),
        } {
            if let Some((_, other)) = theirs.next_if(|(other, _)| *other == value) {
                hit.count += other.count;
                if other.first < hit.first {
                    (hit.first, hit.spelling) = (other.first, other.spelling);
                }
            }
            hits.push((value, hit));
            pause_at(hits.len(), VALUES_PER_LOOK, pace).await;
        }
        Self { hits }
    }

    /// The values to answer with their counts, in the facet's order and cut to its limit. `query` says whether there was
    /// one.
    pub async fn finish(
        self,
        field: &str,
        query: Option<&str>,
        settings: &Settings,
        pace: &dyn Pace,
    ) -> Vec<(String, u64)> {
        let limit = usize::try_from(settings.faceting.max_values_per_facet).unwrap_or(usize::MAX);
        let hits = self.hits.into_iter().filter(|(_, hit)| hit.count > 0);
        let first = match settings.faceting.order(field) {
            // By normalised value as they are, or by value without accents first.
            FacetOrder::Alpha if query.is_none() => first(hits.enumerate(), limit, pace).await,
            FacetOrder::Alpha => {
                let folding = Folding::of_values(field, settings);
                let keyed =
                    hits.enumerate().map(|(at, (value, hit))| ((folding.fold(&value).into_owned(), at), (value, hit)));
                first(keyed, limit, pace).await
            }
            FacetOrder::Count => {
                let keyed = hits.map(|(value, hit)| (Reverse((hit.count, hit.spelling.clone())), (value, hit)));
                first(keyed, limit, pace).await
            }
        };
        first.into_iter().map(|(_, hit)| (hit.spelling.into(), hit.count)).collect()
    }
}

/// The first items by key, of which no two are equal, up to a limit.
async fn first<K: Ord, T>(keyed: impl Iterator<Item = (K, T)>, limit: usize, pace: &dyn Pace) -> Vec<T> {
    let mut best: Vec<(K, T)> = Vec::new();
    let cut = |best: &mut Vec<(K, T)>| {
        best.sort_unstable_by(|(left, _), (right, _)| left.cmp(right));
        best.truncate(limit);
    };
    for (at, item) in keyed.enumerate() {
        best.push(item);
        if best.len() >= limit.saturating_mul(2).saturating_add(VALUES_PER_LOOK) {
            cut(&mut best);
        }
        pause_at(at, VALUES_PER_LOOK, pace).await;
    }
    cut(&mut best);
    best.into_iter().map(|(_, item)| item).collect()
}

/// Decides which values begin with the query.
struct Matcher {
    folding: Folding,
    wanted: Wanted,
}

enum Wanted {
    All,
    Exactly(String),
    Prefix(String),
    Typos(TypoAutomaton),
}

impl Matcher {
    fn new(query: Option<&str>, field: &str, settings: &Settings) -> Self {
        let wanted = query.map_or(Wanted::All, |query| Wanted::new(query, field, settings));
        Self { folding: Folding::of_values(field, settings), wanted }
    }

    fn matches(&self, value: &str) -> bool {
        match &self.wanted {
            Wanted::All => true,
            Wanted::Exactly(query) => self.folding.fold(value) == query.as_str(),
            Wanted::Prefix(query) => self.folding.fold(value).starts_with(query),
            Wanted::Typos(automaton) => automaton.distance(&self.folding.fold(value)).is_some(),
        }
    }
}

impl Wanted {
    fn new(query: &str, field: &str, settings: &Settings) -> Self {
        let tolerance = &settings.typo_tolerance;
        if tolerance.disable_on_words.contains(query) {
            return Self::Exactly(query.to_owned());
        }
        let sizes = tolerance.min_word_size_for_typos;
        let is_off =
            !tolerance.enabled || tolerance.disable_on_attributes.iter().any(|name| covers_subtree(name, field));
        match query.len() {
            _ if is_off => Self::Prefix(query.to_owned()),
            bytes if bytes < usize::from(sizes.one_typo) => Self::Prefix(query.to_owned()),
            bytes if bytes < usize::from(sizes.two_typos) => Self::Typos(TypoAutomaton::new(query, 1, true)),
            _ => Self::Typos(TypoAutomaton::new(query, 2, true)),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_lite::future::block_on;
    use serde_json::json;
    use storage_engine::vector::Unpaced;

    use super::*;
    use crate::facets::test_support::{Facets, filterable};

    fn found(facets: &Facets, query: Option<&str>) -> Vec<String> {
        let folding = Folding::of_query("city", &facets.settings, None);
        let query = query.map(|query| folding.fold(query));
        let hits = block_on(search_facet(facets, "city", query.as_deref(), &facets.documents, &Unpaced));
        let hits = hits.expect("memory does not fail");
        let found = block_on(hits.finish("city", query.as_deref(), &facets.settings, &Unpaced));
        found.into_iter().map(|(value, _)| value).collect()
    }

    fn cities() -> Facets {
        let names = [
            "Berlin",
            "Bern",
            "Bergen",
            "Barcelona",
            "Bordeaux",
            "Brussels",
            "Bremen",
            "Brest",
            "Brno",
            "Basel",
            "Baku",
            "Saint-Étienne",
            "San Francisco",
            "Amsterdam",
            "Amsteldam",
            "Bratislava",
            "Élan",
            "Elan",
            "Straße",
        ];
        let documents = names.into_iter().map(|name| json!({ "city": name })).chain([json!({"city": 42})]);
        Facets::with(filterable(&["city"]), documents)
    }

    #[test]
    fn typos_grow_with_the_bytes_of_the_query() {
        let mut facets = cities();
        for (query, expected) in [
            ("berln", vec!["Berlin", "Bern"]),
            ("brlin", vec!["Berlin"]),
            ("bxrl", vec![]),
            ("berlinn", vec!["Berlin"]),
            ("berlinnn", vec![]),
            ("amstredam", vec!["Amsteldam", "Amsterdam"]),
            ("xmsterdam", vec!["Amsteldam", "Amsterdam"]),
            ("amxtxrdxm", vec![]),
            ("bernx", vec!["Bern"]),
            ("sain etienne", vec!["Saint-Étienne"]),
            ("san fr", vec!["San Francisco"]),
            ("Élan", vec!["Elan", "Élan"]),
            ("elan", vec!["Elan", "Élan"]),
            ("ss", vec![]),
            ("straße", vec!["Straße"]),
            ("trasse", vec![]),
            ("   ", vec![]),
            ("4", vec![]),
        ] {
            assert_eq!(found(&facets, Some(query)), expected, "{query}");
        }
        assert_eq!(found(&facets, None).len(), 19);
        assert_eq!(found(&facets, Some("")).len(), 19);
        facets.settings.typo_tolerance.min_word_size_for_typos.one_typo = 3;
        assert_eq!(found(&facets, Some("brs")), ["Basel", "Bratislava", "Bremen", "Brest", "Brno", "Brussels"]);
        facets.settings.typo_tolerance.disable_on_words.insert("basel".into());
        facets.settings.typo_tolerance.disable_on_words.insert("base".into());
        assert_eq!((found(&facets, Some("Basel")), found(&facets, Some("base"))), (vec!["Basel".to_owned()], vec![]));
        facets.settings.typo_tolerance.disable_on_attributes.insert("city".into());
        assert_eq!((found(&facets, Some("brs")), found(&facets, Some("BARC"))), (vec![], vec!["Barcelona".to_owned()]));
    }

    /// The spelling is that of the first document of all, whichever partition it is in and whether it matches or not.
    #[test]
    fn partitions_find_together_what_one_finds() {
        let part =
            |names: &[&str]| Facets::with(filterable(&["city"]), names.iter().map(|name| json!({ "city": name })));
        let (left, right) = (part(&["PARIS", "Rome"]), part(&["paris", "Paris"]));
        let mut hits = block_on(search_facet(&right, "city", Some("par"), &right.documents, &Unpaced))
            .expect("memory does not fail");
        for (_, hit) in &mut hits.hits {
            hit.first.0 += 10;
        }
        let others = block_on(search_facet(&left, "city", Some("par"), &RoaringBitmap::new(), &Unpaced));
        let hits = block_on(hits.merged(others.expect("memory does not fail"), &Unpaced));
        let finish = |hits: FacetHits, query| block_on(hits.finish("city", Some(query), &left.settings, &Unpaced));
        assert_eq!(finish(hits, "par"), [("PARIS".to_owned(), 2)]);
        let none = block_on(search_facet(&left, "city", Some("rome"), &RoaringBitmap::new(), &Unpaced))
            .expect("memory does not fail");
        assert_eq!(finish(none, "rome"), []);
    }

    #[test]
    fn the_count_order_breaks_ties_by_falling_spelling() {
        let names = ["b", "a", "b", "c"];
        let mut facets = Facets::with(filterable(&["city"]), names.map(|name| json!({ "city": name })));
        facets.settings.faceting.sort_facet_values_by.insert("city".into(), FacetOrder::Count);
        assert_eq!(found(&facets, None), ["b", "c", "a"]);
        facets.settings.faceting.max_values_per_facet = 0;
        assert!(found(&facets, None).is_empty());
        assert!(
            check_facet_name("city.x", &facets.settings).is_ok() && check_facet_name("x", &facets.settings).is_err()
        );
        facets.settings.facet_search = false;
        assert!(check_facet_search_enabled(&facets.settings).is_err());
    }
}
