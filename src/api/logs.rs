//! Logging at run time: the console's filter, and a log stream for one client.

use serde_json::Value;
use tracing_subscriber::filter::Targets;

use super::decode::Node;
use super::error::{ApiError, ErrorCode};
use super::router::{Answer, Call, Route};
use crate::app::App;
use crate::http::{Response, ResponseBody};
use crate::logging::{begin_stream, end_stream, parse_target, set_console};
use crate::options::values::LogsMode;
use crate::routes;

/// What is told when nothing is said.
const TARGET_DEFAULT: &str = "info";

/// The routes of this file.
pub fn routes() -> Vec<Route<App>> {
    routes! {
        Post "/logs/stream" MetricsGet => stream;
        Delete "/logs/stream" MetricsGet => end;
        Post "/logs/stderr" MetricsGet => console;
    }
}

/// What a client asks of the stream.
#[derive(Debug)]
struct StreamBody {
    targets: Targets,
    mode: Mode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Lines(LogsMode),
    Profile,
}

async fn stream(mut call: Call<App>) -> Answer {
    let body = call.decoded(|body| StreamBody::decode(&body)).await?;
    check_feature(&call)?;
    let Mode::Lines(mode) = body.mode else {
        return Err(ApiError::bad_request("This server does not profile itself; `mode` must be `human` or `json`."));
    };
    let Some(lines) = begin_stream(body.targets, mode).map_err(ApiError::internal)? else {
        return Err(ApiError::bad_request("The log is being streamed already; only one stream runs at a time."));
    };
    let mut response = Response::with_type(200, "application/octet-stream", Vec::new());
    response.body = ResponseBody::Endless(lines);
    Ok(response.header("x-accel-buffering", "no"))
}

async fn end(call: Call<App>) -> Answer {
    check_feature(&call)?;
    end_stream();
    Ok(Response::empty(204))
}

async fn console(mut call: Call<App>) -> Answer {
    let targets = call.decoded(|body| console_targets(&body)).await?;
    check_feature(&call)?;
    set_console(targets).map_err(ApiError::internal)?;
    Ok(Response::empty(204))
}

fn check_feature(call: &Call<App>) -> Result<(), ApiError> {
    match call.app.control.state().features.logs_route {
        true => Ok(()),
        false => Err(ApiError::feature_not_enabled("Changing the logs at run time", "logsRoute")),
    }
}

fn console_targets(body: &Value) -> Result<Targets, ApiError> {
    let mut targets = None;
    for field in Node::body(body).fields(ErrorCode::BadRequest)? {
        match field.name() {
            "target" => targets = Some(target(&field)?),
            _ => return Err(field.unknown(ErrorCode::BadRequest)),
        }
    }
    targets.map_or_else(default_targets, Ok)
}

fn default_targets() -> Result<Targets, ApiError> {
    parse_target(TARGET_DEFAULT).map_err(ApiError::internal)
}

fn target(field: &Node<'_>) -> Result<Targets, ApiError> {
    parse_target(field.str(ErrorCode::BadRequest)?).map_err(|reason| field.invalid(reason, ErrorCode::BadRequest))
}

impl StreamBody {
    fn decode(body: &Value) -> Result<Self, ApiError> {
        let (mut targets, mut mode, mut memory) = (None, Mode::Lines(LogsMode::Human), false);
        for field in Node::body(body).fields(ErrorCode::BadRequest)? {
            match field.name() {
                "target" => targets = Some(target(&field)?),
                "mode" => {
                    mode = match field.str(ErrorCode::BadRequest)? {
                        "human" => Mode::Lines(LogsMode::Human),
                        "json" => Mode::Lines(LogsMode::Json),
                        "profile" => Mode::Profile,
                        _ => return Err(field.expected("`human`, `json` or `profile`", ErrorCode::BadRequest)),
                    };
                }
                "profileMemory" => memory = field.boolean(ErrorCode::BadRequest)?,
                _ => return Err(field.unknown(ErrorCode::BadRequest)),
            }
        }
        if memory && mode != Mode::Profile {
            // The code is the reference's, which clients know.
            let message = "`profileMemory` needs the mode `profile`.";
            return Err(ApiError::new(ErrorCode::InvalidSettingsTypoTolerance, message));
        }
        Ok(Self { targets: targets.map_or_else(default_targets, Ok)?, mode })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bodies_are_read_and_refused() {
        let mode = |body: Value| StreamBody::decode(&body).map(|body| body.mode).map_err(|error| error.code);
        assert_eq!(mode(json!({})), Ok(Mode::Lines(LogsMode::Human)));
        assert_eq!(mode(json!({"mode": "json", "target": "a=1"})), Ok(Mode::Lines(LogsMode::Json)));
        assert_eq!(mode(json!({"mode": "profile", "profileMemory": true})), Ok(Mode::Profile));
        assert_eq!(mode(json!({"profileMemory": true})), Err(ErrorCode::InvalidSettingsTypoTolerance));
        for wrong in [json!({"mode": "loud"}), json!({"target": null}), json!({"x": 1}), json!([]), json!({"mode": 1})]
        {
            assert_eq!(mode(wrong.clone()), Err(ErrorCode::BadRequest), "{wrong}");
        }
        assert!(console_targets(&json!({"mode": "json"})).is_err() && console_targets(&json!({})).is_ok());
    }
}
