//! The interface as a client meets it: requests through the router, tasks through the control plane, documents from a stand-in
//! for the engine.

mod long_bodies;
mod rights;

use std::cell::RefCell;
use std::ffi::OsString;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{FutureExt, LocalBoxFuture};
use serde_json::{Value, json};
use shards::document::RawDocument;
use shards::engine::{DocumentsPage, DocumentsQuery, EngineError, IndexView};
use shards::fields::FieldsMap;
use shards::ids::{DocId, FieldId};
use shards::runtime::Runtime;
use shards::search::federated::{FederatedAnswer, FederatedError, FederatedRequest, Part, Rescored, Shares};
use shards::search::{FacetSearchRequest, SearchAnswer, SearchError, SearchRequest, SimilarAnswer, SimilarRequest};

use super::reader::Reader;
use super::router::Router;
use crate::app::App;
use crate::control::testing::{Instance, NO_LIMITS, World};
use crate::http::{Headers, Method, Request, Response, Service};
use crate::options::Options;

/// Every index has the one document `{"id": "1"}`; searches find it once.
struct OneDocument {
    /// The hits of a search.
    hits: &'static str,
    /// What was searched for.
    searches: RefCell<Vec<SearchRequest>>,
    /// Which documents were asked for.
    asked: RefCell<Vec<DocumentsQuery>>,
}

impl Default for OneDocument {
    fn default() -> Self {
        Self { hits: "[{}]", searches: RefCell::default(), asked: RefCell::default() }
    }
}

fn document() -> RawDocument {
    RawDocument { doc: DocId(0), fields: vec![(FieldId(0), b"\"1\"".as_slice().into())] }
}

impl Reader for OneDocument {
    fn document(
        &self,
        _: Arc<IndexView>,
        id: String,
    ) -> LocalBoxFuture<'static, Result<Option<RawDocument>, EngineError>> {
        async move { Ok((id == "1").then(document)) }.boxed_local()
    }

    fn documents(
        &self,
        _: Arc<IndexView>,
        query: DocumentsQuery,
    ) -> LocalBoxFuture<'static, Result<DocumentsPage, EngineError>> {
        let documents = if query.limit > 0 { vec![document()] } else { Vec::new() };
        self.asked.borrow_mut().push(query);
        let mut fields = FieldsMap::default();
        fields.insert("id");
        async move { Ok(DocumentsPage { documents, total: 1, fields: Arc::new(fields) }) }.boxed_local()
    }

    fn search(
        &self,
        _: Arc<IndexView>,
        request: SearchRequest,
    ) -> LocalBoxFuture<'static, Result<SearchAnswer, SearchError>> {
        self.searches.borrow_mut().push(request);
        let answer = SearchAnswer { hits: self.hits.into(), hit_count: 1, total: 1, ..SearchAnswer::default() };
        async move { Ok(answer) }.boxed_local()
    }

    fn facet_search(
        &self,
        _: Arc<IndexView>,
        _: FacetSearchRequest,
    ) -> LocalBoxFuture<'static, Result<Vec<(String, u64)>, SearchError>> {
        async move { Ok(vec![("red".to_owned(), 1)]) }.boxed_local()
    }

    fn similar(
        &self,
        _: Arc<IndexView>,
        _: SimilarRequest,
    ) -> LocalBoxFuture<'static, Result<SimilarAnswer, SearchError>> {
        async move { Ok(SimilarAnswer { hits: b"[{}]".to_vec(), total: 1 }) }.boxed_local()
    }

    fn federated_search(
        &self,
        _: Vec<Arc<IndexView>>,
        _: FederatedRequest,
    ) -> LocalBoxFuture<'static, Result<FederatedAnswer, FederatedError>> {
        let answer = FederatedAnswer { hits: b"[{}]".to_vec(), hit_count: 1, total: 1, ..FederatedAnswer::default() };
        async move { Ok(answer) }.boxed_local()
    }

    fn score_together(
        &self,
        _: Arc<IndexView>,
        _: Shares,
        parts: Vec<Part>,
    ) -> LocalBoxFuture<'static, (Vec<Part>, Vec<Rescored>)> {
        async move { (parts, Vec::new()) }.boxed_local()
    }
}

struct Client {
    instance: Instance,
    router: Router<App>,
}

impl Client {
    fn new() -> Self {
        Self::of(World::new().start())
    }

    /// A client of a server that accepts tasks and leaves them waiting.
    fn of_waiting() -> Self {
        Self::of(World::new().start_with(NO_LIMITS, false))
    }

    fn of(instance: Instance) -> Self {
        let runtime = instance.runtime.clone();
        Self::with(instance, runtime, Rc::default())
    }

    /// A client of a server whose handlers have this runtime and this reader.
    fn with(instance: Instance, runtime: Rc<dyn Runtime>, reader: Rc<OneDocument>) -> Self {
        let options = Options::resolve([OsString::from("skerry")], &|_| None).expect("no option is needed");
        let (handle, outgoing) = (instance.handle.clone(), instance.plane.outgoing.clone());
        let app = App::new(runtime, handle, Arc::new(options), reader, outgoing);
        Self { instance, router: Router::new(Rc::new(app), super::routes()) }
    }

    fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let mut request = Request::new(method, path);
        request.query = query.into();
        request.headers = Headers::from_pairs(headers);
        request.body = Ok(body.to_vec());
        let response = self.instance.runtime.run(self.router.call(request)).expect("the request is answered");
        self.instance.runtime.settle();
        response
    }

    /// Status and body; of an error only its code.
    fn json(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        let headers = [("Content-Type", "application/json")];
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let response = self.send(method, path, &headers, &body);
        let body = serde_json::from_slice(response.body.bytes().expect("no stream")).unwrap_or(Value::Null);
        let code = body.get("code").filter(|_| body.get("link").is_some()).cloned();
        (response.status, code.unwrap_or(body))
    }

    fn get(&self, path: &str) -> (u16, Value) {
        self.json(Method::Get, path, Value::Null)
    }

    /// The code with which a request is refused.
    fn refusal(&self, method: Method, path: &str, body: Value) -> String {
        let (status, body) = self.json(method, path, body);
        assert!(status >= 400, "{path} was accepted: {body}");
        body.as_str().unwrap_or_default().into()
    }

    /// The task that a write made.
    fn task(&self, method: Method, path: &str, body: Value) -> Value {
        let (status, task) = self.json(method, path, body);
        assert_eq!(status, 202, "{path}: {task}");
        self.instance.task(task["taskUid"].as_u64().expect("a task has a number") as u32)
    }
}

#[test]
fn settings_are_written_by_tasks_and_read_back() {
    let client = Client::new();
    assert_eq!(client.get("/indexes/a/settings").1, json!("index_not_found"));
    let task = client.task(Method::Patch, "/indexes/a/settings", json!({"sortableAttributes": ["b", "a", "b"]}));
    assert_eq!((&task["status"], &task["details"]), (&json!("succeeded"), &json!({"sortableAttributes": ["a", "b"]})));
    client.task(Method::Put, "/indexes/a/settings/stop-words", json!(["the"]));
    assert_eq!(client.get("/indexes/a/settings/stop-words"), (200, json!(["the"])));
    client.task(Method::Delete, "/indexes/a/settings/stop-words", Value::Null);
    assert_eq!(client.get("/indexes/a/settings/stop-words"), (200, json!([])));
    assert_eq!(client.get("/indexes/a/settings").1["sortableAttributes"], json!(["a", "b"]));
    let failed = client.task(Method::Delete, "/indexes/b/settings", Value::Null);
    assert_eq!(failed["error"]["code"], json!("index_not_found"));
}

#[test]
fn settings_are_refused_with_their_codes() {
    let client = Client::new();
    let patch = |body| client.refusal(Method::Patch, "/indexes/a/settings", body);
    assert_eq!(patch(json!({"stopWords": 1})), "invalid_settings_stop_words");
    assert_eq!(patch(json!({"chat": {}})), "feature_not_enabled");
    assert_eq!(patch(Value::Null), "missing_payload");
    assert_eq!(client.refusal(Method::Patch, "/indexes/a b/settings", json!({})), "invalid_index_uid");
    assert_eq!(client.json(Method::Patch, "/indexes/a/settings/stop-words", json!([])), (405, Value::Null));
    assert_eq!(client.json(Method::Put, "/indexes/a/settings/faceting", json!({})), (405, Value::Null));
    assert_eq!(client.get("/indexes/a/settings/unknown"), (404, Value::Null));
}

#[test]
fn additions_are_checked_before_they_are_accepted() {
    let client = Client::of_waiting();
    let add = |content_type: &str, query: &str, body: &str| {
        let path = format!("/indexes/a/documents{query}");
        let response = client.send(Method::Post, &path, &[("content-type", content_type)], body.as_bytes());
        let body: Value = serde_json::from_slice(response.body.bytes().expect("no stream")).expect("answers are JSON");
        body.get("code").or(body.get("status")).cloned().unwrap_or_default()
    };
    assert_eq!(add("application/json", "", "[{\"id\": 1}]"), json!("enqueued"));
    assert_eq!(add("text/csv", "?csvDelimiter=;", "id;n\n1;2\n"), json!("enqueued"));
    assert_eq!(add("application/x-ndjson", "", " \n"), json!("enqueued"));
    assert_eq!(add("application/json", "", "[{\"id\": 1}"), json!("malformed_payload"));
    assert_eq!(add("application/json", "", ""), json!("missing_payload"));
    assert_eq!(add("application/json", "?csvDelimiter=;", "[]"), json!("invalid_content_type"));
    assert_eq!(add("text/plain", "", "[]"), json!("invalid_content_type"));
    assert_eq!(add("application/json", "?primary=id", "["), json!("bad_request"));
    let large = format!("[{}]", vec!["{\"id\": 1}"; 100_000].join(","));
    assert_eq!(add("application/json", "", &large), json!("enqueued"));
}

#[test]
fn documents_are_read_at_their_index() {
    let client = Client::new();
    client.task(Method::Post, "/indexes", json!({"uid": "a"}));
    assert_eq!(client.get("/indexes/a/documents/2"), (404, json!("document_not_found")));
    assert_eq!(client.get("/indexes/b/documents/1"), (404, json!("index_not_found")));
    assert_eq!(
        client.get("/indexes/a/documents?limit=0"),
        (200, json!({"results": [], "offset": 0, "limit": 0, "total": 1}))
    );
    let (_, page) =
        client.json(Method::Post, "/indexes/a/documents/fetch", json!({"fields": [], "retrieveVectors": true}));
    assert_eq!(page["results"], json!([{"_vectors": {}}]));
    let fetch = |body| client.refusal(Method::Post, "/indexes/b/documents/fetch", body);
    // What the request alone shows comes before the look for the index, which comes before its filter.
    assert_eq!(fetch(json!({"ids": ["a b"]})), "invalid_document_ids");
    assert_eq!(fetch(json!({"sort": ["a"]})), "invalid_document_sort");
    assert_eq!(fetch(json!({"filter": "a ="})), "index_not_found");
    assert_eq!(
        client.refusal(Method::Post, "/indexes/a/documents/fetch", json!({"filter": "a ="})),
        "invalid_document_filter"
    );
    assert_eq!(
        client.refusal(Method::Post, "/indexes/a/documents/fetch", json!({"filter": "a CONTAINS b"})),
        "feature_not_enabled"
    );
}

#[test]
fn deletions_and_edits_are_checked_in_order() {
    let client = Client::new();
    let delete = |body| client.refusal(Method::Post, "/indexes/a/documents/delete", body);
    assert_eq!(delete(json!({})), "missing_document_filter");
    assert_eq!(delete(json!({"filter": [[]]})), "invalid_document_filter");
    assert_eq!(delete(json!({"filter": null})), "invalid_document_filter");
    let task = client.task(Method::Post, "/indexes/a/documents/delete-batch?customMetadata=m", json!([1, "b"]));
    assert_eq!((&task["details"]["providedIds"], &task["customMetadata"]), (&json!(2), &json!("m")));
    let edit = |body| client.refusal(Method::Post, "/indexes/a b/documents/edit", body);
    assert_eq!(edit(json!({})), "missing_document_edition_function");
    assert_eq!(edit(json!({"function": "doc.x = 1"})), "feature_not_enabled");
    client.json(Method::Patch, "/experimental-features", json!({"editDocumentsByFunction": true}));
    assert_eq!(edit(json!({"function": "))((", "filter": ""})), "invalid_index_uid");
}

#[test]
fn searches_answer_in_their_envelope() {
    let client = Client::new();
    assert_eq!(client.refusal(Method::Post, "/indexes/a/search", json!({"limit": "a"})), "invalid_search_limit");
    assert_eq!(client.refusal(Method::Post, "/indexes/a/search", json!({"filter": "a ="})), "index_not_found");
    for (path, code) in [
        ("/indexes/a/search?vector=1", "missing_search_hybrid"),
        ("/indexes/a b/search?vector=1", "invalid_index_uid"),
        ("/indexes/a b/search?vector=x", "invalid_search_vector"),
    ] {
        assert_eq!(client.refusal(Method::Get, path, Value::Null), code);
    }
    client.task(Method::Post, "/indexes", json!({"uid": "a", "primaryKey": "id"}));
    let (status, body) = client.json(Method::Post, "/indexes/a/search", json!({"q": "x", "hitsPerPage": 1}));
    assert_eq!(
        (status, &body["hits"], &body["totalPages"], &body["query"]),
        (200, &json!([{}]), &json!(1), &json!("x"))
    );
    assert!(body.get("metadata").is_none() && body["requestUid"].is_string());
    let response = client.send(Method::Get, "/indexes/a/search?q=y", &[("Meili-Include-Metadata", "TRUE")], b"");
    let body: Value = serde_json::from_slice(response.body.bytes().expect("no stream")).expect("answers are JSON");
    assert_eq!((&body["metadata"]["indexUid"], &body["metadata"]["primaryKey"]), (&json!("a"), &json!("id")));
    for (body, code) in [
        (json!({"filter": "a ="}), "invalid_search_filter"),
        (json!({"sort": ["a"]}), "invalid_search_sort"),
        (json!({"useNetwork": false}), "feature_not_enabled"),
        (json!({"personalize": {"userContext": "me"}}), "feature_not_enabled"),
        (json!({"q": "x", "hybrid": {"embedder": "e"}}), "invalid_search_embedder"),
    ] {
        assert_eq!(client.refusal(Method::Post, "/indexes/a/search", body), code);
    }
}

#[test]
fn fields_keys_and_unbuilt_routes_answer() {
    let client = Client::new();
    client.task(Method::Post, "/indexes", json!({"uid": "a", "primaryKey": "id"}));
    assert_eq!(client.refusal(Method::Post, "/indexes/a b/fields", json!({})), "index_not_found");
    let (status, fields) = client.json(Method::Post, "/indexes/a/fields", json!({}));
    assert_eq!((status, &fields["results"][0]["name"], &fields["total"]), (200, &json!("id"), &json!(1)));
    assert_eq!(client.get("/keys"), (401, json!("missing_master_key")));
    assert_eq!(client.get("/network"), (400, json!("feature_not_enabled")));
}

/// Two routes of one path and verb would hide one another.
#[test]
fn no_route_is_there_twice() {
    let mut seen = std::collections::BTreeSet::new();
    for route in super::routes() {
        assert!(seen.insert((route.pattern, route.method)), "{:?} {}", route.method, route.pattern);
    }
    assert!(seen.len() > 100);
}
