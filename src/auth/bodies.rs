//! The bodies of `POST /keys` and `PATCH /keys/{key}`, checked field by field in the order in which they were written.

use serde_json::{Map, Value};
use shards::error::UserError;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use time::{Date, OffsetDateTime, PrimitiveDateTime};
use uuid::Uuid;

use super::actions::ActionName;
use super::keys::{ApiKey, INDEX_UID_BYTES_MAX, IndexPattern};

/// A key that a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewKey {
    /// The number it asked for.
    pub uid: Option<Uuid>,
    /// As in [`ApiKey`].
    pub name: Option<String>,
    /// As in [`ApiKey`].
    pub description: Option<String>,
    /// As in [`ApiKey`].
    pub actions: Vec<ActionName>,
    /// As in [`ApiKey`].
    pub indexes: Vec<IndexPattern>,
    /// As in [`ApiKey`].
    pub expires_at: Option<OffsetDateTime>,
}

impl NewKey {
    /// Reads the body of `POST /keys`. Errors: `bad_request` for a body that is no object and for unknown fields, the
    /// field's own code for a wrong value, then `missing_api_key_*`.
    pub fn parse(body: &Value, now: OffsetDateTime) -> Result<NewKey, UserError> {
        let (mut uid, mut name, mut description) = (None, None, None);
        let (mut actions, mut indexes, mut expires_at) = (None, None, None);
        for (field, value) in object(body)? {
            match field.as_str() {
                "uid" => uid = Some(parse_uid(value)?),
                "name" => name = parse_text("name", "invalid_api_key_name", value)?,
                "description" => description = parse_text("description", "invalid_api_key_description", value)?,
                "actions" => actions = Some(parse_actions(value)?),
                "indexes" => indexes = Some(parse_indexes(value)?),
                "expiresAt" => expires_at = Some(parse_expiry(value, now)?),
                unknown => {
                    let known = ["uid", "name", "description", "actions", "indexes", "expiresAt"];
                    return Err(unknown_field(unknown, &known));
                }
            }
        }
        let missing = |field: &str, code| UserError::new(code, format!("Missing field `{field}`"));
        Ok(NewKey {
            uid,
            name,
            description,
            actions: actions.ok_or_else(|| missing("actions", "missing_api_key_actions"))?,
            indexes: indexes.ok_or_else(|| missing("indexes", "missing_api_key_indexes"))?,
            expires_at: expires_at.ok_or_else(|| missing("expiresAt", "missing_api_key_expires_at"))?,
        })
    }

    /// The key itself. `random_uid` is used when the client named none; a number that is in use already is the caller's
    /// to refuse, with [`key_already_exists`].
    pub fn into_key(self, random_uid: Uuid, now: OffsetDateTime) -> ApiKey {
        ApiKey {
            uid: self.uid.unwrap_or(random_uid),
            name: self.name,
            description: self.description,
            actions: self.actions,
            indexes: self.indexes,
            expires_at: self.expires_at,
            created_at: now,
            updated_at: now,
        }
    }
}

/// A change of a key; `None` keeps what is there, `Some(None)` clears it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPatch {
    /// The new name.
    pub name: Option<Option<String>>,
    /// The new description.
    pub description: Option<Option<String>>,
}

impl KeyPatch {
    /// Reads the body of `PATCH /keys/{key}`. Errors: `immutable_api_key_*` for what cannot change, `bad_request` for
    /// other unknown fields, the field's own code for a wrong value.
    pub fn parse(body: &Value) -> Result<KeyPatch, UserError> {
        let mut patch = KeyPatch::default();
        for (field, value) in object(body)? {
            let immutable = match field.as_str() {
                "name" => {
                    patch.name = Some(parse_text("name", "invalid_api_key_name", value)?);
                    continue;
                }
                "description" => {
                    patch.description = Some(parse_text("description", "invalid_api_key_description", value)?);
                    continue;
                }
                "uid" => "immutable_api_key_uid",
                "actions" => "immutable_api_key_actions",
                "indexes" => "immutable_api_key_indexes",
                "expiresAt" => "immutable_api_key_expires_at",
                "createdAt" => "immutable_api_key_created_at",
                "updatedAt" => "immutable_api_key_updated_at",
                unknown => return Err(unknown_field(unknown, &["name", "description"])),
            };
            return Err(UserError::new(immutable, format!("The field `{field}` of a key cannot be changed")));
        }
        Ok(patch)
    }

    /// The key with this change made; its `updated_at` moves even when nothing else does.
    pub fn apply(&self, key: &ApiKey, now: OffsetDateTime) -> ApiKey {
        let mut changed = key.clone();
        if let Some(name) = &self.name {
            changed.name.clone_from(name);
        }
        if let Some(description) = &self.description {
            changed.description.clone_from(description);
        }
        changed.updated_at = now;
        changed
    }
}

/// The error of a uid that is in use.
pub fn key_already_exists(uid: Uuid) -> UserError {
    UserError::new("api_key_already_exists", format!("The `uid` `{uid}` is already that of a key. Try another one."))
}

fn object(body: &Value) -> Result<&Map<String, Value>, UserError> {
    body.as_object().ok_or_else(|| wrong_type("bad_request", "the body", "an object", body))
}

fn unknown_field(field: &str, known: &[&str]) -> UserError {
    UserError::new("bad_request", format!("Unknown field `{field}`: expected one of {}", known.join(", ")))
}

fn wrong_type(code: &'static str, place: &str, expected: &str, value: &Value) -> UserError {
    let found = match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "a boolean".to_owned(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(_) => "a string".to_owned(),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    };
    UserError::new(code, format!("Invalid value type at {place}: expected {expected}, but found {found}"))
}

fn parse_text(field: &str, code: &'static str, value: &Value) -> Result<Option<String>, UserError> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        other => Err(wrong_type(code, &format!("`.{field}`"), "a string", other)),
    }
}

fn parse_uid(value: &Value) -> Result<Uuid, UserError> {
    const CODE: &str = "invalid_api_key_uid";
    let text = value.as_str().ok_or_else(|| wrong_type(CODE, "`.uid`", "a string", value))?;
    Uuid::try_parse(text).map_err(|error| {
        UserError::new(
            CODE,
            format!("Invalid value at `.uid`: `{text}` is not a UUID ({error}). Leave it out to get one."),
        )
    })
}

fn parse_list<T>(
    field: &str,
    code: &'static str,
    value: &Value,
    parse: impl Fn(&str) -> Option<T>,
    expected: &str,
) -> Result<Vec<T>, UserError> {
    let items = value.as_array().ok_or_else(|| wrong_type(code, &format!("`.{field}`"), "an array", value))?;
    let mut parsed = Vec::with_capacity(items.len());
    for (position, item) in items.iter().enumerate() {
        let place = format!("`.{field}[{position}]`");
        let text = item.as_str().ok_or_else(|| wrong_type(code, &place, "a string", item))?;
        let entry = parse(text)
            .ok_or_else(|| UserError::new(code, format!("Invalid value at {place}: `{text}` is not {expected}")))?;
        parsed.push(entry);
    }
    Ok(parsed)
}

fn parse_actions(value: &Value) -> Result<Vec<ActionName>, UserError> {
    parse_list("actions", "invalid_api_key_actions", value, ActionName::parse, "the name of an action")
}

fn parse_indexes(value: &Value) -> Result<Vec<IndexPattern>, UserError> {
    let expected = format!(
        "an index name or pattern: 1 to {INDEX_UID_BYTES_MAX} letters, digits, `-` or `_`, with or without a `*` at the end"
    );
    parse_list("indexes", "invalid_api_key_indexes", value, IndexPattern::parse, &expected)
}

fn parse_expiry(value: &Value, now: OffsetDateTime) -> Result<Option<OffsetDateTime>, UserError> {
    const CODE: &str = "invalid_api_key_expires_at";
    if value.is_null() {
        return Ok(None);
    }
    let text = value.as_str().ok_or_else(|| wrong_type(CODE, "`.expiresAt`", "a date or null", value))?;
    let instant = parse_instant(text).ok_or_else(|| {
        let forms = "RFC 3339 (`2030-01-31T12:00:00Z`), `2030-01-31T12:00:00`, `2030-01-31 12:00:00` or `2030-01-31`";
        UserError::new(CODE, format!("Invalid value at `.expiresAt`: `{text}` is not a date; the forms are {forms}"))
    })?;
    if instant <= now {
        return Err(UserError::new(CODE, format!("Invalid value at `.expiresAt`: `{text}` is not in the future")));
    }
    Ok(Some(instant))
}

/// A date in one of the four forms; in UTC where it names no offset.
fn parse_instant(text: &str) -> Option<OffsetDateTime> {
    if let Ok(instant) = OffsetDateTime::parse(text, &Rfc3339) {
        return Some(instant);
    }
    let with_letter = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]");
    let with_blank = format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");
    let day = format_description!("[year]-[month]-[day]");
    PrimitiveDateTime::parse(text, with_letter)
        .or_else(|_| PrimitiveDateTime::parse(text, with_blank))
        .or_else(|_| Date::parse(text, day).map(Date::midnight))
        .map(PrimitiveDateTime::assume_utc)
        .ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: OffsetDateTime = time::macros::datetime!(2030-01-01 0:00 UTC);

    fn code(body: Value) -> &'static str {
        NewKey::parse(&body, NOW).err().map_or("ok", |error| error.code)
    }

    fn with(field: &str, value: Value) -> Value {
        let mut body = json!({"actions": ["search"], "indexes": ["*"], "expiresAt": null});
        body[field] = value;
        body
    }

    #[test]
    fn each_field_has_its_own_error() {
        for (field, bad, expected) in [
            ("name", json!(1), "invalid_api_key_name"),
            ("description", json!([]), "invalid_api_key_description"),
            ("uid", json!(null), "invalid_api_key_uid"),
            ("uid", json!("x"), "invalid_api_key_uid"),
            ("actions", json!(null), "invalid_api_key_actions"),
            ("actions", json!(["keys.*"]), "invalid_api_key_actions"),
            ("actions", json!("search"), "invalid_api_key_actions"),
            ("indexes", json!([1]), "invalid_api_key_indexes"),
            ("indexes", json!(["a*b"]), "invalid_api_key_indexes"),
            ("expiresAt", json!(1), "invalid_api_key_expires_at"),
            ("expiresAt", json!("soon"), "invalid_api_key_expires_at"),
            ("expiresAt", json!("2029-12-31"), "invalid_api_key_expires_at"),
            ("key", json!("x"), "bad_request"),
            ("createdAt", json!("2031-01-01"), "bad_request"),
        ] {
            assert_eq!(code(with(field, bad.clone())), expected, "{field}: {bad}");
        }
        for body in [json!(null), json!([]), json!("x")] {
            assert_eq!(code(body), "bad_request");
        }
    }

    #[test]
    fn what_is_missing_is_told_in_order_and_after_what_is_wrong() {
        assert_eq!(code(json!({})), "missing_api_key_actions");
        assert_eq!(code(json!({"actions": []})), "missing_api_key_indexes");
        assert_eq!(code(json!({"actions": [], "indexes": []})), "missing_api_key_expires_at");
        assert_eq!(code(json!({"expiresAt": null, "name": 1})), "invalid_api_key_name");
        assert_eq!(code(json!({"name": 1, "x": 1})), "invalid_api_key_name");
        assert_eq!(code(json!({"x": 1, "name": 1})), "bad_request");
    }

    #[test]
    fn dates_have_four_forms() {
        let end = |text: &str| NewKey::parse(&with("expiresAt", json!(text)), NOW).map(|key| key.expires_at.unwrap());
        let noon = time::macros::datetime!(2031-05-06 12:00 UTC);
        assert_eq!(end("2031-05-06T12:00:00Z"), Ok(noon));
        assert_eq!(end("2031-05-06T14:00:00+02:00"), Ok(noon));
        // It is shown with the offset that it came with.
        assert_eq!(end("2031-05-06T14:00:00+02:00").map(|end| end.hour()), Ok(14));
        assert_eq!(end("2031-05-06T12:00:00"), Ok(noon));
        assert_eq!(end("2031-05-06 12:00:00"), Ok(noon));
        assert_eq!(end("2031-05-06"), Ok(time::macros::datetime!(2031-05-06 0:00 UTC)));
        for bad in ["", "2031-13-01", "2031-5-6", "2031-05-06T12:00", "31/12/2031"] {
            assert!(end(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_uid_may_have_any_notation() {
        let uid = Uuid::from_u128(0x7d1c_0000_0000_4000_8000_0000_0000_0001);
        for text in [uid.to_string().to_uppercase(), uid.simple().to_string()] {
            assert_eq!(NewKey::parse(&with("uid", json!(text)), NOW).unwrap().uid, Some(uid));
        }
    }

    #[test]
    fn a_change_touches_name_and_description_alone() {
        let key = NewKey::parse(&with("name", json!("old")), NOW).unwrap().into_key(Uuid::nil(), NOW);
        let later = NOW + time::Duration::SECOND;
        let changed = KeyPatch::parse(&json!({"description": "new"})).unwrap().apply(&key, later);
        assert_eq!((changed.name.as_deref(), changed.description.as_deref()), (Some("old"), Some("new")));
        assert_eq!(changed.updated_at, later);
        let cleared = KeyPatch::parse(&json!({"name": null})).unwrap().apply(&changed, later);
        assert_eq!((cleared.name, cleared.description.as_deref()), (None, Some("new")));
        let patch_code = |body: Value| KeyPatch::parse(&body).unwrap_err().code;
        assert_eq!(patch_code(json!({"uid": "x"})), "immutable_api_key_uid");
        assert_eq!(patch_code(json!({"updatedAt": 1})), "immutable_api_key_updated_at");
        assert_eq!(patch_code(json!({"key": "x"})), "bad_request");
        assert_eq!(patch_code(json!({"name": 1, "uid": 1})), "invalid_api_key_name");
        assert_eq!(patch_code(json!([])), "bad_request");
    }
}
