//! Which core owns what, and which CPUs the cores run on.

mod host;
mod memory;

pub use host::{HostCpus, default_core_count, host_cpus};
pub use memory::{memory_bytes, processor_count};

use uuid::Uuid;

use crate::ids::{CoreId, PartitionNo};

/// The core where an index's partition 0 lives, of `core_count` (at least 1). Depends on nothing but the two arguments, so
/// every start with the same number of cores finds the same owner.
pub fn first_core(index: Uuid, core_count: u16) -> CoreId {
    // Identifiers may be time-ordered; multiplying by an odd constant and taking the high half spreads neighbours.
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let (high, low) = index.as_u64_pair();
    let mixed = (high ^ low.rotate_left(32)).wrapping_mul(SPREAD) >> 32;
    CoreId((mixed % u64::from(core_count.max(1))) as u16)
}

/// The owner of one partition of an index whose partition 0 is on `first`: the cores in turn. With more partitions than
/// cores a core owns several.
pub fn owner(first: CoreId, partition: PartitionNo, core_count: u16) -> CoreId {
    let place = u32::from(first.0) + u32::from(partition.0);
    CoreId((place % u32::from(core_count.max(1))) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Indexes created one after the other must not pile up on one core.
    #[test]
    fn indexes_spread_over_the_cores() {
        for cores in [1u16, 2, 3, 8] {
            let mut owned = vec![0u32; usize::from(cores)];
            for number in 0..1000u128 {
                owned[usize::from(first_core(Uuid::from_u128((7 << 100) + number), cores).0)] += 1;
            }
            let fair = 1000 / u32::from(cores);
            assert!(owned.iter().all(|&count| count > fair / 2 && count < fair * 2), "{owned:?}");
        }
    }

    /// Partitions of one index use all cores before any core gets a second one.
    #[test]
    fn partitions_go_round() {
        let owners: Vec<u16> = (0..5).map(|number| owner(CoreId(2), PartitionNo(number), 3).0).collect();
        assert_eq!(owners, [2, 0, 1, 2, 0]);
        assert_eq!(owner(CoreId(u16::MAX), PartitionNo(u16::MAX), u16::MAX), CoreId(0));
    }
}
