//! The planners that one core keeps.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, Shared};

use super::types::IndexView;
use crate::query::Cutter;
use crate::runtime::{Queue, Runtime, SideThreadError, aside};
use crate::search::{Planner, SearchError};
use crate::settings::Settings;
use crate::text::TextTokenizer;

/// Planners kept on one core.
const PLANNERS_MAX: usize = 64;
/// Synonyms of more bytes are read on a side thread: to cut a byte takes up to a third of a microsecond.
const FEW_BYTES: usize = 2 << 10;

/// A planner that is made, or being made: whoever waits for it goes on with the making.
type Making = Shared<LocalBoxFuture<'static, Result<Arc<Planner>, SideThreadError>>>;

/// Planners by the settings that they were made of. Settings are immutable and shared, so the same place in memory means the
/// same settings as long as the planner's own reference keeps them there.
#[derive(Default)]
pub(super) struct PlannerCache(RefCell<Vec<(Arc<Settings>, Making)>>);

impl PlannerCache {
    /// The planner of a view. Searches that come while it is made wait for it, and their core does other things.
    pub(super) async fn get(&self, view: &IndexView, runtime: &Rc<dyn Runtime>) -> Result<Arc<Planner>, SearchError> {
        let making = self.making(view, runtime);
        // Nearly always.
        if let Some(Ok(planner)) = making.peek() {
            return Ok(planner.clone());
        }
        let made = making.await;
        if made.is_err() {
            // The next search tries again.
            self.0.borrow_mut().retain(|(of, _)| !Arc::ptr_eq(of, &view.settings));
        }
        made.map_err(|error| SearchError::Partition(error.to_string()))
    }

    fn making(&self, view: &IndexView, runtime: &Rc<dyn Runtime>) -> Making {
        let mut kept = self.0.borrow_mut();
        if let Some(at) = kept.iter().position(|(of, _)| Arc::ptr_eq(of, &view.settings)) {
            // The one used last stands last.
            kept[at..].rotate_left(1);
        } else {
            if kept.len() >= PLANNERS_MAX {
                let (settings, making) = kept.remove(0);
                free(settings, making, runtime);
            }
            kept.push((view.settings.clone(), make(view, runtime).boxed_local().shared()));
        }
        kept[kept.len() - 1].1.clone()
    }
}

fn make(
    view: &IndexView,
    runtime: &Rc<dyn Runtime>,
) -> impl Future<Output = Result<Arc<Planner>, SideThreadError>> + use<> {
    let (settings, tokenizer, runtime) = (view.settings.clone(), view.tokenizer.clone(), runtime.clone());
    async move {
        let is_quick = is_made_quickly(&settings);
        let make = move || Arc::new(planner(&settings, tokenizer));
        if is_quick { Ok(make()) } else { aside(&*runtime, make).await }
    }
}

fn planner(settings: &Settings, tokenizer: Arc<TextTokenizer>) -> Planner {
    let earlier = settings.synonym_stop_words.as_ref().map(|words| tokenizer.with_stop_words(words));
    let of_synonyms = earlier.as_ref().map(|tokenizer| tokenizer as &dyn Cutter);
    Planner::new(settings, tokenizer.clone(), of_synonyms)
}

/// Whether a planner of these settings is made in no time worth mentioning.
fn is_made_quickly(settings: &Settings) -> bool {
    let mut bytes_left = FEW_BYTES;
    let mut texts = settings.synonyms.iter().flat_map(|(key, values)| std::iter::once(key).chain(values));
    let mut fits = |text: &String| bytes_left.checked_sub(text.len() + 1).map(|left| bytes_left = left).is_some();
    settings.synonyms.is_empty() || (settings.synonym_stop_words.is_none() && texts.all(&mut fits))
}

/// Lets go of a planner, on a side thread if it consists of many things.
fn free(settings: Arc<Settings>, making: Making, runtime: &Rc<dyn Runtime>) {
    if is_made_quickly(&settings) {
        return;
    }
    let planner = making.peek().cloned();
    // It holds one, too.
    drop(making);
    if let Some(Ok(planner)) = planner {
        let freed = runtime.side_thread(Box::new(move || drop((planner, settings))));
        // A full queue frees it here.
        runtime.spawn(Queue::Upkeep, freed.map(drop).boxed_local());
    }
}
