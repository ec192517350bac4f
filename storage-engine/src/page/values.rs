//! Values that lie in runs of their own, in memory until the transaction that put them writes them.

use ahash::AHashMap;

/// First page -> value.
#[derive(Default)]
pub(super) struct Values {
    runs: AHashMap<u64, Vec<u8>>,
    /// Bytes of all of them: who gathers changes asks for it after each.
    bytes: usize,
}

impl Values {
    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn get(&self, page: u64) -> Option<&[u8]> {
        self.runs.get(&page).map(Vec::as_slice)
    }

    pub(super) fn insert(&mut self, page: u64, value: Vec<u8>) {
        self.bytes += value.len();
        let before = self.runs.insert(page, value);
        self.bytes -= before.map_or(0, |value| value.len());
    }

    /// Takes a value out; whether it was here.
    pub(super) fn remove(&mut self, page: u64) -> bool {
        let value = self.runs.remove(&page);
        self.bytes -= value.as_ref().map_or(0, Vec::len);
        value.is_some()
    }

    /// Takes all of them out, in no order.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (u64, Vec<u8>)> {
        self.bytes = 0;
        std::mem::take(&mut self.runs).into_iter()
    }

    /// The bytes, counted one by one.
    #[cfg(test)]
    pub(super) fn counted_bytes(&self) -> usize {
        self.runs.values().map(Vec::len).sum()
    }
}
