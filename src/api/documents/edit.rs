//! Editing documents by a function: validates the request; the function runs in the task.

use std::sync::Arc;

use serde_json::{Map, Value};
use shards::runtime::Watch;

use super::custom_metadata;
use super::delete::check_filter;
use crate::api::decode::Node;
use crate::api::error::{ApiError, ErrorCode};
use crate::api::router::{Answer, Call};
use crate::api::tasks::{accepted, register};
use crate::app::App;
use crate::functions::{EditFunction, FunctionError, apart};
use crate::tasks::task::{Content, NewTask};

/// A function with the documents it is to see.
#[derive(Debug)]
struct Edit {
    function: String,
    filter: Option<Value>,
    context: Option<Value>,
}

pub(super) async fn edit(mut call: Call<App>) -> Answer {
    let custom_metadata = custom_metadata(&call)?;
    let edit = call.decoded(|body| decode(&body)).await?;
    if !call.app.control.state().features.edit_documents_by_function {
        return Err(ApiError::feature_not_enabled("Editing documents by function", "editDocumentsByFunction"));
    }
    let index = call.index_uid()?.to_string();
    check_syntax(&call, edit.function.clone()).await?;
    if let Some(filter) = &edit.filter {
        check_filter(&call, filter)?;
    }
    let context = context(edit.context)?;
    let content = Content::DocumentEdition { index, filter: edit.filter, context, function: edit.function };
    Ok(accepted(&register(&call, NewTask::new(content, custom_metadata), None).await?))
}

fn decode(body: &Value) -> Result<Edit, ApiError> {
    let (mut function, mut filter, mut context) = (None, None, None);
    let body = Node::body(body);
    for field in body.fields(ErrorCode::BadRequest)? {
        match field.name() {
            "function" => function = Some(field.string(ErrorCode::InvalidDocumentEditionFunctionFilter)?),
            "filter" => filter = field.nullable(|field| Ok(field.value().clone()))?,
            "context" => context = field.nullable(|field| Ok(field.value().clone()))?,
            _ => return Err(field.unknown(ErrorCode::BadRequest)),
        }
    }
    let function = function.ok_or_else(|| body.missing("function", ErrorCode::MissingDocumentEditionFunction))?;
    Ok(Edit { function, filter, context })
}

fn context(context: Option<Value>) -> Result<Option<Map<String, Value>>, ApiError> {
    match context {
        None => Ok(None),
        Some(Value::Object(context)) => Ok(Some(context)),
        Some(other) => {
            Err(Node::body(&other).expected("an object as `context`", ErrorCode::InvalidDocumentEditionContext))
        }
    }
}

/// Compiles the function on another thread: a long text would stop this core, and one that breaks out of its function runs.
async fn check_syntax(call: &Call<App>, function: String) -> Result<(), ApiError> {
    let job = move |watch: &Arc<Watch>| {
        let watch = watch.clone();
        EditFunction::compile(&function, None, move || watch.is_unwanted()).map(drop)
    };
    match apart(&*call.app.runtime, job).await {
        Err(FunctionError::User(error)) => Err(error.into()),
        // The task says so. A leader that has the function from its client would take a refusal here to be for good.
        Ok(()) | Err(FunctionError::NotRun(_)) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_field_has_its_code() {
        let code = |body: Value| decode(&body).map(drop).map_err(|error| error.code);
        assert_eq!(code(json!({"context": {}})), Err(ErrorCode::MissingDocumentEditionFunction));
        assert_eq!(code(json!({"function": null})), Err(ErrorCode::InvalidDocumentEditionFunctionFilter));
        assert_eq!(code(json!({"function": "x", "unknown": 1})), Err(ErrorCode::BadRequest));
        assert_eq!(code(json!({"function": "x", "filter": null, "context": null})), Ok(()));
        assert_eq!(context(Some(json!([1]))).unwrap_err().code, ErrorCode::InvalidDocumentEditionContext);
    }
}
