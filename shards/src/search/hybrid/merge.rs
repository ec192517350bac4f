//! Merges the keyword and the semantic results into one list.

use std::cmp::Ordering;

use crate::rank::score::Scorer;
use crate::runtime::pause;
use crate::search::federated::{ScoreValue, score_values};
use crate::search::merge::Ranked;
use crate::search::part::Pacer;

/// For each of the first `count` documents of a list what it is compared by, its numbers times the weight.
pub async fn values(ranked: &Ranked, count: usize, weight: f64, pacer: &dyn Pacer) -> Vec<Vec<ScoreValue>> {
    let plan = &ranked.question.plan;
    let scorer = Scorer::new(plan, &ranked.facts);
    let mut values = Vec::with_capacity(count.min(ranked.docs.len()));
    for hit in ranked.docs.iter().take(count) {
        values.push(score_values(plan, hit, &scorer.score(hit, pacer).await, weight));
        pause(pacer).await;
    }
    values
}

/// Which of two heads comes first: `Greater` where the left one does.
pub fn compare(left: &[ScoreValue], right: &[ScoreValue]) -> Ordering {
    let mut at = 0;
    loop {
        let order = match (left.get(at), right.get(at)) {
            (None, None) => return Ordering::Equal,
            (Some(_), None) => return Ordering::Greater,
            (None, Some(_)) => return Ordering::Less,
            (Some(left), Some(right)) => step(left, right),
        };
        if order.is_ne() {
            return order;
        }
        at += 1;
    }
}

fn step(left: &ScoreValue, right: &ScoreValue) -> Ordering {
    match (left, right) {
        (ScoreValue::Sort { value, descending }, ScoreValue::Sort { value: other, .. }) => {
            other.compare(value, *descending)
        }
        (ScoreValue::Geo { distance, descending }, ScoreValue::Geo { distance: other, .. }) => {
            match (distance, other) {
                (Some(left), Some(right)) if *descending => numbers(*left, *right),
                (Some(left), Some(right)) => numbers(*right, *left),
                (left, right) => left.is_some().cmp(&right.is_some()),
            }
        }
        _ => match (left.number(), right.number()) {
            (Some(left), Some(right)) => numbers(left, right),
            (Some(0.0), None) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (None, Some(0.0)) => Ordering::Greater,
            (None, Some(_)) => Ordering::Less,
            (None, None) => Ordering::Equal,
        },
    }
}

fn numbers(left: f64, right: f64) -> Ordering {
    if (left - right).abs() <= f64::EPSILON { Ordering::Equal } else { left.total_cmp(&right) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank::SortValue;

    #[test]
    fn heads_are_compared_step_by_step() {
        let number = ScoreValue::Relevancy;
        let sort = |number| ScoreValue::Sort { value: SortValue::Number(number), descending: false };
        assert_eq!(compare(&[number(0.5)], &[number(0.4)]), Ordering::Greater);
        assert_eq!(compare(&[number(0.5)], &[number(0.5 + 1e-17)]), Ordering::Equal);
        assert_eq!(compare(&[sort(1.0), number(0.1)], &[sort(2.0), number(0.9)]), Ordering::Greater);
        assert_eq!(compare(&[sort(1.0)], &[number(0.0)]), Ordering::Greater);
        assert_eq!(compare(&[sort(1.0)], &[number(0.1)]), Ordering::Less);
        assert_eq!(compare(&[number(0.5), sort(1.0)], &[number(0.5)]), Ordering::Greater);
        let far = |distance| ScoreValue::Geo { distance, descending: false };
        assert_eq!(compare(&[far(Some(1.0))], &[far(Some(9.0))]), Ordering::Greater);
        assert_eq!(compare(&[far(None)], &[far(Some(9.0))]), Ordering::Less);
    }
}
