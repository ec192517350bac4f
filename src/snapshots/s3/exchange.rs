//! Questions to a service, asked again while it may fare better.

use std::rc::Rc;
use std::time::Duration;

use shards::runtime::Runtime;

use super::answers;
use super::credentials::Keys;
use super::error::{S3Error, unanswered};
use crate::outgoing::{Client, Request, SendError, StreamedBody, WholeResponse};

/// The largest answer that is read, in bytes.
const ANSWER_BYTES_MAX: u64 = 256 << 10;
/// The first pause before a question is asked again; each is twice as long as the one before.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
/// How often a question is asked again: half a minute of pauses.
pub const RETRIES: u32 = 6;
/// Codes that say that the same request may succeed later, whatever their status.
const PASSING: [&str; 4] = ["InternalError", "OperationAborted", "RequestTimeout", "SlowDown"];
/// Codes that say that the keys, which a token gave, have ended before their time.
const ENDED: [&str; 3] = ["ExpiredToken", "InvalidToken", "TokenRefreshRequired"];

/// The way to a service.
pub struct Exchange {
    pub runtime: Rc<dyn Runtime>,
    pub client: Client,
}

/// What an answer comes to.
pub enum Outcome<T> {
    /// It is what was asked for.
    Done(T),
    /// It may be, when it is asked for again.
    Again(S3Error),
    /// It is not.
    No(S3Error),
}

/// Why there is no answer.
pub enum Lost {
    /// The request failed on its way.
    Unanswered(SendError),
    /// There was none, and will be none.
    Hopeless(S3Error),
}

impl From<S3Error> for Lost {
    fn from(error: S3Error) -> Self {
        Self::Hopeless(error)
    }
}

impl From<SendError> for Lost {
    fn from(error: SendError) -> Self {
        Self::Unanswered(error)
    }
}

/// How a question is asked.
pub struct Manner<'a> {
    /// What is being done, for errors.
    pub doing: &'a str,
    /// How often it is asked again.
    pub retries: u32,
    /// The keys that sign it: such as a token gave may end before their time.
    pub keys: Option<&'a Keys>,
}

impl Exchange {
    /// Makes a request.
    pub async fn fetch(&self, request: Request) -> Result<WholeResponse, SendError> {
        self.client.fetch(request, ANSWER_BYTES_MAX).await
    }

    /// Makes a request whose body is read while it is sent.
    pub async fn fetch_streamed(
        &self,
        request: Request,
        body: &mut dyn StreamedBody,
    ) -> Result<WholeResponse, SendError> {
        self.client.send_streamed(request, body).await?.whole(ANSWER_BYTES_MAX).await
    }

    /// Asks until there is an answer that `read` takes, or no hope of one. The pauses differ by chance, so that those who were turned
    /// away together do not come back together.
    pub async fn until_answered<T>(
        &self,
        manner: Manner<'_>,
        mut attempt: impl AsyncFnMut() -> Result<WholeResponse, Lost>,
        read: impl Fn(&WholeResponse) -> Outcome<T>,
    ) -> Result<T, S3Error> {
        let mut pause = PAUSE_FIRST;
        for tried in 0.. {
            let outcome = match attempt().await {
                Ok(answer) if matches!(answer.status, 200..=299) => read(&answer),
                Ok(answer) => refused(&manner, &answer),
                Err(Lost::Unanswered(error)) if error.is_transient() => {
                    Outcome::Again(unanswered(manner.doing, &error))
                }
                Err(Lost::Unanswered(error)) => Outcome::No(unanswered(manner.doing, &error)),
                Err(Lost::Hopeless(error)) => Outcome::No(error),
            };
            match outcome {
                Outcome::Done(answer) => return Ok(answer),
                Outcome::Again(error) if tried < manner.retries => {
                    tracing::debug!(%error, tried, "asked again");
                    let half = pause / 2;
                    let chance = self.runtime.random_u64() % u64::try_from(half.as_millis()).unwrap_or(1).max(1);
                    self.runtime.sleep(half + Duration::from_millis(chance)).await;
                    pause *= 2;
                }
                Outcome::Again(error) | Outcome::No(error) => return Err(error),
            }
        }
        Err(S3Error::Failed(manner.doing.to_owned()))
    }
}

/// What a status other than of success comes to.
fn refused<T>(manner: &Manner<'_>, answer: &WholeResponse) -> Outcome<T> {
    let said = answers::error(&answer.body).unwrap_or_default();
    let text = telling(manner.doing, answer.status, &said);
    match answer.status {
        500.. => Outcome::Again(S3Error::Failed(text)),
        408 | 429 => Outcome::Again(S3Error::Refused(text)),
        _ if PASSING.contains(&&*said.code) => Outcome::Again(S3Error::Refused(text)),
        _ if ENDED.contains(&&*said.code) && manner.keys.is_some_and(Keys::forget) => {
            Outcome::Again(S3Error::Refused(text))
        }
        _ => Outcome::No(S3Error::Refused(text)),
    }
}

/// A service's error as a task shows it.
pub fn telling(doing: &str, status: u16, said: &answers::ServiceError) -> String {
    let mut text = format!("the service answered {status} while {doing}");
    if !said.code.is_empty() {
        text.push_str(&format!(": `{}`", said.code));
    }
    if !said.message.is_empty() {
        text.push_str(&format!(": {}", said.message));
    }
    text
}
