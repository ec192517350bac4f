//! Calls an embedding service: several requests at a time, each retried when that may help.

use std::rc::Rc;
use std::time::Duration;

use futures_util::future::join;
use futures_util::stream::{self, StreamExt};
use serde_json::Value;
use shards::runtime::Runtime;

use super::source::{EmbedderOptions, Remote};
use super::tally::{Purpose, Tally};
use crate::archive::aside_if_long;
use crate::http::Method;
use crate::outgoing::{Client, Deadlines, Request, Room, SendError, Share};
use crate::tasks::batch::EmbedderRequests;

/// Texts in one request to a service that takes several.
const TEXTS_PER_REQUEST: usize = 10;
/// Requests under way for one caller.
const REQUESTS_AT_ONCE: usize = 40;
/// How often a request is tried again.
const RETRIES_MAX: u32 = 10;
/// What a service that is asked too often gets as a pause at least.
const RATE_PAUSE: Duration = Duration::from_millis(100);
/// Bytes of an answer that are read, whatever the vectors in it.
const ANSWER_BYTES_MAX: u64 = 256 << 20;
/// Bytes of an answer beside its vectors and what it repeats of the request.
const ANSWER_FRAME_BYTES: u64 = 4 << 20;
/// Bytes of one number of a vector at most, with what separates it from the next. Pretty-printed ones have some forty.
const NUMBER_BYTES_MAX: u64 = 64;
/// Numbers of a vector at most, where the settings do not say how many. No model known makes half as many.
const DIMENSIONS_MAX: u64 = 32_768;
/// Bytes that the answers under way on a core take together. Forty answers of ten vectors of 3,072 numbers take some 27 MB;
/// reading one may take eight times its own bytes, so this is what bounds the memory of all.
const ANSWERS_BYTES_MAX: u64 = 64 << 20;
/// How much of an error's answer is quoted.
const QUOTE_BYTES: usize = 300;

/// The way to embedding services from one core.
pub(super) struct Transport {
    runtime: Rc<dyn Runtime>,
    client: Client,
    tally: Rc<dyn Tally>,
    timeout: Duration,
    retry_wait_max: Duration,
    answers: Room,
}

/// Why there is no vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// What happened, without the name of the embedder.
    pub(super) why: String,
    /// The status that was answered last, where there was one.
    pub(super) status: Option<u16>,
}

impl Failure {
    /// One that has no status.
    pub(super) fn plain(why: impl Into<String>) -> Self {
        Self { why: why.into(), status: None }
    }
}

/// How one try went wrong.
struct Fault {
    failure: Failure,
    /// How long to wait before the next, beside the growing pause; `None` when it would not help.
    pause: Option<Duration>,
}

impl Transport {
    pub(super) fn new(
        runtime: Rc<dyn Runtime>,
        client: Client,
        tally: Rc<dyn Tally>,
        options: &EmbedderOptions,
    ) -> Self {
        let answers = Room::new(ANSWERS_BYTES_MAX);
        Self { runtime, client, tally, timeout: options.timeout, retry_wait_max: options.retry_wait_max, answers }
    }

    /// The vectors of the inputs, in their order.
    pub(super) async fn embed(
        &self,
        remote: &Remote,
        inputs: Vec<Value>,
        purpose: Purpose<'_>,
    ) -> Vec<Result<Vec<f32>, Failure>> {
        let size = if remote.request.is_repeated() { TEXTS_PER_REQUEST } else { 1 };
        let chunks: Vec<Vec<Value>> = inputs.chunks(size).map(<[Value]>::to_vec).collect();
        let asked = chunks.into_iter().map(|chunk| self.chunk(remote, chunk, purpose));
        let answers: Vec<Vec<_>> = stream::iter(asked).buffered(REQUESTS_AT_ONCE).collect().await;
        answers.into_iter().flatten().collect()
    }

    /// The vectors of the inputs of one request, one result for each.
    async fn chunk(&self, remote: &Remote, inputs: Vec<Value>, purpose: Purpose<'_>) -> Vec<Result<Vec<f32>, Failure>> {
        match self.ask(remote, &inputs, purpose).await {
            Ok(vectors) => vectors.into_iter().map(Ok).collect(),
            // One text that is too long has all of them refused.
            Err(failure) if remote.is_openai && failure.status == Some(400) => {
                let mut results = Vec::with_capacity(inputs.len());
                for input in inputs {
                    let cut = super::tokens::cut(&*self.runtime, input).await;
                    let result = self.ask(remote, &[cut], purpose).await;
                    results.push(result.and_then(|vectors| vectors.into_iter().next().ok_or_else(|| failure.clone())));
                }
                results
            }
            Err(failure) => vec![Err(failure); inputs.len()],
        }
    }

    /// Makes one request, again and again while that may help.
    async fn ask(&self, remote: &Remote, inputs: &[Value], purpose: Purpose<'_>) -> Result<Vec<Vec<f32>>, Failure> {
        let body = Rc::new(remote.request.fill(inputs).to_string().into_bytes());
        let mut retries = 0;
        loop {
            // Counted while it is under way, so that one that hangs is seen, and the count costs no time.
            let asked = join(self.ask_once(remote, body.clone(), inputs.len()), self.count(purpose, None));
            let fault = match asked.await.0 {
                Ok(vectors) => return Ok(vectors),
                Err(fault) => fault,
            };
            self.count(purpose, Some(&fault.failure)).await;
            let Some(pause) = fault.pause else { return Err(fault.failure) };
            if retries == RETRIES_MAX || purpose.give_up().is_some_and(|moment| self.runtime.now() >= moment) {
                return Err(fault.failure);
            }
            let wait = self.wait(retries, pause);
            tracing::debug!(error = fault.failure.why, ?wait, "an embedding service is asked again");
            self.runtime.sleep(wait).await;
            retries += 1;
        }
    }

    /// Counts a request that is sent, or one counted before that has failed.
    async fn count(&self, purpose: Purpose<'_>, failure: Option<&Failure>) {
        let Purpose::Batch(embedder) = purpose else { return };
        let requests = match failure {
            None => EmbedderRequests { total: 1, ..EmbedderRequests::default() },
            Some(Failure { why, .. }) => {
                EmbedderRequests { total: 0, failed: 1, last_error: Some(format!("Embedder `{embedder}`: {why}")) }
            }
        };
        self.tally.tell(requests).await;
    }

    /// The pause grows tenfold each time; its random part keeps many clients of one service apart.
    fn wait(&self, retries: u32, pause: Duration) -> Duration {
        let grown = pause + Duration::from_millis(10u64.saturating_pow(retries));
        let longest = u64::try_from(grown.min(self.retry_wait_max).as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(longest.saturating_add(self.runtime.random_u64() % longest.saturating_add(1).max(1)))
    }

    async fn ask_once(&self, remote: &Remote, body: Rc<Vec<u8>>, count: usize) -> Result<Vec<Vec<f32>>, Fault> {
        let bytes_max = answer_bytes_max(count, remote.dimensions, body.len());
        // The share is held until the answer has been read.
        let (status, mut body, _share) = self.fetch(self.request(remote, body), bytes_max).await.map_err(unsent)?;
        if !(200..300).contains(&status) {
            return Err(refused(status, &body));
        }
        let response = remote.response.clone();
        let (bytes, wanted) = (body.len(), remote.dimensions);
        let read = move || match simd_json::to_tape(&mut body) {
            Err(error) => Err((format!("its answer is not JSON: {error}"), true)),
            Ok(tape) => match response.vectors(tape.as_value(), count) {
                Err(why) => Err((format!("its answer {why}"), false)),
                Ok(vectors) => match vectors.iter().find_map(|vector| misfit(vector, wanted)) {
                    Some(why) => Err((why, false)),
                    None => Ok(vectors),
                },
            },
        };
        let vectors = aside_if_long(&*self.runtime, bytes, read).await;
        let vectors = vectors.unwrap_or_else(|error| Err((error.to_string(), false)));
        vectors.map_err(|(why, may_help)| Fault {
            failure: Failure { why, status: None },
            pause: may_help.then_some(Duration::ZERO),
        })
    }

    /// Makes a request: the status, the body, and its share of what the answers of this core may take together.
    async fn fetch(&self, request: Request, bytes_max: u64) -> Result<(u16, Vec<u8>, Share<'_>), SendError> {
        let (answer, share) = self.client.fetch_within(request, bytes_max, &self.answers).await?;
        Ok((answer.status, answer.body, share))
    }

    fn request(&self, remote: &Remote, body: Rc<Vec<u8>>) -> Request {
        let (mut content_type, mut request) =
            ("application/json", Request::new(Method::Post, remote.url.clone(), Deadlines::all(self.timeout)));
        request = request.closes().bearer(remote.bearer.as_deref());
        for (name, value) in &remote.headers {
            if name.eq_ignore_ascii_case("content-type") {
                content_type = value;
            } else {
                request = request.header(name, value);
            }
        }
        request.body(content_type, body)
    }
}

/// Bytes that the answer to a request of this length for so many vectors has at most.
fn answer_bytes_max(vectors: usize, dimensions: Option<usize>, request_bytes: usize) -> u64 {
    let dimensions = dimensions.map_or(DIMENSIONS_MAX, |dimensions| dimensions as u64);
    let numbers = (vectors as u64).saturating_mul(dimensions);
    // Some services repeat what they were asked, and may escape it otherwise.
    let repeated = (request_bytes as u64).saturating_mul(2);
    let bytes = numbers.saturating_mul(NUMBER_BYTES_MAX).saturating_add(repeated).saturating_add(ANSWER_FRAME_BYTES);
    bytes.min(ANSWER_BYTES_MAX)
}

/// Why a vector has not as many numbers as are wanted; `None` for one that has.
pub(super) fn misfit(vector: &[f32], wanted: Option<usize>) -> Option<String> {
    let (found, wanted) = (vector.len(), wanted?);
    (found != wanted).then(|| format!("it gave a vector of {found} numbers, expected {wanted}"))
}

/// A request that has no answer.
fn unsent(error: SendError) -> Fault {
    let pause = error.is_transient().then_some(Duration::ZERO);
    Fault { failure: Failure { why: format!("it could not be reached: {error}"), status: None }, pause }
}

/// An answer that is no success.
fn refused(status: u16, body: &[u8]) -> Fault {
    let quoted = String::from_utf8_lossy(&body[..body.len().min(QUOTE_BYTES)]);
    let pause = match status {
        429 => Some(RATE_PAUSE),
        400..=499 => None,
        _ => Some(Duration::ZERO),
    };
    let why = match status {
        401 | 403 => format!("it refused the key with status {status}: {quoted}"),
        429 => format!("it was asked too often (status 429): {quoted}"),
        _ => format!("it answered with status {status}: {quoted}"),
    };
    Fault { failure: Failure { why, status: Some(status) }, pause }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any answer was read to a quarter of a gigabyte, forty of them at a time.
    #[test]
    fn answers_are_read_as_far_as_their_vectors_can_reach() {
        assert_eq!(answer_bytes_max(1, Some(3), 100), ANSWER_FRAME_BYTES + 200 + 3 * 64);
        assert_eq!(answer_bytes_max(10, Some(3072), 0), ANSWER_FRAME_BYTES + 30_720 * 64);
        assert!(answer_bytes_max(10, None, 0) < ANSWERS_BYTES_MAX);
        assert_eq!(answer_bytes_max(10, Some(usize::MAX), usize::MAX), ANSWER_BYTES_MAX);
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        let pause = |status| refused(status, b"").pause;
        assert_eq!((pause(400), pause(401), pause(404), pause(422)), (None, None, None, None));
        assert_eq!(pause(429), Some(RATE_PAUSE));
        assert_eq!(
            (pause(500), pause(503), pause(304)),
            (Some(Duration::ZERO), Some(Duration::ZERO), Some(Duration::ZERO))
        );
        assert!(unsent(SendError::Connect("x".into())).pause.is_some());
        let forbidden = |is_of_name| SendError::Forbidden { address: [127, 0, 0, 1].into(), is_of_name };
        assert!(unsent(forbidden(true)).pause.is_some());
        assert!(unsent(forbidden(false)).pause.is_none());
        assert!(unsent(SendError::Header("x".into())).pause.is_none());
    }
}
