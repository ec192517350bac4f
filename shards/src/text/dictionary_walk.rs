//! Walks a finite-state map to the terms that an automaton accepts.

use fst::raw::{Fst, Node, Transition};

use super::char_automaton::{FewBytes, ForesightedAutomaton};

/// A node on the way to a term, and how far its ways on were tried.
struct Visit<'f, S> {
    node: Node<'f>,
    /// The bytes to look up, where the automaton knows that these are few; else all ways are tried.
    few: Option<FewBytes>,
    /// The next of the few, or of all.
    next: usize,
    state: S,
    value: u64,
}

impl<S> Visit<'_, S> {
    fn next_way(&mut self) -> Option<Transition> {
        match &self.few {
            None => {
                let at = self.next;
                self.next += 1;
                (at < self.node.len()).then(|| self.node.transition(at))
            }
            Some(few) => loop {
                let byte = *few.as_slice().get(self.next)?;
                self.next += 1;
                if let Some(at) = self.node.find_input(byte) {
                    return Some(self.node.transition(at));
                }
            },
        }
    }
}

/// Calls `each` with the terms that an automaton takes and their values, in byte order, from the first bound to before the
/// second, until it returns false. Unlike the map's own stream this looks at no node that the automaton rules out: these are
/// most of those beside the few that lead to a term.
pub fn walk<A: ForesightedAutomaton>(
    fst: &Fst<Vec<u8>>,
    automaton: &A,
    (from, until): (&str, Option<&str>),
    each: &mut dyn FnMut(&[u8], u64) -> bool,
) {
    let (from, until) = (from.as_bytes(), until.map(str::as_bytes));
    let mut term: Vec<u8> = Vec::with_capacity(32);
    let visit = |node, state, value| Visit { node, few: automaton.few_next(&state), next: 0, state, value };
    let mut visits = vec![visit(fst.root(), automaton.start(), 0)];
    while let Some(last) = visits.last_mut() {
        let Some(way) = last.next_way() else {
            visits.pop();
            term.pop();
            continue;
        };
        let state = automaton.accept(&last.state, way.inp);
        if !automaton.can_match(&state) {
            continue;
        }
        let value = last.value + way.out.value();
        term.push(way.inp);
        // Past as many bytes as a bound has, all was decided before.
        if until.is_some_and(|until| term.len() <= until.len() && term.as_slice() >= until) {
            return;
        }
        if term.as_slice() < &from[..from.len().min(term.len())] {
            term.pop();
            continue;
        }
        let node = fst.node(way.addr);
        if node.is_final()
            && automaton.is_match(&state)
            && term.as_slice() >= from
            && !each(&term, value + node.final_output().value())
        {
            return;
        }
        visits.push(visit(node, state, value));
    }
}
