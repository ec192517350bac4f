//! Batch routes: lists and single batches.

use super::error::{ApiError, ErrorCode};
use super::router::{Answer, Call, Route};
use super::tasks::{list_query, scope};
use crate::app::App;
use crate::http::Response;
use crate::routes;
use crate::tasks::task::BatchUid;

/// The routes of this file.
pub fn routes() -> Vec<Route<App>> {
    routes! {
        Get "/batches" TasksGet => list;
        Get "/batches/{batch}" TasksGet => one;
    }
}

async fn list(call: Call<App>) -> Answer {
    let query = list_query(&call)?;
    Ok(Response::json(200, call.app.control.batches(query).await?))
}

async fn one(call: Call<App>) -> Answer {
    let segment = call.param(0);
    let wrong = || {
        let message = format!("Invalid value in parameter `batchUid`: expected a positive integer, found `{segment}`.");
        ApiError::new(ErrorCode::InvalidBatchUids, message)
    };
    let uid = segment.parse().map(BatchUid).map_err(|_| wrong())?;
    Ok(Response::json(200, call.app.control.batch(uid, scope(&call.grant)).await?))
}
