//! Validates the queries of a federated search, individually and in combination.

use std::collections::BTreeMap;
use std::sync::Arc;

use shards::engine::IndexView;
use shards::facets::distribution::check_facets;
use shards::search::federated::{RuleKind, are_compatible};
use shards::settings::FacetOrder;

use crate::api::error::{ApiError, ErrorCode};
use crate::api::router::Call;
use crate::api::search::params::many::{FederationParams, QueryParams};
use crate::app::App;
use crate::control::{ControlState, Features};

/// What a query may not say inside a federation.
pub(super) fn check_query(
    query: &QueryParams,
    federation: &FederationParams,
    features: Features,
) -> Result<(), ApiError> {
    let refuse = |code, what: &str| {
        Err(ApiError::new(code, format!("{what} cannot be given inside a federated query; use `federation` instead.")))
    };
    let options = query.options.as_ref();
    let (remote, position) = options.map_or((None, None), |options| (options.remote.as_ref(), options.query_position));
    if query.has_page {
        let pages = "`offset`, `limit`, `page` and `hitsPerPage`";
        return refuse(ErrorCode::InvalidMultiSearchQueryPagination, pages);
    }
    if query.search.request.facets.as_ref().is_some_and(|facets| !facets.is_empty()) {
        return refuse(ErrorCode::InvalidMultiSearchQueryFacets, "`facets`");
    }
    if query.search.user_context.is_some() {
        let message = "`personalize` cannot be given inside a federated query.";
        return Err(ApiError::new(ErrorCode::InvalidMultiSearchQueryPersonalization, message));
    }
    if query.search.use_network == Some(true) && remote.is_some() {
        let message = "`useNetwork` and `federationOptions.remote` exclude each other.";
        return Err(ApiError::new(ErrorCode::InvalidMultiSearchFederationOptions, message));
    }
    if query.has_performance {
        return refuse(ErrorCode::InvalidMultiSearchQueryShowPerformanceDetails, "`showPerformanceDetails`");
    }
    if query.search.request.distinct.is_some() && federation.distinct.is_some() {
        let message = "`distinct` cannot be given both by a query and by `federation`.";
        return Err(ApiError::new(ErrorCode::InvalidMultiSearchDistinct, message));
    }
    if !features.network {
        let given = [
            (query.search.use_network.is_some(), "Passing `useNetwork`"),
            (remote.is_some(), "Passing `federationOptions.remote`"),
            (position.is_some(), "Passing `federationOptions.queryPosition`"),
        ];
        if let Some((_, action)) = given.iter().find(|(given, _)| *given) {
            return Err(ApiError::feature_not_enabled(action, "network"));
        }
    }
    Ok(())
}

/// Finds an index that no query searches: its facets are not shown, but must be such.
pub(super) fn unused_index<'s>(
    call: &Call<App>,
    state: &'s ControlState,
    uid: &str,
) -> Result<&'s Arc<IndexView>, ApiError> {
    call.grant.check_index(uid)?;
    state.index(uid).ok_or_else(|| ApiError { status: 400, ..ApiError::index_not_found(uid) })
}

/// The kinds of rules of the queries so far: the longest list, with the place of its query.
#[derive(Default)]
pub(super) struct Rules(Option<(usize, Vec<RuleKind>)>);

impl Rules {
    pub(super) fn check(&mut self, position: usize, kinds: Vec<RuleKind>) -> Result<(), ApiError> {
        if let Some((other, longest)) = &self.0 {
            if !are_compatible(longest, &kinds) {
                let message = format!(
                    "The results of `.queries[{position}]` and `.queries[{other}]` cannot be merged: \
                     their ranking rules or sort criteria are of different kinds."
                );
                return Err(ApiError::new(ErrorCode::InvalidMultiSearchQueryRankingRules, message));
            }
            if longest.len() >= kinds.len() {
                return Ok(());
            }
        }
        self.0 = Some((position, kinds));
        Ok(())
    }
}

/// Checks that the facets asked of an index are some.
///
/// # Errors
/// `invalid_multi_search_facets`.
pub(super) fn check_facet_names(names: &[String], view: &IndexView) -> Result<(), ApiError> {
    Ok(check_facets(names, &view.settings, ErrorCode::InvalidMultiSearchFacets.name())?)
}

/// The order of the values of each facet that is counted over all indexes and was named itself, with the index that has it so.
#[derive(Default)]
pub(super) struct FacetOrders<'f>(BTreeMap<String, (FacetOrder, &'f str)>);

impl<'f> FacetOrders<'f> {
    /// Compares the orders of the facets asked of an index with those of the indexes before it.
    ///
    /// # Errors
    /// `invalid_multi_search_facet_order`.
    pub(super) fn check(&mut self, uid: &'f str, names: &[String], view: &IndexView) -> Result<(), ApiError> {
        for name in names {
            let order = view.settings.faceting.order(name);
            let (known, other) = self.0.entry(name.clone()).or_insert((order, uid));
            if *known != order {
                let message = format!(
                    "The facet `{name}` cannot be merged: its values are sorted otherwise in index `{uid}` than in index \
                     `{other}`."
                );
                return Err(ApiError::new(ErrorCode::InvalidMultiSearchFacetOrder, message));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_query_is_compared_with_the_longest_list() {
        let (asc, desc) = (RuleKind::Sort { descending: false }, RuleKind::Sort { descending: true });
        let mut rules = Rules::default();
        assert!(rules.check(0, vec![RuleKind::Relevancy]).is_ok());
        assert!(rules.check(3, vec![RuleKind::Relevancy, asc]).is_ok());
        assert!(rules.check(1, vec![]).is_ok());
        let error = rules.check(2, vec![RuleKind::Relevancy, desc]).unwrap_err();
        assert!(error.message.contains("queries[2]") && error.message.contains("queries[3]"), "{error}");
    }
}
