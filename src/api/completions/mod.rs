//! Chat completions: a model answers a conversation and searches the indexes on the way.

mod body;
mod talk;

use futures_util::{StreamExt, stream};

use self::body::CompletionBody;
use self::talk::{Talk, send};
use super::error::ApiError;
use super::router::{Answer, Call, Route};
use super::search::chat::searchable_indexes;
use crate::app::App;
use crate::chats::{find, model};
use crate::http::{Response, ResponseBody};
use crate::routes;

/// Events that wait for a client that reads slowly; then the model waits too.
const EVENTS_WAITING_MAX: usize = 16;

/// The first event: when a client that was cut off may come back.
const RETRY_HINT: &[u8] = b"retry: 10000\n\n";

/// The routes of this folder.
pub fn routes() -> Vec<Route<App>> {
    routes! {
        Post "/chats/{workspace}/chat/completions" ChatCompletions => complete;
    }
}

async fn complete(mut call: Call<App>) -> Answer {
    let body = call.decoded(|body| CompletionBody::decode(&body)).await?;
    let state = call.app.control.state();
    if !state.features.chat_completions {
        return Err(ApiError::feature_not_enabled("Using the routes under `/chats`", "chatCompletions"));
    }
    body.check_manner()?;
    let settings = find(&state.chats, call.param(0))?.clone();
    let functions = body.client_functions()?;
    let indexes = searchable_indexes(&call).await?;
    let first = model::body(&settings, &settings.prompts.effective(), &indexes, body.fields);
    let (mut events, waiting) = futures_channel::mpsc::channel(EVENTS_WAITING_MAX);
    let talk = async move {
        // A client that goes drops the stream and the talk with it.
        let _ = send(&mut events, RETRY_HINT.to_vec()).await;
        Talk { call, settings, functions, events }.run(first).await;
    };
    let talk = stream::once(talk).filter_map(|()| async { None });
    let mut response = Response::with_type(200, "text/event-stream", Vec::new());
    response.body = ResponseBody::Stream(stream::select(waiting, talk).boxed_local());
    Ok(response.header("X-Accel-Buffering", "no").header("Cache-Control", "no-cache"))
}
