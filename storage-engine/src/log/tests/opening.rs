//! Opening in pieces, against a twin that has each segment in memory as a whole.

use xxhash_rust::xxh3::Xxh3;

use super::*;
use crate::io::{IoFuture, View};

/// What a log of these segments holds: its frames and where they end, or where it is damaged.
struct Twin {
    frames: Vec<Frame>,
    end: Result<u64, u64>,
}

impl Twin {
    fn of(segments: &[(u64, Vec<u8>)]) -> Self {
        let (mut frames, mut end) = (Vec::new(), segments.first().map_or(0, |(start, _)| *start));
        for (number, (start, bytes)) in segments.iter().enumerate() {
            if has_damaged_header(bytes, *start) {
                return Self { frames, end: Err(*start) };
            }
            let whole = whole_frames(bytes, *start, &mut frames);
            end = start + whole.max(16) as u64 - 16;
            match segments.get(number + 1) {
                Some((next, _)) if *next != end => return Self { frames, end: Err(start + whole as u64) },
                None if proves_durable(bytes.get(whole.max(16)..).unwrap_or_default(), end) => {
                    return Self { frames, end: Err(end) };
                }
                _ => {}
            }
        }
        Self { frames, end: Ok(end) }
    }
}

/// Whether a frame follows something that is no header, or a header is of another version.
fn has_damaged_header(bytes: &[u8], start: u64) -> bool {
    let Some((head, frames)) = bytes.split_at_checked(16) else { return false };
    if head[..8] == MAGIC && head[8..12] != [0; 4] {
        return head[8..12] != VERSION.to_le_bytes();
    }
    decode(frames, start).is_some()
}

/// Adds the frames of a segment up to the first that is not whole; how many bytes they take.
fn whole_frames(bytes: &[u8], start: u64, frames: &mut Vec<Frame>) -> usize {
    if bytes.len() < 16 || bytes[..8] != MAGIC || bytes[8..12] != VERSION.to_le_bytes() {
        return 0;
    }
    let mut at = 16;
    while let Some(content) = decode(&bytes[at..], start + at as u64 - 16) {
        let position = Position { offset: start + at as u64 - 16, len: content.len() as u32 };
        frames.push(Frame { position, content: content.to_vec() });
        at += 20 + content.len();
    }
    at
}

fn proves_durable(bytes: &[u8], position: u64) -> bool {
    (0..bytes.len()).any(|at| {
        let (rest, place) = (&bytes[at..], position + at as u64);
        let synced = number(rest, 12, 8);
        synced.is_some_and(|synced| synced > position && synced <= place) && decode(rest, place).is_some()
    })
}

/// The content of the frame at the start of `bytes`, if a whole one is there.
fn decode(bytes: &[u8], position: u64) -> Option<&[u8]> {
    let (len, sum, synced) = (number(bytes, 0, 4)?, number(bytes, 4, 8)?, number(bytes, 12, 8)?);
    let content = bytes.get(20..20 + len as usize)?;
    let mut hash = Xxh3::new();
    for number in [position, synced, len] {
        hash.update(&number.to_le_bytes());
    }
    hash.update(content);
    (hash.digest() == sum).then_some(content)
}

fn number(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    Some(bytes.get(at..at + len)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn segments(disk: &MemDisk) -> Vec<(u64, Vec<u8>)> {
    let names = block_on(disk.list_dir(Path::new("log"))).expect("the folder is there");
    let starts = names.iter().map(|name| segment_start(name).expect("nothing else lies there"));
    starts.map(|start| (start, disk.bytes(&segment_path(Path::new("log"), start)).expect("it is there"))).collect()
}

/// A log of several segments, its frames appended one by one and in groups.
fn random_log(rng: &mut StdRng) -> MemDisk {
    let disk = MemDisk::new();
    let options = LogOptions { segment_bytes: rng.random_range(40..1500) };
    let (log, _) = block_on(open_whole(disk.clone(), options)).expect("it opens");
    for _ in 0..rng.random_range(0..12) {
        let group = (0..rng.random_range(1..4)).map(|_| {
            let mut content = vec![0; rng.random_range(0..200)];
            if rng.random() {
                rng.fill(&mut content[..]);
            }
            vec![content]
        });
        let positions = block_on(log.append_all(group.collect())).expect("they are appended");
        if rng.random_ratio(1, 6) {
            block_on(log.remove_before(positions[0].offset)).expect("it removes");
        }
    }
    disk
}

/// Does to a segment what a power cut or a bad device may do, or nothing.
fn disturb(rng: &mut StdRng, bytes: &mut Vec<u8>) {
    let at = rng.random_range(0..bytes.len());
    let end = bytes.len().min(at + rng.random_range(1..60));
    match rng.random_range(0..8) {
        0 => bytes.truncate(at),
        1 => bytes.truncate(at % 20),
        2 => bytes[at] ^= 1 << rng.random_range(0..8),
        3 => bytes[at..end].fill(0),
        4 => rng.fill(&mut bytes[at..end]),
        5 => bytes.extend(vec![rng.random::<u8>(); end - at]),
        // Frames that were written somewhere else.
        6 => bytes.extend_from_within(at..),
        _ => {}
    }
}

/// Where the pieces end must make no difference to what is found, refused or cut off.
#[test]
fn pieces_of_any_size_give_what_whole_segments_give() {
    let (mut refused, mut cut) = (0, 0);
    for seed in 0..6000 {
        let mut rng = StdRng::seed_from_u64(seed);
        let disk = random_log(&mut rng);
        let before = segments(&disk);
        // The last segment more often than the others: there a torn write is to be told from damage.
        let last = before.len().saturating_sub(1);
        let disturbed = if rng.random_ratio(3, 4) { last } else { rng.random_range(0..=last) };
        if let Some((start, mut bytes)) = before.get(disturbed).cloned() {
            disturb(&mut rng, &mut bytes);
            disk.put(&segment_path(Path::new("log"), start), bytes);
        }
        let before = segments(&disk);
        let twin = Twin::of(&before);
        let mut found = Vec::new();
        let (options, piece_bytes) = (LogOptions::default(), rng.random_range(1..300));
        let opened = Log::open_in_pieces(Rc::new(disk.clone()), Path::new("log"), options, &mut found, piece_bytes);
        match (block_on(opened), twin.end) {
            (Ok(log), Ok(end)) => {
                assert_eq!((&found, log.end()), (&twin.frames, end), "seed {seed}");
                let bytes: usize = before.iter().map(|(_, bytes)| bytes.len()).sum();
                cut += usize::from(log.file_bytes() < bytes as u64);
                let left = segments(&disk);
                let again = Twin::of(&left);
                // Positions begin anew where not even a segment's header was whole.
                let again_end = if left.is_empty() { Ok(0) } else { Ok(end) };
                assert_eq!((again.frames, again.end), (found, again_end), "seed {seed}: what is left is the same");
            }
            (Err(LogError::Damaged { offset, .. }), Err(place)) => {
                assert_eq!(offset, place, "seed {seed}");
                assert_eq!(segments(&disk), before, "seed {seed}: what may be restored is left alone");
                refused += 1;
            }
            (Err(LogError::Version { .. }), Err(_)) => assert_eq!(segments(&disk), before, "seed {seed}"),
            (opened, end) => panic!("seed {seed}: {:?} instead of {end:?}", opened.map(|log| log.end())),
        }
    }
    assert!(refused > 500 && cut > 500, "both happen: {refused}, {cut}");
}

/// Wants what frames say: a length, as many bytes as that, and nothing of what is behind.
#[derive(Default)]
struct Heads(Vec<(Position, Vec<u8>)>);

impl Visitor for Heads {
    fn wanted(&self, head: &[u8]) -> usize {
        head.first_chunk().map_or(4, |len| 4 + u32::from_le_bytes(*len) as usize)
    }

    fn frame(&mut self, position: Position, head: Vec<u8>) {
        self.0.push((position, head));
    }
}

#[test]
fn of_each_frame_only_the_head_is_kept() {
    let disk = MemDisk::new();
    let (log, _) = open(&disk);
    let mut expected = Vec::new();
    for (head, behind) in [(0, 0), (0, 90), (3, 0), (5, 1000), (700, 2), (50, 50), (1, 1)] {
        let parts = [(head as u32).to_le_bytes().to_vec(), vec![7; head], vec![8; behind]];
        let position = block_on(log.append(parts.to_vec())).expect("it is appended");
        expected.push((position, parts[..2].concat()));
    }
    // Shorter than a length, and shorter than it says.
    for content in [vec![], vec![1], vec![9, 0, 0, 0, 1], vec![0xff; 5]] {
        expected.push((block_on(log.append(vec![content.clone()])).expect("it is appended"), content));
    }
    for piece_bytes in (1..60).chain([100, 1000, PIECE_BYTES]) {
        let (disk, options) = (Rc::new(disk.clone()), LogOptions::default());
        let mut heads = Heads::default();
        let opened = Log::open_in_pieces(disk, Path::new("log"), options, &mut heads, piece_bytes);
        assert_eq!(block_on(opened).expect("it opens").end(), log.end());
        assert_eq!(heads.0, expected, "pieces of {piece_bytes} bytes");
    }
}

/// A file that remembers how much was read of it at once.
struct Watched {
    file: Rc<dyn DiskFile>,
    longest_read: Cell<usize>,
}

impl DiskFile for Watched {
    fn len(&self) -> u64 {
        self.file.len()
    }

    fn read_at(&self, offset: u64, len: usize) -> IoFuture<'_, Vec<u8>> {
        self.longest_read.set(self.longest_read.get().max(len));
        self.file.read_at(offset, len)
    }

    fn write_at(&self, offset: u64, bytes: Vec<u8>) -> IoFuture<'_, ()> {
        self.file.write_at(offset, bytes)
    }

    fn set_len(&self, len: u64) -> IoFuture<'_, ()> {
        self.file.set_len(len)
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        self.file.sync()
    }

    fn view(&self) -> Result<View, DiskError> {
        self.file.view()
    }
}

/// Segments were once read whole, and all contents kept: a log longer than memory could not be opened again.
#[test]
fn long_frames_are_read_in_pieces() {
    let disk = MemDisk::new();
    let log = block_on(Log::open(Rc::new(disk.clone()), Path::new("log"), LogOptions::default(), &mut Vec::new()));
    let (log, path) = (log.expect("it opens"), segment_path(Path::new("log"), 0));
    let content = [4u32.to_le_bytes().to_vec(), vec![3; 4], vec![5; 5 * PIECE_BYTES / 2]].concat();
    for _ in 0..3 {
        block_on(log.append(vec![content.clone()])).expect("it is appended");
    }
    let whole = disk.bytes(&path).expect("the segment is there").len() as u64;
    let file = block_on(disk.open(&path, OpenMode::Existing)).expect("it opens");
    let watched = Watched { file, longest_read: Cell::default() };
    let mut heads = Heads::default();
    assert_eq!(block_on(reader::read_segment(&watched, 0, PIECE_BYTES, &mut heads)), Ok(SegmentHead::Whole(whole)));
    assert!(heads.0.iter().all(|(_, head)| *head == content[..8]) && heads.0.len() == 3);
    // The second and third frame were written when the one before was durable; behind the third there is nothing.
    let frame_bytes = log.end() / 3;
    for (position, proved) in
        [(1, true), (frame_bytes + 1, true), (2 * frame_bytes, false), (2 * frame_bytes + 1, false)]
    {
        let found = reader::proves_durable(&watched, 16 + position, position, PIECE_BYTES);
        assert_eq!(block_on(found), Ok(proved), "byte {position}");
    }
    assert_eq!(watched.longest_read.get(), PIECE_BYTES);
    let (_, found) = block_on(open_whole(disk, LogOptions::default())).expect("it opens");
    assert!(found.iter().all(|frame| frame.content == content) && found.len() == 3);
}

/// The disk takes several turns for each read, and the power goes while a long frame is written.
#[test]
fn a_cut_within_a_long_frame_keeps_those_before() {
    let options = LogOptions { segment_bytes: 3000 };
    for seed in 0..200 {
        let disk = SimDisk::new();
        disk.set_delays(seed);
        let frame = |number: u8| vec![number; 400 + 37 * usize::from(number)];
        let done = block_on(async {
            let (log, _) = open_whole(disk.clone(), options).await.expect("it opens");
            disk.set_faults(Faults { cut_before: Some(2 + seed % 40), ..Faults::default() });
            let mut done = 0u8;
            while done < 20 && log.append(vec![frame(done)]).await.is_ok() {
                done += 1;
            }
            usize::from(done)
        });
        let after = disk.after_power_cut(seed);
        after.set_delays(seed);
        let (log, found) = block_on(open_whole(after.clone(), options)).expect("it opens");
        assert!(found.len() == done || found.len() == done + 1, "seed {seed}");
        assert!((0..).zip(&found).all(|(number, found)| found.content == frame(number)), "seed {seed}");
        block_on(log.append(vec![frame(1)])).expect("it goes on");
        let (_, again) = block_on(open_whole(after, options)).expect("it opens again");
        assert_eq!(again.len(), found.len() + 1);
    }
}
