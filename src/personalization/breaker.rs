//! Keeps searches from waiting for a service that does not answer.
//!
//! After a few questions in a row without an answer nobody asks for a while; then one does, and by that it is decided whether the
//! others do again.

use std::cell::Cell;
use std::time::Duration;

use shards::runtime::Nanos;

/// So many questions in a row without an answer, and it is not asked for a while.
const FAILURES_MAX: u32 = 3;
/// How long that is.
const REST: Duration = Duration::from_secs(30);
/// A question that is given up says that there was no answer if the service had it for so long: one may have waited for its turn
/// for most of its time, and a client may go away at any moment.
const PATIENCE: Duration = Duration::from_millis(2500);

/// Whether a service is asked, on one core.
pub struct Breaker {
    clock: Box<dyn Fn() -> Nanos>,
    state: Cell<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Everybody asks; so many questions in a row had no answer.
    Asked { failures: u32 },
    /// Nobody asks before this moment; the first one after it tries.
    Rests { until: Nanos },
    /// One tries, the others do not ask.
    Tried,
}

/// Leave to ask one question. To drop it is to give the question up.
pub struct Leave<'b> {
    breaker: &'b Breaker,
    since: Nanos,
    is_trial: bool,
    is_used: bool,
}

impl Breaker {
    /// One for a service that nothing is known of, by a clock that never goes back.
    pub fn new(clock: impl Fn() -> Nanos + 'static) -> Self {
        Self { clock: Box::new(clock), state: Cell::new(State::Asked { failures: 0 }) }
    }

    /// Whether nobody is to ask now.
    pub fn rests(&self) -> bool {
        match self.state.get() {
            State::Asked { .. } => false,
            State::Rests { until } => (self.clock)() < until,
            State::Tried => true,
        }
    }

    /// Leave to ask, for one question; `None` while nobody is to ask.
    pub fn leave(&self) -> Option<Leave<'_>> {
        if self.rests() {
            return None;
        }
        let is_trial = matches!(self.state.get(), State::Rests { .. });
        if is_trial {
            self.state.set(State::Tried);
        }
        Some(Leave { breaker: self, since: (self.clock)(), is_trial, is_used: false })
    }

    fn answered(&self) {
        if !matches!(self.state.replace(State::Asked { failures: 0 }), State::Asked { .. }) {
            tracing::info!("the personalization service responds again and is asked again");
        }
    }

    fn unanswered(&self, is_trial: bool) {
        let until = (self.clock)().after(REST);
        match self.state.get() {
            State::Asked { failures } if failures + 1 < FAILURES_MAX => {
                self.state.set(State::Asked { failures: failures + 1 });
            }
            State::Asked { .. } => {
                tracing::warn!(
                    seconds = REST.as_secs(),
                    "the personalization service does not respond and is not asked for a while"
                );
                self.state.set(State::Rests { until });
            }
            State::Tried if is_trial => self.state.set(State::Rests { until }),
            // Those asked before it was known.
            State::Rests { .. } | State::Tried => {}
        }
    }
}

impl Leave<'_> {
    /// Says whether the service answered, be it that it refused.
    pub fn used(mut self, is_answered: bool) {
        self.is_used = true;
        if is_answered {
            self.breaker.answered();
        } else {
            self.breaker.unanswered(self.is_trial);
        }
    }
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        if self.is_used {
            return;
        }
        let now = (self.breaker.clock)();
        if now.since(self.since) >= PATIENCE {
            self.breaker.unanswered(self.is_trial);
        } else if self.is_trial && self.breaker.state.get() == State::Tried {
            // The trial is left to the next one.
            self.breaker.state.set(State::Rests { until: now });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    /// A breaker, and its clock in milliseconds.
    fn breaker() -> (Breaker, Rc<Cell<u64>>) {
        let clock = Rc::new(Cell::new(7));
        let shown = clock.clone();
        (Breaker::new(move || Nanos(shown.get() * 1_000_000)), clock)
    }

    fn wait(clock: &Cell<u64>, time: Duration) {
        clock.set(clock.get() + time.as_millis() as u64);
    }

    fn fail(breaker: &Breaker, times: u32) {
        (0..times).for_each(|_| breaker.leave().unwrap().used(false));
    }

    #[test]
    fn only_failures_in_a_row_count() {
        let (breaker, _) = breaker();
        for _ in 0..5 {
            fail(&breaker, FAILURES_MAX - 1);
            breaker.leave().unwrap().used(true);
        }
        assert!(!breaker.rests());
        fail(&breaker, FAILURES_MAX);
        assert!(breaker.rests() && breaker.leave().is_none());
    }

    #[test]
    fn one_tries_after_a_rest() {
        let (breaker, clock) = breaker();
        fail(&breaker, FAILURES_MAX);
        wait(&clock, REST - Duration::from_millis(1));
        assert!(breaker.leave().is_none());
        wait(&clock, Duration::from_millis(1));
        let trial = breaker.leave().unwrap();
        assert!(breaker.rests() && breaker.leave().is_none(), "one is enough");
        trial.used(false);
        wait(&clock, REST - Duration::from_millis(1));
        assert!(breaker.leave().is_none());
        wait(&clock, Duration::from_millis(1));
        breaker.leave().unwrap().used(true);
        assert!(!breaker.rests());
        fail(&breaker, FAILURES_MAX - 1);
        assert!(!breaker.rests(), "what was before is forgotten");
    }

    /// A search's own time may end, or its client go away, while it asks.
    #[test]
    fn what_is_given_up_early_says_nothing() {
        let (breaker, clock) = breaker();
        for _ in 0..10 {
            let leave = breaker.leave().unwrap();
            wait(&clock, PATIENCE - Duration::from_millis(1));
            drop(leave);
        }
        assert!(!breaker.rests());
        let leaves: Vec<_> = (0..FAILURES_MAX).map(|_| breaker.leave().unwrap()).collect();
        wait(&clock, PATIENCE);
        drop(leaves);
        assert!(breaker.rests());

        wait(&clock, REST);
        let trial = breaker.leave().unwrap();
        drop(trial);
        let trial = breaker.leave().expect("the next one tries");
        wait(&clock, PATIENCE);
        drop(trial);
        assert!(breaker.rests());
        wait(&clock, REST);
        assert!(breaker.leave().is_some());
    }

    /// Questions asked before the rest end during it, and during the trial.
    #[test]
    fn latecomers_neither_prolong_the_rest_nor_end_the_trial() {
        let (breaker, clock) = breaker();
        let late: Vec<_> = (0..3).map(|_| breaker.leave().unwrap()).collect();
        let mut late = late.into_iter();
        fail(&breaker, FAILURES_MAX);
        wait(&clock, REST / 2);
        late.next().unwrap().used(false);
        wait(&clock, REST / 2);
        let trial = breaker.leave().unwrap();
        late.next().unwrap().used(false);
        assert!(breaker.leave().is_none());
        late.next().unwrap().used(true);
        assert!(!breaker.rests(), "an answer is an answer");
        trial.used(false);
        assert!(!breaker.rests());
    }
}
