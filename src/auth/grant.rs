//! The check of one request: from its `Authorization` header to a [`Grant`] or the error that the client sees.

use std::sync::Arc;

use serde_json::Value;
use shards::error::UserError;
use time::OffsetDateTime;

use super::actions::Action;
use super::keys::{ApiKey, IndexPattern, KeySet, equal_in_constant_time};
use super::tenant::{self, TenantRules, TokenKind};

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// No header, or one that is not of the form `Bearer ...`.
    #[error("The Authorization header is missing. It must use the bearer authorization method.")]
    MissingAuthorizationHeader,
    /// A route about keys, on an instance without a master key.
    #[error("The routes under `/keys` need a master key. Start the server with `--master-key` to use them.")]
    MissingMasterKey,
    /// A token that opens nothing, or not this.
    #[error("The provided API key is invalid.")]
    InvalidApiKey,
    /// A key that does not open this index. The message names what the caller's own token opens, and no more: a tenant
    /// does not learn about its parent key.
    #[error("The API key cannot access the index `{index}`, authorized indexes are {authorized:?}.")]
    IndexNotAuthorized {
        /// The index that was asked for.
        index: String,
        /// The patterns of the token.
        authorized: Vec<String>,
    },
}

impl AuthError {
    /// The interface's code: `missing_authorization_header` (401), `missing_master_key` (401) or `invalid_api_key` (403).
    pub fn code(&self) -> &'static str {
        match self {
            AuthError::MissingAuthorizationHeader => "missing_authorization_header",
            AuthError::MissingMasterKey => "missing_master_key",
            AuthError::InvalidApiKey | AuthError::IndexNotAuthorized { .. } => "invalid_api_key",
        }
    }
}

impl From<AuthError> for UserError {
    fn from(error: AuthError) -> UserError {
        UserError::new(error.code(), error.to_string())
    }
}

/// What an accepted request may see and do.
#[derive(Clone, Debug)]
pub struct Grant {
    /// `None`: everything, by the master key or because there is none.
    key: Option<Arc<ApiKey>>,
    tenant: Option<Arc<TenantRules>>,
}

impl Grant {
    /// Everything on every index.
    pub fn everything() -> Grant {
        Grant { key: None, tenant: None }
    }

    /// Whether nothing is hidden from it: every index, and what belongs to no index.
    pub fn sees_everything(&self) -> bool {
        let key_opens_all = self.key.as_ref().is_none_or(|key| key.indexes.iter().any(IndexPattern::is_everything));
        key_opens_all && self.tenant.is_none()
    }

    /// Whether this index is one of its own.
    pub fn sees_index(&self, uid: &str) -> bool {
        let key_opens = self.key.as_ref().is_none_or(|key| key.indexes.iter().any(|pattern| pattern.matches(uid)));
        key_opens && self.tenant.as_ref().is_none_or(|rules| rules.filter_of(uid).is_some())
    }

    /// Whether the same caller could also do `action` on this index, as when adding documents would make the index.
    pub fn allows(&self, action: Action, uid: &str) -> bool {
        let key_allows = self.key.as_ref().is_none_or(|key| key.rights().contains(action));
        key_allows && self.sees_index(uid) && (self.tenant.is_none() || action.takes_tenant_tokens())
    }

    /// Refuses an index that is not one of its own; for routes that name indexes in their body.
    pub fn check_index(&self, uid: &str) -> Result<(), AuthError> {
        if self.sees_index(uid) {
            return Ok(());
        }
        let authorized = match (&self.tenant, &self.key) {
            (Some(rules), _) => rules.patterns().map(|pattern| pattern.as_str().to_owned()).collect(),
            (None, Some(key)) => key.indexes.iter().map(|pattern| pattern.as_str().to_owned()).collect(),
            (None, None) => Vec::new(),
        };
        Err(AuthError::IndexNotAuthorized { index: uid.to_owned(), authorized })
    }

    /// The filter that the tenant's searches on this index must also fulfil; [`tenant::join_filters`] adds it to the
    /// request's.
    pub fn tenant_filter(&self, uid: &str) -> Option<&Value> {
        self.tenant.as_ref().and_then(|rules| rules.filter_of(uid).flatten())
    }

    /// The key behind it, when there is one.
    pub fn key(&self) -> Option<&Arc<ApiKey>> {
        self.key.as_ref()
    }
}

/// Checks a request on a route that asks for `action` and perhaps names `index` in its path. `header` is the value of
/// `Authorization` as it came. Routes that ask for nothing (`GET /`, `GET /health`) do not call this.
pub fn authorize(
    header: Option<&[u8]>,
    action: Action,
    index: Option<&str>,
    keys: &KeySet,
    now: OffsetDateTime,
) -> Result<Grant, AuthError> {
    let token = header.map(bearer_token).transpose()?;
    let Some(master_key) = keys.master_key() else {
        return if action.is_about_keys() { Err(AuthError::MissingMasterKey) } else { Ok(Grant::everything()) };
    };
    let token = token.ok_or(AuthError::MissingAuthorizationHeader)?;
    if equal_in_constant_time(token, master_key) {
        return Ok(Grant::everything());
    }
    let token = std::str::from_utf8(token).map_err(|_| AuthError::InvalidApiKey)?;
    let grant = find_grant(token, action, keys, master_key, now)?;
    if let Some(index) = index {
        grant.check_index(index)?;
    }
    let key = grant.key.as_ref().ok_or(AuthError::InvalidApiKey)?;
    if key.allows(action, now) { Ok(grant) } else { Err(AuthError::InvalidApiKey) }
}

/// The token in a header of the form `Bearer token`. Everything after the first blank is the token.
fn bearer_token(header: &[u8]) -> Result<&[u8], AuthError> {
    let mut parts = header.splitn(2, |byte| *byte == b' ');
    if parts.next() != Some(b"Bearer".as_slice()) {
        return Err(AuthError::MissingAuthorizationHeader);
    }
    parts.next().filter(|token| !token.is_empty()).ok_or(AuthError::InvalidApiKey)
}

/// The key that a token stands for, as a tenant token where the action takes those, else as a key's value.
fn find_grant(
    token: &str,
    action: Action,
    keys: &KeySet,
    master_key: &[u8],
    now: OffsetDateTime,
) -> Result<Grant, AuthError> {
    let kind = if action.takes_tenant_tokens() { tenant::inspect(token) } else { TokenKind::NotAToken };
    match kind {
        TokenKind::Unusable => Err(AuthError::InvalidApiKey),
        TokenKind::NotAToken => {
            let key = keys.by_value(token).ok_or(AuthError::InvalidApiKey)?;
            Ok(Grant { key: Some(key.clone()), tenant: None })
        }
        TokenKind::Claiming(parent) => {
            let key = keys.by_uid(parent).ok_or(AuthError::InvalidApiKey)?;
            let rules = tenant::verify(token, parent, master_key, now).ok_or(AuthError::InvalidApiKey)?;
            if rules.is_empty() {
                return Err(AuthError::InvalidApiKey);
            }
            Ok(Grant { key: Some(key.clone()), tenant: Some(Arc::new(rules)) })
        }
    }
}
