//! Decides which values begin with what was typed, and which values of an ordered walk cannot.

use crate::facets::folding::{Folding, plain_bytes};
use crate::settings::{Settings, covers_subtree};
use crate::text::dictionary::TypoAutomaton;
use crate::text::in_order::{self, AFTER_PLAIN, InOrder, common_prefix};

/// What is looked for.
pub(super) enum Wanted {
    All,
    Exactly(String),
    Prefix(String),
    Typos(TypoAutomaton),
}

impl Wanted {
    /// What a folded query looks for among the values of a field.
    pub fn new(query: Option<&str>, field: &str, settings: &Settings) -> Self {
        let Some(query) = query else { return Self::All };
        let tolerance = &settings.typo_tolerance;
        if tolerance.disable_on_words.contains(query) {
            return Self::Exactly(query.to_owned());
        }
        let sizes = tolerance.min_word_size_for_typos;
        let is_off =
            !tolerance.enabled || tolerance.disable_on_attributes.iter().any(|name| covers_subtree(name, field));
        match query.len() {
            _ if is_off => Self::Prefix(query.to_owned()),
            bytes if bytes < usize::from(sizes.one_typo) => Self::Prefix(query.to_owned()),
            bytes if bytes < usize::from(sizes.two_typos) => Self::Typos(TypoAutomaton::new(query, 1, true)),
            _ => Self::Typos(TypoAutomaton::new(query, 2, true)),
        }
    }

    /// Whether a folded value is looked for.
    pub fn takes(&self, folded: &str) -> bool {
        match self {
            Self::All => true,
            Self::Exactly(query) => folded == query.as_str(),
            Self::Prefix(query) => folded.starts_with(query),
            Self::Typos(automaton) => automaton.distance(folded).is_some(),
        }
    }

    /// What decides about values in rising order; `None`: all are looked for.
    fn in_order(&self) -> Option<Box<dyn InOrder + '_>> {
        Some(match self {
            Self::All => return None,
            Self::Exactly(query) => in_order::equal(query),
            Self::Prefix(query) => in_order::beginning(query),
            Self::Typos(automaton) => in_order::typos(automaton),
        })
    }
}

/// Decides about values in rising order.
pub(super) struct Matcher<'w> {
    wanted: &'w Wanted,
    in_order: Option<Box<dyn InOrder + 'w>>,
    pub folding: Folding,
    keeps_plain: bool,
}

impl<'w> Matcher<'w> {
    /// For the values of a field.
    pub fn new(wanted: &'w Wanted, field: &str, settings: &Settings) -> Self {
        let folding = Folding::of_values(field, settings);
        Self { wanted, in_order: wanted.in_order(), keeps_plain: folding.keeps_plain_beginnings(), folding }
    }

    /// Whether a value is looked for.
    pub fn takes(&self, value: &str) -> bool {
        self.wanted.takes(&self.folding.fold(value))
    }

    /// Whether a value that is greater than those before is looked for, and folded not greater than `last`. Where neither it nor any other
    /// below some later text is, puts this text into `next`.
    pub fn takes_next(&mut self, value: &str, last: Option<&str>, next: &mut Vec<u8>) -> bool {
        let Some(in_order) = &mut self.in_order else { return true };
        if !self.keeps_plain {
            return self.takes(value);
        }
        let plain = &value.as_bytes()[..plain_bytes(value)];
        if let Err((shared, byte)) = in_order.read(plain) {
            next.extend_from_slice(&plain[..shared]);
            next.push(byte);
        }
        if let Some(shared) = last.and_then(|last| above(plain, last.as_bytes())) {
            // Whatever is plain from there on is above the last, too; other characters may be folded to lesser ones.
            let other = [&plain[..shared], &[AFTER_PLAIN]].concat();
            if other > *next {
                *next = other;
            }
        }
        if !next.is_empty() {
            return false;
        }
        if plain.len() == value.len() { in_order.takes() } else { self.takes(value) }
    }
}

/// Where a text is above another: how much they share, if what follows there is greater.
fn above(text: &[u8], other: &[u8]) -> Option<usize> {
    let shared = common_prefix(text, other);
    let byte = text.get(shared)?;
    other.get(shared).is_none_or(|other| byte > other).then_some(shared)
}
