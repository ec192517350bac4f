//! The state of the instance that every core knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use shards::engine::IndexView;

use super::features::Features;
use crate::auth::KeySet;
use crate::chats::Chats;
use crate::network::Network;
use crate::network::routing::Routing;
use crate::search_rules::SearchRules;
use crate::webhooks::Webhooks;

/// The indexes by name, in the order of their bytes.
pub type IndexMap = BTreeMap<Arc<str>, Arc<IndexView>>;

/// The state of the control plane. Immutable: core 0 makes a new one for each change and hands it to every core before
/// the change is answered, so whoever has seen an answer sees at least that state on every core.
#[derive(Clone, Default)]
pub struct ControlState {
    /// Grows with each change, from 1; a core never goes back to an earlier one.
    pub version: u64,
    /// The indexes, each as of its newest committed epoch.
    pub indexes: Arc<IndexMap>,
    /// The keys with the master key.
    pub keys: Arc<KeySet>,
    /// The switches.
    pub features: Features,
    /// The chat workspaces.
    pub chats: Arc<Chats>,
    /// The other instances.
    pub network: Arc<Network>,
    /// How searches find the documents of the network; follows from it and from the change under way.
    pub routing: Arc<Routing>,
    /// Who is told of finished tasks.
    pub webhooks: Arc<Webhooks>,
    /// Which documents stand at fixed places of results.
    pub search_rules: Arc<SearchRules>,
}

impl ControlState {
    /// The index of this name.
    pub fn index(&self, uid: &str) -> Option<&Arc<IndexView>> {
        self.indexes.get(uid)
    }
}
