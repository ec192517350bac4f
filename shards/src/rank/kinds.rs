//! The kinds of documents in a bucket ([`Profile`]), told apart by their places under the next rule.

use std::ops::Range;
use std::rc::Rc;

use ahash::AHashMap;
use smallvec::SmallVec;
use storage_engine::vector::Pace;

use super::paths::Path;
use super::plan::{RankedDoc, SortValue};
use super::rules::Rule;
use super::score_facts::{Profile, ScoreFacts};
use crate::facets::normalise::number_bits;
use crate::runtime::pause_at;

/// Items that are looked at between two looks at whether others wait.
const ITEMS_PER_LOOK: usize = 256;

/// Where a document is under one rule.
pub enum Place {
    Cost(u32),
    Number(u64),
    Text(String),
    Missing,
}

/// The same, of a document at hand. Those of a bucket have equal ones.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Key<'a> {
    Cost(u32),
    Number(u64),
    Text(&'a str),
    Missing,
}

impl Place {
    /// Whether a document is there.
    pub fn is_of(&self, key: Key<'_>) -> bool {
        match (self, key) {
            (Self::Cost(a), Key::Cost(b)) => *a == b,
            (Self::Number(a), Key::Number(b)) => *a == b,
            (Self::Text(a), Key::Text(b)) => a == b,
            (Self::Missing, Key::Missing) => true,
            _ => false,
        }
    }
}

impl<'a> Key<'a> {
    /// The place under a rule, which `cost_at` rules with a cost are before.
    pub fn under(rule: Rule, cost_at: usize, costs: &[u32], sorts: &'a [SortValue]) -> Self {
        match rule {
            Rule::Sort(at) => Self::of(&sorts[usize::from(at)]),
            _ => Self::Cost(costs[cost_at]),
        }
    }

    /// Equal for values that compare as equal.
    fn of(value: &'a SortValue) -> Self {
        match value {
            SortValue::Number(number) => Self::Number(number_bits(*number)),
            SortValue::Point { distance, .. } => Self::Number(distance.to_bits()),
            SortValue::Text(text) => Self::Text(text),
            SortValue::Missing => Self::Missing,
        }
    }

    /// The place, to be kept.
    pub fn place(self) -> Place {
        match self {
            Self::Cost(cost) => Place::Cost(cost),
            Self::Number(bits) => Place::Number(bits),
            Self::Text(text) => Place::Text(text.to_owned()),
            Self::Missing => Place::Missing,
        }
    }
}

/// The kinds of a bucket.
#[derive(Default)]
pub struct Kinds<'a> {
    /// Those of this bucket are a part of these.
    profiles: Rc<Vec<&'a Profile>>,
    part: Range<usize>,
    /// Whether some of them were asked for.
    asked: bool,
    /// By place under the next rule, once that is asked for again and again.
    split: Option<Split<'a>>,
}

/// Kinds in the order of their places, and for each place where they are. Few parts, however many places: to be freed at once.
struct Split<'a> {
    profiles: Rc<Vec<&'a Profile>>,
    places: AHashMap<Key<'a>, usize>,
    /// Where those of each place begin, and at last where all end.
    begins: Vec<usize>,
}

impl<'a> Kinds<'a> {
    /// These.
    pub fn new(profiles: Vec<&'a Profile>) -> Self {
        Self::part(Rc::new(profiles), None)
    }

    fn part(profiles: Rc<Vec<&'a Profile>>, part: Option<Range<usize>>) -> Self {
        Self { part: part.unwrap_or(0..profiles.len()), profiles, asked: false, split: None }
    }

    /// All of them.
    pub fn profiles(&self) -> &[&'a Profile] {
        &self.profiles[self.part.clone()]
    }

    /// Those of one place under the rule that comes next, which is always the same; `cost_at` rules with a cost are before it.
    pub async fn of(&mut self, rule: Rule, cost_at: usize, key: Key<'_>, pace: &dyn Pace) -> Self {
        if !self.asked {
            self.asked = true;
            return self.found(rule, cost_at, key, pace).await;
        }
        if self.split.is_none() {
            self.split = Some(Split::new(self.profiles(), (rule, cost_at), pace).await);
        }
        self.split.as_ref().map_or_else(Self::default, |split| split.of(key))
    }

    /// Looks at each; where all are of the place they are not copied.
    async fn found(&self, rule: Rule, cost_at: usize, key: Key<'_>, pace: &dyn Pace) -> Self {
        let mut some: Option<Vec<&'a Profile>> = None;
        let profiles = self.profiles();
        for (at, profile) in profiles.iter().enumerate() {
            match (&mut some, Key::under(rule, cost_at, &profile.costs, &profile.sorts) == key) {
                (Some(some), true) => some.push(profile),
                (None, false) => some = Some(profiles[..at].to_vec()),
                (Some(_), false) | (None, true) => {}
            }
            pause_at(at, ITEMS_PER_LOOK, pace).await;
        }
        some.map_or_else(|| Self::part(self.profiles.clone(), Some(self.part.clone())), Self::new)
    }
}

impl<'a> Split<'a> {
    async fn new(profiles: &[&'a Profile], (rule, cost_at): (Rule, usize), pace: &dyn Pace) -> Self {
        let mut places: AHashMap<Key<'a>, usize> = AHashMap::new();
        let mut place_of = Vec::with_capacity(profiles.len());
        // First how many there are of each.
        let mut begins: Vec<usize> = Vec::new();
        for (at, profile) in profiles.iter().enumerate() {
            let profile: &'a Profile = profile;
            let place =
                *places.entry(Key::under(rule, cost_at, &profile.costs, &profile.sorts)).or_insert(begins.len());
            if place == begins.len() {
                begins.push(0);
            }
            begins[place] += 1;
            place_of.push(place);
            pause_at(at, ITEMS_PER_LOOK, pace).await;
        }
        let mut end = 0;
        for begin in &mut begins {
            end += std::mem::replace(begin, end);
        }
        let (mut next, mut ordered) = (begins.clone(), profiles.to_vec());
        begins.push(end);
        for (at, (profile, place)) in profiles.iter().zip(place_of).enumerate() {
            ordered[next[place]] = profile;
            next[place] += 1;
            pause_at(at, ITEMS_PER_LOOK, pace).await;
        }
        Self { profiles: Rc::new(ordered), places, begins }
    }

    fn of(&self, key: Key<'_>) -> Kinds<'a> {
        let places: &AHashMap<Key<'_>, usize> = &self.places;
        let part = places.get(&key).map_or(0..0, |place| self.begins[*place]..self.begins[*place + 1]);
        Kinds::part(self.profiles.clone(), Some(part))
    }
}

/// A bucket of the rule `words`: the places under the sort rules before it, and the terms it lacks.
type WordsKey<'a> = (Vec<Key<'a>>, u32);

/// The paths that the buckets of the rule `words` use, by bucket.
#[derive(Default)]
pub struct UsedByWords<'a>(Option<AHashMap<WordsKey<'a>, SmallVec<[&'a Path; 2]>>>);

impl<'a> UsedByWords<'a> {
    /// Those of the bucket of a document. The facts are always the same.
    pub async fn of(&mut self, facts: &'a ScoreFacts, hit: &RankedDoc, pace: &dyn Pace) -> Vec<Path> {
        if self.0.is_none() {
            let mut paths: AHashMap<WordsKey<'a>, SmallVec<[&'a Path; 2]>> = AHashMap::new();
            for (at, (sorts, words, path)) in facts.used.iter().enumerate() {
                paths.entry((sorts.iter().map(Key::of).collect(), *words)).or_default().push(path);
                pause_at(at, ITEMS_PER_LOOK, pace).await;
            }
            self.0 = Some(paths);
        }
        // As many values as all of them tell.
        let sorts = facts.used.first().map_or(0, |(sorts, ..)| sorts.len());
        let bucket: WordsKey<'_> = (hit.sorts.iter().take(sorts).map(Key::of).collect(), hit.costs[0]);
        let paths: Option<&AHashMap<WordsKey<'_>, SmallVec<[&'a Path; 2]>>> = self.0.as_ref();
        let paths = paths.and_then(|paths| paths.get(&bucket)).into_iter().flatten();
        let mut paths: Vec<Path> = paths.map(|path| (*path).clone()).collect();
        paths.sort_unstable();
        paths.dedup();
        paths
    }
}
