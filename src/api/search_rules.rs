//! Routes to create, list and delete dynamic search rules.

use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::decode::{Node, is_index_uid};
use super::error::{ApiError, ErrorCode};
use super::router::{Answer, Call, Route};
use crate::app::App;
use crate::control::ControlChange;
use crate::http::Response;
use crate::routes;
use crate::search_rules::{
    Condition, PinAction, SearchRule, SearchRuleChange, SearchRulePatch, SearchRules, search_rule_not_found,
};

/// The routes of this file.
pub fn routes() -> Vec<Route<App>> {
    routes! {
        Post "/dynamic-search-rules" DynamicSearchRulesGet => list;
        Get "/dynamic-search-rules/{uid}" DynamicSearchRulesGet => one;
        Patch "/dynamic-search-rules/{uid}" DynamicSearchRulesUpdate => update;
        Delete "/dynamic-search-rules/{uid}" DynamicSearchRulesDelete => delete;
    }
}

async fn list(mut call: Call<App>) -> Answer {
    let asked = call.decoded(|body| Listing::decode(&Node::body(&body))).await?;
    check_enabled(&call)?;
    let state = call.app.control.state();
    let matching: Vec<&SearchRule> = state.search_rules.iter().filter(|rule| asked.admits(rule)).collect();
    let page = matching.iter().skip(asked.offset).take(asked.limit);
    let results: Vec<Value> = page.map(|rule| export(rule)).collect();
    let body = json!({"results": results, "offset": asked.offset, "limit": asked.limit, "total": matching.len()});
    Ok(Response::from_json(200, &body))
}

async fn one(call: Call<App>) -> Answer {
    match uid(&call) {
        Ok(uid) => check_enabled(&call).and_then(|()| shown(&call, uid, 200)),
        Err(no_rule) => Ok(no_rule),
    }
}

async fn update(mut call: Call<App>) -> Answer {
    let uid = match uid(&call) {
        Ok(uid) => uid.to_owned(),
        Err(no_rule) => return Ok(no_rule),
    };
    let patch = call.decoded(|body| decode_patch(&Node::body(&body))).await?;
    check_enabled(&call)?;
    let status = if call.app.control.state().search_rules.get(&uid).is_some() { 200 } else { 201 };
    call.app.control.change(ControlChange::SearchRule(SearchRuleChange::Patch(uid.clone(), patch))).await?;
    shown(&call, &uid, status)
}

async fn delete(call: Call<App>) -> Answer {
    let uid = match uid(&call) {
        Ok(uid) => uid.to_owned(),
        Err(no_rule) => return Ok(no_rule),
    };
    check_enabled(&call)?;
    call.app.control.change(ControlChange::SearchRule(SearchRuleChange::Delete(uid))).await?;
    Ok(Response::empty(204))
}

fn check_enabled(call: &Call<App>) -> Result<(), ApiError> {
    if call.app.control.state().features.dynamic_search_rules {
        return Ok(());
    }
    Err(ApiError::feature_not_enabled("Using the routes under `/dynamic-search-rules`", "dynamicSearchRules"))
}

/// The name in the path. What can be no name is answered in plain text, as if there were no such path.
fn uid(call: &Call<App>) -> Result<&str, Response> {
    let uid = call.param(0);
    match is_index_uid(uid) {
        true => Ok(uid),
        false => Err(Response::with_type(404, "text/plain; charset=utf-8", b"The path names no search rule.".to_vec())),
    }
}

fn shown(call: &Call<App>, uid: &str, status: u16) -> Answer {
    let state = call.app.control.state();
    let rule = state.search_rules.get(uid).ok_or_else(|| search_rule_not_found(uid))?;
    Ok(Response::from_json(status, &export(rule)))
}

/// A rule as clients see it.
pub fn export(rule: &SearchRule) -> Value {
    let mut object = Map::new();
    object.insert("uid".into(), json!(rule.uid));
    insert_some(&mut object, "description", &rule.description);
    insert_some(&mut object, "priority", &rule.priority);
    object.insert("active".into(), json!(rule.active));
    object.insert("conditions".into(), rule.conditions.iter().map(condition_object).collect());
    let action = |action: &PinAction| {
        let mut selector = Map::new();
        insert_some(&mut selector, "indexUid", &action.index_uid);
        insert_some(&mut selector, "id", &action.id);
        json!({"selector": selector, "action": {"type": "pin", "position": action.position}})
    };
    object.insert("actions".into(), rule.actions.iter().map(action).collect());
    object.into()
}

fn condition_object(condition: &Condition) -> Value {
    let mut object = Map::new();
    match condition {
        Condition::QueryIsEmpty(is_empty) => {
            object.insert("scope".into(), json!("query"));
            object.insert("isEmpty".into(), json!(is_empty));
        }
        Condition::QueryContains(needle) => {
            object.insert("scope".into(), json!("query"));
            object.insert("contains".into(), json!(needle.text()));
        }
        Condition::Time { start, end } => {
            object.insert("scope".into(), json!("time"));
            // A date that was read can be written.
            let text = |date: &OffsetDateTime| date.format(&Rfc3339).unwrap_or_default();
            insert_some(&mut object, "start", &start.as_ref().map(text));
            insert_some(&mut object, "end", &end.as_ref().map(text));
        }
    }
    object.into()
}

fn insert_some<T: serde::Serialize>(object: &mut Map<String, Value>, name: &str, value: &Option<T>) {
    if let Some(value) = value {
        object.insert(name.into(), json!(value));
    }
}

/// Which rules a listing shows.
struct Listing {
    offset: usize,
    limit: usize,
    /// Patterns of names; `None`: all.
    patterns: Option<Vec<String>>,
    active: Option<bool>,
}

impl Listing {
    fn decode(body: &Node<'_>) -> Result<Self, ApiError> {
        let mut asked = Self { offset: 0, limit: 20, patterns: None, active: None };
        for field in body.fields(ErrorCode::BadRequest)? {
            match field.name() {
                "offset" => asked.offset = field.usize(ErrorCode::InvalidDynamicSearchRuleOffset)?,
                "limit" => asked.limit = field.usize(ErrorCode::InvalidDynamicSearchRuleLimit)?,
                "filter" => {
                    field.nullable(|filter| asked.decode_filter(filter))?;
                }
                _ => return Err(field.unknown(ErrorCode::BadRequest)),
            }
        }
        Ok(asked)
    }

    fn decode_filter(&mut self, filter: &Node<'_>) -> Result<(), ApiError> {
        for field in filter.fields(ErrorCode::InvalidDynamicSearchRuleFilter)? {
            match field.name() {
                "attributePatterns" => {
                    let code = ErrorCode::InvalidDynamicSearchRuleFilterAttributePatterns;
                    self.patterns = field.nullable(|patterns| patterns.strings(code))?;
                }
                "active" => {
                    let code = ErrorCode::InvalidDynamicSearchRuleFilterActive;
                    self.active = field.nullable(|active| active.boolean(code))?;
                }
                _ => return Err(field.unknown(ErrorCode::InvalidDynamicSearchRuleFilter)),
            }
        }
        Ok(())
    }

    fn admits(&self, rule: &SearchRule) -> bool {
        let named = |patterns: &Vec<String>| patterns.iter().any(|pattern| fits(pattern, &rule.uid));
        self.active.is_none_or(|active| active == rule.active) && self.patterns.as_ref().is_none_or(named)
    }
}

/// Whether a name fits a pattern: the name itself, or a part of it with a `*` before, behind, or on both sides.
fn fits(pattern: &str, name: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        _ if pattern == "*" => true,
        (Some(_), Some(_)) => name.contains(&pattern[1..pattern.len() - 1]),
        (Some(end), None) => name.ends_with(end),
        (None, Some(start)) => name.starts_with(start),
        (None, None) => name == pattern,
    }
}

/// The rule that [`export`] wrote.
///
/// # Errors
/// What is wrong with it.
pub fn import(mut value: Value) -> Result<SearchRule, ApiError> {
    let uid = value.as_object_mut().and_then(|object| object.shift_remove("uid")).unwrap_or_default();
    let Some(uid) = uid.as_str().filter(|uid| is_index_uid(uid)) else {
        return Err(ApiError::bad_request("it has no `uid`"));
    };
    let change = SearchRuleChange::Patch(uid.to_owned(), decode_patch(&Node::body(&value))?);
    let (_, rule) = change.apply(&mut SearchRules::default())?;
    rule.ok_or_else(|| ApiError::internal("a rule that was made is gone"))
}

fn decode_patch(body: &Node<'_>) -> Result<SearchRulePatch, ApiError> {
    let (mut patch, mut no_action) = (SearchRulePatch::default(), None);
    for field in body.fields(ErrorCode::BadRequest)? {
        match field.name() {
            "description" => {
                let code = ErrorCode::InvalidDynamicSearchRuleDescription;
                patch.description = Some(field.nullable(|text| text.string(code))?);
            }
            "priority" => {
                let code = ErrorCode::InvalidDynamicSearchRulePriority;
                patch.priority = Some(field.nullable(|number| number.u64(code))?);
            }
            "active" => {
                let code = ErrorCode::InvalidDynamicSearchRuleActive;
                patch.active = Some(field.nullable(|active| active.boolean(code))?.unwrap_or(true));
            }
            "conditions" => patch.conditions = Some(field.nullable(decode_conditions)?.unwrap_or_default()),
            "actions" => {
                let actions = field.nullable(decode_actions)?.unwrap_or_default();
                no_action = actions.is_empty().then(|| field.invalid("it needs at least one action.", ACTIONS));
                patch.actions = Some(actions);
            }
            _ => return Err(field.unknown(ErrorCode::BadRequest)),
        }
    }
    // Each field is a fault of its own, wherever it stands; that there is no action is one of the rule.
    no_action.map_or(Ok(patch), Err)
}

fn decode_conditions(node: &Node<'_>) -> Result<Vec<Condition>, ApiError> {
    let items = node.items(ErrorCode::InvalidDynamicSearchRuleConditions)?;
    items.map(|item| decode_condition(&item)).collect()
}

/// Fields that the scope does not have are passed over.
fn decode_condition(node: &Node<'_>) -> Result<Condition, ApiError> {
    const CODE: ErrorCode = ErrorCode::InvalidDynamicSearchRuleConditions;
    let mut fields = node.fields(CODE)?;
    let scope = fields.find(|field| field.name() == "scope").ok_or_else(|| node.missing("scope", CODE))?;
    match scope.str(CODE)? {
        "query" => {
            let (mut is_empty, mut contains) = (None, None);
            for field in node.fields(CODE)? {
                match field.name() {
                    "isEmpty" => is_empty = field.nullable(|value| value.boolean(CODE))?,
                    "contains" => contains = field.nullable(|value| value.string(CODE))?,
                    _ => {}
                }
            }
            match (is_empty, contains) {
                (Some(is_empty), None) => Ok(Condition::QueryIsEmpty(is_empty)),
                (None, Some(text)) => Ok(Condition::QueryContains(text.into())),
                _ => Err(node.invalid("it needs either `isEmpty` or `contains`.", ErrorCode::BadRequest)),
            }
        }
        "time" => {
            let (mut start, mut end) = (None, None);
            for field in node.fields(CODE)? {
                match field.name() {
                    "start" => start = field.nullable(decode_date)?,
                    "end" => end = field.nullable(decode_date)?,
                    _ => {}
                }
            }
            match start.zip(end) {
                Some((start, end)) if start > end => {
                    Err(node.invalid("`start` is later than `end`.", ErrorCode::BadRequest))
                }
                _ => Ok(Condition::Time { start, end }),
            }
        }
        _ => Err(scope.expected("`query` or `time`", CODE)),
    }
}

fn decode_date(node: &Node<'_>) -> Result<OffsetDateTime, ApiError> {
    const CODE: ErrorCode = ErrorCode::InvalidDynamicSearchRuleConditions;
    OffsetDateTime::parse(node.str(CODE)?, &Rfc3339)
        .map_err(|_| node.expected("a date by RFC 3339 with its offset", CODE))
}

const ACTIONS: ErrorCode = ErrorCode::InvalidDynamicSearchRuleActions;

fn decode_actions(node: &Node<'_>) -> Result<Vec<PinAction>, ApiError> {
    node.items(ACTIONS)?.map(|item| decode_action(&item)).collect()
}

fn decode_action(node: &Node<'_>) -> Result<PinAction, ApiError> {
    let (mut selector, mut position) = (None, None);
    for field in node.fields(ACTIONS)? {
        match field.name() {
            "selector" => selector = Some(decode_selector(&field)?),
            "action" => position = Some(decode_position(&field)?),
            _ => return Err(field.unknown(ACTIONS)),
        }
    }
    let (index_uid, id) = selector.ok_or_else(|| node.missing("selector", ACTIONS))?;
    let position = position.ok_or_else(|| node.missing("action", ACTIONS))?;
    Ok(PinAction { index_uid, id, position })
}

/// The index and the document.
fn decode_selector(node: &Node<'_>) -> Result<(Option<String>, Option<String>), ApiError> {
    let (mut index_uid, mut id) = (None, None);
    for field in node.fields(ACTIONS)? {
        match field.name() {
            "indexUid" => {
                index_uid = field.nullable(|value| match value.str(ACTIONS)? {
                    uid if is_index_uid(uid) => Ok(uid.to_owned()),
                    _ => Err(value.expected("the uid of an index", ACTIONS)),
                })?;
            }
            "id" => id = field.nullable(|value| value.string(ACTIONS))?,
            _ => return Err(field.unknown(ACTIONS)),
        }
    }
    Ok((index_uid, id))
}

fn decode_position(node: &Node<'_>) -> Result<u32, ApiError> {
    let (mut has_type, mut position) = (false, None);
    for field in node.fields(ACTIONS)? {
        match field.name() {
            "type" if field.str(ACTIONS)? == "pin" => has_type = true,
            "type" => return Err(field.expected("`pin`", ACTIONS)),
            "position" => position = Some(field.u32(ACTIONS)?),
            _ => return Err(field.unknown(ACTIONS)),
        }
    }
    if !has_type {
        return Err(node.missing("type", ACTIONS));
    }
    position.ok_or_else(|| node.missing("position", ACTIONS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(body: Value) -> &'static str {
        decode_patch(&Node::body(&body)).err().map_or("none", |error| error.code.name())
    }

    #[test]
    fn each_field_has_its_code() {
        let pin = json!({"type": "pin", "position": 1});
        for (body, wanted) in [
            (json!([]), "bad_request"),
            (json!({"uid": "b"}), "bad_request"),
            (json!({"description": 7}), "invalid_dynamic_search_rule_description"),
            (json!({"priority": 1.5}), "invalid_dynamic_search_rule_priority"),
            (json!({"active": 1}), "invalid_dynamic_search_rule_active"),
            (json!({"conditions": [{"scope": "moon"}]}), "invalid_dynamic_search_rule_conditions"),
            (json!({"conditions": [{}]}), "invalid_dynamic_search_rule_conditions"),
            (json!({"conditions": [{"scope": "query"}]}), "bad_request"),
            (json!({"conditions": [{"scope": "query", "isEmpty": true, "contains": "a"}]}), "bad_request"),
            (json!({"conditions": [{"scope": "query", "isEmpty": null, "contains": "a", "colour": 1}]}), "none"),
            (
                json!({"conditions": [{"scope": "time", "start": "2025-01-01"}]}),
                "invalid_dynamic_search_rule_conditions",
            ),
            (json!({"actions": null}), "invalid_dynamic_search_rule_actions"),
            (json!({"actions": []}), "invalid_dynamic_search_rule_actions"),
            (json!({"actions": [{"selector": {"id": 1}, "action": pin}]}), "invalid_dynamic_search_rule_actions"),
            (json!({"actions": [{"selector": {"id": null}, "action": pin}]}), "none"),
            (json!({"actions": [{"selector": null, "action": pin}]}), "invalid_dynamic_search_rule_actions"),
            (json!({"actions": [{"action": pin}]}), "invalid_dynamic_search_rule_actions"),
        ] {
            assert_eq!(code(body.clone()), wanted, "{body}");
        }
        let late = json!({"scope": "time", "start": "2025-02-01T00:00:00Z", "end": "2025-01-01T00:00:00Z"});
        assert_eq!(code(json!({ "conditions": [late] })), "bad_request");
    }

    #[test]
    fn what_is_read_is_shown() {
        let body = json!({
            "description": "d", "priority": 3, "active": false,
            "conditions": [{"scope": "query", "contains": "Élan"}, {"scope": "time", "end": "2025-01-01T00:00:00+02:00"}],
            "actions": [{"selector": {"indexUid": "a", "id": "1"}, "action": {"type": "pin", "position": 4_294_967_295u32}}],
        });
        let patch = decode_patch(&Node::body(&body)).unwrap();
        let mut rules = SearchRules::default();
        SearchRuleChange::Patch("r".into(), patch).apply(&mut rules).unwrap();
        let mut shown = export(rules.get("r").unwrap());
        assert_eq!(import(shown.clone()).unwrap(), *rules.get("r").unwrap());
        assert_eq!(shown.as_object_mut().unwrap().shift_remove("uid"), Some(json!("r")));
        assert_eq!(shown, body);
    }

    #[test]
    fn patterns_have_stars_at_their_ends() {
        assert!(fits("*", "a") && fits("a*", "ab") && fits("*b", "ab") && fits("*b*", "abc") && fits("ab", "ab"));
        assert!(fits("**", "a") && !fits("b*", "ab") && !fits("A*", "ab") && !fits("a*b", "ab"));
    }
}
