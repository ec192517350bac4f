//! Documents edited by a user's function.

use std::sync::Arc;

use serde_json::{Map, Value};
use shards::document::primary_key::id_of_json;
use shards::engine::{BatchOp, DocumentsQuery, IndexView};
use shards::error::UserError;
use shards::runtime::Watch;

use super::documents::end;
use super::{fail_batch, index_not_found, operations, unless_interrupted};
use crate::control::indexes::IndexError;
use crate::functions::{Edit, EditFunction, FunctionError, apart};
use crate::tasks::task::{Content, Outcome};
use crate::tasks::worker::{Broken, End, Run};

/// Documents read and edited at once.
const CHUNK_DOCUMENTS: u64 = 500;

/// What the functions of one chunk came to: documents to write and to delete, by id.
#[derive(Default)]
struct Edited {
    replaced: Vec<(String, Vec<u8>)>,
    deleted: Vec<String>,
}

/// A function with what it needs, for a thread of its own.
#[derive(Clone)]
struct Script {
    function: String,
    context: Option<Map<String, Value>>,
    primary_key: String,
}

/// Runs the function over the documents that the filter chooses; all are edited or none is.
pub(super) async fn edit(run: &mut Run<'_>) -> Result<End, Broken> {
    let content = run.tasks.first().map(|task| task.content.clone());
    let Some(Content::DocumentEdition { index, filter, context, function }) = content else {
        return fail_batch(run, IndexError::Failed("a task came to a step for another kind".into())).await;
    };
    let Some(view) = run.plane.state().index(&index).cloned() else {
        return fail_batch(run, index_not_found(&index)).await;
    };
    // An index without a primary key has no documents.
    let primary_key = view.primary_key.clone().unwrap_or_default();
    let script = Script { function, context, primary_key };
    let (edited, chosen) = match edit_all(run, &view, filter, script).await {
        Some(Ok(edited)) => edited,
        Some(Err(error)) => return fail_batch(run, error).await,
        None => return Ok(End::Interrupted),
    };
    let mut batch = operations(run);
    batch.ops.push(BatchOp::Edit { replaced: edited.replaced, deleted: edited.deleted });
    // As the reference has it, an index is updated even if the function changes nothing, but not if it was not called.
    batch.updated_at = (chosen == 0).then_some(view.updated_at);
    let prepared = match run.prepare(view, batch).await {
        None => return Ok(End::Interrupted),
        Some(Ok(prepared)) => prepared,
        Some(Err(error)) => return fail_batch(run, error).await,
    };
    if let Some(Err(error)) = prepared.outcomes().first() {
        let error = error.clone();
        prepared.abort().await;
        return fail_batch(run, error.into()).await;
    }
    for task in &mut run.tasks {
        task.outcome = Outcome::Documents(chosen);
    }
    end(run, &index, prepared, true).await
}

/// The edits of all chosen documents, and how many those are; `None` when a cancelation came in between.
async fn edit_all(
    run: &Run<'_>,
    view: &Arc<IndexView>,
    filter: Option<Value>,
    script: Script,
) -> Option<Result<(Edited, u64), IndexError>> {
    let (mut edited, mut offset) = (Edited::default(), 0);
    loop {
        if run.plane.interrupt.is_raised() {
            return None;
        }
        let query = DocumentsQuery { filter: filter.clone(), offset, limit: CHUNK_DOCUMENTS, ..Default::default() };
        let page = match run.plane.indexes.documents(view.clone(), query).await {
            Ok(page) => page,
            Err(error) => return Some(Err(error)),
        };
        let mut documents = Vec::with_capacity(page.documents.len());
        for document in &page.documents {
            let mut json = Vec::new();
            document.write_json(&page.fields, &mut json);
            documents.push(json);
        }
        offset += documents.len() as u64;
        let done = documents.is_empty() || offset >= page.total;
        match unless_interrupted(run, edit_chunk(run, script.clone(), documents)).await? {
            Ok(chunk) => {
                edited.replaced.extend(chunk.replaced);
                edited.deleted.extend(chunk.deleted);
            }
            Err(error) => return Some(Err(error)),
        }
        if done {
            return Some(Ok((edited, page.total)));
        }
    }
}

/// Runs the function over some documents, apart from everybody else's threads.
async fn edit_chunk(run: &Run<'_>, script: Script, documents: Vec<Vec<u8>>) -> Result<Edited, IndexError> {
    let job = move |watch: &Arc<Watch>| {
        let (asked, watch) = (watch.clone(), watch.clone());
        run_script(&script, &documents, move || asked.is_unwanted(), || watch.step())
    };
    apart(&*run.plane.runtime, job).await.map_err(|error| match error {
        FunctionError::User(error) => error.into(),
        FunctionError::NotRun(error) => IndexError::FunctionNotRun(error),
    })
}

/// Runs the function over the documents in turn, `step` before each; not over the rest of them once `is_unwanted` says so.
fn run_script(
    script: &Script,
    documents: &[Vec<u8>],
    is_unwanted: impl Fn() -> bool + Clone + 'static,
    step: impl Fn(),
) -> Result<Edited, UserError> {
    let function = EditFunction::compile(&script.function, script.context.as_ref(), is_unwanted.clone())?;
    let mut edited = Edited::default();
    for json in documents {
        step();
        if is_unwanted() {
            break;
        }
        let document: Map<String, Value> =
            serde_json::from_slice(json).map_err(|error| UserError::new("internal", error.to_string()))?;
        let id = document_id(&document, &script.primary_key)?;
        match function.run(&document)? {
            Edit::Keep => {}
            Edit::Delete => edited.deleted.push(id),
            Edit::Replace(new) => {
                if document_id(&new, &script.primary_key)? != id {
                    let message = format!("The function changed the id of document `{id}`, which must stay.");
                    return Err(UserError::new("edit_documents_by_function_error", message));
                }
                let json = serde_json::to_vec(&new).map_err(|error| UserError::new("internal", error.to_string()))?;
                edited.replaced.push((id, json));
            }
        }
    }
    Ok(edited)
}

/// The id of a document, as text.
fn document_id(document: &Map<String, Value>, primary_key: &str) -> Result<String, UserError> {
    let mut found = Vec::new();
    find(document, primary_key, &mut found);
    match found.as_slice() {
        [value] => id_of_json(value.to_string().as_bytes()),
        [] => Err(UserError::new("missing_document_id", format!("A document has no field `{primary_key}`."))),
        _ => Err(UserError::new("invalid_document_id", format!("A document has several fields `{primary_key}`."))),
    }
}

/// Every value at a dotted path, whichever of its dots are parts of names.
fn find<'v>(object: &'v Map<String, Value>, path: &str, found: &mut Vec<&'v Value>) {
    for (name, value) in object {
        match (path.strip_prefix(name.as_str()), value) {
            (Some(""), value) => found.push(value),
            (Some(rest), Value::Object(inner)) => {
                if let Some(rest) = rest.strip_prefix('.') {
                    find(inner, rest, found);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn edited(function: &str, documents: &[Value]) -> Result<Edited, &'static str> {
        let script = Script { function: function.into(), context: None, primary_key: "a.id".into() };
        let documents: Vec<Vec<u8>> = documents.iter().map(|document| document.to_string().into_bytes()).collect();
        run_script(&script, &documents, || false, || ()).map_err(|error| error.code)
    }

    /// A canceled edit once went on to the end of its chunk, and held a side thread for as long as 500 documents took.
    #[test]
    fn what_nobody_wants_is_not_run() {
        let script = Script { function: "doc = null".into(), context: None, primary_key: "id".into() };
        let documents: Vec<Vec<u8>> = (0..3).map(|id| json!({"id": id}).to_string().into_bytes()).collect();
        let steps = std::rc::Rc::new(std::cell::Cell::new(0));
        let counted = steps.clone();
        let (is_unwanted, step) = (move || counted.get() > 1, || steps.set(steps.get() + 1));
        assert_eq!(run_script(&script, &documents, is_unwanted, step).ok().unwrap().deleted, ["0"]);
    }

    #[test]
    fn functions_replace_keep_and_delete() {
        let documents =
            [json!({"a": {"id": 1}, "n": 1}), json!({"a.id": 2, "n": 2}), json!({"a": {"id": "x"}, "n": 3})];
        let edits = edited("if (doc.n == 1) doc.n = 10; if (doc.n == 3) doc = null", &documents).ok().unwrap();
        assert_eq!(edits.replaced, [("1".to_string(), br#"{"a":{"id":1},"n":10}"#.to_vec())]);
        assert_eq!(edits.deleted, ["x"]);
    }

    #[test]
    fn ids_must_stay() {
        let documents = [json!({"a": {"id": 1}})];
        assert_eq!(edited("doc.a.id = 2", &documents).err(), Some("edit_documents_by_function_error"));
        assert_eq!(edited("doc.a.id = '1'", &documents).err(), None);
        assert_eq!(edited("delete doc.a.id", &documents).err(), Some("missing_document_id"));
        assert_eq!(edited("doc.a.id = 1.5", &documents).err(), Some("invalid_document_id"));
        assert_eq!(edited("doc['a.id'] = 1", &documents).err(), Some("invalid_document_id"));
    }
}
