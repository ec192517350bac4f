//! Personalized search: reorders hits for the user.
//!
//! A service ([`crate::personalization`]) receives the displayed fields of the page's hits and returns an order; nothing else in
//! the response depends on it. It is called after the search has released its slot on the core, because other searches need not
//! wait for it. A search never fails because of it: errors are logged, and the hits keep their order. A service that does not
//! respond is left alone for a while.

mod text;

use std::future::pending;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{Either, select};
use serde_json::value::RawValue;
use shards::runtime::Runtime;

use self::text::TEXT_BYTES_MAX;
use super::envelope::Envelope;
use super::members::Members;
use super::room::SearchRoom;
use crate::api::error::{ApiError, ErrorCode};
use crate::api::router::Call;
use crate::app::App;
use crate::archive::aside_if_long;
use crate::options::Options;
use crate::outgoing::Client;
use crate::personalization::{Question, Reranker, TIME_MAX};

/// Questions that one core asks at once.
const QUESTIONS_MAX: usize = 16;
/// Hits that the service is told of; those behind them stay there.
const HITS_MAX: usize = 1_000;
/// Bytes of what it is told of them, together.
const TEXTS_BYTES_MAX: usize = 4 << 20;

/// What puts hits in order, on one core.
pub struct Personalizer {
    runtime: Rc<dyn Runtime>,
    reranker: Reranker,
    /// Those that ask, and those that wait for their turn.
    room: SearchRoom,
}

/// A page as the service is told of it.
struct Told {
    question: Question,
    /// Where each of its documents stands in the page.
    places: Vec<usize>,
    hit_count: usize,
}

/// Whether a search may be for this person.
///
/// # Errors
/// `feature_not_enabled`.
pub(super) fn check(call: &Call<App>, user_context: Option<&str>) -> Result<(), ApiError> {
    if user_context.is_none() || call.app.personalizer.is_some() {
        return Ok(());
    }
    let message = "Personalized searches need a server that was started with `--experimental-personalization-api-key`.";
    Err(ApiError::new(ErrorCode::FeatureNotEnabled, message))
}

/// The answer with its hits in the order of the person whom it is for; as it is, where it is for none.
pub(super) async fn personalized<'r>(call: &Call<App>, mut envelope: Envelope<'r>) -> Envelope<'r> {
    let (Some(context), Some(personalizer)) = (envelope.user_context, &call.app.personalizer) else { return envelope };
    call.app.counting.personalized_search();
    let words = envelope.request.query.as_deref().unwrap_or_default();
    let Some(search) = text::of_search(words, context) else { return envelope };
    // One hit has one order.
    if envelope.answer.hit_count < 2 {
        return envelope;
    }
    let began = call.app.runtime.unix_time();
    let ordering = personalizer.in_order(search, std::mem::take(&mut envelope.answer.hits));
    envelope.answer.hits = Box::pin(ordering).await;
    let took = call.app.runtime.unix_time().saturating_sub(began);
    envelope.took += took;
    envelope.personalization = Some(took);
    envelope
}

impl Personalizer {
    /// What asks through `client`; `None` where there is no key.
    pub fn new(runtime: &Rc<dyn Runtime>, client: &Client, options: &Options) -> Option<Self> {
        let reranker = Reranker::new(runtime.clone(), client.clone(), options.reranker.clone()?);
        let room = SearchRoom::new(QUESTIONS_MAX, options.search_queue_max, runtime.core_count());
        Some(Self { runtime: runtime.clone(), reranker, room })
    }

    /// The hits (a JSON array) in the order that suits this search, as far as that can be found out in time.
    async fn in_order(&self, search: String, hits: Vec<u8>) -> Vec<u8> {
        if self.reranker.rests() {
            return hits;
        }
        let hits = Arc::new(hits);
        let reordered = {
            let reordered = pin!(self.reordered(search, hits.clone()));
            match select(reordered, self.runtime.sleep(TIME_MAX)).await {
                Either::Left((reordered, _)) => reordered,
                Either::Right(_) => Err("the service takes too long".into()),
            }
        };
        match reordered {
            Ok(Some(reordered)) => return reordered,
            Ok(None) => {}
            Err(why) => tracing::warn!(error = why, "a personalized search is answered in the usual order"),
        }
        Arc::unwrap_or_clone(hits)
    }

    /// The hits in another order; `None` where there is none to be asked for.
    async fn reordered(&self, search: String, hits: Arc<Vec<u8>>) -> Result<Option<Vec<u8>>, String> {
        let place = self.room.enter(|| self.runtime.random_u64(), pending).await;
        let place = place.map_err(|_| "too many searches wait for the service")?;
        // Those before may have found that the service does not answer.
        let Some(leave) = self.reranker.leave() else { return Ok(None) };
        let (bytes, page) = (hits.len(), hits.clone());
        let Some(told) = self.beside(bytes, move || Told::of(&page, &search)).await? else { return Ok(None) };
        let ranked = self.reranker.rank(leave, told.question).await?;
        drop(place);
        let reorder = move || {
            let first = ranked.into_iter().filter_map(|document| told.places.get(document).copied());
            in_this_order(&hits, &order(told.hit_count, first))
        };
        self.beside(bytes, reorder).await.map(Some)
    }

    /// Does something with so many bytes, aside if these are many.
    async fn beside<T: Send + 'static>(
        &self,
        bytes: usize,
        job: impl FnOnce() -> serde_json::Result<T> + Send + 'static,
    ) -> Result<T, String> {
        let done = aside_if_long(&*self.runtime, bytes, job).await.map_err(|error| error.to_string())?;
        done.map_err(|error| error.to_string())
    }
}

impl Told {
    /// What the service is told of these hits; `None` where there is nothing to choose from. A hit that shows nothing is left
    /// out.
    fn of(hits: &[u8], search: &str) -> serde_json::Result<Option<Self>> {
        let hits: Vec<&RawValue> = serde_json::from_slice(hits)?;
        let bytes_max = TEXT_BYTES_MAX.min(TEXTS_BYTES_MAX / hits.len().clamp(1, HITS_MAX));
        let (mut places, mut documents) = (Vec::new(), Vec::new());
        for (place, hit) in hits.iter().take(HITS_MAX).enumerate() {
            let text = text::of_hit(&serde_json::from_str::<Members<'_>>(hit.get())?, bytes_max);
            if !text.is_empty() {
                places.push(place);
                documents.push(text);
            }
        }
        let question = (documents.len() > 1).then(|| Question::new(search, &documents));
        Ok(question.map(|question| Self { question, places, hit_count: hits.len() }))
    }
}

/// The places of so many hits, those that are to be first before the others, which keep their order.
fn order(hit_count: usize, first: impl Iterator<Item = usize>) -> Vec<usize> {
    let (mut order, mut is_placed) = (Vec::with_capacity(hit_count), vec![false; hit_count]);
    for place in first {
        if is_placed.get_mut(place).is_some_and(|is_placed| !std::mem::replace(is_placed, true)) {
            order.push(place);
        }
    }
    order.extend((0..hit_count).filter(|place| !is_placed[*place]));
    order
}

/// The hits at these places, with their text untouched.
fn in_this_order(hits: &[u8], order: &[usize]) -> serde_json::Result<Vec<u8>> {
    let (bytes, hits) = (hits.len(), serde_json::from_slice::<Vec<&RawValue>>(hits)?);
    let mut out = Vec::with_capacity(bytes);
    out.push(b'[');
    for hit in order.iter().filter_map(|place| hits.get(*place)) {
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend_from_slice(hit.get().as_bytes());
    }
    out.push(b']');
    Ok(out)
}

#[cfg(test)]
mod tests;
