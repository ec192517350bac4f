//! The interface of a partition's inverted index that ranking uses.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use roaring::RoaringBitmap;

use super::cache::QueryCache;
use super::prefix::PrefixRange;
use crate::fields::FieldsMap;
use crate::ids::FieldId;
use crate::rank::champions::ChampionLists;
use crate::settings::{Settings, covers_subtree, matches_pattern};

/// Documents whose occurrences [`TermSource::for_each_place`] holds at a time.
const PLACES_CHUNK: usize = 4096;

/// How far a similar word may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Edits: 1 or 2.
    pub distance_max: u8,
    /// Whether what follows the similar part counts for nothing.
    pub prefix: bool,
}

/// The inverted index of one partition at one epoch. Documents are local numbers.
pub trait TermSource {
    /// All documents of the partition.
    fn documents(&self) -> &Rc<RoaringBitmap>;

    /// The documents that have `term` in any searchable field; empty when none has.
    fn term_docs(&self, term: &str) -> Rc<RoaringBitmap>;

    /// Appends the occurrences of `term` in the documents `docs` (rising), packed as document, field, position from the high
    /// bits down (32, 16, 16); rising. Positions are unrounded.
    fn packed(&self, term: &str, docs: &[u32], out: &mut Vec<u64>);

    /// Calls `each` for the terms that begin with `prefix` (itself included), tolerant or not, in byte order, until it
    /// answers false.
    fn prefixed(&self, prefix: &str, each: &mut dyn FnMut(&str) -> bool);

    /// Calls `each(term, distance)` for the terms within `distance_max` (1 or 2) edits of `word`, in byte order, until it
    /// answers false. A swap of neighbours is one edit; for a prefix search the distance is that to the first prefix of the term to which
    /// no part of the word is nearer, or else to all of the term. Distance 0 may be reported. Only tolerant words ([`Self::is_tolerant`]); those with another first character may
    /// be left out at `distance_max` itself, since that character costs one edit more.
    fn similar(&self, word: &str, reach: Reach, fields: &FieldTable, each: &mut dyn FnMut(&str, u8) -> bool);

    /// Byte offsets, rising, at which a word may be cut in two so that its first part is a term; more where that is not known.
    fn cuts(&self, word: &str) -> Vec<usize> {
        word.char_indices().map(|(at, _)| at).skip(1).collect()
    }

    /// Calls `each` with occurrences of the words of a range, packed as by [`Self::packed`], in no particular order. Does a
    /// bounded piece of the work, from where `resume` says (empty: the beginning); answers where to go on, `None` at the end.
    fn prefix_occurrences(&self, range: &PrefixRange, _resume: Vec<u8>, each: &mut dyn FnMut(u64)) -> Option<Vec<u8>> {
        let mut words = Vec::new();
        self.prefixed(&range.prefix, &mut |word| {
            if range.has(word.as_bytes()) {
                words.push(word.to_owned());
            }
            true
        });
        let mut packed = Vec::new();
        for word in &words {
            let docs: Vec<u32> = self.term_docs(word).iter().collect();
            self.packed(word, &docs, &mut packed);
            packed.drain(..).for_each(&mut *each);
        }
        None
    }

    /// Calls `each(document, field)` for every occurrence of `term` in `docs`, rising. Reads a bounded number of documents at a
    /// time.
    fn for_each_place(&self, term: &str, docs: &RoaringBitmap, each: &mut dyn FnMut(u32, FieldId)) {
        let (mut left, mut chunk, mut packed) = (docs.iter(), Vec::new(), Vec::new());
        loop {
            chunk.clear();
            chunk.extend(left.by_ref().take(PLACES_CHUNK));
            if chunk.is_empty() {
                return;
            }
            packed.clear();
            self.packed(term, &chunk, &mut packed);
            packed.iter().for_each(|place| each((place >> 32) as u32, FieldId((place >> 16) as u16)));
        }
    }

    /// What this epoch remembers of earlier searches; `None` for a source that forgets.
    fn cache(&self) -> Option<&QueryCache> {
        None
    }

    /// The best documents of terms met before at this epoch; `None` for a source that forgets.
    fn champions(&self) -> Option<&ChampionLists> {
        None
    }

    /// Whether some occurrence of the term may be found through typos and prefixes.
    fn is_tolerant(&self, term: &str, fields: &FieldTable) -> bool {
        if fields.is_exact_word(term) {
            return false;
        }
        let docs = self.term_docs(term);
        if fields.tolerates_all() {
            return !docs.is_empty();
        }
        let mut found = false;
        self.for_each_place(term, &docs, &mut |_, field| found |= fields.is_tolerant(field));
        found
    }

    /// How often reading has failed so far. Who answers a question notes it at the start.
    fn fault_count(&self) -> u64 {
        0
    }

    /// What went wrong while reading since `count` failures were noted: a question during which less may have been read than
    /// there is must not be answered.
    fn fault_since(&self, _count: u64) -> Option<String> {
        None
    }

    /// How many indexed words the field of the document holds, where that is at most 30.
    fn word_count(&self, doc: u32, field: FieldId) -> Option<u8>;

    /// The same for many documents, fastest where their numbers rise.
    fn word_counts(&self) -> Box<WordCounts<'_>> {
        Box::new(|doc, field| self.word_count(doc, field))
    }
}

/// Gives what [`TermSource::word_count`] does.
pub type WordCounts<'s> = dyn FnMut(u32, FieldId) -> Option<u8> + 's;

/// Failures to read, which are counted and never taken away: of several searches that take turns each must notice those that came
/// while it ran, whoever met them.
#[derive(Default)]
pub struct Faults {
    count: Cell<u64>,
    last: RefCell<String>,
}

impl Faults {
    /// Adds one.
    pub fn note(&self, fault: String) {
        self.count.set(self.count.get() + 1);
        *self.last.borrow_mut() = fault;
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count.get()
    }

    /// The last one, if there were more than `count`.
    pub fn since(&self, count: u64) -> Option<String> {
        (self.count.get() > count).then(|| self.last.borrow().clone())
    }
}

/// What a search must know of each field, by its number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FieldTable {
    rows: Vec<FieldRow>,
    all_searched: bool,
    all_tolerant: bool,
    disable_on_numbers: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct FieldRow {
    weight: u16,
    searched: bool,
    tolerant: bool,
}

impl FieldTable {
    /// The table of an index for a search restricted to `search_on` (`None`: all searchable fields).
    pub fn new(fields: &FieldsMap, settings: &Settings, search_on: Option<&[String]>) -> Self {
        let search_on = search_on.filter(|names| !names.iter().any(|name| name == "*"));
        let rows: Vec<FieldRow> = fields
            .iter()
            .map(|(_, name)| {
                let weight = settings.searchable_weight(name);
                let named = search_on.is_none_or(|on| {
                    on.iter().any(|n| if n.contains('*') { matches_pattern(n, name) } else { n == name })
                });
                let exact = settings.typo_tolerance.disable_on_attributes.iter().any(|n| covers_subtree(n, name));
                FieldRow { weight: weight.unwrap_or(0), searched: weight.is_some() && named, tolerant: !exact }
            })
            .collect();
        Self {
            all_searched: search_on.is_none(),
            all_tolerant: settings.typo_tolerance.disable_on_attributes.is_empty(),
            disable_on_numbers: settings.typo_tolerance.disable_on_numbers,
            rows,
        }
    }

    /// The place of the field's name among the searchable attributes; 0 for fields newer than the table.
    pub fn weight(&self, field: FieldId) -> u16 {
        self.rows.get(usize::from(field.0)).map_or(0, |row| row.weight)
    }

    /// Whether this search looks into the field.
    pub fn is_searched(&self, field: FieldId) -> bool {
        self.all_searched || self.rows.get(usize::from(field.0)).is_some_and(|row| row.searched)
    }

    /// Whether words of the field may be found through typos and prefixes.
    pub fn is_tolerant(&self, field: FieldId) -> bool {
        self.all_tolerant || self.rows.get(usize::from(field.0)).is_none_or(|row| row.tolerant)
    }

    /// Whether every field is searched: then a term's documents need no look at positions.
    pub fn searches_all(&self) -> bool {
        self.all_searched
    }

    /// Whether words of every field are tolerant.
    pub fn tolerates_all(&self) -> bool {
        self.all_tolerant
    }

    /// The table of a search that looks into tolerant fields only; `None` where that is this one.
    pub fn tolerant(&self) -> Option<Self> {
        let narrow = |row: &FieldRow| FieldRow { searched: row.searched && row.tolerant, ..*row };
        let rows = || self.rows.iter().map(narrow).collect();
        (!self.all_tolerant).then(|| Self { rows: rows(), all_searched: false, ..self.clone() })
    }

    /// Whether a word is one that is only found as written, by its shape.
    pub fn is_exact_word(&self, word: &str) -> bool {
        self.disable_on_numbers && word.chars().all(|c| c.is_numeric() || c.is_ascii_punctuation())
    }

    /// Which fields are searched, for error checks of `attributesToSearchOn`.
    pub fn searched(&self) -> impl Iterator<Item = FieldId> {
        self.rows.iter().enumerate().filter(|(_, row)| row.searched).map(|(at, _)| FieldId(at as u16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A search that was answered once took the fault away from another that had met it and was not yet at its end.
    #[test]
    fn searches_that_take_turns_all_notice_a_fault() {
        let faults = Faults::default();
        let (one, other) = (faults.count(), faults.count());
        assert_eq!(faults.since(one), None);
        faults.note("page 3 is damaged".into());
        let later = faults.count();
        faults.note("page 4 is damaged".into());
        for count in [one, other, later] {
            assert_eq!(faults.since(count).as_deref(), Some("page 4 is damaged"));
        }
        assert_eq!(faults.since(faults.count()), None);
    }
}
