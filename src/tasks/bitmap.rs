//! Sets of task numbers as text, for records kept as JSON: the portable form of a Roaring bitmap in base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use roaring::RoaringBitmap;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serializer};

/// Writes the set as one string.
pub fn serialize<S: Serializer>(set: &RoaringBitmap, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&STANDARD_NO_PAD.encode(to_bytes(set)))
}

/// Reads what [`serialize`] wrote; text that is no such set is an error.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RoaringBitmap, D::Error> {
    let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
    let bytes = STANDARD_NO_PAD.decode(text.as_bytes()).map_err(D::Error::custom)?;
    RoaringBitmap::deserialize_from(bytes.as_slice()).map_err(D::Error::custom)
}

/// The portable form.
pub fn to_bytes(set: &RoaringBitmap) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(set.serialized_size());
    // Writing to memory cannot fail; an incomplete form would be refused by the reader.
    let written = set.serialize_into(&mut bytes);
    debug_assert!(written.is_ok());
    bytes
}
