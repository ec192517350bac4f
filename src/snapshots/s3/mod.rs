//! Snapshots in a bucket of S3, or of a service that speaks like it.
//!
//! The archive is written beside the snapshots as always, then sent in parts that are read from it while they go out: in memory
//! are a piece of each part on its way, whatever a part's size. Requests are signed in their address, so nothing has to be read
//! twice. An upload that does not come to its end is given up, since its parts would be kept, and paid for, unseen; one that was
//! under way when the process ended is given up before the next begins.

mod answers;
mod credentials;
mod error;
mod exchange;
mod file;
mod parts;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use jiff::Timestamp;
use rusty_s3::{Bucket, Credentials, UrlStyle};
use serde::{Deserialize, Serialize};
use shards::runtime::Runtime;

pub use self::error::S3Error;

use self::credentials::Keys;
use self::exchange::{Exchange, Lost, Manner, Outcome, RETRIES};
use self::file::PartFile;
use self::parts::{Part, parts};
use crate::http::Method;
use crate::options::s3::S3Options;
use crate::outgoing::{Client, Deadlines, Request, Url, WholeResponse};

/// Time for a short request.
const SHORT: Deadlines =
    Deadlines { connect: Duration::from_secs(10), idle: Duration::from_secs(30), total: Duration::from_secs(120) };
/// Time for a part: as long as it moves, but not for days.
const PART: Deadlines = Deadlines {
    connect: Duration::from_secs(10),
    idle: Duration::from_secs(60),
    total: Duration::from_secs(24 * 3600),
};
/// Time for putting the parts together, which takes the service minutes.
const COMPLETE: Deadlines =
    Deadlines { connect: Duration::from_secs(10), idle: Duration::from_secs(600), total: Duration::from_secs(1800) };
/// Time for giving an upload up, which others wait for.
const ABORT: Deadlines =
    Deadlines { connect: Duration::from_secs(2), idle: Duration::from_secs(5), total: Duration::from_secs(5) };
/// How often giving up is tried again.
const ABORT_RETRIES: u32 = 1;
/// How long the stop of the server waits until an upload is given up.
const STOP_WAIT: Duration = Duration::from_secs(3);
/// How often it is looked whether the server stops.
const STOP_LOOK: Duration = Duration::from_millis(50);
/// The code of an upload that is not there, or not any more.
const NO_UPLOAD: &str = "NoSuchUpload";

/// The bucket that takes the snapshots.
pub struct SnapshotBucket {
    options: S3Options,
    keys: Keys,
    exchange: Exchange,
    /// The upload under way.
    open: RefCell<Option<Upload>>,
    /// Whether the server stops: no upload begins then, and the one under way ends.
    stopping: Cell<bool>,
}

impl fmt::Debug for SnapshotBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapshotBucket").field("bucket", &self.options.bucket).finish_non_exhaustive()
    }
}

/// An upload that has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upload {
    /// The bucket's URL: what another bucket has begun is not given up in this one.
    bucket: String,
    /// The name of the object.
    key: String,
    /// What the service calls the upload.
    id: String,
}

/// A request about an object.
struct Call<'a> {
    doing: &'a str,
    method: Method,
    key: &'a str,
    /// Sorted by name.
    query: &'a [(&'a str, &'a str)],
    deadlines: Deadlines,
    retries: u32,
}

impl SnapshotBucket {
    /// The bucket of these options, reached by this client. The operator has named it, so the client must not be one that keeps
    /// to public addresses.
    pub fn new(runtime: Rc<dyn Runtime>, client: Client, options: S3Options) -> Self {
        let keys = Keys::new(options.access.clone());
        let exchange = Exchange { runtime, client };
        Self { options, keys, exchange, open: RefCell::default(), stopping: Cell::new(false) }
    }

    /// The level of gzip of snapshots that go here.
    pub fn compression_level(&self) -> u32 {
        self.options.compression_level
    }

    /// Begins the upload of a file of this name. It is open until it is sent or given up.
    ///
    /// # Errors
    /// See [`S3Error`].
    pub async fn begin(&self, name: &str) -> Result<Upload, S3Error> {
        let key = object_key(&self.options.prefix, name);
        let call = Call {
            doing: "beginning the upload",
            method: Method::Post,
            key: &key,
            query: &[("uploads", "")],
            deadlines: SHORT,
            retries: RETRIES,
        };
        let id = self.ask(&call, None, |answer| match answers::upload_id(&answer.body) {
            Some(id) => Outcome::Done(id),
            None => Outcome::No(S3Error::Failed("the answer named no upload while beginning the upload".into())),
        });
        let upload = Upload { id: id.await?, bucket: self.bucket()?.base_url().to_string(), key };
        self.open.replace(Some(upload.clone()));
        Ok(upload)
    }

    /// Sends a file as the parts of an upload, and has them become the object.
    ///
    /// # Errors
    /// See [`S3Error`]; the upload is then still open.
    pub async fn send(&self, upload: &Upload, path: &Path) -> Result<(), S3Error> {
        let (file, len) = file::open(&*self.exchange.runtime, path).await?;
        let too_large = || S3Error::Parameters(format!("a snapshot of {len} bytes is larger than an object can be"));
        let mut waiting = parts(len, self.options.part_bytes).ok_or_else(too_large)?;
        let (mut tags, mut under_way) = (Vec::new(), FuturesUnordered::new());
        loop {
            while under_way.len() < self.options.parts_in_flight_max
                && let Some(part) = waiting.next()
            {
                tags.push(String::new());
                let file = file.clone();
                under_way.push(async move { (part.number, self.send_part(upload, &file, part).await) });
            }
            let Some((number, tag)) = under_way.next().await else { break };
            tags[number as usize - 1] = tag?;
        }
        self.complete(upload, &tags).await?;
        self.open.take();
        tracing::info!(
            bucket = self.options.bucket,
            key = upload.key,
            bytes = len,
            parts = tags.len(),
            "a snapshot was sent"
        );
        Ok(())
    }

    /// Gives up the upload under way, if there is one; whether none is left. What fails is told in the log.
    pub async fn abandon(&self) -> bool {
        let Some(upload) = self.open.borrow().clone() else { return true };
        let is_gone = self.give_up(&upload).await;
        self.open.take();
        is_gone
    }

    /// Gives up an upload, which may have been begun before the start; whether it is gone.
    pub async fn give_up(&self, upload: &Upload) -> bool {
        if !self.bucket().is_ok_and(|bucket| bucket.base_url().as_str() == upload.bucket) {
            tracing::warn!(
                bucket = upload.bucket,
                key = upload.key,
                id = upload.id,
                "an unfinished upload to another bucket stays there"
            );
            return true;
        }
        let call = Call {
            doing: "giving up the upload",
            method: Method::Delete,
            key: &upload.key,
            query: &[("uploadId", &upload.id)],
            deadlines: ABORT,
            retries: ABORT_RETRIES,
        };
        match self.ask(&call, None, |_| Outcome::Done(())).await {
            Ok(()) => true,
            Err(S3Error::Refused(text)) if text.contains(NO_UPLOAD) => true,
            Err(error) => {
                let (bucket, key, id) = (&upload.bucket, &upload.key, &upload.id);
                tracing::warn!(%error, bucket, key, id, "the parts of an unfinished snapshot stay in the bucket for now");
                false
            }
        }
    }

    /// Does the work unless the server stops before its end.
    ///
    /// # Errors
    /// [`S3Error::Stopping`].
    pub async fn unless_stopping<T>(&self, work: impl Future<Output = T>) -> Result<T, S3Error> {
        let stopped = async {
            while !self.stopping.get() {
                self.exchange.runtime.sleep(STOP_LOOK).await;
            }
        };
        if self.stopping.get() {
            return Err(S3Error::Stopping);
        }
        match select(pin!(work), pin!(stopped)).await {
            Either::Left((done, _)) => Ok(done),
            Either::Right(((), _)) => Err(S3Error::Stopping),
        }
    }

    /// Has the upload under way end, and waits until it is given up, though not long.
    pub async fn stop(&self) {
        self.stopping.set(true);
        let runtime = &self.exchange.runtime;
        let begun = runtime.now();
        while self.open.borrow().is_some() && runtime.now().since(begun) < STOP_WAIT {
            runtime.sleep(STOP_LOOK).await;
        }
    }

    /// Sends a part: its tag.
    async fn send_part(&self, upload: &Upload, file: &Arc<std::fs::File>, part: Part) -> Result<String, S3Error> {
        let number = part.number.to_string();
        let call = Call {
            doing: &format!("sending part {number}"),
            method: Method::Put,
            key: &upload.key,
            query: &[("partNumber", &number), ("uploadId", &upload.id)],
            deadlines: PART,
            retries: RETRIES,
        };
        let attempt = async || -> Result<WholeResponse, Lost> {
            let mut body = PartFile::new(self.exchange.runtime.clone(), file.clone(), part);
            Ok(self.exchange.fetch_streamed(self.signed(&call).await?, &mut body).await?)
        };
        self.exchange
            .until_answered(self.manner(&call), attempt, |answer| match tag(answer) {
                Some(tag) => Outcome::Done(tag),
                None => Outcome::No(S3Error::Failed(format!("the answer had no `ETag` while {}", call.doing))),
            })
            .await
    }

    async fn complete(&self, upload: &Upload, tags: &[String]) -> Result<(), S3Error> {
        const DOING: &str = "completing the upload";
        let call = Call {
            doing: DOING,
            method: Method::Post,
            key: &upload.key,
            query: &[("uploadId", &upload.id)],
            deadlines: COMPLETE,
            retries: RETRIES,
        };
        let read = |answer: &WholeResponse| match answers::error(&answer.body) {
            // The status was told before the work was done, and it failed: the service says that this may pass.
            Some(said) => Outcome::Again(S3Error::Failed(exchange::telling(DOING, answer.status, &said))),
            None if answers::is_completed(&answer.body) => Outcome::Done(()),
            None => Outcome::No(S3Error::Failed(format!("the answer named no object while {DOING}"))),
        };
        self.ask(&call, Some(answers::completion(tags)), read).await
    }

    /// Makes a request until it is answered.
    async fn ask<T>(
        &self,
        call: &Call<'_>,
        body: Option<Vec<u8>>,
        read: impl Fn(&WholeResponse) -> Outcome<T>,
    ) -> Result<T, S3Error> {
        let body = body.map(Rc::new);
        let attempt = async || -> Result<WholeResponse, Lost> {
            let request = self.signed(call).await?;
            let request = match &body {
                Some(body) => request.body("application/xml", body.clone()),
                None => request,
            };
            Ok(self.exchange.fetch(request).await?)
        };
        self.exchange.until_answered(self.manner(call), attempt, read).await
    }

    fn manner<'a>(&'a self, call: &'a Call<'_>) -> Manner<'a> {
        Manner { doing: call.doing, retries: call.retries, keys: Some(&self.keys) }
    }

    /// The request, signed now. A connection of its own: one that was kept may have been closed meanwhile.
    async fn signed(&self, call: &Call<'_>) -> Result<Request, Lost> {
        let keys = self.keys.current(&self.exchange).await?;
        let url = self.address(call, &keys, self.exchange.runtime.unix_time())?;
        Ok(Request::new(call.method, url, call.deadlines).redirects_max(0).closes())
    }

    fn address(&self, call: &Call<'_>, keys: &Credentials, now: Duration) -> Result<Url, S3Error> {
        let method = match call.method {
            Method::Put => rusty_s3::Method::Put,
            Method::Delete => rusty_s3::Method::Delete,
            _ => rusty_s3::Method::Post,
        };
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let date = Timestamp::from_second(seconds).map_err(|error| S3Error::Parameters(error.to_string()))?;
        Ok(rusty_s3::signing::sign(
            &date,
            method,
            self.bucket()?.object_url(call.key),
            keys.key(),
            keys.secret(),
            keys.token(),
            &self.options.region,
            self.options.signature_seconds,
            call.query.iter().copied(),
            std::iter::empty(),
        ))
    }

    /// The bucket's name stands in the path: so it is found at any service, by its address too, and whatever the name holds.
    fn bucket(&self) -> Result<Bucket, S3Error> {
        let S3Options { url, bucket, region, .. } = &self.options;
        Bucket::new(url.clone(), UrlStyle::Path, bucket.clone(), region.clone())
            .map_err(|error| S3Error::Parameters(format!("the bucket has no address: {error}")))
    }
}

/// The name of an object.
fn object_key(prefix: &str, name: &str) -> String {
    match prefix {
        "" => name.to_owned(),
        prefix => format!("{prefix}/{name}"),
    }
}

/// The tag by which a part is named when the upload is completed.
fn tag(answer: &WholeResponse) -> Option<String> {
    let tag = std::str::from_utf8(answer.headers.get("etag")?).ok()?.trim();
    (!tag.is_empty()).then(|| tag.to_owned())
}

#[cfg(test)]
mod tests;
