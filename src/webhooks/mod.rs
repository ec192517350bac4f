//! Webhooks: other servers that are notified of every finished batch.
//!
//! They are part of the control plane's state, durable and known to every core. [`delivery`] runs in the background on the
//! control core; [`marks`] record how far each webhook has been notified, across restarts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shards::error::UserError;
use url::Url;
use uuid::Uuid;

use crate::outgoing::{is_header_name, is_header_value};

mod delivery;
pub mod marks;

pub use delivery::{Deliveries, run};

/// Webhooks that clients may make.
const WEBHOOKS_MAX: usize = 20;
/// Headers of one webhook.
const HEADERS_MAX: usize = 200;

/// Webhooks by uid. That of the command line has the nil uid, so it comes first; it is never stored.
pub type Webhooks = BTreeMap<Uuid, Webhook>;

/// Who is told, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Webhook {
    /// Where tasks are sent; an absolute URL, as it was given.
    pub url: String,
    /// Headers of each request, by name.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
}

/// A change of webhooks.
#[derive(Clone, Debug)]
pub enum WebhookChange {
    /// Make one with this uid; `invalid_webhooks` when there are too many.
    Create(Uuid, Webhook),
    /// Change one; `immutable_webhook`, `webhook_not_found`, `invalid_webhook_headers`.
    Patch(Uuid, WebhookPatch),
    /// Take one away; `immutable_webhook`, `webhook_not_found`.
    Delete(Uuid),
}

/// What is to be different about a webhook.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookPatch {
    /// The new URL.
    pub url: Option<String>,
    /// The new headers; `Some(None)` takes all away.
    pub headers: Option<Option<HeaderChanges>>,
}

/// Headers by name: the new value, or `None` for one that goes.
pub type HeaderChanges = BTreeMap<String, Option<String>>;

impl Webhook {
    /// One with at most an `Authorization` header.
    pub fn new(url: &str, authorization: Option<&str>) -> Self {
        let header = authorization.map(|value| ("Authorization".to_owned(), value.to_owned()));
        Self { url: url.to_owned(), headers: header.into_iter().collect() }
    }

    /// The webhook that a client asks for.
    ///
    /// # Errors
    /// `invalid_webhook_url`, `invalid_webhook_headers`.
    pub fn asked(url: String, headers: BTreeMap<String, String>) -> Result<Self, UserError> {
        let webhook = Self { url, headers };
        webhook.check()?;
        Ok(webhook)
    }
}

/// Whether there may be one more.
///
/// # Errors
/// `invalid_webhooks`.
pub fn check_room(webhooks: &Webhooks) -> Result<(), UserError> {
    if webhooks.keys().filter(|uid| !uid.is_nil()).count() < WEBHOOKS_MAX {
        return Ok(());
    }
    let message = format!("There are {WEBHOOKS_MAX} webhooks already; delete one to make another.");
    Err(UserError::new("invalid_webhooks", message))
}

impl Webhook {
    /// The first mistake is that there is no URL, the last one that it is none.
    fn check(&self) -> Result<(), UserError> {
        if self.url.is_empty() {
            return Err(UserError::new("invalid_webhook_url", "The URL of the webhook is missing."));
        }
        check_headers(&self.headers)?;
        check_url(&self.url)
    }
}

impl WebhookChange {
    /// Makes the change: which webhook is different now, and how; `None` when it is gone.
    ///
    /// # Errors
    /// As named at the variants; nothing has changed then.
    pub fn apply(self, webhooks: &mut Webhooks) -> Result<(Uuid, Option<Webhook>), UserError> {
        match self {
            Self::Create(uid, webhook) => {
                check_room(webhooks)?;
                webhooks.insert(uid, webhook.clone());
                Ok((uid, Some(webhook)))
            }
            Self::Patch(uid, patch) => {
                let webhook = editable(webhooks, uid)?;
                let changed = patch.applied(webhook)?;
                webhook.clone_from(&changed);
                Ok((uid, Some(changed)))
            }
            Self::Delete(uid) => {
                editable(webhooks, uid)?;
                webhooks.remove(&uid);
                Ok((uid, None))
            }
        }
    }
}

impl WebhookPatch {
    fn applied(self, webhook: &Webhook) -> Result<Webhook, UserError> {
        let mut changed = webhook.clone();
        if let Some(url) = self.url {
            changed.url = url;
        }
        match self.headers {
            None => {}
            Some(None) => changed.headers.clear(),
            Some(Some(headers)) => {
                for (name, value) in headers {
                    match value {
                        Some(value) => changed.headers.insert(name, value),
                        None => changed.headers.remove(&name),
                    };
                }
            }
        }
        changed.check()?;
        Ok(changed)
    }
}

/// The webhook of this uid, if clients may change it.
fn editable(webhooks: &mut Webhooks, uid: Uuid) -> Result<&mut Webhook, UserError> {
    if uid.is_nil() {
        let message = "The webhook of the command line cannot be changed; restart the server with another one.";
        return Err(UserError::new("immutable_webhook", message));
    }
    webhooks.get_mut(&uid).ok_or_else(|| webhook_not_found(uid))
}

/// `webhook_not_found` for this uid.
pub fn webhook_not_found(uid: Uuid) -> UserError {
    UserError::new("webhook_not_found", format!("Webhook `{uid}` not found."))
}

fn check_url(url: &str) -> Result<(), UserError> {
    let wrong = |error| UserError::new("invalid_webhook_url", format!("`{url}` is not an absolute URL: {error}."));
    Url::parse(url).map(|_| ()).map_err(wrong)
}

fn check_headers(headers: &BTreeMap<String, String>) -> Result<(), UserError> {
    let wrong = |message| Err(UserError::new("invalid_webhook_headers", message));
    if headers.len() > HEADERS_MAX {
        return wrong(format!("A webhook has at most {HEADERS_MAX} headers, not {}.", headers.len()));
    }
    for (name, value) in headers {
        if !is_header_name(name) {
            return wrong(format!("`{name}` is not the name of a header."));
        }
        if !is_header_value(value) {
            return wrong(format!("The value of the header `{name}` has characters that a header cannot have."));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code<T>(result: Result<T, UserError>) -> &'static str {
        result.err().map_or("fine", |error| error.code)
    }

    fn headers(pairs: &[(&str, Option<&str>)]) -> Option<Option<HeaderChanges>> {
        Some(Some(pairs.iter().map(|(name, value)| (name.to_string(), value.map(String::from))).collect()))
    }

    #[test]
    fn a_patch_merges_headers_and_fails_whole() {
        let uid = Uuid::from_u128(7);
        let mut webhooks = Webhooks::from([(uid, Webhook::new("http://h", Some("secret")))]);
        let patch =
            WebhookPatch { headers: headers(&[("X", Some("1")), ("Authorization", None), ("Y", None)]), url: None };
        WebhookChange::Patch(uid, patch).apply(&mut webhooks).unwrap();
        assert_eq!(webhooks[&uid].headers, BTreeMap::from([("X".to_owned(), "1".to_owned())]));
        let before = webhooks.clone();
        let patch = WebhookPatch { url: Some("http://other".into()), headers: headers(&[("b d", Some("1"))]) };
        assert_eq!(code(WebhookChange::Patch(uid, patch).apply(&mut webhooks)), "invalid_webhook_headers");
        let many: Vec<String> = (0..HEADERS_MAX).map(|number| format!("h{number}")).collect();
        let many: Vec<(&str, Option<&str>)> = many.iter().map(|name| (name.as_str(), Some(""))).collect();
        let patch = WebhookPatch { url: None, headers: headers(&many) };
        assert_eq!(code(WebhookChange::Patch(uid, patch).apply(&mut webhooks)), "invalid_webhook_headers");
        assert_eq!(webhooks, before);
        let patch = WebhookPatch { url: None, headers: Some(None) };
        WebhookChange::Patch(uid, patch).apply(&mut webhooks).unwrap();
        assert!(webhooks[&uid].headers.is_empty());
    }

    #[test]
    fn of_several_mistakes_a_missing_url_comes_first_and_a_wrong_one_last() {
        let uid = Uuid::from_u128(7);
        for (url, name, wanted) in [
            ("", "a b", "invalid_webhook_url"),
            ("", "a", "invalid_webhook_url"),
            ("x", "a b", "invalid_webhook_headers"),
            ("x", "a", "invalid_webhook_url"),
            ("http://x", "a", "fine"),
        ] {
            let map = BTreeMap::from([(name.to_owned(), String::new())]);
            assert_eq!(code(Webhook::asked(url.into(), map)), wanted, "{url} {name}");
            let mut webhooks = Webhooks::from([(uid, Webhook::new("http://h", None))]);
            let patch = WebhookPatch { url: Some(url.into()), headers: headers(&[(name, Some(""))]) };
            assert_eq!(code(WebhookChange::Patch(uid, patch).apply(&mut webhooks)), wanted, "{url} {name}");
        }
    }

    #[test]
    fn the_command_line_s_webhook_is_not_counted_and_not_changed() {
        let mut webhooks = Webhooks::from([(Uuid::nil(), Webhook::new("http://h", None))]);
        for number in 1..=WEBHOOKS_MAX as u128 {
            WebhookChange::Create(Uuid::from_u128(number), Webhook::new("http://h", None))
                .apply(&mut webhooks)
                .unwrap();
        }
        let one_more = WebhookChange::Create(Uuid::from_u128(99), Webhook::new("http://h", None));
        assert_eq!(code(one_more.apply(&mut webhooks)), "invalid_webhooks");
        assert_eq!(code(WebhookChange::Delete(Uuid::nil()).apply(&mut webhooks)), "immutable_webhook");
        let patch = WebhookChange::Patch(Uuid::nil(), WebhookPatch::default());
        assert_eq!(code(patch.apply(&mut webhooks)), "immutable_webhook");
        WebhookChange::Delete(Uuid::from_u128(1)).apply(&mut webhooks).unwrap();
        assert_eq!(code(WebhookChange::Delete(Uuid::from_u128(1)).apply(&mut webhooks)), "webhook_not_found");
    }
}
