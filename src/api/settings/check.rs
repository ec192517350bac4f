//! Checks of a non-null setting that need only the body: types, unknown keys, allowed words. Each check returns the value in the
//! form that task details show: sets sorted and deduplicated, rules completed with their defaults.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::locales;
use crate::api::decode::Node;
use crate::api::error::{ApiError, ErrorCode};

type Checked = Result<Value, ApiError>;

/// Rules that take no attribute.
const RANKING_RULES: [&str; 8] =
    ["words", "typo", "proximity", "attribute", "attributeRank", "wordPosition", "sort", "exactness"];

/// Names that only the server may give a meaning to; documents are not ordered by them in a ranking rule.
const RESERVED_NAMES: [&str; 7] =
    ["_geo", "_geojson", "_geoDistance", "_geoPoint", "_geoRadius", "_geoBoundingBox", "_geoPolygon"];

pub(super) fn string(node: &Node<'_>, code: ErrorCode) -> Checked {
    node.string(code).map(Value::from)
}

pub(super) fn strings(node: &Node<'_>, code: ErrorCode) -> Checked {
    node.strings(code).map(Value::from)
}

/// A set: sorted by code point, without duplicates.
pub(super) fn string_set(node: &Node<'_>, code: ErrorCode) -> Checked {
    let set: BTreeSet<String> = node.strings(code)?.into_iter().collect();
    Ok(set.into_iter().collect())
}

pub(super) fn one_of(node: &Node<'_>, allowed: &[&str], code: ErrorCode) -> Checked {
    let found = node.str(code)?;
    if allowed.contains(&found) {
        return Ok(found.into());
    }
    Err(node.expected(&format!("one of `{}`", allowed.join("`, `")), code))
}

/// Reads an object field by field; `read` gives `None` for a name that the object does not have. Null fields stay null.
pub(super) fn object(
    node: &Node<'_>,
    code: ErrorCode,
    read: impl Fn(&Node<'_>) -> Result<Option<Value>, ApiError>,
) -> Result<Map<String, Value>, ApiError> {
    let mut object = Map::new();
    for field in node.fields(code)? {
        let value = read(&field)?.ok_or_else(|| field.unknown(code))?;
        object.insert(field.name().into(), value);
    }
    Ok(object)
}

/// What `check` makes of the value; null stays null.
pub(super) fn or_null(
    node: &Node<'_>,
    code: ErrorCode,
    check: impl FnOnce(&Node<'_>, ErrorCode) -> Checked,
) -> Result<Option<Value>, ApiError> {
    Ok(Some(node.nullable(|node| check(node, code))?.unwrap_or(Value::Null)))
}

pub(super) fn filterable_attributes(node: &Node<'_>, code: ErrorCode) -> Checked {
    let rules: Result<Vec<Value>, ApiError> = node.items(code)?.map(|rule| filterable_rule(&rule, code)).collect();
    rules.map(Value::from)
}

fn filterable_rule(node: &Node<'_>, code: ErrorCode) -> Checked {
    if let Some(name) = node.value().as_str() {
        return Ok(name.into());
    }
    let (mut patterns, mut facet_search, mut equality, mut comparison) = (None, false, true, false);
    for field in node.fields(code)? {
        match field.name() {
            "attributePatterns" => patterns = Some(field.strings(code)?),
            "features" => {
                for feature in field.fields(code)? {
                    match feature.name() {
                        "facetSearch" => facet_search = feature.boolean(code)?,
                        "filter" => {
                            for operators in feature.fields(code)? {
                                match operators.name() {
                                    "equality" => equality = operators.boolean(code)?,
                                    "comparison" => comparison = operators.boolean(code)?,
                                    _ => return Err(operators.unknown(code)),
                                }
                            }
                        }
                        _ => return Err(feature.unknown(code)),
                    }
                }
            }
            _ => return Err(field.unknown(code)),
        }
    }
    let patterns = patterns.ok_or_else(|| node.missing("attributePatterns", code))?;
    Ok(json!({
        "attributePatterns": patterns,
        "features": {"facetSearch": facet_search, "filter": {"equality": equality, "comparison": comparison}},
    }))
}

pub(super) fn foreign_keys(node: &Node<'_>, code: ErrorCode) -> Checked {
    let key = |item: Node<'_>| {
        let (mut index, mut name) = (None, None);
        for field in item.fields(code)? {
            match field.name() {
                "foreignIndexUid" => index = Some(field.string(code)?),
                "fieldName" => name = Some(field.string(code)?),
                _ => return Err(field.unknown(code)),
            }
        }
        let index = index.ok_or_else(|| item.missing("foreignIndexUid", code))?;
        let name = name.ok_or_else(|| item.missing("fieldName", code))?;
        Ok(json!({"foreignIndexUid": index, "fieldName": name}))
    };
    node.items(code)?.map(key).collect::<Result<Vec<Value>, ApiError>>().map(Value::from)
}

pub(super) fn ranking_rules(node: &Node<'_>, code: ErrorCode) -> Checked {
    let mut rules = Vec::new();
    for item in node.items(code)? {
        let rule = item.str(code)?;
        if !is_ranking_rule(rule) {
            let why = format!(
                "`{rule}` is no ranking rule. Rules are {RANKING_RULES:?} and `attribute:asc` or `attribute:desc`."
            );
            return Err(item.invalid(why, code));
        }
        rules.push(rule);
    }
    if rules.contains(&"attribute") && (rules.contains(&"attributeRank") || rules.contains(&"wordPosition")) {
        let why = "`attribute` stands for `attributeRank` and `wordPosition` and does not go together with either.";
        return Err(node.invalid(why, code));
    }
    Ok(rules.into())
}

fn is_ranking_rule(rule: &str) -> bool {
    if RANKING_RULES.contains(&rule) {
        return true;
    }
    let Some((name, "asc" | "desc")) = rule.rsplit_once(':') else { return false };
    let called = name.split_once('(').map_or(name, |(function, _)| function);
    !RESERVED_NAMES.contains(&called)
}

/// Keys sorted; the words of each key as they were sent.
pub(super) fn synonyms(node: &Node<'_>, code: ErrorCode) -> Checked {
    let mut entries = Vec::new();
    for field in node.fields(code)? {
        entries.push((field.name().to_string(), Value::from(field.strings(code)?)));
    }
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(Value::Object(entries.into_iter().collect()))
}

pub(super) fn typo_tolerance(node: &Node<'_>, code: ErrorCode) -> Checked {
    let boolean = |node: &Node<'_>, code| node.boolean(code).map(Value::from);
    let read = |field: &Node<'_>| match field.name() {
        "enabled" | "disableOnNumbers" => or_null(field, code, boolean),
        "minWordSizeForTypos" => or_null(field, code, min_word_sizes),
        "disableOnWords" | "disableOnAttributes" => or_null(field, code, string_set),
        _ => Ok(None),
    };
    object(node, code, read).map(Value::from)
}

fn min_word_sizes(node: &Node<'_>, code: ErrorCode) -> Checked {
    let size = |node: &Node<'_>, code| node.u8(code).map(Value::from);
    let sizes = object(node, code, |field| match field.name() {
        "oneTypo" | "twoTypos" => or_null(field, code, size),
        _ => Ok(None),
    })?;
    let number = |name: &str| sizes.get(name).and_then(Value::as_u64);
    match (number("oneTypo"), number("twoTypos")) {
        (Some(one), Some(two)) if one > two => {
            Err(node.invalid(format!("`oneTypo` ({one}) must not be larger than `twoTypos` ({two})."), code))
        }
        _ => Ok(sizes.into()),
    }
}

pub(super) fn faceting(node: &Node<'_>, code: ErrorCode) -> Checked {
    let count = |node: &Node<'_>, code| node.u64(code).map(Value::from);
    let read = |field: &Node<'_>| match field.name() {
        "maxValuesPerFacet" => or_null(field, code, count),
        "sortFacetValuesBy" => or_null(field, code, facet_orders),
        _ => Ok(None),
    };
    object(node, code, read).map(Value::from)
}

fn facet_orders(node: &Node<'_>, code: ErrorCode) -> Checked {
    object(node, code, |order| one_of(order, &["alpha", "count"], code).map(Some)).map(Value::from)
}

pub(super) fn pagination(node: &Node<'_>, code: ErrorCode) -> Checked {
    let at_least_one = |node: &Node<'_>, code| match node.u64(code)? {
        0 => Err(node.expected("an integer of at least 1", code)),
        count => Ok(Value::from(count)),
    };
    let read = |field: &Node<'_>| match field.name() {
        "maxTotalHits" => or_null(field, code, at_least_one),
        _ => Ok(None),
    };
    object(node, code, read).map(Value::from)
}

/// Locales stay as the client wrote them; other keys of a rule are ignored, unlike everywhere else.
pub(super) fn localized_attributes(node: &Node<'_>, code: ErrorCode) -> Checked {
    let rule = |item: Node<'_>| {
        let (mut patterns, mut locales) = (None, None);
        for field in item.fields(code)? {
            match field.name() {
                "attributePatterns" => patterns = Some(field.strings(code)?),
                "locales" => locales = Some(locales::check(&field, code)?),
                _ => {}
            }
        }
        let patterns = patterns.ok_or_else(|| item.missing("attributePatterns", code))?;
        let locales = locales.ok_or_else(|| item.missing("locales", code))?;
        Ok(json!({"attributePatterns": patterns, "locales": locales}))
    };
    node.items(code)?.map(rule).collect::<Result<Vec<Value>, ApiError>>().map(Value::from)
}

pub(super) fn chat(node: &Node<'_>, code: ErrorCode) -> Checked {
    let count = |node: &Node<'_>, code| node.u64(code).map(Value::from);
    let read = |field: &Node<'_>| match field.name() {
        "description" | "documentTemplate" => or_null(field, code, string),
        "documentTemplateMaxBytes" => or_null(field, code, count),
        "searchParameters" => or_null(field, code, chat_search_parameters),
        _ => Ok(None),
    };
    object(node, code, read).map(Value::from)
}

fn chat_search_parameters(node: &Node<'_>, code: ErrorCode) -> Checked {
    let read = |field: &Node<'_>| match field.name() {
        "hybrid" => or_null(field, code, chat_hybrid),
        "limit" => or_null(field, code, |node, code| node.u64(code).map(Value::from)),
        "sort" | "attributesToSearchOn" => or_null(field, code, strings),
        "distinct" => or_null(field, code, string),
        "matchingStrategy" => or_null(field, code, |node, code| one_of(node, &["last", "all", "frequency"], code)),
        "rankingScoreThreshold" => or_null(field, code, |node, code| node.ratio(code).map(Value::from)),
        _ => Ok(None),
    };
    object(node, code, read).map(Value::from)
}

fn chat_hybrid(node: &Node<'_>, code: ErrorCode) -> Checked {
    let (mut embedder, mut ratio) = (None, 0.5);
    for field in node.fields(code)? {
        match field.name() {
            "embedder" => embedder = Some(field.string(code)?),
            "semanticRatio" => ratio = field.ratio(code)?,
            _ => return Err(field.unknown(code)),
        }
    }
    let embedder = embedder.ok_or_else(|| node.missing("embedder", code))?;
    Ok(json!({"embedder": embedder, "semanticRatio": ratio}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranking_rules_follow_their_grammar() {
        for good in ["words", "exactness", "year:desc", "a:b:asc", ":asc", "a b:desc", "_rankingScore:asc"] {
            assert!(is_ranking_rule(good), "{good}");
        }
        for bad in ["word", "Words", " words", "year", "year:DESC", "year:up", "_geo:asc", "_geoPoint(1,2):asc", ""] {
            assert!(!is_ranking_rule(bad), "{bad}");
        }
    }
}
