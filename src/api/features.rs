//! The switches of experimental features.

use serde_json::Value;

use super::decode::Node;
use super::error::{ApiError, ErrorCode};
use super::router::{Answer, Call, Route};
use crate::app::App;
use crate::control::{ControlChange, Features, FeaturesPatch};
use crate::http::Response;
use crate::routes;

/// The routes of this file.
pub fn routes() -> Vec<Route<App>> {
    routes! {
        Get "/experimental-features" ExperimentalGet => get;
        Patch "/experimental-features" ExperimentalUpdate => update;
    }
}

async fn get(call: Call<App>) -> Answer {
    Ok(Response::from_json(200, &call.app.control.state().features))
}

/// Stores all effective values, those that the command line turned on included.
async fn update(mut call: Call<App>) -> Answer {
    let patch = call.decoded(|body| patch(&body)).await?;
    call.app.control.change(ControlChange::SetFeatures(patch)).await?;
    Ok(Response::from_json(200, &call.app.control.state().features))
}

/// Which switches a body sets. A null changes nothing.
fn patch(body: &Value) -> Result<FeaturesPatch, ApiError> {
    let mut patch = FeaturesPatch::default();
    for field in Node::body(body).fields(ErrorCode::BadRequest)? {
        let value = field.nullable(|field| field.boolean(ErrorCode::BadRequest))?;
        let name = Features::named(field.name()).ok_or_else(|| field.unknown(ErrorCode::BadRequest))?;
        patch.0.extend(value.map(|value| (name, value)));
    }
    Ok(patch)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_null_changes_nothing() {
        let on = Features { metrics: true, ..Features::default() };
        let changed = |body: Value| patch(&body).ok().map(|patch| patch.applied(on));
        assert_eq!(changed(json!({"metrics": null})), Some(on));
        let both = Features { network: true, ..on };
        assert_eq!(changed(json!({"network": true})), Some(both));
        for wrong in [json!({"metric": true}), json!({"metrics": 1}), json!([]), json!(null)] {
            assert_eq!(patch(&wrong).map_err(|error| error.code).err(), Some(ErrorCode::BadRequest), "{wrong}");
        }
    }
}
