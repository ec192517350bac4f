//! A sorted map of terms that is walked quickly: a nearly minimal acyclic automaton (DAWG), built from terms in byte order.
//!
//! Equal ends of terms are stored once (J. Daciuk et al., "Incremental construction of minimal acyclic finite-state automata",
//! Computational Linguistics 26(1), 2000), as far as a table of bounded size finds them. A node's labels lie side by side, and what is
//! known of each child lies with its parent: a walk that rules out most children sees their labels alone.
//!
//! A node is a record of bytes:
//!
//! ```text
//! count n, n labels (rising), n heads, n offsets of 4 bytes      1 <= n <= 250
//! TAIL or TAIL_EXACT, length, bytes                              one way on, without branches, to the end of one term
//! ```
//!
//! An edge's head holds two flags, whether a term ends at the child and whether it is found only as written, and the upper six bits of
//! the offset of the child's record; the offset is 0 where the child has no ways on.

use smallvec::SmallVec;

use super::dictionary::TermKind;

/// In the place of a count: a tail to a tolerant term.
const TAIL: u8 = 0xfe;
/// The same to a term that is only found as written.
const TAIL_EXACT: u8 = 0xff;
/// Bytes of a tail at most.
const TAIL_BYTES_MAX: usize = 255;
/// A term ends here.
const FINAL: u8 = 1;
/// It is only found as written.
const EXACT: u8 = 2;
/// Bits of a head that are flags.
const FLAG_BITS: u32 = 2;
/// Bytes of an edge in a record.
const EDGE_BYTES: usize = 6;
/// Records that are remembered to be found again, as a power of two.
const KNOWN_BITS: u32 = 14;

/// Reads terms byte by byte and tells which it takes.
pub trait ByteAutomaton {
    /// What the bytes read so far have come to.
    type State: Copy;

    /// Before the first byte.
    fn start(&self) -> Self::State;

    /// After one more byte; `None` where nothing that begins so is taken.
    fn step(&self, state: &Self::State, byte: u8) -> Option<Self::State>;

    /// What may come next, for [`Self::may_come`]: where it is known without trying, most bytes are ruled out by one look.
    fn foreseen(&self, _: &Self::State) -> u64 {
        u64::MAX
    }

    /// Whether a byte may come where this was foreseen; false only if [`Self::step`] would rule it out.
    fn may_come(&self, _foreseen: u64, _byte: u8) -> bool {
        true
    }

    /// The distance of what was read, if that is taken.
    fn taken(&self, state: &Self::State) -> Option<u8>;
}

/// The terms with their kinds.
#[derive(Clone)]
pub struct TermMap {
    records: Vec<u8>,
    root: Child,
    len: usize,
}

/// What is known of a node without its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Child {
    flags: u8,
    /// Of its record; 0 where it has no ways on.
    offset: usize,
}

impl Child {
    fn kind(self) -> Option<TermKind> {
        let kind = if self.flags & EXACT == 0 { TermKind::Tolerant } else { TermKind::ExactOnly };
        (self.flags & FINAL != 0).then_some(kind)
    }
}

/// A node's record.
#[derive(Clone, Copy)]
enum Record<'m> {
    Branch { labels: &'m [u8], heads: &'m [u8], offsets: &'m [u8] },
    Tail(&'m [u8], TermKind),
}

impl Record<'_> {
    fn child(heads: &[u8], offsets: &[u8], at: usize) -> Child {
        let head = heads[at];
        let low = offsets[4 * at..].first_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let offset = u64::from(head >> FLAG_BITS) << 32 | u64::from(low);
        Child { flags: head & (FINAL | EXACT), offset: offset as usize }
    }
}

impl Default for TermMap {
    fn default() -> Self {
        TermMapBuilder::default().finish()
    }
}

/// A branch on the way to a term.
struct Visit<'m, S> {
    labels: &'m [u8],
    heads: &'m [u8],
    offsets: &'m [u8],
    /// The next way to try.
    next: usize,
    state: S,
    foreseen: u64,
    /// How many bytes lead here.
    depth: usize,
}

impl<S: Copy> Visit<'_, S> {
    /// The next child that the automaton does not rule out. `term` becomes the bytes that lead there.
    #[inline]
    fn next_way<A: ByteAutomaton<State = S>>(&mut self, automaton: &A, term: &mut Vec<u8>) -> Option<(Child, S)> {
        while let Some(label) = self.labels.get(self.next) {
            let at = self.next;
            self.next += 1;
            if automaton.may_come(self.foreseen, *label)
                && let Some(state) = automaton.step(&self.state, *label)
            {
                term.truncate(self.depth);
                term.push(*label);
                return Some((Record::child(self.heads, self.offsets, at), state));
            }
        }
        None
    }
}

impl TermMap {
    /// How many terms there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The kind of a term; `None` when it is not there.
    pub fn kind(&self, term: &[u8]) -> Option<TermKind> {
        let mut found = None;
        self.for_each_prefix(term, |len, kind| found = (len == term.len()).then_some(kind));
        found
    }

    /// Calls `each` with the length and the kind of every term that `text` begins with, shortest first.
    pub fn for_each_prefix(&self, text: &[u8], mut each: impl FnMut(usize, TermKind)) {
        let (mut node, mut read) = (self.root, 0);
        loop {
            if let Some(kind) = node.kind() {
                each(read, kind);
            }
            if node.offset == 0 || read == text.len() {
                return;
            }
            match self.record(node.offset) {
                Record::Tail(bytes, kind) => {
                    if text[read..].starts_with(bytes) {
                        each(read + bytes.len(), kind);
                    }
                    return;
                }
                Record::Branch { labels, heads, offsets } => {
                    let Some(at) = labels.iter().position(|label| *label == text[read]) else { return };
                    node = Record::child(heads, offsets, at);
                    read += 1;
                }
            }
        }
    }

    fn record(&self, offset: usize) -> Record<'_> {
        let bytes = &self.records[offset..];
        match bytes[0] {
            mark @ (TAIL | TAIL_EXACT) => {
                let kind = if mark == TAIL { TermKind::Tolerant } else { TermKind::ExactOnly };
                Record::Tail(&bytes[2..2 + usize::from(bytes[1])], kind)
            }
            count => {
                let count = usize::from(count);
                let (labels, rest) = bytes[1..].split_at(count);
                let (heads, rest) = rest.split_at(count);
                Record::Branch { labels, heads, offsets: &rest[..4 * count] }
            }
        }
    }

    /// Calls `each` with the terms that an automaton takes, their kinds and distances, in byte order, from the first bound to before the
    /// second, until it returns false.
    pub fn walk<A: ByteAutomaton>(
        &self,
        automaton: &A,
        (from, until): (&[u8], Option<&[u8]>),
        each: &mut dyn FnMut(&[u8], TermKind, u8) -> bool,
    ) {
        let mut term: Vec<u8> = Vec::with_capacity(64);
        let start = automaton.start();
        let mut visits: Vec<Visit<'_, A::State>> = Vec::with_capacity(16);
        // What a branch offers from the first bound on: behind as much of it as leads here.
        let first = |labels: &[u8], term: &[u8]| match from.get(term.len()) {
            Some(byte) if from.starts_with(term) => labels.partition_point(|label| label < byte),
            _ => 0,
        };
        let mut way = Some((self.root, start));
        loop {
            if let Some((node, state)) = way.take() {
                if let Some(kind) = node.kind()
                    && let Some(distance) = automaton.taken(&state)
                    && term.as_slice() >= from
                    && !each(&term, kind, distance)
                {
                    return;
                }
                if node.offset > 0 {
                    match self.record(node.offset) {
                        Record::Branch { labels, heads, offsets } => {
                            let next = if term.len() < from.len() { first(labels, &term) } else { 0 };
                            let (foreseen, depth) = (automaton.foreseen(&state), term.len());
                            visits.push(Visit { labels, heads, offsets, next, state, foreseen, depth });
                        }
                        Record::Tail(bytes, kind) => {
                            let read = bytes.iter().try_fold(state, |state, byte| automaton.step(&state, *byte));
                            if let Some(distance) = read.and_then(|state| automaton.taken(&state)) {
                                term.extend_from_slice(bytes);
                                if until.is_some_and(|until| term.as_slice() >= until) {
                                    return;
                                }
                                if term.as_slice() >= from && !each(&term, kind, distance) {
                                    return;
                                }
                            }
                        }
                    }
                }
            }
            let Some(visit) = visits.last_mut() else { return };
            way = visit.next_way(automaton, &mut term);
            if way.is_none() {
                visits.pop();
            } else if until.is_some_and(|until| term.len() <= until.len() && term.as_slice() >= until) {
                // Past as many bytes as a bound has, all was decided before.
                return;
            }
        }
    }
}

/// Builds a map from terms in byte order.
pub struct TermMapBuilder {
    records: Vec<u8>,
    /// By hash the record that was last written with it.
    known: Vec<u64>,
    hasher: ahash::RandomState,
    /// The nodes on the way to the last term, the root first; those behind `last.len()` are spare.
    open: Vec<OpenNode>,
    last: Vec<u8>,
    len: usize,
    scratch: Vec<u8>,
}

#[derive(Default)]
struct OpenNode {
    flags: u8,
    /// Ways on that are complete.
    edges: Vec<(u8, Built)>,
}

/// A complete node that may not be written yet.
struct Built {
    flags: u8,
    ways: Ways,
}

enum Ways {
    None,
    /// Without branches to the end of one term, with its flags.
    Tail(SmallVec<[u8; 16]>, u8),
    Record(usize),
}

impl Default for TermMapBuilder {
    fn default() -> Self {
        Self {
            // No record lies at 0, which stands for none.
            records: vec![0],
            known: Vec::new(),
            hasher: ahash::RandomState::with_seeds(1, 2, 3, 4),
            open: vec![OpenNode::default()],
            last: Vec::new(),
            len: 0,
            scratch: Vec::new(),
        }
    }
}

impl TermMapBuilder {
    /// Adds the next term; false for one that is not after the last, which is passed over.
    pub fn push(&mut self, term: &[u8], kind: TermKind) -> bool {
        if self.len > 0 && term <= self.last.as_slice() {
            return false;
        }
        let shared = self.last.iter().zip(term).take_while(|(a, b)| a == b).count();
        self.close(shared);
        while self.open.len() <= term.len() {
            self.open.push(OpenNode::default());
        }
        self.last.extend_from_slice(&term[shared..]);
        self.open[term.len()].flags = FINAL | if kind == TermKind::ExactOnly { EXACT } else { 0 };
        self.len += 1;
        true
    }

    /// The map of the terms added.
    pub fn finish(mut self) -> TermMap {
        self.close(0);
        let root = self.built(0);
        let root = self.written(root);
        self.records.shrink_to_fit();
        TermMap { records: self.records, root, len: self.len }
    }

    /// Completes the nodes behind the first `depth` bytes of the last term.
    fn close(&mut self, depth: usize) {
        while self.last.len() > depth {
            let built = self.built(self.last.len());
            if let Some(label) = self.last.pop() {
                self.open[self.last.len()].edges.push((label, built));
            }
        }
    }

    /// Takes an open node whose ways on are all complete.
    fn built(&mut self, at: usize) -> Built {
        let flags = std::mem::take(&mut self.open[at].flags);
        let mut edges = std::mem::take(&mut self.open[at].edges);
        let ways = match edges.as_mut_slice() {
            [] => Ways::None,
            [(label, Built { flags: end, ways: Ways::None })] => Ways::Tail(SmallVec::from_slice(&[*label]), *end),
            [(label, Built { flags: 0, ways: Ways::Tail(bytes, end) })] if bytes.len() < TAIL_BYTES_MAX => {
                let mut bytes = std::mem::take(bytes);
                bytes.insert(0, *label);
                Ways::Tail(bytes, *end)
            }
            _ => Ways::Record(self.write_branch(&mut edges)),
        };
        edges.clear();
        self.open[at].edges = edges;
        Built { flags, ways }
    }

    fn write_branch(&mut self, edges: &mut Vec<(u8, Built)>) -> usize {
        let children: SmallVec<[(u8, Child); 32]> =
            edges.drain(..).map(|(label, built)| (label, self.written(built))).collect();
        let mut record = std::mem::take(&mut self.scratch);
        record.clear();
        record.reserve(1 + EDGE_BYTES * children.len());
        // Terms are text: no more than 180 bytes may come at any place.
        record.push(children.len() as u8);
        record.extend(children.iter().map(|(label, _)| *label));
        record.extend(children.iter().map(|(_, child)| child.flags | ((child.offset as u64 >> 32) as u8) << FLAG_BITS));
        children.iter().for_each(|(_, child)| record.extend_from_slice(&(child.offset as u32).to_le_bytes()));
        let offset = self.write(&record);
        self.scratch = record;
        offset
    }

    /// The node, its ways on written if they were not.
    fn written(&mut self, built: Built) -> Child {
        let offset = match built.ways {
            Ways::None => 0,
            Ways::Record(offset) => offset,
            Ways::Tail(bytes, end) => {
                let mut record = SmallVec::<[u8; 64]>::new();
                record.push(if end & EXACT == 0 { TAIL } else { TAIL_EXACT });
                record.push(bytes.len() as u8);
                record.extend_from_slice(&bytes);
                self.write(&record)
            }
        };
        Child { flags: built.flags, offset }
    }

    /// Where a record lies: there already, if it is remembered.
    fn write(&mut self, record: &[u8]) -> usize {
        if self.known.is_empty() {
            self.known.resize(1 << KNOWN_BITS, 0);
        }
        let slot = self.hasher.hash_one(record) as usize & ((1 << KNOWN_BITS) - 1);
        let known = self.known[slot] as usize;
        if known > 0 && self.records[known..].starts_with(record) {
            return known;
        }
        let offset = self.records.len();
        self.records.extend_from_slice(record);
        self.known[slot] = offset as u64;
        offset
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    type Model = BTreeMap<String, bool>;

    fn kind(exact: bool) -> TermKind {
        if exact { TermKind::ExactOnly } else { TermKind::Tolerant }
    }

    fn build(model: &Model) -> TermMap {
        let mut builder = TermMapBuilder::default();
        model.iter().for_each(|(term, exact)| assert!(builder.push(term.as_bytes(), kind(*exact))));
        builder.finish()
    }

    /// Takes the terms of some length, and rules out those with a byte.
    struct OfLength(usize, u8);

    impl ByteAutomaton for OfLength {
        type State = usize;

        fn start(&self) -> usize {
            0
        }

        fn step(&self, read: &usize, byte: u8) -> Option<usize> {
            (byte != self.1 && *read < self.0).then_some(read + 1)
        }

        fn taken(&self, read: &usize) -> Option<u8> {
            (*read <= self.0).then_some(*read as u8)
        }
    }

    proptest! {
        #[test]
        fn it_is_a_sorted_map(
            model in prop::collection::btree_map("[abcé]{0,6}|[a-z]{1,3}(ing|ed|ness|s)?|[0-9]{3}", any::<bool>(), 0..300),
            absent in "[abcé]{0,7}",
            length in 0..9_usize,
            from in "[abc]{0,3}",
            until in prop::option::of("[abc]{1,3}"),
        ) {
            let map = build(&model);
            prop_assert_eq!(map.len(), model.len());
            for term in model.keys().chain([&absent]) {
                prop_assert_eq!(map.kind(term.as_bytes()), model.get(term).map(|exact| kind(*exact)));
                let mut begins = Vec::new();
                map.for_each_prefix(term.as_bytes(), |len, of| begins.push((len, of)));
                let ends = (0..=term.len()).filter(|at| term.is_char_boundary(*at));
                let wanted = ends.filter_map(|at| Some((at, kind(*model.get(&term[..at])?))));
                prop_assert_eq!(begins, wanted.collect::<Vec<_>>());
            }
            let bounds = (from.as_bytes(), until.as_ref().map(String::as_bytes));
            let mut found = Vec::new();
            map.walk(&OfLength(length, b'b'), bounds, &mut |term, kind, distance| {
                found.push((String::from_utf8(term.to_vec()).unwrap(), kind, distance));
                true
            });
            let is_within = |term: &String| *term >= from && until.as_ref().is_none_or(|until| term < until);
            let wanted = model.iter().filter(|(term, _)| is_within(term) && term.len() <= length && !term.contains('b'));
            let wanted: Vec<_> = wanted.map(|(term, exact)| (term.clone(), kind(*exact), term.len() as u8)).collect();
            prop_assert_eq!(&found, &wanted);
            let mut seen = 0;
            map.walk(&OfLength(length, b'b'), bounds, &mut |_, _, _| {
                seen += 1;
                seen < 3
            });
            prop_assert_eq!(seen, wanted.len().min(3));
        }
    }

    #[test]
    fn terms_out_of_order_are_passed_over() {
        let mut builder = TermMapBuilder::default();
        let added = ["b", "a", "b", "ba"].map(|term| builder.push(term.as_bytes(), TermKind::Tolerant));
        assert_eq!(added, [true, false, false, true]);
        let map = builder.finish();
        assert_eq!((map.len(), map.kind(b"a"), map.kind(b"ba")), (2, None, Some(TermKind::Tolerant)));
        let long = "x".repeat(700);
        let map = build(&[(long.clone(), true), (long.clone() + "y", false)].into());
        assert_eq!(map.kind(long.as_bytes()), Some(TermKind::ExactOnly));
        assert_eq!(map.kind(&[long.as_bytes(), b"y"].concat()), Some(TermKind::Tolerant));
    }

    /// Numbers of documents end alike: a map of a hundred thousand is small.
    #[test]
    fn equal_ends_are_stored_once() {
        let model: Model = (0..100_000).map(|number| (format!("{number:06}"), false)).collect();
        let map = build(&model);
        assert!(map.records.len() < 1_000, "{} bytes", map.records.len());
        assert_eq!((map.len(), map.kind(b"099999"), map.kind(b"100000")), (100_000, Some(TermKind::Tolerant), None));
    }
}
