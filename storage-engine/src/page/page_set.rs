//! Sets of pages: a bit for each page, in parts that copies of a set share until one of them changes a part.
//!
//! A copy costs one counter for each 16 MiB of the file, so that every state and every transaction has its own. Each part knows how
//! long a run of its pages can be: a search for several pages in a row looks only where it can find them.

use std::rc::Rc;

/// Pages of a part.
const PART_PAGES: usize = 4096;
const WORD_PAGES: usize = 64;

type Bits = [u64; PART_PAGES / WORD_PAGES];

#[derive(Clone, Debug, Default)]
struct Part {
    /// None where it has no page.
    bits: Option<Rc<Bits>>,
    pages: u16,
    /// No run within is longer. It may be too high: the search that was in vain lowers it.
    longest: u16,
    /// Pages of the runs at its two ends.
    head: u16,
    tail: u16,
}

/// A set of pages.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageSet {
    parts: Vec<Part>,
    pages: u64,
    /// Parts before this one have no page.
    first: usize,
}

/// The places in a part of those pages of `start..start + len` that lie in it, for each part.
fn by_part(start: u64, len: u64) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> {
    let (mut at, end) = (start, start + len);
    std::iter::from_fn(move || {
        let (number, from) = ((at / PART_PAGES as u64) as usize, (at % PART_PAGES as u64) as usize);
        let to = (from as u64 + (end - at)).min(PART_PAGES as u64) as usize;
        at += (to - from) as u64;
        (from < to).then_some((number, from..to))
    })
}

/// The words in which places of a part lie, each with the bits of these.
fn masks(places: std::ops::Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    let words = places.start / WORD_PAGES..places.end.div_ceil(WORD_PAGES);
    words.map(move |word| {
        let from = places.start.saturating_sub(word * WORD_PAGES);
        let to = (places.end - word * WORD_PAGES).min(WORD_PAGES);
        (word, (u64::MAX >> (WORD_PAGES - (to - from))) << from)
    })
}

/// Pages in a row from this place on.
fn run_from(bits: &Bits, place: usize) -> usize {
    let mut end = place;
    while end < PART_PAGES {
        let ones = (bits[end / WORD_PAGES] >> (end % WORD_PAGES)).trailing_ones() as usize;
        end += ones;
        if ones == 0 || !end.is_multiple_of(WORD_PAGES) {
            break;
        }
    }
    end - place
}

/// Pages in a row before this place.
fn run_before(bits: &Bits, place: usize) -> usize {
    let mut start = place;
    while start > 0 {
        let (word, below) = ((start - 1) / WORD_PAGES, (start - 1) % WORD_PAGES + 1);
        let ones = (bits[word] << (WORD_PAGES - below)).leading_ones() as usize;
        start -= ones;
        if ones < below {
            break;
        }
    }
    place - start
}

/// Where the first run of at least so many pages starts.
fn find(bits: &Bits, len: usize) -> Option<usize> {
    // Pages of the run that the word before ended with.
    let mut open = 0;
    for (number, word) in bits.iter().enumerate() {
        let start = number * WORD_PAGES;
        let head = word.trailing_ones() as usize;
        if open + head >= len {
            return Some(start - open);
        }
        if head == WORD_PAGES {
            open += WORD_PAGES;
            continue;
        }
        if len < WORD_PAGES {
            let starts = starts_of(*word, len);
            if starts != 0 {
                return Some(start + starts.trailing_zeros() as usize);
            }
        }
        open = word.leading_ones() as usize;
    }
    None
}

/// The pages of a word with which a run of so many begins: of less than a word.
fn starts_of(mut word: u64, len: usize) -> u64 {
    let mut known = 1;
    while known < len {
        let more = known.min(len - known);
        word &= word >> more;
        known += more;
    }
    word
}

impl Part {
    /// Adds the pages of some places; how many are new.
    fn insert(&mut self, places: std::ops::Range<usize>) -> usize {
        let bits = Rc::make_mut(self.bits.get_or_insert_with(|| Rc::new([0; PART_PAGES / WORD_PAGES])));
        let mut new = 0;
        for (word, mask) in masks(places.clone()) {
            new += (mask & !bits[word]).count_ones() as usize;
            bits[word] |= mask;
        }
        let run = run_before(bits, places.start) + run_from(bits, places.start);
        self.longest = self.longest.max(run as u16);
        self.pages += new as u16;
        self.measure_ends();
        new
    }

    /// Takes the pages of some places out; how many there were.
    fn remove(&mut self, places: std::ops::Range<usize>) -> usize {
        let Some(bits) = &mut self.bits else { return 0 };
        let (bits, mut gone) = (Rc::make_mut(bits), 0);
        for (word, mask) in masks(places) {
            gone += (mask & bits[word]).count_ones() as usize;
            bits[word] &= !mask;
        }
        self.pages -= gone as u16;
        if self.pages == 0 {
            *self = Self::default();
        } else {
            self.measure_ends();
        }
        gone
    }

    /// Adds the pages of another; how many are new.
    fn unite(&mut self, other: &Self) -> usize {
        let before = usize::from(self.pages);
        match (&mut self.bits, &other.bits) {
            (_, None) => return 0,
            (None, Some(_)) => *self = other.clone(),
            (Some(bits), Some(others)) => {
                let bits = Rc::make_mut(bits);
                bits.iter_mut().zip(others.iter()).for_each(|(word, other)| *word |= other);
                self.pages = bits.iter().map(|word| word.count_ones() as u16).sum();
                self.longest = self.pages;
                self.measure_ends();
            }
        }
        usize::from(self.pages) - before
    }

    fn measure_ends(&mut self) {
        if let Some(bits) = &self.bits {
            (self.head, self.tail) = (run_from(bits, 0) as u16, run_before(bits, PART_PAGES) as u16);
        }
    }
}

impl PageSet {
    /// How many pages it has.
    pub(crate) fn len(&self) -> u64 {
        self.pages
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pages == 0
    }

    /// Adds a run of pages.
    pub(crate) fn insert(&mut self, start: u64, len: u64) {
        for (number, places) in by_part(start, len) {
            if self.parts.len() <= number {
                self.parts.resize(number + 1, Part::default());
            }
            self.pages += self.parts[number].insert(places) as u64;
            self.first = self.first.min(number);
        }
    }

    /// Takes a run of pages out, as far as they are there.
    pub(crate) fn remove(&mut self, start: u64, len: u64) {
        for (number, places) in by_part(start, len) {
            if let Some(part) = self.parts.get_mut(number) {
                self.pages -= part.remove(places) as u64;
            }
        }
    }

    /// Takes so many pages in a row, the first that there are; where they start.
    pub(crate) fn take(&mut self, len: u64) -> Option<u64> {
        let start = self.find(len)?;
        self.remove(start, len);
        Some(start)
    }

    fn find(&mut self, len: u64) -> Option<u64> {
        while self.parts.get(self.first).is_some_and(|part| part.pages == 0) {
            self.first += 1;
        }
        // Pages of the run that the part before ended with.
        let mut open = 0;
        for (number, part) in self.parts.iter_mut().enumerate().skip(self.first) {
            let start = (number * PART_PAGES) as u64;
            if open + u64::from(part.head) >= len {
                return Some(start - open);
            }
            if u64::from(part.longest) >= len
                && let Some(bits) = &part.bits
            {
                if let Some(place) = find(bits, len as usize) {
                    return Some(start + place as u64);
                }
                part.longest = len as u16 - 1;
            }
            open = if usize::from(part.head) == PART_PAGES { open + PART_PAGES as u64 } else { part.tail.into() };
        }
        None
    }

    /// Adds the pages of another set.
    pub(crate) fn unite(&mut self, other: &Self) {
        if self.parts.len() < other.parts.len() {
            self.parts.resize(other.parts.len(), Part::default());
        }
        for (part, other) in self.parts.iter_mut().zip(&other.parts) {
            self.pages += part.unite(other) as u64;
        }
        self.first = self.first.min(other.first);
    }

    /// How many runs there are.
    pub(crate) fn run_count(&self) -> usize {
        let (mut count, mut before) = (0, 0);
        for part in &self.parts {
            let Some(bits) = &part.bits else {
                before = 0;
                continue;
            };
            for word in bits.iter() {
                count += (word & !(word << 1 | before)).count_ones() as usize;
                before = word >> (WORD_PAGES - 1);
            }
        }
        count
    }

    /// The first run at this page or behind it, and its length.
    pub(crate) fn next_run(&self, page: u64) -> Option<(u64, u64)> {
        let (number, place) = ((page / PART_PAGES as u64) as usize, (page % PART_PAGES as u64) as usize);
        let (mut number, start) = self.next_page(number, place)?;
        let (first, mut len) = ((number * PART_PAGES + start) as u64, 0);
        let mut start = start;
        while let Some(bits) = self.parts.get(number).and_then(|part| part.bits.as_ref()) {
            let run = run_from(bits, start);
            len += run as u64;
            if start + run < PART_PAGES {
                break;
            }
            (number, start) = (number + 1, 0);
        }
        Some((first, len))
    }

    /// The first page at a place of a part or behind it: its part, and its place there.
    fn next_page(&self, number: usize, place: usize) -> Option<(usize, usize)> {
        let mut from = place;
        for (number, part) in self.parts.iter().enumerate().skip(number) {
            if let Some(bits) = &part.bits {
                let first = bits[from / WORD_PAGES] & (u64::MAX << (from % WORD_PAGES));
                let others = bits.iter().enumerate().skip(from / WORD_PAGES + 1).map(|(at, word)| (at, *word));
                let mut words = std::iter::once((from / WORD_PAGES, first)).chain(others);
                if let Some((at, word)) = words.find(|(_, word)| *word != 0) {
                    return Some((number, at * WORD_PAGES + word.trailing_zeros() as usize));
                }
            }
            from = 0;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Change {
        Insert(u64, u64),
        Remove(u64, u64),
        Take(u64),
        /// Of both sets, which then are the same.
        Unite,
        Swap,
    }

    fn run() -> impl Strategy<Value = (u64, u64)> {
        // Around the ends of words and of parts, too.
        let start = prop_oneof![
            0u64..20_000,
            (1u64..5).prop_map(|part| part * 4096 - 3),
            (1u64..300).prop_map(|word| word * 64)
        ];
        (start, prop_oneof![8 => 1u64..4, 4 => 1u64..200, 1 => 4000u64..9000])
    }

    fn change() -> impl Strategy<Value = Change> {
        prop_oneof![
            6 => run().prop_map(|(start, len)| Change::Insert(start, len)),
            4 => run().prop_map(|(start, len)| Change::Remove(start, len)),
            6 => prop_oneof![Just(1), 1u64..5, 1u64..100, 60u64..70, 4000u64..9000].prop_map(Change::Take),
            1 => Just(Change::Unite),
            1 => Just(Change::Swap),
        ]
    }

    fn runs(pages: &BTreeSet<u64>) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for page in pages {
            match runs.last_mut() {
                Some((start, len)) if *start + *len == *page => *len += 1,
                _ => runs.push((*page, 1)),
            }
        }
        runs
    }

    fn check(set: &PageSet, pages: &BTreeSet<u64>) {
        let (runs, mut found, mut at) = (runs(pages), Vec::new(), 0);
        while let Some((start, len)) = set.next_run(at) {
            found.push((start, len));
            at = start + len;
        }
        assert_eq!((found.len(), set.len(), set.is_empty()), (set.run_count(), pages.len() as u64, pages.is_empty()));
        assert_eq!(found, runs);
        for (start, len) in runs.into_iter().take(20) {
            assert_eq!(set.next_run(start + len / 2), Some((start + len / 2, len - len / 2)));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        /// Whatever is done to it, it has the pages that a plain set has, and gives the first run that is long enough.
        #[test]
        fn it_is_a_set_of_pages(changes in proptest::collection::vec(change(), 1..80)) {
            let (mut set, mut pages) = (PageSet::default(), BTreeSet::new());
            let (mut other, mut other_pages) = (set.clone(), pages.clone());
            for change in changes {
                match change {
                    Change::Insert(start, len) => {
                        set.insert(start, len);
                        pages.extend(start..start + len);
                    }
                    Change::Remove(start, len) => {
                        set.remove(start, len);
                        pages.retain(|page| !(start..start + len).contains(page));
                    }
                    Change::Take(len) => {
                        let first = runs(&pages).into_iter().find(|(_, run)| *run >= len).map(|(start, _)| start);
                        prop_assert_eq!(set.take(len), first);
                        if let Some(start) = first {
                            pages.retain(|page| !(start..start + len).contains(page));
                        }
                    }
                    Change::Unite => {
                        set.unite(&other);
                        pages.extend(&other_pages);
                        (other, other_pages) = (set.clone(), pages.clone());
                    }
                    Change::Swap => {
                        std::mem::swap(&mut set, &mut other);
                        std::mem::swap(&mut pages, &mut other_pages);
                    }
                }
                check(&set, &pages);
            }
            check(&other, &other_pages);
        }
    }

    /// Every second page of a gigabyte.
    fn scattered() -> PageSet {
        let mut set = PageSet::default();
        (1..131_072).for_each(|page| set.insert(page * 2, 1));
        set
    }

    /// A transaction once copied the whole list of free pages, whatever it took of it.
    #[test]
    fn a_copy_shares_what_is_not_changed() {
        let set = scattered();
        let mut copy = set.clone();
        for _ in 0..100 {
            copy.take(1);
        }
        let is_own = |(a, b): &(&Part, &Part)| match (&a.bits, &b.bits) {
            (Some(a), Some(b)) => !Rc::ptr_eq(a, b),
            _ => true,
        };
        assert_eq!(set.parts.len(), 64);
        assert_eq!(set.parts.iter().zip(&copy.parts).filter(is_own).count(), 1);
        assert_eq!((set.len(), copy.len()), (131_071, 130_971));
    }

    /// Each value of several pages once passed over all free pages that have no free neighbour.
    #[test]
    fn a_search_for_several_pages_passes_over_single_ones() {
        let mut set = scattered();
        let may_have = |set: &PageSet| set.parts.iter().filter(|part| part.longest >= 2).count();
        assert_eq!(may_have(&set), 0);
        set.insert(200_001, 1);
        assert_eq!((may_have(&set), set.take(2), set.take(2)), (1, Some(200_000), None));
        // What one set has between the pages of another is not known at once, but after a search.
        set.unite(&set.clone());
        assert_eq!((set.take(2), may_have(&set)), (None, 0));
    }
}
