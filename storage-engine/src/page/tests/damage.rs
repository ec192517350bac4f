//! Damaged files and failures half-way: an error that names the damage, or the right answer; never a wrong one, never a panic.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use futures_lite::future::{block_on, poll_once};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::io::sim::{Faults, SimDisk};
use crate::io::{Disk, OpenMode};
use crate::page::meta::Meta;
use crate::page::node::checksum;
use crate::page::*;

const PATH: &str = "/data/damaged.store";
const TREES: [TreeId; 2] = [TreeId(0), TreeId(7)];

type Contents = BTreeMap<(u8, Vec<u8>), Vec<u8>>;

async fn open(disk: &SimDisk) -> Result<PageStore, OpenError> {
    let options = StoreOptions { create: true, at_most_epoch: None };
    PageStore::open(Rc::new(disk.clone()), Path::new(PATH), options).await
}

/// A store of some commits, with values in runs and a free list.
async fn sample(disk: &SimDisk) -> (PageStore, Contents) {
    let store = open(disk).await.expect("it opens");
    let mut contents = Contents::new();
    let mut rng = StdRng::seed_from_u64(11);
    for epoch in 1..=3 {
        let mut txn = store.begin_write().expect("the only one");
        for _ in 0..250 {
            let (tree, key) =
                (TREES[rng.random_range(0..2)], format!("key {:04}", rng.random_range(0..600)).into_bytes());
            let long = rng.random_ratio(1, 20);
            let value = vec![epoch as u8; if long { rng.random_range(1400..9000) } else { rng.random_range(0..80) }];
            txn.put(tree, &key, &value).expect("it is put");
            contents.insert((tree.0, key), value);
        }
        txn.commit(epoch).await.expect("it commits");
    }
    (store, contents)
}

async fn bytes_of(disk: &SimDisk) -> Vec<u8> {
    let file = disk.open(Path::new(PATH), OpenMode::Existing).await.expect("it is there");
    file.read_at(0, file.len() as usize).await.expect("it can be read")
}

async fn disk_of(bytes: Vec<u8>) -> SimDisk {
    let disk = SimDisk::new();
    let file = disk.open(Path::new(PATH), OpenMode::CreateNew).await.expect("it is new");
    file.write_at(0, bytes).await.expect("it is written");
    disk
}

/// Reads a store in all ways. What can be read must be what some commit had put there.
fn read_all(store: &PageStore, contents: &Contents) {
    let snapshot = store.snapshot();
    for ((tree, key), value) in contents {
        if let Ok(Some(found)) = snapshot.get(TreeId(*tree), key)
            && store.epoch() == 3
        {
            assert_eq!(found, value);
        }
    }
    for tree in TREES {
        let mut forward = 0;
        let mut cursor = snapshot.cursor(tree);
        let ended = loop {
            match cursor.next() {
                Ok(Some((key, value))) => {
                    let known = contents.get(&(tree.0, key.to_vec()));
                    assert!(known.is_some_and(|known| known == value || store.epoch() < 3));
                    forward += 1;
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        match ended {
            Ok(()) => {
                assert_eq!(forward, snapshot.entry_count(tree), "a walk that ends without an error missed nothing")
            }
            Err(error) => assert_eq!(cursor.next().err(), Some(error), "the cursor goes on giving its error"),
        }
        let mut cursor = snapshot.cursor(tree);
        if cursor.seek_to_end().is_ok() {
            while let Ok(Some(_)) = cursor.prev() {}
        }
    }
}

async fn write_all(store: &PageStore, contents: &Contents) {
    let Ok(mut txn) = store.begin_write() else { return };
    let mut broken = false;
    for (number, (tree, key)) in contents.keys().enumerate() {
        let result = match number % 3 {
            0 => txn.delete(TreeId(*tree), key).map(drop),
            _ => txn.put(TreeId(*tree), key, &[1; 30]),
        };
        broken |= result.is_err();
    }
    broken |= txn.clear(TREES[0]).await.is_err();
    let committed = txn.commit(9).await;
    assert_eq!(committed.is_err(), broken, "half a change is never committed");
}

/// Damages an image as disks and operators do.
fn damage(bytes: &mut Vec<u8>, rng: &mut StdRng) {
    let pages = bytes.len() / PAGE_BYTES;
    let page = |rng: &mut StdRng| rng.random_range(0..pages) * PAGE_BYTES;
    match rng.random_range(0..6) {
        0 => (0..rng.random_range(1..4)).for_each(|_| {
            let at = rng.random_range(0..bytes.len());
            bytes[at] ^= 1 << rng.random_range(0..8);
        }),
        1 => bytes.truncate(rng.random_range(0..bytes.len())),
        2 => {
            let (from, to) = (page(rng), page(rng));
            bytes.copy_within(from..from + PAGE_BYTES, to);
        }
        3 => {
            let at = page(rng);
            bytes[at..at + PAGE_BYTES].fill(0);
        }
        4 => {
            let sector = rng.random_range(0..bytes.len() / 512) * 512;
            rng.fill(&mut bytes[sector..sector + 512]);
        }
        _ => {
            let (a, b) = (page(rng), page(rng));
            for at in 0..PAGE_BYTES {
                bytes.swap(a + at, b + at);
            }
        }
    }
}

#[test]
fn a_file_that_was_cut_off_is_refused() {
    block_on(async {
        let disk = SimDisk::new();
        let (store, contents) = sample(&disk).await;
        let in_use = PageNo(store.snapshot().meta().page_count).offset() as usize;
        drop(store);
        let mut bytes = bytes_of(&disk).await;
        bytes.truncate(in_use);
        let whole = open(&disk_of(bytes.clone()).await).await.expect("all that is in use is there");
        read_all(&whole, &contents);
        bytes.truncate(in_use - 1);
        assert!(matches!(open(&disk_of(bytes).await).await, Err(OpenError::TooShort { .. })));
    });
}

/// One message for all of it once said no more than that something was wrong with some file.
#[test]
fn a_file_that_is_no_store_of_this_version_says_what_it_is_and_what_to_do() {
    block_on(async {
        let disk = SimDisk::new();
        drop(sample(&disk).await);
        let whole = bytes_of(&disk).await;
        let message = async |change: &dyn Fn(&mut [u8])| {
            let mut bytes = whole.clone();
            change(&mut bytes);
            let opened = open(&disk_of(bytes).await).await;
            opened.err().map(|error| error.to_string())
        };
        // Written as a later version would: whole, with its own number.
        let of_version = |bytes: &mut [u8], slot: u64| {
            for half in 0..2 {
                let at = (slot as usize * 2 + half) * PAGE_BYTES / 2;
                let page = &mut bytes[at..at + PAGE_BYTES / 2];
                page[16..20].copy_from_slice(&7u32.to_le_bytes());
                let sum = checksum(page, PageNo(slot * 2 + half as u64)).to_le_bytes();
                page[..8].copy_from_slice(&sum);
            }
        };
        let version = "/data/damaged.store: the page store has format version 7, this program reads version 1; start the version \
                       of the program that wrote it, or start anew with a dump that it makes";
        // The other page has a state of this version, which is older.
        for slots in [&[0u64, 1][..], &[0], &[1]] {
            let said = message(&|bytes| slots.iter().for_each(|slot| of_version(bytes, *slot))).await;
            assert_eq!(said.as_deref(), Some(version), "{slots:?}");
        }
        let said = message(&|bytes| bytes[..2 * PAGE_BYTES].chunks_exact_mut(64).for_each(|part| part[63] ^= 1)).await;
        let damaged = "/data/damaged.store: both meta pages of the page store are damaged (no half of them matches its checksum); \
                       restore it from a dump or a replica";
        assert_eq!(said.as_deref(), Some(damaged));
        let said = message(&|bytes| bytes[..2 * PAGE_BYTES].fill(b'x')).await;
        let other = "/data/damaged.store: this is no page store (none of its first two pages has the mark of one); put the file back \
                     that was here, or restore it from a dump or a replica";
        assert_eq!(said.as_deref(), Some(other));
        assert_eq!(message(&|_| {}).await, None);
    });
}

#[test]
fn damaged_images_give_errors_and_no_wrong_answers() {
    block_on(async {
        let disk = SimDisk::new();
        let (_, contents) = sample(&disk).await;
        let whole = bytes_of(&disk).await;
        let (mut refused, mut opened) = (0, 0);
        for seed in 0..3000 {
            let mut rng = StdRng::seed_from_u64(seed);
            let mut bytes = whole.clone();
            (0..rng.random_range(1..3)).for_each(|_| {
                if bytes.len() > PAGE_BYTES {
                    damage(&mut bytes, &mut rng);
                }
            });
            match open(&disk_of(bytes).await).await {
                Err(_) => refused += 1,
                Ok(store) => {
                    opened += 1;
                    read_all(&store, &contents);
                    write_all(&store, &contents).await;
                }
            }
        }
        assert!(
            refused > 100 && opened > 1000,
            "{refused} refused, {opened} opened: the damage is too much or too little"
        );
    });
}

/// Pages with a matching checksum and nonsense inside, as a fault of our own would write them: no panic, no endless walk.
#[test]
fn nonsense_with_matching_checksums_gives_errors() {
    block_on(async {
        let disk = SimDisk::new();
        let (_, contents) = sample(&disk).await;
        let whole = bytes_of(&disk).await;
        for seed in 0..2000 {
            let mut rng = StdRng::seed_from_u64(seed);
            let mut bytes = whole.clone();
            let page = rng.random_range(2..bytes.len() / PAGE_BYTES);
            let content = &mut bytes[page * PAGE_BYTES..][..PAGE_BYTES];
            for _ in 0..rng.random_range(1..6) {
                // The front of a page holds kinds, lengths and places.
                let at = if rng.random() { rng.random_range(8..64) } else { rng.random_range(8..PAGE_BYTES) };
                content[at] = rng.random();
            }
            let sum = crate::page::node::checksum(content, PageNo(page as u64)).to_le_bytes();
            content[..8].copy_from_slice(&sum);
            let Ok(store) = open(&disk_of(bytes).await).await else { continue };
            let snapshot = store.snapshot();
            for (tree, key) in contents.keys() {
                drop(snapshot.get(TreeId(*tree), key));
            }
            for tree in TREES {
                let mut cursor = snapshot.cursor(tree);
                for _ in 0..5000 {
                    if !matches!(cursor.next(), Ok(Some(_))) {
                        break;
                    }
                }
            }
        }
    });
}

/// The newest meta page names its state twice: one flipped bit once took back the last commit, in silence.
#[test]
fn a_flipped_bit_in_the_newest_meta_page_takes_back_no_commit() {
    block_on(async {
        let disk = SimDisk::new();
        sample(&disk).await;
        let whole = bytes_of(&disk).await;
        let slot = (0..2).find(|slot| {
            let page = &whole[*slot * PAGE_BYTES..][..PAGE_BYTES];
            Meta::decode(page, PageNo(*slot as u64)).is_some_and(|meta| meta.epoch == 3)
        });
        let start = slot.expect("one of them names the newest state") * PAGE_BYTES;
        for at in (start..start + PAGE_BYTES).step_by(7) {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            assert_eq!(open(&disk_of(bytes).await).await.expect("it opens").epoch(), 3, "byte {at}");
        }
    });
}

/// A state that was dropped at opening once stayed in its meta page while the next commit reused its pages.
#[test]
fn a_dropped_state_does_not_come_back() {
    block_on(async {
        let disk = SimDisk::new();
        drop(sample(&disk).await);
        let options = StoreOptions { create: false, at_most_epoch: Some(2) };
        let store = PageStore::open(Rc::new(disk.clone()), Path::new(PATH), options).await.expect("it opens");
        assert_eq!(store.epoch(), 2);
        for seed in 0..20 {
            assert_eq!(open(&disk.after_power_cut(seed)).await.expect("it opens").epoch(), 2);
        }
    });
}

/// A change that stops at a damaged page has given up pages which the trees still refer to.
#[test]
fn a_transaction_that_met_damage_cannot_be_committed() {
    block_on(async {
        let disk = SimDisk::new();
        let (_, contents) = sample(&disk).await;
        let mut whole = bytes_of(&disk).await;
        for page in 2..whole.len() / PAGE_BYTES {
            // Leaves only: the way down to them must work.
            if whole[page * PAGE_BYTES + 8] == crate::page::node::KIND_LEAF {
                whole[page * PAGE_BYTES + 4000] ^= 1;
            }
        }
        let store = open(&disk_of(whole).await).await.expect("it opens");
        let mut txn = store.begin_write().expect("the only one");
        let (tree, key) = contents.keys().next().expect("there are some");
        assert!(matches!(txn.put(TreeId(*tree), key, b"new"), Err(WriteError::Read(ReadError::Damaged { .. }))));
        assert!(matches!(txn.commit(4).await, Err(CommitError::Broken(_))));
        assert!(store.begin_write().is_ok(), "the store itself goes on");
    });
}

/// While a commit is under way the store is busy, not failed; when its future is dropped half-way, it is failed.
#[test]
fn a_commit_under_way_is_no_failure_and_a_dropped_one_is() {
    block_on(async {
        let disk = SimDisk::new();
        let (store, _) = sample(&disk).await;
        disk.set_delays(1);
        let mut txn = store.begin_write().expect("the only one");
        txn.put(TREES[0], b"k", b"v").expect("it is put");
        let mut commit = Box::pin(txn.commit(4));
        let mut polls = 0;
        while poll_once(&mut commit).await.is_none() {
            assert!(matches!(store.begin_write(), Err(WriteError::Busy)));
            assert!(!store.is_poisoned());
            polls += 1;
        }
        assert!(polls > 2, "the delays keep it from being done at once");
        let mut txn = store.begin_write().expect("the last one has ended");
        txn.put(TREES[0], b"k", b"w").expect("it is put");
        let mut commit = Box::pin(txn.commit(5));
        for _ in 0..20 {
            assert!(poll_once(&mut commit).await.is_none_or(|done| done.is_ok()));
            if store.epoch() == 5 {
                return;
            }
            if disk.operations() % 2 == 1 {
                break;
            }
        }
        drop(commit);
        assert!(matches!(store.begin_write(), Err(WriteError::Poisoned)) || store.epoch() == 5);
        assert!(open(&disk).await.expect("it opens").epoch() >= 4);
    });
}

/// A compaction whose new name may not be durable once left the store writing to a file that a crash would take away.
#[test]
fn commits_around_a_failed_compaction_survive() {
    for cut in 0.. {
        let disk = SimDisk::new();
        let done = block_on(async {
            let (store, contents) = sample(&disk).await;
            disk.set_faults(Faults { cut_before: Some(cut), ..Faults::default() });
            let done = store.compact().await.is_ok();
            disk.set_faults(Faults::default());
            let committed = match store.begin_write() {
                Ok(mut txn) => {
                    txn.put(TREES[1], b"after", b"compaction").expect("it is put");
                    txn.commit(4).await.is_ok()
                }
                Err(_) => false,
            };
            for seed in 0..10 {
                let after = open(&disk.after_power_cut(seed)).await.expect("it opens");
                assert_eq!(after.epoch(), if committed { 4 } else { 3 }, "cut {cut}, seed {seed}");
                read_all(&after, &contents_with(&contents, committed));
            }
            done
        });
        if done {
            break;
        }
    }
}

fn contents_with(contents: &Contents, committed: bool) -> Contents {
    let more = committed.then(|| ((TREES[1].0, b"after".to_vec()), b"compaction".to_vec()));
    contents.clone().into_iter().chain(more).collect()
}

/// A compaction that found the device full once left its copy there.
#[test]
fn a_compaction_on_a_full_device_names_it_and_leaves_nothing() {
    block_on(async {
        let disk = SimDisk::new();
        let (store, contents) = sample(&disk).await;
        let bytes = store.file_bytes();
        for extra in [0, 3 * PAGE_BYTES as u64, bytes / 2] {
            disk.set_faults(Faults { capacity: Some(bytes + extra), ..Faults::default() });
            let error = store.compact().await.expect_err("there is no room");
            assert!(matches!(error.disk(), Some(DiskError::NoSpace { .. })), "{error:?}");
            assert!(!disk.exists(Path::new(&format!("{PATH}.compact"))).await.expect("it answers"));
            read_all(&store, &contents);
        }
        disk.set_faults(Faults::default());
        store.compact().await.expect("there is room");
        read_all(&store, &contents);
    });
}

/// A commit that fails must not be there after a restart: its caller has taken it back.
#[test]
fn a_commit_whose_file_cannot_be_mapped_is_not_durable() {
    block_on(async {
        let disk = SimDisk::new();
        let (store, contents) = sample(&disk).await;
        let mut txn = store.begin_write().expect("no other transaction is open");
        txn.put(TREES[1], b"large", &vec![7; 2 << 20]).expect("it is put");
        disk.set_faults(Faults { failing_views: true, ..Faults::default() });
        assert!(txn.commit(4).await.is_err(), "the file cannot be mapped");
        disk.set_faults(Faults::default());
        let after = open(&disk.after_power_cut(1)).await.expect("it opens");
        assert_eq!(after.epoch(), 3);
        read_all(&after, &contents);
    });
}
