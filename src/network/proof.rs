//! Proves that a search was sent by another instance of the network.
//!
//! Instances search with `searchApiKey`, which clients may hold, too. But they tell each other more than a search key may see,
//! such as which words occur in the documents of other tenants. So the asking instance signs its request with the asked one's
//! `writeApiKey`, which both know from the network. Whoever has that key may read and change every document anyway.
//!
//! A proof holds for one request at about one time. Who captures it (on a wire without TLS, or in the log of a proxy) has seen what the
//! same request was answered then. But without the time the same proof, with any search key at all, would go on to tell what such a
//! key may not see as the documents change, for as long as the `writeApiKey` stays: in a network without a leader that key itself is
//! never sent. So the time is signed, too, and a proof is taken for [`TOLERANCE`] before and after it. Within that time a request
//! may be sent again (the asking instance does so where an answer does not come): there is no list of those that were seen,
//! since all that a copy gets is the answer again.
//!
//! Where the clocks of two instances differ by more, the asked one answers as it answers a client, and logs that: the search finds
//! the same documents, merged by the words that each instance knows alone. TLS protects the request itself: without it the search
//! key, the query and the answer are read on the wire in any case, and with a leader the write key, too.

use std::cell::Cell;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use shards::runtime::{Checkpoint, Nanos, Runtime};

use super::headers::{ASKED_SHARDS, HIT_LINES, HYBRID_SHARE};
use crate::http::Headers;

/// The header with the proof.
pub const PROOF: &str = "X-Skerry-Proof";

/// Keeps the proof apart from whatever else is signed with the same key.
const PURPOSE: &[u8] = b"skerry: part of a search";
/// How far the clocks of two instances may be apart.
pub const TOLERANCE: Duration = Duration::from_secs(300);
/// The same for a request that goes on with what an earlier one was told as a proven one: it is not to fail where the first was just
/// within the tolerance.
pub const LATER_TOLERANCE: Duration = Duration::from_secs(330);
/// How often a core logs that a clock is wrong.
const LOGGED_EVERY: Duration = Duration::from_secs(60);
/// Bytes that are signed at once.
const PIECE_BYTES: usize = 64 << 10;

/// What is signed: everything that the answer depends on.
#[derive(Clone, Copy)]
pub struct Signed<'a> {
    /// See [`HIT_LINES`], [`ASKED_SHARDS`] and [`HYBRID_SHARE`]; empty for those that are absent.
    headers: [&'a [u8]; 3],
    content_type: &'a str,
    body: &'a [u8],
}

impl<'a> Signed<'a> {
    /// A request that is to be sent.
    pub fn sent(headers: [Option<&'a str>; 3], content_type: &'a str, body: &'a [u8]) -> Self {
        Self { headers: headers.map(|value| value.unwrap_or_default().as_bytes()), content_type, body }
    }

    /// A request that has come.
    pub fn received(headers: &'a Headers, content_type: &'a str, body: &'a [u8]) -> Self {
        let values = [HIT_LINES, ASKED_SHARDS, HYBRID_SHARE].map(|name| headers.get(name).unwrap_or_default());
        Self { headers: values, content_type, body }
    }

    /// The proof that it comes from someone who has this key, and comes now: the seconds since 1970, a point, and the signature in
    /// hexadecimal digits.
    pub async fn proof(self, runtime: &dyn Runtime, key: &str) -> String {
        let time = runtime.unix_time().as_secs().to_string();
        let mac = self.mac(runtime, key, &time).await;
        format!("{time}.{}", hex::encode(mac.finalize().into_bytes()))
    }

    /// Whether this is the proof, compared in constant time, and was made now, give or take the tolerance.
    pub async fn is_proven(self, runtime: &dyn Runtime, key: &str, proof: &str, tolerance: Duration) -> bool {
        let Some((time, mac)) = proof.split_once('.') else { return false };
        let (Ok(seconds), Ok(mac)) = (time.parse::<u64>(), hex::decode(mac)) else { return false };
        if self.mac(runtime, key, time).await.verify_slice(&mac).is_err() {
            return false;
        }
        let apart_seconds = runtime.unix_time().as_secs().abs_diff(seconds);
        let is_timely = apart_seconds <= tolerance.as_secs();
        if !is_timely {
            log_clocks(runtime, apart_seconds);
        }
        is_timely
    }

    async fn mac(self, runtime: &dyn Runtime, key: &str, time: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).expect("HMAC takes a key of any length");
        let mut checkpoint = Checkpoint::default();
        let [hit_lines, shards, hybrid] = self.headers;
        for part in [PURPOSE, time.as_bytes(), hit_lines, shards, hybrid, self.content_type.as_bytes(), self.body] {
            // With its length, so that nothing can move from one part to the next.
            mac.update(&(part.len() as u64).to_le_bytes());
            for piece in part.chunks(PIECE_BYTES) {
                mac.update(piece);
                checkpoint.look(runtime).await;
            }
        }
        mac
    }
}

thread_local! {
    /// When this core last logged that a clock is wrong, on the instance's own clock.
    static LOGGED: Cell<Option<Nanos>> = const { Cell::new(None) };
}

/// Says that the clocks differ, unless that was said lately: it is the case for each search.
fn log_clocks(runtime: &dyn Runtime, apart_seconds: u64) {
    let now = runtime.now();
    if LOGGED.get().is_none_or(|logged| now.since(logged) >= LOGGED_EVERY) {
        LOGGED.set(Some(now));
        tracing::warn!(
            apart_seconds,
            "a search of another instance was sent at another time than it is here, and is answered as that of a client; set the \
             clocks of both (if they are right, somebody repeats an old request)"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use futures_lite::future::block_on;
    use storage_engine::io::mem::MemDisk;

    use super::*;
    use crate::control::testing::TestRuntime;

    /// Any client with a search key could ask as instances do, and read words of documents that it may not see.
    #[test]
    fn only_who_has_the_key_can_prove_it_and_only_of_this_request() {
        let runtime = TestRuntime::new(Rc::new(MemDisk::new()));
        let body = vec![b'x'; PIECE_BYTES + 1];
        let sent = |headers, body| Signed::sent(headers, "application/json", body);
        let proof = block_on(sent([Some("c"), Some("s1;s1,s2"), None], &body).proof(&runtime, "write"));
        let is_proven = |pairs: &[(&str, &str)], kind: &str, body: &[u8], key: &str, proof: &str| {
            let headers = Headers::from_pairs(pairs);
            block_on(Signed::received(&headers, kind, body).is_proven(&runtime, key, proof, TOLERANCE))
        };
        let pairs = [(HIT_LINES, "c"), (ASKED_SHARDS, "s1;s1,s2")];
        let json = "application/json";
        assert!(is_proven(&pairs, json, &body, "write", &proof));
        assert!(!is_proven(&pairs, json, &body, "search", &proof));
        assert!(!is_proven(&pairs, json, &body[1..], "write", &proof));
        assert!(!is_proven(&pairs, "application/x-skerry-words", &body, "write", &proof));
        assert!(!is_proven(&pairs[..1], json, &body, "write", &proof));
        assert!(!is_proven(&[(HIT_LINES, "cs"), (ASKED_SHARDS, "1;s1,s2")], json, &body, "write", &proof));
        assert!(!is_proven(&[pairs[0], pairs[1], (HYBRID_SHARE, "true")], json, &body, "write", &proof));
        let (time, mac) = proof.split_once('.').unwrap();
        let moved = format!("{}.{mac}", time.parse::<u64>().unwrap() + 1);
        for wrong in ["", "x", ".", mac, &proof[2..], &proof[..proof.len() - 2], &moved] {
            assert!(!is_proven(&pairs, json, &body, "write", wrong), "{wrong}");
        }
    }

    /// A request that somebody had captured was once answered to anybody with a search key, for ever.
    #[test]
    fn a_proof_is_taken_at_its_time_only() {
        let runtime = TestRuntime::new(Rc::new(MemDisk::new()));
        let headers = Headers::from_pairs(&[(HIT_LINES, "c")]);
        let signed = Signed::received(&headers, "application/json", b"{}");
        let proof = block_on(signed.proof(&runtime, "write"));
        let is_proven = |tolerance| block_on(signed.is_proven(&runtime, "write", &proof, tolerance));
        let start = runtime.unix_time();
        for (apart, first, later) in [(0, true, true), (300, true, true), (301, false, true), (331, false, false)] {
            for time in [start + Duration::from_secs(apart), start - Duration::from_secs(apart)] {
                runtime.set_unix_time(time);
                assert_eq!((is_proven(TOLERANCE), is_proven(LATER_TOLERANCE)), (first, later), "{apart} seconds");
            }
        }
    }
}
