//! Limits how many searches one core runs at once, and decides what happens to the rest.
//!
//! A few run concurrently, so that one that waits for another core does not idle this one; more wait in a queue. When the queue
//! is full, a randomly chosen waiting search is rejected: under overload everybody then has the same chance, whereas rejecting
//! the newcomer would favour clients that retry fastest.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use futures_channel::oneshot::{self, Sender};
use futures_util::future::{Either, select};
use futures_util::pin_mut;

use crate::api::error::{ApiError, ErrorCode};

/// The room for searches on one core. Cheap to clone.
#[derive(Clone)]
pub struct SearchRoom(Rc<Shared>);

struct Shared {
    running: Cell<usize>,
    running_max: usize,
    waiting: RefCell<VecDeque<Sender<Verdict>>>,
    waiting_max: usize,
}

/// How full a room is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Searches that run.
    pub running: u64,
    /// Searches that wait for a place.
    pub waiting: u64,
}

/// What becomes of a search that waited.
enum Verdict {
    /// Its turn has come, and the place is its own already.
    Enter(Place),
    /// The line was full and the lot fell on it.
    Refused,
}

/// A place in the room; dropped, it goes to the next in line.
pub struct Place(Rc<Shared>);

impl SearchRoom {
    /// Room for `running_max` searches (at least one) on this core and for its share of the `waiting_max` that may wait on
    /// all `core_count` cores.
    pub fn new(running_max: usize, waiting_max: usize, core_count: u16) -> Self {
        Self(Rc::new(Shared {
            running: Cell::new(0),
            running_max: running_max.max(1),
            waiting: RefCell::default(),
            waiting_max: waiting_max.div_ceil(usize::from(core_count.max(1))),
        }))
    }

    /// How many searches run, and how many wait.
    pub fn occupancy(&self) -> Occupancy {
        let waiting = self.0.waiting.borrow();
        Occupancy {
            running: self.0.running.get() as u64,
            waiting: waiting.iter().filter(|turn| !turn.is_canceled()).count() as u64,
        }
    }

    /// Waits for a place. What `deadline` makes ends when this search has waited long enough; `random` draws lots.
    ///
    /// # Errors
    /// `too_many_search_requests`.
    pub async fn enter<D: Future<Output = ()>>(
        &self,
        random: impl FnOnce() -> u64,
        deadline: impl FnOnce() -> D,
    ) -> Result<Place, ApiError> {
        let room = &self.0;
        if room.running.get() < room.running_max {
            room.running.set(room.running.get() + 1);
            return Ok(Place(room.clone()));
        }
        if room.waiting_max == 0 {
            return Err(too_many());
        }
        let (turn, verdict) = oneshot::channel();
        room.wait_in_line(turn, random);
        let deadline = deadline();
        pin_mut!(deadline);
        match select(verdict, deadline).await {
            Either::Left((Ok(Verdict::Enter(place)), _)) => Ok(place),
            _ => Err(too_many()),
        }
    }
}

impl Shared {
    fn wait_in_line(&self, turn: Sender<Verdict>, random: impl FnOnce() -> u64) {
        let mut waiting = self.waiting.borrow_mut();
        waiting.retain(|turn| !turn.is_canceled());
        waiting.push_back(turn);
        if waiting.len() > self.waiting_max {
            let lot = (random() % waiting.len() as u64) as usize;
            let unlucky = waiting.remove(lot);
            drop(waiting);
            if let Some(unlucky) = unlucky {
                // A client that went away meanwhile does not mind.
                let _ = unlucky.send(Verdict::Refused);
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        loop {
            // Taken out before it is told: a turn that nobody takes drops its place, which comes back here.
            let next = self.0.waiting.borrow_mut().pop_front();
            match next {
                None => return self.0.running.set(self.0.running.get() - 1),
                Some(turn) if turn.is_canceled() => {}
                Some(turn) => {
                    let _ = turn.send(Verdict::Enter(Place(self.0.clone())));
                    return;
                }
            }
        }
    }
}

fn too_many() -> ApiError {
    let message = "Too many searches are running and waiting. Try again later.";
    ApiError::new(ErrorCode::TooManySearchRequests, message)
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures_util::FutureExt;

    use super::*;

    fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        future.now_or_never()
    }

    #[test]
    fn places_go_to_those_in_line_in_order() {
        let room = SearchRoom::new(1, 10, 1);
        let first = now(room.enter(|| 0, pending)).unwrap().unwrap();
        let mut second = Box::pin(room.enter(|| 0, pending));
        let mut third = Box::pin(room.enter(|| 0, pending));
        assert!(now(&mut second).is_none() && now(&mut third).is_none());
        assert_eq!(room.occupancy(), Occupancy { running: 1, waiting: 2 });
        drop(first);
        assert!(now(&mut third).is_none());
        let second = now(&mut second).unwrap().unwrap();
        drop(second);
        drop(now(&mut third).unwrap().unwrap());
        assert_eq!(room.0.running.get(), 0);
    }

    /// A client that goes away while it waits, or after its turn was given, must not keep the place.
    #[test]
    fn those_who_leave_the_line_are_passed_over() {
        let room = SearchRoom::new(1, 10, 1);
        let first = now(room.enter(|| 0, pending)).unwrap().unwrap();
        let mut leaves = Box::pin(room.enter(|| 0, pending));
        let mut stays = Box::pin(room.enter(|| 0, pending));
        assert!(now(&mut leaves).is_none() && now(&mut stays).is_none());
        drop(leaves);
        drop(first);
        drop(stays);
        assert_eq!(room.0.running.get(), 0);
    }

    #[test]
    fn a_full_line_refuses_one_by_lot() {
        let room = SearchRoom::new(1, 1, 1);
        let _first = now(room.enter(|| 0, pending)).unwrap().unwrap();
        let mut second = Box::pin(room.enter(|| 0, pending));
        assert!(now(&mut second).is_none());
        let mut third = Box::pin(room.enter(|| 0, pending));
        assert!(now(&mut third).is_none());
        assert_eq!(now(&mut second).unwrap().err().unwrap().code, ErrorCode::TooManySearchRequests);
        let fourth = now(room.enter(|| 1, pending)).unwrap();
        assert_eq!(fourth.err().unwrap().code, ErrorCode::TooManySearchRequests);
    }

    #[test]
    fn nobody_waits_for_ever_or_without_a_line() {
        let room = SearchRoom::new(1, 1, 1);
        let _first = now(room.enter(|| 0, pending)).unwrap().unwrap();
        assert!(now(room.enter(|| 0, || ready(()))).unwrap().is_err());
        let room = SearchRoom::new(1, 0, 4);
        let _first = now(room.enter(|| 0, pending)).unwrap().unwrap();
        assert!(now(room.enter(|| 0, pending)).unwrap().is_err());
    }
}
