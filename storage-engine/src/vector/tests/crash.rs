//! Power cuts, failing devices and decayed bytes.

use super::*;
use crate::io::sim::{Faults, SimDisk};

const DIMS: usize = 8;

/// What each epoch has: some documents stay, some are replaced, some go.
fn documents_of(epoch: u64) -> Documents {
    let vectors = points(epoch, 40, DIMS);
    let stays = |doc: u32| points(99, 40, DIMS)[doc as usize].clone();
    (0..40u32)
        .filter(|doc| !(u64::from(*doc) + epoch).is_multiple_of(4))
        .map(|doc| (doc, vec![if doc % 3 == 0 { stays(doc) } else { vectors[doc as usize].clone() }]))
        .collect()
}

async fn change(partition: &VectorPartition, epoch: u64) -> Result<Prepared, PutError> {
    let mut draft = partition.begin().expect("the only one");
    let documents = documents_of(epoch);
    let gone: Vec<u32> = draft.documents().iter().filter(|doc| !documents.contains_key(doc)).collect();
    for doc in gone {
        draft.remove(doc, &Unpaced).await?;
    }
    for (doc, vectors) in &documents {
        let vectors: Vec<&[f32]> = vectors.iter().map(Vec::as_slice).collect();
        draft.put(*doc, &vectors, &Unpaced).await?;
    }
    Ok(draft.prepare(epoch, &Unpaced).await?)
}

fn compare(partition: &VectorPartition, epoch: u64) {
    let (snapshot, documents) = (partition.snapshot(), documents_of(epoch));
    assert_eq!((check(&snapshot), snapshot.epoch()), (documents.len(), epoch));
    for (doc, vectors) in &documents {
        assert_eq!(&block_on(snapshot.vectors(*doc)).expect("they are read"), vectors);
    }
    let options = SearchOptions { limit: 5, ..SearchOptions::default() };
    for query in points(7, 3, DIMS) {
        let found: Vec<u32> = search(&snapshot, &query, &options).iter().map(|found| found.doc).collect();
        let wanted: Vec<u32> = exact(Metric::Cosine, &documents, &query, None)[..5].iter().map(|n| n.doc).collect();
        assert_eq!(found, wanted);
    }
}

fn budgets() -> [Budget; 2] {
    [TIGHT, Budget::default()]
}

/// The caller has committed epoch 3 when the power is cut somewhere in the making of epoch 4, or in the removal of files after
/// it was prepared: 3 is there, whole; so is 4 once it was prepared.
#[test]
fn a_power_cut_leaves_the_committed_epoch() {
    for budget in budgets() {
        for cut in 0.. {
            let disk = SimDisk::new();
            let shared: Rc<dyn Disk> = Rc::new(disk.clone());
            let partition = create(&shared, Config::new(DIMS as u32, Metric::Cosine), budget);
            let mut manifest = Vec::new();
            for epoch in 1..=3 {
                let prepared = block_on(change(&partition, epoch)).expect("nothing fails yet");
                manifest = prepared.manifest().to_vec();
                partition.publish(prepared);
                block_on(partition.collect()).expect("nothing fails yet");
            }
            disk.set_faults(Faults { cut_before: Some(cut), ..Faults::default() });
            let prepared = block_on(change(&partition, 4));
            for seed in 0..6 {
                let after: Rc<dyn Disk> = Rc::new(disk.after_power_cut(seed));
                let opened = open(&after, &manifest, budget).expect("it opens");
                compare(&opened, 3);
                // It goes on from there as if nothing had been.
                opened.publish(block_on(change(&opened, 4)).expect("nothing fails now"));
                compare(&opened, 4);
            }
            let Ok(prepared) = prepared else { continue };
            let manifest = prepared.manifest().to_vec();
            partition.publish(prepared);
            let collected = block_on(partition.collect());
            for seed in 0..6 {
                let after: Rc<dyn Disk> = Rc::new(disk.after_power_cut(seed));
                compare(&open(&after, &manifest, budget).expect("it opens"), 4);
            }
            if collected.is_ok() {
                assert!(cut > 5, "the cuts came in the middle");
                break;
            }
        }
    }
}

/// After a failed sync the kernel may have dropped what was written: going on would build on it.
#[test]
fn a_failed_sync_ends_writing_and_a_full_disk_does_not() {
    for sync in 0..3 {
        let disk = SimDisk::new();
        let shared: Rc<dyn Disk> = Rc::new(disk.clone());
        let partition = create(&shared, Config::new(DIMS as u32, Metric::Cosine), TIGHT);
        partition.publish(block_on(change(&partition, 1)).expect("nothing fails yet"));
        disk.set_faults(Faults { capacity: Some(0), ..Faults::default() });
        assert!(block_on(change(&partition, 2)).is_err());
        disk.set_faults(Faults { failing_sync: Some(sync), ..Faults::default() });
        assert!(block_on(change(&partition, 2)).is_err(), "sync {sync}");
        assert_eq!(partition.begin().err(), Some(BeginError::Poisoned));
        compare(&partition, 1);
    }
}

/// A write that is given up half way may still reach the disk later, over what the next draft has put there.
#[test]
fn a_dropped_prepare_ends_writing() {
    let disk = SimDisk::new();
    let shared: Rc<dyn Disk> = Rc::new(disk.clone());
    let partition = create(&shared, Config::new(DIMS as u32, Metric::Cosine), TIGHT);
    disk.set_delays(3);
    let mut draft = partition.begin().expect("the only one");
    put(&mut draft, 1, &points(1, 1, DIMS));
    let mut prepare = Box::pin(draft.prepare(1, &Unpaced));
    let mut polls = 0;
    while polls < 3 && block_on(futures_lite::future::poll_once(&mut prepare)).is_none() {
        polls += 1;
    }
    assert_eq!(polls, 3, "it waited for the disk");
    drop(prepare);
    assert_eq!(partition.begin().err(), Some(BeginError::Poisoned));
}

/// Every byte that is in use is covered by a checksum: a flipped bit is named, or lies in what nobody reads.
#[test]
fn flipped_bits_are_never_served() {
    for budget in budgets() {
        let disk = SimDisk::new();
        let shared: Rc<dyn Disk> = Rc::new(disk.clone());
        let partition = create(&shared, Config::new(DIMS as u32, Metric::Cosine), budget);
        let mut manifest = Vec::new();
        for epoch in 1..=3 {
            let prepared = block_on(change(&partition, epoch)).expect("nothing fails");
            manifest = prepared.manifest().to_vec();
            partition.publish(prepared);
        }
        block_on(partition.collect()).expect("nothing fails");
        let options = SearchOptions { limit: 30, plan: Some(Plan::Walk), ..SearchOptions::default() };
        let query = &points(7, 1, DIMS)[0];
        let wanted = search(&partition.snapshot(), query, &options);
        let mut found = 0;
        for name in block_on(shared.list_dir(folder())).expect("it is listed") {
            let path = folder().join(&name);
            let mut byte = 3;
            while disk.flip_bit(&path, byte, (byte % 8) as u8) {
                let answer = open(&shared, &manifest, budget)
                    .ok()
                    .and_then(|partition| block_on(partition.snapshot().search(query, &options, &Unpaced)).ok());
                match answer {
                    None => found += 1,
                    Some(answer) => assert_eq!(answer, wanted, "{name} byte {byte}"),
                }
                disk.flip_bit(&path, byte, (byte % 8) as u8);
                byte += 41;
            }
        }
        assert!(found > 20, "{found} were found");
    }
}
