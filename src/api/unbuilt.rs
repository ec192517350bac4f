//! Routes behind experimental features that this server does not have yet. A key is checked as for any route; then the
//! answer is that the feature is not enabled, which is true whatever its switch says.

use super::error::ApiError;
use super::router::{Answer, Call, Route};
use crate::app::App;
use crate::routes;

/// The routes of this file.
pub fn routes() -> Vec<Route<App>> {
    routes! {
        Get "/metrics" MetricsGet => metrics;
    }
}

async fn metrics(_: Call<App>) -> Answer {
    refuse("Getting metrics", "metrics")
}

fn refuse(action: &str, feature: &str) -> Answer {
    Err(ApiError::feature_not_enabled(action, feature))
}
