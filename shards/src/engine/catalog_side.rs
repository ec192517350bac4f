//! Request handlers of the core that owns an index's partition 0: it keeps the catalog and coordinates batches.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use storage_engine::ReadTree;
use uuid::Uuid;

use super::messages::{Answer, EpochShare, PartitionQuestion, Place, Prepared, ReadQuestion};
use super::types::{Batch, BatchOp, EngineError, IndexView, OpOutcome, StoreBytes};
use super::{Engine, all_done, answer_as};
use crate::error::UserError;
use crate::facets::parse_filter;
use crate::ids::{Epoch, PartitionNo};
use crate::index::catalog::load_record;
use crate::index::draft::{Addition, OpError};
use crate::index::{Catalog, Draft, Plan};
use crate::network_shards::KeptShards;
use crate::partition::trees::EXTERNAL_IDS;
use crate::partition::{PartitionError, reindex};
use crate::runtime::steps::doing;
use crate::runtime::{Checkpoint, Runtime};
use crate::settings::Settings;
use crate::stages::{Stage, Stages};
use crate::text::{TextTokenizer, shared};
use crate::timestamp::Timestamp;
use crate::vectors::resettle;

/// The code of everything that is wrong with the filter of a deletion.
const FILTER_CODE: &str = "invalid_document_filter";
/// The epoch of a new index.
const FIRST_EPOCH: Epoch = Epoch(1);

/// An index's catalog on the core of its partition 0.
pub struct CatalogHome {
    pub(super) committed: RefCell<Committed>,
    pub(super) pending: RefCell<Option<Pending>>,
    /// The layout, and its partitions, in which a batch was begun that is neither committed nor taken back. No other begins
    /// before it is taken back: what its partitions hold of it would be built upon.
    pub(super) begun: Cell<Option<(u32, u16)>>,
    /// Layouts whose files go with the next batch: searches that began before the last one may still read them.
    pub(super) retired: RefCell<Vec<(u32, u16)>>,
    /// How far the work of a batch is.
    pub(super) stages: Rc<Stages>,
}

/// The newest committed state.
#[derive(Clone)]
pub(super) struct Committed {
    pub catalog: Rc<Catalog>,
    pub view: IndexView,
}

/// The state that a batch leads to.
pub(super) struct Next {
    pub epoch: Epoch,
    pub catalog: Catalog,
    /// Of the catalog's settings.
    pub tokenizer: Arc<TextTokenizer>,
    /// Whether it keeps no document of the state before.
    pub cleared: bool,
    /// See [`Batch::updated_at`].
    pub updated_at: Option<Timestamp>,
}

/// A prepared batch.
pub(super) struct Pending {
    pub next: Next,
    pub layout: u32,
    /// Partitions that have something to commit; 0 is always among them.
    pub touched: Vec<PartitionNo>,
}

impl Next {
    /// Says when the index changed, once all is built.
    pub fn date(&mut self, runtime: &dyn Runtime) {
        self.catalog.updated_at = self.updated_at.unwrap_or_else(|| Timestamp::from_unix(runtime.unix_time()));
    }

    /// What partitions need to know of it.
    pub fn share(&self) -> EpochShare {
        share_of(&self.catalog, &self.tokenizer, self.epoch)
    }
}

impl CatalogHome {
    /// The newest committed state.
    pub fn view(&self) -> IndexView {
        self.committed.borrow().view.clone()
    }

    fn committed(&self) -> Committed {
        self.committed.borrow().clone()
    }
}

impl Engine {
    pub(super) async fn create_here(&self, index: Uuid, created_at: Timestamp) -> Result<Answer, EngineError> {
        match self.open_here(index).await {
            Ok(Answer::Opened(view, _)) => return Ok(Answer::View(view)),
            Err(EngineError::Gone) => {}
            Err(error) => return Err(error),
            Ok(other) => return Ok(other),
        }
        let partitions = self.config.forced_partitions.unwrap_or(1).max(1);
        let place = Place { index, layout: 0, partition: PartitionNo(0) };
        let created = self.create_first(place, Catalog::new(partitions, created_at)).await;
        if created.is_err() {
            // No batch will name this index again: what was opened until then would stay open.
            self.forget_layout(place, partitions).await;
            // Why it could not be made is what matters. An empty folder that cannot be removed either harms nobody.
            let _ = self.drop_here(index).await;
        }
        created
    }

    /// Makes the first layout of an index: its catalog, in the partition that holds it.
    async fn create_first(&self, place: Place, catalog: Catalog) -> Result<Answer, EngineError> {
        self.make_folder(place).await?;
        let tokenizer = self.tokenizer(&catalog.settings, None).await?;
        let share = share_of(&catalog, &tokenizer, Epoch(0));
        answer_as!(self.handle_partition(place, PartitionQuestion::Open(share)).await, Answer::PartitionOpened(..) => ())?;
        let mut txn = self.partition(place)?.store().begin_write().map_err(PartitionError::from)?;
        catalog.store(None, &mut txn)?;
        txn.commit(FIRST_EPOCH.0).await.map_err(PartitionError::from)?;
        match self.open_here(place.index).await? {
            Answer::Opened(view, _) => Ok(Answer::View(view)),
            other => Ok(other),
        }
    }

    async fn make_folder(&self, place: Place) -> Result<(), EngineError> {
        let disk = self.runtime.disk();
        let folder = place.folder(&self.config.root);
        disk.create_dir_all(&folder).await?;
        for above in [Place::index_folder(&self.config.root, place.index), self.config.root.clone()] {
            disk.sync_dir(&above).await?;
        }
        Ok(())
    }

    /// Finds the layout that was committed last, opens its partitions and removes the files of others.
    pub(super) async fn open_here(&self, index: Uuid) -> Result<Answer, EngineError> {
        let folder = Place::index_folder(&self.config.root, index);
        let disk = self.runtime.disk();
        if !disk.exists(&folder).await? {
            return Err(EngineError::Gone);
        }
        let names = disk.list_dir(&folder).await?;
        let mut layouts: Vec<u32> = names.iter().filter_map(|name| name.strip_prefix('l')?.parse().ok()).collect();
        layouts.sort_unstable_by(|a, b| b.cmp(a));
        let (mut found, mut others) = (None, Vec::new());
        for layout in layouts {
            let place = Place { index, layout, partition: PartitionNo(0) };
            if found.is_none() && disk.exists(&place.file(&self.config.root)).await? {
                found = self.open_catalog(place).await?;
                if found.is_some() {
                    continue;
                }
            }
            others.push(place);
        }
        let opened = match &found {
            Some((place, catalog, epoch, _)) => Some(self.open_layout(*place, catalog, *epoch).await?),
            None => None,
        };
        // Not before: where the newest cannot be opened, one of these may be all that is left of the index.
        for other in others {
            self.remove_layout(other).await?;
        }
        let Some(((place, catalog, epoch, record), (tokenizer, store_bytes))) = found.zip(opened) else {
            return Err(EngineError::Gone);
        };
        let view = self.view_of(place, epoch, &catalog, &tokenizer, store_bytes);
        let committed = Committed { catalog: Rc::new(catalog), view: view.clone() };
        let home = CatalogHome {
            committed: RefCell::new(committed),
            pending: RefCell::default(),
            begun: Cell::default(),
            retired: RefCell::default(),
            stages: Rc::default(),
        };
        self.catalogs.borrow_mut().insert(index, Rc::new(home));
        Ok(Answer::Opened(Box::new(view), record))
    }

    /// Reads the catalog of a layout; `None` when none was ever committed there.
    async fn open_catalog(
        &self,
        place: Place,
    ) -> Result<Option<(Place, Catalog, Epoch, Option<Vec<u8>>)>, EngineError> {
        let path = place.file(&self.config.root);
        let options = storage_engine::StoreOptions { create: true, at_most_epoch: None };
        let store = storage_engine::PageStore::open(self.runtime.disk(), &path, options);
        let snapshot = store.await.map_err(PartitionError::from)?.snapshot();
        let loaded = Catalog::load(&snapshot).map_err(|error| error.of_file(&path))?;
        let Some(catalog) = loaded else { return Ok(None) };
        Ok(Some((place, catalog, Epoch(snapshot.epoch()), load_record(&snapshot)?)))
    }

    /// What cuts texts under these settings; `before` is the state that had others.
    async fn tokenizer(
        &self,
        settings: &Arc<Settings>,
        before: Option<&IndexView>,
    ) -> Result<Arc<TextTokenizer>, EngineError> {
        doing("tokenizer");
        let before = before.map(|view| (&view.settings, &view.tokenizer));
        let tokenizer = shared::tokenizer(&*self.runtime, settings, before).await;
        tokenizer.map_err(|error| EngineError::Storage(error.to_string()))
    }

    /// Opens a layout at an epoch; answers what cuts its texts, and the bytes of its stores.
    async fn open_layout(
        &self,
        place: Place,
        catalog: &Catalog,
        epoch: Epoch,
    ) -> Result<(Arc<TextTokenizer>, StoreBytes), EngineError> {
        let tokenizer = self.tokenizer(&catalog.settings, None).await?;
        let store_bytes = self.open_partitions(place, &share_of(catalog, &tokenizer, epoch), catalog).await?;
        Ok((tokenizer, store_bytes))
    }

    /// Opens all partitions of a layout at an epoch; answers the bytes of their stores.
    async fn open_partitions(
        &self,
        place: Place,
        share: &EpochShare,
        catalog: &Catalog,
    ) -> Result<StoreBytes, EngineError> {
        let opened = partitions(place, catalog.partition_count()).map(|place| {
            let share = share.clone();
            async move {
                let answer = self.ask_partition(place, PartitionQuestion::Open(share)).await;
                answer_as!(answer, Answer::PartitionOpened(documents, bytes) => (documents, bytes))
            }
        });
        let opened = all_done(opened).await?;
        let whole = opened.iter().zip(&catalog.sums).all(|((documents, _), sums)| *documents == sums.documents);
        if !whole {
            return Err(PartitionError::Damaged("partition (documents are missing)").into());
        }
        Ok(opened.iter().map(|(_, bytes)| *bytes).sum())
    }

    pub(super) fn view_of(
        &self,
        place: Place,
        epoch: Epoch,
        catalog: &Catalog,
        tokenizer: &Arc<TextTokenizer>,
        store_bytes: StoreBytes,
    ) -> IndexView {
        let Place { index, layout, .. } = place;
        IndexView {
            id: index,
            epoch,
            primary_key: catalog.primary_key.clone(),
            settings: catalog.settings.clone(),
            tokenizer: tokenizer.clone(),
            fields: catalog.fields.clone(),
            created_at: catalog.created_at,
            updated_at: catalog.updated_at,
            partitions: (0..catalog.partition_count()).map(|number| self.owner(index, PartitionNo(number))).collect(),
            documents: catalog.documents(),
            field_distribution: Arc::new(catalog.field_distribution()),
            geo_points: catalog.geo_points(),
            raw_bytes: catalog.raw_bytes,
            store_bytes,
            layout,
            embedders: catalog.embedders.clone(),
            vectors: catalog.vectors(),
        }
    }

    pub(super) async fn prepare_here(&self, index: Uuid, batch: Batch) -> Result<Prepared, EngineError> {
        let home = self.catalog(index)?;
        let prepared = self.prepare_in(&home, index, batch).await;
        let stages = home.stages.end(&*self.runtime);
        prepared.map(|(epoch, outcomes)| Prepared { index, epoch, outcomes, stages })
    }

    /// Does the work of a batch: the epoch that it makes, and what became of each operation.
    async fn prepare_in(
        &self,
        home: &CatalogHome,
        index: Uuid,
        batch: Batch,
    ) -> Result<(Epoch, Vec<Result<OpOutcome, UserError>>), EngineError> {
        let Committed { catalog, view } = home.committed();
        let first = Place { index, layout: view.layout, partition: PartitionNo(0) };
        self.take_back(home).await?;
        self.remove_retired(home, index).await?;
        let epoch = Epoch(view.epoch.0 + 1);
        let settings = batch.settings.clone().unwrap_or_else(|| catalog.settings.clone());
        let embedders = self.embedder_states(&catalog, &settings).await?;
        let tokenizer = self.tokenizer(&settings, Some(&view)).await?;
        let reader = self.reader(first, view.epoch)?;
        let snapshot = reader.snapshot().clone();
        let mut draft = Draft::new(self.runtime.clone(), snapshot, &catalog, settings.clone(), &embedders);
        draft.stages = home.stages.clone();
        if let Some(key) = &batch.primary_key {
            if catalog.documents() > 0 && *key != catalog.primary_key {
                return Err(UserError::new(
                    "index_primary_key_already_exists",
                    "The primary key of an index that holds documents cannot be changed.",
                )
                .into());
            }
            draft.primary_key.clone_from(key);
        }
        if draft.primary_key.is_none() {
            // A key that an addition names holds for what comes before it, too.
            draft.primary_key = batch.ops.iter().find_map(named_key);
        }
        doing("draft");
        let (stages, mut units) = (&*home.stages, 0);
        stages.begin(Stage::Reading, batch.ops.iter().map(BatchOp::units).sum(), &*self.runtime);
        let mut outcomes = Vec::with_capacity(batch.ops.len());
        for op in &batch.ops {
            stages.reach(units);
            units += op.units();
            match self.apply_op(&mut draft, op, &view, batch.kept.as_deref()).await {
                Ok(outcome) => outcomes.push(Ok(outcome)),
                Err(OpError::User(error)) => outcomes.push(Err(error)),
                Err(OpError::Partition(error)) => return Err(error.into()),
            }
        }
        doing("build");
        let mut next = Catalog { settings, embedders, ..(*catalog).clone() };
        next.primary_key = draft.primary_key.clone();
        let (cleared, documents) = (draft.cleared, draft.documents());
        let plan = draft.finish(&catalog.fields).await;
        next.fields = plan.fields.clone();
        next.numbers = plan.numbers.clone();
        let updated_at = batch.updated_at.or(batch.changes_nothing(&outcomes).then_some(catalog.updated_at));
        let next = Next { epoch, catalog: next, tokenizer, cleared, updated_at };
        let wanted = self.partitions_wanted(&view, documents);
        // Documents that are on the move are not compared with what they were under other settings.
        let wanted = wanted.filter(|_| !resettle::is_needed(&catalog.settings, &next.catalog.settings));
        let built = match wanted {
            Some(count) => {
                home.begun.set(Some((view.layout + 1, count)));
                self.build_anew((&view, &catalog), next, plan, count, stages).await
            }
            None => {
                home.begun.set(Some((view.layout, view.partition_count())));
                self.build((&view, &catalog), next, plan, stages).await
            }
        };
        match built {
            Ok(pending) => *home.pending.borrow_mut() = Some(pending),
            Err(error) => return Err(self.failed(home, error).await),
        }
        Ok((epoch, outcomes))
    }

    /// Into how many partitions an index must be laid out anew, if so.
    fn partitions_wanted(&self, view: &IndexView, documents: u64) -> Option<u16> {
        let cores = self.runtime.core_count();
        let grown = documents > u64::from(self.config.split_documents);
        (self.config.forced_partitions.is_none() && view.partition_count() == 1 && cores > 1 && grown).then_some(cores)
    }

    async fn apply_op(
        &self,
        draft: &mut Draft,
        op: &BatchOp,
        view: &IndexView,
        kept: Option<&KeptShards>,
    ) -> Result<OpOutcome, OpError> {
        match op {
            BatchOp::Add { payload, format, method, primary_key, skip_creation } => {
                let addition = Addition {
                    payload,
                    format: *format,
                    method: *method,
                    primary_key: primary_key.as_deref(),
                    skip_creation: *skip_creation,
                };
                draft.add(addition, kept).await
            }
            BatchOp::DeleteIds(ids) => draft.delete_ids(ids.iter()).await,
            BatchOp::DeleteByFilter(filter) => {
                let nothing = || UserError::new(FILTER_CODE, "The filter of a deletion must not be empty.");
                let filter = parse_filter(filter, FILTER_CODE)?.ok_or_else(nothing)?;
                filter.check_attributes(&draft.settings)?;
                let Some(primary_key) = view.primary_key.clone() else { return Ok(OpOutcome::default()) };
                let first = Place { index: view.id, layout: view.layout, partition: PartitionNo(0) };
                let chosen = partitions(first, view.partition_count()).map(|place| {
                    let (filter, primary_key) = (Box::new(filter.clone()), primary_key.clone());
                    let question = ReadQuestion::Choose { filter, primary_key };
                    async move {
                        let answer = self.ask_to_read(place, view.epoch, question).await;
                        answer_as!(answer, Answer::Chosen(chosen) => chosen)
                    }
                });
                let chosen = match all_done(chosen).await {
                    Ok(chosen) => chosen,
                    Err(EngineError::User(error)) => return Err(OpError::User(error)),
                    Err(error) => return Err(OpError::Partition(PartitionError::Elsewhere(Box::new(error)))),
                };
                draft.delete_chosen(chosen.into_iter().flatten()).await
            }
            BatchOp::Clear => Ok(draft.clear()),
            BatchOp::Edit { replaced, deleted } => draft.edit(replaced, deleted).await,
        }
    }

    /// Builds the next state of every partition that a batch touches.
    async fn build(
        &self,
        (view, catalog): (&IndexView, &Catalog),
        mut next: Next,
        mut plan: Plan,
        stages: &Stages,
    ) -> Result<Pending, EngineError> {
        let cleared = next.cleared;
        let first = Place { index: view.id, layout: view.layout, partition: PartitionNo(0) };
        let count = view.partition_count();
        let redo = cleared
            || reindex::is_needed(&plan.fields, &catalog.settings, &next.catalog.settings)
            || resettle::is_needed(&catalog.settings, &next.catalog.settings);
        let touched: Vec<PartitionNo> = (0..count)
            .map(PartitionNo)
            .filter(|number| number.0 == 0 || redo || plan.touches(*number, count))
            .collect();
        let redone = if redo { catalog.documents() } else { 0 };
        let looked_at = redone + plan.documents();
        stages.begin(Stage::Applying, looked_at, &*self.runtime);
        let share = next.share();
        let built = touched.iter().map(|number| {
            let (place, plan) = (Place { partition: *number, ..first }, &plan);
            let begin =
                PartitionQuestion::Begin { share: share.clone(), before: catalog.settings.clone(), clear: cleared };
            async move {
                answer_as!(self.ask_partition(place, begin).await, Answer::Done => ())?;
                let sums = catalog.sums.get(usize::from(number.0)).filter(|_| redo);
                stages.advance(sums.map_or(0, |sums| sums.documents));
                self.apply_chunks(place, count, plan, stages).await
            }
        });
        all_done(built).await?;
        self.embed_texts(first, &touched, (catalog, &next.catalog), (stages, looked_at)).await?;
        stages.begin(Stage::Finishing, touched.len() as u64, &*self.runtime);
        let finished = touched.iter().map(|number| async move {
            let place = Place { partition: *number, ..first };
            self.finish_partition(place, stages).await
        });
        for (number, delta) in touched.iter().zip(all_done(finished).await?) {
            next.catalog.add_delta(usize::from(number.0), &delta);
        }
        next.date(&*self.runtime);
        stages.begin(Stage::Cataloging, 1, &*self.runtime);
        self.write_catalog(first, Some(catalog), &next.catalog, std::mem::take(&mut plan.ids), cleared).await?;
        plan.discard(&*self.runtime).await;
        Ok(Pending { next, layout: view.layout, touched })
    }

    /// Puts the catalog and the ids into the state that partition 0 builds.
    pub(super) async fn write_catalog(
        &self,
        first: Place,
        before: Option<&Catalog>,
        next: &Catalog,
        ids: BTreeMap<Box<str>, Option<u32>>,
        cleared: bool,
    ) -> Result<(), EngineError> {
        let home = self.partition(first)?;
        let mut writer = home.take_writer()?;
        let mut checkpoint = Checkpoint::default();
        if cleared && writer.txn().entry_count(EXTERNAL_IDS) > 0 {
            writer.txn().clear(EXTERNAL_IDS).await.map_err(PartitionError::from)?;
        }
        for (id, number) in ids {
            let written = match number {
                Some(number) => writer.txn().put(EXTERNAL_IDS, id.as_bytes(), &number.to_be_bytes()),
                None => writer.txn().delete(EXTERNAL_IDS, id.as_bytes()).map(drop),
            };
            written.map_err(PartitionError::from)?;
            checkpoint.tick(&*self.runtime).await;
        }
        next.store(before, writer.txn())?;
        home.put_writer(writer);
        Ok(())
    }
}

/// All partitions of a layout.
pub(super) fn partitions(place: Place, count: u16) -> impl Iterator<Item = Place> {
    (0..count).map(move |number| Place { partition: PartitionNo(number), ..place })
}

/// What partitions need to know of a catalog, and the tokenizer of its settings.
pub(super) fn share_of(catalog: &Catalog, tokenizer: &Arc<TextTokenizer>, epoch: Epoch) -> EpochShare {
    EpochShare {
        epoch,
        fields: catalog.fields.clone(),
        settings: catalog.settings.clone(),
        tokenizer: tokenizer.clone(),
        partition_count: catalog.partition_count(),
        embedders: catalog.embedders.clone(),
        primary_key: catalog.primary_key.clone(),
    }
}

/// The primary key that an operation names.
fn named_key(op: &BatchOp) -> Option<String> {
    match op {
        BatchOp::Add { primary_key, .. } => primary_key.clone(),
        _ => None,
    }
}
