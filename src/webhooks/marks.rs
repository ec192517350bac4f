//! How far each webhook has been told.
//!
//! Batches end one after another and have growing numbers, so one number says what a webhook is owed: every ended batch from
//! there on. The number lies in the control store, written now and then; what was told since is told once more after a kill.

use std::collections::BTreeMap;
use std::rc::Rc;

use uuid::Uuid;

use super::Webhooks;
use crate::control::inbox::Signal;

/// Batches that may wait for one webhook. When there are more, the oldest are passed over.
const BATCHES_MAX: u32 = 1024;

/// Marks to be stored: the number of the first batch that a webhook is owed, or (`None`) that there is no such webhook.
pub type MarkChanges = Vec<(Uuid, Option<u32>)>;

/// How far each webhook has been told.
#[derive(Default)]
pub struct Marks {
    /// The number after that of the last batch that ended.
    ended: u32,
    by_webhook: BTreeMap<Uuid, Mark>,
}

/// How far one webhook has been told.
struct Mark {
    /// The first batch that it is owed.
    next: u32,
    /// Whether the store has an older number.
    is_moved: bool,
    /// Whether something works through what it is owed.
    is_served: bool,
    /// The webhook is another now: it may take what it has not taken.
    changed: Rc<Signal>,
}

impl Mark {
    fn at(next: u32) -> Self {
        Self { next, is_moved: false, is_served: false, changed: Rc::default() }
    }
}

impl Marks {
    /// The marks as stored, `ended` being the number after that of the last batch; with them what is to be stored. A webhook
    /// without a mark begins at the present: one just named on the command line, or come with an import.
    pub fn recovered(stored: &BTreeMap<Uuid, u32>, webhooks: &Webhooks, ended: u32) -> (Self, MarkChanges) {
        let mark = |uid: &Uuid| Mark::at(stored.get(uid).copied().unwrap_or(ended).min(ended));
        let by_webhook = webhooks.keys().map(|uid| (*uid, mark(uid))).collect();
        let gone = stored.keys().filter(|uid| !webhooks.contains_key(uid)).map(|uid| (*uid, None));
        let new = webhooks.keys().filter(|uid| !stored.contains_key(uid)).map(|uid| (*uid, Some(ended)));
        (Self { ended, by_webhook }, gone.chain(new).collect())
    }

    /// The mark of a webhook that is made now.
    pub fn present(&self) -> u32 {
        self.ended
    }

    /// Takes note that a batch has ended, which these webhooks are owed.
    pub fn batch_ended(&mut self, batch: u32, webhooks: &Webhooks) {
        self.ended = batch + 1;
        self.by_webhook.retain(|uid, _| webhooks.contains_key(uid));
        for uid in webhooks.keys() {
            self.by_webhook.entry(*uid).or_insert_with(|| Mark::at(batch));
        }
    }

    /// The webhooks that are owed something and are not served; they count as served from now on.
    pub fn unserved(&mut self) -> Vec<Uuid> {
        let owed = self.by_webhook.iter_mut().filter(|(_, mark)| !mark.is_served && mark.next < self.ended);
        let begin = |(uid, mark): (&Uuid, &mut Mark)| {
            mark.is_served = true;
            *uid
        };
        owed.map(begin).collect()
    }

    /// The next batch that a webhook is owed; with none left, it counts as served no more.
    pub fn next(&mut self, uid: Uuid) -> Option<u32> {
        let mark = self.by_webhook.get_mut(&uid)?;
        let oldest = self.ended.saturating_sub(BATCHES_MAX);
        if mark.next < oldest {
            tracing::warn!(webhook = %uid, batches = oldest - mark.next, "a webhook is too far behind; skipping batches");
            (mark.next, mark.is_moved) = (oldest, true);
        }
        mark.is_served = mark.next < self.ended;
        mark.is_served.then_some(mark.next)
    }

    /// Takes note that a webhook is not owed this batch, nor what came before it, any more.
    pub fn pass(&mut self, uid: Uuid, batch: u32) {
        if let Some(mark) = self.by_webhook.get_mut(&uid).filter(|mark| mark.next <= batch) {
            (mark.next, mark.is_moved) = (batch + 1, true);
        }
    }

    /// Forgets a webhook that is gone.
    pub fn forget(&mut self, uid: Uuid) {
        self.by_webhook.remove(&uid);
    }

    /// The marks that moved since the last call.
    pub fn take_moved(&mut self) -> MarkChanges {
        let moved = self.by_webhook.iter_mut().filter(|(_, mark)| mark.is_moved);
        let take = |(uid, mark): (&Uuid, &mut Mark)| {
            mark.is_moved = false;
            (*uid, Some(mark.next))
        };
        moved.map(take).collect()
    }

    /// Raised when the webhook has become another one.
    pub fn changed(&self, uid: Uuid) -> Option<Rc<Signal>> {
        self.by_webhook.get(&uid).map(|mark| mark.changed.clone())
    }

    /// Takes note that webhooks have changed.
    pub fn webhooks_changed(&self) {
        self.by_webhook.values().for_each(|mark| mark.changed.raise());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::webhooks::Webhook;

    fn webhooks(numbers: &[u128]) -> Webhooks {
        numbers.iter().map(|number| (Uuid::from_u128(*number), Webhook::new("http://h", None))).collect()
    }

    /// What a webhook is owed, batch after batch, each told at once.
    fn tell(marks: &mut Marks, number: u128) -> Vec<u32> {
        let uid = Uuid::from_u128(number);
        let mut told = Vec::new();
        while let Some(batch) = marks.next(uid) {
            told.push(batch);
            marks.pass(uid, batch);
        }
        told
    }

    #[test]
    fn what_was_not_told_before_a_stop_is_told_after_it() {
        let known = webhooks(&[1, 2]);
        let mut stored = BTreeMap::from([(Uuid::from_u128(1), 0), (Uuid::from_u128(2), 0)]);
        let (mut marks, changes) = Marks::recovered(&stored, &known, 0);
        assert!(changes.is_empty() && marks.unserved().is_empty());
        for batch in 0..4 {
            marks.batch_ended(batch, &known);
        }
        assert_eq!(marks.unserved().len(), 2);
        assert_eq!(tell(&mut marks, 1), [0, 1, 2, 3]);
        // The second takes only the first two.
        marks.pass(Uuid::from_u128(2), 0);
        marks.pass(Uuid::from_u128(2), 1);
        stored.extend(marks.take_moved().into_iter().filter_map(|(uid, next)| Some((uid, next?))));
        assert!(marks.take_moved().is_empty());
        let (mut marks, changes) = Marks::recovered(&stored, &known, 4);
        assert!(changes.is_empty());
        assert_eq!(marks.unserved(), [Uuid::from_u128(2)]);
        assert_eq!((tell(&mut marks, 1), tell(&mut marks, 2)), (vec![], vec![2, 3]));
    }

    #[test]
    fn a_new_webhook_begins_at_the_present_and_a_removed_one_leaves_nothing() {
        let (old, new, gone) = (Uuid::from_u128(1), Uuid::from_u128(2), Uuid::from_u128(3));
        let stored = BTreeMap::from([(old, 5), (gone, 3)]);
        let (mut marks, changes) = Marks::recovered(&stored, &webhooks(&[1, 2]), 7);
        assert_eq!(changes, [(gone, None), (new, Some(7))]);
        assert_eq!((tell(&mut marks, 1), tell(&mut marks, 2), tell(&mut marks, 3)), (vec![5, 6], vec![], vec![]));
        // Made while the server runs: the batch that ends first after that is the first it is told.
        assert_eq!(marks.present(), 7);
        marks.batch_ended(7, &webhooks(&[2, 4]));
        assert_eq!((tell(&mut marks, 1), tell(&mut marks, 2), tell(&mut marks, 4)), (vec![], vec![7], vec![7]));
        assert!(marks.take_moved().iter().all(|(uid, _)| *uid != old));
    }

    /// A webhook that does not answer must not come to be owed the whole history.
    #[test]
    fn one_that_is_far_behind_is_told_the_newest() {
        let known = webhooks(&[1]);
        let (mut marks, _) = Marks::recovered(&BTreeMap::from([(Uuid::from_u128(1), 3)]), &known, BATCHES_MAX + 13);
        let told = tell(&mut marks, 1);
        assert_eq!((told.len() as u32, told[0]), (BATCHES_MAX, 13));
    }

    #[test]
    fn a_served_webhook_is_served_once() {
        let known = webhooks(&[1]);
        let (mut marks, _) = Marks::recovered(&BTreeMap::new(), &known, 0);
        marks.batch_ended(0, &known);
        assert_eq!((marks.unserved().len(), marks.unserved().len()), (1, 0));
        assert_eq!(tell(&mut marks, 1), [0]);
        assert!(marks.unserved().is_empty());
        marks.batch_ended(1, &known);
        assert_eq!(marks.unserved().len(), 1);
    }
}
