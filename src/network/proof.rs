//! Proves that a search was sent by another instance of the network.
//!
//! Instances search with `searchApiKey`, which clients may hold, too. But they tell each other more than a search key may see,
//! such as which words occur in the documents of other tenants. So the asking instance signs its request with the asked one's
//! `writeApiKey`, which both know from the network. Whoever has that key may read and change every document anyway.

use hmac::{Hmac, Mac};
use sha2::Sha256;
use shards::runtime::{Checkpoint, Runtime};

use super::headers::{ASKED_SHARDS, HIT_LINES, HYBRID_SHARE};
use crate::http::Headers;

/// The header with the proof.
pub const PROOF: &str = "X-Skerry-Proof";

/// Keeps the proof apart from whatever else is signed with the same key.
const PURPOSE: &[u8] = b"skerry: part of a search";
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

    /// The proof that it comes from someone who has this key.
    pub async fn proof(self, runtime: &dyn Runtime, key: &str) -> String {
        hex::encode(self.mac(runtime, key).await.finalize().into_bytes())
    }

    /// Whether this is the proof, compared in constant time.
    pub async fn is_proven(self, runtime: &dyn Runtime, key: &str, proof: &str) -> bool {
        let Ok(proof) = hex::decode(proof) else { return false };
        self.mac(runtime, key).await.verify_slice(&proof).is_ok()
    }

    async fn mac(self, runtime: &dyn Runtime, key: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).expect("HMAC takes a key of any length");
        let mut checkpoint = Checkpoint::default();
        let [hit_lines, shards, hybrid] = self.headers;
        for part in [PURPOSE, hit_lines, shards, hybrid, self.content_type.as_bytes(), self.body] {
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
            block_on(Signed::received(&headers, kind, body).is_proven(&runtime, key, proof))
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
        for wrong in ["", "x", &proof[2..]] {
            assert!(!is_proven(&pairs, json, &body, "write", wrong));
        }
    }
}
