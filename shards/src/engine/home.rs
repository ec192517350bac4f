//! A partition on the core that owns it: its file, its published states, and the state being built.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::time::Duration;

use storage_engine::vector::Pace;
use storage_engine::{PageStore, StoreOptions};

use super::messages::EpochShare;
use crate::facets::columns::Touched;
use crate::ids::{Epoch, LocalDocId, PartitionNo};
use crate::partition::memory::{MemoryLoader, PartitionMemory};
use crate::partition::reader::{EpochFacts, PartitionReader};
use crate::partition::writer::{PartitionDelta, PartitionWriter, RecordChunk, WriterFacts};
use crate::partition::{PartitionError, reindex};
use crate::runtime::steps::doing;
use crate::runtime::{Nanos, Queue, Runtime};
use crate::settings::Settings;
use crate::vectors::DocumentEmbedding;
use crate::vectors::resettle;
use crate::vectors::stored::{PartitionVectors, folder_of};
use crate::vectors::writer::{CarriedVectors, PreparedVectors, VectorsWriter, WantedText};

/// Epochs younger than this are kept for requests that began with them.
const EPOCH_KEPT: Duration = Duration::from_secs(2);
/// At least so many epochs are kept, whatever their age.
const EPOCHS_MIN: usize = 2;
/// At most so many: each holds back pages that the next commits cannot use again.
const EPOCHS_MAX: usize = 64;
/// Terms loaded between two looks at the clock.
const LOAD_STEP: usize = 256;

/// The pace of work for a partition that ends with it.
struct WhileOpen {
    runtime: Rc<dyn Runtime>,
    home: Weak<PartitionHome>,
}

impl Pace for WhileOpen {
    fn due(&self) -> bool {
        self.runtime.should_yield()
    }

    fn pause(&self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        self.runtime.yield_now()
    }

    fn stopped(&self) -> bool {
        self.home.strong_count() == 0
    }
}

/// A partition on the core that owns it.
pub struct PartitionHome {
    runtime: Rc<dyn Runtime>,
    number: PartitionNo,
    path: PathBuf,
    store: PageStore,
    /// Of the newest durable state.
    memory: RefCell<PartitionMemory>,
    /// Whether `memory` may be of a state that was taken back.
    is_memory_ahead: Cell<bool>,
    readers: RefCell<BTreeMap<Epoch, (Rc<PartitionReader>, Nanos)>>,
    writer: RefCell<Option<PartitionWriter>>,
    /// Of the state in `writer`, once it is finished.
    built: RefCell<Option<Built>>,
    /// Vectors of the newest durable state until they are published.
    unpublished: RefCell<PreparedVectors>,
    /// What of the columns changed since the newest epoch was published.
    touched: RefCell<Touched>,
}

/// A state that is ready to be made durable.
struct Built {
    memory: PartitionMemory,
    vectors: PreparedVectors,
    touched: Touched,
}

impl PartitionHome {
    /// Opens a partition's file at its newest state up to `epoch`, making it when it is not there.
    pub async fn open(
        runtime: Rc<dyn Runtime>,
        number: PartitionNo,
        path: PathBuf,
        epoch: Epoch,
    ) -> Result<Self, PartitionError> {
        let options = StoreOptions { create: true, at_most_epoch: Some(epoch.0) };
        let store = PageStore::open(runtime.disk(), &path, options).await?;
        Self::with_store(runtime, number, path, store).await
    }

    /// The home of an open file.
    pub async fn with_store(
        runtime: Rc<dyn Runtime>,
        number: PartitionNo,
        path: PathBuf,
        store: PageStore,
    ) -> Result<Self, PartitionError> {
        let memory = load(&runtime, &store, &path, &PartitionVectors::default()).await?;
        Ok(Self {
            runtime,
            number,
            path,
            store,
            memory: RefCell::new(memory),
            is_memory_ahead: Cell::new(false),
            readers: RefCell::default(),
            writer: RefCell::default(),
            built: RefCell::default(),
            unpublished: RefCell::default(),
            touched: RefCell::default(),
        })
    }

    /// Loads the graphs of vectors into memory.
    pub async fn preload_graphs(&self) -> Result<(), PartitionError> {
        let vectors = self.memory.borrow().vectors.clone();
        vectors.preload(&self.runtime).await
    }

    /// Loads into memory what there is room for whole, while others work and for as long as the partition is open.
    pub fn preload_aside(self: &Rc<Self>) {
        let vectors = self.memory.borrow().vectors.clone();
        let pace = WhileOpen { runtime: self.runtime.clone(), home: Rc::downgrade(self) };
        let loading = async move {
            doing("load vectors into memory");
            // What cannot be read fails the searches that need it, as it does without this.
            if let Err(error) = vectors.preload_whole(&pace).await {
                tracing::warn!(%error, "cannot load vectors into memory");
            }
        };
        self.runtime.spawn(Queue::Upkeep, Box::pin(loading));
    }

    /// The file.
    pub fn store(&self) -> &PageStore {
        &self.store
    }

    /// Documents of the newest durable state.
    pub fn documents(&self) -> u64 {
        self.memory.borrow().documents.len()
    }

    /// The state of an epoch, if it is still kept.
    pub fn reader(&self, epoch: Epoch) -> Option<Rc<PartitionReader>> {
        self.readers.borrow().get(&epoch).map(|(reader, _)| reader.clone())
    }

    /// Publishes the newest durable state; older ones go when they are too many or too old.
    pub fn publish(&self, share: &EpochShare) {
        let facts = EpochFacts {
            epoch: share.epoch,
            fields: share.fields.clone(),
            settings: share.settings.clone(),
            tokenizer: share.tokenizer.clone(),
            partition_count: share.partition_count,
            embedders: share.embedders.clone(),
        };
        for (partition, prepared) in self.unpublished.borrow_mut().drain(..) {
            partition.publish(prepared);
        }
        let vectors = self.memory.borrow().vectors.renewed();
        self.memory.borrow_mut().vectors = vectors;
        let (snapshot, memory) = (self.store.snapshot(), self.memory.borrow().clone());
        self.remove_unused(&memory.vectors);
        let mut reader = PartitionReader::new(snapshot, self.number, facts, memory);
        let touched = self.touched.take();
        let now = self.runtime.now();
        let mut readers = self.readers.borrow_mut();
        if let Some((_, (before, _))) = readers.last_key_value() {
            reader = reader.with_columns_of(before, &touched);
            self.forget_cached(before.clone());
        }
        readers.insert(share.epoch, (Rc::new(reader), now));
        while readers.len() > EPOCHS_MIN {
            // An epoch's age counts from when the next one took its place.
            let replaced = readers.values().nth(1).map_or(now, |(_, since)| *since);
            if readers.len() <= EPOCHS_MAX && now.since(replaced) < EPOCH_KEPT {
                break;
            }
            readers.pop_first();
        }
    }

    /// The newest epoch.
    pub fn newest_reader(&self) -> Option<Rc<PartitionReader>> {
        self.readers.borrow().last_key_value().map(|(_, (reader, _))| reader.clone())
    }

    /// Lets go of what an epoch that was replaced has kept for later searches, in steps: that is many small things.
    fn forget_cached(&self, reader: Rc<PartitionReader>) {
        let runtime = self.runtime.clone();
        let forgetting = async move {
            doing("forget what was kept of an epoch");
            while reader.forget_some() {
                if runtime.should_yield() {
                    runtime.yield_now().await;
                }
            }
        };
        self.runtime.spawn(Queue::Upkeep, Box::pin(forgetting));
    }

    /// Removes the folders of graphs that the newest state does not have. Who reads them has their files open.
    fn remove_unused(&self, vectors: &PartitionVectors) {
        let old = match self.readers.borrow().last_key_value() {
            Some((_, (reader, _))) => reader.vectors().clone(),
            None => return,
        };
        let gone = old.folders_missing_in(vectors);
        if gone.is_empty() {
            return;
        }
        let (disk, root) = (self.runtime.disk(), folder_of(&self.path));
        self.runtime.spawn(
            Queue::Upkeep,
            Box::pin(async move {
                for folder in gone {
                    // What stays is removed when the partition is opened.
                    let _ = disk.remove_dir_all(&root.join(folder)).await;
                }
            }),
        );
    }

    /// Begins the next state, forgetting one that was left half built.
    pub async fn begin(&self, share: &EpochShare, before: &Settings, clear: bool) -> Result<(), PartitionError> {
        self.writer.borrow_mut().take();
        self.built.borrow_mut().take();
        self.unpublished.borrow_mut().clear();
        let facts = WriterFacts {
            fields: share.fields.clone(),
            settings: share.settings.clone(),
            tokenizer: share.tokenizer.clone(),
            primary_key: share.primary_key.clone(),
        };
        let txn = self.store.begin_write()?;
        let memory = self.memory.borrow().clone();
        let vectors = VectorsWriter::new(
            self.runtime.clone(),
            folder_of(&self.path),
            share.epoch,
            memory.vectors.clone(),
            (&share.settings, &share.embedders),
            &share.fields,
        );
        let mut writer = PartitionWriter::new(self.runtime.clone(), txn, &memory, facts, vectors);
        if clear {
            writer.clear().await?;
        } else {
            if reindex::is_needed(&share.fields, before, &share.settings) {
                writer.reindex(before).await?;
            }
            if resettle::is_needed(before, &share.settings) {
                writer.resettle_vectors(before).await?;
            }
        }
        *self.writer.borrow_mut() = Some(writer);
        Ok(())
    }

    /// Takes the state being built; whoever does so puts it back, unless building failed.
    pub fn take_writer(&self) -> Result<PartitionWriter, PartitionError> {
        self.writer.borrow_mut().take().ok_or(PartitionError::NotBegun)
    }

    /// Puts the state being built back.
    pub fn put_writer(&self, writer: PartitionWriter) {
        *self.writer.borrow_mut() = Some(writer);
    }

    /// Changes documents in the state being built.
    pub async fn apply(&self, chunk: &RecordChunk) -> Result<(), PartitionError> {
        let mut writer = self.take_writer()?;
        writer.apply(chunk).await?;
        self.put_writer(writer);
        Ok(())
    }

    /// The documents of the state being built from `from` on whose texts an embedder's host must look at: so many at most, and
    /// no further one beyond so many bytes.
    pub fn wanted_texts(
        &self,
        embedder: &str,
        from: LocalDocId,
        (count, bytes): (usize, usize),
    ) -> Result<Vec<WantedText>, PartitionError> {
        let mut writer = self.take_writer()?;
        let (vectors, txn) = writer.vectors();
        let found = vectors.wanted(txn, embedder, from, (count, bytes))?;
        self.put_writer(writer);
        Ok(found)
    }

    /// Takes what an embedder's host gave into the state being built.
    pub async fn take_embedded(
        &self,
        embedder: &str,
        results: Vec<(LocalDocId, DocumentEmbedding)>,
    ) -> Result<(), PartitionError> {
        let mut writer = self.take_writer()?;
        writer.vectors().0.embedded(embedder, results).await?;
        self.put_writer(writer);
        Ok(())
    }

    /// Takes vectors of documents that come from another partition into the state being built.
    pub async fn take_carried(&self, carried: Vec<CarriedVectors>) -> Result<(), PartitionError> {
        let mut writer = self.take_writer()?;
        writer.vectors().0.carry(carried).await?;
        self.put_writer(writer);
        Ok(())
    }

    /// Ends building.
    pub async fn finish(&self) -> Result<PartitionDelta, PartitionError> {
        let mut writer = self.take_writer()?;
        let (memory, delta) = writer.finish().await?;
        let (vectors, touched) = (writer.take_prepared(), writer.take_touched());
        *self.built.borrow_mut() = Some(Built { memory, vectors, touched });
        self.put_writer(writer);
        Ok(delta)
    }

    /// Makes what was built durable.
    pub async fn commit(&self, epoch: Epoch) -> Result<(), PartitionError> {
        let writer = self.take_writer()?;
        let Built { memory, vectors, touched } = self.built.borrow_mut().take().ok_or(PartitionError::NotBegun)?;
        doing("commit");
        writer.into_txn().commit(epoch.0).await?;
        *self.memory.borrow_mut() = memory;
        *self.unpublished.borrow_mut() = vectors;
        self.touched.borrow_mut().add(touched);
        Ok(())
    }

    /// Goes back to the state of `epoch`. Searches go on meanwhile, and where this fails, too: then nothing is written until it
    /// succeeds.
    pub async fn abort(&self, epoch: Epoch) -> Result<(), PartitionError> {
        self.writer.borrow_mut().take();
        self.built.borrow_mut().take();
        self.unpublished.borrow_mut().clear();
        let known = self.memory.borrow().vectors.clone();
        let store = &self.store;
        let is_there = store.epoch() <= epoch.0 && !store.is_poisoned() && !known.is_poisoned();
        if is_there && !self.is_memory_ahead.get() {
            return Ok(());
        }
        // What was made durable must not be built upon, and a store that failed must be opened anew.
        self.is_memory_ahead.set(true);
        store.roll_back(epoch.0).await?;
        let memory = load(&self.runtime, store, &self.path, &known).await?;
        *self.memory.borrow_mut() = memory;
        self.touched.replace(Touched::everything());
        self.is_memory_ahead.set(false);
        self.renew_newest();
        Ok(())
    }

    /// Publishes the newest epoch again, read from the file as it is now.
    fn renew_newest(&self) {
        let Some(newest) = self.newest_reader() else { return };
        let EpochFacts { epoch, fields, settings, tokenizer, partition_count, embedders } = newest.facts().clone();
        // Readers have no use for the key.
        let primary_key = None;
        self.publish(&EpochShare { epoch, fields, settings, tokenizer, partition_count, primary_key, embedders });
    }

    /// Rewrites the file without its free pages; bytes before and after.
    pub async fn compact(&self) -> Result<(u64, u64), PartitionError> {
        let before = self.store.file_bytes();
        self.store.compact().await?;
        // As long as the old file is read its bytes are not given back. Requests that began with an older epoch begin anew.
        self.renew_newest();
        let newest = self.readers.borrow_mut().pop_last();
        self.readers.replace(newest.into_iter().collect());
        Ok((before, self.store.file_bytes()))
    }
}

async fn load(
    runtime: &Rc<dyn Runtime>,
    store: &PageStore,
    path: &Path,
    known: &PartitionVectors,
) -> Result<PartitionMemory, PartitionError> {
    let (snapshot, mut loader) = (store.snapshot(), MemoryLoader::default());
    while !loader.advance(&snapshot, LOAD_STEP)? {
        if runtime.should_yield() {
            runtime.yield_now().await;
        }
    }
    let mut memory = loader.finish(&snapshot)?;
    memory.vectors = PartitionVectors::open(runtime, &folder_of(path), &snapshot, known).await?;
    Ok(memory)
}
