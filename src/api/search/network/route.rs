//! Decides which instances a query is sent to.

use std::collections::BTreeMap;
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

/// For each network shard the instances that can answer for it, in the order in which one request asks them. Queries of one list
/// are all sent to the same one: what several of them find is one result there, but not on two instances.
pub(in crate::api::search) struct Replicas<'r> {
    routing: &'r Routing,
    random: Box<dyn Fn() -> u64 + 'r>,
    orders: BTreeMap<String, Vec<Option<String>>>,
}

impl<'r> Replicas<'r> {
    /// For the queries of a request.
    pub(in crate::api::search) fn new(routing: &'r Routing, runtime: &'r dyn Runtime) -> Self {
        Self { routing, random: Box::new(|| runtime.random_u64()), orders: BTreeMap::new() }
    }

    fn of(&mut self, shard: &str) -> Vec<Option<String>> {
        if let Some(order) = self.orders.get(shard) {
            return order.clone();
        }
        let names = self.routing.candidates(shard, |names| shuffle(&self.random, names));
        let order: Vec<Option<String>> = names.into_iter().map(Some).collect();
        self.orders.insert(shard.to_owned(), order.clone());
        order
    }
}

/// The queries that a query of a client becomes. `number` gives those that are made for the network their numbers; without
/// it they keep that of the query.
///
/// # Errors
/// `invalid_multi_search_remote` for an instance that is unknown.
pub(in crate::api::search) fn instances(
    replicas: &mut Replicas<'_>,
    (given, query): (usize, QueryParams),
    number: bool,
    is_enabled: bool,
) -> Result<Vec<Routed>, ApiError> {
    let network = &*replicas.routing.network;
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
        Routed { query, given, candidates: replicas.of(name), shard: Some(name.clone()), words: None }
    };
    Ok(network.shards.keys().enumerate().map(of_shard).collect())
}

/// The filter that selects the documents of a network shard. In its quotes a backslash begins an escape.
fn shard_filter(name: &str) -> String {
    format!("_shard = \"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Replicas are asked in turn, so that each bears its share.
fn shuffle(random: &dyn Fn() -> u64, candidates: &mut [String]) {
    for last in (1..candidates.len()).rev() {
        candidates.swap(last, (random() % (last as u64 + 1)) as usize);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use shards::facets::parse_filter_text;

    use super::*;
    use crate::network::{Remote, Shard};

    /// Two queries on one shard went to different replicas, each of which found the documents of both.
    #[test]
    fn queries_of_a_request_ask_the_same_replica() {
        let names = ["b", "c", "d"].map(str::to_owned);
        let shards = ["s", "t"].map(|name| (name.to_owned(), Shard { remotes: BTreeSet::from(names.clone()) }));
        let network = Network {
            own_name: Some("a".into()),
            leader: Some("a".into()),
            remotes: names.clone().map(|name| (name, Remote::default())).into(),
            shards: shards.into(),
            ..Network::default()
        };
        let (routing, rng) = (Routing::new(&Arc::new(network), None), RefCell::new(StdRng::seed_from_u64(1)));
        let mut first_asked = BTreeSet::new();
        for _ in 0..20 {
            let random = Box::new(|| rng.borrow_mut().random());
            let mut replicas = Replicas { routing: &routing, random, orders: BTreeMap::new() };
            let mut orders = |given| -> Vec<_> {
                let routed = instances(&mut replicas, (given, QueryParams::default()), false, true).unwrap();
                routed.into_iter().map(|routed| (routed.shard, routed.candidates)).collect()
            };
            let asked = orders(0);
            assert_eq!((asked.len(), orders(1)), (2, asked.clone()));
            first_asked.insert(asked[0].1[0].clone());
        }
        assert_eq!(first_asked.len(), names.len(), "each has its share of the requests");
    }

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
