//! The format in which Skerry instances send each other search results. First comes a line of JSON with everything that is not
//! per hit. Then come the hits, a few at a time: one line of JSON with all that they are merged by, then each hit as it is shown,
//! one after another. Last, also in lines of a few, come the facts that scores are computed from. The asking instance passes the
//! hits on unparsed, whereas it would have to parse those of the interface's own response ([`super::answer`]) and format most of
//! them in vain. Because everything comes in short pieces, neither side blocks its core with a large page.
//!
//! If an instance is asked to use the words of all instances, these come in a line of their own before the query.
//!
//! The format shows which words documents contain that the caller may not see, so it is for proven instances only: to others it
//! does not exist.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use shards::query::QueryWords;
use shards::rank::score_facts::ScoreFacts;
use shards::runtime::{Checkpoint, Runtime, RuntimePace};
use shards::search::federated::{Part, PartHit};

use crate::api::decode::{json_body, malformed_payload};
use crate::api::error::ApiError;
use crate::api::router::{Call, Host};
use crate::api::search::federated::PROXY_HEADER;
use crate::api::search::params::many::ManyParams;
use crate::app::App;
use crate::auth::{Action, authorize};
use crate::network::proof::{LATER_TOLERANCE, PROOF, Signed, TOLERANCE};

/// The content type. Another layout is to have another one.
pub(in crate::api::search) const CONTENT_TYPE: &str = "application/x-skerry-hit-lines";
/// The content type of a question with words.
const WITH_WORDS: &str = "application/x-skerry-words";
const JSON: &str = "application/json";

/// Hits or facts in a line, at most: between two lines others have their turn.
const ITEMS_PER_LINE: usize = 64;
/// Room for what is told of a hit besides what it shows, and for a fact.
const ITEM_BYTES: usize = 192;

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

/// Who asks.
pub(in crate::api::search) enum Asker {
    /// A client, or an instance that does not prove to be one.
    Client,
    /// Another instance of this server, by these words.
    Instance(GivenWords),
}

/// What was asked, and by whom.
///
/// # Errors
/// As [`Call::read`] and [`ManyParams::from_body`].
pub(in crate::api::search) async fn asked(call: &mut Call<App>) -> Result<(Asker, ManyParams), ApiError> {
    let is_instance = is_instance(call).await;
    call.read(move |content_type, bytes| {
        if !is_instance || content_type != Some(WITH_WORDS) {
            let params = ManyParams::from_body(&json_body(content_type, bytes)?)?;
            let asker = if is_instance { Asker::Instance(Vec::new()) } else { Asker::Client };
            return Ok((asker, params));
        }
        let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
        let words = serde_json::from_slice(&bytes[..end]).map_err(|error| malformed_payload("json", error))?;
        let body = json_body(Some(JSON), bytes.get(end + 1..).unwrap_or_default())?;
        Ok((Asker::Instance(words), ManyParams::from_body(&body)?))
    })
    .await
}

/// Whether another instance of the network asks, and proves it. Where no keys are in use, nothing is hidden from anybody.
async fn is_instance(call: &Call<App>) -> bool {
    let (state, headers) = (call.app.control.state(), &call.request.headers);
    if !state.features.network || headers.get(PROXY_HEADER) != Some(b"true") || call.grant.is_tenant() {
        return false;
    }
    if state.keys.master_key().is_none() {
        return true;
    }
    let (Some(proof), Ok(body)) = (headers.get_str(PROOF), call.bytes()) else { return false };
    // The asking instance may have heard of a change of the network that searches do not go by here yet.
    for network in [&state.routing.network, &state.network] {
        let own = network.own_name.as_ref().and_then(|name| network.remotes.get(name));
        let Some(key) = own.and_then(|own| own.write_api_key.as_deref()) else { continue };
        let bearer = format!("Bearer {key}");
        let may_write =
            authorize(Some(bearer.as_bytes()), Action::DocumentsAdd, None, &state.keys, call.app.now()).is_ok();
        let content_type = call.content_type().unwrap_or_default();
        // Words are sent only to who has answered as to an instance before.
        let tolerance = if content_type == WITH_WORDS { LATER_TOLERANCE } else { TOLERANCE };
        let signed = Signed::received(headers, content_type, body);
        if may_write && signed.is_proven(&*call.app.runtime, key, proof, tolerance).await {
            return true;
        }
    }
    false
}

/// The first line.
#[derive(Serialize, Deserialize)]
struct Head<P> {
    /// All but hits and facts.
    part: P,
    /// How many hits follow.
    hits: usize,
    /// How many facts of each kind follow, query by query.
    facts: Vec<(usize, usize)>,
}

/// Writes what was found here.
pub(in crate::api::search) async fn write(runtime: &dyn Runtime, mut part: Part) -> Vec<u8> {
    let (hits, scores) = (std::mem::take(&mut part.hits), std::mem::take(&mut part.scores));
    let facts: Vec<(usize, usize)> = scores.iter().map(ScoreFacts::counts).collect();
    let items = hits.len() + facts.iter().map(|(used, profiles)| used + profiles).sum::<usize>();
    let shown: usize = hits.iter().map(|hit| hit.json.len()).sum();
    let mut checkpoint = Checkpoint::default();
    let mut out = Vec::with_capacity(shown + ITEM_BYTES * items + 256);
    write_line(&mut out, &Head { part: &part, hits: hits.len(), facts });
    for some in hits.chunks(ITEMS_PER_LINE) {
        let lengths: Vec<usize> = some.iter().map(|hit| hit.json.len()).collect();
        write_line(&mut out, &(some, lengths));
        for hit in some {
            out.extend_from_slice(&hit.json);
            checkpoint.look(runtime).await;
        }
    }
    for facts in &scores {
        for some in facts.used.chunks(ITEMS_PER_LINE) {
            write_line(&mut out, some);
            checkpoint.look(runtime).await;
        }
        for some in facts.profiles.chunks(ITEMS_PER_LINE) {
            write_line(&mut out, some);
            checkpoint.look(runtime).await;
        }
    }
    Part { hits, scores, ..part }.free(&RuntimePace(runtime)).await;
    out
}

fn write_line<T: Serialize + ?Sized>(out: &mut Vec<u8>, line: &T) {
    // Nothing in it can fail: keys are texts, and there is no end of room in memory.
    let _ = serde_json::to_writer(&mut *out, line);
    out.push(b'\n');
}

/// Reads what another instance has found; an error says what is wrong with it.
pub(super) async fn read(runtime: &dyn Runtime, body: &[u8]) -> Result<Part, String> {
    let mut rest = Rest(body);
    let Head { mut part, hits, facts }: Head<Part> = rest.line()?;
    let mut checkpoint = Checkpoint::default();
    part.hits.clear();
    while part.hits.len() < hits {
        let (some, lengths): (Vec<PartHit>, Vec<usize>) = rest.line()?;
        if some.is_empty() || some.len() != lengths.len() {
            return Err("it has another number of hits than it says".into());
        }
        for (hit, length) in some.into_iter().zip(lengths) {
            part.hits.push(PartHit { json: rest.bytes(length)?.to_vec(), ..hit });
            checkpoint.look(runtime).await;
        }
    }
    part.scores = Vec::with_capacity(facts.len());
    for (used, profiles) in facts {
        let used = rest.items(runtime, used).await?;
        part.scores.push(ScoreFacts { used, profiles: rest.items(runtime, profiles).await? });
    }
    if rest.0.is_empty() && part.hits.len() == hits { Ok(part) } else { Err("it is too long".into()) }
}

/// What is not read yet.
struct Rest<'b>(&'b [u8]);

impl<'b> Rest<'b> {
    fn bytes(&mut self, count: usize) -> Result<&'b [u8], String> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or("it is too short")?;
        self.0 = rest;
        Ok(bytes)
    }

    fn line<T: DeserializeOwned>(&mut self) -> Result<T, String> {
        let end = self.0.iter().position(|byte| *byte == b'\n').ok_or("it lacks a line")?;
        let line = self.bytes(end + 1)?;
        serde_json::from_slice(line).map_err(|error| error.to_string())
    }

    /// So many items out of lines that have a few each.
    async fn items<T: DeserializeOwned>(&mut self, runtime: &dyn Runtime, count: usize) -> Result<Vec<T>, String> {
        let (mut items, mut checkpoint) = (Vec::new(), Checkpoint::default());
        while items.len() < count {
            let some: Vec<T> = self.line()?;
            if some.is_empty() {
                return Err("it has fewer facts than it says".into());
            }
            items.extend(some);
            checkpoint.look(runtime).await;
        }
        if items.len() == count { Ok(items) } else { Err("it has more facts than it says".into()) }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use futures_lite::future::block_on;
    use shards::facets::distribution::{Distribution, FacetValues};
    use shards::rank::SortValue;
    use shards::rank::paths::{Path, Step};
    use shards::rank::plan::Costs;
    use shards::rank::score_facts::Profile;
    use shards::search::federated::{ScoreValue, values_at};
    use storage_engine::io::mem::MemDisk;

    use super::*;
    use crate::control::testing::TestRuntime;

    fn write(part: Part) -> Vec<u8> {
        block_on(super::write(&TestRuntime::new(Rc::new(MemDisk::new())), part))
    }

    fn read(body: &[u8]) -> Result<Part, String> {
        block_on(super::read(&TestRuntime::new(Rc::new(MemDisk::new())), body))
    }

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
            assert_eq!(read(&write(part.clone())), Ok(part));
        }
    }

    /// A large page takes many lines, of which the last is not full.
    #[test]
    fn large_pages_read_back_as_they_were() {
        let mut large = part();
        large.hits = (0..5 * ITEMS_PER_LINE + 1).map(|at| large.hits[at % 2].clone()).collect();
        for (at, hit) in large.hits.iter_mut().enumerate() {
            hit.json = format!("{{\"n\":{at}}}").into_bytes();
        }
        let (used, profiles) = (large.scores[1].used[0].clone(), large.scores[1].profiles[0].clone());
        large.scores[1].used = vec![used; 2 * ITEMS_PER_LINE];
        large.scores[1].profiles = vec![profiles; 3 * ITEMS_PER_LINE + 7];
        assert_eq!(read(&write(large.clone())), Ok(large));
    }

    /// Whatever is cut off or added, nothing is taken for a hit that is none.
    #[test]
    fn what_is_not_whole_is_refused() {
        let written = write(part());
        for length in 0..written.len() {
            assert!(read(&written[..length]).is_err(), "{length} bytes");
        }
        assert!(read(&[&written[..], b" "].concat()).is_err());
        let text = String::from_utf8(written).unwrap();
        for (said, other) in
            [("\"hits\":2", "\"hits\":1"), ("\"hits\":2", "\"hits\":3"), ("[1,1]", "[1,0]"), ("[1,1]", "[1,2]")]
        {
            assert!(text.contains(said));
            assert!(read(text.replace(said, other).as_bytes()).is_err(), "{other} for {said}");
        }
    }
}
