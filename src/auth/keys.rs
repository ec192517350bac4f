//! API keys: their values, their index patterns, and the set of keys that requests are checked against.

use std::collections::BTreeMap;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use shards::error::UserError;
use time::OffsetDateTime;
use uuid::Uuid;

use super::actions::{Action, ActionName, Rights};

/// The longest name of an index, in bytes, and so the longest pattern without its star.
pub const INDEX_UID_BYTES_MAX: usize = 400;

/// Which indexes a key opens: a name, or a beginning of names followed by `*`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IndexPattern {
    text: String,
}

impl IndexPattern {
    /// The pattern, when it is `*`, or 1 to 400 of `A-Z a-z 0-9 - _` with or without a `*` at the very end.
    pub fn parse(text: &str) -> Option<IndexPattern> {
        let stem = text.strip_suffix('*').unwrap_or(text);
        let letters_fit = stem.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        let fits = letters_fit && stem.len() <= INDEX_UID_BYTES_MAX && !text.is_empty();
        fits.then(|| IndexPattern { text: text.to_owned() })
    }

    /// The pattern that matches every index.
    pub fn everything() -> IndexPattern {
        IndexPattern { text: "*".to_owned() }
    }

    /// Its text, as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it is `*`.
    pub fn is_everything(&self) -> bool {
        self.text == "*"
    }

    /// Whether the index of this name is one of those it stands for.
    pub fn matches(&self, uid: &str) -> bool {
        match self.text.strip_suffix('*') {
            Some(stem) => uid.starts_with(stem),
            None => uid == self.text,
        }
    }

    /// What stands for the indexes of both, if there are any.
    pub fn intersection(&self, other: &IndexPattern) -> Option<IndexPattern> {
        if self.covers(other) {
            return Some(other.clone());
        }
        other.covers(self).then(|| self.clone())
    }

    /// Whether it stands for every index that the other stands for.
    pub fn covers(&self, other: &IndexPattern) -> bool {
        match self.text.strip_suffix('*') {
            Some(stem) => other.text.strip_suffix('*').unwrap_or(&other.text).starts_with(stem),
            None => self.text == other.text,
        }
    }

    /// Greater for what says more: a whole name before any beginning, a longer beginning before a shorter one.
    pub fn specificity(&self) -> (bool, usize) {
        (!self.text.ends_with('*'), self.text.len())
    }
}

impl Serialize for IndexPattern {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for IndexPattern {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        IndexPattern::parse(&text)
            .ok_or_else(|| serde::de::Error::custom(format!("`{text}` is not a pattern of index names")))
    }
}

/// A key as it is stored. Its value is not: [`key_value`] computes it from the master key. Written in camel case with
/// dates in RFC 3339.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiKey {
    /// Its number, which with the master key makes its value.
    pub uid: Uuid,
    /// A name for people.
    pub name: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// What it allows, as given: order and repetitions kept.
    pub actions: Vec<ActionName>,
    /// On which indexes, as given.
    pub indexes: Vec<IndexPattern>,
    /// The instant from which it opens nothing; `None` for never.
    #[serde(with = "time::serde::rfc3339::option")]
    pub expires_at: Option<OffsetDateTime>,
    /// When it was made.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it was last changed.
    #[serde(with = "time::serde::rfc3339")]
    pub updated_at: OffsetDateTime,
}

impl ApiKey {
    /// The rights of all its actions together.
    pub fn rights(&self) -> Rights {
        self.actions.iter().fold(Rights::NONE, |rights, action| rights.union(action.rights()))
    }

    /// Whether it opens `action` on at least one pattern at this time.
    pub fn allows(&self, action: Action, now: OffsetDateTime) -> bool {
        let expired = self.expires_at.is_some_and(|end| now >= end);
        !expired && !self.indexes.is_empty() && self.rights().contains(action)
    }

    /// The object that answers show: every field always there, `key` being the value under this master key.
    pub fn view(&self, master_key: &[u8]) -> KeyView<'_> {
        KeyView {
            name: self.name.as_deref(),
            description: self.description.as_deref(),
            key: key_value(master_key, self.uid),
            uid: self.uid,
            actions: &self.actions,
            indexes: &self.indexes,
            expires_at: self.expires_at,
            created_at: self.created_at,
            updated_at: self.updated_at,
        }
    }
}

/// A key as answers show it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyView<'a> {
    name: Option<&'a str>,
    description: Option<&'a str>,
    key: String,
    uid: Uuid,
    actions: &'a [ActionName],
    indexes: &'a [IndexPattern],
    #[serde(with = "time::serde::rfc3339::option")]
    expires_at: Option<OffsetDateTime>,
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    updated_at: OffsetDateTime,
}

/// The value of the key `uid` under this master key: 64 lower-case hexadecimal letters. Clients compute it too.
pub fn key_value(master_key: &[u8], uid: Uuid) -> String {
    hex::encode(key_value_bytes(master_key, uid))
}

fn key_value_bytes(master_key: &[u8], uid: Uuid) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(master_key).expect("HMAC takes a key of any length");
    mac.update(uid.as_hyphenated().to_string().as_bytes());
    mac.finalize().into_bytes().into()
}

/// How a path segment under `/keys` names a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyName {
    /// By its number, in any notation of a UUID.
    Uid(Uuid),
    /// By its value.
    Value(String),
}

impl KeyName {
    /// The name that this (percent-decoded) path segment is.
    pub fn parse(segment: &str) -> KeyName {
        Uuid::try_parse(segment).map_or_else(|_| KeyName::Value(segment.to_owned()), KeyName::Uid)
    }
}

/// Every key of the instance with the values they have under one master key. Immutable; replaced whole when a key
/// changes, and shared by all cores.
#[derive(Debug, Default)]
pub struct KeySet {
    master_key: Option<Vec<u8>>,
    by_uid: BTreeMap<Uuid, Arc<ApiKey>>,
    /// By the digest of the value: how far a wrong value is like a right one then says nothing about the right one, so
    /// the look-up needs no constant time. The full value is compared in constant time after that.
    by_digest: BTreeMap<[u8; 32], ([u8; 32], Uuid)>,
}

impl KeySet {
    /// The set of these keys. An empty master key counts as none.
    pub fn new(master_key: Option<&str>, keys: impl IntoIterator<Item = Arc<ApiKey>>) -> KeySet {
        let master_key = master_key.filter(|key| !key.is_empty()).map(|key| key.as_bytes().to_vec());
        let mut set = KeySet { master_key, by_uid: BTreeMap::new(), by_digest: BTreeMap::new() };
        for key in keys {
            if let Some(master_key) = &set.master_key {
                let value = key_value_bytes(master_key, key.uid);
                set.by_digest.insert(Sha256::digest(value).into(), (value, key.uid));
            }
            set.by_uid.insert(key.uid, key);
        }
        set
    }

    /// The master key, when there is one.
    pub fn master_key(&self) -> Option<&[u8]> {
        self.master_key.as_deref()
    }

    /// The key of this number.
    pub fn by_uid(&self, uid: Uuid) -> Option<&Arc<ApiKey>> {
        self.by_uid.get(&uid)
    }

    /// The key whose value this is; upper-case hexadecimal letters are the same value.
    pub fn by_value(&self, value: &str) -> Option<&Arc<ApiKey>> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(value, &mut bytes).ok()?;
        let digest: [u8; 32] = Sha256::digest(bytes).into();
        let (stored, uid) = self.by_digest.get(&digest)?;
        equal_in_constant_time(stored, &bytes).then(|| self.by_uid.get(uid)).flatten()
    }

    /// The key that a path segment names.
    pub fn find(&self, name: &KeyName) -> Option<&Arc<ApiKey>> {
        match name {
            KeyName::Uid(uid) => self.by_uid(*uid),
            KeyName::Value(value) => self.by_value(value),
        }
    }

    /// All keys, newest first; those of the same instant by descending uid.
    pub fn newest_first(&self) -> Vec<&Arc<ApiKey>> {
        let mut keys: Vec<_> = self.by_uid.values().collect();
        keys.sort_by_key(|key| std::cmp::Reverse((key.created_at, key.uid)));
        keys
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.by_uid.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_uid.is_empty()
    }
}

/// Whether two texts are equal, in a time that depends on their lengths alone.
pub fn equal_in_constant_time(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let difference = a.iter().zip(b).fold(0u8, |difference, (a, b)| std::hint::black_box(difference | (a ^ b)));
    difference == 0
}

/// The keys that an empty store is given, oldest first. Their instants differ so that their order is kept;
/// `random_uid` gives a fresh v4 number each time.
pub fn default_keys(now: OffsetDateTime, mut random_uid: impl FnMut() -> Uuid) -> Vec<ApiKey> {
    const DEFAULTS: [(&str, &str, &[&str]); 4] = [
        (
            "Default Chat API Key",
            "For conversations and searches from browsers and apps.",
            &["chatCompletions", "search"],
        ),
        (
            "Default Read-Only Admin API Key",
            "Reads everything and changes nothing. Keep it on your servers.",
            &["*.get", "keys.get"],
        ),
        ("Default Admin API Key", "Allows every operation. Keep it on your servers.", &["*"]),
        ("Default Search API Key", "For searches from browsers and apps.", &["search"]),
    ];
    let mut keys = Vec::with_capacity(DEFAULTS.len());
    for (order, (name, description, actions)) in DEFAULTS.into_iter().enumerate() {
        let created_at = now + time::Duration::microseconds(order as i64);
        keys.push(ApiKey {
            uid: random_uid(),
            name: Some(name.to_owned()),
            description: Some(description.to_owned()),
            actions: actions.iter().filter_map(|action| ActionName::parse(action)).collect(),
            indexes: vec![IndexPattern::everything()],
            expires_at: None,
            created_at,
            updated_at: created_at,
        });
    }
    keys
}

/// The error of a key that is not there.
pub fn key_not_found(name: &str) -> UserError {
    UserError::new("api_key_not_found", format!("API key `{name}` not found."))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: OffsetDateTime = time::macros::datetime!(2030-01-01 0:00 UTC);

    /// Clients compute values themselves; these were recorded from one.
    #[test]
    fn values_are_those_that_clients_compute() {
        let uid = Uuid::parse_str("7d1c0000-0000-4000-8000-000000000001").unwrap();
        let value = key_value(b"a-master-key-of-32-bytes-or-more!", uid);
        assert_eq!(value, "ac610dcb816e13ebaa914c9a8f17117a5054ab8e5cd5cb80ee3237f55c6602eb");
    }

    #[test]
    fn patterns_end_with_their_only_star() {
        let longest = "a".repeat(INDEX_UID_BYTES_MAX);
        for good in ["*", "a", "A-b_9*", &longest, &format!("{longest}*")] {
            assert_eq!(IndexPattern::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", "a*b", "**", "a b", "\u{e9}", "*a", &format!("{longest}a")] {
            assert_eq!(IndexPattern::parse(bad), None, "{bad}");
        }
        assert!(IndexPattern::everything().matches("x") && IndexPattern::everything().is_everything());
        let stem = IndexPattern::parse("ab*").unwrap();
        assert!(stem.matches("ab") && stem.matches("abc") && !stem.matches("a"));
    }

    #[test]
    fn keys_are_found_by_any_notation_of_their_name() {
        let key = default_keys(NOW, || Uuid::from_u128(7)).remove(0);
        let set = KeySet::new(Some("master"), [Arc::new(key)]);
        let uid = Uuid::from_u128(7);
        for name in [uid.to_string(), uid.simple().to_string().to_uppercase(), key_value(b"master", uid)] {
            assert_eq!(set.find(&KeyName::parse(&name)).unwrap().uid, uid, "{name}");
        }
        assert!(set.find(&KeyName::parse("else")).is_none());
        assert!(
            KeySet::new(None, set.newest_first().into_iter().cloned()).by_value(&key_value(b"master", uid)).is_none()
        );
    }

    #[test]
    fn default_keys_keep_their_order() {
        let mut next = 100;
        let keys = default_keys(NOW, || {
            next -= 1;
            Uuid::from_u128(next)
        });
        let set = KeySet::new(Some("m"), keys.into_iter().map(Arc::new));
        let names: Vec<_> = set.newest_first().iter().map(|key| key.name.clone().unwrap()).collect();
        assert_eq!(
            names,
            [
                "Default Search API Key",
                "Default Admin API Key",
                "Default Read-Only Admin API Key",
                "Default Chat API Key"
            ]
        );
    }

    #[test]
    fn a_stored_key_is_read_back() {
        let mut key = default_keys(NOW, Uuid::nil).remove(1);
        key.expires_at = Some(NOW);
        let text = serde_json::to_string(&key).unwrap();
        assert_eq!(serde_json::from_str::<ApiKey>(&text).unwrap(), key);
        let shown = serde_json::to_value(key.view(b"m")).unwrap();
        assert_eq!(shown["expiresAt"], "2030-01-01T00:00:00Z");
        assert_eq!(shown["actions"], serde_json::json!(["*.get", "keys.get"]));
        assert_eq!(shown.as_object().unwrap().len(), 9);
    }
}
