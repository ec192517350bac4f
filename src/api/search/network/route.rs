//! Decides which instances a query is sent to.

use std::sync::Arc;

use shards::query::QueryWords;
use shards::runtime::Runtime;
use shards::search::NetworkShare;

use crate::api::error::{ApiError, ErrorCode};
use crate::api::search::params::many::{FederationOptions, QueryParams};
use crate::auth::tenant::join_filters;
use crate::network::Network;
use crate::network::routing::Routing;

/// A query on its way to an instance.
#[derive(Clone, Debug)]
pub(in crate::api::search) struct Routed {
    /// As the instance is asked.
    pub(in crate::api::search) query: QueryParams,
    /// The place of the client's query that it came from.
    pub(in crate::api::search) given: usize,
    /// The instances that can answer it, each as well as the others; the first is asked. `None` is this one, whatever its
    /// name.
    pub(in crate::api::search) candidates: Vec<Option<String>>,
    /// The network shard that it is about, if it is about one.
    pub(in crate::api::search) shard: Option<String>,
    /// What all instances together know of its words; `None` asks by the instance's own.
    pub(in crate::api::search) words: Option<Arc<QueryWords>>,
}

impl Routed {
    /// What it is a share of, if others have shares of it.
    pub(in crate::api::search) fn share(&self) -> Option<NetworkShare> {
        let shard = self.shard.as_deref()?.into();
        Some(NetworkShare { shard, words: self.words.clone() })
    }

    /// Whether this instance answers it.
    pub(in crate::api::search) fn is_own(&self, own_name: Option<&str>) -> bool {
        self.candidates.first().is_some_and(|name| name.is_none() || name.as_deref() == own_name)
    }
}

/// Whether other instances take part in a query that says this of `useNetwork`.
pub(in crate::api::search) fn takes_part(network: &Network, use_network: Option<bool>, is_enabled: bool) -> bool {
    is_enabled && use_network.unwrap_or(network.leader.is_some())
}

/// The queries that a query of a client becomes. `number` gives those that are made for the network their numbers; without
/// it they keep that of the query.
///
/// # Errors
/// `invalid_multi_search_remote` for an instance that is unknown.
pub(in crate::api::search) fn instances(
    runtime: &dyn Runtime,
    routing: &Routing,
    (given, query): (usize, QueryParams),
    number: bool,
    is_enabled: bool,
) -> Result<Vec<Routed>, ApiError> {
    let network = &*routing.network;
    if let Some(name) = query.options.as_ref().and_then(|options| options.remote.clone()) {
        if network.own_name.as_ref() != Some(&name) && !network.remotes.contains_key(&name) {
            let message = format!("This instance has no remote `{name}`.");
            return Err(ApiError::new(ErrorCode::InvalidMultiSearchRemote, message));
        }
        let mut query = query;
        let options = query.options.get_or_insert_with(FederationOptions::default);
        options.query_position.get_or_insert(given as u64);
        return Ok(vec![Routed { query, given, candidates: vec![Some(name)], shard: None, words: None }]);
    }
    if !takes_part(network, query.search.use_network, is_enabled) {
        return Ok(vec![Routed { query, given, candidates: vec![None], shard: None, words: None }]);
    }
    let numbered = |at: usize, query: &QueryParams| {
        let mut query = query.clone();
        let options = query.options.get_or_insert_with(FederationOptions::default);
        options.query_position.get_or_insert(if number { at } else { given } as u64);
        query
    };
    if network.leader.is_none() {
        let of_remote = |(at, name): (usize, &String)| {
            let candidates = vec![Some(name.clone())];
            Routed { query: numbered(at, &query), given, candidates, shard: None, words: None }
        };
        return Ok(network.remotes.keys().enumerate().map(of_remote).collect());
    }
    let of_shard = |(at, name): (usize, &String)| {
        let mut query = numbered(at, &query);
        query.search.filter = join_filters(query.search.filter.take(), Some(&shard_filter(name).into()));
        let candidates = routing.candidates(name, |names| shuffle(runtime, names)).into_iter().map(Some);
        Routed { query, given, candidates: candidates.collect(), shard: Some(name.clone()), words: None }
    };
    Ok(network.shards.keys().enumerate().map(of_shard).collect())
}

/// The filter that selects the documents of a network shard. In its quotes a backslash begins an escape.
fn shard_filter(name: &str) -> String {
    format!("_shard = \"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Replicas are asked in turn, so that each bears its share.
fn shuffle(runtime: &dyn Runtime, candidates: &mut [String]) {
    for last in (1..candidates.len()).rev() {
        candidates.swap(last, (runtime.random_u64() % (last as u64 + 1)) as usize);
    }
}

#[cfg(test)]
mod tests {
    use shards::facets::parse_filter_text;

    use super::*;

    /// A backslash was left as it was, so that every search of a network with such a shard was refused.
    #[test]
    fn any_name_of_a_shard_stands_in_its_filter() {
        let parsed = |text: &str| parse_filter_text(text, "invalid_search_filter");
        for (name, filter) in [
            ("s", r#"_shard = "s""#),
            (r"a\b", r#"_shard = "a\\b""#),
            (r"a\", r#"_shard = "a\\""#),
            (r#"a"b"#, r#"_shard = "a\"b""#),
            (r#"a\""#, r#"_shard = "a\\\"""#),
            ("\u{e9} '", "_shard = \"\u{e9} '\""),
        ] {
            assert_eq!(shard_filter(name), filter);
            assert!(parsed(filter).is_ok_and(|parsed| parsed.is_some()), "{filter}");
        }
    }
}
