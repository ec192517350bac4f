//! Sending queries to other instances.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use shards::query::QueryWords;
use shards::runtime::Nanos;
use shards::search::federated::Part;
use url::Url;

use super::answer::{self, Shown};
use super::body::body;
use super::route::Routed;
use super::share;
use super::words::Answered;
use crate::api::error::{ApiError, ErrorCode};
use crate::api::router::Call;
use crate::api::search::federated::PROXY_HEADER;
use crate::api::search::params::many::{FederationParams, QueryParams};
use crate::app::App;
use crate::auth::tenant::join_filters;
use crate::control::ControlState;
use crate::http::Method;
use crate::network::headers::{ASKED_SHARDS, HIT_LINES, HYBRID_SHARE, percent_encode};
use crate::network::proof::{PROOF, Signed};
use crate::network::routing::Routing;
use crate::network::{Remote, failure};
use crate::outgoing::{Deadlines, Request};

/// Times an instance is asked when no other has the same documents.
const TRIES_MAX: u32 = 4;
/// The pause before the second try; later ones are longer by as much.
const PAUSE: Duration = Duration::from_millis(50);
/// An instance that has not answered by then is slow, if another has the same documents.
const SLOW: Duration = Duration::from_secs(5);
/// Bytes of an answer at most.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// The way to the other instances for one search.
pub(super) struct Ask<'a> {
    call: &'a Call<App>,
    routing: &'a Routing,
    federation: &'a FederationParams,
    give_up: Nanos,
}

impl<'a> Ask<'a> {
    /// The way for a search that begins now.
    pub(super) fn new(call: &'a Call<App>, state: &'a ControlState, federation: &'a FederationParams) -> Self {
        let give_up = call.app.runtime.now().after(Duration::from_secs(call.app.options.remote_search_seconds));
        Self { call, routing: &state.routing, federation, give_up }
    }

    /// Asks for all queries, side by side; those of an instance that fails go to the next one that has the same documents.
    /// Gives what was found, and the errors of instances whose queries nobody answered.
    pub(super) async fn all(&self, mut queries: Vec<Routed>) -> (Vec<Answered>, BTreeMap<String, ApiError>) {
        let (mut answered, mut errors) = (Vec::new(), BTreeMap::new());
        while !queries.is_empty() {
            let mut by_instance: BTreeMap<String, Vec<Routed>> = BTreeMap::new();
            for query in queries.drain(..) {
                match query.candidates.first() {
                    Some(Some(name)) => by_instance.entry(name.clone()).or_default().push(query),
                    _ => self.say_missing(&query, &mut errors),
                }
            }
            let asked = by_instance.into_iter().map(|(name, queries)| async move {
                let answer = self.instance(&name, &queries).await;
                (name, queries, answer)
            });
            for (name, asked, answer) in join_all(asked).await {
                let error = match answer {
                    Ok(part) => {
                        answered.push(Answered { queries: asked, part });
                        continue;
                    }
                    Err(error) => error,
                };
                tracing::warn!(remote = name, %error, "a remote does not answer a search");
                for mut query in asked {
                    query.candidates.remove(0);
                    if query.candidates.is_empty() {
                        errors.insert(name.clone(), error.clone());
                    } else {
                        queries.push(query);
                    }
                }
            }
        }
        (answered, errors)
    }

    /// No instance that is known here has the documents of a shard.
    fn say_missing(&self, query: &Routed, errors: &mut BTreeMap<String, ApiError>) {
        let shard = query.shard.as_deref().unwrap_or_default();
        let message = format!("The documents of the network shard `{shard}` are being moved.");
        let own_name = self.routing.network.own_name.clone().unwrap_or_default();
        errors.entry(own_name).or_insert_with(|| ApiError::new(ErrorCode::RemoteCouldNotSendRequest, message));
    }

    /// Asks one instance, again where that may help and nobody else can be asked.
    async fn instance(&self, name: &str, queries: &[Routed]) -> Result<Part, ApiError> {
        let unknown = || {
            let message = format!("The remote `{name}` is no longer known.");
            ApiError::new(ErrorCode::RemoteCouldNotSendRequest, message)
        };
        let remote = self.routing.remote(name).ok_or_else(unknown)?;
        let has_others = queries.iter().all(|query| query.candidates.len() > 1);
        let runtime = &self.call.app.runtime;
        let mut tries = 0;
        loop {
            let left = self.give_up.since(runtime.now());
            let error = match self.once(name, remote, queries, if has_others { SLOW.min(left) } else { left }).await {
                Ok(part) => return Ok(part),
                Err(error) => error,
            };
            tries += 1;
            let pause = PAUSE * tries;
            if has_others || tries >= TRIES_MAX || !failure::is_passing(&error) || pause >= left {
                return Err(error);
            }
            runtime.sleep(pause).await;
        }
    }

    async fn once(&self, name: &str, remote: &Remote, queries: &[Routed], time: Duration) -> Result<Part, ApiError> {
        let text = format!("{}/multi-search", remote.url.trim_end_matches('/'));
        let url = Url::parse(&text).map_err(|error| {
            let message = format!("The URL of the remote `{name}` cannot be called: {error}.");
            ApiError::new(ErrorCode::RemoteCouldNotSendRequest, message)
        })?;
        let shards: Option<Vec<&str>> = queries.iter().map(|query| query.shard.as_deref()).collect();
        let words: Vec<Option<&QueryWords>> = queries.iter().map(|query| query.words.as_deref()).collect();
        let queries: Vec<Cow<'_, QueryParams>> = queries.iter().map(|query| self.restricted(&query.query)).collect();
        let use_network = self.routing.network.leader.is_some().then_some(false);
        let queries: Vec<&QueryParams> = queries.iter().map(|query| &**query).collect();
        let (content_type, body) = share::question(&words, body(&queries, self.federation, use_network));
        let hybrid = self.federation.is_hybrid_share.then_some("true");
        let (hit_lines, shards) = (percent_encode(name), shards.map(|shards| self.routing.question(shards)));
        let signed = Signed::sent([Some(&hit_lines), shards.as_deref(), hybrid], content_type, &body);
        let proof = match &remote.write_api_key {
            Some(key) => Some(signed.proof(&*self.call.app.runtime, key).await),
            None => None,
        };
        let mut request = Request::new(Method::Post, url, Deadlines::all(time))
            .bearer(remote.search_api_key.as_deref())
            .header(PROXY_HEADER, "true")
            .header(HIT_LINES, hit_lines)
            .repeatable();
        for (header, value) in [(ASKED_SHARDS, shards), (HYBRID_SHARE, hybrid.map(str::to_owned)), (PROOF, proof)] {
            if let Some(value) = value {
                request = request.header(header, value);
            }
        }
        let request = request.body(content_type, body);
        let app = &self.call.app;
        let answer = app.outgoing.fetch_within(request, ANSWER_BYTES_MAX, &app.shares_room).await;
        // The share is held until the answer has been read.
        let (answer, _share) = answer.map_err(|error| failure::unanswered(name, &error))?;
        match failure::refused(name, &answer) {
            Some(error) => Err(error),
            None if answer.headers.get_str("content-type") == Some(share::CONTENT_TYPE) => {
                let read = share::read(&*self.call.app.runtime, &answer.body).await;
                read.map_err(|why| failure::unreadable(name, why))
            }
            None => {
                let shown = Shown { name, distinct: self.federation.distinct.as_deref() };
                answer::read(&*self.call.app.runtime, &shown, &answer.body).await
            }
        }
    }

    /// A query with what a tenant's token adds: the other instance is asked with a key of the network, which knows no tenant.
    fn restricted<'q>(&self, query: &'q QueryParams) -> Cow<'q, QueryParams> {
        let Some(tenant) = self.call.grant.tenant_filter(&query.index_uid) else { return Cow::Borrowed(query) };
        let mut query = query.clone();
        query.search.filter = join_filters(query.search.filter.take(), Some(tenant));
        Cow::Owned(query)
    }
}
