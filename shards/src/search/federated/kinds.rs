//! Checks whether the lists of several queries can be merged: they must be ordered by the same kinds of rules.

use crate::rank::{Rule, RuleList, SortBy};
use crate::search::plan::sort_by;
use crate::search::request::SearchRequest;
use crate::settings::Settings;

/// What a rule compares, as far as merging goes: the names of fields do not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleKind {
    /// How well a document fits the query: rules next to one another count as one.
    Relevancy,
    /// A field's value.
    Sort {
        /// Largest first.
        descending: bool,
    },
    /// A distance.
    Geo {
        /// Farthest first.
        descending: bool,
    },
}

/// The kinds of rules that order the results of a search, most important first.
pub fn rule_kinds(request: &SearchRequest, settings: &Settings) -> Vec<RuleKind> {
    let placeholder = request.query.as_deref().unwrap_or("").is_empty();
    let by_meaning = request.semantic.as_ref().is_some_and(|semantic| placeholder || semantic.ratio >= 1.0);
    let list = match by_meaning {
        true => RuleList::by_vector(settings, &sort_by(request)),
        false => RuleList::new(settings, &sort_by(request), request.matching_strategy, placeholder),
    };
    let mut kinds: Vec<RuleKind> = Vec::new();
    let mut has_geo = false;
    for rule in &list.rules {
        let kind = match rule {
            Rule::Sort(number) => match &list.sorts[usize::from(*number)] {
                SortBy::Geo { .. } if std::mem::replace(&mut has_geo, true) => continue,
                by @ SortBy::Geo { .. } => RuleKind::Geo { descending: by.is_descending() },
                by @ SortBy::Field { .. } => RuleKind::Sort { descending: by.is_descending() },
            },
            _ if kinds.last() == Some(&RuleKind::Relevancy) => continue,
            _ => RuleKind::Relevancy,
        };
        kinds.push(kind);
    }
    kinds
}

/// Whether lists ordered so can be merged: one may go on where the other ends.
pub fn are_compatible(left: &[RuleKind], right: &[RuleKind]) -> bool {
    left.iter().zip(right).all(|(left, right)| left == right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facets::SortCriterion;

    fn kinds(rules: &[&str], query: &str, sort: &[(&str, bool)]) -> Vec<RuleKind> {
        let settings =
            Settings { ranking_rules: rules.iter().map(|rule| (*rule).to_owned()).collect(), ..Settings::default() };
        let sort = sort.iter().map(|(field, descending)| SortCriterion::field(*field, *descending)).collect();
        rule_kinds(&SearchRequest { query: Some(query.into()), sort, ..SearchRequest::default() }, &settings)
    }

    #[test]
    fn rules_reduce_to_kinds() {
        use RuleKind::{Relevancy, Sort};
        let default = ["words", "typo", "proximity", "attribute", "sort", "exactness"];
        let (asc, desc) = (Sort { descending: false }, Sort { descending: true });
        assert_eq!(kinds(&default, "a", &[]), [Relevancy]);
        assert_eq!(kinds(&default, "a", &[("x", true), ("x", false)]), [Relevancy, desc, Relevancy]);
        assert_eq!(kinds(&default, "", &[("x", false), ("y", true)]), [asc, desc]);
        assert_eq!(kinds(&["words", "year:asc", "sort"], "a", &[("year", true)]), [Relevancy, asc]);
        assert!(kinds(&default, "", &[]).is_empty());
    }

    #[test]
    fn a_list_may_end_where_another_goes_on() {
        let (asc, desc) = (RuleKind::Sort { descending: false }, RuleKind::Sort { descending: true });
        assert!(are_compatible(&[], &[asc]) && are_compatible(&[asc], &[asc, desc]));
        assert!(!are_compatible(&[asc], &[desc, asc]) && !are_compatible(&[asc], &[RuleKind::Relevancy]));
        assert!(!are_compatible(&[asc], &[RuleKind::Geo { descending: false }]));
    }
}
