//! Changes of the topology, merged field by field and checked as a whole.

use std::collections::{BTreeMap, BTreeSet};

use shards::error::UserError;
use url::Url;
use uuid::Uuid;

use super::{Network, Remote, Shard};

/// What a client changes. `None` keeps, `Some(None)` is a null, which takes away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkPatch {
    /// The name of this instance.
    pub own_name: Option<Option<String>>,
    /// The name of the leader.
    pub leader: Option<Option<String>>,
    /// Instances by name; a null takes one away, a null for the whole takes all away.
    pub remotes: Option<Option<BTreeMap<String, Option<RemotePatch>>>>,
    /// Shards by name, likewise.
    pub shards: Option<Option<BTreeMap<String, Option<ShardPatch>>>>,
}

/// What changes about an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemotePatch {
    /// Its URL; a new instance needs one, and none can lose it.
    pub url: Option<Option<String>>,
    /// The key that searches there.
    pub search_api_key: Option<Option<String>>,
    /// The key that writes there.
    pub write_api_key: Option<Option<String>>,
}

/// What changes about a shard: (`remotes`, or those it has) and `added`, without `removed`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardPatch {
    /// All its instances.
    pub remotes: Option<BTreeSet<String>>,
    /// Further ones.
    pub added: BTreeSet<String>,
    /// Those to be left out.
    pub removed: BTreeSet<String>,
}

impl NetworkPatch {
    /// The network after this change, as its next version.
    ///
    /// # Errors
    /// In this order: `not_leader` when another instance leads; `missing_network_url`, `invalid_network_url`; and where there
    /// is a leader, `invalid_network_remotes` when it is no instance of the network, `invalid_network_shards` when there is no
    /// shard, or one without instances or with an unknown one.
    pub fn applied(&self, network: &Network, version: Uuid) -> Result<Network, UserError> {
        let mut changed = Network { version, ..network.clone() };
        if let Some(name) = &self.own_name {
            changed.own_name.clone_from(name);
        }
        if let Some(leader) = &self.leader {
            changed.leader.clone_from(leader);
        }
        if changed.leader.is_some() && changed.leader != changed.own_name {
            let leader = changed.leader.unwrap_or_default();
            let message = format!("The leader of the network is `{leader}`; change the network there.");
            return Err(UserError::new("not_leader", message));
        }
        self.change_remotes(&mut changed)?;
        self.change_shards(&mut changed);
        if changed.leader.is_none() {
            changed.shards.retain(|_, shard| !shard.remotes.is_empty());
        }
        check_leader(&changed)?;
        Ok(changed)
    }

    fn change_remotes(&self, network: &mut Network) -> Result<(), UserError> {
        match &self.remotes {
            None => return Ok(()),
            Some(None) => network.remotes.clear(),
            Some(Some(remotes)) => {
                for (name, patch) in remotes {
                    match patch {
                        Some(patch) => {
                            let remote = patch.applied(name, network.remotes.get(name))?;
                            network.remotes.insert(name.clone(), remote);
                        }
                        None => {
                            network.remotes.remove(name);
                        }
                    }
                }
            }
        }
        // What is gone now holds nothing any more. A name that never was an instance is not the concern of this change.
        let gone = |name: &String| !network.remotes.contains_key(name) && self.removes(name);
        for shard in network.shards.values_mut() {
            shard.remotes.retain(|name| !gone(name));
        }
        Ok(())
    }

    /// Whether this instance is taken away by its name. Where all are at once, shards keep the names that they have.
    fn removes(&self, name: &str) -> bool {
        let remotes = self.remotes.as_ref().and_then(Option::as_ref);
        remotes.and_then(|remotes| remotes.get(name)).is_some_and(Option::is_none)
    }

    fn change_shards(&self, network: &mut Network) {
        match &self.shards {
            None => {}
            Some(None) => network.shards.clear(),
            Some(Some(shards)) => {
                for (name, patch) in shards {
                    let Some(patch) = patch else {
                        network.shards.remove(name);
                        continue;
                    };
                    let shard = network.shards.entry(name.clone()).or_default();
                    *shard = patch.applied(shard);
                }
            }
        }
    }
}

impl RemotePatch {
    fn applied(&self, name: &str, known: Option<&Remote>) -> Result<Remote, UserError> {
        let mut remote = known.cloned().unwrap_or_default();
        match (&self.url, known) {
            (Some(Some(url)), _) => {
                Url::parse(url)
                    .map_err(|error| invalid_url(name, &format!("`{url}` is not an absolute URL: {error}")))?;
                remote.url.clone_from(url);
            }
            (Some(None), Some(_)) => return Err(invalid_url(name, "a remote cannot lose its URL")),
            (None, Some(_)) => {}
            (_, None) => {
                let message = format!("The new remote `{name}` needs a `url`.");
                return Err(UserError::new("missing_network_url", message));
            }
        }
        if let Some(key) = &self.search_api_key {
            remote.search_api_key.clone_from(key);
        }
        if let Some(key) = &self.write_api_key {
            remote.write_api_key.clone_from(key);
        }
        Ok(remote)
    }
}

impl ShardPatch {
    fn applied(&self, shard: &Shard) -> Shard {
        let mut remotes = self.remotes.clone().unwrap_or_else(|| shard.remotes.clone());
        remotes.extend(self.added.iter().cloned());
        remotes.retain(|name| !self.removed.contains(name));
        Shard { remotes }
    }
}

/// The rules for a network whose documents are sharded.
fn check_leader(network: &Network) -> Result<(), UserError> {
    let Some(leader) = &network.leader else { return Ok(()) };
    if !network.remotes.contains_key(leader) {
        let message = format!("The leader `{leader}` is not among the remotes.");
        return Err(UserError::new("invalid_network_remotes", message));
    }
    let wrong = |message: String| Err(UserError::new("invalid_network_shards", message));
    if network.shards.is_empty() {
        return wrong("A network with a leader needs at least one shard.".into());
    }
    for (name, shard) in &network.shards {
        if shard.remotes.is_empty() {
            return wrong(format!("The shard `{name}` has no remotes."));
        }
        if let Some(unknown) = shard.remotes.iter().find(|remote| !network.remotes.contains_key(*remote)) {
            return wrong(format!("The shard `{name}` is on `{unknown}`, which is not among the remotes."));
        }
    }
    Ok(())
}

fn invalid_url(remote: &str, why: &str) -> UserError {
    UserError::new("invalid_network_url", format!("Invalid URL of the remote `{remote}`: {why}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> BTreeSet<String> {
        text.split_whitespace().map(String::from).collect()
    }

    fn with_remotes(text: &str) -> NetworkPatch {
        let remote = |name: String| {
            let url = Some(Some(format!("http://{name}")));
            (name, Some(RemotePatch { url, ..RemotePatch::default() }))
        };
        let remotes = names(text).into_iter().map(remote).collect();
        NetworkPatch { remotes: Some(Some(remotes)), ..NetworkPatch::default() }
    }

    fn shard(name: &str, patch: Option<ShardPatch>) -> NetworkPatch {
        let shards = Some(Some(BTreeMap::from([(name.to_owned(), patch)])));
        NetworkPatch { shards, ..NetworkPatch::default() }
    }

    fn on(text: &str) -> Option<ShardPatch> {
        Some(ShardPatch { remotes: Some(names(text)), ..ShardPatch::default() })
    }

    fn removal(name: &str) -> NetworkPatch {
        let remotes = Some(Some(BTreeMap::from([(name.to_owned(), None)])));
        NetworkPatch { remotes, ..NetworkPatch::default() }
    }

    fn after(network: &Network, patches: &[NetworkPatch]) -> Result<Network, &'static str> {
        let next = |network: Network, patch: &NetworkPatch| patch.applied(&network, Uuid::max()).map_err(|e| e.code);
        patches.iter().try_fold(network.clone(), next)
    }

    #[test]
    fn shards_are_sets_with_additions_before_removals() {
        let start = after(&Network::default(), &[with_remotes("a b c"), shard("s", on("a b"))]).unwrap();
        assert_eq!((start.version, start.shards["s"].remotes.clone()), (Uuid::max(), names("a b")));
        let both = ShardPatch { remotes: None, added: names("a b c"), removed: names("b zzz") };
        assert_eq!(after(&start, &[shard("s", Some(both))]).unwrap().shards["s"].remotes, names("a c"));
        assert_eq!(after(&start, &[shard("s", Some(ShardPatch::default()))]).unwrap().shards, start.shards);
        assert!(after(&start, &[shard("s", None)]).unwrap().shards.is_empty());
        // Without a leader a shard may be on what is no remote, and loses only what this very change takes away.
        let odd = after(&start, &[shard("t", on("zzz a")), removal("a")]).unwrap();
        assert_eq!((odd.shards["s"].remotes.clone(), odd.shards["t"].remotes.clone()), (names("b"), names("zzz")));
    }

    #[test]
    fn with_a_leader_every_shard_is_on_a_known_remote() {
        let lead = NetworkPatch {
            own_name: Some(Some("a".into())),
            leader: Some(Some("a".into())),
            ..NetworkPatch::default()
        };
        let start = after(&Network::default(), &[with_remotes("a b"), shard("s", on("b"))]).unwrap();
        let led = after(&start, std::slice::from_ref(&lead)).unwrap();
        assert_eq!(after(&led, &[removal("b")]).unwrap_err(), "invalid_network_shards");
        assert_eq!(after(&led, &[removal("a")]).unwrap_err(), "invalid_network_remotes");
        assert_eq!(after(&led, &[shard("s", None)]).unwrap_err(), "invalid_network_shards");
        assert_eq!(after(&led, &[shard("t", on(""))]).unwrap_err(), "invalid_network_shards");
        assert_eq!(after(&led, &[shard("t", on("zzz"))]).unwrap_err(), "invalid_network_shards");
        assert_eq!(after(&Network::default(), &[lead]).unwrap_err(), "invalid_network_remotes");
        let other = NetworkPatch { own_name: Some(None), ..removal("zzz") };
        assert_eq!(after(&led, &[other]).unwrap_err(), "not_leader");
        let retired = NetworkPatch { leader: Some(None), ..NetworkPatch::default() };
        assert!(after(&led, &[retired, shard("s", None)]).is_ok());
    }

    #[test]
    fn remotes_are_merged_and_keep_their_urls() {
        let start = after(&Network::default(), &[with_remotes("a")]).unwrap();
        let key = |key: Option<&str>| {
            let patch = RemotePatch { search_api_key: Some(key.map(String::from)), ..RemotePatch::default() };
            let remotes = Some(Some(BTreeMap::from([("a".to_owned(), Some(patch))])));
            NetworkPatch { remotes, ..NetworkPatch::default() }
        };
        let keyed = after(&start, &[key(Some("k"))]).unwrap();
        assert_eq!(
            (keyed.remotes["a"].url.as_str(), keyed.remotes["a"].search_api_key.as_deref()),
            ("http://a", Some("k"))
        );
        assert_eq!(after(&keyed, &[key(None)]).unwrap().remotes, start.remotes);
        let url = |name: &str, url: Option<&str>| {
            let patch = RemotePatch { url: Some(url.map(String::from)), ..RemotePatch::default() };
            let remotes = Some(Some(BTreeMap::from([(name.to_owned(), Some(patch))])));
            after(&start, &[NetworkPatch { remotes, ..NetworkPatch::default() }]).err()
        };
        assert_eq!(url("a", None), Some("invalid_network_url"));
        assert_eq!(url("b", None), Some("missing_network_url"));
        assert_eq!(url("b", Some("not a url")), Some("invalid_network_url"));
        assert_eq!(url("b", Some("localhost:7700")), None);
    }
}
