//! Dumps and snapshots: tasks that copy the whole instance.

use super::router::{Answer, Call, Route};
use super::tasks::{accepted, register};
use crate::app::App;
use crate::routes;
use crate::tasks::task::Content;

/// The routes of this file.
pub fn routes() -> Vec<Route<App>> {
    routes! {
        Post "/dumps" DumpsCreate => dump;
        Post "/snapshots" SnapshotsCreate => snapshot;
    }
}

/// The body says nothing and is not looked at.
async fn dump(call: Call<App>) -> Answer {
    Ok(accepted(&register(&call, Content::DumpCreation.into(), None).await?))
}

async fn snapshot(call: Call<App>) -> Answer {
    Ok(accepted(&register(&call, Content::SnapshotCreation.into(), None).await?))
}
