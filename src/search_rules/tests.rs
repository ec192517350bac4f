use time::macros::datetime;

use super::*;

const NOW: OffsetDateTime = datetime!(2030-01-01 0:00 UTC);

fn pin(id: &str, position: u32) -> PinAction {
    PinAction { index_uid: None, id: Some(id.into()), position }
}

fn patch(rules: &mut SearchRules, uid: &str, patch: SearchRulePatch) -> Result<(), &'static str> {
    SearchRuleChange::Patch(uid.into(), patch).apply(rules).map(|_| ()).map_err(|error| error.code)
}

fn actions(actions: &[PinAction]) -> SearchRulePatch {
    SearchRulePatch { actions: Some(actions.to_vec()), ..SearchRulePatch::default() }
}

fn pinned(rules: &SearchRules, query: Option<&str>) -> Vec<(String, u32)> {
    rules.pins("a", query, NOW).into_iter().map(|pin| (pin.id, pin.position)).collect()
}

#[test]
fn a_patch_changes_what_it_names() {
    let mut rules = SearchRules::default();
    assert_eq!(patch(&mut rules, "r", SearchRulePatch::default()), Err("invalid_dynamic_search_rule_actions"));
    assert!(rules.get("r").is_none());
    let described =
        SearchRulePatch { description: Some(Some("x".into())), priority: Some(Some(3)), ..actions(&[pin("1", 0)]) };
    assert_eq!(patch(&mut rules, "r", described), Ok(()));
    assert_eq!(patch(&mut rules, "r", SearchRulePatch { priority: Some(None), ..SearchRulePatch::default() }), Ok(()));
    let rule = rules.get("r").unwrap();
    assert_eq!(
        (rule.description.as_deref(), rule.priority, rule.active, rule.actions.len()),
        (Some("x"), None, true, 1)
    );
    let stored = serde_json::to_vec(rule).unwrap();
    assert_eq!(&serde_json::from_slice::<SearchRule>(&stored).unwrap(), rule);
    assert!(SearchRuleChange::Delete("r".into()).apply(&mut rules).is_ok());
    assert_eq!(
        SearchRuleChange::Delete("r".into()).apply(&mut rules).unwrap_err().code,
        "dynamic_search_rule_not_found"
    );
    assert!(pinned(&rules, None).is_empty());
}

#[test]
fn conditions_look_at_text_and_time() {
    let holds = |condition: &Condition, query: Option<&str>| condition.holds(query, NOW);
    let empty = Condition::QueryIsEmpty(true);
    assert!(holds(&empty, None) && holds(&empty, Some(" ")) && !holds(&empty, Some("a")));
    assert!(!holds(&Condition::QueryIsEmpty(false), None) && holds(&Condition::QueryIsEmpty(false), Some("a")));
    let contains = |needle: &str| Condition::QueryContains(needle.to_owned().into());
    assert!(holds(&contains("Ash"), Some("washing")) && holds(&contains(""), Some("")) && !holds(&contains(""), None));
    assert!(!holds(&contains("élan"), Some("élan")), "queries are not decomposed");
    let time = |start, end| Condition::Time { start, end };
    assert!(holds(&time(None, None), None) && holds(&time(Some(NOW), Some(NOW)), None));
    assert!(!holds(&time(Some(NOW + time::Duration::NANOSECOND), None), None));
    assert!(!holds(&time(None, Some(NOW - time::Duration::NANOSECOND)), None));
}

#[test]
fn the_strongest_rule_places_a_document() {
    let mut rules = SearchRules::default();
    let with_priority = |priority, list: &[PinAction]| SearchRulePatch { priority: Some(priority), ..actions(list) };
    patch(&mut rules, "weak", with_priority(None, &[pin("1", 9), pin("2", 1), pin("2", 5)])).unwrap();
    patch(&mut rules, "b", with_priority(Some(5), &[pin("1", 2)])).unwrap();
    patch(&mut rules, "a", with_priority(Some(5), &[pin("1", 3)])).unwrap();
    assert_eq!(pinned(&rules, None), [("1".into(), 3), ("2".into(), 1)]);
    patch(&mut rules, "a", SearchRulePatch { active: Some(false), ..SearchRulePatch::default() }).unwrap();
    assert_eq!(pinned(&rules, None), [("1".into(), 2), ("2".into(), 1)]);
    let elsewhere = PinAction { index_uid: Some("other".into()), ..pin("3", 0) };
    patch(&mut rules, "c", actions(&[elsewhere, PinAction { id: None, ..pin("", 0) }])).unwrap();
    assert_eq!(pinned(&rules, None).len(), 2);
    assert_eq!(rules.pins("other", None, NOW).len(), 3);
}
