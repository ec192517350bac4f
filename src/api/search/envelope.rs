//! The parts of a search response around the hits.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};
use shards::search::{PageRequest, SearchAnswer, SearchRequest};
use storage_engine::vector::Pace;

use super::long_body::{Pieces, put_in_front};

/// Room for what stands behind hits, besides facets.
pub(super) const ROOM_BYTES: usize = 512;

/// Everything that stands around the hits.
pub(super) struct Envelope<'r> {
    /// What was asked.
    pub(super) request: &'r SearchRequest,
    /// What was found.
    pub(super) answer: SearchAnswer,
    /// The time it took.
    pub(super) took: Duration,
    /// What of that it took to put the hits in the order of a person.
    pub(super) personalization: Option<Duration>,
    /// A number of this answer alone.
    pub(super) request_uid: String,
    /// Which index was searched, for those who want it.
    pub(super) metadata: Option<Value>,
    /// Whether the answer says how long each step took.
    pub(super) shows_performance: bool,
    /// Which instances did not answer, where others were asked.
    pub(super) remote_errors: Option<Value>,
    /// Whom the hits are to be put in order for.
    pub(super) user_context: Option<&'r str>,
}

impl Envelope<'_> {
    /// The whole body; hits and facets are spliced in as they are. Gives way to others.
    pub(super) async fn write(mut self, pace: &dyn Pace) -> Vec<u8> {
        let facets = self.answer.facets.as_ref().map_or(0, |facets| facets.distribution.len() + facets.stats.len());
        let hits = std::mem::take(&mut self.answer.hits);
        let mut out = put_in_front(hits, b"{\"hits\":", facets + ROOM_BYTES, pace).await;
        self.write_rest(&mut out);
        out
    }

    /// Appends the body without the brace at its start.
    pub(super) fn append(mut self, out: &mut Pieces) {
        out.extend(b"\"hits\":");
        out.push(std::mem::take(&mut self.answer.hits));
        let mut rest = Vec::with_capacity(ROOM_BYTES);
        self.write_rest(&mut rest);
        out.push(rest);
    }

    /// Appends what stands behind the hits.
    fn write_rest(&self, out: &mut Vec<u8>) {
        let answer = &self.answer;
        member(out, "query", self.request.query.as_deref().unwrap_or_default());
        member(out, "processingTimeMs", &(self.took.as_millis() as u64));
        write_page(out, self.request.page, answer.offset, answer.total);
        if let Some(facets) = &answer.facets {
            out.extend_from_slice(b",\"facetDistribution\":");
            out.extend_from_slice(&facets.distribution);
            out.extend_from_slice(b",\"facetStats\":");
            out.extend_from_slice(&facets.stats);
        }
        if let Some(count) = answer.semantic_hits {
            member(out, "semanticHitCount", &count);
        }
        if let Some(vector) = &answer.query_vector {
            member(out, "queryVector", vector);
        }
        member(out, "requestUid", &self.request_uid);
        if let Some(metadata) = &self.metadata {
            member(out, "metadata", metadata);
        }
        if self.shows_performance {
            let steps = answer.steps.iter().map(|(step, took)| (step.name().to_owned(), format!("{took:.2?}").into()));
            let mut details: Value = steps.collect::<Map<_, _>>().into();
            details["search"] = format!("{:.2?}", self.took).into();
            if let Some(took) = self.personalization {
                details["search > personalization"] = format!("{took:.2?}").into();
            }
            member(out, "performanceDetails", &details);
        }
        if let Some(errors) = &self.remote_errors {
            member(out, "remoteErrors", errors);
        }
        out.push(b'}');
    }
}

/// Appends which part of the result this is, in the way in which it was asked for.
pub(super) fn write_page(out: &mut Vec<u8>, page: PageRequest, offset: u64, total: u64) {
    match page {
        PageRequest::Window { limit, .. } => {
            member(out, "limit", &limit);
            member(out, "offset", &offset);
            member(out, "estimatedTotalHits", &total);
        }
        PageRequest::Numbered { page, hits_per_page } => {
            let pages = if hits_per_page == 0 { 0 } else { total.div_ceil(hits_per_page) };
            member(out, "hitsPerPage", &hits_per_page);
            member(out, "page", &page);
            member(out, "totalPages", &pages);
            member(out, "totalHits", &total);
        }
    }
}

/// Appends a member to an object that has one before. The value is one that can be written as JSON.
pub(super) fn member<T: Serialize + ?Sized>(out: &mut Vec<u8>, name: &str, value: &T) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    serde_json::to_writer(out, value).expect("text, numbers and JSON values can be written as JSON");
}

#[cfg(test)]
mod tests {
    use futures_lite::future::block_on;
    use serde_json::json;
    use shards::search::{FacetAnswer, Step};
    use storage_engine::vector::Unpaced;

    use super::*;

    fn written(page: PageRequest, answer: SearchAnswer) -> Value {
        serde_json::from_slice(&bytes(page, answer)).unwrap()
    }

    fn bytes(page: PageRequest, answer: SearchAnswer) -> Vec<u8> {
        let request = SearchRequest { query: Some(" a\"b ".into()), page, ..SearchRequest::default() };
        let answer = SearchAnswer { hits: b"[{\"id\":1}]".to_vec(), ..answer };
        let envelope = Envelope {
            request: &request,
            answer,
            took: Duration::from_micros(2500),
            personalization: None,
            request_uid: "u".into(),
            metadata: None,
            shows_performance: false,
            remote_errors: None,
            user_context: None,
        };
        block_on(envelope.write(&Unpaced))
    }

    /// A vector of 32-bit numbers comes back as it was sent, not with the digits of 64 bits.
    #[test]
    fn the_vector_of_a_query_keeps_its_digits() {
        let answer = SearchAnswer { query_vector: Some(vec![0.001, 0.1, -3.0]), ..SearchAnswer::default() };
        let text = String::from_utf8(bytes(PageRequest::default(), answer)).unwrap();
        assert!(text.contains(r#""queryVector":[0.001,0.1,-3.0]"#), "{text}");
    }

    #[test]
    fn both_ways_of_paging_echo_what_was_asked() {
        let answer = SearchAnswer { total: 41, offset: 7, ..SearchAnswer::default() };
        let window = written(PageRequest::Window { offset: 9, limit: 3 }, answer.clone());
        let wanted = json!({"hits": [{"id": 1}], "query": " a\"b ", "processingTimeMs": 2, "limit": 3, "offset": 7,
            "estimatedTotalHits": 41, "requestUid": "u"});
        assert_eq!(window, wanted);
        let numbered = written(PageRequest::Numbered { page: 2, hits_per_page: 20 }, answer.clone());
        assert_eq!(
            (&numbered["totalPages"], &numbered["totalHits"], &numbered["page"]),
            (&json!(3), &json!(41), &json!(2))
        );
        assert!(numbered.get("limit").is_none());
        assert_eq!(written(PageRequest::Numbered { page: 1, hits_per_page: 0 }, answer)["totalPages"], json!(0));
    }

    #[test]
    fn each_step_that_is_told_of_has_a_line() {
        let request = SearchRequest::default();
        let details = |personalization, steps: &[(Step, Duration)]| {
            let envelope = Envelope {
                request: &request,
                answer: SearchAnswer { hits: b"[]".to_vec(), steps: steps.to_vec(), ..SearchAnswer::default() },
                took: Duration::from_micros(2500),
                personalization,
                request_uid: "u".into(),
                metadata: None,
                shows_performance: true,
                remote_errors: None,
                user_context: None,
            };
            serde_json::from_slice::<Value>(&block_on(envelope.write(&Unpaced))).unwrap()["performanceDetails"]
                .to_string()
        };
        assert_eq!(details(None, &[]), r#"{"search":"2.50ms"}"#);
        let both = r#"{"search":"2.50ms","search > personalization":"1.25ms"}"#;
        assert_eq!(details(Some(Duration::from_micros(1250)), &[]), both);
        let steps = [(Step::Tokenize, Duration::from_micros(50))];
        assert_eq!(details(None, &steps), r#"{"search > tokenize":"50.00µs","search":"2.50ms"}"#);
    }

    #[test]
    fn facets_come_both_or_not_at_all() {
        let facets = FacetAnswer { distribution: b"{\"b\":{},\"a\":{}}".to_vec(), stats: b"{}".to_vec() };
        let answer = SearchAnswer { facets: Some(facets), ..SearchAnswer::default() };
        let body = written(PageRequest::default(), answer);
        assert_eq!((&body["facetDistribution"], &body["facetStats"]), (&json!({"b": {}, "a": {}}), &json!({})));
    }
}
