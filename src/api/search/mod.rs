//! Search routes: from the request to the response envelope. The engine finds, ranks and formats.

pub(super) mod chat;
mod envelope;
mod facets;
mod federated;
mod hydrate;
mod long_body;
mod members;
mod multi;
mod network;
mod one;
pub mod params;
pub mod personalize;
pub mod room;
mod semantic;
mod similar;

use std::time::Duration;

use shards::runtime::RuntimePace;

use self::network::Search;
use self::params::SearchParams;
use self::room::Place;
use super::decode::json_body_and_vector;
use super::error::{ApiError, ErrorCode};
use super::router::{Answer, Call, Route};
use crate::app::App;
use crate::http::Response;
use crate::routes;

/// The routes of this folder.
pub fn routes() -> Vec<Route<App>> {
    routes! {
        Get "/indexes/{uid}/search" Search => get;
        Post "/indexes/{uid}/search" Search => post;
        Post "/indexes/{uid}/facet-search" Search => facets::post;
        Get "/indexes/{uid}/similar" Search => similar::get;
        Post "/indexes/{uid}/similar" Search => similar::post;
        Post "/multi-search" Search => multi::post;
    }
}

async fn get(call: Call<App>) -> Answer {
    let params = SearchParams::from_query(&call.query()).map_err(|error| match error.code {
        // Whether the parameters go together is told after a name that no index can have.
        ErrorCode::MissingSearchHybrid | ErrorCode::InvalidSearchHybridQuery => call.index_uid().err().unwrap_or(error),
        _ => error,
    })?;
    search(call, params).await
}

async fn post(mut call: Call<App>) -> Answer {
    let decode = |content_type: Option<&str>, body: &[u8]| {
        let (body, vector) = json_body_and_vector(content_type, body, "vector")?;
        SearchParams::from_body_and_vector(&body, vector)
    };
    let params = call.read(decode).await?;
    search(call, params).await
}

async fn search(call: Call<App>, mut params: SearchParams) -> Answer {
    let started = call.app.runtime.unix_time();
    let uid = call.index_uid()?;
    one::read_ahead(&call, uid, &mut params).await;
    let search = Search::new(&call, &call.app.control.state(), uid, params)?;
    let place = enter(&call).await?;
    let envelope = search.answer(&call, started).await?;
    drop(place);
    let envelope = personalize::personalized(&call, envelope).await;
    let body = envelope.write(&RuntimePace(&*call.app.runtime)).await;
    free(&call, search).await;
    Ok(Response::json(200, body))
}

/// Frees a search that was answered, in steps: its filter may be long.
async fn free(call: &Call<App>, search: Search) {
    if let Search::Here(search) = search {
        search.free(call).await;
    }
}

/// Waits for a place among the searches of this core.
async fn enter(call: &Call<App>) -> Result<Place, ApiError> {
    let (runtime, room) = (&call.app.runtime, &call.app.search_room);
    let wait_max = Duration::from_secs(call.app.options.drop_search_after_seconds);
    room.enter(|| runtime.random_u64(), || runtime.sleep(wait_max)).await
}
