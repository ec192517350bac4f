//! Exports: sending indexes to another server through its HTTP interface.
//!
//! [`ExportRequest`] is the client's request, which the task keeps. [`send`] makes the requests on the control core, for the
//! worker's step `tasks::work::export`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::api::settings::mask::mask;
use crate::auth::IndexPattern;

pub mod send;

/// What is to be sent where.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExportRequest {
    /// The other server, as it was given; nothing says that it is a URL.
    pub url: String,
    /// The key that opens it, in clear.
    pub api_key: Option<String>,
    /// Most bytes of documents in one request, before they are packed; the caller's limit, `None` for the server's.
    pub payload_bytes: Option<u64>,
    /// Which indexes, by pattern. An index goes by the first pattern, in the order of their bytes, that is about it.
    pub indexes: BTreeMap<String, ExportIndexes>,
}

/// What is sent of the indexes of one pattern.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExportIndexes {
    /// Which documents; all when absent. As it was given.
    pub filter: Option<Value>,
    /// Whether settings of an index that is there already are replaced.
    pub override_settings: bool,
}

/// The sent documents of each index that was exported, by its name.
pub type Exported = BTreeMap<String, (ExportIndexes, u64)>;

impl ExportRequest {
    /// What is sent of this index, if anything.
    pub fn of_index(&self, uid: &str) -> Option<&ExportIndexes> {
        let is_meant = |pattern: &str| IndexPattern::parse(pattern).is_some_and(|pattern| pattern.matches(uid));
        self.indexes.iter().find(|(pattern, _)| is_meant(pattern)).map(|(_, indexes)| indexes)
    }

    /// The details of the task before it has succeeded: the request, its key hidden.
    pub fn details(&self) -> Map<String, Value> {
        let shown = |indexes: &ExportIndexes| json!({ "filter": indexes.filter, "overrideSettings": indexes.override_settings });
        self.details_with(self.indexes.iter().map(|(pattern, indexes)| (pattern.clone(), shown(indexes))).collect())
    }

    /// The details of the task when it has succeeded.
    pub fn details_of(&self, exported: &Exported) -> Map<String, Value> {
        let shown = |(indexes, documents): &(ExportIndexes, u64)| json!({ "filter": indexes.filter, "overrideSettings": indexes.override_settings, "matched_documents": documents });
        self.details_with(exported.iter().map(|(uid, sent)| (uid.clone(), shown(sent))).collect())
    }

    fn details_with(&self, indexes: Map<String, Value>) -> Map<String, Value> {
        let mut details = Map::new();
        details.insert("url".into(), self.url.as_str().into());
        if let Some(key) = &self.api_key {
            details.insert("apiKey".into(), mask(key).into());
        }
        if let Some(bytes) = self.payload_bytes {
            details.insert("payloadSize".into(), exact_size(bytes).into());
        }
        details.insert("indexes".into(), indexes.into());
        details
    }
}

/// Bytes for people without loss: in the largest unit that they reach, decimal or binary.
pub fn exact_size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 12] = [
        (1 << 60, "EiB"),
        (1_000_000_000_000_000_000, "EB"),
        (1 << 50, "PiB"),
        (1_000_000_000_000_000, "PB"),
        (1 << 40, "TiB"),
        (1_000_000_000_000, "TB"),
        (1 << 30, "GiB"),
        (1_000_000_000, "GB"),
        (1 << 20, "MiB"),
        (1_000_000, "MB"),
        (1 << 10, "KiB"),
        (1_000, "KB"),
    ];
    match UNITS.iter().find(|(factor, _)| bytes >= *factor) {
        Some((factor, unit)) => format!("{} {unit}", bytes as f64 / *factor as f64),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_without_loss() {
        let shown =
            [0, 999, 1000, 1010, 1023, 1025, 2500, 50_000, 10 << 20, 1_024_000, 2_000_000, 1 << 63].map(exact_size);
        let wanted = [
            "0 B",
            "999 B",
            "1 KB",
            "1.01 KB",
            "1.023 KB",
            "1.0009765625 KiB",
            "2.44140625 KiB",
            "48.828125 KiB",
            "10 MiB",
            "1.024 MB",
            "1.9073486328125 MiB",
            "8 EiB",
        ]
        .map(String::from);
        assert_eq!(shown, wanted);
    }

    #[test]
    fn the_first_pattern_in_order_decides() {
        let indexes = |override_settings| ExportIndexes { filter: None, override_settings };
        let patterns = [("tr*", true), ("trees", false), ("a", false)];
        let indexes = patterns.map(|(pattern, override_settings)| (pattern.to_owned(), indexes(override_settings)));
        let request = ExportRequest { indexes: BTreeMap::from(indexes), ..ExportRequest::default() };
        assert!(request.of_index("trees").unwrap().override_settings);
        assert!(request.of_index("a").is_some() && request.of_index("ab").is_none());
    }

    #[test]
    fn details_hide_the_key_and_leave_out_what_was_not_given() {
        let mut request = ExportRequest { url: "x".into(), ..ExportRequest::default() };
        assert_eq!(Value::from(request.details()), json!({"url": "x", "indexes": {}}));
        request.api_key = Some("secret-api-key-that-is-long-enough".into());
        assert_eq!(request.details()["apiKey"], "secreXXXXXX...");
    }
}
