//! Routing a request to its handler: first path and method, then the API key, and only then body and query.
//!
//! Routes are matched segment by segment; a literal segment takes precedence over a parameter, whatever the order of the table.
//! An unknown path is 404 and an unsupported method is 405, both without a body and before the key is checked.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::ready;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{FutureExt, LocalBoxFuture};
use shards::runtime::Nanos;
use smallvec::SmallVec;
use time::OffsetDateTime;

use super::decode::{self, Params, percent_decode};
use super::error::{ApiError, ErrorCode, RETRY_AFTER_SECONDS};
use crate::auth::{Action, AuthError, Grant, KeySet, authorize};
use crate::http::{BodyError, Head, Headers, Method, Request, Response, Service};

/// The largest body in bytes on a route that asks for no key. None of them reads one.
const OPEN_BODY_BYTES_MAX: u64 = 64 * 1024;

/// What the router itself needs of the server.
pub trait Host: 'static {
    /// The keys as this core last heard of them.
    fn keys(&self) -> Arc<KeySet>;
    /// The present.
    fn now(&self) -> OffsetDateTime;
    /// The largest body in bytes, after decompression.
    fn payload_bytes_max(&self) -> u64;
    /// Some clock, while the times of answers are wanted.
    fn stopwatch(&self) -> Option<Nanos>;
    /// Takes note of an answer: to which verb, on which path, with which status, and what the stopwatch showed when the
    /// request came.
    fn answered(&self, method: Method, path: Asked<'_>, status: u16, started: Option<Nanos>);
}

/// The path of a request, as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked<'p> {
    /// The pattern of the route that has it.
    Route(&'static str),
    /// No route has it.
    Stray(&'p str),
}

/// What a handler gives back.
pub type Answer = Result<Response, ApiError>;

/// What answers a route.
pub type Handler<A> = fn(Call<A>) -> LocalBoxFuture<'static, Answer>;

/// One verb of one path.
pub struct Route<A> {
    /// The verb.
    pub method: Method,
    /// Such as `/indexes/{uid}/documents`. A pattern that begins with `/indexes/{uid}` names an index, which a key must open.
    pub pattern: &'static str,
    /// The right that a key needs; `None` for routes that ask for no key.
    pub action: Option<Action>,
    /// What answers.
    pub handler: Handler<A>,
}

/// A request that was let in, as its handler sees it.
pub struct Call<A> {
    /// The server.
    pub app: Rc<A>,
    /// What the caller may see and do.
    pub grant: Grant,
    /// The request.
    pub request: Request,
    path: PathParams,
}

type PathParams = SmallVec<[String; 2]>;

impl<A> Call<A> {
    /// The decoded segment at a pattern's parameter, counted from 0. A handler knows its pattern, so one beyond it is empty.
    pub fn param(&self, at: usize) -> &str {
        self.path.get(at).map_or("", String::as_str)
    }

    /// The first parameter, checked as the name of an index.
    ///
    /// # Errors
    /// `invalid_index_uid`.
    pub fn index_uid(&self) -> Result<&str, ApiError> {
        decode::check_index_uid(self.param(0))?;
        Ok(self.param(0))
    }

    /// The parameters of the query string.
    pub fn query(&self) -> Params {
        Params::parse(&self.request.query)
    }

    /// The value of the `Content-Type` header; text that is no UTF-8 names no type.
    pub fn content_type(&self) -> Option<&str> {
        let header = self.request.headers.get("content-type")?;
        Some(std::str::from_utf8(header).unwrap_or("?"))
    }

    /// The body's bytes.
    ///
    /// # Errors
    /// `payload_too_large`, `bad_request` for a compressed body that cannot be read.
    pub fn bytes(&self) -> Result<&[u8], ApiError> {
        self.request.body.as_deref().map_err(|error| body_error(*error))
    }

    /// The bytes of the body of a JSON route. They are read by [`Self::decoded`](super::long_body).
    ///
    /// # Errors
    /// As [`Self::bytes`]. A body whose length announced that it is too large is `internal` here: clients of the interface know
    /// it so.
    pub(super) fn json_bytes(&self) -> Result<&[u8], ApiError> {
        if let Err(BodyError::TooLarge { announced: true, compressed: false, limit }) = self.request.body {
            let message = format!("The payload is larger than the limit of {limit} bytes.");
            return Err(ApiError::new(ErrorCode::Internal, message));
        }
        self.bytes()
    }
}

fn body_error(error: BodyError) -> ApiError {
    match error {
        BodyError::TooLarge { limit, .. } => {
            let message = format!("The payload is larger than the limit of {limit} bytes.");
            ApiError::new(ErrorCode::PayloadTooLarge, message)
        }
        BodyError::Undecodable { encoding } => {
            ApiError::bad_request(format!("The body could not be decoded as `{encoding}`."))
        }
        BodyError::TooManyValues => {
            let message = "The payload holds more values than this server reads at once; send it in parts.";
            ApiError::new(ErrorCode::PayloadTooLarge, message)
        }
    }
}

impl From<AuthError> for ApiError {
    fn from(error: AuthError) -> Self {
        shards::error::UserError::from(error).into()
    }
}

/// The answer that an error becomes.
pub fn error_response(error: &ApiError) -> Response {
    let response = Response::json(error.status, error.body());
    if error.status == 503 {
        return response.header("Retry-After", RETRY_AFTER_SECONDS.to_string());
    }
    response
}

/// All routes of the server, on one core.
pub struct Router<A> {
    app: Rc<A>,
    paths: Vec<PathRoutes<A>>,
}

struct PathRoutes<A> {
    pattern: &'static str,
    segments: Vec<Segment>,
    names_index: bool,
    verbs: Vec<(Method, Option<Action>, Handler<A>)>,
}

/// Literals order before parameters, so that sorted paths try them first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Segment {
    Literal(&'static str),
    Param,
}

impl<A: Host> Router<A> {
    /// A router of these routes.
    pub fn new(app: Rc<A>, routes: Vec<Route<A>>) -> Self {
        let mut paths: BTreeMap<Vec<Segment>, PathRoutes<A>> = BTreeMap::new();
        for route in routes {
            let segments: Vec<Segment> = split(route.pattern).map(Segment::of).collect();
            let names_index = route.pattern.starts_with("/indexes/{uid}");
            let pattern = route.pattern;
            let new = PathRoutes { pattern, segments: segments.clone(), names_index, verbs: Vec::new() };
            let path = paths.entry(segments).or_insert(new);
            path.verbs.push((route.method, route.action, route.handler));
        }
        Self { app, paths: paths.into_values().collect() }
    }

    /// The path that a request asks for with its parameters.
    fn find(&self, path: &str) -> Option<(&PathRoutes<A>, PathParams)> {
        let segments: SmallVec<[Cow<'_, str>; 8]> = split(path).map(decoded).collect();
        let routes = self.paths.iter().find(|routes| routes.matches(&segments))?;
        Some((routes, routes.params(&segments)))
    }

    fn authorize(&self, found: &Found<'_, A>, params: &PathParams, headers: &Headers) -> Result<Grant, ApiError> {
        let Some(action) = found.action else { return Ok(Grant::everything()) };
        let index = found.routes.names_index.then(|| params.first().map(String::as_str)).flatten();
        let header = headers.get("authorization");
        Ok(authorize(header, action, index, &self.app.keys(), self.app.now())?)
    }

    /// The handler and what its caller may do, or the answer 401, 403 or 405.
    fn enter<'r>(
        &self,
        routes: &'r PathRoutes<A>,
        params: &PathParams,
        (method, headers): (Method, &Headers),
    ) -> Result<(Found<'r, A>, Grant), Response> {
        let found = routes.verb(method)?;
        let grant = self.authorize(&found, params, headers).map_err(|error| error_response(&error))?;
        Ok((found, grant))
    }
}

struct Found<'r, A> {
    routes: &'r PathRoutes<A>,
    action: Option<Action>,
    handler: Handler<A>,
}

impl<A> PathRoutes<A> {
    /// The route of a verb, or the answer 405.
    fn verb(&self, method: Method) -> Result<Found<'_, A>, Response> {
        match self.verbs.iter().find(|(verb, ..)| *verb == method) {
            Some((_, action, handler)) => Ok(Found { routes: self, action: *action, handler: *handler }),
            None => {
                let verbs: Vec<&str> = self.verbs.iter().map(|(verb, ..)| verb.as_str()).collect();
                Err(Response::empty(405).header("Allow", verbs.join(", ")))
            }
        }
    }

    /// Whether a path of these segments has this form.
    fn matches(&self, path: &[Cow<'_, str>]) -> bool {
        let same = |(segment, text): (&Segment, &Cow<'_, str>)| match segment {
            Segment::Literal(literal) => literal == text,
            Segment::Param => true,
        };
        self.segments.len() == path.len() && self.segments.iter().zip(path).all(same)
    }

    /// The parameters of a path that has this form.
    fn params(&self, path: &[Cow<'_, str>]) -> PathParams {
        let params = self.segments.iter().zip(path).filter(|(segment, _)| **segment == Segment::Param);
        params.map(|(_, text)| text.to_string()).collect()
    }
}

impl Segment {
    fn of(text: &'static str) -> Self {
        if text.starts_with('{') { Self::Param } else { Self::Literal(text) }
    }
}

fn split(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|segment| !segment.is_empty())
}

fn decoded(segment: &str) -> Cow<'_, str> {
    if segment.contains('%') { Cow::Owned(percent_decode(segment, false)) } else { Cow::Borrowed(segment) }
}

impl<A: Host> Service for Router<A> {
    /// A request with a body is checked before its body is read, so that nobody without a key makes the server take bytes.
    fn admit(&self, head: &Head) -> Result<u64, Response> {
        let has_body = head.headers.contains("content-length") || head.headers.contains("transfer-encoding");
        if has_body {
            let refused = |asked, response: Response| {
                self.app.answered(head.method, asked, response.status, self.app.stopwatch());
                response
            };
            let Some((routes, params)) = self.find(&head.path) else {
                return Err(refused(Asked::Stray(&head.path), Response::empty(404)));
            };
            let entered = self.enter(routes, &params, (head.method, &head.headers));
            let (found, _) = entered.map_err(|response| refused(Asked::Route(routes.pattern), response))?;
            if found.action.is_none() {
                return Ok(self.app.payload_bytes_max().min(OPEN_BODY_BYTES_MAX));
            }
        }
        Ok(self.app.payload_bytes_max())
    }

    /// Documents are stored as they were written; all else that comes in a body is JSON for the handler.
    fn reads_values(&self, head: &Head) -> bool {
        let found = self.find(&head.path).and_then(|(routes, _)| routes.verb(head.method).ok());
        found.is_some_and(|found| found.action != Some(Action::DocumentsAdd))
    }

    /// By the right that it takes. Those that are answered in no time, or by core 0 alone, are not worth dropping.
    fn only_reads(&self, method: Method, path: &str) -> bool {
        let found = self.find(path).and_then(|(routes, _)| routes.verb(method).ok());
        found.and_then(|found| found.action).is_some_and(|action| {
            use Action::{DocumentsGet, FieldsPost, Search, StatsGet, TasksGet};
            matches!(action, Search | DocumentsGet | FieldsPost | StatsGet | TasksGet)
        })
    }

    fn call(&self, request: Request) -> LocalBoxFuture<'static, Response> {
        let (app, started, method) = (self.app.clone(), self.app.stopwatch(), request.method);
        let Some((routes, path)) = self.find(&request.path) else {
            app.answered(method, Asked::Stray(&request.path), 404, started);
            return ready(Response::empty(404)).boxed_local();
        };
        let asked = Asked::Route(routes.pattern);
        match self.enter(routes, &path, (method, &request.headers)) {
            Err(response) => {
                app.answered(method, asked, response.status, started);
                ready(response).boxed_local()
            }
            Ok((found, grant)) => {
                let answer = (found.handler)(Call { app: app.clone(), grant, request, path });
                async move {
                    let response = answer.await.unwrap_or_else(|error| error_response(&error));
                    app.answered(method, asked, response.status, started);
                    response
                }
                .boxed_local()
            }
        }
    }
}

/// Writes a table of routes: verb, pattern, the right asked for (`-` for none), and the handler, an `async fn(Call<A>)`.
#[macro_export]
macro_rules! routes {
    (@action -) => { None };
    (@action $action:ident) => { Some($crate::auth::Action::$action) };
    ($($method:ident $pattern:literal $action:tt => $handler:expr;)*) => {
        vec![$($crate::api::router::Route {
            method: $crate::http::Method::$method,
            pattern: $pattern,
            action: $crate::routes!(@action $action),
            handler: |call| Box::pin($handler(call)),
        },)*]
    };
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[derive(Default)]
    struct Server {
        keys: Arc<KeySet>,
        answered: RefCell<Vec<(Method, String, u16)>>,
    }

    impl Host for Server {
        fn keys(&self) -> Arc<KeySet> {
            self.keys.clone()
        }

        fn now(&self) -> OffsetDateTime {
            OffsetDateTime::UNIX_EPOCH
        }

        fn payload_bytes_max(&self) -> u64 {
            100
        }

        fn stopwatch(&self) -> Option<Nanos> {
            Some(Nanos(1))
        }

        fn answered(&self, method: Method, path: Asked<'_>, status: u16, started: Option<Nanos>) {
            assert_eq!(started, Some(Nanos(1)));
            self.answered.borrow_mut().push((method, format!("{path:?}"), status));
        }
    }

    async fn echo(call: Call<Server>) -> Answer {
        Ok(Response::json(200, call.path.join("|").into_bytes()))
    }

    async fn fixed(_: Call<Server>) -> Answer {
        Ok(Response::json(200, b"fixed".to_vec()))
    }

    async fn body(call: Call<Server>) -> Answer {
        decode::json_body(call.content_type(), call.json_bytes()?).map(|_| Response::empty(200))
    }

    fn router(master_key: Option<&str>) -> Router<Server> {
        let routes = routes! {
            Get "/" - => fixed;
            Get "/health" - => fixed;
            Get "/indexes/{uid}/documents/{id}" DocumentsGet => echo;
            Delete "/indexes/{uid}/documents/{id}" DocumentsDelete => echo;
            Post "/indexes/{uid}/documents/fetch" DocumentsGet => body;
        };
        let keys = Arc::new(KeySet::new(master_key, []));
        Router::new(Rc::new(Server { keys, answered: RefCell::default() }), routes)
    }

    fn answer(router: &Router<Server>, method: Method, path: &str) -> (u16, String) {
        let response = futures_lite::future::block_on(router.call(Request::new(method, path)));
        (response.status, String::from_utf8_lossy(response.body.bytes().unwrap()).into_owned())
    }

    #[test]
    fn paths_lead_to_handlers() {
        let router = router(None);
        let get = |path| answer(&router, Method::Get, path);
        assert_eq!(get("/"), (200, "fixed".into()));
        assert_eq!(get("/health"), (200, "fixed".into()));
        assert_eq!(get("/indexes/a%2Fb/documents/x%20y+z"), (200, "a/b|x y+z".into()));
        assert_eq!(get("/Health"), (404, String::new()));
        assert_eq!(get("/indexes/a/documents/1/more"), (404, String::new()));
    }

    #[test]
    fn a_known_path_names_its_verbs() {
        let router = router(None);
        let mut response =
            futures_lite::future::block_on(router.call(Request::new(Method::Put, "/indexes/a/documents/1")));
        assert_eq!((response.status, response.headers.remove(0)), (405, ("Allow", "GET, DELETE".into())));
        // The literal segment wins, so that no document can hide a route.
        assert_eq!(answer(&router, Method::Get, "/indexes/a/documents/fetch").0, 405);
    }

    /// Paths and verbs come before the key, the key before the body.
    #[test]
    fn the_key_is_checked_before_the_body() {
        let router = router(Some("master"));
        assert_eq!(answer(&router, Method::Get, "/nowhere").0, 404);
        assert_eq!(answer(&router, Method::Get, "/health").0, 200);
        assert_eq!(answer(&router, Method::Post, "/indexes/a/documents/fetch").0, 401);
        let mut request = Request::new(Method::Post, "/indexes/a/documents/fetch");
        request.headers.push("Authorization", b"Bearer master");
        assert_eq!(futures_lite::future::block_on(router.call(request.clone())).status, 415);
        request.body = Err(BodyError::TooLarge { limit: 100, announced: false, compressed: true });
        assert_eq!(futures_lite::future::block_on(router.call(request)).status, 413);
        let mut headers = Headers::from_pairs(&[("content-length", "5")]);
        let head = |headers| Head {
            method: Method::Post,
            path: "/indexes/a/documents/fetch".into(),
            query: String::new(),
            headers,
        };
        assert_eq!(router.admit(&head(headers.clone())).unwrap_err().status, 401);
        headers.push("authorization", b"Bearer master");
        assert_eq!(router.admit(&head(headers)).unwrap(), 100);
    }

    #[test]
    fn each_answer_is_counted_once_under_its_route() {
        let router = router(Some("master"));
        answer(&router, Method::Get, "/health");
        answer(&router, Method::Get, "/indexes/a/documents/1");
        answer(&router, Method::Put, "/indexes/a/documents/1");
        answer(&router, Method::Get, "/nowhere");
        let headers = Headers::from_pairs(&[("content-length", "5")]);
        for path in ["/indexes/a/documents/fetch", "/nowhere"] {
            let head = Head { method: Method::Post, path: path.into(), query: String::new(), headers: headers.clone() };
            router.admit(&head).unwrap_err();
        }
        let counted = router.app.answered.take();
        let wanted = [
            (Method::Get, "Route(\"/health\")", 200),
            (Method::Get, "Route(\"/indexes/{uid}/documents/{id}\")", 401),
            (Method::Put, "Route(\"/indexes/{uid}/documents/{id}\")", 405),
            (Method::Get, "Stray(\"/nowhere\")", 404),
            (Method::Post, "Route(\"/indexes/{uid}/documents/fetch\")", 401),
            (Method::Post, "Stray(\"/nowhere\")", 404),
        ];
        assert_eq!(counted, wanted.map(|(method, path, status)| (method, path.to_owned(), status)));
    }

    #[test]
    fn busy_servers_say_when_to_come_back() {
        let response = error_response(&ApiError::new(ErrorCode::TooManySearchRequests, "busy"));
        assert!(response.status == 503 && response.headers.contains(&("Retry-After", "10".into())));
    }
}
