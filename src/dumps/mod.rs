//! Dumps: portable copies of the whole instance, in version 6 of the interface's format.
//!
//! A dump is a gzip-compressed tar of JSON files, most of them with one value per line. Documents, tasks and batches are streamed
//! in both directions; nothing is held in memory as a whole.

mod batch;
mod details;
pub mod import;
mod known;
mod lines;
mod small;
mod spool;
mod task;
pub mod write;

use shards::timestamp::Timestamp;

/// The version of the format that is written and read.
const FORMAT: &str = "V6";
/// The version of the interface whose dumps these are; readers choose by [`FORMAT`] alone.
const INTERFACE_VERSION: &str = "1.41.0";

/// Names of entries.
mod names {
    pub const METADATA: &str = "metadata.json";
    pub const KEYS: &str = "keys.jsonl";
    pub const FEATURES: &str = "experimental-features.json";
    pub const NETWORK: &str = "network.json";
    pub const WEBHOOKS: &str = "webhooks.json";
    pub const CHATS: &str = "chat-completions-settings";
    pub const SEARCH_RULES: &str = "dynamic-search-rules";
    pub const INDEXES: &str = "indexes";
    /// In the folder of an index, as are the next two.
    pub const INDEX_METADATA: &str = "metadata.json";
    pub const SETTINGS: &str = "settings.json";
    pub const DOCUMENTS: &str = "documents.jsonl";
    pub const TASKS: &str = "tasks/queue.jsonl";
    pub const PAYLOADS: &str = "tasks/update_files";
    pub const BATCHES: &str = "batches/queue.jsonl";
    /// Folders that are there even when they are empty.
    pub const FOLDERS: [&str; 6] = [INDEXES, "tasks", PAYLOADS, "batches", CHATS, SEARCH_RULES];
}

/// The name of a dump that was begun at this time: `YYYYMMDD-HHMMSSmmm` in UTC.
fn dump_uid(begun: Timestamp) -> String {
    let date = begun.date();
    format!(
        "{:04}{:02}{:02}-{:02}{:02}{:02}{:03}",
        date.year(),
        u8::from(date.month()),
        date.day(),
        date.hour(),
        date.minute(),
        date.second(),
        date.millisecond()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dumps_are_named_by_their_time() {
        assert_eq!(dump_uid(Timestamp(1_700_000_000_012_999_999)), "20231114-221320012");
    }
}
