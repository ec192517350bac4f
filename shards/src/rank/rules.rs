//! Determines which rules order the documents of a search.

use super::plan::SortBy;
use crate::query::QueryGraph;
use crate::search::MatchingStrategy;
use crate::settings::Settings;

/// One step of the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Fewer dropped terms first.
    Words,
    /// Fewer typos first.
    Typo,
    /// Nearer words first.
    Proximity,
    /// Weightier attributes first.
    AttributeRank,
    /// Words at the places they have in the query first.
    WordPosition,
    /// Attributes that are or start with the query first. Followed by [`Rule::ExactWords`].
    ExactAttribute,
    /// More words as typed first.
    ExactWords,
    /// Nearer to the query's vector first.
    Vector,
    /// By the value of the criterion of this number.
    Sort(u8),
}

/// The effective rules of a search.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleList {
    /// In order of importance.
    pub rules: Vec<Rule>,
    /// What the [`Rule::Sort`] numbers mean.
    pub sorts: Vec<SortBy>,
    /// Whether attribute rank and word position came as the one rule `attribute` and are shown as one.
    pub joined_attribute: bool,
}

impl Rule {
    /// Whether the rule gives documents costs.
    pub fn is_graph(self) -> bool {
        !matches!(self, Self::Sort(_))
    }
}

impl RuleList {
    /// The rules of a search: those of the settings, `sort` replaced by the request's criteria, without those that
    /// have no meaning for a placeholder or came before.
    pub fn new(settings: &Settings, sort: &[SortBy], strategy: MatchingStrategy, placeholder: bool) -> Self {
        let mut list = Self::default();
        for name in &settings.ranking_rules {
            match name.as_str() {
                "sort" => sort.iter().for_each(|by| list.push_sort(by.clone())),
                "words" | "typo" | "proximity" | "attribute" | "attributeRank" | "wordPosition" | "exactness" => {
                    if !placeholder {
                        list.push_named(name, strategy);
                    }
                }
                _ => {
                    if let Some((field, direction)) = name.rsplit_once(':') {
                        list.push_sort(SortBy::Field { name: field.into(), descending: direction == "desc" });
                    }
                }
            }
        }
        list
    }

    /// The rules of a search by meaning: in the place of the first rule about words stands nearness to the query's vector, the
    /// others about words fall away. Without any rule about words nearness counts for nothing.
    pub fn by_vector(settings: &Settings, sort: &[SortBy]) -> Self {
        let mut list = Self::default();
        for name in &settings.ranking_rules {
            match name.as_str() {
                "sort" => sort.iter().for_each(|by| list.push_sort(by.clone())),
                "words" | "typo" | "proximity" | "attribute" | "attributeRank" | "wordPosition" | "exactness" => {
                    list.push(Rule::Vector);
                }
                _ => {
                    if let Some((field, direction)) = name.rsplit_once(':') {
                        list.push_sort(SortBy::Field { name: field.into(), descending: direction == "desc" });
                    }
                }
            }
        }
        list
    }

    /// Whether there may be documents that no rule can place: where terms are dropped but not by the first rule that reads the graph, it
    /// places only documents with all terms.
    pub fn may_leave_unplaced(&self, graph: &QueryGraph) -> bool {
        let first = self.rules.iter().find(|rule| rule.is_graph());
        first.is_some_and(|rule| *rule != Rule::Words) && graph.drop_ranks.iter().any(Option::is_some)
    }

    fn push(&mut self, rule: Rule) {
        if !self.rules.contains(&rule) {
            self.rules.push(rule);
        }
    }

    fn push_named(&mut self, name: &str, strategy: MatchingStrategy) {
        let wants_words = matches!(name, "words" | "typo" | "proximity" | "attribute" | "exactness");
        if wants_words && strategy != MatchingStrategy::All {
            self.push(Rule::Words);
        }
        match name {
            "typo" => self.push(Rule::Typo),
            "proximity" => self.push(Rule::Proximity),
            "attribute" if !self.rules.contains(&Rule::AttributeRank) && !self.rules.contains(&Rule::WordPosition) => {
                self.joined_attribute = true;
                self.push(Rule::AttributeRank);
                self.push(Rule::WordPosition);
            }
            "attributeRank" if !self.joined_attribute => self.push(Rule::AttributeRank),
            "wordPosition" if !self.joined_attribute => self.push(Rule::WordPosition),
            "exactness" => {
                self.push(Rule::ExactAttribute);
                self.push(Rule::ExactWords);
            }
            _ => {}
        }
    }

    fn push_sort(&mut self, by: SortBy) {
        let known = self.sorts.iter().any(|other| match (other, &by) {
            (SortBy::Field { name, .. }, SortBy::Field { name: new, .. }) => name == new,
            _ => false,
        });
        if !known && self.sorts.len() < usize::from(u8::MAX) {
            self.rules.push(Rule::Sort(self.sorts.len() as u8));
            self.sorts.push(by);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(names: &[&str], strategy: MatchingStrategy, placeholder: bool) -> Vec<Rule> {
        let settings =
            Settings { ranking_rules: names.iter().map(|name| (*name).into()).collect(), ..Settings::default() };
        let sort = [SortBy::Field { name: "year".into(), descending: true }];
        RuleList::new(&settings, &sort, strategy, placeholder).rules
    }

    #[test]
    fn words_come_before_the_rules_that_need_them() {
        use Rule::*;
        let last = MatchingStrategy::Last;
        assert_eq!(rules(&["typo", "words"], last, false), [Words, Typo]);
        assert_eq!(rules(&["attributeRank", "proximity"], last, false), [AttributeRank, Words, Proximity]);
        assert_eq!(rules(&["words", "typo"], MatchingStrategy::All, false), [Typo]);
        assert_eq!(rules(&["attribute", "attributeRank"], last, false), [Words, AttributeRank, WordPosition]);
        assert_eq!(rules(&["exactness", "sort"], last, false), [Words, ExactAttribute, ExactWords, Sort(0)]);
    }

    #[test]
    fn nearness_takes_the_place_of_words() {
        let rules = |names: &[&str]| {
            let ranking_rules = names.iter().map(|name| (*name).into()).collect();
            RuleList::by_vector(&Settings { ranking_rules, ..Settings::default() }, &[]).rules
        };
        assert_eq!(rules(&["a:asc", "typo", "words", "b:desc"]), [Rule::Sort(0), Rule::Vector, Rule::Sort(1)]);
        assert_eq!(rules(&["a:asc", "sort"]), [Rule::Sort(0)]);
    }

    #[test]
    fn a_field_is_sorted_by_once_and_placeholders_only_sort() {
        use Rule::*;
        let last = MatchingStrategy::Last;
        assert_eq!(rules(&["words", "sort", "year:asc", "a:asc"], last, true), [Sort(0), Sort(1)]);
        assert_eq!(rules(&["sort", "sort", "a:desc", "a:asc"], last, true), [Sort(0), Sort(1)]);
    }
}
