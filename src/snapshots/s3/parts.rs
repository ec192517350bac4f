//! How a snapshot is cut into parts.

/// The most parts of one object.
const PARTS_MAX: u64 = 10_000;
/// The largest part that the service takes, in bytes.
const PART_BYTES_MAX: u64 = 5 << 30;

/// One part of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its number, from 1.
    pub number: u64,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// Its bytes.
    pub len: u64,
}

/// The parts of an object of `len` bytes, all but the last of the same size: `wanted` bytes, as far as the service takes such
/// parts, or more where there would be too many. `None` for an object that fits in no parts.
pub fn parts(len: u64, wanted: u64) -> Option<impl Iterator<Item = Part>> {
    let bytes = wanted.clamp(1, PART_BYTES_MAX).max(len.div_ceil(PARTS_MAX));
    let count = len.div_ceil(bytes).max(1);
    let part = move |index: u64| Part { number: index + 1, offset: index * bytes, len: bytes.min(len - index * bytes) };
    (bytes <= PART_BYTES_MAX).then(|| (0..count).map(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(len: u64, wanted: u64) -> Vec<u64> {
        let parts: Vec<Part> = parts(len, wanted).expect("it fits").collect();
        let mut offset = 0;
        for (index, part) in parts.iter().enumerate() {
            assert_eq!((part.number, part.offset), (index as u64 + 1, offset));
            offset += part.len;
        }
        assert_eq!(offset, len);
        parts.iter().map(|part| part.len).collect()
    }

    #[test]
    fn parts_cover_the_whole() {
        assert_eq!(sizes(25, 10), [10, 10, 5]);
        assert_eq!(sizes(20, 10), [10, 10]);
        assert_eq!(sizes(3, 10), [3]);
        assert_eq!(sizes(0, 10), [0]);
    }

    /// The service refuses a part over 5 GiB, and the 10,001st.
    #[test]
    fn parts_are_such_as_the_service_takes() {
        let large = sizes(1 << 40, 8 << 30);
        assert!(large.iter().all(|len| *len <= PART_BYTES_MAX) && large.len() == 205);
        let many = sizes((1 << 40) + 1, 10 << 20);
        assert!(many.len() <= 10_000 && many[0] == (1_u64 << 40).div_ceil(10_000));
        assert!(parts(PART_BYTES_MAX * PARTS_MAX + 1, 10 << 20).is_none());
    }
}
