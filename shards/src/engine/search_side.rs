//! Connects the engine's messages with the search code.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use storage_engine::vector::Pace;
use uuid::Uuid;

use super::messages::{Answer, Place, ReadQuestion};
use super::types::{EngineError, IndexView};
use super::{Engine, answer_as};
use crate::ids::{Epoch, PartitionNo};
use crate::partition::reader::PartitionReader;
use crate::runtime::{Nanos, Queue, Runtime};
use crate::search::ask::Numbers;
use crate::search::federated::{
    FederatedAccess, FederatedAnswer, FederatedError, FederatedRequest, Part, Rescored, Shares, federated_search,
    score_together,
};
use crate::search::{
    Ask, Asked, FacetSearchRequest, KnownFacts, Pacer, PartQuestion, PartReply, Planner, SearchAnswer, SearchError,
    SearchRequest, SearchedIndex, SimilarAnswer, SimilarRequest, answer_part,
};

/// Indexes of which one core remembers what their dictionaries said.
const KNOWN_MAX: usize = 16;
/// How often a search begins anew because the index has moved on too far in the meantime.
const ATTEMPTS_MAX: u32 = 3;

/// What is remembered of the indexes that were searched last, each at its newest epoch.
#[derive(Default)]
pub(super) struct KnownFactsCache(RefCell<Vec<KnownIndex>>);

/// An index in one layout at one epoch.
struct KnownIndex {
    id: Uuid,
    layout: u32,
    epoch: Epoch,
    facts: Rc<KnownFacts>,
}

impl KnownFactsCache {
    /// What is remembered of a view's epoch; and whether that took the place of another epoch.
    fn get(&self, view: &IndexView, runtime: &Rc<dyn Runtime>) -> (Rc<KnownFacts>, bool) {
        let mut kept = self.0.borrow_mut();
        let known = kept.iter().position(|known| known.id == view.id).map(|at| kept.remove(at));
        if kept.len() >= KNOWN_MAX {
            forget(kept.remove(0).facts, runtime);
        }
        let (facts, moved_on) = match known {
            Some(known) if known.layout == view.layout && known.epoch == view.epoch => (known.facts, false),
            Some(older) => {
                forget(older.facts, runtime);
                (Rc::default(), true)
            }
            None => (Rc::default(), false),
        };
        // The one used last stands last.
        kept.push(KnownIndex { id: view.id, layout: view.layout, epoch: view.epoch, facts: facts.clone() });
        (facts, moved_on)
    }
}

/// Lets go of facts in steps: they are many small things.
fn forget(facts: Rc<KnownFacts>, runtime: &Rc<dyn Runtime>) {
    let on = runtime.clone();
    let forgetting = async move {
        while facts.forget_some() {
            if on.should_yield() {
                on.yield_now().await;
            }
        }
    };
    runtime.spawn(Queue::Upkeep, Box::pin(forgetting));
}

impl Engine {
    async fn planner(&self, view: &IndexView) -> Result<Arc<Planner>, SearchError> {
        self.planners.get(view, &self.runtime).await
    }

    /// What is remembered of a view's epoch. Where that took the place of another, the answers of that are let go of.
    fn known_facts(&self, view: &IndexView) -> Rc<KnownFacts> {
        let (facts, moved_on) = self.known.get(view, &self.runtime);
        if moved_on {
            let (index, now) = (view.id, (view.layout, view.epoch));
            self.forget_searches(move |asked| asked.index == index && (asked.layout, asked.epoch) != now);
        }
        facts
    }

    /// Lets go of kept answers that nobody can ask for any more.
    pub(super) fn forget_searches(&self, gone: impl Fn(&Asked) -> bool + 'static) {
        let (searches, runtime) = (self.searches.clone(), self.runtime.clone());
        let forgetting = async move { searches.forget(gone, &*runtime).await };
        self.runtime.spawn(Queue::Upkeep, Box::pin(forgetting));
    }

    /// Answers a search of one index at the epoch of a view; at a newer one when that epoch is no longer kept.
    pub async fn search(&self, index: &IndexView, request: SearchRequest) -> Result<SearchAnswer, SearchError> {
        let mut latest: Option<IndexView> = None;
        let mut asked = Asked { index: index.id, layout: index.layout, epoch: index.epoch, request };
        for attempt in 1.. {
            let view = latest.as_ref().unwrap_or(index);
            (asked.layout, asked.epoch) = (view.layout, view.epoch);
            if let Some(answer) = self.searches.get(&asked) {
                return Ok(answer);
            }
            let asker = Asker::new(self, view);
            let (planner, known) = (self.planner(view).await?, self.known_facts(view));
            let searched = self.searched(view, &planner, &known);
            let pacer = RuntimePacer(self.runtime.clone());
            // In a box of its own, so that a search that is answered above allocates little.
            match Box::pin(crate::search::search(&searched, &asked.request, &asker, &pacer)).await {
                Ok(answer) => {
                    self.searches.keep(asked, &answer);
                    return Ok(answer);
                }
                Err(error) if !asker.gone.get() || attempt >= ATTEMPTS_MAX => return Err(error),
                Err(_) => {}
            }
            latest = Some(self.moved_on(index.id).await.map_err(unanswered)?);
        }
        Err(SearchError::Partition("the index moves on too fast".into()))
    }

    /// Answers a search for the values of a facet, at an epoch as in [`Self::search`].
    ///
    /// # Errors
    /// Those of [`crate::search::search_facet_values`].
    pub async fn facet_search(
        &self,
        index: &IndexView,
        request: FacetSearchRequest,
    ) -> Result<Vec<(String, u64)>, SearchError> {
        let mut latest: Option<IndexView> = None;
        for attempt in 1.. {
            let view = latest.as_ref().unwrap_or(index);
            let asker = Asker::new(self, view);
            let planner = self.planner(view).await?;
            let pacer = RuntimePacer(self.runtime.clone());
            let known = self.known_facts(view);
            let searched = self.searched(view, &planner, &known);
            let answer = crate::search::search_facet_values(&searched, &request, &asker, &pacer).await;
            if answer.is_ok() || !asker.gone.get() || attempt >= ATTEMPTS_MAX {
                return answer;
            }
            latest = Some(self.moved_on(index.id).await.map_err(unanswered)?);
        }
        Err(SearchError::Partition("the index moves on too fast".into()))
    }

    /// Answers several searches whose results become one list. `indexes` are the views of the request's indexes, in its
    /// order; each is searched at one epoch, as in [`Self::search`].
    ///
    /// # Errors
    /// That of the first query that fails.
    pub async fn federated_search(
        &self,
        indexes: &[Arc<IndexView>],
        request: &FederatedRequest,
    ) -> Result<FederatedAnswer, FederatedError> {
        let mut views: Vec<Arc<IndexView>> = indexes.to_vec();
        for attempt in 1.. {
            let askers: Vec<Asker<'_>> = views.iter().map(|view| Asker::new(self, view)).collect();
            let mut planners: Vec<Arc<Planner>> = Vec::with_capacity(views.len());
            for view in &views {
                planners.push(self.planner(view).await?);
            }
            let known: Vec<Rc<KnownFacts>> = views.iter().map(|view| self.known_facts(view)).collect();
            let access = views.iter().zip(&planners).zip(&known).zip(&askers);
            let access: Vec<FederatedAccess<'_>> = access
                .map(|(((view, planner), known), ask)| FederatedAccess {
                    index: self.searched(view, planner, known),
                    ask,
                })
                .collect();
            let answer = federated_search(&access, request, &RuntimePacer(self.runtime.clone())).await;
            let gone: Vec<bool> = askers.iter().map(|asker| asker.gone.get()).collect();
            if answer.is_ok() || !gone.contains(&true) || attempt >= ATTEMPTS_MAX {
                return answer;
            }
            for (view, _) in views.iter_mut().zip(gone).filter(|(_, gone)| *gone) {
                *view = Arc::new(self.moved_on(view.id).await.map_err(unanswered)?);
            }
        }
        Err(SearchError::Partition("the indexes move on too fast".into()).into())
    }

    /// Scores the hits of a query by what all instances know, see [`score_together`]. They keep their scores where the query
    /// cannot be planned.
    pub async fn score_together(&self, index: &IndexView, shares: &Shares, parts: &mut [Part]) -> Vec<Rescored> {
        let Ok(planner) = self.planner(index).await else { return Vec::new() };
        let known = self.known_facts(index);
        let pacer = RuntimePacer(self.runtime.clone());
        score_together(&self.searched(index, &planner, &known), shares, parts, &pacer).await
    }

    /// Answers a search for documents similar to one, at an epoch as in [`Self::search`].
    ///
    /// # Errors
    /// Those of [`crate::search::search_similar`].
    pub async fn similar(&self, index: &IndexView, request: SimilarRequest) -> Result<SimilarAnswer, SearchError> {
        let mut latest: Option<IndexView> = None;
        for attempt in 1.. {
            let view = latest.as_ref().unwrap_or(index);
            let asker = Asker::new(self, view);
            let (planner, known) = (self.planner(view).await?, self.known_facts(view));
            let searched = self.searched(view, &planner, &known);
            let pacer = RuntimePacer(self.runtime.clone());
            let answer = crate::search::search_similar(&searched, &request, &asker, &pacer).await;
            if answer.is_ok() || !asker.gone.get() || attempt >= ATTEMPTS_MAX {
                return answer;
            }
            latest = Some(self.moved_on(index.id).await.map_err(unanswered)?);
        }
        Err(SearchError::Partition("the index moves on too fast".into()))
    }

    fn searched<'v>(&self, view: &'v IndexView, planner: &'v Planner, known: &'v KnownFacts) -> SearchedIndex<'v> {
        SearchedIndex {
            settings: &view.settings,
            fields: &view.fields,
            partitions: view.partition_count(),
            planner,
            known,
            embedders: &view.embedders,
            host: self.embedders.get().cloned(),
        }
    }

    pub(super) async fn search_part(
        &self,
        reader: Rc<PartitionReader>,
        question: PartQuestion,
    ) -> Result<Answer, EngineError> {
        match answer_part(reader, question, &RuntimePacer(self.runtime.clone())).await {
            Ok(reply) => Ok(Answer::Search(Box::new(reply))),
            Err(SearchError::User(error)) => Err(EngineError::User(error)),
            Err(SearchError::Partition(error)) => Err(EngineError::Storage(error)),
            Err(SearchError::Dropped) => Err(EngineError::Dropped),
        }
    }
}

/// Asks the partitions of an index at one epoch.
struct Asker<'e> {
    engine: &'e Engine,
    view: &'e IndexView,
    /// Whether some partition no longer has the epoch.
    gone: Cell<bool>,
    pacer: RuntimePacer,
}

impl Ask for Asker<'_> {
    fn ask<'a>(
        &'a self,
        partition: PartitionNo,
        question: PartQuestion,
    ) -> Pin<Box<dyn Future<Output = Result<PartReply, SearchError>> + 'a>> {
        let question = ReadQuestion::Search(Box::new(question));
        Box::pin(async move {
            let answer = self.read(partition, question).await;
            answer_as!(answer, Answer::Search(reply) => *reply).map_err(|error| self.failed(error))
        })
    }

    fn find<'a>(&'a self, ids: Vec<String>) -> Pin<Box<dyn Future<Output = Result<Numbers, SearchError>> + 'a>> {
        Box::pin(async move {
            let answer = self.read(PartitionNo(0), ReadQuestion::LookUp(ids)).await;
            answer_as!(answer, Answer::Numbers(numbers) => numbers).map_err(|error| self.failed(error))
        })
    }

    fn pace(&self) -> &dyn Pace {
        &self.pacer
    }
}

impl<'e> Asker<'e> {
    fn new(engine: &'e Engine, view: &'e IndexView) -> Self {
        Self { engine, view, gone: Cell::new(false), pacer: RuntimePacer(engine.runtime.clone()) }
    }

    async fn read(&self, partition: PartitionNo, question: ReadQuestion) -> Result<Answer, EngineError> {
        let place = Place { index: self.view.id, layout: self.view.layout, partition };
        self.engine.ask_to_read(place, self.view.epoch, question).await
    }

    fn failed(&self, error: EngineError) -> SearchError {
        self.gone.set(self.gone.get() || matches!(error, EngineError::Gone));
        unanswered(error)
    }
}

/// What a search says where the engine could not answer it.
fn unanswered(error: EngineError) -> SearchError {
    match error {
        EngineError::User(error) => SearchError::User(error),
        EngineError::Dropped => SearchError::Dropped,
        other => SearchError::Partition(other.to_string()),
    }
}

/// A runtime as a search sees it.
pub(super) struct RuntimePacer(pub(super) Rc<dyn Runtime>);

impl Pacer for RuntimePacer {
    fn now(&self) -> Duration {
        self.0.now().since(Nanos(0))
    }

    fn aside(&self, job: Box<dyn FnOnce() + Send>) -> LocalBoxFuture<'static, Result<(), String>> {
        let done = self.0.side_thread(job);
        Box::pin(async move { done.await.map_err(|error| error.to_string()) })
    }
}

impl Pace for RuntimePacer {
    fn due(&self) -> bool {
        self.0.should_yield()
    }

    fn pause(&self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        self.0.yield_now()
    }
}
