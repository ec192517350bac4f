//! The in-memory term dictionary of a partition, for exact, prefix and fuzzy lookup in byte order.
//!
//! It is a map of all terms plus a short sorted list of terms added or removed since; the map is rebuilt when that
//! list has grown long. Both are shared between epochs, so publishing a small change costs little. Document frequencies are not
//! stored here but read from the partition's file.

use std::rc::Rc;

use super::banded::BandedAutomaton;
use super::bit_parallel::{BitAutomaton, BitSteps};
use super::char_automaton::{ByBytes, CharAutomaton};
use super::term_map::{ByteAutomaton, TermMap, TermMapBuilder};

/// So many changed terms are listed before the map is built anew, at least; see [`Dictionary::takes`].
const OVERLAY_MIN: usize = 2048;
/// Largest edit distance that is looked up.
pub const TYPOS_MAX: u8 = 2;

/// How a term occurs in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TermKind {
    /// At least one occurrence may be reached by prefix and with typos.
    Tolerant,
    /// Only found as written: every occurrence is under `disableOnAttributes` or `disableOnNumbers`.
    ExactOnly,
}

/// A term that appeared, changed kind, or (`None`) disappeared.
pub type TermChange = (Rc<str>, Option<TermKind>);

/// The terms of one partition at one epoch. Cheap to clone.
#[derive(Clone, Default)]
pub struct Dictionary {
    base: Rc<TermMap>,
    overlay: Rc<Vec<TermChange>>,
}

impl Dictionary {
    /// The kind of a term; `None` when no document holds it.
    pub fn kind(&self, term: &str) -> Option<TermKind> {
        self.overlay_kind(term.as_bytes()).unwrap_or_else(|| self.base.kind(term.as_bytes()))
    }

    /// Where a word may be cut so that its first part is a term: byte offsets, rising.
    pub fn cuts(&self, word: &str) -> Vec<usize> {
        let mut cuts = Vec::new();
        self.base.for_each_prefix(word.as_bytes(), |at, _| cuts.push(at));
        if !self.overlay.is_empty() {
            let is_of_base = |at: usize| cuts.binary_search(&at).is_ok();
            let kind = |at: usize| self.overlay_kind(&word.as_bytes()[..at]);
            cuts =
                (1..word.len()).filter(|at| kind(*at).map_or_else(|| is_of_base(*at), |kind| kind.is_some())).collect();
        }
        cuts.retain(|at| (1..word.len()).contains(at) && word.is_char_boundary(*at));
        cuts
    }

    /// What the list of changes says about a term, if it is among them.
    fn overlay_kind(&self, term: &[u8]) -> Option<Option<TermKind>> {
        let at = self.overlay.binary_search_by(|(other, _)| other.as_bytes().cmp(term)).ok()?;
        Some(self.overlay[at].1)
    }

    /// Whether some document holds the term.
    pub fn contains(&self, term: &str) -> bool {
        self.kind(term).is_some()
    }

    /// Calls `each` with the terms that begin with `prefix`, in byte order, until it returns false.
    pub fn with_prefix(&self, prefix: &str, mut each: impl FnMut(&str) -> bool) {
        self.all(prefix, |term, _| each(term));
    }

    fn all(&self, prefix: &str, mut each: impl FnMut(&str, TermKind) -> bool) {
        self.merged(&BeginsWith(prefix.as_bytes()), (prefix, None), |term, kind, _| each(term, kind));
    }

    /// The same for the tolerant terms within the automaton's reach, from `from` to before `until`.
    fn part_with_typos(
        &self,
        automaton: &TypoAutomaton,
        from: &str,
        until: Option<&str>,
        mut each: impl FnMut(&str, u8) -> bool,
    ) {
        let take = |term: &str, kind, distance| kind != TermKind::Tolerant || each(term, distance);
        let bounds = (from, until);
        match automaton {
            TypoAutomaton::Bits(bits) => match bits.typos() {
                0 => self.merged(&ByBytes(BitSteps::<0>(bits)), bounds, take),
                1 => self.merged(&ByBytes(BitSteps::<1>(bits)), bounds, take),
                _ => self.merged(&ByBytes(BitSteps::<2>(bits)), bounds, take),
            },
            TypoAutomaton::Banded(banded) => self.merged(&ByBytes(banded), bounds, take),
        }
    }

    /// Calls `each` with the tolerant terms within `typos` (1 or 2) edits of `word` (or with a prefix that is) and their
    /// distances, in byte order, until it returns false. Of terms with another first character only those within one edit
    /// less: that is all that is ever asked for, and leaves most of the dictionary unseen.
    pub fn similar(&self, word: &str, typos: u8, prefix: bool, mut each: impl FnMut(&str, u8) -> bool) {
        let Some(first) = word.chars().next() else { return };
        let near = TypoAutomaton::new(word, typos, prefix);
        // With no edit left nothing with another first character is reached.
        let far = (typos > 1).then(|| near.within(typos - 1));
        let (start, end) = (first.to_string(), char::from_u32(u32::from(first) + 1).map(String::from));
        let mut goes_on = true;
        let mut part = |automaton: &TypoAutomaton, from: &str, until: Option<&str>| {
            if goes_on {
                self.part_with_typos(automaton, from, until, |term, distance| {
                    goes_on = each(term, distance);
                    goes_on
                });
            }
        };
        if let Some(far) = &far {
            part(far, "", Some(&start));
        }
        part(&near, &start, end.as_deref());
        if let (Some(far), Some(end)) = (&far, end) {
            part(far, &end, None);
        }
    }

    /// Calls `each` with every term and its kind, in byte order, until it returns false.
    pub fn for_each(&self, each: impl FnMut(&str, TermKind) -> bool) {
        self.all("", each);
    }

    /// The map's terms that the automaton takes, from the first bound to before the second, merged with the overlay's: each with its
    /// kind and its distance.
    fn merged<A: ByteAutomaton>(
        &self,
        automaton: &A,
        (from, until): (&str, Option<&str>),
        mut each: impl FnMut(&str, TermKind, u8) -> bool,
    ) {
        let distance = |term: &str| {
            let read = term.bytes().try_fold(automaton.start(), |state, byte| automaton.step(&state, byte));
            read.and_then(|state| automaton.taken(&state))
        };
        let first = self.overlay.partition_point(|(term, _)| term.as_ref() < from);
        let end =
            until.map_or(self.overlay.len(), |until| self.overlay.partition_point(|(term, _)| term.as_ref() < until));
        let overlay = &self.overlay[first..end.max(first)];
        let mut added = overlay.iter().filter_map(|(term, kind)| Some((&**term, *kind, distance(term)?))).peekable();
        let mut goes_on = true;
        self.base.walk(automaton, (from.as_bytes(), until.map(str::as_bytes)), &mut |bytes, kind, distance| {
            // Terms are put in as text and come out as they went in.
            let Ok(term) = std::str::from_utf8(bytes) else { return true };
            while let Some((other, kind, distance)) = added.next_if(|(other, ..)| *other < term) {
                goes_on = kind.is_none_or(|kind| each(other, kind, distance));
                if !goes_on {
                    return false;
                }
            }
            let kind = added.next_if(|(other, ..)| *other == term).map_or(Some(kind), |(_, kind, _)| kind);
            goes_on = kind.is_none_or(|kind| each(term, kind, distance));
            goes_on
        });
        if goes_on {
            let _ = added.all(|(other, kind, distance)| kind.is_none_or(|kind| each(other, kind, distance)));
        }
    }

    /// The dictionary after `changes`, which must rise by term.
    pub fn changed(&self, changes: &[TermChange]) -> Self {
        if changes.is_empty() {
            return self.clone();
        }
        let mut merged = Vec::with_capacity(self.overlay.len() + changes.len());
        let mut old = self.overlay.iter().peekable();
        for change in changes {
            while let Some(earlier) = old.next_if(|(term, _)| *term < change.0) {
                merged.push(earlier.clone());
            }
            old.next_if(|(term, _)| *term == change.0);
            merged.push(change.clone());
        }
        merged.extend(old.cloned());
        Self { base: self.base.clone(), overlay: Rc::new(merged) }
    }

    /// Whether so many more changes may be listed; otherwise the map should be built anew (see [`DictionaryBuilder`]).
    pub fn takes(&self, changes: usize) -> bool {
        self.overlay.len() + changes <= OVERLAY_MIN.max(self.base.len() / 32)
    }

    /// The first `count` terms that come after `after`, in byte order, for building a map in steps; fewer only at the end.
    pub fn terms_after(&self, after: Option<&str>, count: usize) -> Vec<(Rc<str>, TermKind)> {
        let mut found: Vec<(Rc<str>, TermKind)> = Vec::with_capacity(count);
        if count > 0 {
            self.merged(&BeginsWith(b""), (after.unwrap_or_default(), None), |term, kind, _| {
                if after.is_none_or(|after| term > after) {
                    found.push((term.into(), kind));
                }
                found.len() < count
            });
        }
        found
    }
}

/// Takes all terms that begin with a text.
pub(super) struct BeginsWith<'t>(pub &'t [u8]);

impl ByteAutomaton for BeginsWith<'_> {
    /// How much of the text was read.
    type State = usize;

    fn start(&self) -> usize {
        0
    }

    fn step(&self, read: &usize, byte: u8) -> Option<usize> {
        match self.0.get(*read) {
            Some(wanted) => (byte == *wanted).then_some(read + 1),
            None => Some(*read),
        }
    }

    fn taken(&self, read: &usize) -> Option<u8> {
        (*read == self.0.len()).then_some(0)
    }
}

/// Builds a dictionary from all terms in byte order.
#[derive(Default)]
pub struct DictionaryBuilder {
    map: TermMapBuilder,
}

impl DictionaryBuilder {
    /// Adds the next term. One that is not after the last is passed over.
    pub fn push(&mut self, term: &str, kind: TermKind) {
        // Callers read terms from sorted trees.
        let inserted = self.map.push(term.as_bytes(), kind);
        debug_assert!(inserted, "terms come in byte order");
    }

    /// The dictionary of the terms added.
    pub fn finish(self) -> Dictionary {
        Dictionary { base: Rc::new(self.map.finish()), overlay: Rc::default() }
    }
}

/// The words within some edits of a word, or with such a prefix. An edit is an insertion, a deletion, a substitution, or a swap
/// of two neighbours.
pub enum TypoAutomaton {
    /// For words of usual lengths.
    Bits(BitAutomaton),
    /// For long ones.
    Banded(BandedAutomaton),
}

impl TypoAutomaton {
    /// The automaton of all words within `typos` (at most [`TYPOS_MAX`]) edits of `word`, or with such a prefix.
    pub fn new(word: &str, typos: u8, prefix: bool) -> Self {
        let banded = || Self::Banded(BandedAutomaton::new(word, typos.min(TYPOS_MAX), prefix));
        BitAutomaton::new(word, typos.min(TYPOS_MAX), prefix).map_or_else(banded, Self::Bits)
    }

    /// The same for fewer edits.
    fn within(&self, typos: u8) -> Self {
        match self {
            Self::Bits(bits) => Self::Bits(bits.within(typos)),
            Self::Banded(banded) => Self::Banded(banded.within(typos)),
        }
    }

    /// The distance of a term, when it is within reach.
    pub fn distance(&self, term: &str) -> Option<u8> {
        match self {
            Self::Bits(bits) => bits.distance(term),
            Self::Banded(banded) => banded.distance(term),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::text::textbook::distance;

    type Model = BTreeMap<String, bool>;

    fn kind(exact: bool) -> TermKind {
        if exact { TermKind::ExactOnly } else { TermKind::Tolerant }
    }

    fn build(model: &Model) -> Dictionary {
        let mut builder = DictionaryBuilder::default();
        model.iter().for_each(|(term, exact)| builder.push(term, kind(*exact)));
        builder.finish()
    }

    fn prefix(dictionary: &Dictionary, prefix: &str) -> Vec<String> {
        let mut found = Vec::new();
        dictionary.with_prefix(prefix, |term| {
            found.push(term.to_owned());
            true
        });
        found
    }

    proptest! {
        #[test]
        fn lookups_equal_those_of_a_sorted_map(
            mut model in prop::collection::btree_map("[abç]{1,5}", any::<bool>(), 0..40),
            changes in prop::collection::vec(prop::collection::btree_map("[abç]{1,5}", any::<Option<bool>>(), 0..20), 0..4),
            word in "[abç]{1,4}",
            as_prefix: bool,
        ) {
            let mut dictionary = build(&model);
            for round in changes {
                let list: Vec<TermChange> = round.iter().map(|(t, k)| (t.as_str().into(), k.map(kind))).collect();
                dictionary = dictionary.changed(&list);
                for (term, exact) in round {
                    match exact {
                        Some(exact) => model.insert(term, exact),
                        None => model.remove(&term),
                    };
                }
            }
            let all = dictionary.terms_after(None, 1000);
            let expected: Vec<(Rc<str>, TermKind)> = model.iter().map(|(t, e)| (t.as_str().into(), kind(*e))).collect();
            prop_assert_eq!(&all, &expected);
            let mut steps = dictionary.terms_after(None, 3);
            while let more @ [_, ..] = dictionary.terms_after(steps.last().map(|(t, _)| t.as_ref()), 3).as_slice() {
                steps.extend_from_slice(more);
            }
            prop_assert_eq!(&steps, &expected);
            let tolerant = || model.iter().filter(|(_, exact)| !**exact).map(|(term, _)| term);
            let naive: Vec<String> = model.keys().filter(|term| term.starts_with(&word)).cloned().collect();
            prop_assert_eq!(prefix(&dictionary, &word), naive);
            for typos in 0..=TYPOS_MAX {
                let mut found = Vec::new();
                dictionary.similar(&word, typos, as_prefix, |term, distance| {
                    found.push((term.to_owned(), usize::from(distance)));
                    true
                });
                let other = |term: &str| usize::from(term.chars().next() != word.chars().next());
                let naive = |term: &String| {
                    let edits = distance(&word, as_prefix, typos.into(), term)?;
                    (edits + other(term) <= usize::from(typos)).then(|| (term.clone(), edits))
                };
                prop_assert_eq!(found, tolerant().filter_map(naive).collect::<Vec<_>>());
            }
            for (term, exact) in &model {
                prop_assert_eq!(dictionary.kind(term), Some(kind(*exact)));
            }
            let cuts = word.char_indices().map(|(at, _)| at).filter(|at| *at > 0 && model.contains_key(&word[..*at]));
            prop_assert_eq!(dictionary.cuts(&word), cuts.collect::<Vec<_>>());
        }
    }

    #[test]
    fn lookups_stop_when_told() {
        let model: Model = ["a", "ab", "abc", "b"].map(|term| (term.to_owned(), false)).into();
        let mut seen = 0;
        build(&model).with_prefix("a", |_| {
            seen += 1;
            seen < 2
        });
        assert_eq!(seen, 2);
    }
}
