//! Tenant tokens: JWTs signed with the value of an API key, which restrict that key to some indexes and filters for one
//! tenant.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use super::grant::AuthError;
use super::keys::{IndexPattern, key_value};

/// The algorithms that a token may be signed by; the signature of any other, `none` included, is refused.
const ALGORITHMS: [Algorithm; 3] = [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512];

/// What a token says that is looked at here. [`verify`] refuses one with an audience; other claims are ignored, `nbf` too.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Claims {
    search_rules: Value,
    api_key_uid: Uuid,
    #[serde(default)]
    exp: Option<i64>,
}

/// Which indexes a tenant sees, each with the filter that its searches must carry.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantRules {
    rules: Vec<(IndexPattern, Option<Value>)>,
}

impl TenantRules {
    /// The rules in the `searchRules` claim: an array of patterns, or an object from patterns to `null`, `{}` or
    /// `{"filter": ...}`. `None` for any other form. What can be no pattern opens nothing, but the others hold.
    pub fn parse(claim: &Value) -> Option<TenantRules> {
        let rules = match claim {
            Value::Array(patterns) => {
                patterns.iter().map(|pattern| Some((pattern.as_str()?, None))).collect::<Option<Vec<_>>>()?
            }
            Value::Object(rules) => rules
                .iter()
                .map(|(pattern, rule)| Some((pattern.as_str(), rule_filter(rule)?)))
                .collect::<Option<Vec<_>>>()?,
            _ => return None,
        };
        let usable = |(pattern, filter): (&str, _)| Some((IndexPattern::parse(pattern)?, filter));
        Some(TenantRules { rules: rules.into_iter().filter_map(usable).collect() })
    }

    /// The most specific rule for this index; the others say nothing about it. `None`: the tenant does not see the index.
    /// `Some(None)`: it sees it without a filter.
    pub fn filter_of(&self, index: &str) -> Option<Option<&Value>> {
        let matching = self.rules.iter().filter(|(pattern, _)| pattern.matches(index));
        matching.max_by_key(|(pattern, _)| pattern.specificity()).map(|(_, filter)| filter.as_ref())
    }

    /// The patterns, as the token spells them.
    pub fn patterns(&self) -> impl Iterator<Item = &IndexPattern> {
        self.rules.iter().map(|(pattern, _)| pattern)
    }
}

/// The filter of one rule of the object form. `None`: the rule has no known form.
fn rule_filter(rule: &Value) -> Option<Option<Value>> {
    match rule {
        Value::Null => Some(None),
        Value::Object(fields) => Some(fields.get("filter").filter(|filter| !filter.is_null()).cloned()),
        _ => None,
    }
}

/// What a token turns out to be.
#[derive(Debug, PartialEq)]
pub enum TokenKind {
    /// No JWT: it may be a key.
    NotAToken,
    /// A JWT that names this parent key; its signature has not been looked at.
    Claiming(Uuid),
    /// A JWT that can be no tenant token.
    Unusable,
}

/// Looks at a bearer value without trusting it.
pub fn inspect(token: &str) -> TokenKind {
    let mut parts = token.split('.');
    let (Some(header), Some(claims), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return TokenKind::NotAToken;
    };
    if decode_object(header).is_none() {
        return TokenKind::NotAToken;
    }
    let Some(claims) = decode_object(claims) else { return TokenKind::Unusable };
    let uid = claims.get("apiKeyUid").and_then(Value::as_str).and_then(|uid| Uuid::try_parse(uid).ok());
    uid.map_or(TokenKind::Unusable, TokenKind::Claiming)
}

fn decode_object(part: &str) -> Option<Value> {
    let bytes = URL_SAFE_NO_PAD.decode(part).ok()?;
    serde_json::from_slice::<Value>(&bytes).ok().filter(Value::is_object)
}

/// The rules of a token that was signed with the value that the key `parent` has under `master_key`.
///
/// # Errors
/// [`AuthError::TenantTokenExpired`] for a token that is genuine otherwise, so that its holder knows to fetch another;
/// [`AuthError::InvalidApiKey`] for all else, which tells a forger nothing.
pub fn verify(token: &str, parent: Uuid, master_key: &[u8], now: OffsetDateTime) -> Result<TenantRules, AuthError> {
    let mut validation = Validation::new(ALGORITHMS[0]);
    validation.algorithms = ALGORITHMS.to_vec();
    validation.required_spec_claims.clear();
    // The end is compared below: it still counts in the very second that it names, and there is no leeway.
    validation.validate_exp = false;
    validation.validate_nbf = false;
    let value = key_value(master_key, parent);
    let key = DecodingKey::from_secret(value.as_bytes());
    let claims = jsonwebtoken::decode::<Claims>(token, &key, &validation);
    let claims = claims.map_err(|_| AuthError::InvalidApiKey)?.claims;
    if claims.api_key_uid != parent {
        return Err(AuthError::InvalidApiKey);
    }
    let now = now.unix_timestamp();
    if let Some(end) = claims.exp.filter(|end| now > *end) {
        return Err(AuthError::TenantTokenExpired { end, now });
    }
    TenantRules::parse(&claims.search_rules).ok_or(AuthError::InvalidApiKey)
}

/// The request's filter and the tenant's, both to hold: each as an array (a lone filter becomes an array of one), the
/// request's first. `null` counts as no filter.
pub fn join_filters(request: Option<Value>, tenant: Option<&Value>) -> Option<Value> {
    let request = request.filter(|filter| !filter.is_null());
    let Some(tenant) = tenant else { return request };
    let mut joined = request.map_or_else(Vec::new, into_array);
    joined.extend(into_array(tenant.clone()));
    Some(Value::Array(joined))
}

fn into_array(filter: Value) -> Vec<Value> {
    match filter {
        Value::Array(items) => items,
        lone => vec![lone],
    }
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::{EncodingKey, Header};
    use serde_json::json;

    use super::*;

    const MASTER: &[u8] = b"a-master-key-of-32-bytes-or-more!";
    const PARENT: Uuid = Uuid::from_u128(0x7d1c_0000_0000_4000_8000_0000_0000_0001);

    fn sign(algorithm: Algorithm, claims: &Value) -> String {
        let value = key_value(MASTER, PARENT);
        jsonwebtoken::encode(&Header::new(algorithm), claims, &EncodingKey::from_secret(value.as_bytes())).unwrap()
    }

    fn at(seconds: i64) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(seconds).unwrap()
    }

    /// A token recorded from a client: value, claims and signature were made elsewhere.
    #[test]
    fn a_recorded_token_verifies() {
        let token = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJhcGlLZXlVaWQiOiI3ZDFjMDAwMC0wMDAwLTQwMDAtODAwMC0wMDAwMDAwMDAwMDEiLCJzZWFyY2hSdWxlcyI6WyIqIl0sImV4cCI6NDEwMjQ0NDgwMH0.NLhm9QOLwcXfTQoG0lV-BleyHkuSGlieIyueoDKH3-s";
        assert_eq!(inspect(token), TokenKind::Claiming(PARENT));
        let rules = verify(token, PARENT, MASTER, at(1_700_000_000)).unwrap();
        assert_eq!(rules.filter_of("tide"), Some(None));
        assert_eq!(verify(token, PARENT, b"another", at(1_700_000_000)), Err(AuthError::InvalidApiKey));
        let last = token.len() - 2;
        let forged = format!("{}A{}", &token[..last], &token[last + 1..]);
        assert_eq!(verify(&forged, PARENT, MASTER, at(1_700_000_000)), Err(AuthError::InvalidApiKey));
        // A forger is not told that the token has expired.
        assert_eq!(verify(&forged, PARENT, MASTER, at(5_000_000_000)), Err(AuthError::InvalidApiKey));
        let expired = verify(token, PARENT, MASTER, at(5_000_000_000));
        assert_eq!(expired, Err(AuthError::TenantTokenExpired { end: 4_102_444_800, now: 5_000_000_000 }));
    }

    #[test]
    fn only_the_three_hmac_algorithms_pass() {
        let claims = json!({"apiKeyUid": PARENT, "searchRules": ["*"], "nbf": 9_999_999_999u64, "iss": 3});
        for algorithm in ALGORITHMS {
            assert!(verify(&sign(algorithm, &claims), PARENT, MASTER, at(0)).is_ok());
        }
        let none =
            format!("{}.{}.", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#), URL_SAFE_NO_PAD.encode(claims.to_string()));
        assert_eq!(verify(&none, PARENT, MASTER, at(0)), Err(AuthError::InvalidApiKey));
    }

    /// Nobody says here for whom a token may be, so one that says so is for others.
    #[test]
    fn a_token_for_an_audience_is_refused() {
        let mut claims = json!({"apiKeyUid": PARENT, "searchRules": ["*"]});
        assert!(verify(&sign(Algorithm::HS256, &claims), PARENT, MASTER, at(0)).is_ok());
        for audience in [json!("search"), json!(["search"])] {
            claims["aud"] = audience;
            assert_eq!(verify(&sign(Algorithm::HS256, &claims), PARENT, MASTER, at(0)), Err(AuthError::InvalidApiKey));
        }
    }

    #[test]
    fn the_end_still_passes_and_must_be_whole_seconds() {
        let token =
            |end: Value| sign(Algorithm::HS256, &json!({"apiKeyUid": PARENT, "searchRules": {"*": {}}, "exp": end}));
        let passes = |end: Value, now| verify(&token(end), PARENT, MASTER, at(now)).is_ok();
        assert!(passes(json!(1000), 1000));
        assert!(!passes(json!(1000), 1001));
        assert!(passes(json!(null), 1001));
        assert!(!passes(json!(5000.5), 1001));
        assert!(!passes(json!("5000"), 1001));
    }

    #[test]
    fn rules_have_two_forms_and_no_other() {
        let bad = [json!("*"), json!(1), json!(null), json!({"a": "x = 1"}), json!([1]), json!(["a", 1])];
        for bad in bad.into_iter().chain([json!({"a": null, "a b": 1})]) {
            assert_eq!(TenantRules::parse(&bad), None, "{bad}");
        }
        for empty in [json!([]), json!({}), json!(["a b"]), json!({"a*b": {}})] {
            assert_eq!(TenantRules::parse(&empty).unwrap().patterns().count(), 0, "{empty}");
        }
        for beside_others in [json!(["a b", "c*", "**"]), json!({"a*b": {}, "c*": null, "": null})] {
            let rules = TenantRules::parse(&beside_others).unwrap();
            assert_eq!((rules.filter_of("cd"), rules.filter_of("a b")), (Some(None), None), "{beside_others}");
        }
        let rules = TenantRules::parse(&json!({"a": null, "b": {"filter": null}, "c": {"filter": "x = 1", "more": 1}}))
            .unwrap();
        assert_eq!(rules.filter_of("a"), Some(None));
        assert_eq!(rules.filter_of("b"), Some(None));
        assert_eq!(rules.filter_of("c"), Some(Some(&json!("x = 1"))));
        assert_eq!(rules.filter_of("d"), None);
    }

    #[test]
    fn the_most_specific_rule_counts_alone() {
        let rules = TenantRules::parse(&json!({
            "*": {"filter": "all"}, "med*": {"filter": "med"}, "medical*": {"filter": "medical"}, "medic": {}
        }))
        .unwrap();
        let text = |index| rules.filter_of(index).unwrap().and_then(Value::as_str);
        assert_eq!(text("other"), Some("all"));
        assert_eq!(text("media"), Some("med"));
        assert_eq!(text("medical-2"), Some("medical"));
        assert_eq!(text("medic"), None);
    }

    #[test]
    fn filters_are_joined_request_first() {
        let joined = |request: Value, tenant: Value| join_filters(Some(request), Some(&tenant));
        assert_eq!(joined(json!("a"), json!("b")), Some(json!(["a", "b"])));
        assert_eq!(joined(json!(["a", ["b", "c"]]), json!("d")), Some(json!(["a", ["b", "c"], "d"])));
        assert_eq!(joined(json!(null), json!(["d"])), Some(json!(["d"])));
        assert_eq!(join_filters(Some(json!("a")), None), Some(json!("a")));
        assert_eq!(join_filters(None, None), None);
    }

    #[test]
    fn what_is_no_token_may_be_a_key() {
        for text in ["", "abc", "a.b", "a.b.c", "a.b.c.d", "653372bad8c0f63627c88f96d05b6f51"] {
            assert_eq!(inspect(text), TokenKind::NotAToken, "{text}");
        }
        assert_eq!(inspect("eyJhbGciOiJIUzI1NiJ9.e30.x"), TokenKind::Unusable);
    }
}
