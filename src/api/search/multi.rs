//! `POST /multi-search`: several searches in one request, each with its own answer or (see [`federated`]) as one list.

use futures_util::{StreamExt, stream};
use shards::runtime::Checkpoint;

use super::network::{Search, share};
use super::one::read_ahead;
use super::params::many::QueryParams;
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
    let (words, params) = share::asked(&mut call).await?;
    for query in &params.queries {
        call.grant.check_index(&query.index_uid)?;
    }
    match params.federation {
        Some(federation) => federated::answer(&call, params.queries, federation, words).await,
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
    let place = enter(call).await?;
    let run = |(position, search): (usize, Result<Search, ApiError>)| async move {
        let started = call.app.runtime.unix_time();
        match search {
            Ok(search) => {
                let answer = search.answer(call, started).await.map(|body| (search.uid().to_owned(), body));
                free(call, search).await;
                answer
            }
            Err(error) => Err(error),
        }
        .map_err(|error| inside(position, error))
    };
    let mut answers = stream::iter(searches.into_iter().enumerate().map(run)).buffered(SEARCHES_AT_ONCE);
    let mut out = b"{\"results\":[".to_vec();
    while let Some(answer) = answers.next().await {
        let (uid, body) = answer?;
        if out.last() != Some(&b'[') {
            out.push(b',');
        }
        // The answer of a search is an object with members, which the name of the index joins in front.
        out.extend_from_slice(format!("{{\"indexUid\":{},", serde_json::Value::from(uid)).as_bytes());
        out.extend_from_slice(&body[1..]);
    }
    drop(place);
    out.extend_from_slice(b"]}");
    Ok(Response::json(200, out))
}

fn prepare(call: &Call<App>, state: &ControlState, query: QueryParams) -> Result<Search, ApiError> {
    if query.options.is_some() {
        let message = "`federationOptions` needs a `federation` beside `queries`.";
        return Err(ApiError::new(ErrorCode::InvalidMultiSearchFederationOptions, message));
    }
    Search::new(call, state, &query.index_uid, query.search)
}
