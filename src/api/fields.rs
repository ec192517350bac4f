//! `POST /indexes/{uid}/fields`: every field of the index, with the settings that apply to it.

use serde_json::{Value, json};
use shards::settings::{FacetOrder, Settings, covers_subtree, matches_pattern};

use super::decode::Node;
use super::error::{ApiError, ErrorCode};
use super::router::{Answer, Call, Route};
use crate::app::App;
use crate::http::Response;
use crate::routes;

/// The route of this file.
pub fn routes() -> Vec<Route<App>> {
    routes! {
        Post "/indexes/{uid}/fields" FieldsPost => fields;
    }
}

/// The form of the index's name is not checked here: one that cannot be a name is not found.
async fn fields(mut call: Call<App>) -> Answer {
    let query = call.decoded(|body| FieldsQuery::from_body(&body)).await?;
    let state = call.app.control.state();
    let view = state.index(call.param(0)).ok_or_else(|| ApiError::index_not_found(call.param(0)))?;
    let names = view.fields.iter().map(|(_, name)| name).filter(|name| is_listed(name));
    Ok(Response::from_json(200, &list(&query, names, &view.settings)))
}

/// What a place consists of is no field of its own, but for the two numbers of a point.
fn is_listed(name: &str) -> bool {
    let is_part = name.starts_with("_geo.") || name.starts_with("_geojson.");
    !is_part || matches!(name, "_geo.lat" | "_geo.lng")
}

/// What a listing asks for.
#[derive(Debug, Default, PartialEq)]
struct FieldsQuery {
    offset: usize,
    limit: usize,
    filter: FieldsFilter,
}

/// Which fields are listed; `None` does not ask.
#[derive(Debug, Default, PartialEq)]
struct FieldsFilter {
    patterns: Option<Vec<String>>,
    displayed: Option<bool>,
    searchable: Option<bool>,
    sortable: Option<bool>,
    distinct: Option<bool>,
    ranking_rule: Option<bool>,
    filterable: Option<bool>,
}

impl FieldsQuery {
    fn from_body(body: &Value) -> Result<Self, ApiError> {
        let mut query = Self { limit: 20, ..Self::default() };
        for field in Node::body(body).fields(ErrorCode::BadRequest)? {
            match field.name() {
                "offset" => query.offset = field.usize(ErrorCode::InvalidIndexOffset)?,
                "limit" => query.limit = field.usize(ErrorCode::InvalidIndexLimit)?,
                "filter" => query.filter = field.nullable(FieldsFilter::from_node)?.unwrap_or_default(),
                _ => return Err(field.unknown(ErrorCode::BadRequest)),
            }
        }
        Ok(query)
    }
}

impl FieldsFilter {
    fn from_node(node: &Node<'_>) -> Result<Self, ApiError> {
        let mut filter = Self::default();
        let wanted = |field: &Node<'_>, code| field.nullable(|field| field.boolean(code));
        for field in node.fields(ErrorCode::InvalidIndexFieldsFilter)? {
            match field.name() {
                "attributePatterns" => {
                    let code = ErrorCode::InvalidIndexFieldsFilterAttributePatterns;
                    filter.patterns = field.nullable(|field| field.strings(code))?;
                }
                "displayed" => filter.displayed = wanted(&field, ErrorCode::InvalidIndexFieldsFilterDisplayed)?,
                "searchable" => filter.searchable = wanted(&field, ErrorCode::InvalidIndexFieldsFilterSearchable)?,
                "sortable" => filter.sortable = wanted(&field, ErrorCode::InvalidIndexFieldsFilterSortable)?,
                "distinct" => filter.distinct = wanted(&field, ErrorCode::InvalidIndexFieldsFilterDistinct)?,
                "rankingRule" => filter.ranking_rule = wanted(&field, ErrorCode::InvalidIndexFieldsFilterRankingRule)?,
                "filterable" => filter.filterable = wanted(&field, ErrorCode::InvalidIndexFieldsFilterFilterable)?,
                _ => return Err(field.unknown(ErrorCode::InvalidIndexFieldsFilter)),
            }
        }
        Ok(filter)
    }

    fn admits(&self, uses: &FieldUses<'_>) -> bool {
        let fits = |wanted: Option<bool>, found: bool| wanted.is_none_or(|wanted| wanted == found);
        let named = |patterns: &Vec<String>| patterns.iter().any(|pattern| matches_pattern(pattern, uses.name));
        self.patterns.as_ref().is_none_or(named)
            && fits(self.displayed, uses.displayed)
            && fits(self.searchable, uses.searchable)
            && fits(self.sortable, uses.sortable)
            && fits(self.distinct, uses.distinct)
            && fits(self.ranking_rule, uses.ranking_order.is_some())
            && fits(self.filterable, uses.filterable())
    }
}

/// What the settings make of one field.
struct FieldUses<'f> {
    name: &'f str,
    displayed: bool,
    searchable: bool,
    sortable: bool,
    distinct: bool,
    /// `asc` or `desc` of the ranking rule about this field.
    ranking_order: Option<&'f str>,
    facet_search: bool,
    equality: bool,
    comparison: bool,
    sort_by: FacetOrder,
    locales: Vec<String>,
}

impl<'f> FieldUses<'f> {
    fn new(name: &'f str, settings: &'f Settings) -> Self {
        let displayed = |shown: &String| shown == "*" || shown == name;
        let ranking =
            |rule: &'f String| rule.rsplit_once(':').filter(|(field, _)| *field == name).map(|(_, order)| order);
        // Vectors are never found by the names of their fields, whatever the settings cover.
        let reserved = covers_subtree("_vectors", name);
        let features = settings.filterable(name).filter(|_| !reserved);
        Self {
            name,
            displayed: settings.displayed_attributes.iter().any(displayed),
            searchable: settings.searchable_weight(name).is_some(),
            sortable: settings.sortable(name) && !reserved,
            distinct: settings.distinct_attribute.as_deref() == Some(name),
            ranking_order: settings.ranking_rules.iter().find_map(ranking),
            facet_search: features.is_some_and(|features| features.facet_search),
            equality: features.is_some_and(|features| features.filter.equality),
            comparison: features.is_some_and(|features| features.filter.comparison),
            sort_by: settings.faceting.order(name),
            locales: locales(name, settings),
        }
    }

    fn filterable(&self) -> bool {
        self.facet_search || self.equality || self.comparison
    }

    fn show(&self) -> Value {
        let ranking_rule = match self.ranking_order {
            Some(order) => json!({"enabled": true, "order": order}),
            None => json!({"enabled": false}),
        };
        json!({
            "name": self.name,
            "displayed": {"enabled": self.displayed},
            "searchable": {"enabled": self.searchable},
            "sortable": {"enabled": self.sortable},
            "distinct": {"enabled": self.distinct},
            "rankingRule": ranking_rule,
            "filterable": {
                "enabled": self.filterable(),
                "sortBy": self.sort_by,
                "facetSearch": self.facet_search,
                "equality": self.equality,
                "comparison": self.comparison,
            },
            "localized": {"locales": self.locales},
        })
    }
}

/// The languages of the first rule about the field, as capitalised three-letter codes.
fn locales(name: &str, settings: &Settings) -> Vec<String> {
    let rules = settings.localized_attributes.iter().flatten();
    let mut covering =
        rules.filter(|rule| rule.attribute_patterns.iter().any(|pattern| matches_pattern(pattern, name)));
    let capitalised = |code: &String| {
        let (first, rest) = code.split_at(code.len().min(1));
        format!("{}{rest}", first.to_uppercase())
    };
    covering.next().map(|rule| rule.locales.iter().map(capitalised).collect()).unwrap_or_default()
}

/// The listing that is asked for, of an index with fields of these names.
fn list<'n>(query: &FieldsQuery, names: impl Iterator<Item = &'n str>, settings: &Settings) -> Value {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    let uses = names.into_iter().map(|name| FieldUses::new(name, settings));
    let admitted: Vec<FieldUses<'_>> = uses.filter(|uses| query.filter.admits(uses)).collect();
    let page: Vec<Value> = admitted.iter().skip(query.offset).take(query.limit).map(FieldUses::show).collect();
    json!({"results": page, "offset": query.offset, "limit": query.limit, "total": admitted.len()})
}

#[cfg(test)]
mod tests {
    use shards::settings::{FilterableRule, LocalizedRule};

    use super::*;

    fn settings() -> Settings {
        let mut settings = Settings {
            displayed_attributes: vec!["id".into(), "tower".into()],
            searchable_attributes: vec!["name".into(), "tower".into()],
            filterable_attributes: vec![
                FilterableRule::Name("year".into()),
                FilterableRule::Patterns { attribute_patterns: vec!["tower.*".into()], features: Default::default() },
            ],
            distinct_attribute: Some("name".into()),
            ranking_rules: vec!["words".into(), "year:desc".into()],
            localized_attributes: Some(vec![LocalizedRule {
                attribute_patterns: vec!["n*".into()],
                locales: vec!["swe".into(), "nob".into()],
            }]),
            ..Settings::default()
        };
        settings.sortable_attributes.insert("year".into());
        settings
    }

    fn listed(body: Value) -> Result<Vec<String>, &'static str> {
        let names = ["name", "tower.height", "year", "tower", "id"];
        let query = FieldsQuery::from_body(&body).map_err(|error| error.code.name())?;
        let listing = list(&query, names.into_iter(), &settings());
        Ok(listing["results"].as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap().into()).collect())
    }

    #[test]
    fn fields_are_sorted_filtered_and_paged() {
        assert_eq!(listed(json!({})).unwrap(), ["id", "name", "tower", "tower.height", "year"]);
        assert_eq!(listed(json!({"offset": 1, "limit": 1})).unwrap(), ["name"]);
        for (filter, wanted) in [
            // A child of a displayed parent is not displayed by itself.
            (json!({"displayed": true}), vec!["id", "tower"]),
            (json!({"searchable": true}), vec!["name", "tower", "tower.height"]),
            (json!({"filterable": true}), vec!["tower.height", "year"]),
            (json!({"filterable": true, "sortable": false}), vec!["tower.height"]),
            (json!({"rankingRule": true}), vec!["year"]),
            (json!({"distinct": true}), vec!["name"]),
            (json!({"attributePatterns": ["*e"]}), vec!["name"]),
            (json!({"attributePatterns": []}), vec![]),
            (
                json!({"attributePatterns": null, "displayed": null}),
                vec!["id", "name", "tower", "tower.height", "year"],
            ),
        ] {
            assert_eq!(listed(json!({"filter": filter})).unwrap(), wanted, "{filter}");
        }
    }

    #[test]
    fn each_field_of_the_body_has_its_code() {
        for (body, code) in [
            (json!({"offset": null}), "invalid_index_offset"),
            (json!({"limit": "1"}), "invalid_index_limit"),
            (json!({"filter": []}), "invalid_index_fields_filter"),
            (json!({"filter": {"x": 1}}), "invalid_index_fields_filter"),
            (json!({"filter": {"attributePatterns": "a"}}), "invalid_index_fields_filter_attribute_patterns"),
            (json!({"filter": {"rankingRule": 1}}), "invalid_index_fields_filter_ranking_rule"),
            (json!({"page": 1}), "bad_request"),
        ] {
            assert_eq!(listed(body).unwrap_err(), code);
        }
    }

    #[test]
    fn an_entry_tells_all_uses() {
        let settings = settings();
        let year = FieldUses::new("year", &settings).show();
        assert_eq!(year["rankingRule"], json!({"enabled": true, "order": "desc"}));
        assert_eq!(year["filterable"]["comparison"], json!(true));
        let name = FieldUses::new("name", &settings).show();
        assert_eq!(name["localized"], json!({"locales": ["Swe", "Nob"]}));
        assert_eq!(name["filterable"]["sortBy"], json!("alpha"));
    }
}
