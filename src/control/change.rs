//! Changes that need no task: what each one makes durable and publishes to every core.

use std::sync::Arc;

use time::OffsetDateTime;
use uuid::Uuid;

use super::message::{ControlChange, ControlError};
use super::plane::ControlPlane;
use super::state::ControlState;
use super::storage::record::Changes;
use crate::api::uuids;
use crate::auth::{ApiKey, KeySet, key_already_exists, key_not_found};
use crate::chats::Chats;
use crate::search_rules::SearchRules;
use crate::webhooks::{WebhookChange, Webhooks};

/// Brings the state up to date with a change that is durable.
type Publication = Box<dyn FnOnce(&mut ControlState)>;

impl ControlPlane {
    /// Makes a change: durable, and known to every core when it returns.
    pub(super) async fn change(&self, change: ControlChange) -> Result<(), ControlError> {
        let is_of_webhooks = matches!(change, ControlChange::Webhook(_));
        let before = self.state().network.version;
        let (changes, publication) = self.decide(change)?;
        let network = changes.network.clone();
        self.network_under_way.set(network.as_ref().map_or(Uuid::nil(), |network| network.version));
        let committed = self.store.commit(changes).await;
        self.network_under_way.set(Uuid::nil());
        committed?;
        // One that a task brought meanwhile stands.
        if let Some(network) = network.filter(|_| self.network.borrow().version == before) {
            self.use_network(network);
        }
        self.publish(publication).await;
        if is_of_webhooks {
            self.deliveries.webhooks_changed();
        }
        Ok(())
    }

    /// What a change comes to. The one loop of changes calls this, so what it is decided on is what it is applied to.
    fn decide(&self, change: ControlChange) -> Result<(Changes, Publication), ControlError> {
        let mut changes = Changes::default();
        let publication: Publication = match change {
            ControlChange::SetFeatures(patch) => {
                let features = patch.applied(self.state().features);
                changes.features = Some(features);
                Box::new(move |state| state.features = features)
            }
            ControlChange::Network(patch) => {
                let before = self.state().network.clone();
                let network = Arc::new(patch.applied(&before, self.version_after(before.version))?);
                changes.network = Some(network.clone());
                Box::new(move |state| {
                    if state.network.version == before.version {
                        state.network = network;
                    }
                })
            }
            ControlChange::Webhook(change) => {
                let mut webhooks = Webhooks::clone(&self.state().webhooks);
                let is_new = matches!(change, WebhookChange::Create(..));
                let (uid, webhook) = change.apply(&mut webhooks)?;
                match webhook {
                    Some(_) if is_new => changes.webhook_marks.push((uid, Some(self.deliveries.present()))),
                    Some(_) => {}
                    None => changes.webhook_marks.push((uid, None)),
                }
                changes.webhooks.push((uid, webhook));
                Box::new(move |state| state.webhooks = Arc::new(webhooks))
            }
            ControlChange::Chat(change) => {
                let mut chats = Chats::clone(&self.state().chats);
                changes.chats.push(change.apply(&mut chats)?);
                Box::new(move |state| state.chats = Arc::new(chats))
            }
            ControlChange::SearchRule(change) => {
                let mut rules = SearchRules::clone(&self.state().search_rules);
                changes.search_rules.push(change.apply(&mut rules)?);
                Box::new(move |state| state.search_rules = Arc::new(rules))
            }
            ControlChange::CreateKey(_) | ControlChange::UpdateKey(..) | ControlChange::DeleteKey(_) => {
                let keys = self.change_keys(change, &mut changes)?;
                Box::new(move |state| state.keys = Arc::new(keys))
            }
        };
        Ok((changes, publication))
    }

    fn change_keys(&self, change: ControlChange, changes: &mut Changes) -> Result<KeySet, ControlError> {
        let mut keys: Vec<Arc<ApiKey>> = self.state().keys.newest_first().into_iter().cloned().collect();
        match change {
            ControlChange::CreateKey(key) => {
                if keys.iter().any(|old| old.uid == key.uid) {
                    return Err(key_already_exists(key.uid).into());
                }
                changes.keys.push((key.uid, Some(key.clone())));
                keys.push(Arc::new(key));
            }
            ControlChange::UpdateKey(uid, patch, now) => {
                let old = keys.iter_mut().find(|old| old.uid == uid).ok_or_else(|| key_not_found(&uid.to_string()))?;
                let key = patch.apply(old, later_than(old.updated_at, now));
                *old = Arc::new(key.clone());
                changes.keys.push((uid, Some(key)));
            }
            ControlChange::DeleteKey(uid) => {
                let before = keys.len();
                keys.retain(|key| key.uid != uid);
                if keys.len() == before {
                    return Err(key_not_found(&uid.to_string()).into());
                }
                changes.keys.push((uid, None));
            }
            ControlChange::SetFeatures(_)
            | ControlChange::Chat(_)
            | ControlChange::Network(_)
            | ControlChange::Webhook(_)
            | ControlChange::SearchRule(_) => {}
        }
        Ok(KeySet::new(self.config.master_key.as_deref(), keys))
    }

    /// A version of the network that is greater than this one, also when the clock was set back.
    fn version_after(&self, before: Uuid) -> Uuid {
        uuids::v7(&*self.runtime).max(Uuid::from_u128(before.as_u128().saturating_add(1)))
    }
}

/// A change moves `updatedAt` even when the clock did not.
fn later_than(before: OffsetDateTime, now: OffsetDateTime) -> OffsetDateTime {
    now.max(before + time::Duration::NANOSECOND)
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use storage_engine::io::sim::{Faults, SimDisk};

    use super::*;
    use crate::control::testing::World;
    use crate::network::topology::TopologyChange;
    use crate::network::{Network, NetworkPatch};
    use crate::tasks::task::Content;

    /// A network that could not be written was in force all the same for the tasks that came after it, so that every change of the
    /// topology was refused as one of an older network until a restart.
    #[test]
    fn a_network_that_cannot_be_written_is_not_used() {
        let disk = SimDisk::new();
        let instance = World::new().on(Rc::new(disk.clone())).start();
        let named = |name: String| {
            let patch = NetworkPatch { own_name: Some(Some(name)), ..NetworkPatch::default() };
            instance.runtime.run(instance.handle.change(ControlChange::Network(Box::new(patch)))).expect("it ends")
        };
        named("a".into()).expect("there is room");
        let in_force = || (instance.plane.network.borrow().version, instance.plane.state().network.version);
        let before = in_force();

        disk.set_faults(Faults { capacity: Some(0), ..Faults::default() });
        let error = named("a".repeat(1 << 20)).expect_err("the disk is full");
        assert_eq!((error.code.name(), in_force()), ("no_space_left_on_device", before));
        disk.set_faults(Faults::default());

        let present = Network::clone(&instance.plane.state().network);
        let after = Network { version: Uuid::max(), ..present.clone() };
        let change = TopologyChange { before: present, after, ..TopologyChange::default() };
        let content = Content::NetworkTopologyChange { change: Box::new(change) };
        let accepted = instance.runtime.run(instance.handle.register(content.into(), None)).expect("it ends");
        assert!(accepted.is_ok(), "{accepted:?}");
    }
}
