//! The queue against a list of tasks looked through one by one.

use proptest::prelude::*;

use super::*;
use crate::tasks::filter::Page;
use crate::tasks::task::{Content, NewTask, Outcome, Swap};

const NAMES: [&str; 3] = ["a", "b", "c"];

fn content(kind: u8, index: usize) -> Content {
    let name = NAMES[index % 3].to_string();
    match kind % 5 {
        0 => Content::DocumentClear { index: name },
        1 => Content::IndexDeletion { index: name },
        2 => Content::IndexSwap { swaps: vec![Swap { indexes: [name, NAMES[(index + 1) % 3].into()], rename: false }] },
        3 => Content::DumpCreation,
        _ => Content::IndexUpdate {
            index: name,
            primary_key: None,
            new_index: Some(NAMES[(index + 2) % 3].into()),
            renamed: None,
        },
    }
}

/// What may happen to a task, in any order.
#[derive(Clone, Debug)]
enum Step {
    Accept(u8, usize),
    Begin(usize),
    Requeue(usize),
    Finish(usize, u8),
    Forget(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (any::<u8>(), 0..3usize).prop_map(|(kind, index)| Step::Accept(kind, index)),
        3 => any::<usize>().prop_map(Step::Begin),
        1 => any::<usize>().prop_map(Step::Requeue),
        3 => (any::<usize>(), 0..3u8).prop_map(|(at, how)| Step::Finish(at, how)),
        1 => any::<usize>().prop_map(Step::Forget),
    ]
}

fn dates() -> impl Strategy<Value = Dates> {
    let date = || prop::option::weighted(0.3, (0..60i64).prop_map(Timestamp));
    (date(), date()).prop_map(|(after, before)| Dates { after, before })
}

fn filter() -> impl Strategy<Value = Filter> {
    let uids = || prop::option::weighted(0.2, prop::collection::vec(0..40u32, 0..6).prop_map(RoaringBitmap::from_iter));
    let statuses = prop::option::weighted(0.3, prop::sample::subsequence(Status::ALL.to_vec(), 0..4));
    let kinds = prop::option::weighted(0.3, prop::sample::subsequence(Kind::ALL.to_vec(), 0..16));
    let names: Vec<String> = NAMES.iter().map(|name| name.to_string()).collect();
    let indexes = prop::option::weighted(0.3, prop::sample::subsequence(names, 0..3));
    ((uids(), uids(), uids()), statuses, kinds, indexes, dates(), dates(), dates()).prop_map(
        |((uids, batches, canceled_by), statuses, kinds, indexes, enqueued, started, finished)| Filter {
            uids,
            batches,
            statuses,
            kinds,
            indexes,
            canceled_by,
            enqueued,
            started,
            finished,
        },
    )
}

fn holds(dates: Dates, date: Option<Timestamp>) -> bool {
    dates == Dates::default()
        || date.is_some_and(|date| {
            dates.after.is_none_or(|after| date > after) && dates.before.is_none_or(|before| date < before)
        })
}

/// The filter said in words, for one task.
fn lets_through(filter: &Filter, task: &Task) -> bool {
    filter.uids.as_ref().is_none_or(|uids| uids.contains(task.uid.0))
        && filter.batches.as_ref().is_none_or(|batches| task.batch.is_some_and(|batch| batches.contains(batch.0)))
        && filter.statuses.as_ref().is_none_or(|statuses| statuses.contains(&task.status))
        && filter.kinds.as_ref().is_none_or(|kinds| kinds.contains(&task.kind()))
        && filter
            .indexes
            .as_ref()
            .is_none_or(|names| task.content.index_names().iter().any(|name| names.iter().any(|n| n == name)))
        && filter.canceled_by.as_ref().is_none_or(|by| task.canceled_by.is_some_and(|uid| by.contains(uid.0)))
        && holds(filter.enqueued, Some(task.enqueued_at))
        && holds(filter.started, task.started_at)
        && holds(filter.finished, task.finished_at)
}

/// Applies a history to the queue and to a plain list.
fn run(steps: &[Step]) -> (Queue, BTreeMap<u32, Task>) {
    let (mut queue, mut twin) = (Queue::default(), BTreeMap::<u32, Task>::new());
    let mut next = 0;
    for (now, step) in steps.iter().enumerate() {
        let now = Timestamp(now as i64);
        let pick = |at: usize, twin: &BTreeMap<u32, Task>, status: Status| {
            let fit: Vec<u32> = twin.values().filter(|task| task.status == status).map(|task| task.uid.0).collect();
            fit.get(at % fit.len().max(1)).copied()
        };
        match *step {
            Step::Accept(kind, index) => {
                let task = Task::accepted(TaskUid(next), NewTask::from(content(kind, index)), now);
                queue.insert(task.clone());
                twin.insert(next, task);
                next += 1;
            }
            Step::Begin(at) => {
                let Some(uid) = pick(at, &twin, Status::Enqueued) else { continue };
                queue.begin(&[TaskUid(uid)], BatchUid(now.0 as u32 / 4), now);
                let task = twin.get_mut(&uid).unwrap();
                (task.status, task.batch, task.started_at) =
                    (Status::Processing, Some(BatchUid(now.0 as u32 / 4)), Some(now));
                assert_eq!(queue.held(TaskUid(uid)).map(|held| &**held), Some(&*task));
            }
            Step::Requeue(at) => {
                let Some(uid) = pick(at, &twin, Status::Processing) else { continue };
                queue.requeue(&[TaskUid(uid)]);
                let task = twin.get_mut(&uid).unwrap();
                (task.status, task.batch, task.started_at) = (Status::Enqueued, None, None);
            }
            Step::Finish(at, how) => {
                let Some(uid) = pick(at, &twin, Status::Processing) else { continue };
                let task = twin.get_mut(&uid).unwrap();
                task.status = [Status::Succeeded, Status::Failed, Status::Canceled][usize::from(how)];
                task.canceled_by = (how == 2).then_some(TaskUid(uid / 2));
                task.outcome = Outcome::Documents(1);
                task.finished_at = Some(now);
                queue.finish(Rc::new(task.clone()));
                assert_eq!(queue.held(TaskUid(uid)).map(|held| &**held), Some(&*task));
                queue.settle(TaskUid(uid));
                assert_eq!(queue.held(TaskUid(uid)), None);
            }
            Step::Forget(at) => {
                let Some(uid) = pick(at, &twin, Status::Succeeded) else { continue };
                queue.forget(&RoaringBitmap::from_iter([uid]));
                twin.remove(&uid);
            }
        }
    }
    (queue, twin)
}

proptest! {
    #[test]
    fn filters_agree_with_looking_at_each_task(steps in prop::collection::vec(step(), 0..60), filter in filter()) {
        let (queue, twin) = run(&steps);
        let wanted: RoaringBitmap =
            twin.values().filter(|task| lets_through(&filter, task)).map(|task| task.uid.0).collect();
        prop_assert_eq!(queue.matching(&filter), wanted);
        prop_assert_eq!(queue.len(), twin.len() as u64);
    }

    #[test]
    fn walking_the_pages_shows_every_task_once(
        steps in prop::collection::vec(step(), 0..60), limit in 1..9u32, reverse in prop::bool::ANY,
    ) {
        let (queue, twin) = run(&steps);
        let matching = queue.matching(&Filter::default());
        let (mut seen, mut from) = (Vec::new(), None);
        loop {
            let mut page = Page { limit, from, reverse }.cut(&matching);
            from = (page.len() > limit as usize).then(|| page.pop()).flatten();
            seen.extend(page);
            if from.is_none() {
                break;
            }
        }
        let mut wanted: Vec<u32> = twin.keys().copied().collect();
        if !reverse {
            wanted.reverse();
        }
        prop_assert_eq!(seen, wanted);
    }

    /// A limited key must not touch what it cannot see, such as a dump or a swap that also names a foreign index.
    #[test]
    fn limited_keys_cover_tasks_of_their_indexes(steps in prop::collection::vec(step(), 0..60)) {
        let (queue, twin) = run(&steps);
        let scope = Scope::Indexes(vec!["a".into(), "c*".into()]);
        let covered = queue.covered(&scope);
        for task in twin.values().filter(|task| task.kind() != Kind::IndexUpdate) {
            prop_assert_eq!(covered.contains(task.uid.0), scope.shows(task), "{:?}", task);
        }
    }
}

#[test]
fn renaming_moves_history() {
    let mut queue = Queue::default();
    queue.insert(Task::accepted(TaskUid(0), Content::DocumentClear { index: "a".into() }.into(), Timestamp(0)));
    queue.rename(TaskUid(0), &["a"], &["b"]);
    let found = |name: &str| queue.matching(&Filter { indexes: Some(vec![name.into()]), ..Filter::default() }).len();
    assert_eq!((found("a"), found("b")), (0, 1));
}
