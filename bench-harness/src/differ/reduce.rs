//! Makes a differing query as small as it can be.

use std::io;

use super::Pair;
use super::compare::Difference;
use super::make::Query;

/// Takes away terms and options one by one while a difference of the same kind stays. Returns the least query found and how
/// the answers to it differ.
pub fn reduce(pair: &mut Pair, query: Query, difference: Difference) -> io::Result<(Query, Difference)> {
    let (mut query, mut difference) = (query, difference);
    loop {
        let mut smaller: Vec<Query> = Vec::new();
        for at in 0..query.terms.len() {
            let mut less = query.clone();
            less.terms.remove(at);
            smaller.push(less);
        }
        for name in query.options.keys() {
            let mut less = query.clone();
            less.options.remove(name);
            smaller.push(less);
        }
        let mut reduced = false;
        for less in smaller {
            let found = pair.differences(&less)?;
            if let Some(same) = found.into_iter().find(|found| found.label == difference.label) {
                (query, difference, reduced) = (less, same, true);
                break;
            }
        }
        if !reduced {
            return Ok((query, difference));
        }
    }
}
