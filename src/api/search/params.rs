//! Search parameters from a body or a query string: checks types and ranges, but nothing that needs the index.

pub mod facet;
pub mod many;

use std::sync::Arc;

use serde_json::Value;
use shards::error::UserError;
use shards::facets::Filter;
use shards::search::{FormatRequest, MatchingStrategy, PageRequest, SearchRequest};

use crate::api::decode::{Node, Param, Params};
use crate::api::documents::read_query::{filter_parameter, sort_items};
use crate::api::error::{ApiError, ErrorCode};
use crate::api::settings::locales;

/// A search as it was asked for.
#[derive(Clone, Debug, Default)]
pub struct SearchParams {
    /// All that is decided by types alone.
    pub request: SearchRequest,
    /// A filter in any of its forms.
    pub filter: Option<Value>,
    /// Criteria, each such as `year:desc`.
    pub sort: Option<Vec<String>>,
    /// Searching by meaning as well.
    pub hybrid: Option<Hybrid>,
    /// A query that is a vector.
    pub vector: Option<Vec<f32>>,
    /// A query that is no text.
    pub media: Option<Value>,
    /// Whose results are to be reordered.
    pub user_context: Option<String>,
    /// Whether other instances take part.
    pub use_network: Option<bool>,
    /// Whether the answer says how long each step took.
    pub show_performance_details: bool,
    /// What a long filter was read to be before it is needed.
    pub read_ahead: Option<Arc<ReadAhead>>,
}

/// A filter, together with that of a tenant's token, and what came of reading it.
#[derive(Clone, Debug)]
pub struct ReadAhead {
    /// As it was written.
    pub filter: Value,
    /// As it was read.
    pub parsed: Result<Option<Filter>, UserError>,
}

/// How words and meaning are mixed.
#[derive(Clone, Debug, PartialEq)]
pub struct Hybrid {
    /// The name of an embedder of the index.
    pub embedder: String,
    /// 0 for words alone, 1 for meaning alone.
    pub semantic_ratio: f64,
}

/// The half of words and the half of meaning.
const SEMANTIC_RATIO_DEFAULT: f64 = 0.5;

/// What decides the page, before it is known which of the two ways of paging is meant.
struct Paging {
    offset: u64,
    limit: u64,
    page: Option<u64>,
    hits_per_page: Option<u64>,
}

impl Default for Paging {
    fn default() -> Self {
        Self { offset: 0, limit: 20, page: None, hits_per_page: None }
    }
}

impl Paging {
    fn request(&self) -> PageRequest {
        if self.page.is_none() && self.hits_per_page.is_none() {
            return PageRequest::Window { offset: self.offset, limit: self.limit };
        }
        PageRequest::Numbered { page: self.page.unwrap_or(1), hits_per_page: self.hits_per_page.unwrap_or(20) }
    }
}

impl SearchParams {
    /// From the body of `POST /indexes/{uid}/search`.
    ///
    /// # Errors
    /// The first bad field in the order of the body. Filters are looked at once the index is known.
    pub fn from_body(body: &Value) -> Result<Self, ApiError> {
        Self::from_body_and_vector(body, None)
    }

    /// From such a body of which the vector, if it had one, was taken out before.
    ///
    /// # Errors
    /// As [`Self::from_body`].
    pub fn from_body_and_vector(body: &Value, vector: Option<Vec<f32>>) -> Result<Self, ApiError> {
        let (mut params, mut paging) = (Self::default(), Paging::default());
        for field in Node::body(body).fields(ErrorCode::BadRequest)? {
            params.read(&field, &mut paging)?;
        }
        params.vector = vector.or(params.vector);
        Ok(params.finished(&paging))
    }

    /// One field of a search.
    fn read(&mut self, field: &Node<'_>, paging: &mut Paging) -> Result<(), ApiError> {
        match self.read_common(field, paging)? || self.read_rare(field)? {
            true => Ok(()),
            false => Err(field.unknown(ErrorCode::BadRequest)),
        }
    }

    /// The fields that say what is found. False for a name that is none of them.
    fn read_common(&mut self, field: &Node<'_>, paging: &mut Paging) -> Result<bool, ApiError> {
        let request = &mut self.request;
        match field.name() {
            "q" => request.query = field.nullable(|f| f.string(ErrorCode::InvalidSearchQ))?,
            "offset" => paging.offset = field.u64(ErrorCode::InvalidSearchOffset)?,
            "limit" => paging.limit = field.u64(ErrorCode::InvalidSearchLimit)?,
            "page" => paging.page = field.nullable(|f| f.u64(ErrorCode::InvalidSearchPage))?,
            "hitsPerPage" => paging.hits_per_page = field.nullable(|f| f.u64(ErrorCode::InvalidSearchHitsPerPage))?,
            "filter" => self.filter = field.nullable(|f| Ok(f.value().clone()))?,
            "sort" => self.sort = field.nullable(|f| f.strings(ErrorCode::InvalidSearchSort))?,
            "distinct" => request.distinct = field.nullable(|f| f.string(ErrorCode::InvalidSearchDistinct))?,
            "facets" => request.facets = field.nullable(|f| f.strings(ErrorCode::InvalidSearchFacets))?,
            "matchingStrategy" => {
                let strategy = matching_strategy(field.str(ErrorCode::InvalidSearchMatchingStrategy)?);
                let code = ErrorCode::InvalidSearchMatchingStrategy;
                request.matching_strategy = strategy.ok_or_else(|| field.expected(MATCHING_STRATEGIES, code))?;
            }
            "attributesToSearchOn" => {
                request.attributes_to_search_on =
                    field.nullable(|f| f.strings(ErrorCode::InvalidSearchAttributesToSearchOn))?;
            }
            "rankingScoreThreshold" => {
                request.ranking_score_threshold =
                    field.nullable(|f| f.ratio(ErrorCode::InvalidSearchRankingScoreThreshold))?;
            }
            "locales" => {
                let names = field.nullable(|f| locales::check(f, ErrorCode::InvalidSearchLocales))?;
                request.locales = names.map(three_letters);
            }
            "showRankingScore" => {
                request.show_ranking_score = field.boolean(ErrorCode::InvalidSearchShowRankingScore)?
            }
            "showRankingScoreDetails" => {
                request.show_ranking_score_details = field.boolean(ErrorCode::InvalidSearchShowRankingScoreDetails)?;
            }
            _ => return read_format(&mut request.format, field),
        }
        Ok(true)
    }

    /// The fields of searches by meaning, over instances, for persons. False for a name that is none of them.
    fn read_rare(&mut self, field: &Node<'_>) -> Result<bool, ApiError> {
        match field.name() {
            "hybrid" => self.hybrid = field.nullable(hybrid)?,
            "vector" => {
                let number = |item: Node<'_>| item.f64(ErrorCode::InvalidSearchVector).map(|number| number as f32);
                let vector = |f: &Node<'_>| f.items(ErrorCode::InvalidSearchVector)?.map(number).collect();
                self.vector = field.nullable(vector)?;
            }
            "media" => self.media = field.nullable(|f| Ok(f.value().clone()))?,
            "personalize" => self.user_context = field.nullable(user_context)?,
            "useNetwork" => self.use_network = field.nullable(|f| f.boolean(ErrorCode::InvalidSearchUseNetwork))?,
            "retrieveVectors" => {
                self.request.retrieve_vectors = field.boolean(ErrorCode::InvalidSearchRetrieveVectors)?;
            }
            "showPerformanceDetails" => {
                self.show_performance_details = field.boolean(ErrorCode::InvalidSearchShowPerformanceDetails)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// From the query string of `GET /indexes/{uid}/search`.
    ///
    /// # Errors
    /// As [`Self::from_body`].
    pub fn from_query(query: &Params) -> Result<Self, ApiError> {
        let (mut params, mut paging) = (Self::default(), Paging::default());
        let (mut embedder, mut ratio) = (None, None);
        for param in query.iter() {
            match param.name() {
                "hybridEmbedder" => embedder = Some(param.text().to_string()),
                "hybridSemanticRatio" => ratio = Some(param.ratio(ErrorCode::InvalidSearchSemanticRatio)?),
                _ if params.read_parameter(param, &mut paging)? || params.read_format_parameter(param)? => {}
                _ => return Err(param.unknown()),
            }
        }
        params.hybrid = match (embedder, ratio) {
            (None, None) if params.vector.is_some() => {
                let message = "`vector` needs `hybridEmbedder`, which names the embedder to search with.";
                return Err(ApiError::new(ErrorCode::MissingSearchHybrid, message));
            }
            (None, None) => None,
            (Some(embedder), ratio) => {
                Some(Hybrid { embedder, semantic_ratio: ratio.unwrap_or(SEMANTIC_RATIO_DEFAULT) })
            }
            (None, Some(_)) => {
                let message = "`hybridSemanticRatio` needs `hybridEmbedder` beside it.";
                return Err(ApiError::new(ErrorCode::InvalidSearchHybridQuery, message));
            }
        };
        Ok(params.finished(&paging))
    }

    fn read_parameter(&mut self, param: &Param, paging: &mut Paging) -> Result<bool, ApiError> {
        let request = &mut self.request;
        match param.name() {
            "q" => request.query = Some(param.text().to_string()),
            "offset" => paging.offset = param.u64(ErrorCode::InvalidSearchOffset)?,
            "limit" => paging.limit = param.u64(ErrorCode::InvalidSearchLimit)?,
            "page" => paging.page = Some(param.u64(ErrorCode::InvalidSearchPage)?),
            "hitsPerPage" => paging.hits_per_page = Some(param.u64(ErrorCode::InvalidSearchHitsPerPage)?),
            "filter" => self.filter = filter_parameter(param),
            "sort" => self.sort = Some(sort_items(param.text())),
            "distinct" => request.distinct = Some(param.text().to_string()),
            "facets" => request.facets = Some(param.list()),
            "matchingStrategy" => {
                let code = ErrorCode::InvalidSearchMatchingStrategy;
                let strategy = matching_strategy(param.text());
                request.matching_strategy = strategy.ok_or_else(|| param.expected(MATCHING_STRATEGIES, code))?;
            }
            "attributesToSearchOn" => request.attributes_to_search_on = Some(param.list()),
            "rankingScoreThreshold" => {
                request.ranking_score_threshold = Some(param.ratio(ErrorCode::InvalidSearchRankingScoreThreshold)?);
            }
            "locales" => request.locales = locales_parameter(param)?,
            "vector" => self.vector = Some(vector_parameter(param)?),
            "personalizeUserContext" => self.user_context = Some(param.text().to_string()),
            "useNetwork" => self.use_network = Some(param.boolean(ErrorCode::InvalidSearchUseNetwork)?),
            "showPerformanceDetails" => {
                self.show_performance_details = param.boolean(ErrorCode::InvalidSearchShowPerformanceDetails)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn read_format_parameter(&mut self, param: &Param) -> Result<bool, ApiError> {
        let request = &mut self.request;
        match param.name() {
            "attributesToRetrieve" => request.format.attributes_to_retrieve = Some(param.list()),
            "attributesToCrop" => request.format.attributes_to_crop = Some(param.list()),
            "cropLength" => request.format.crop_length = param.u64(ErrorCode::InvalidSearchCropLength)?,
            "cropMarker" => request.format.crop_marker = param.text().to_string(),
            "attributesToHighlight" => request.format.attributes_to_highlight = Some(param.list()),
            "highlightPreTag" => request.format.highlight_pre_tag = param.text().to_string(),
            "highlightPostTag" => request.format.highlight_post_tag = param.text().to_string(),
            "showMatchesPosition" => {
                request.format.show_matches_position = param.boolean(ErrorCode::InvalidSearchShowMatchesPosition)?;
            }
            "showRankingScore" => {
                request.show_ranking_score = param.boolean(ErrorCode::InvalidSearchShowRankingScore)?
            }
            "showRankingScoreDetails" => {
                request.show_ranking_score_details = param.boolean(ErrorCode::InvalidSearchShowRankingScoreDetails)?;
            }
            "retrieveVectors" => request.retrieve_vectors = param.boolean(ErrorCode::InvalidSearchRetrieveVectors)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn finished(mut self, paging: &Paging) -> Self {
        self.request.page = paging.request();
        self
    }

    /// Checks against each other what a search may look for beside words. Comes after the look for the index.
    ///
    /// # Errors
    /// `invalid_search_media_and_vector`, `missing_search_hybrid`.
    pub fn check_queries(&self) -> Result<(), ApiError> {
        if self.media.is_some() && self.vector.is_some() {
            let message = "`media` and `vector` cannot both be given.";
            return Err(ApiError::new(ErrorCode::InvalidSearchMediaAndVector, message));
        }
        if (self.media.is_some() || self.vector.is_some()) && self.hybrid.is_none() {
            let message = "`vector` and `media` need `hybrid`, which names the embedder to search with.";
            return Err(ApiError::new(ErrorCode::MissingSearchHybrid, message));
        }
        Ok(())
    }
}

/// What a hit shows. False for a name that is none of its fields.
fn read_format(format: &mut FormatRequest, field: &Node<'_>) -> Result<bool, ApiError> {
    match field.name() {
        "attributesToRetrieve" => {
            format.attributes_to_retrieve =
                field.nullable(|f| f.strings(ErrorCode::InvalidSearchAttributesToRetrieve))?;
        }
        "attributesToCrop" => {
            format.attributes_to_crop = field.nullable(|f| f.strings(ErrorCode::InvalidSearchAttributesToCrop))?;
        }
        "cropLength" => format.crop_length = field.u64(ErrorCode::InvalidSearchCropLength)?,
        "cropMarker" => format.crop_marker = field.string(ErrorCode::InvalidSearchCropMarker)?,
        "attributesToHighlight" => {
            format.attributes_to_highlight =
                field.nullable(|f| f.strings(ErrorCode::InvalidSearchAttributesToHighlight))?;
        }
        "highlightPreTag" => format.highlight_pre_tag = field.string(ErrorCode::InvalidSearchHighlightPreTag)?,
        "highlightPostTag" => format.highlight_post_tag = field.string(ErrorCode::InvalidSearchHighlightPostTag)?,
        "showMatchesPosition" => {
            format.show_matches_position = field.boolean(ErrorCode::InvalidSearchShowMatchesPosition)?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

const MATCHING_STRATEGIES: &str = "`last`, `all` or `frequency`";

fn matching_strategy(name: &str) -> Option<MatchingStrategy> {
    match name {
        "last" => Some(MatchingStrategy::Last),
        "all" => Some(MatchingStrategy::All),
        "frequency" => Some(MatchingStrategy::Frequency),
        _ => None,
    }
}

fn hybrid(field: &Node<'_>) -> Result<Hybrid, ApiError> {
    let (mut embedder, mut semantic_ratio) = (None, SEMANTIC_RATIO_DEFAULT);
    for inner in field.fields(ErrorCode::InvalidSearchHybridQuery)? {
        match inner.name() {
            "embedder" => embedder = Some(inner.string(ErrorCode::InvalidSearchEmbedder)?),
            "semanticRatio" => semantic_ratio = inner.ratio(ErrorCode::InvalidSearchSemanticRatio)?,
            _ => return Err(inner.unknown(ErrorCode::InvalidSearchHybridQuery)),
        }
    }
    let embedder = embedder.ok_or_else(|| field.missing("embedder", ErrorCode::InvalidSearchHybridQuery))?;
    Ok(Hybrid { embedder, semantic_ratio })
}

fn user_context(field: &Node<'_>) -> Result<String, ApiError> {
    let mut context = None;
    for inner in field.fields(ErrorCode::InvalidSearchPersonalize)? {
        match inner.name() {
            "userContext" => context = Some(inner.string(ErrorCode::InvalidSearchPersonalizeUserContext)?),
            _ => return Err(inner.unknown(ErrorCode::InvalidSearchPersonalize)),
        }
    }
    context.ok_or_else(|| field.missing("userContext", ErrorCode::InvalidSearchPersonalize))
}

/// The engine knows languages by their three-letter names only. The names were checked before.
fn three_letters(names: Vec<String>) -> Vec<String> {
    names.iter().filter_map(|name| locales::three_letters(name)).map(String::from).collect()
}

/// An empty list of languages is as if it were absent in a query string.
fn locales_parameter(param: &Param) -> Result<Option<Vec<String>>, ApiError> {
    let names = param.list();
    match names.iter().find(|name| locales::three_letters(name).is_none()) {
        Some(_) => Err(param.expected("supported locales such as `en` or `eng`", ErrorCode::InvalidSearchLocales)),
        None => Ok((!names.is_empty()).then(|| three_letters(names))),
    }
}

fn vector_parameter(param: &Param) -> Result<Vec<f32>, ApiError> {
    let numbers: Option<Vec<f64>> = param.list().iter().map(|number| number.parse().ok()).collect();
    let finite = numbers.filter(|numbers| numbers.iter().all(|number| number.is_finite()));
    let vector = finite.map(|numbers| numbers.iter().map(|number| *number as f32).collect());
    vector.ok_or_else(|| param.expected("numbers between commas", ErrorCode::InvalidSearchVector))
}

#[cfg(test)]
mod tests;
