//! Numeric identifiers, each with its own type so that none is mistaken for another.

use serde::{Deserialize, Serialize};

/// One core of this instance: its executor, its listener, its partitions. Counted from 0; core 0 also runs the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CoreId(pub u16);

/// The number of a document within its index: the tie-break of every ranking, the same whatever the number of partitions.
/// A new document takes the smallest free number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DocId(pub u32);

/// The number of a document within its partition: `DocId / partition_count`, so that a partition's bitmaps stay dense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LocalDocId(pub u32);

/// The place of a partition in its index, from 0. Partition 0 also holds the index's catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PartitionNo(pub u16);

/// A field of an index, by the order in which the index first met its dotted path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FieldId(pub u16);

/// The number of an index's committed state; it grows by one with each commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
pub struct Epoch(pub u64);

impl DocId {
    /// Which partition owns this document, of `partition_count` (at least 1).
    pub fn partition(self, partition_count: u16) -> PartitionNo {
        PartitionNo((self.0 % u32::from(partition_count)) as u16)
    }

    /// Its number within that partition.
    pub fn local(self, partition_count: u16) -> LocalDocId {
        LocalDocId(self.0 / u32::from(partition_count))
    }
}

impl LocalDocId {
    /// The number within the index of a document of `partition`.
    pub fn global(self, partition: PartitionNo, partition_count: u16) -> DocId {
        DocId(self.0 * u32::from(partition_count) + u32::from(partition.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Merging partitions by document number is only right if the split into partition and local number can be undone.
    #[test]
    fn local_and_global_numbers_are_inverse() {
        for count in 1..7u16 {
            for id in 0..1000 {
                let (partition, local) = (DocId(id).partition(count), DocId(id).local(count));
                assert_eq!(local.global(partition, count), DocId(id));
            }
        }
    }
}
