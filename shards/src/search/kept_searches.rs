//! Caches whole responses on the core that received the request.
//!
//! Many people type the same, and pages are loaded again and again. The partitions cache [what they ranked](super::kept_answers),
//! but asking them, writing their hits and merging them is most of the work of such a search. A cached response is as good as a
//! new one: it is that of the same request at the same epoch.

use std::cell::RefCell;
use std::hash::{Hash, Hasher};

use ahash::RandomState;
use uuid::Uuid;

use super::answer::SearchAnswer;
use super::request::SearchRequest;
use crate::ids::Epoch;
use crate::kept::{Kept, SHELVES};
use crate::runtime::Runtime;

/// Bytes of all answers on a core.
const BYTES_MAX: u64 = 32 << 20;
/// The part of a core's memory that they may take on a small machine.
const MEMORY_PART: u64 = 64;
/// Bytes of a request with its answer; what is larger is not kept.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Bytes of both besides their texts.
const FIXED_BYTES: usize = 1024;
/// Filters of more tests are not looked up: few people send the same.
const FILTER_SIZE_MAX: usize = 32;

/// A request of an index at one epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// The index.
    pub index: Uuid,
    /// Its layout.
    pub layout: u32,
    /// Its state.
    pub epoch: Epoch,
    /// What was asked.
    pub request: SearchRequest,
}

// A request holds numbers that are not equal to themselves only where a place is none: it is then kept in vain.
impl Eq for Asked {}

impl Hash for Asked {
    /// By what differs most between the requests of an application.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let SearchRequest { query, filter, sort, page, .. } = &self.request;
        (self.index, self.epoch, query, filter, sort, page).hash(state);
    }
}

impl Asked {
    /// Whether its answer follows from the documents alone and may come again.
    fn may_be_kept(&self) -> bool {
        let SearchRequest { filter, semantic, share, shows_steps, .. } = &self.request;
        let is_plain = semantic.is_none() && share.is_none() && !shows_steps;
        is_plain && filter.as_ref().is_none_or(|filter| filter.size() <= FILTER_SIZE_MAX)
    }

    /// Bytes that it takes in memory, about.
    fn bytes(&self) -> usize {
        let request = &self.request;
        let format = &request.format;
        let lists = [
            &request.facets,
            &request.attributes_to_search_on,
            &request.locales,
            &format.attributes_to_retrieve,
            &format.attributes_to_crop,
            &format.attributes_to_highlight,
        ];
        let names = lists.into_iter().flatten().flatten().chain(&request.query).chain(&request.distinct);
        let names: usize = names.map(|name| size_of::<String>() + name.len()).sum();
        let marks = [&format.crop_marker, &format.highlight_pre_tag, &format.highlight_post_tag];
        let marks: usize = marks.map(String::len).iter().sum();
        let pins: usize = request.pins.iter().map(|pin| size_of_val(pin) + pin.id.len()).sum();
        let sort: usize = request.sort.iter().map(|criterion| size_of_val(criterion) + criterion.bytes()).sum();
        let filter = request.filter.as_ref().map_or(0, |filter| filter.bytes() + filter.size() * size_of::<String>());
        FIXED_BYTES + names + marks + pins + sort + filter
    }
}

impl SearchAnswer {
    /// Bytes of its texts.
    fn bytes(&self) -> usize {
        self.hits.len() + self.facets.as_ref().map_or(0, |facets| facets.distribution.len() + facets.stats.len())
    }
}

/// The answers that a core keeps.
pub struct KeptSearches {
    answers: RefCell<Kept<Asked, SearchAnswer>>,
    seen: RefCell<Seen>,
    bytes_max: usize,
}

impl KeptSearches {
    /// For a core with so many bytes of memory.
    pub fn of_core(memory_bytes: u64) -> Self {
        let bytes_max = usize::try_from(BYTES_MAX.min(memory_bytes / MEMORY_PART)).unwrap_or(usize::MAX);
        Self { answers: RefCell::default(), seen: RefCell::default(), bytes_max }
    }

    /// The answer to an equal request.
    pub fn get(&self, asked: &Asked) -> Option<SearchAnswer> {
        if !asked.may_be_kept() {
            return None;
        }
        self.answers.borrow().get(asked).cloned()
    }

    /// Keeps an answer, if it was asked for before: most requests come once, and to keep theirs would take the room of others.
    pub fn keep(&self, asked: Asked, answer: &SearchAnswer) {
        let bytes = asked.bytes() + answer.bytes();
        if asked.may_be_kept() && !answer.degraded && bytes <= ANSWER_BYTES_MAX && self.seen.borrow_mut().again(&asked)
        {
            self.answers.borrow_mut().keep(asked, answer.clone(), bytes, self.bytes_max);
        }
    }

    /// Bytes of what is kept.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.answers.borrow().weight()
    }

    /// Lets go of the answers to requests that nobody can ask any more, in steps.
    pub async fn forget(&self, gone: impl Fn(&Asked) -> bool, runtime: &dyn Runtime) {
        for shelf in 0..SHELVES {
            self.answers.borrow_mut().forget_where(shelf, &gone);
            if runtime.should_yield() {
                runtime.yield_now().await;
            }
        }
    }
}

/// Sets of marks, of which a request's hash chooses one.
const SEEN_SETS: usize = 4096;
/// Marks of a set: the newest requests that chose it.
const SEEN_WAYS: usize = 4;

/// The hashes of requests that came lately: some of sixteen thousand.
struct Seen {
    sets: Box<[[u32; SEEN_WAYS]]>,
    hasher: RandomState,
}

impl Default for Seen {
    fn default() -> Self {
        Self { sets: Box::default(), hasher: RandomState::new() }
    }
}

impl Seen {
    /// Whether a request came before; from now on it did.
    fn again(&mut self, asked: &Asked) -> bool {
        if self.sets.is_empty() {
            self.sets = vec![[0; SEEN_WAYS]; SEEN_SETS].into();
        }
        let hash = self.hasher.hash_one(asked);
        // No mark is 0, which stands for none.
        let (set, mark) = (&mut self.sets[hash as usize % SEEN_SETS], (hash >> 32) as u32 | 1);
        if set.contains(&mark) {
            return true;
        }
        set.rotate_right(1);
        set[0] = mark;
        false
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::facets::{SortCriterion, parse_filter};
    use crate::search::FacetAnswer;
    use crate::search::pins::Pin;
    use crate::search::request::{MatchingStrategy, NetworkShare, PageRequest, SemanticQuery};

    fn asked(query: &str) -> Asked {
        let request = SearchRequest { query: Some(query.into()), ..SearchRequest::default() };
        Asked { index: Uuid::from_u128(1), layout: 0, epoch: Epoch(5), request }
    }

    fn answer(bytes: usize) -> SearchAnswer {
        SearchAnswer { hits: vec![b' '; bytes], total: bytes as u64, ..SearchAnswer::default() }
    }

    fn kept() -> KeptSearches {
        KeptSearches::of_core(u64::MAX)
    }

    /// Has an answer kept, which takes two requests.
    fn keep(searches: &KeptSearches, asked: &Asked, answer: &SearchAnswer) {
        searches.keep(asked.clone(), answer);
        searches.keep(asked.clone(), answer);
    }

    #[test]
    fn an_answer_is_kept_when_it_was_asked_for_twice() {
        let searches = kept();
        searches.keep(asked("a"), &answer(1));
        assert_eq!(searches.get(&asked("a")), None);
        searches.keep(asked("a"), &answer(1));
        assert_eq!(searches.get(&asked("a")), Some(answer(1)));
        assert_eq!(searches.get(&asked("b")), None);
    }

    /// Each of these is another request, whatever is hashed of it.
    #[test]
    fn an_answer_is_that_of_the_same_request_at_the_same_epoch() {
        let filter = |text: &str| parse_filter(&json!(text), "invalid_search_filter").unwrap();
        let names = || Some(vec!["title".to_owned()]);
        let changes: Vec<fn(&mut Asked)> = vec![
            |asked| asked.index = Uuid::from_u128(2),
            |asked| asked.layout = 1,
            |asked| asked.epoch = Epoch(6),
            |asked| asked.request.query = None,
            |asked| asked.request.sort = vec![SortCriterion::field("title", true)],
            |asked| asked.request.page = PageRequest::Window { offset: 1, limit: 20 },
            |asked| asked.request.page = PageRequest::Numbered { page: 1, hits_per_page: 20 },
            |asked| asked.request.distinct = Some("title".into()),
            |asked| asked.request.matching_strategy = MatchingStrategy::All,
            |asked| asked.request.ranking_score_threshold = Some(0.5),
            |asked| asked.request.show_ranking_score = true,
            |asked| asked.request.show_ranking_score_details = true,
            |asked| asked.request.retrieve_vectors = true,
            |asked| asked.request.pins = vec![Pin { id: "1".into(), position: 0, priority: 0 }],
            |asked| asked.request.format.crop_length = 3,
            |asked| asked.request.format.crop_marker = "...".into(),
            |asked| asked.request.format.highlight_pre_tag = "<b>".into(),
            |asked| asked.request.format.highlight_post_tag = "</b>".into(),
            |asked| asked.request.format.show_matches_position = true,
        ];
        let mut others: Vec<Asked> = changes
            .into_iter()
            .map(|change| {
                let mut other = asked("a");
                change(&mut other);
                other
            })
            .collect();
        let with = |change: &dyn Fn(&mut SearchRequest)| {
            let mut other = asked("a");
            change(&mut other.request);
            other
        };
        others.push(with(&|request| request.filter = filter("size > 1")));
        others.push(with(&|request| request.filter = filter("size > 2")));
        others.push(with(&|request| request.filter = filter("_geoRadius(1, 2, 3)")));
        others.push(with(&|request| request.filter = filter("_geoRadius(1, 2, 4)")));
        others.push(with(&|request| request.facets = names()));
        others.push(with(&|request| request.attributes_to_search_on = names()));
        others.push(with(&|request| request.locales = Some(vec!["eng".into()])));
        others.push(with(&|request| request.format.attributes_to_retrieve = names()));
        others.push(with(&|request| request.format.attributes_to_crop = names()));
        others.push(with(&|request| request.format.attributes_to_highlight = names()));

        let searches = kept();
        keep(&searches, &asked("a"), &answer(0));
        for (at, other) in others.iter().enumerate() {
            assert_eq!(searches.get(other), None, "{other:?}");
            keep(&searches, other, &answer(at + 1));
        }
        assert_eq!(searches.get(&asked("a")), Some(answer(0)));
        for (at, other) in others.iter().enumerate() {
            assert_eq!(searches.get(other), Some(answer(at + 1)), "{other:?}");
        }
    }

    #[test]
    fn what_other_servers_or_clocks_decide_is_not_kept() {
        let searches = kept();
        let semantic = SemanticQuery { embedder: "e".into(), ratio: 1.0, vector: Some(Arc::from([1.0])), media: None };
        let mut by_meaning = asked("a");
        by_meaning.request.semantic = Some(semantic);
        keep(&searches, &by_meaning, &answer(1));
        assert_eq!(searches.get(&by_meaning), None);
        let mut of_network = asked("a");
        of_network.request.share = Some(NetworkShare { shard: "s".into(), words: None });
        keep(&searches, &of_network, &answer(1));
        assert_eq!(searches.get(&of_network), None);
        keep(&searches, &asked("a"), &SearchAnswer { degraded: true, ..answer(1) });
        assert_eq!(searches.get(&asked("a")), None);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let searches = KeptSearches::of_core(64 * (1 << 20));
        for at in 0..3_000 {
            keep(&searches, &asked(&at.to_string()), &answer(2_000));
        }
        let count = (0..3_000).filter(|at| searches.get(&asked(&at.to_string())).is_some()).count();
        assert!((200..=(1 << 20) / (2_000 + FIXED_BYTES)).contains(&count), "{count}");

        let large = |change: &dyn Fn(&mut SearchRequest)| {
            let mut asked = asked("large");
            change(&mut asked.request);
            asked
        };
        let text = || "x".repeat(ANSWER_BYTES_MAX);
        let larges = [
            large(&|request| request.query = Some(text())),
            large(&|request| request.facets = Some(vec![text()])),
            large(&|request| request.format.highlight_pre_tag = text()),
            large(&|request| request.pins = vec![Pin { id: text(), position: 0, priority: 0 }]),
            large(&|request| request.sort = vec![SortCriterion::field(text(), false)]),
            large(&|request| {
                let filter = json!(format!("name = {}", text()));
                request.filter = parse_filter(&filter, "invalid_search_filter").unwrap();
            }),
            large(&|request| {
                let values = vec!["1"; FILTER_SIZE_MAX + 1].join(", ");
                let filter = json!(format!("name IN [{values}]"));
                request.filter = parse_filter(&filter, "invalid_search_filter").unwrap();
            }),
        ];
        for large in &larges {
            keep(&searches, large, &answer(1));
            assert_eq!(searches.get(large), None);
        }
        let facets = FacetAnswer { distribution: vec![b' '; ANSWER_BYTES_MAX], stats: Vec::new() };
        for answer in [answer(ANSWER_BYTES_MAX), SearchAnswer { facets: Some(facets), ..answer(1) }] {
            keep(&searches, &asked("large"), &answer);
            assert_eq!(searches.get(&asked("large")), None);
        }
    }
}
