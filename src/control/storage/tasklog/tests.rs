use futures_lite::future::block_on;
use shards::timestamp::Timestamp;
use storage_engine::Disk;
use storage_engine::io::mem::MemDisk;

use super::*;
use crate::control::testing::TestRuntime;
use crate::tasks::task::{Content, NewTask};

const FOLDER: &str = "log";

fn on(disk: &MemDisk) -> Rc<dyn Runtime> {
    Rc::new(TestRuntime::new(Rc::new(disk.clone())))
}

fn open(disk: &MemDisk, finished: &[u32], undelivered: &[u32]) -> Result<(TaskLog, Vec<Task>), ControlError> {
    let mut set = FinishedSet::default();
    finished.iter().for_each(|uid| set.insert(*uid));
    let undelivered = undelivered.iter().copied().collect();
    block_on(TaskLog::open(&on(disk), Path::new(FOLDER), &set, &undelivered))
}

fn task(uid: u32) -> Task {
    let content = Content::DocumentClear { index: format!("index {uid}") };
    Task::accepted(TaskUid(uid), NewTask::from(content), Timestamp::default())
}

fn payload(log: &TaskLog, uid: u32) -> Result<Vec<u8>, ControlError> {
    block_on(log.payload(TaskUid(uid))).map(Arc::unwrap_or_clone)
}

/// Opening once took every payload into memory, however many waited.
#[test]
fn payloads_stay_in_the_log_until_they_are_asked_for() {
    let disk = MemDisk::new();
    let tasks: Vec<Task> = (0..6).map(task).collect();
    // Shorter and longer than what is read at once, and none at all.
    let payloads = [Some(vec![7; 10]), None, Some(vec![8; 700_000]), Some(Vec::new()), Some(vec![9; 300_000]), None];
    let (log, found) = open(&disk, &[], &[]).expect("it opens");
    assert_eq!(found, []);
    block_on(log.append(&tasks, payloads.to_vec())).expect("they are accepted");

    let (log, found) = open(&disk, &[0, 4], &[4]).expect("it opens");
    assert_eq!(found, [&tasks[1..4], &tasks[5..]].concat());
    assert_eq!((log.open.borrow().kept_bytes, log.open.borrow().kept.len()), (0, 0));
    for (uid, expected) in (0..).zip(payloads) {
        let read = payload(&log, uid);
        match uid {
            0 => assert!(read.is_err(), "it has ended"),
            _ => assert_eq!(read, Ok(expected.unwrap_or_default()), "task {uid}"),
        }
    }
}

/// A frame that is whole but no task was written by something else: going on would drop what was promised.
#[test]
fn frames_that_are_no_tasks_are_refused() {
    for content in [vec![], vec![2, 0, 0], vec![9, 0, 0, 0, b'{', b'}'], vec![2, 0, 0, 0, b'{', b'}']] {
        let disk = MemDisk::new();
        let shared: Rc<dyn Disk> = Rc::new(disk.clone());
        let mut found = Found {
            finished: &FinishedSet::default(),
            undelivered: &RoaringBitmap::new(),
            open: Open::default(),
            tasks: Vec::new(),
            failure: None,
        };
        let log = Log::open(shared, Path::new(FOLDER), LogOptions::default(), &mut found);
        let log = block_on(log).expect("it opens");
        block_on(log.append(vec![content.clone()])).expect("it is appended");
        assert!(matches!(open(&disk, &[], &[]), Err(ControlError::Storage(_))), "{content:?}");
    }
}

/// The client can be told what to do; `internal` says nothing.
#[test]
fn a_task_that_needs_another_file_names_the_limit() {
    let error = LogError::Disk(DiskError::TooManyFiles { path: "log".into() });
    assert_eq!(append_failed(error), ControlError::TooManyFiles);
}
