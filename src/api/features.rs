//! The switches of experimental features.

use serde_json::Value;

use super::decode::Node;
use super::error::{ApiError, ErrorCode};
use super::router::{Answer, Call, Route};
use crate::app::App;
use crate::control::{ControlChange, Features};
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
async fn update(call: Call<App>) -> Answer {
    let features = changed(call.app.control.state().features, &call.json()?)?;
    call.app.control.change(ControlChange::SetFeatures(features)).await?;
    Ok(Response::from_json(200, &features))
}

fn changed(mut features: Features, body: &Value) -> Result<Features, ApiError> {
    for field in Node::body(body).fields(ErrorCode::BadRequest)? {
        let value = field.nullable(|field| field.boolean(ErrorCode::BadRequest))?;
        let switch = features.switch(field.name()).ok_or_else(|| field.unknown(ErrorCode::BadRequest))?;
        *switch = value.unwrap_or(*switch);
    }
    Ok(features)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_null_changes_nothing() {
        let on = Features { metrics: true, ..Features::default() };
        assert_eq!(changed(on, &json!({"metrics": null})).ok(), Some(on));
        let both = Features { network: true, ..on };
        assert_eq!(changed(on, &json!({"network": true})).ok(), Some(both));
        for wrong in [json!({"metric": true}), json!({"metrics": 1}), json!([]), json!(null)] {
            assert_eq!(changed(on, &wrong).map_err(|error| error.code), Err(ErrorCode::BadRequest), "{wrong}");
        }
    }
}
