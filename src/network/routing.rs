//! Where searches find the documents of a network shard, also while a change of the topology is under way.
//!
//! Until a change has brought every document to where it belongs, shards are asked for by the network before it, of the
//! instances that had them then. What an instance is about to delete it has ceased to answer for: asked for it, it refuses,
//! and whoever asks turns to the next instance that has the documents. So a search finds each document once, or says which
//! instance gave no answer.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Network;
use super::change::Change;
use crate::api::error::{ApiError, ErrorCode};

/// By which network searches go, and what this instance can answer for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Routing {
    /// The network that searches go by.
    pub network: Arc<Network>,
    /// The network that follows, as far as its instances may have documents of the same shards already.
    next: Option<Arc<Network>>,
    /// The shards of which this instance has every document.
    own: BTreeSet<String>,
}

impl Routing {
    /// The routing of `network`, to which `change` may not have led yet.
    pub fn new(network: &Arc<Network>, change: Option<&Change>) -> Self {
        let shards_of = |network: &Network| network.kept().map(|kept| kept.own).unwrap_or_default();
        let Some(change) = change else {
            return Self { network: network.clone(), next: None, own: shards_of(network) };
        };
        let (before, after) = (&change.topology.before, &change.topology.after);
        let keeps_names = before.shards.keys().eq(after.shards.keys()) && before.leader.is_some();
        if change.steps.switched {
            // Documents whose shard gets another name are in neither while they are dealt out.
            let own = if keeps_names { shards_of(after) } else { BTreeSet::new() };
            return Self { network: Arc::new(after.clone()), next: None, own };
        }
        let mut own = shards_of(before);
        if keeps_names && change.steps.imported == Some(true) {
            own.extend(shards_of(after));
        }
        let next = keeps_names.then(|| Arc::new(after.clone()));
        Self { network: Arc::new(before.clone()), next, own }
    }

    /// The instances that may have all documents of a shard, the likeliest first.
    pub fn candidates(&self, shard: &str, mut shuffle: impl FnMut(&mut [String])) -> Vec<String> {
        let own_name = self.network.own_name.as_ref();
        let on = |network: &Network| network.shards.get(shard).map(|shard| shard.remotes.clone()).unwrap_or_default();
        let now = on(&self.network);
        let later: BTreeSet<String> = self.next.iter().flat_map(|next| on(next)).collect();
        let is_own = |name: &String| Some(name) == own_name;
        let (stay, go): (Vec<String>, Vec<String>) = now
            .iter()
            .filter(|name| !is_own(name))
            .cloned()
            .partition(|name| self.next.is_none() || later.contains(name));
        let come: Vec<String> = later.iter().filter(|name| !now.contains(*name) && !is_own(name)).cloned().collect();
        let own = own_name.filter(|_| self.own.contains(shard)).cloned();
        let mut all: Vec<String> = own.into_iter().collect();
        for mut names in [stay, go, come] {
            shuffle(&mut names);
            all.extend(names);
        }
        all
    }

    /// How another instance is called, whichever of the networks it is of.
    pub fn remote(&self, name: &str) -> Option<&super::Remote> {
        let next = || self.next.as_ref().and_then(|next| next.remotes.get(name));
        self.network.remotes.get(name).or_else(next)
    }

    /// The shards that are asked for, with the names of all, as it is said to the instance that is asked.
    pub fn question<'n>(&self, asked: impl IntoIterator<Item = &'n str>) -> String {
        let joined = |names: &mut dyn Iterator<Item = &str>| {
            names.map(super::headers::percent_encode).collect::<Vec<_>>().join(",")
        };
        let all = joined(&mut self.network.shards.keys().map(String::as_str));
        format!("{};{all}", joined(&mut asked.into_iter()))
    }

    /// The shards that a [`Self::question`] asks for; `None` for a name that cannot be read.
    pub fn asked(question: &str) -> impl Iterator<Item = Option<String>> {
        let asked = question.split_once(';').map_or(question, |(asked, _)| asked);
        asked.split(',').map(|name| super::headers::percent_decode(name.as_bytes()))
    }

    /// Checks that this instance can answer for the shards of a [`Self::question`].
    ///
    /// # Errors
    /// `network_version_mismatch` when some document of them may be missing here.
    pub fn check(&self, question: &str) -> Result<(), ApiError> {
        let (asked, all) = question.split_once(';').unwrap_or((question, ""));
        let named = self.question([]);
        let own: BTreeSet<String> = self.own.iter().map(|name| super::headers::percent_encode(name)).collect();
        let is_dealt_alike = named.strip_prefix(';') == Some(all);
        if is_dealt_alike && asked.split(',').all(|name| own.contains(name)) {
            return Ok(());
        }
        let message = "This instance does not have all documents of the network shards that are asked for.";
        Err(ApiError::new(ErrorCode::NetworkVersionMismatch, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::topology::TopologyChange;
    use crate::network::{Remote, Shard};
    use crate::tasks::task::{Content, NewTask, Task, TaskUid};

    fn network(own: &str, shards: &[(&str, &str)]) -> Network {
        let on = |words: &str| words.split(' ').map(String::from).collect::<BTreeSet<_>>();
        Network {
            own_name: Some(own.into()),
            leader: Some("a".into()),
            remotes: ["a", "b", "c"].map(|name| (name.to_owned(), Remote::default())).into(),
            shards: shards.iter().map(|(name, words)| ((*name).into(), Shard { remotes: on(words) })).collect(),
            ..Network::default()
        }
    }

    fn routing(own: &str, [before, after]: [&[(&str, &str)]; 2], step: impl FnOnce(&mut Change)) -> Routing {
        let change = TopologyChange { before: network(own, before), after: network(own, after), starts_empty: false };
        let after = Arc::new(change.after.clone());
        let content = Content::NetworkTopologyChange { change: Box::new(change) };
        let task = Task::accepted(TaskUid(0), NewTask::from(content), shards::timestamp::Timestamp(0));
        let mut change = Change::new(&task, None).expect("it is one");
        step(&mut change);
        Routing::new(&after, Some(&change))
    }

    /// A search once asked the instances that were to have a shard before its documents had come there.
    #[test]
    fn documents_that_move_are_looked_for_where_they_were() {
        let change: [&[(&str, &str)]; 2] = [&[("s", "a b"), ("t", "a c")], &[("s", "b c"), ("t", "a c")]];
        let begun = |own: &str| routing(own, change, |_| {});
        assert_eq!(begun("a").candidates("s", |_| {}), ["a", "b", "c"]);
        assert_eq!(begun("c").candidates("s", |_| {}), ["b", "a"]);
        let question = begun("c").question(["s"]);
        assert!(begun("a").check(&question).is_ok() && begun("c").check(&question).is_err());
        let imported = |own: &str| routing(own, change, |change| change.steps.imported = Some(true));
        assert!(imported("a").check(&question).is_ok() && imported("c").check(&question).is_ok());
        let switched = |own: &str| routing(own, change, |change| change.steps.switched = true);
        assert!(switched("a").check(&question).is_err() && switched("c").check(&question).is_ok());
        assert_eq!(switched("a").candidates("s", |_| {}), ["b", "c"]);
    }

    /// The same name stands for other documents when there are other names beside it.
    #[test]
    fn names_are_those_of_one_deal() {
        let change: [&[(&str, &str)]; 2] = [&[("s", "a b")], &[("s", "a b"), ("t", "b c")]];
        let begun = |own: &str| routing(own, change, |change| change.steps.imported = Some(true));
        let later = Routing::new(&Arc::new(network("a", change[1])), None);
        let (old, new) = (begun("a").question(["s"]), later.question(["s"]));
        assert!(begun("b").check(&old).is_ok() && begun("b").check(&new).is_err());
        assert!(later.check(&new).is_ok() && later.check(&old).is_err());
        let switched = routing("b", change, |change| change.steps.switched = true);
        assert!(switched.check(&old).is_err() && switched.check(&new).is_err());
    }
}
