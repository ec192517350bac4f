//! What instances of this server tell each other of what they have found: first, as one line of JSON, all that hits merge by,
//! then the hits as they are shown, one behind the other. The instance that asked takes them as they are, where it would have
//! to take apart those of the interface's own answer ([`super::answer`]), and write most of them for nothing.
//!
//! An instance that is asked by the words of all is told them in a line of their own, before what it is asked.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use shards::query::QueryWords;
use shards::search::federated::Part;

use crate::api::decode::{json_body, malformed_payload};
use crate::api::error::ApiError;
use crate::api::router::Call;
use crate::app::App;

/// The content type. Another layout is to have another one.
pub(in crate::api::search) const CONTENT_TYPE: &str = "application/x-skerry-hits";
/// The content type of a question with words.
const WITH_WORDS: &str = "application/x-skerry-words";
const JSON: &str = "application/json";

/// For each query of a request what all instances know of its words; queries behind the end have none.
pub(in crate::api::search) type GivenWords = Vec<Option<Arc<QueryWords>>>;

/// What is sent to ask `body`, with its content type.
pub(super) fn question(words: &[Option<&QueryWords>], body: Vec<u8>) -> (&'static str, Vec<u8>) {
    if words.iter().all(Option::is_none) {
        return (JSON, body);
    }
    // Nothing in it can fail: keys are texts, and there is no end of room in memory.
    let mut question = serde_json::to_vec(words).unwrap_or_default();
    question.push(b'\n');
    question.extend_from_slice(&body);
    (WITH_WORDS, question)
}

/// What was asked, by whomever.
///
/// # Errors
/// As [`Call::json`].
pub(in crate::api::search) fn asked(call: &Call<App>) -> Result<(GivenWords, Value), ApiError> {
    if call.content_type() != Some(WITH_WORDS) {
        return Ok((Vec::new(), call.json()?));
    }
    let bytes = call.bytes()?;
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let words = serde_json::from_slice(&bytes[..end]).map_err(|error| malformed_payload("json", error))?;
    Ok((words, json_body(Some(JSON), bytes.get(end + 1..).unwrap_or_default())?))
}

/// The first line.
#[derive(Serialize, Deserialize)]
struct Line<P> {
    part: P,
    /// Bytes of each hit.
    lengths: Vec<usize>,
}

/// Writes what was found here.
pub(in crate::api::search) fn write(part: &Part) -> Vec<u8> {
    let lengths: Vec<usize> = part.hits.iter().map(|hit| hit.json.len()).collect();
    let mut out = Vec::with_capacity(lengths.iter().sum::<usize>() + 160 * lengths.len() + 256);
    // Nothing in it can fail: keys are texts, and there is no end of room in memory.
    let _ = serde_json::to_writer(&mut out, &Line { part, lengths });
    out.push(b'\n');
    part.hits.iter().for_each(|hit| out.extend_from_slice(&hit.json));
    out
}

/// Reads what another instance has found; an error says what is wrong with it.
pub(super) fn read(body: &[u8]) -> Result<Part, String> {
    let end = body.iter().position(|byte| *byte == b'\n').ok_or("it has no first line")?;
    let (line, mut rest) = (&body[..end], &body[end + 1..]);
    let Line { mut part, lengths }: Line<Part> = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    if lengths.len() != part.hits.len() {
        return Err("it has another number of hits than it says".into());
    }
    for (hit, length) in part.hits.iter_mut().zip(lengths) {
        let (json, others) = rest.split_at_checked(length).ok_or("it is too short")?;
        hit.json = json.to_vec();
        rest = others;
    }
    if rest.is_empty() { Ok(part) } else { Err("it is too long".into()) }
}

#[cfg(test)]
mod tests {
    use shards::facets::distribution::{Distribution, FacetValues};
    use shards::rank::SortValue;
    use shards::rank::paths::{Path, Step};
    use shards::rank::plan::Costs;
    use shards::rank::score_facts::{Profile, ScoreFacts};
    use shards::search::federated::{PartHit, ScoreValue, values_at};

    use super::*;

    fn scores() -> ScoreFacts {
        let path = |steps: &[Step]| Path::from_slice(steps);
        let paths = vec![(path(&[Step::Node { at: 7, class: 2 }, Step::Drop(3)]), Costs::from_slice(&[0, 9]), 5)];
        let used = vec![(vec![SortValue::Missing], 1, path(&[Step::Node { at: 255, class: 4 }]))];
        let profile = Profile { sorts: vec![SortValue::Number(1.5)], costs: Costs::from_slice(&[2, u32::MAX]), paths };
        ScoreFacts { used, profiles: vec![profile] }
    }

    fn part() -> Part {
        let fields = [("g", &br#"["Red", 1.0, 1]"#[..])];
        let hit = |json: &str, pinned, values| PartHit {
            json: json.into(),
            index_uid: "a".into(),
            position: 3,
            score: 0.924_242_424_242_424_2,
            values,
            pinned,
            fields: vec![("g".into(), values_at(fields.into_iter(), "g"))],
            rank: None,
            nearness: Some(3),
        };
        let sort = |value| ScoreValue::Sort { value, descending: true };
        let sorts = vec![sort(SortValue::Number(0.1)), sort(SortValue::Text("\n".into())), sort(SortValue::Missing)];
        let rest = vec![
            ScoreValue::Relevancy(1.0 / 3.0),
            ScoreValue::Similarity(0.25),
            ScoreValue::Geo { distance: Some(1.5), descending: false },
            ScoreValue::Geo { distance: None, descending: true },
        ];
        let values = vec![("red".to_owned(), 2), ("\"".to_owned(), 1)];
        let facets = vec![
            FacetValues { name: "g".into(), values, stats: Some((-1.5, 1e300)) },
            FacetValues { name: "h".into(), ..FacetValues::default() },
        ];
        Part {
            hits: vec![hit(r#"{"t":"é\n"}"#, None, sorts), hit("{}", Some(2), rest)],
            total: 17,
            facets: vec![("a".into(), Distribution { facets })],
            degraded: true,
            query_vectors: vec![(4, vec![0.1, -3.0])],
            words: vec![None, Some(QueryWords::default())],
            scores: vec![ScoreFacts::default(), scores()],
        }
    }

    #[test]
    fn what_is_written_reads_back_as_it_was() {
        for part in [part(), Part::default()] {
            assert_eq!(read(&write(&part)), Ok(part));
        }
    }

    /// Whatever is cut off or added, nothing is taken for a hit that is none.
    #[test]
    fn what_is_not_whole_is_refused() {
        let written = write(&part());
        for length in 0..written.len() {
            assert!(read(&written[..length]).is_err(), "{length} bytes");
        }
        assert!(read(&[&written[..], b" "].concat()).is_err());
        let other = String::from_utf8(written).unwrap().replace("\"lengths\":[", "\"lengths\":[0,");
        assert!(read(other.as_bytes()).is_err());
    }
}
