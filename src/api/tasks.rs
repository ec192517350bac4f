//! Tasks: lists, single ones, their payloads, cancelation and deletion.

use roaring::RoaringBitmap;
use serde_json::json;
use shards::document::PayloadFormat;
use shards::document::names::FieldNames;
use shards::document::payload::{DocumentFields, Documents};
use shards::document::record::write_fields;
use shards::fields::FieldsMap;
use shards::runtime::{Checkpoint, Runtime};
use shards::timestamp::Timestamp;

use super::decode::{Bound, Param, Params, check_index_uid, parse_date};
use super::error::{ApiError, ErrorCode};
use super::router::{Answer, Call, Route};
use crate::app::App;
use crate::auth::Grant;
use crate::control::{ListQuery, Selection};
use crate::http::{Headers, Response};
use crate::network::headers;
use crate::routes;
use crate::tasks::filter::{Filter, Page, Scope};
use crate::tasks::task::{Format, Kind, NewTask, Numbering, Status, Task, TaskUid};
use crate::tasks::view;

/// Tasks or batches on a page at most, as the reference shows it.
const LIMIT_MAX: u32 = u32::MAX - 1;
/// What the compaction of the queue asks of the operator; clients show it.
const AFTER_COMPACTION: &str = "you must restart your instance";

/// The routes of this file.
pub fn routes() -> Vec<Route<App>> {
    routes! {
        Get "/tasks" TasksGet => list;
        Delete "/tasks" TasksDelete => delete;
        Post "/tasks/cancel" TasksCancel => cancel;
        Post "/tasks/compact" TasksCompact => compact;
        Get "/tasks/{task}" TasksGet => one;
        Get "/tasks/{task}/documents" TasksGet => documents;
    }
}

/// Accepts a task of a request, with what its headers say of it.
///
/// # Errors
/// Those of the headers between instances, of numbers that clients give, and of [`crate::control::ControlHandle::register`].
pub async fn register(call: &Call<App>, mut new: NewTask, payload: Option<Vec<u8>>) -> Result<Task, ApiError> {
    new.numbering = numbering(call)?;
    // Elsewhere nobody may speak for another instance.
    if new.content.kind().is_write() && call.app.control.state().features.network {
        new.network = headers::read(&call.request.headers)?;
        if new.network.is_some() && call.request.headers.get(headers::NO_NEW_INDEX).is_some() {
            // The request has the key of the network, which may do more than the client whose write this is.
            new.content.forbid_new_index();
        }
    }
    call.app.control.register(new, payload).await
}

/// What a request says of the number of its task, where the server was started to listen to that.
fn numbering(call: &Call<App>) -> Result<Numbering, ApiError> {
    if !call.app.options.replication_parameters {
        return Ok(Numbering::default());
    }
    numbering_of(&call.request.headers)
}

fn numbering_of(headers: &Headers) -> Result<Numbering, ApiError> {
    let uid = text_of(headers, "TaskId")?.map(|text| {
        let why = |_| ApiError::bad_request(format!("The header `TaskId` must be the number of a task, not `{text}`."));
        text.trim().parse().map_err(why)
    });
    let uid = uid.transpose()?;
    let is_dry = text_of(headers, "DryRun")?.is_some_and(|text| text.trim().eq_ignore_ascii_case("true"));
    Ok(Numbering { uid, is_dry })
}

/// The text of a header, if there is one. What cannot be read may have asked for something, so it is not ignored.
fn text_of<'h>(headers: &'h Headers, name: &str) -> Result<Option<&'h str>, ApiError> {
    let why = || ApiError::bad_request(format!("The header `{name}` must be ASCII text."));
    let text = |value: &'h [u8]| std::str::from_utf8(value).ok().filter(|text| text.is_ascii()).ok_or_else(why);
    headers.get(name).map(text).transpose()
}

/// 202 with the summary of an accepted task.
pub fn accepted(task: &Task) -> Response {
    Response::from_json(202, &view::summary(task))
}

/// What a grant shows of tasks and batches.
pub fn scope(grant: &Grant) -> Scope {
    match grant.key() {
        Some(key) if !grant.sees_everything() => {
            Scope::Indexes(key.indexes.iter().map(|pattern| pattern.as_str().into()).collect())
        }
        _ => Scope::All,
    }
}

/// The parameters of a list of tasks or batches.
///
/// # Errors
/// The code of the parameter at fault; `bad_request` for an unknown one.
pub fn list_query<A>(call: &Call<A>) -> Result<ListQuery, ApiError> {
    let (mut filter, mut page) = (Filter::default(), Page::default());
    for param in call.query().iter() {
        match param.name() {
            "limit" => page.limit = param.u32(ErrorCode::InvalidTaskLimit)?.min(LIMIT_MAX),
            "from" => page.from = Some(param.u32(ErrorCode::InvalidTaskFrom)?),
            "reverse" => page.reverse = param.boolean(ErrorCode::InvalidTaskReverse)?,
            _ if read_filter(&mut filter, param)? => {}
            _ => return Err(param.unknown()),
        }
    }
    Ok(ListQuery { filter, page, scope: scope(&call.grant) })
}

async fn list(call: Call<App>) -> Answer {
    let query = list_query(&call)?;
    Ok(Response::json(200, call.app.control.tasks(query).await?))
}

async fn one(call: Call<App>) -> Answer {
    let uid = task_uid(call.param(0))?;
    Ok(Response::json(200, call.app.control.task(uid, scope(&call.grant)).await?))
}

async fn cancel(call: Call<App>) -> Answer {
    select(call, true).await
}

async fn delete(call: Call<App>) -> Answer {
    select(call, false).await
}

/// Accepts a cancelation or deletion; 200, unlike other tasks.
async fn select(call: Call<App>, cancel: bool) -> Answer {
    let params = call.query();
    let filter = selection_filter(&params)?;
    let query = format!("?{}", call.request.query);
    let selection = Selection {
        cancel,
        filter,
        query,
        scope: scope(&call.grant),
        custom_metadata: None,
        numbering: numbering(&call)?,
    };
    let task = call.app.control.register_selection(selection).await?;
    Ok(Response::from_json(200, &view::summary(&task)))
}

async fn compact(call: Call<App>) -> Answer {
    if !call.app.control.state().features.task_queue_compaction_route {
        return Err(ApiError::feature_not_enabled("Compacting the task queue", "taskQueueCompactionRoute"));
    }
    let body = match call.app.control.compact_queue().await {
        Ok((before, after)) => json!({
            "preSize": view::size(before),
            "postSize": view::size(after),
            "status": "succeeded",
            "actionRequired": AFTER_COMPACTION,
        }),
        Err(error) => {
            return Ok(Response::from_json(500, &json!({ "status": "failed", "errorMessage": error.message })));
        }
    };
    Ok(Response::from_json(200, &body))
}

async fn documents(call: Call<App>) -> Answer {
    if !call.app.control.state().features.get_task_documents_route {
        return Err(ApiError::feature_not_enabled("Getting the documents of a task", "getTaskDocumentsRoute"));
    }
    let uid = task_uid(call.param(0))?;
    let payload = call.app.control.payload(uid, scope(&call.grant)).await?;
    let body = match payload.format {
        Format::Ndjson => payload.bytes,
        Format::Json => one_after_another(&*call.app.runtime, &payload.bytes, PayloadFormat::Json).await?,
        Format::Csv { delimiter } => {
            one_after_another(&*call.app.runtime, &payload.bytes, PayloadFormat::Csv { delimiter }).await?
        }
    };
    Ok(Response::with_type(200, "application/x-ndjson", body))
}

/// The documents of a payload as JSON objects without anything between them.
async fn one_after_another(runtime: &dyn Runtime, payload: &[u8], format: PayloadFormat) -> Result<Vec<u8>, ApiError> {
    let mut body = Vec::with_capacity(payload.len());
    let mut checkpoint = Checkpoint::default();
    let mut documents = Documents::new(payload, format).map_err(ApiError::internal)?;
    let mut document = DocumentFields::default();
    // The names of one document at a time, so that its fields keep the order in which it has them.
    loop {
        let mut map = FieldsMap::default();
        if !documents.next(&mut FieldNames::new(&mut map), &mut document).map_err(ApiError::internal)? {
            return Ok(body);
        }
        write_fields(document.iter(), &map, &mut body);
        checkpoint.tick(runtime).await;
    }
}

/// A path segment as the number of a task.
fn task_uid(segment: &str) -> Result<TaskUid, ApiError> {
    let wrong = || {
        let message = format!("Invalid value in parameter `taskUid`: expected a positive integer, found `{segment}`.");
        ApiError::new(ErrorCode::InvalidTaskUids, message)
    };
    segment.parse().map(TaskUid).map_err(|_| wrong())
}

/// The parameters of a cancelation or deletion: filters, at least one.
fn selection_filter(params: &Params) -> Result<Filter, ApiError> {
    let mut filter = Filter::default();
    for param in params.iter() {
        if !read_filter(&mut filter, param)? {
            return Err(param.unknown());
        }
    }
    if params.is_empty() {
        let message = "Query parameters to filter the tasks are missing: give at least one of `uids`, `batchUids`, \
                       `canceledBy`, `statuses`, `types`, `indexUids` or the dates.";
        return Err(ApiError::new(ErrorCode::MissingTaskFilters, message));
    }
    Ok(filter)
}

/// Reads one parameter into the filter; false when the name is none of a filter.
fn read_filter(filter: &mut Filter, param: &Param) -> Result<bool, ApiError> {
    use ErrorCode as Code;
    match param.name() {
        "uids" => filter.uids = numbers(param, Code::InvalidTaskUids)?,
        "batchUids" => filter.batches = numbers(param, Code::InvalidBatchUids)?,
        "canceledBy" => filter.canceled_by = numbers(param, Code::InvalidTaskCanceledBy)?,
        "statuses" => filter.statuses = names(param, Code::InvalidTaskStatuses, Status::named, &status_names())?,
        "types" => filter.kinds = names(param, Code::InvalidTaskTypes, Kind::named, &kind_names())?,
        "indexUids" => filter.indexes = indexes(param)?,
        "afterEnqueuedAt" => filter.enqueued.after = date(param, Bound::After, Code::InvalidTaskAfterEnqueuedAt)?,
        "beforeEnqueuedAt" => filter.enqueued.before = date(param, Bound::Before, Code::InvalidTaskBeforeEnqueuedAt)?,
        "afterStartedAt" => filter.started.after = date(param, Bound::After, Code::InvalidTaskAfterStartedAt)?,
        "beforeStartedAt" => filter.started.before = date(param, Bound::Before, Code::InvalidTaskBeforeStartedAt)?,
        "afterFinishedAt" => filter.finished.after = date(param, Bound::After, Code::InvalidTaskAfterFinishedAt)?,
        "beforeFinishedAt" => filter.finished.before = date(param, Bound::Before, Code::InvalidTaskBeforeFinishedAt)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn numbers(param: &Param, code: ErrorCode) -> Result<Option<RoaringBitmap>, ApiError> {
    let parse =
        |item: &str| item.parse::<u32>().map_err(|_| param.expected("positive integers separated by commas", code));
    items(param, parse).map(|items| items.map(RoaringBitmap::from_iter))
}

/// The items of a list, each read by `parse`; `None`, no restriction, where `*` is among them. What stands beside a `*` has
/// to be right too.
fn items<T>(param: &Param, parse: impl Fn(&str) -> Result<T, ApiError>) -> Result<Option<Vec<T>>, ApiError> {
    let items = param.list();
    let named = items.iter().filter(|item| *item != "*").map(|item| parse(item));
    let named = named.collect::<Result<Vec<_>, _>>()?;
    Ok((named.len() == items.len()).then_some(named))
}

fn names<T>(
    param: &Param,
    code: ErrorCode,
    named: fn(&str) -> Option<T>,
    known: &str,
) -> Result<Option<Vec<T>>, ApiError> {
    let parse = |item: &str| {
        let message =
            || format!("`{item}` is not valid in parameter `{}`. Available values are {known}.", param.name());
        named(item).ok_or_else(|| ApiError::new(code, message()))
    };
    items(param, parse)
}

fn status_names() -> String {
    Status::ALL.map(|status| format!("`{}`", status.name())).join(", ")
}

fn kind_names() -> String {
    Kind::ALL.map(|kind| format!("`{}`", kind.name())).join(", ")
}

fn indexes(param: &Param) -> Result<Option<Vec<String>>, ApiError> {
    items(param, |item| check_index_uid(item).map(|()| item.to_owned()))
}

/// A date. The reference sorts dates before 1970 behind all others, so that nothing is after them and everything before; clients
/// see that, so it is kept. Dates beyond what a task can have are the last.
fn date(param: &Param, bound: Bound, code: ErrorCode) -> Result<Option<Timestamp>, ApiError> {
    if param.text() == "*" {
        return Ok(None);
    }
    let date = Timestamp::from_date(parse_date(param.text(), bound, code)?).filter(|date| date.0 >= 0);
    Ok(Some(date.unwrap_or(Timestamp(i64::MAX))))
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use storage_engine::io::mem::MemDisk;

    use super::*;
    use crate::control::testing::TestRuntime;

    fn filter(raw: &str) -> Result<Filter, ErrorCode> {
        selection_filter(&Params::parse(raw)).map_err(|error| error.code)
    }

    #[test]
    fn filters_are_read_and_refused() {
        let read = filter("uids=1,,2&statuses=Failed&types=IndexSwap&indexUids=a,b&afterStartedAt=2021-12-03").unwrap();
        assert_eq!(read.uids, Some([1, 2].into_iter().collect()));
        assert_eq!((read.statuses, read.kinds), (Some(vec![Status::Failed]), Some(vec![Kind::IndexSwap])));
        assert_eq!(read.started.after, Timestamp::parse_rfc3339("2021-12-04T00:00:00Z"));
        for (raw, code) in [
            ("", ErrorCode::MissingTaskFilters),
            ("limit=1", ErrorCode::BadRequest),
            ("uids=a", ErrorCode::InvalidTaskUids),
            ("uids=1,%202", ErrorCode::InvalidTaskUids),
            ("batchUids=-1", ErrorCode::InvalidBatchUids),
            ("canceledBy=4294967296", ErrorCode::InvalidTaskCanceledBy),
            ("statuses=done", ErrorCode::InvalidTaskStatuses),
            ("types=all", ErrorCode::InvalidTaskTypes),
            ("indexUids=a%20b", ErrorCode::InvalidIndexUid),
            ("uids=a,*", ErrorCode::InvalidTaskUids),
            ("statuses=*,done", ErrorCode::InvalidTaskStatuses),
            ("indexUids=*,a%20b", ErrorCode::InvalidIndexUid),
            ("beforeFinishedAt=2020", ErrorCode::InvalidTaskBeforeFinishedAt),
        ] {
            assert_eq!(filter(raw), Err(code), "{raw}");
        }
    }

    /// A dry run that was asked for in letters that are no ASCII was carried out.
    #[test]
    fn headers_that_cannot_be_read_are_refused() {
        let of = |name: &str, value: &[u8]| {
            let mut headers = Headers::default();
            headers.push(name, value);
            numbering_of(&headers).map_err(|error| error.code)
        };
        assert_eq!(of("dryrun", b" TRUE"), Ok(Numbering { uid: None, is_dry: true }));
        assert_eq!(of("DryRun", b"yes"), Ok(Numbering::default()));
        assert_eq!(of("TaskId", b"7 "), Ok(Numbering { uid: Some(7), is_dry: false }));
        for name in ["DryRun", "TaskId"] {
            for value in [&b"\xff"[..], "true\u{e9}".as_bytes()] {
                assert_eq!(of(name, value), Err(ErrorCode::BadRequest), "{name}");
            }
        }
    }

    #[test]
    fn dates_before_1970_lie_behind_all_others() {
        let read = filter("afterEnqueuedAt=0000-01-01&beforeEnqueuedAt=1969-12-31T23:59:59Z").unwrap();
        assert_eq!((read.enqueued.after, read.enqueued.before), (Some(Timestamp(i64::MAX)), Some(Timestamp(i64::MAX))));
    }

    #[test]
    fn stars_are_no_restriction_and_empty_lists_match_nothing() {
        assert_eq!(filter("uids=1,*&statuses=*&afterEnqueuedAt=*"), Ok(Filter::default()));
        assert_eq!(filter("uids=").unwrap().uids, Some(RoaringBitmap::new()));
    }

    #[test]
    fn objects_stand_one_after_another() {
        let runtime = TestRuntime::new(Rc::new(MemDisk::new()));
        let shown = |payload: &str, format| {
            let body = runtime.run(one_after_another(&runtime, payload.as_bytes(), format)).unwrap();
            String::from_utf8(body.unwrap()).unwrap()
        };
        assert_eq!(
            shown(r#" [ {"b": 1, "a": {"c": 2}}, {"a": [1, 2]} ] x"#, PayloadFormat::Json),
            r#"{"b":1,"a":{"c":2}}{"a":[1,2]}"#
        );
        assert_eq!(shown(r#"{"a": 1}"#, PayloadFormat::Json), r#"{"a":1}"#);
        let csv = PayloadFormat::Csv { delimiter: b';' };
        assert_eq!(shown("b;a:number\nx;1\n;2\n", csv), r#"{"b":"x","a":1}{"b":null,"a":2}"#);
    }
}
