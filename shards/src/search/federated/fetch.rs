//! Has the hits of the page of a federated search written.

use std::sync::Arc;

use futures_util::future::try_join_all;

use super::merge::{Entry, Origin, ScoreValue};
use super::ranked::{RankedQuery, scorers};
use super::search::Federation;
use super::{FederatedError, FederatedRole};
use crate::format::{FederationMark, FormatPlan, HitExtras, MergingMark};
use crate::runtime::pause;
use crate::search::answer::SearchError;
use crate::search::ask::unexpected;
use crate::search::gather::Gather;

impl Federation<'_> {
    /// The bytes of the hits of the page, each as its query shows it.
    pub(super) async fn fetch(&self, ranked: &[RankedQuery], page: &[Entry]) -> Result<Vec<Vec<u8>>, FederatedError> {
        let asked = (0..ranked.len()).map(|number| {
            let own = page.iter().filter(|entry| entry.query == number);
            self.fetch_query(number, ranked, own.collect())
        });
        let mut fetched: Vec<_> = try_join_all(asked).await?.into_iter().map(Vec::into_iter).collect();
        let hits = page.iter().map(|entry| fetched[entry.query].next());
        Ok(hits.collect::<Option<Vec<_>>>().ok_or_else(unexpected)?)
    }

    async fn fetch_query(
        &self,
        number: usize,
        ranked: &[RankedQuery],
        page: Vec<&Entry>,
    ) -> Result<Vec<Vec<u8>>, SearchError> {
        if page.is_empty() {
            return Ok(Vec::new());
        }
        let ((asked, access), query) = (self.of(number), &ranked[number]);
        // Hits show what was asked for, which need not be the score that they were merged by.
        let gather = Gather::new(&access.index, &asked.request, access.ask, self.pacer);
        let (settings, fields) = (access.index.settings, access.index.fields);
        let format = Arc::new(FormatPlan::new(gather.request, settings, fields, query.words.clone()));
        let paths = self.merging_paths(asked.index);
        let merging = |entry: &Entry| MergingMark {
            score_values: entry.values.iter().map(ScoreValue::to_json).collect(),
            pinned_position: if let Origin::Pinned(pin) = entry.origin { Some(pin.position) } else { None },
            paths: paths.clone(),
        };
        let hits = {
            let scorers = scorers(ranked, number);
            let extras = async |entry: &Entry| {
                let extras = match entry.origin {
                    Origin::Ranked { list, at } => {
                        let ranked = &query.lists[list];
                        gather.extras(&ranked.docs[at], ranked, &scorers[list], &format).await
                    }
                    Origin::Pinned(pin) => gather.pin_extras(pin, &format),
                    Origin::Part => HitExtras::default(),
                };
                let federation = Some(FederationMark {
                    index_uid: self.request.indexes[asked.index].uid.clone(),
                    queries_position: asked.position,
                    weighted_score: entry.score,
                    remote: self.request.instance.clone(),
                    merging: (self.request.role == FederatedRole::ForInstance).then(|| merging(entry)),
                });
                (entry.doc, HitExtras { federation, ..extras })
            };
            let mut hits = Vec::with_capacity(page.len());
            for entry in &page {
                hits.push(extras(entry).await);
                pause(self.pacer).await;
            }
            hits
        };
        gather.fetch(hits, format).await
    }

    /// What an instance that merges needs of the hits of an index.
    fn merging_paths(&self, index: usize) -> Arc<Vec<String>> {
        let Some(distinct) = &self.request.distinct else { return Arc::default() };
        let facets = self.facet_plan(index).into_iter().flat_map(|plan| plan.facets).map(|facet| facet.name);
        Arc::new(std::iter::once(distinct.clone()).chain(facets).collect())
    }
}
