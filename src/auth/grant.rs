//! Authorizes one request: from its `Authorization` header to a [`Grant`] or the error that the client gets.

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
    /// A tenant token past its `exp`. Both are seconds since 1970.
    #[error("The tenant token has expired: its `exp` is {end}, and the time is {now} (seconds since 1970).")]
    TenantTokenExpired {
        /// The end that the token names.
        end: i64,
        /// The time of the check.
        now: i64,
    },
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
            AuthError::InvalidApiKey | AuthError::TenantTokenExpired { .. } | AuthError::IndexNotAuthorized { .. } => {
                "invalid_api_key"
            }
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

    /// Whether it comes from a tenant token, whose rules narrow it.
    pub fn is_tenant(&self) -> bool {
        self.tenant.is_some()
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
    if equal_in_constant_time(token.as_bytes(), master_key) {
        return Ok(Grant::everything());
    }
    let grant = find_grant(token, action, keys, master_key, now)?;
    if let Some(index) = index {
        grant.check_index(index)?;
    }
    let key = grant.key.as_ref().ok_or(AuthError::InvalidApiKey)?;
    if key.allows(action, now) { Ok(grant) } else { Err(AuthError::InvalidApiKey) }
}

/// The token in a header of the form `Bearer token`. Everything after the first blank is the token. A header that is not ASCII text
/// has no form.
fn bearer_token(header: &[u8]) -> Result<&str, AuthError> {
    let is_text = header.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
    let text = std::str::from_utf8(header).ok().filter(|_| is_text).ok_or(AuthError::MissingAuthorizationHeader)?;
    let (scheme, token) = text.split_once(' ').unwrap_or((text, ""));
    if scheme != "Bearer" {
        return Err(AuthError::MissingAuthorizationHeader);
    }
    if token.is_empty() { Err(AuthError::InvalidApiKey) } else { Ok(token) }
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
            let rules = tenant::verify(token, parent, master_key, now)?;
            Ok(Grant { key: Some(key.clone()), tenant: Some(Arc::new(rules)) })
        }
    }
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::{EncodingKey, Header};
    use serde_json::json;
    use uuid::Uuid;

    use super::super::actions::ActionName;
    use super::super::keys::{IndexPattern, key_value};
    use super::*;

    const MASTER: &str = "a-master-key-of-32-bytes-or-more!";
    const NOW: OffsetDateTime = time::macros::datetime!(2030-01-01 0:00 UTC);

    fn key(number: u128, actions: &[&str], indexes: &[&str]) -> ApiKey {
        ApiKey {
            uid: Uuid::from_u128(number),
            name: None,
            description: None,
            actions: actions.iter().map(|name| ActionName::parse(name).unwrap()).collect(),
            indexes: indexes.iter().map(|pattern| IndexPattern::parse(pattern).unwrap()).collect(),
            expires_at: None,
            created_at: NOW,
            updated_at: NOW,
        }
    }

    fn value(number: u128) -> String {
        key_value(MASTER.as_bytes(), Uuid::from_u128(number))
    }

    fn bearer(token: &str) -> String {
        format!("Bearer {token}")
    }

    fn token(parent: u128, rules: Value) -> String {
        let claims = json!({"apiKeyUid": Uuid::from_u128(parent), "searchRules": rules});
        jsonwebtoken::encode(&Header::default(), &claims, &EncodingKey::from_secret(value(parent).as_bytes())).unwrap()
    }

    fn set(keys: Vec<ApiKey>) -> KeySet {
        KeySet::new(Some(MASTER), keys.into_iter().map(Arc::new))
    }

    fn code(header: Option<&str>, action: Action, index: Option<&str>, keys: &KeySet) -> &'static str {
        match authorize(header.map(str::as_bytes), action, index, keys, NOW) {
            Ok(_) => "ok",
            Err(error) => error.code(),
        }
    }

    #[test]
    fn the_form_of_the_header_is_checked_with_and_without_a_master_key() {
        let (open, closed) = (KeySet::new(Some(""), Vec::new()), set(Vec::new()));
        for header in ["bearer x", "Basic x", "x", "", " Bearer x", "Bearer\tx"] {
            for keys in [&open, &closed] {
                assert_eq!(
                    code(Some(header), Action::IndexesGet, None, keys),
                    "missing_authorization_header",
                    "{header:?}"
                );
            }
        }
        for header in ["Bearer", "Bearer "] {
            for keys in [&open, &closed] {
                assert_eq!(code(Some(header), Action::IndexesGet, None, keys), "invalid_api_key", "{header:?}");
            }
        }
        assert_eq!(code(None, Action::IndexesGet, None, &open), "ok");
        assert_eq!(code(None, Action::IndexesGet, None, &closed), "missing_authorization_header");
        assert_eq!(code(Some("Bearer whatever"), Action::IndexesGet, None, &open), "ok");
        assert_eq!(code(Some("Bearer whatever"), Action::KeysGet, None, &open), "missing_master_key");
        assert_eq!(code(None, Action::KeysCreate, None, &open), "missing_master_key");
        assert_eq!(code(Some(&bearer(MASTER)), Action::KeysCreate, None, &closed), "ok");
        assert_eq!(code(Some(&format!("Bearer  {MASTER}")), Action::KeysCreate, None, &closed), "invalid_api_key");
    }

    /// Without a master key such a header was let through, with one it was called a wrong key.
    #[test]
    fn a_header_that_is_no_text_is_as_none() {
        let (open, closed) = (KeySet::new(None, Vec::new()), set(Vec::new()));
        for header in ["Bearer \u{e9}".as_bytes(), b"Bearer \xe9", b"Bearer x\x7f", b"Bearer \xe9 x", b"\xff"] {
            for (keys, action) in [(&open, Action::IndexesGet), (&open, Action::KeysGet), (&closed, Action::IndexesGet)]
            {
                let refused = authorize(Some(header), action, None, keys, NOW).unwrap_err();
                assert_eq!(refused, AuthError::MissingAuthorizationHeader, "{header:?}");
            }
        }
        assert_eq!(code(Some("Bearer a\tb"), Action::IndexesGet, None, &open), "ok");
    }

    #[test]
    fn a_key_opens_its_actions_on_its_indexes() {
        let keys =
            set(vec![key(1, &["search", "documents.add"], &["a*", "b"]), key(2, &["*"], &[]), key(3, &[], &["*"])]);
        let (narrow, no_index, no_action) = (bearer(&value(1)), bearer(&value(2)), bearer(&value(3)));
        let check = |header: &str, action, index| code(Some(header), action, index, &keys);
        assert_eq!(check(&narrow, Action::Search, Some("ab")), "ok");
        assert_eq!(check(&narrow, Action::Search, Some("b")), "ok");
        assert_eq!(check(&narrow, Action::Search, Some("bb")), "invalid_api_key");
        assert_eq!(check(&narrow, Action::IndexesGet, Some("b")), "invalid_api_key");
        assert_eq!(check(&narrow, Action::Search, None), "ok");
        assert_eq!(check(&no_index, Action::Version, None), "invalid_api_key");
        assert_eq!(check(&no_action, Action::Version, None), "invalid_api_key");
        assert_eq!(check(&bearer(&value(1).to_uppercase()), Action::Search, None), "ok");
        assert_eq!(check(&bearer(&value(9)), Action::Search, None), "invalid_api_key");
        assert_eq!(check(&bearer(&value(1)[1..]), Action::Search, None), "invalid_api_key");
    }

    #[test]
    fn an_expired_key_opens_nothing_from_its_very_instant() {
        let mut expiring = key(1, &["*"], &["*"]);
        expiring.expires_at = Some(NOW);
        let keys = set(vec![expiring.clone()]);
        assert_eq!(code(Some(&bearer(&value(1))), Action::Search, None, &keys), "invalid_api_key");
        assert_eq!(code(Some(&bearer(&token(1, json!(["*"])))), Action::Search, None, &keys), "invalid_api_key");
        expiring.expires_at = Some(NOW + time::Duration::NANOSECOND);
        assert_eq!(code(Some(&bearer(&value(1))), Action::Search, None, &set(vec![expiring])), "ok");
    }

    #[test]
    fn another_master_key_gives_other_values() {
        let keys = KeySet::new(Some("another"), [Arc::new(key(1, &["*"], &["*"]))]);
        assert_eq!(code(Some(&bearer(&value(1))), Action::Search, None, &keys), "invalid_api_key");
    }

    #[test]
    fn a_tenant_is_narrowed_and_learns_nothing_of_its_key() {
        let keys = set(vec![key(1, &["search"], &["med*"]), key(2, &["documents.get"], &["*"])]);
        let header = bearer(&token(1, json!({"medical": {"filter": "user = 1"}, "x": null})));
        let open = |action, index| authorize(Some(header.as_bytes()), action, index, &keys, NOW);
        let grant = open(Action::Search, Some("medical")).unwrap();
        assert_eq!(grant.tenant_filter("medical"), Some(&json!("user = 1")));
        assert!(!grant.sees_everything() && grant.sees_index("medical") && !grant.sees_index("media"));
        assert!(!grant.sees_index("x"), "the key does not open it");
        let error = open(Action::Search, Some("media")).unwrap_err().to_string();
        assert!(error.contains("medical") && !error.contains("med*"), "{error}");
        assert_eq!(open(Action::DocumentsGet, Some("medical")).unwrap_err(), AuthError::InvalidApiKey);
        let parent_lacks_search = bearer(&token(2, json!(["*"])));
        assert_eq!(code(Some(&parent_lacks_search), Action::Search, None, &keys), "invalid_api_key");
        let opens_nothing = bearer(&token(1, json!({})));
        assert_eq!(code(Some(&opens_nothing), Action::Search, None, &keys), "ok", "the body may name no index either");
        assert_eq!(code(Some(&opens_nothing), Action::Search, Some("medical"), &keys), "invalid_api_key");
        assert_eq!(code(Some(&bearer(&token(3, json!(["*"])))), Action::Search, None, &keys), "invalid_api_key");
    }

    #[test]
    fn a_grant_tells_what_it_hides() {
        let keys = set(vec![key(1, &["documents.*"], &["a*"]), key(2, &["*.get"], &["x", "*"])]);
        let grant = |number| {
            authorize(Some(bearer(&value(number)).as_bytes()), Action::DocumentsGet, None, &keys, NOW).unwrap()
        };
        assert!(!grant(1).sees_everything() && grant(2).sees_everything() && Grant::everything().sees_everything());
        assert!(grant(1).allows(Action::DocumentsAdd, "ab") && !grant(1).allows(Action::IndexesCreate, "ab"));
        assert!(!grant(1).allows(Action::DocumentsAdd, "b"));
        assert!(Grant::everything().allows(Action::IndexesCreate, "b"));
        assert!(grant(1).check_index("b").unwrap_err().to_string().contains("a*"));
    }
}
