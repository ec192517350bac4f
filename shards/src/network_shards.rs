//! Assigns documents to network shards by rendezvous hashing, identically on every instance.
//!
//! Each shard name is hashed together with the document's ID; the name with the greatest hash gets the document. Adding a name
//! takes documents from all others and moves none between them; removing a name distributes its documents over the others.

use std::collections::BTreeSet;

use xxhash_rust::xxh3::Xxh3;

use crate::ids::FieldId;

/// The field under whose number the columns keep the network shard of each document, as its place among the names. No field
/// of a document has this number.
pub const SHARD_FIELD: FieldId = FieldId(u16::MAX);

/// Follows each part that is hashed, so that no two pairs hash the same bytes; it occurs in no text.
const SEPARATOR: [u8; 1] = [0xFF];

/// How strongly a name claims something: XXH3-64 of both.
fn weight(name: &str, of: &str) -> u64 {
    let mut hasher = Xxh3::new();
    for part in [name.as_bytes(), &SEPARATOR, of.as_bytes(), &SEPARATOR] {
        hasher.update(part);
    }
    hasher.digest()
}

/// The name that has `of`; of equal claims that of the last name. `None` without names.
pub fn rendezvous<'n>(names: impl IntoIterator<Item = &'n str>, of: &str) -> Option<&'n str> {
    names.into_iter().max_by_key(|name| (weight(name, of), *name))
}

/// Which documents an instance keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptShards {
    /// All network shards.
    pub names: BTreeSet<String>,
    /// Those that this instance has.
    pub own: BTreeSet<String>,
}

impl KeptShards {
    /// Whether the document of this id is kept here.
    pub fn keeps(&self, id: &str) -> bool {
        let name = rendezvous(self.names.iter().map(String::as_str), id);
        name.is_none_or(|name| self.own.contains(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_interface() {
        assert_eq!(weight("alpha", "1"), 0x1d74_32c3_ea0b_120a);
        assert_eq!(weight("alpha", "doc-a"), 0x486a_c026_ba39_bdfe);
        assert_eq!(weight("beta", "doc-a"), 0x89c2_17bb_0f53_770c);
        assert_eq!(weight("gamma", "doc-a"), 0x35dd_f286_e1a3_f651);
        assert_eq!(rendezvous(["alpha", "beta", "gamma"], "doc-a"), Some("beta"));
        assert_eq!(rendezvous([], "doc-a"), None);
    }

    /// Otherwise a change of the network would move documents that it is not about.
    #[test]
    fn a_new_name_only_takes() {
        for id in (0..500).map(|id| id.to_string()) {
            let before = rendezvous(["a", "b", "c"], &id);
            let after = rendezvous(["a", "b", "c", "d"], &id);
            assert!(after == before || after == Some("d"));
        }
    }
}
