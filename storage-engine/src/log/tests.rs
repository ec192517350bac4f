use futures_lite::future::block_on;
use futures_util::future::join_all;

use super::*;
use crate::io::mem::MemDisk;

fn open(disk: &MemDisk) -> (Log, Vec<Frame>) {
    let options = LogOptions { segment_bytes: 200 };
    block_on(Log::open(Rc::new(disk.clone()), Path::new("log"), options)).expect("it opens")
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
    let first_end = 16 + 12 + 5;
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
    let opened = block_on(Log::open(Rc::new(disk), Path::new("log"), LogOptions { segment_bytes: 200 }));
    assert!(matches!(opened, Err(LogError::Damaged { .. })));
}
