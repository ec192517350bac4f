//! Turns a request into the plans that partitions follow, with the checks that need the index.

use std::sync::{Arc, OnceLock};

use charabia::Language;

use super::answer::SearchError;
use super::part::Pacer;
use super::request::{MatchingStrategy, SearchRequest};
use crate::error::UserError;
use crate::facets::distinct::check_distinct;
use crate::facets::distribution::check_facets;
use crate::facets::sort::{SortBy as CriterionBy, check_sort, check_sort_rule};
use crate::fields::FieldsMap;
use crate::query::context::{Synonyms, normalise_synonyms};
use crate::query::{Cutter, FieldTable, ParsedQuery, QueryContext, QueryGraph};
use crate::rank::{RankPlan, RuleList, SortBy};
use crate::settings::{ProximityPrecision, Settings, matches_pattern};
use crate::text::segmenter;

/// Longer query texts are cut on another thread.
const LONG_QUERY_BYTES: usize = 8 << 10;

/// What planning needs of an index's settings besides themselves; costs a little to make, so it is kept while they last.
pub struct Planner {
    cutter: Arc<dyn Cutter>,
    synonyms: Synonyms,
}

impl Planner {
    /// The planner of an index with these settings, cut by a tokenizer set up from them. `of_synonyms` cuts the synonyms
    /// where these were read under other stop words.
    pub fn new(settings: &Settings, cutter: Arc<dyn Cutter>, of_synonyms: Option<&dyn Cutter>) -> Self {
        let synonyms = normalise_synonyms(settings, of_synonyms.unwrap_or(&*cutter));
        Self { cutter, synonyms }
    }

    /// Cuts the query and draws the graph; no dictionary was looked at yet.
    pub fn sketch(&self, request: &SearchRequest, settings: &Settings, fields: &FieldsMap) -> QueryGraph {
        let context = self.context(settings);
        let parsed = match request.query.as_deref() {
            None | Some("") => ParsedQuery::default(),
            Some(text) => context.parse(text, query_languages(request, settings, fields).as_deref()),
        };
        QueryGraph::sketch(&parsed, &context, settings, request.matching_strategy)
    }

    /// As [`Self::sketch`], but what takes long is done on another thread, if one is free.
    pub async fn sketch_aside(
        &self,
        request: &SearchRequest,
        settings: &Settings,
        fields: &FieldsMap,
        pacer: &dyn Pacer,
    ) -> QueryGraph {
        let text = request.query.as_deref().unwrap_or("");
        if text.len() > LONG_QUERY_BYTES {
            let languages = query_languages(request, settings, fields);
            if let Some(parsed) = self.parse_aside(text, languages, settings, pacer).await {
                return QueryGraph::sketch(&parsed, &self.context(settings), settings, request.matching_strategy);
            }
        } else if segmenter::must_be_loaded(text.as_bytes()) {
            let _ = pacer.aside(Box::new(segmenter::load)).await;
        }
        self.sketch(request, settings, fields)
    }

    /// Cuts a text on another thread; `None` when no thread is free. However few words of it are used, its language is told by
    /// all of it, and a text without blanks is cut as a whole.
    async fn parse_aside(
        &self,
        text: &str,
        languages: Option<Vec<Language>>,
        settings: &Settings,
        pacer: &dyn Pacer,
    ) -> Option<ParsedQuery> {
        // All that parsing depends on beside the cutter.
        let settings = Settings { prefix_search: settings.prefix_search, ..Settings::default() };
        let (text, cutter) = (text.to_owned(), self.cutter.clone());
        let parsed = Arc::new(OnceLock::new());
        let place = parsed.clone();
        let job = Box::new(move || {
            if segmenter::must_be_loaded(text.as_bytes()) {
                segmenter::load();
            }
            let synonyms = Synonyms::default();
            let _ = place.set(QueryContext::new(&*cutter, &synonyms, &settings).parse(&text, languages.as_deref()));
        });
        pacer.aside(job).await.ok()?;
        Arc::into_inner(parsed).and_then(OnceLock::into_inner)
    }

    fn context(&self, settings: &Settings) -> QueryContext<'_> {
        QueryContext::new(&*self.cutter, &self.synonyms, settings)
    }
}

/// The languages that the request names; `None` when it says nothing of them. An empty list is one: texts that are shown are
/// then cut without any language.
pub fn named_languages(request: &SearchRequest) -> Option<Vec<Language>> {
    let locales = request.locales.as_ref()?;
    Some(locales.iter().filter_map(Language::from_code).collect())
}

/// The languages that the query may be in: those named, else those of the rules for the fields searched.
fn query_languages(request: &SearchRequest, settings: &Settings, fields: &FieldsMap) -> Option<Vec<Language>> {
    if request.locales.is_some() {
        return named_languages(request).filter(|languages| !languages.is_empty());
    }
    let rules = settings.localized_attributes.as_deref().unwrap_or(&[]);
    if rules.is_empty() {
        return None;
    }
    let searched = FieldTable::new(fields, settings, request.attributes_to_search_on.as_deref());
    let mut languages: Vec<Language> = Vec::new();
    for name in searched.searched().filter_map(|field| fields.name(field)) {
        let covers = |patterns: &[String]| patterns.iter().any(|pattern| matches_pattern(pattern, name));
        for code in rules.iter().filter(|rule| covers(&rule.attribute_patterns)).flat_map(|rule| &rule.locales) {
            languages.extend(Language::from_code(code).filter(|language| !languages.contains(language)));
        }
    }
    (!languages.is_empty()).then_some(languages)
}

/// Checks what only the index can tell, in the order in which mistakes are reported.
pub fn check(request: &SearchRequest, settings: &Settings, fields: &FieldsMap) -> Result<(), SearchError> {
    check_documents(request, settings, fields)?;
    check_order(request, settings)
}

/// The part of [`check`] that comes before the filter is evaluated.
pub fn check_documents(request: &SearchRequest, settings: &Settings, fields: &FieldsMap) -> Result<(), SearchError> {
    check_search_on(request, settings, fields)?;
    if let Some(name) = &request.distinct {
        check_distinct(name, settings, "invalid_search_distinct")?;
    }
    if let Some(filter) = &request.filter {
        filter.check_attributes(settings)?;
    }
    Ok(())
}

/// The part of [`check`] that comes after: mistakes that only show while the filter is evaluated are reported before.
pub fn check_order(request: &SearchRequest, settings: &Settings) -> Result<(), SearchError> {
    check_sort_rule(&request.sort, settings, "invalid_search_sort")?;
    check_sort(&request.sort, settings, "invalid_search_sort")?;
    if let Some(names) = &request.facets {
        check_facets(names, settings, "invalid_search_facets")?;
    }
    Ok(())
}

/// A name must be declared or be a known field below a declared one, a pattern must reach such a name.
fn check_search_on(request: &SearchRequest, settings: &Settings, fields: &FieldsMap) -> Result<(), SearchError> {
    if settings.searchable_attributes.iter().any(|name| name == "*") {
        return Ok(());
    }
    for name in request.attributes_to_search_on.iter().flatten().filter(|name| *name != "*") {
        let declared = settings.searchable_attributes.iter().map(String::as_str);
        let known = fields.iter().map(|(_, field)| field).filter(|field| settings.searchable_weight(field).is_some());
        let mut names = declared.chain(known);
        let found = if name.contains('*') { names.any(|n| matches_pattern(name, n)) } else { names.any(|n| n == name) };
        if !found {
            let message = format!("attribute `{name}` is not searchable");
            return Err(UserError::new("invalid_search_attributes_to_search_on", message).into());
        }
    }
    Ok(())
}

/// The plan of a search whose graph is complete. `wanted` is how many documents each partition should rank.
pub fn rank_plan(
    request: &SearchRequest,
    settings: &Settings,
    graph: QueryGraph,
    fields: FieldTable,
    wanted: usize,
) -> RankPlan {
    let rules = rules(request, settings, &graph);
    let weights = match settings.searchable_attributes.iter().any(|name| name == "*") {
        true => 1,
        false => settings.searchable_attributes.len() as u32,
    };
    let scores =
        request.show_ranking_score || request.show_ranking_score_details || request.ranking_score_threshold.is_some();
    RankPlan {
        graph,
        rules,
        fields,
        by_attribute: by_attribute(settings),
        weights,
        wanted,
        whole_buckets: false,
        one_per_group: false,
        scores,
        least_score: None,
        vector: None,
    }
}

/// What orders the documents that a graph matches.
pub fn rules(request: &SearchRequest, settings: &Settings, graph: &QueryGraph) -> RuleList {
    RuleList::new(settings, &sort_by(request), request.matching_strategy, graph.term_count == 0)
}

/// The criteria of a request as the ranking knows them.
pub fn sort_by(request: &SearchRequest) -> Vec<SortBy> {
    let criteria = request.sort.iter().map(|criterion| match &criterion.by {
        CriterionBy::Field(name) => SortBy::Field { name: name.clone(), descending: criterion.descending },
        CriterionBy::Point { point, .. } => SortBy::Geo {
            lat: point.lat,
            lng: point.lng,
            shown: format!("_geoPoint({}, {})", point.lat, point.lng),
            descending: criterion.descending,
        },
    });
    criteria.collect()
}

/// Whether nearness means "in the same field".
pub fn by_attribute(settings: &Settings) -> bool {
    settings.proximity_precision == ProximityPrecision::ByAttribute
}

/// Whether a search must count documents by term before it can rank.
pub fn needs_counts(request: &SearchRequest, graph: &QueryGraph) -> bool {
    request.matching_strategy == MatchingStrategy::Frequency && graph.term_count > 1
}

/// The field by which results are distinct.
pub fn distinct_field(request: &SearchRequest, settings: &Settings) -> Option<Arc<str>> {
    request.distinct.as_deref().or(settings.distinct_attribute.as_deref()).map(Arc::from)
}
