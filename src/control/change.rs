//! Changes that need no task: what each makes durable, and what every core then sees.

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
        let (changes, publication) = self.decide(change)?;
        self.store.commit(changes).await?;
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
                self.use_network(network.clone());
                Box::new(move |state| state.network = network)
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
