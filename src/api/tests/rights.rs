//! What a caller gets to see of indexes that its key or its tenant's token hides, in part or wholly.

use jsonwebtoken::{EncodingKey, Header};
use time::OffsetDateTime;
use uuid::Uuid;

use super::*;
use crate::auth::{KeySet, NewKey, key_value};

const MASTER: &str = "a-master-key-of-32-bytes-or-more!";
/// A key of index `a`, and one of all.
const KEY_OF_A: Uuid = Uuid::from_u128(1);
const KEY: Uuid = Uuid::from_u128(2);

/// A server with the indexes `a` and `b`, where `by` in documents of `a` names documents of `b`, and with both keys.
fn start() -> (Client, Rc<OneDocument>) {
    let instance = World::new().start();
    let reader = Rc::new(OneDocument { hits: r#"[{"by": "1"}]"#, ..OneDocument::default() });
    let runtime = instance.runtime.clone();
    let client = Client::with(instance, runtime, reader.clone());
    client.json(Method::Patch, "/experimental-features", json!({"foreignKeys": true, "chatCompletions": true}));
    for uid in ["a", "b"] {
        client.task(Method::Post, "/indexes", json!({"uid": uid, "primaryKey": "id"}));
    }
    let foreign_keys = json!([{"foreignIndexUid": "b", "fieldName": "by"}]);
    let settings = json!({"foreignKeys": foreign_keys, "filterableAttributes": ["team"]});
    client.task(Method::Patch, "/indexes/a/settings", settings);
    assert_eq!(client.json(Method::Patch, "/chats/w/settings", json!({"source": "openAi"})).0, 200);
    let now = OffsetDateTime::UNIX_EPOCH;
    let key = |uid, indexes: Value| {
        let body = json!({"actions": ["*"], "indexes": indexes, "expiresAt": null});
        Arc::new(NewKey::parse(&body, now).expect("a key").into_key(uid, now))
    };
    let keys = KeySet::new(Some(MASTER), [key(KEY_OF_A, json!(["a"])), key(KEY, json!(["*"]))]);
    let mut state = (*client.instance.handle.state()).clone();
    (state.version, state.keys) = (state.version + 1, Arc::new(keys));
    client.instance.handle.publish(Arc::new(state));
    (client, reader)
}

/// A token of the key of all indexes for a tenant with these rules.
fn tenant(rules: Value) -> String {
    let claims = json!({"apiKeyUid": KEY, "searchRules": rules});
    let value = key_value(MASTER.as_bytes(), KEY);
    jsonwebtoken::encode(&Header::default(), &claims, &EncodingKey::from_secret(value.as_bytes())).expect("a token")
}

fn post(client: &Client, path: &str, token: &str, body: Value) -> Response {
    let authorization = format!("Bearer {token}");
    let headers = [("Authorization", authorization.as_str()), ("Content-Type", "application/json")];
    client.send(Method::Post, path, &headers, body.to_string().as_bytes())
}

/// Whole documents of an index that the caller may not search once stood in the place of their ids.
#[test]
fn foreign_documents_are_shown_to_whoever_may_search_them() {
    let (client, reader) = start();
    let by = |token: &str| {
        let response = post(&client, "/indexes/a/search", token, json!({}));
        let body: Value = serde_json::from_slice(response.body.bytes().expect("no stream")).expect("answers are JSON");
        body["hits"][0]["by"].clone()
    };
    let value = |uid| key_value(MASTER.as_bytes(), uid);
    let filters = || -> Vec<Option<Value>> { reader.asked.take().into_iter().map(|query| query.filter).collect() };
    assert_eq!((by(&value(KEY)), filters()), (json!({"id": "1"}), vec![None]));
    assert_eq!((by(&value(KEY_OF_A)), filters()), (json!("1"), vec![]));
    assert_eq!((by(&tenant(json!(["a"]))), filters()), (json!("1"), vec![]));
    let rules = json!({"a": null, "b": {"filter": "team = 7"}});
    assert_eq!((by(&tenant(rules)), filters()), (json!({"id": "1"}), vec![Some(json!("team = 7"))]));
}

/// A model was once told of values that occur only in documents of other tenants.
#[test]
fn a_model_is_told_of_values_that_its_caller_may_see() {
    let (client, reader) = start();
    let ask = |token: &str| {
        let messages = json!([{"role": "user", "content": "Which teams are there?"}]);
        let body = json!({"model": "m", "stream": true, "messages": messages});
        post(&client, "/chats/w/chat/completions", token, body);
        let searches = reader.searches.take();
        searches.into_iter().map(|search| search.filter.is_some()).collect::<Vec<_>>()
    };
    assert_eq!(ask(&key_value(MASTER.as_bytes(), KEY)), [false]);
    assert_eq!(ask(&tenant(json!({"a": {"filter": "team = 7"}}))), [true]);
}
