//! `POST /multi-search`: several searches in one request, each with its own result or (see [`federated`]) merged into one list.

use futures_util::{StreamExt, stream};
use shards::runtime::{Checkpoint, RuntimePace};
use storage_engine::vector::Pace;

use super::envelope::Envelope;
use super::long_body::Pieces;
use super::network::{Search, share};
use super::one::read_ahead;
use super::params::many::QueryParams;
use super::personalize::personalized;
use super::{enter, federated, free};
use crate::api::error::{ApiError, ErrorCode};
use crate::api::router::{Answer, Call};
use crate::app::App;
use crate::control::ControlState;
use crate::http::Response;

/// Searches of one request that run side by side: enough to keep the other cores busy, few enough that a long request
/// leaves room for others.
const SEARCHES_AT_ONCE: usize = 4;

pub(super) async fn post(mut call: Call<App>) -> Answer {
    let (asker, params) = share::asked(&mut call).await?;
    for query in &params.queries {
        call.grant.check_index(&query.index_uid)?;
    }
    match params.federation {
        Some(federation) => federated::answer(&call, params.queries, federation, asker).await,
        None => each(&call, params.queries).await,
    }
}

/// The error of one query as the request's: it says which query it is about, and as nothing in the request's path is
/// missing, no index makes it 404.
pub(super) fn inside(position: usize, error: ApiError) -> ApiError {
    let message = format!("Inside `.queries[{position}]`: {}", error.message);
    let status = if error.status == 404 { 400 } else { error.status };
    ApiError { message, status, ..error }
}

/// The same for an error of a search's answer: it is 404 where an index is missing that a foreign key names.
fn inside_answer(position: usize, error: ApiError) -> ApiError {
    ApiError { status: error.status, ..inside(position, error) }
}

/// Every query with its own answer. The first that fails in the order of the request fails the request.
async fn each(call: &Call<App>, mut queries: Vec<QueryParams>) -> Answer {
    for query in &mut queries {
        read_ahead(call, &query.index_uid, &mut query.search).await;
    }
    let state = call.app.control.state();
    let (mut searches, mut checkpoint) = (Vec::with_capacity(queries.len()), Checkpoint::default());
    for query in queries {
        searches.push(prepare(call, &state, query));
        checkpoint.tick(&*call.app.runtime).await;
    }
    let body = answers(call, &searches).await;
    for search in searches.into_iter().flatten() {
        free(call, search).await;
    }
    Ok(Response::json(200, body?))
}

/// The body of the answer to these searches.
async fn answers(call: &Call<App>, searches: &[Result<Search, ApiError>]) -> Result<Vec<u8>, ApiError> {
    let place = enter(call).await?;
    let run = searches.iter().enumerate().map(|(position, search)| one(call, position, search));
    let mut answers = stream::iter(run).buffered(SEARCHES_AT_ONCE);
    let (mut out, mut later, mut checkpoint) = (Results::default(), Vec::new(), Checkpoint::default());
    while let Some(answer) = answers.next().await {
        let (uid, envelope) = answer?;
        // What is put in another order, and all behind it, is written when the searches are done.
        match later.is_empty() && envelope.user_context.is_none() {
            true => out.add(uid, envelope),
            false => later.push((uid, envelope)),
        }
        checkpoint.look(&*call.app.runtime).await;
    }
    drop(answers);
    drop(place);
    let put_in_order = |(uid, envelope)| async move { (uid, personalized(call, envelope).await) };
    let mut later = stream::iter(later.into_iter().map(put_in_order)).buffered(SEARCHES_AT_ONCE);
    while let Some((uid, envelope)) = later.next().await {
        out.add(uid, envelope);
        checkpoint.look(&*call.app.runtime).await;
    }
    Ok(out.finish(&RuntimePace(&*call.app.runtime)).await)
}

/// The answer of one search, its hits in their usual order, with the name of its index.
async fn one<'s>(
    call: &Call<App>,
    position: usize,
    search: &'s Result<Search, ApiError>,
) -> Result<(&'s str, Envelope<'s>), ApiError> {
    let started = call.app.runtime.unix_time();
    let search = search.as_ref().map_err(|error| inside(position, error.clone()))?;
    let envelope = search.answer(call, started).await.map_err(|error| inside_answer(position, error))?;
    Ok((search.uid(), envelope))
}

/// The body of the answer as far as it is written.
#[derive(Default)]
struct Results {
    out: Pieces,
    count: usize,
}

impl Results {
    /// Appends the answer of a search, an object with members, which the name of the index joins in front.
    fn add(&mut self, uid: &str, envelope: Envelope<'_>) {
        let before = if self.count == 0 { "{\"results\":[" } else { "," };
        self.out.extend(format!("{before}{{\"indexUid\":{},", serde_json::Value::from(uid)).as_bytes());
        envelope.append(&mut self.out);
        self.count += 1;
    }

    async fn finish(mut self, pace: &dyn Pace) -> Vec<u8> {
        let end: &[u8] = if self.count == 0 { b"{\"results\":[]}" } else { b"]}" };
        self.out.extend(end);
        self.out.joined(pace).await
    }
}

fn prepare(call: &Call<App>, state: &ControlState, query: QueryParams) -> Result<Search, ApiError> {
    if query.options.is_some() {
        let message = "`federationOptions` needs a `federation` beside `queries`.";
        return Err(ApiError::new(ErrorCode::InvalidMultiSearchFederationOptions, message));
    }
    Search::new(call, state, &query.index_uid, query.search)
}
