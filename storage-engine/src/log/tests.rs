use futures_lite::future::block_on;
use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::io::mem::MemDisk;
use crate::io::sim::{Faults, SimDisk};

mod opening;

/// A frame with all of its content.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Frame {
    position: Position,
    content: Vec<u8>,
}

/// Wants and keeps everything.
impl Visitor for Vec<Frame> {
    fn wanted(&self, _: &[u8]) -> usize {
        usize::MAX
    }

    fn frame(&mut self, position: Position, content: Vec<u8>) {
        self.push(Frame { position, content });
    }
}

/// Opens a log in pieces so small that most frames lie in several, and gives all that is in it.
async fn open_whole(disk: impl Disk + 'static, options: LogOptions) -> Result<(Log, Vec<Frame>), LogError> {
    let mut found = Vec::new();
    let log = Log::open_in_pieces(Rc::new(disk), Path::new("log"), options, &mut found, 23).await?;
    Ok((log, found))
}

fn open(disk: &MemDisk) -> (Log, Vec<Frame>) {
    let options = LogOptions { segment_bytes: 200 };
    block_on(open_whole(disk.clone(), options)).expect("it opens")
}

#[test]
fn frames_come_back_in_order_over_many_segments() {
    let disk = MemDisk::new();
    let (log, found) = open(&disk);
    assert!(found.is_empty());
    let mut positions = Vec::new();
    for number in 0..50u8 {
        positions.push(block_on(log.append(vec![vec![number; 7], vec![1]])).expect("it is appended"));
    }
    let (log, found) = open(&disk);
    let content = |number: u8| [vec![number; 7], vec![1]].concat();
    assert_eq!(found.len(), 50);
    for (number, (frame, position)) in found.iter().zip(&positions).enumerate() {
        assert_eq!((&frame.content, frame.position), (&content(number as u8), *position));
        assert_eq!(block_on(log.read(*position)).expect("it is there"), frame.content);
    }
    block_on(log.remove_before(positions[30].offset)).expect("it removes");
    assert!(block_on(log.read(positions[0])).is_err());
    assert_eq!(block_on(log.read(positions[30])).expect("it stays"), content(30));
    let (log, found) = open(&disk);
    assert!(found.len() >= 20 && found.len() < 50);
    let next = block_on(log.append(vec![vec![9]])).expect("it goes on");
    assert!(next.offset > positions[49].offset);
}

/// A writer that syncs for each frame would be slower by the number of clients.
#[test]
fn frames_appended_together_share_their_syncs() {
    let disk = MemDisk::new();
    let (log, _) = open(&disk);
    let appends = (0..20u8).map(|number| log.append(vec![vec![number]]));
    let positions: Vec<Position> =
        block_on(join_all(appends)).into_iter().map(|p| p.expect("it is appended")).collect();
    assert!(positions.is_sorted());
    let (_, found) = open(&disk);
    assert_eq!(found.iter().map(|frame| frame.position).collect::<Vec<_>>(), positions);
}

/// A power cut may leave any part of the last frame, which was not acknowledged; what was stays.
#[test]
fn a_torn_tail_is_cut_off_wherever_it_was_torn() {
    let disk = MemDisk::new();
    let (log, _) = open(&disk);
    block_on(log.append(vec![b"first".to_vec()])).expect("it is appended");
    block_on(log.append(vec![b"second".to_vec()])).expect("it is appended");
    let path = segment_path(Path::new("log"), 0);
    let whole = disk.bytes(&path).expect("the segment is there");
    let first_end = 16 + frame::HEADER_BYTES + 5;
    for cut in first_end..whole.len() {
        for garbage in [0u8, 0xff] {
            let mut bytes = whole[..cut].to_vec();
            bytes.extend(std::iter::repeat_n(garbage, whole.len() - cut));
            if bytes == whole {
                continue;
            }
            disk.put(&path, bytes);
            let (log, found) = open(&disk);
            assert_eq!(found.iter().map(|f| f.content.as_slice()).collect::<Vec<_>>(), [b"first"], "cut at {cut}");
            block_on(log.append(vec![b"third".to_vec()])).expect("it goes on");
            let (_, found) = open(&disk);
            assert_eq!(found.iter().map(|f| f.content.as_slice()).collect::<Vec<_>>(), [b"first", b"third"]);
        }
    }
}

/// Damage before the last segment is no torn write: going on would lose what was acknowledged.
#[test]
fn damage_in_an_earlier_segment_is_refused() {
    let disk = MemDisk::new();
    let (log, _) = open(&disk);
    for number in 0..50u8 {
        block_on(log.append(vec![vec![number; 20]])).expect("it is appended");
    }
    let path = segment_path(Path::new("log"), 0);
    let mut bytes = disk.bytes(&path).expect("the segment is there");
    bytes[40] ^= 1;
    disk.put(&path, bytes);
    let opened = block_on(open_whole(disk, LogOptions { segment_bytes: 200 }));
    assert!(matches!(opened, Err(LogError::Damaged { .. })));
}

/// A bit that flips in an acknowledged frame of the newest segment once looked like a torn tail, and all frames behind it were
/// cut off.
#[test]
fn damage_in_the_last_segment_is_no_torn_tail() {
    for flipped in 16..16 + 2 * (frame::HEADER_BYTES + 20) {
        let disk = MemDisk::new();
        let options = LogOptions { segment_bytes: 1 << 20 };
        let (log, _) = block_on(open_whole(disk.clone(), options)).expect("it opens");
        for number in 0..5u8 {
            block_on(log.append(vec![vec![number; 20]])).expect("it is appended");
        }
        let path = segment_path(Path::new("log"), 0);
        let mut bytes = disk.bytes(&path).expect("the segment is there");
        bytes[flipped] ^= 4;
        disk.put(&path, bytes.clone());
        let opened = block_on(open_whole(disk.clone(), options));
        assert!(matches!(opened, Err(LogError::Damaged { .. })), "byte {flipped}");
        assert_eq!(disk.bytes(&path), Some(bytes), "what may be restored is left alone");
    }
}

/// A disk whose operations take several turns, so that appends meet a flush under way. While one was, others were once
/// refused as if the log had failed.
#[test]
fn appends_during_a_flush_wait_for_the_next() {
    let disk = SimDisk::new();
    disk.set_delays(3);
    block_on(async {
        let (log, _) = open_whole(disk.clone(), LogOptions::default()).await.expect("it opens");
        let appends = (0..200u8).map(|number| {
            let log = log.clone();
            async move {
                for _ in 0..number {
                    futures_lite::future::yield_now().await;
                }
                log.append(vec![vec![number; 9]]).await.expect("it is appended")
            }
        });
        let positions = join_all(appends).await;
        for (number, position) in positions.iter().enumerate() {
            assert_eq!(log.read(*position).await.expect("it is there"), vec![number as u8; 9]);
        }
        let (_, found) = open_whole(disk.clone(), LogOptions::default()).await.expect("again");
        assert_eq!(found.len(), 200);
    });
}

/// Those who wait may go away, as when a client hangs up: the flush and those behind it go on.
#[test]
fn an_append_that_is_dropped_holds_up_no_other() {
    let disk = SimDisk::new();
    disk.set_delays(5);
    block_on(async {
        let (log, _) = open_whole(disk.clone(), LogOptions::default()).await.expect("it opens");
        for number in 0..30u8 {
            let mut dropped = Box::pin(log.append(vec![vec![1; 100]]));
            assert!(futures_lite::future::poll_once(&mut dropped).await.is_none_or(|done| done.is_ok()));
            drop(dropped);
            let position = log.append(vec![vec![number]]).await.expect("it is appended");
            assert_eq!(log.read(position).await.expect("it is there"), [number]);
        }
    });
}

/// A full device refuses frames, keeps those it has, and takes new ones once there is room.
#[test]
fn a_full_device_refuses_and_recovers() {
    let disk = SimDisk::new();
    let options = LogOptions { segment_bytes: 300 };
    block_on(async {
        let (log, _) = open_whole(disk.clone(), options).await.expect("it opens");
        let mut kept = Vec::new();
        for capacity in [1000u64, 1100, 2000] {
            disk.set_faults(Faults { capacity: Some(capacity), ..Faults::default() });
            loop {
                let content = vec![kept.len() as u8; 50];
                match log.append(vec![content.clone()]).await {
                    Ok(_) => kept.push(content),
                    Err(error) => {
                        assert!(matches!(error, LogError::Disk(DiskError::NoSpace { .. })));
                        break;
                    }
                }
            }
            let (_, found) = open_whole(disk.after_power_cut(1), options).await.expect("it opens");
            assert_eq!(found.into_iter().map(|frame| frame.content).collect::<Vec<_>>(), kept);
        }
        assert!(kept.len() > 20);
    });
}

/// What was acknowledged is there after a power cut before any operation, and nothing else but what was under way.
#[test]
fn a_cut_before_any_operation_keeps_what_was_acknowledged() {
    let options = LogOptions { segment_bytes: 250 };
    for cut in 0.. {
        let disk = SimDisk::new();
        disk.set_faults(Faults { cut_before: Some(cut), ..Faults::default() });
        let done = block_on(async {
            let (log, _) = open_whole(disk.clone(), options).await.ok()?;
            let mut done = 0u8;
            while done < 20 && log.append(vec![vec![done; 40]]).await.is_ok() {
                done += 1;
            }
            Some(done)
        });
        for seed in 0..12 {
            let after = disk.after_power_cut(seed);
            let (_, found) = block_on(open_whole(after, options)).expect("it opens");
            let done = usize::from(done.unwrap_or(0));
            assert!(found.len() == done || found.len() == done + 1, "cut {cut}, seed {seed}");
            assert!(found.iter().enumerate().all(|(number, frame)| frame.content == vec![number as u8; 40]));
        }
        if done == Some(20) {
            break;
        }
    }
}

/// When everything in the log is of no use any more, its last segment goes too, and positions go on.
#[test]
fn a_long_last_segment_goes_with_its_last_frame() {
    let disk = MemDisk::new();
    let (log, _) = open(&disk);
    let first = block_on(log.append(vec![vec![1; 100]])).expect("it is appended");
    block_on(log.remove_before(first.end())).expect("it is short");
    assert!(block_on(log.read(first)).is_ok());
    let second = block_on(log.append(vec![vec![2; 100]])).expect("it is appended");
    block_on(log.remove_before(second.offset)).expect("there is nothing to remove");
    assert!(block_on(log.read(first)).is_ok());
    block_on(log.remove_before(second.end())).expect("it removes");
    assert_eq!((block_on(log.read(second)).is_err(), log.file_bytes(), log.end()), (true, 16, second.end()));
    let (log, found) = open(&disk);
    assert_eq!((found, log.end()), (Vec::new(), second.end()));
    let third = block_on(log.append(vec![vec![3]])).expect("it is appended");
    let (_, found) = open(&disk);
    assert_eq!((third.offset, found.len()), (second.end(), 1));
}

/// A cut while segments are replaced and removed loses no frame that was still wanted, and brings none back out of order.
#[test]
fn a_cut_while_segments_are_removed_keeps_the_rest() {
    let options = LogOptions { segment_bytes: 250 };
    for (cut, capacity) in (0..140).flat_map(|cut| [(cut, None), (cut, Some(280)), (cut, Some(300))]) {
        let disk = SimDisk::new();
        disk.set_faults(Faults { cut_before: Some(cut), capacity, ..Faults::default() });
        let (mut done, mut removed) = (0u8, 0u8);
        block_on(async {
            let Ok((log, _)) = open_whole(disk.clone(), options).await else { return };
            let mut full = 0;
            while done < 30 && full < 10 {
                match log.append(vec![vec![done; 40]]).await {
                    Ok(position) => {
                        done += 1;
                        if done.is_multiple_of(5) {
                            removed = done;
                            // A full device keeps a segment; the next removal takes it.
                            let _ = log.remove_before(position.end()).await;
                        }
                    }
                    Err(LogError::Disk(DiskError::NoSpace { .. })) => full += 1,
                    Err(_) => return,
                }
            }
        });
        for seed in 0..12 {
            let after = disk.after_power_cut(seed);
            let opened = block_on(open_whole(after, options));
            let (_, found) = opened.unwrap_or_else(|error| panic!("cut {cut}, seed {seed}: {error}"));
            let numbers: Vec<u8> = found.iter().map(|frame| frame.content[0]).collect();
            let first = numbers.first().copied().unwrap_or(done);
            assert!(first <= removed || numbers.is_empty() && removed == done, "cut {cut}, seed {seed}: {numbers:?}");
            let end = first + numbers.len() as u8;
            assert!(end == done || end == done + 1, "cut {cut}, seed {seed}: {numbers:?} of {done}");
            assert!(numbers.iter().copied().eq(first..end));
        }
        assert!(cut < 139 || done == 30 || capacity.is_some(), "the last round is whole");
    }
}

/// Whoever accepts many at once is promised all or none, for the price of one sync.
#[test]
fn frames_given_together_are_kept_together_or_not_at_all() {
    let frames = || (0..20u8).map(|number| vec![vec![number], vec![7]]).collect::<Vec<_>>();
    let disk = SimDisk::new();
    let (log, _) = block_on(open_whole(disk.clone(), LogOptions::default())).expect("it opens");
    block_on(log.append(vec![b"first".to_vec()])).expect("it is appended");
    disk.set_faults(Faults { capacity: Some(150), ..Faults::default() });
    assert!(block_on(log.append_all(frames())).is_err());
    disk.set_faults(Faults::default());
    let positions = block_on(log.append_all(frames())).expect("they are appended");
    // A write and a sync.
    assert_eq!((positions.len(), disk.operations()), (20, 2));
    let (_, found) = block_on(open_whole(disk, LogOptions::default())).expect("it opens");
    assert_eq!(found[1..].iter().map(|frame| frame.position).collect::<Vec<_>>(), positions);
    assert_eq!(block_on(log.append_all(Vec::new())), Ok(Vec::new()));
}

/// A damaged log is refused or cut behind frames that are as they were; it is never read wrong.
#[test]
fn damaged_logs_give_no_wrong_frames() {
    let disk = MemDisk::new();
    let options = LogOptions { segment_bytes: 1 << 20 };
    let (log, _) = block_on(open_whole(disk.clone(), options)).expect("it opens");
    for number in 0..30u8 {
        block_on(log.append(vec![vec![number; usize::from(number) * 7]])).expect("it is appended");
    }
    let path = segment_path(Path::new("log"), 0);
    let whole = disk.bytes(&path).expect("the segment is there");
    for seed in 0..2000 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut bytes = whole.clone();
        let cut_only = rng.random_ratio(1, 4);
        if cut_only {
            bytes.truncate(rng.random_range(0..bytes.len()));
        } else {
            let at = rng.random_range(0..bytes.len());
            let end = bytes.len().min(at + rng.random_range(1..300));
            if rng.random() { rng.fill(&mut bytes[at..end]) } else { bytes[at..end].fill(0) }
        }
        disk.put(&path, bytes);
        let opened = block_on(open_whole(disk.clone(), options));
        let Ok((log, found)) = opened else {
            assert!(!cut_only, "a cut file looks like a torn write");
            continue;
        };
        assert!(found.iter().enumerate().all(|(number, frame)| frame.content == vec![number as u8; number * 7]));
        let position = block_on(log.append(vec![b"more".to_vec()])).expect("it goes on");
        assert_eq!(block_on(log.read(position)).expect("it is there"), b"more");
    }
}

/// A last segment that another version wrote, or whose header is damaged, once was deleted with the frames in it.
#[test]
fn a_segment_with_another_header_is_refused_and_left_alone() {
    let options = LogOptions { segment_bytes: 1 << 20 };
    let path = segment_path(Path::new("log"), 0);
    let opened_with = |change: fn(&mut Vec<u8>)| {
        let disk = MemDisk::new();
        let (log, _) = block_on(open_whole(disk.clone(), options)).expect("it opens");
        block_on(log.append(vec![b"acknowledged".to_vec()])).expect("it is appended");
        let mut bytes = disk.bytes(&path).expect("the segment is there");
        change(&mut bytes);
        disk.put(&path, bytes.clone());
        let error = block_on(open_whole(disk.clone(), options)).err();
        assert_eq!(disk.bytes(&path), Some(bytes));
        error
    };
    let file = path.display().to_string();
    assert_eq!(opened_with(|bytes| bytes[8] = 2), Some(LogError::Version { file: file.clone(), found: 2 }));
    assert_eq!(opened_with(|bytes| bytes[8] = 0), Some(LogError::Damaged { file: file.clone(), offset: 0 }));
    assert_eq!(opened_with(|bytes| bytes[3] ^= 1), Some(LogError::Damaged { file, offset: 0 }));
}

/// Damage found while a frame is read was once reported like a frame that was never there.
#[test]
fn a_damaged_frame_that_is_read_is_named() {
    let disk = MemDisk::new();
    let (log, _) = open(&disk);
    let position = block_on(log.append(vec![b"content".to_vec()])).expect("it is appended");
    let path = segment_path(Path::new("log"), 0);
    let segment = block_on(disk.open(&path, OpenMode::Existing)).expect("the segment is there");
    block_on(segment.write_at(40, b"C".to_vec())).expect("it is written");
    let file = path.display().to_string();
    assert_eq!(block_on(log.read(position)), Err(LogError::Damaged { file, offset: position.offset }));
    let missing = Position { offset: 1000, len: 1 };
    assert_eq!(block_on(log.read(missing)), Err(LogError::NoFrame(1000)));
}
