//! Checks a filter against the server's features and the index's settings before it is evaluated.

use super::tree::{Node, Operator, Test};
use super::{Filter, FilterFeatureSet};
use crate::error::UserError;
use crate::settings::Settings;

/// The pseudo-field of network shards, which needs no setting.
pub(super) const SHARD: &str = "_shard";

impl Filter {
    /// Checks that the features this filter uses are on; fails with `feature_not_enabled`. Comes directly after parsing:
    /// the index plays no part.
    pub fn check_features(&self, features: &FilterFeatureSet) -> Result<(), UserError> {
        self.check_feature(features.contains, "`CONTAINS`", "containsFilter", is_contains)?;
        self.check_feature(features.network, "`_shard`", "network", is_shard)?;
        self.check_feature(features.multimodal, "`_vectors`", "multimodal", |node| matches!(node, Node::Vectors(_)))
    }

    fn check_feature(
        &self,
        enabled: bool,
        what: &str,
        feature: &str,
        is_used: impl Fn(&Node) -> bool,
    ) -> Result<(), UserError> {
        if enabled {
            return Ok(());
        }
        self.root.try_visit(&mut |node| {
            if !is_used(node) {
                return Ok(());
            }
            let message = format!(
                "using {what} in a filter requires enabling the `{feature}` experimental feature with \
                 `PATCH /experimental-features`"
            );
            Err(UserError::new("feature_not_enabled", message))
        })
    }

    /// Checks that every attribute tested anywhere in the filter is filterable; fails with the code given to the parser.
    /// Which operators an attribute takes is only checked while evaluating.
    pub fn check_attributes(&self, settings: &Settings) -> Result<(), UserError> {
        // Many tests are mostly of one attribute.
        let mut last: Option<&str> = None;
        self.root.try_visit(&mut |node| match node {
            Node::Test(Test { attribute, .. }) if last != Some(attribute) && !is_exempt(attribute) => {
                let filterable = settings.filterable(attribute).map(|features| features.filter);
                if filterable.is_some_and(|filter| filter.equality || filter.comparison) {
                    last = Some(attribute);
                    return Ok(());
                }
                Err(UserError::new(
                    self.code,
                    format!("Attribute `{attribute}` is not filterable; {}", settings.filterable_told()),
                ))
            }
            _ => Ok(()),
        })
    }
}

fn is_exempt(attribute: &str) -> bool {
    attribute == SHARD || attribute == "_vectors"
}

fn is_contains(node: &Node) -> bool {
    matches!(node, Node::Test(Test { operator: Operator::Contains(_), .. }))
}

fn is_shard(node: &Node) -> bool {
    matches!(node, Node::Test(Test { attribute, .. }) if attribute == SHARD)
}
