//! Reading what the service answers: `{"results": [{"index": 3, "relevance_score": 0.9}, ...]}`, and more that is of no use here.

use std::str::FromStr;

use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    results: Vec<Ranked<'a>>,
}

/// One document. Neither member is taken for what it should be.
#[derive(Deserialize)]
struct Ranked<'a> {
    #[serde(borrow, default)]
    index: Option<&'a RawValue>,
    #[serde(borrow, default)]
    relevance_score: Option<&'a RawValue>,
}

/// Reads an answer about `count` documents: the places of those that it names, the most relevant first, each once.
///
/// # Errors
/// It cannot be read, or names no document.
pub(super) fn read(answer: &[u8], count: usize) -> Result<Vec<usize>, String> {
    let answer: Answer<'_> = serde_json::from_slice(answer).map_err(|error| format!("its answer: {error}"))?;
    let (mut ranked, mut is_named) = (Vec::new(), vec![false; count]);
    for result in answer.results {
        let Some(index) = number::<usize>(result.index) else { continue };
        let Some(is_named) = is_named.get_mut(index) else { continue };
        if !std::mem::replace(is_named, true) {
            let score = number::<f64>(result.relevance_score).filter(|score| score.is_finite());
            ranked.push((index, score.unwrap_or(f64::NEG_INFINITY)));
        }
    }
    if ranked.is_empty() {
        return Err("its answer names none of the documents".into());
    }
    // Services give them in this order as a rule. Those without a score, and equals, keep theirs.
    ranked.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    Ok(ranked.into_iter().map(|(index, _)| index).collect())
}

fn number<T: FromStr>(text: Option<&RawValue>) -> Option<T> {
    text.and_then(|text| text.get().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranked(results: &str) -> Option<Vec<usize>> {
        read(format!(r#"{{"id":"x","results":{results},"meta":{{"billed":[1]}}}}"#).as_bytes(), 3).ok()
    }

    #[test]
    fn the_most_relevant_come_first() {
        let sorted = r#"[{"index":2,"relevance_score":0.9},{"index":0,"relevance_score":1e-3}]"#;
        assert_eq!(ranked(sorted), Some(vec![2, 0]));
        let unsorted = r#"[{"relevance_score":-1,"index":0,"document":{"text":"x"}},{"index":1,"relevance_score":7}]"#;
        assert_eq!(ranked(unsorted), Some(vec![1, 0]));
        let unscored = r#"[{"index":2},{"index":1,"relevance_score":null},{"index":0,"relevance_score":0.0}]"#;
        assert_eq!(ranked(unscored), Some(vec![0, 2, 1]));
    }

    /// Each of these numbers was sent to be used as a place in the page.
    #[test]
    fn what_names_no_document_is_passed_over() {
        for bad in ["3", "-1", "1.0", "1e0", "\"1\"", "null", "[1]", "{}", "true", "99999999999999999999999"] {
            let results = format!(r#"[{{"index":{bad},"relevance_score":9}},{{"index":0,"relevance_score":1}}]"#);
            assert_eq!(ranked(&results), Some(vec![0]), "{bad}");
        }
        let twice =
            r#"[{"index":1,"relevance_score":1},{"index":0,"relevance_score":2},{"index":1,"relevance_score":3}]"#;
        assert_eq!(ranked(twice), Some(vec![0, 1]));
        assert_eq!(ranked(r#"[{"relevance_score":1},{"index":2,"relevance_score":1e999}]"#), Some(vec![2]));
    }

    #[test]
    fn nonsense_is_refused() {
        for results in
            ["[]", "{}", "null", "[1]", "[null]", r#"[{"index":7}]"#, r#"[{"index":0,"relevance_score":NaN}]"#]
        {
            assert_eq!(ranked(results), None, "{results}");
        }
        for answer in ["", "[]", "{}", "<html>", r#"{"results":[{"index":0}]"#, &"[".repeat(100_000)] {
            assert!(read(answer.as_bytes(), 3).is_err(), "{answer:.20}");
        }
        assert!(read(br#"{"results":[{"index":0}]}"#, 0).is_err());
    }
}
