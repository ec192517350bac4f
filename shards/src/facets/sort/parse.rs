//! Parsing and checking of sort criteria.

use serde_json::Value;

use super::{SortBy, SortCriterion};
use crate::error::UserError;
use crate::facets::geo::{self, GeoPoint};
use crate::facets::normalise::parse_number;
use crate::fields::FieldsMap;
use crate::settings::Settings;

/// Parses `sort` as a request's body holds it: null or an array of `field:asc`, `field:desc` or `_geoPoint(lat, lng):asc`.
/// Fails with `code`.
pub fn parse_sort(value: &Value, code: &'static str) -> Result<Vec<SortCriterion>, UserError> {
    let items = match value {
        Value::Null => return Ok(Vec::new()),
        Value::Array(items) => items,
        other => return Err(UserError::new(code, format!("`sort` must be an array of strings, found `{other}`"))),
    };
    let criterion = |item: &Value| match item {
        Value::String(text) => parse_criterion(text, code),
        other => Err(UserError::new(code, format!("`sort` must be an array of strings, found `{other}` in it"))),
    };
    items.iter().map(criterion).collect()
}

/// Parses `sort` of a query string: criteria between commas, where the comma inside of `_geoPoint(…)` separates nothing.
/// Fails with `code`, also when the text is empty.
pub fn parse_sort_parameter(text: &str, code: &'static str) -> Result<Vec<SortCriterion>, UserError> {
    let mut items = Vec::new();
    let (mut start, mut inside) = (0, false);
    for (at, character) in text.char_indices() {
        match character {
            '(' => inside = true,
            ')' => inside = false,
            ',' if !inside => {
                items.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    items.push(&text[start..]);
    let criterion = |item: &str| parse_criterion(item.trim().trim_matches('"').trim(), code);
    items.into_iter().map(criterion).collect()
}

fn parse_criterion(text: &str, code: &'static str) -> Result<SortCriterion, UserError> {
    let fail = |what: &str| Err(UserError::new(code, format!("invalid sort criterion `{text}`: {what}")));
    let (name, descending) = match text.rsplit_once(':') {
        Some((name, "asc")) => (name, false),
        Some((name, "desc")) => (name, true),
        _ => return fail("it must end with `:asc` or `:desc`"),
    };
    if let Some(arguments) = name.strip_prefix("_geoPoint(").and_then(|rest| rest.strip_suffix(')')) {
        let numbers: Vec<_> = arguments.split(',').map(|argument| parse_number(argument.trim())).collect();
        let [Some(lat), Some(lng)] = numbers[..] else {
            return fail("`_geoPoint` takes two numbers: `_geoPoint(lat, lng)`");
        };
        let point = GeoPoint { lat, lng };
        if !point.is_in_range() {
            return fail("latitudes are between -90 and 90, longitudes between -180 and 180");
        }
        let is_plain = !arguments.contains(['e', 'E']);
        return Ok(SortCriterion { by: SortBy::Point { point, is_plain }, descending });
    }
    let is_reserved = name == "_geo"
        || ["_geo(", "_geoPoint", "_geoDistance", "_geoRadius", "_geoBoundingBox"]
            .iter()
            .any(|reserved| name.starts_with(reserved));
    if is_reserved {
        return fail("this name is reserved: sort by distance with `_geoPoint(lat, lng)`");
    }
    Ok(SortCriterion::field(name, descending))
}

/// Checks that what is sorted by is sortable, a place needing `_geo`; fails with `code`.
pub fn check_sort(criteria: &[SortCriterion], settings: &Settings, code: &'static str) -> Result<(), UserError> {
    for criterion in criteria {
        let (name, sortable) = match &criterion.by {
            SortBy::Field(name) => (name.as_str(), settings.sortable(name)),
            SortBy::Point { .. } => ("_geo", geo::sorts_points(settings)),
        };
        if !sortable {
            return Err(UserError::new(
                code,
                format!("Attribute `{name}` is not sortable; {}", settings.sortable_told()),
            ));
        }
    }
    Ok(())
}

/// Checks that the ranking rules say where a search's criteria take effect; fails with `code`. Documents routes do not ask.
pub fn check_sort_rule(criteria: &[SortCriterion], settings: &Settings, code: &'static str) -> Result<(), UserError> {
    if criteria.is_empty() || settings.ranking_rules.iter().any(|rule| rule == "sort") {
        return Ok(());
    }
    let message =
        "the `sort` ranking rule must be in the index's ranking rules to use the sort parameter at search time";
    Err(UserError::new(code, message))
}

/// Checks that the index has met a point if criteria ask for distances: the documents routes refuse it otherwise.
pub fn check_sort_points(criteria: &[SortCriterion], fields: &FieldsMap, code: &'static str) -> Result<(), UserError> {
    let asks = criteria.iter().any(|criterion| matches!(criterion.by, SortBy::Point { .. }));
    if asks && fields.id("_geo.lat").is_none() {
        return Err(UserError::new(code, "no document has a `_geo` to sort by"));
    }
    Ok(())
}
