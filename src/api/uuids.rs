//! UUIDs from the runtime's clock and randomness, so that a seeded run repeats them.

use shards::runtime::Runtime;
use uuid::{Builder, Uuid};

/// A random one.
pub fn v4(runtime: &dyn Runtime) -> Uuid {
    Builder::from_random_bytes(random_bytes(runtime)).into_uuid()
}

/// One that begins with the time, so that later ones sort after earlier ones.
pub fn v7(runtime: &dyn Runtime) -> Uuid {
    let millis = u64::try_from(runtime.unix_time().as_millis()).unwrap_or(u64::MAX);
    let [.., a, b, c, d, e, f, g, h, i, j] = random_bytes(runtime);
    Builder::from_unix_timestamp_millis(millis, &[a, b, c, d, e, f, g, h, i, j]).into_uuid()
}

fn random_bytes(runtime: &dyn Runtime) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&runtime.random_u64().to_le_bytes());
    bytes[8..].copy_from_slice(&runtime.random_u64().to_le_bytes());
    bytes
}
