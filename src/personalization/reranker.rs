//! Asking the service.

use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;
use shards::runtime::Runtime;

use super::breaker::{Breaker, Leave};
use super::ranking;
use crate::archive::aside_if_long;
use crate::http::Method;
use crate::outgoing::{Client, Deadlines, Request, SendError, Url};

/// Where the service is when nothing is said.
pub const URL_DEFAULT: &str = "https://api.cohere.com/v2/rerank";
/// How long a search waits for it: for a turn, for the answer and for other tries, together.
pub const TIME_MAX: Duration = Duration::from_secs(5);

const MODEL: &str = "rerank-v3.5";
/// How often a question is asked again.
const RETRIES_MAX: u32 = 2;
/// The pause before that; the next is four times as long.
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: u64 = 4 << 20;
/// How much is told of what went wrong.
const FAULT_BYTES_MAX: usize = 300;

/// How the service is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RerankerOptions {
    /// Where it is.
    pub url: Url,
    /// The key that opens it.
    pub key: String,
}

/// What is asked: how relevant some documents are.
pub struct Question {
    body: Vec<u8>,
    count: usize,
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    query: &'a str,
    documents: &'a [String],
    top_n: usize,
}

impl Question {
    /// How relevant the documents are to the query.
    pub fn new(query: &str, documents: &[String]) -> Self {
        let count = documents.len();
        let body = serde_json::to_vec(&Body { model: MODEL, query, documents, top_n: count });
        Self { body: body.expect("texts and a number can be written as JSON"), count }
    }

    /// Bytes that are sent.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.body.len()
    }
}

/// The way to the service from one core.
pub struct Reranker {
    runtime: Rc<dyn Runtime>,
    client: Client,
    options: RerankerOptions,
    breaker: Breaker,
}

/// How one try went wrong.
struct Fault {
    why: String,
    may_pass: bool,
    /// Whether the service gave no answer at all.
    is_silent: bool,
}

impl Reranker {
    /// The way to the service through `client`.
    pub fn new(runtime: Rc<dyn Runtime>, client: Client, options: RerankerOptions) -> Self {
        let clock = runtime.clone();
        Self { runtime, client, options, breaker: Breaker::new(move || clock.now()) }
    }

    /// Whether it is of no use to ask now.
    pub fn rests(&self) -> bool {
        self.breaker.rests()
    }

    /// Leave to ask once; `None` while the service does not answer.
    pub fn leave(&self) -> Option<Leave<'_>> {
        self.breaker.leave()
    }

    /// The places of the documents, as far as the service names them, the most relevant first, each once. Tries that fail late
    /// may take longer than [`TIME_MAX`] together: whoever waits for it says how long.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn rank(&self, leave: Leave<'_>, question: Question) -> Result<Vec<usize>, String> {
        let (body, mut retries) = (Rc::new(question.body), 0);
        loop {
            let fault = match self.ask(body.clone(), question.count).await {
                Ok(places) => {
                    leave.used(true);
                    return Ok(places);
                }
                Err(fault) => fault,
            };
            if !fault.may_pass || retries == RETRIES_MAX {
                leave.used(!fault.is_silent);
                return Err(cut(fault.why));
            }
            self.runtime.sleep(self.pause(retries)).await;
            retries += 1;
        }
    }

    /// Its random part keeps many searches apart.
    fn pause(&self, retries: u32) -> Duration {
        let pause = PAUSE * 4u32.saturating_pow(retries);
        pause + Duration::from_millis(self.runtime.random_u64() % (pause.as_millis() as u64).max(1))
    }

    async fn ask(&self, body: Rc<Vec<u8>>, count: usize) -> Result<Vec<usize>, Fault> {
        let request = Request::new(Method::Post, self.options.url.clone(), Deadlines::all(TIME_MAX));
        // Asking changes nothing, so a connection that the service has closed meanwhile is no failure.
        let request = request.repeatable().bearer(Some(&self.options.key)).body("application/json", body);
        let answer = self.client.fetch(request, ANSWER_BYTES_MAX).await.map_err(unsent)?;
        if !(200..300).contains(&answer.status) {
            return Err(refused(answer.status, &answer.body));
        }
        let answer = answer.body;
        let places = aside_if_long(&*self.runtime, answer.len(), move || ranking::read(&answer, count)).await;
        places.unwrap_or_else(|error| Err(error.to_string())).map_err(|why| Fault {
            why,
            may_pass: false,
            is_silent: false,
        })
    }
}

/// A question that has no answer. One that had all the time there is does not get it again.
fn unsent(error: SendError) -> Fault {
    let is_silent = error.is_transient() && !matches!(error, SendError::Forbidden { .. });
    Fault { why: error.to_string(), may_pass: is_silent && !error.is_timeout(), is_silent }
}

/// An answer that is none, or that of somebody before the service whom it does not answer.
fn refused(status: u16, body: &[u8]) -> Fault {
    let quoted = String::from_utf8_lossy(&body[..body.len().min(FAULT_BYTES_MAX)]);
    Fault {
        why: format!("status {status}: {quoted}"),
        may_pass: status == 429 || status >= 500,
        is_silent: matches!(status, 502..=504),
    }
}

/// A text of others, short enough for the log.
fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(FAULT_BYTES_MAX));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outgoing::Phase;

    #[test]
    fn only_what_may_pass_is_tried_again() {
        let may_pass = |status| refused(status, b"").may_pass;
        assert!(may_pass(429) && may_pass(500) && may_pass(503));
        assert!(!may_pass(307) && !may_pass(400) && !may_pass(401) && !may_pass(422));
        assert!(unsent(SendError::Broken("x".into())).may_pass && unsent(SendError::Connect("x".into())).may_pass);
        assert!(!unsent(SendError::TimedOut(Phase::Total)).may_pass);
        assert!(!unsent(SendError::Forbidden { address: [127, 0, 0, 1].into(), is_of_name: true }).may_pass);
        assert!(!unsent(SendError::TooLarge { limit: 1 }).may_pass);
    }

    #[test]
    fn silence_is_told_from_refusals() {
        let silent = [SendError::Broken("x".into()), SendError::Connect("x".into()), SendError::TimedOut(Phase::Total)];
        assert!(silent.into_iter().all(|error| unsent(error).is_silent));
        let others = [
            SendError::Forbidden { address: [127, 0, 0, 1].into(), is_of_name: true },
            SendError::TooLarge { limit: 1 },
        ];
        assert!(others.into_iter().all(|error| !unsent(error).is_silent));
        assert!([502, 503, 504].iter().all(|status| refused(*status, b"").is_silent));
        assert!([400, 401, 429, 500].iter().all(|status| !refused(*status, b"").is_silent));
    }

    #[test]
    fn a_question_is_what_the_interface_of_the_service_takes() {
        let question = Question::new("a \"b\"", &["x\n".into(), "\u{e9}".into()]);
        let body: serde_json::Value = serde_json::from_slice(&question.body).unwrap();
        let wanted =
            serde_json::json!({"model": MODEL, "query": "a \"b\"", "documents": ["x\n", "\u{e9}"], "top_n": 2});
        assert_eq!(body, wanted);
    }

    #[test]
    fn long_answers_do_not_fill_the_log() {
        assert_eq!(cut("\u{e9}".repeat(1000)).len(), FAULT_BYTES_MAX);
        let odd = format!("x{}", "\u{e9}".repeat(1000));
        assert_eq!(cut(odd).len(), FAULT_BYTES_MAX - 1);
    }
}
