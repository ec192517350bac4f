//! The documents of one value within 65,536 consecutive numbers, as bytes.
//!
//! A tag, then: the numbers (`LIST`, u16 each), or first and last number of each run (`RUNS`, two u16 each), or a bitmap of
//! 8 KiB (`BITMAP`), whichever is shortest. All little-endian and ascending.

use roaring::RoaringBitmap;

const LIST: u8 = 0;
const RUNS: u8 = 1;
const BITMAP: u8 = 2;
const BITMAP_BYTES: usize = 8192;

/// Writes ascending numbers without duplicates.
pub(super) fn encode(numbers: &[u16], out: &mut Vec<u8>) {
    debug_assert!(numbers.is_sorted_by(|a, b| a < b));
    out.clear();
    let runs = runs_of(numbers);
    let (list_bytes, runs_bytes) = (numbers.len() * 2, runs * 4);
    if runs_bytes < list_bytes.min(BITMAP_BYTES) {
        out.push(RUNS);
        let mut rest = numbers;
        while let Some(first) = rest.first() {
            let length = run_length(rest);
            out.extend_from_slice(&first.to_le_bytes());
            out.extend_from_slice(&rest[length - 1].to_le_bytes());
            rest = &rest[length..];
        }
    } else if list_bytes <= BITMAP_BYTES {
        out.push(LIST);
        out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    } else {
        out.push(BITMAP);
        out.resize(1 + BITMAP_BYTES, 0);
        for number in numbers {
            out[1 + usize::from(number / 8)] |= 1 << (number % 8);
        }
    }
}

fn runs_of(numbers: &[u16]) -> usize {
    let breaks = numbers.windows(2).filter(|pair| pair[1] - pair[0] != 1).count();
    breaks + usize::from(!numbers.is_empty())
}

/// How many consecutive numbers come first; the slice is not empty.
fn run_length(numbers: &[u16]) -> usize {
    1 + numbers.windows(2).take_while(|pair| pair[1] - pair[0] == 1).count()
}

/// A block as it is stored.
#[derive(Clone, Copy)]
pub(super) enum Block<'b> {
    List(&'b [[u8; 2]]),
    Runs(&'b [[u8; 4]]),
    Bitmap(&'b [u8]),
}

impl<'b> Block<'b> {
    /// `None` if the bytes are no block.
    pub fn decode(bytes: &'b [u8]) -> Option<Self> {
        let (tag, body) = bytes.split_first()?;
        match *tag {
            LIST => whole(body).map(Self::List),
            RUNS => whole(body).map(Self::Runs),
            BITMAP => (body.len() == BITMAP_BYTES).then_some(Self::Bitmap(body)),
            _ => None,
        }
    }

    /// All numbers, ascending.
    pub fn numbers(self) -> Vec<u16> {
        match self {
            Self::List(numbers) => numbers.iter().map(|number| u16::from_le_bytes(*number)).collect(),
            Self::Runs(runs) => runs.iter().flat_map(|run| bounds(*run).0..=bounds(*run).1).collect(),
            Self::Bitmap(bits) => (0..=u16::MAX).filter(|number| is_set(bits, *number)).collect(),
        }
    }

    /// Calls `each` with all numbers, ascending.
    pub fn each(self, each: &mut dyn FnMut(u16)) {
        match self {
            Self::List(numbers) => numbers.iter().for_each(|number| each(u16::from_le_bytes(*number))),
            other => other.numbers().into_iter().for_each(each),
        }
    }

    /// Whether a number is in the block.
    pub fn contains(self, number: u16) -> bool {
        match self {
            Self::List(numbers) => numbers.binary_search_by_key(&number, |at| u16::from_le_bytes(*at)).is_ok(),
            Self::Runs(runs) => {
                let after = runs.partition_point(|run| bounds(*run).0 <= number);
                after > 0 && bounds(runs[after - 1]).1 >= number
            }
            Self::Bitmap(bits) => is_set(bits, number),
        }
    }

    /// The least number.
    pub fn first(self) -> Option<u16> {
        match self {
            Self::List(numbers) => numbers.first().map(|number| u16::from_le_bytes(*number)),
            Self::Runs(runs) => runs.first().map(|run| bounds(*run).0),
            Self::Bitmap(bits) => words(bits).enumerate().find_map(|(at, word)| lowest(at, word)),
        }
    }

    /// The number of a block of one.
    pub fn only(self) -> Option<u16> {
        match self {
            Self::List([number]) => Some(u16::from_le_bytes(*number)),
            _ => None,
        }
    }

    /// How many numbers there are.
    pub fn len(self) -> u64 {
        match self {
            Self::List(numbers) => numbers.len() as u64,
            Self::Runs(runs) => runs.iter().map(|run| bounds(*run)).map(|(first, last)| run_len(first, last)).sum(),
            Self::Bitmap(bits) => words(bits).map(|word| u64::from(word.count_ones())).sum(),
        }
    }

    /// How many numbers are in a set of bits, and the least of these.
    pub fn count_in(self, set: &BlockBits) -> (u64, Option<u16>) {
        let (mut count, mut least) = (0, None);
        self.each_word(|at, word| {
            let word = word & set.0[at];
            count += u64::from(word.count_ones());
            least = least.or_else(|| lowest(at, word));
        });
        (count, least)
    }

    /// Puts those of the numbers that are in `among` (`None`: all) into `met`. Gives how many these are, and whether any of them
    /// was there before.
    pub fn meet(self, among: Option<&BlockBits>, met: &mut BlockBits) -> (u64, bool) {
        let (mut count, mut again) = (0, false);
        self.each_word(|at, word| {
            let word = word & among.map_or(u64::MAX, |among| among.0[at]);
            count += u64::from(word.count_ones());
            again |= met.0[at] & word != 0;
            met.0[at] |= word;
        });
        (count, again)
    }

    /// Calls `each` for words of 64 numbers, which rise, with the number of the word and a bit for each number that is there. One
    /// word may come several times, with other bits each time.
    fn each_word(self, mut each: impl FnMut(usize, u64)) {
        match self {
            Self::List(numbers) => {
                for number in numbers {
                    let number = u16::from_le_bytes(*number);
                    each(usize::from(number / 64), 1 << (number % 64));
                }
            }
            Self::Runs(runs) => {
                for (first, last) in runs.iter().map(|run| bounds(*run)).filter(|(first, last)| first <= last) {
                    for at in first / 64..=last / 64 {
                        let from = if at == first / 64 { u64::MAX << (first % 64) } else { u64::MAX };
                        let to = if at == last / 64 { u64::MAX >> (63 - last % 64) } else { u64::MAX };
                        each(usize::from(at), from & to);
                    }
                }
            }
            Self::Bitmap(bits) => words(bits).enumerate().for_each(|(at, word)| each(at, word)),
        }
    }

    /// Adds all numbers, counted from `base`, to a set that may hold others.
    pub fn add_to(self, base: u32, set: &mut RoaringBitmap) {
        match self {
            Self::List(numbers) => {
                set.extend(numbers.iter().map(|number| base | u32::from(u16::from_le_bytes(*number))));
            }
            Self::Runs(runs) => {
                for run in runs {
                    let (first, last) = bounds(*run);
                    set.insert_range(base | u32::from(first)..=base | u32::from(last));
                }
            }
            Self::Bitmap(bits) => *set |= RoaringBitmap::from_lsb0_bytes(base, bits),
        }
    }
}

/// A set of documents within 65,536 consecutive numbers, of which any can be looked at at once.
#[derive(Clone)]
pub(super) struct BlockBits(Box<[u64; BITMAP_BYTES / 8]>);

impl BlockBits {
    pub fn new() -> Self {
        Self(Box::new([0; BITMAP_BYTES / 8]))
    }

    pub fn insert(&mut self, number: u16) {
        self.0[usize::from(number / 64)] |= 1 << (number % 64);
    }

    /// Puts all numbers of a block in.
    pub fn insert_all(&mut self, block: Block<'_>) {
        block.each_word(|at, word| self.0[at] |= word);
    }

    /// The numbers, counted from `base`.
    fn set(&self, base: u32) -> RoaringBitmap {
        let mut bytes = [0; BITMAP_BYTES];
        for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(self.0.iter()) {
            *bytes = word.to_le_bytes();
        }
        RoaringBitmap::from_lsb0_bytes(base, &bytes)
    }
}

/// A set of documents in bits: by the upper halves of their numbers, `None` where there are none.
#[derive(Default)]
pub(super) struct DocumentBits(Vec<Option<BlockBits>>);

impl DocumentBits {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The block of a number, if any of its numbers is there.
    pub fn get(&self, number: u32) -> Option<&BlockBits> {
        self.0.get((number >> 16) as usize)?.as_ref()
    }

    /// The block of a number, to put numbers into.
    pub fn block(&mut self, number: u32) -> &mut BlockBits {
        let at = (number >> 16) as usize;
        if self.0.len() <= at {
            self.0.resize(at + 1, None);
        }
        self.0[at].get_or_insert_with(BlockBits::new)
    }

    /// Puts numbers in.
    pub fn extend(&mut self, numbers: impl Iterator<Item = u32>) {
        numbers.for_each(|number| self.block(number).insert(number as u16));
    }

    /// Adds all numbers to a set.
    pub fn add_to(&self, set: &mut RoaringBitmap) {
        for (block, base) in self.0.iter().zip((0..).step_by(1 << 16)) {
            if let Some(block) = block {
                *set |= block.set(base);
            }
        }
    }
}

fn words(bits: &[u8]) -> impl Iterator<Item = u64> {
    bits.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word))
}

/// The number of the lowest bit of a word.
fn lowest(at: usize, word: u64) -> Option<u16> {
    (word != 0).then(|| at as u16 * 64 + word.trailing_zeros() as u16)
}

fn run_len(first: u16, last: u16) -> u64 {
    (u64::from(last) + 1).saturating_sub(u64::from(first))
}

fn whole<const N: usize>(body: &[u8]) -> Option<&[[u8; N]]> {
    let (chunks, rest) = body.as_chunks();
    rest.is_empty().then_some(chunks)
}

fn bounds(run: [u8; 4]) -> (u16, u16) {
    let [a, b, c, d] = run;
    (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]))
}

fn is_set(bits: &[u8], number: u16) -> bool {
    bits[usize::from(number / 8)] & (1 << (number % 8)) != 0
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn check(numbers: &[u16]) -> Result<(), TestCaseError> {
        let mut bytes = Vec::new();
        encode(numbers, &mut bytes);
        prop_assert!(bytes.len() <= 1 + BITMAP_BYTES);
        let block = Block::decode(&bytes).expect("just encoded");
        prop_assert_eq!(&block.numbers(), numbers);
        let mut each = Vec::new();
        block.each(&mut |number| each.push(number));
        prop_assert_eq!(&each, numbers);
        for number in [0, 1, 77, u16::MAX].into_iter().chain(numbers.iter().copied().take(50)) {
            prop_assert_eq!(block.contains(number), numbers.contains(&number));
        }
        prop_assert_eq!((block.len(), block.first()), (numbers.len() as u64, numbers.first().copied()));
        for among in [|number: u16| number % 3 == 1, |number| number > 40_000, |number| number != 63, |_| false] {
            let mut bits = BlockBits::new();
            (0..=u16::MAX).filter(|number| among(*number)).for_each(|number| bits.insert(number));
            let met: Vec<u16> = numbers.iter().copied().filter(|number| among(*number)).collect();
            prop_assert_eq!(block.count_in(&bits), (met.len() as u64, met.first().copied()));
            let mut seen = BlockBits::new();
            prop_assert_eq!(block.meet(Some(&bits), &mut seen), (met.len() as u64, false));
            prop_assert_eq!(block.meet(None, &mut seen), (numbers.len() as u64, !met.is_empty()));
            prop_assert_eq!(block.count_in(&seen).0, numbers.len() as u64);
        }
        let mut set = RoaringBitmap::from_iter([5]);
        block.add_to(3 << 16, &mut set);
        let expected = RoaringBitmap::from_iter(numbers.iter().map(|number| 3 << 16 | u32::from(*number)).chain([5]));
        prop_assert_eq!(set, expected);
        Ok(())
    }

    proptest! {
        #[test]
        fn blocks_come_back(sparse: BTreeSet<u16>, run in 0..60_000u16, dense in proptest::collection::btree_set(0..20_000u16, 4000..9000)) {
            check(&sparse.iter().copied().collect::<Vec<_>>())?;
            check(&dense.iter().copied().collect::<Vec<_>>())?;
            check(&sparse.iter().copied().chain(run..=u16::MAX).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>())?;
        }

        #[test]
        fn any_bytes_decode_to_numbers_or_nothing(bytes: Vec<u8>) {
            if let Some(block) = Block::decode(&bytes) {
                let _ = (block.numbers(), block.len(), block.first(), block.count_in(&BlockBits::new()));
                let _ = block.meet(None, &mut BlockBits::new());
                block.add_to(0, &mut RoaringBitmap::new());
            }
        }
    }
}
