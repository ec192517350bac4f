//! Compares hits of different searches and merges their lists.
//!
//! Hits of one list are never compared with each other: each list keeps its own order, and only its first hit competes.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::vec::IntoIter;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::ids::DocId;
use crate::rank::score::Score;
use crate::rank::{RankPlan, RankedDoc, Rule, SortBy, SortValue};
use crate::search::pins::PinnedDoc;

/// A step of the order of a hit, comparable with those of hits of other indexes and instances.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ScoreValue {
    /// The score of adjacent rules about the query, times the weight.
    Relevancy(f64),
    /// How near the document is to what is meant, times the weight. Compared with [`Self::Relevancy`] as its like.
    Similarity(f64),
    /// The value of a field.
    Sort {
        /// The value.
        value: SortValue,
        /// Largest first.
        descending: bool,
    },
    /// The distance of a document.
    Geo {
        /// Metres, when the document has a place.
        distance: Option<f64>,
        /// Farthest first.
        descending: bool,
    },
}

/// A hit in a list that is to be merged.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    /// The place of its query in the request.
    pub(super) query: usize,
    /// The number that its query shows.
    pub(super) position: u64,
    /// Its number in its index.
    pub(super) doc: DocId,
    /// How it came into the list.
    pub(super) origin: Origin,
    /// Its score times the weight.
    pub(super) score: f64,
    /// The steps of its order.
    pub(super) values: Vec<ScoreValue>,
    /// Its cost by meaning in a share of a search, which tells apart what has the same similarity: lower first.
    pub(super) nearness: Option<u32>,
}

/// How a hit came into the list.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Origin {
    /// Its query ranked it.
    Ranked {
        /// In which of the query's lists.
        list: usize,
        /// Its place there.
        at: usize,
    },
    /// It stands at a place of its own.
    Pinned(PinnedDoc),
    /// It is one of a part of a larger search.
    Part,
}

impl Entry {
    /// What comes first of hits of different lists.
    pub(super) fn compare(&self, other: &Self) -> Ordering {
        let by_score = || greater_first(self.score, other.score).then(self.position.cmp(&other.position));
        let mut at = 0;
        loop {
            let order = match (self.values.get(at), other.values.get(at)) {
                (None, None) => return self.position.cmp(&other.position),
                (Some(_), None) => return Ordering::Less,
                (None, Some(_)) => return Ordering::Greater,
                (Some(left), Some(right)) => left.compare(right),
            };
            let by_nearness = || match (self.values.get(at), self.nearness, other.nearness) {
                (Some(ScoreValue::Similarity(_)), Some(left), Some(right)) => left.cmp(&right),
                _ => Ordering::Equal,
            };
            match order {
                Compared::Order(Ordering::Equal) if by_nearness().is_ne() => return by_nearness(),
                Compared::Order(Ordering::Equal) => at += 1,
                Compared::Order(order) => return order,
                Compared::Opposite => return by_score(),
                // The list with more steps left is the finer one.
                Compared::Different => return other.values.len().cmp(&self.values.len()).then_with(by_score),
            }
        }
    }
}

impl ScoreValue {
    /// The number of one that is no value of the document.
    pub(in crate::search) fn number(&self) -> Option<f64> {
        match self {
            Self::Relevancy(number) | Self::Similarity(number) => Some(*number),
            Self::Sort { .. } | Self::Geo { .. } => None,
        }
    }

    /// As instances tell it each other.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Relevancy(score) => json!({ "weightedScore": score }),
            Self::Similarity(score) => json!({ "vectorSort": score }),
            Self::Sort { value, descending } => {
                let value = match value {
                    SortValue::Number(number) => json!(number),
                    SortValue::Text(text) => json!(text),
                    SortValue::Point { distance, .. } => json!(distance),
                    SortValue::Missing => Value::Null,
                };
                json!({ "sort": { "asc": !descending, "value": value } })
            }
            Self::Geo { distance, descending } => json!({ "geoSort": { "asc": !descending, "distance": distance } }),
        }
    }

    /// From what an instance tells; `None` for what cannot be understood.
    pub fn from_json(json: &Value) -> Option<Self> {
        let (kind, content) = json.as_object()?.iter().next()?;
        let descending = || content.get("asc").and_then(Value::as_bool).map(|asc| !asc);
        Some(match kind.as_str() {
            "weightedScore" => Self::Relevancy(content.as_f64()?),
            "vectorSort" => Self::Similarity(content.as_f64()?),
            "sort" => {
                let value = match content.get("value") {
                    Some(Value::Number(number)) => SortValue::Number(number.as_f64()?),
                    Some(Value::String(text)) => SortValue::Text(text.clone()),
                    None | Some(Value::Null) => SortValue::Missing,
                    Some(_) => return None,
                };
                Self::Sort { value, descending: descending()? }
            }
            "geoSort" => {
                Self::Geo { distance: content.get("distance").and_then(Value::as_f64), descending: descending()? }
            }
            _ => return None,
        })
    }
}

enum Compared {
    Order(Ordering),
    /// The same kind of value, in opposite directions.
    Opposite,
    /// Different kinds of values.
    Different,
}

impl ScoreValue {
    fn compare(&self, other: &Self) -> Compared {
        if let (Some(left), Some(right)) = (self.number(), other.number()) {
            return Compared::Order(nearly_equal_or(left, right));
        }
        Compared::Order(match (self, other) {
            (Self::Sort { value, descending }, Self::Sort { value: other, descending: theirs }) => {
                if descending != theirs {
                    return Compared::Opposite;
                }
                value.compare(other, *descending)
            }
            (Self::Geo { distance, descending }, Self::Geo { distance: other, descending: theirs }) => {
                if descending != theirs {
                    return Compared::Opposite;
                }
                match (distance, other) {
                    // The interface takes the farther head whatever the direction.
                    (Some(left), Some(right)) => nearly_equal_or(*left, *right),
                    (left, right) => right.is_some().cmp(&left.is_some()),
                }
            }
            _ => return Compared::Different,
        })
    }
}

fn greater_first(left: f64, right: f64) -> Ordering {
    right.total_cmp(&left)
}

fn nearly_equal_or(left: f64, right: f64) -> Ordering {
    if (left - right).abs() <= f64::EPSILON { Ordering::Equal } else { greater_first(left, right) }
}

/// The steps of the order of a document ranked under `plan`.
pub(in crate::search) fn score_values(plan: &RankPlan, hit: &RankedDoc, score: &Score, weight: f64) -> Vec<ScoreValue> {
    if score.skipped {
        return vec![ScoreValue::Relevancy(0.0)];
    }
    let mut values = Vec::new();
    // The ranks of the rules about the query since the last sort rule.
    let mut ranks: Vec<(u32, u32)> = Vec::new();
    let relevancy = |ranks: &mut Vec<(u32, u32)>| {
        let score =
            (!ranks.is_empty()).then(|| Score { ranks: std::mem::take(ranks), skipped: false, similarity: None });
        score.map(|score| ScoreValue::Relevancy(score.global() * weight))
    };
    for (rule, rank) in plan.rules.rules.iter().zip(&score.ranks) {
        if *rule == Rule::Vector {
            values.push(ScoreValue::Similarity(score.global() * weight));
            continue;
        }
        let Rule::Sort(number) = rule else {
            ranks.push(*rank);
            continue;
        };
        values.extend(relevancy(&mut ranks));
        let (by, value) = (&plan.rules.sorts[usize::from(*number)], &hit.sorts[usize::from(*number)]);
        let descending = by.is_descending();
        values.push(match (by, value) {
            (SortBy::Field { .. }, value) => ScoreValue::Sort { value: value.clone(), descending },
            (SortBy::Geo { .. }, SortValue::Point { distance, .. }) => {
                ScoreValue::Geo { distance: Some(*distance), descending }
            }
            (SortBy::Geo { .. }, _) => ScoreValue::Geo { distance: None, descending },
        });
    }
    values.extend(relevancy(&mut ranks));
    values
}

/// Merges lists, each in its own order. Equal heads leave in the order of their lists.
pub(super) fn merge(lists: Vec<Vec<Entry>>) -> Merged {
    let mut merged = Merged(BinaryHeap::with_capacity(lists.len()));
    for (list, entries) in lists.into_iter().enumerate() {
        merged.push(list, entries.into_iter());
    }
    merged
}

/// The entries of several lists, best head first.
pub(super) struct Merged(BinaryHeap<Head>);

struct Head {
    entry: Entry,
    list: usize,
    rest: IntoIter<Entry>,
}

impl Merged {
    /// What was not asked for, in no order.
    pub(super) fn into_rest(self) -> impl Iterator<Item = Entry> {
        self.0.into_iter().flat_map(|head| std::iter::once(head.entry).chain(head.rest))
    }

    fn push(&mut self, list: usize, mut rest: IntoIter<Entry>) {
        if let Some(entry) = rest.next() {
            self.0.push(Head { entry, list, rest });
        }
    }
}

impl Iterator for Merged {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        let Head { entry, list, rest } = self.0.pop()?;
        self.push(list, rest);
        Some(entry)
    }
}

/// The heap gives its greatest first, which must be the hit that comes first.
impl Ord for Head {
    fn cmp(&self, other: &Self) -> Ordering {
        other.entry.compare(&self.entry).then(other.list.cmp(&self.list))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head {}
