//! The keys that sign requests: those that were set, or such as a token gives for some time.

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

use rusty_s3::Credentials;

use super::answers;
use super::error::S3Error;
use super::exchange::{Exchange, Lost, Manner, Outcome, RETRIES};
use crate::archive::aside;
use crate::http::Method;
use crate::options::s3::S3Access;
use crate::outgoing::{Deadlines, Request, Url, WholeResponse};

/// Keys that end so soon are not used any more: a request signed with them may begin later.
const MARGIN: Duration = Duration::from_secs(300);
/// The largest token that is read, in bytes.
const TOKEN_BYTES_MAX: u64 = 64 << 10;
/// What the role is taken on as; the service writes it into its records.
const SESSION: &str = "skerry-snapshots";
/// Time for one question to the service that gives keys.
const DEADLINES: Deadlines =
    Deadlines { connect: Duration::from_secs(10), idle: Duration::from_secs(30), total: Duration::from_secs(60) };

/// The keys of one bucket.
pub struct Keys {
    access: S3Access,
    /// Those that a token gave, and when they end.
    given: RefCell<Option<(Credentials, Duration)>>,
}

impl Keys {
    pub fn new(access: S3Access) -> Self {
        Self { access, given: RefCell::default() }
    }

    /// Keys that are valid now.
    pub async fn current(&self, exchange: &Exchange) -> Result<Credentials, S3Error> {
        let (arn, token_file, seconds, service) = match &self.access {
            S3Access::Keys { access, secret } => return Ok(Credentials::new(access, secret)),
            S3Access::Role { arn, token_file, seconds, token_service } => (arn, token_file, *seconds, token_service),
        };
        let now = exchange.runtime.unix_time();
        if let Some((keys, end)) = &*self.given.borrow()
            && *end > now + MARGIN
        {
            return Ok(keys.clone());
        }
        let token = read_token(exchange, token_file.clone()).await?;
        let (keys, end) = ask(exchange, service, &form(arn, &token, seconds)).await?;
        let end = end.unwrap_or(now + Duration::from_secs(seconds));
        self.given.replace(Some((keys.clone(), end)));
        Ok(keys)
    }

    /// Forgets the keys that a token gave; whether there were any, so that new ones may fare better.
    pub fn forget(&self) -> bool {
        self.given.take().is_some()
    }
}

/// Who put the token there puts a new one there from time to time.
async fn read_token(exchange: &Exchange, file: PathBuf) -> Result<String, S3Error> {
    let read = aside(&*exchange.runtime, move || {
        let text = (|| {
            let bytes = std::fs::metadata(&file)?.len();
            match bytes > TOKEN_BYTES_MAX {
                true => Err(std::io::Error::other(format!("it has {bytes} bytes, which no token has"))),
                false => std::fs::read_to_string(&file),
            }
        })();
        text.map_err(|error| format!("the token in `{}` cannot be read: {error}", file.display()))
    });
    let token = read.await?.map_err(S3Error::Parameters)?;
    match token.trim() {
        "" => Err(S3Error::Parameters("the file of the web identity token is empty".into())),
        token => Ok(token.to_owned()),
    }
}

/// The question for keys, as the body of a form: what stands in an address is written down on the way.
fn form(arn: &str, token: &str, seconds: u64) -> Vec<u8> {
    let seconds = seconds.to_string();
    let pairs = [
        ("Action", "AssumeRoleWithWebIdentity"),
        ("Version", "2011-06-15"),
        ("RoleArn", arn),
        ("RoleSessionName", SESSION),
        ("WebIdentityToken", token),
        ("DurationSeconds", &seconds),
    ];
    url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish().into_bytes()
}

async fn ask(exchange: &Exchange, service: &Url, form: &[u8]) -> Result<(Credentials, Option<Duration>), S3Error> {
    const DOING: &str = "taking on the role";
    let attempt = async || -> Result<WholeResponse, Lost> {
        let request = Request::new(Method::Post, service.clone(), DEADLINES).redirects_max(0).closes();
        let request = request.body("application/x-www-form-urlencoded", form.to_vec());
        Ok(exchange.fetch(request).await?)
    };
    let manner = Manner { doing: DOING, retries: RETRIES, keys: None };
    let answer = exchange.until_answered(manner, attempt, |answer| match answers::credentials(&answer.body) {
        Some(keys) => Outcome::Done(keys),
        None => Outcome::No(S3Error::Failed(format!("the answer held no keys while {DOING}"))),
    });
    answer.await
}
