//! Selects the hits of a page and has them written.

use std::sync::Arc;

use ahash::AHashMap;

use super::Gather;
use crate::facets::sort::SortBy as CriterionBy;
use crate::format::{FormatPlan, HitExtras};
use crate::ids::DocId;
use crate::rank::score::Scorer;
use crate::rank::{RankPlan, RankedDoc, SortBy, SortValue};
use crate::runtime::pause;
use crate::search::answer::SearchError;
use crate::search::ask::by_owner;
use crate::search::merge::Ranked;
use crate::search::messages::{PartQuestion, PartReply};
use crate::search::pins::{PinnedDoc, placed};

/// What stands at one place of a result.
pub(super) enum Place<'r> {
    Ranked(&'r RankedDoc),
    Pinned(PinnedDoc),
}

impl Place<'_> {
    pub(super) fn doc(&self) -> DocId {
        match self {
            Self::Ranked(hit) => hit.doc,
            Self::Pinned(pin) => pin.doc,
        }
    }
}

/// What stands on a page.
pub(super) fn page(ranked: &Ranked, offset: u64, limit: u64) -> impl Iterator<Item = Place<'_>> {
    let pins = ranked.pins.iter().map(|pin| (pin.position, Place::Pinned(*pin)));
    placed(ranked.docs.iter().map(Place::Ranked), pins)
        .skip(offset.saturating_sub(ranked.passed) as usize)
        .take(limit as usize)
}

impl Gather<'_> {
    /// The hits of the page that no partition has written yet, each with what it shows besides its document.
    pub(super) async fn missing(
        &self,
        ranked: &Ranked,
        shown: &AHashMap<DocId, &[u8]>,
        (offset, limit): (u64, u64),
        format: &FormatPlan,
    ) -> Vec<(DocId, HitExtras)> {
        let scorer = Scorer::new(&ranked.question.plan, &ranked.facts);
        let mut missing = Vec::new();
        for place in page(ranked, offset, limit).filter(|place| !shown.contains_key(&place.doc())) {
            missing.push(match place {
                Place::Ranked(hit) => (hit.doc, self.extras(hit, ranked, &scorer, format).await),
                Place::Pinned(pin) => (pin.doc, self.pin_extras(pin, format)),
            });
            pause(self.pacer).await;
        }
        missing
    }

    /// Fetches hits from their owners, in the order given.
    pub(in crate::search) async fn fetch(
        &self,
        page: Vec<(DocId, HitExtras)>,
        format: Arc<FormatPlan>,
    ) -> Result<Vec<Vec<u8>>, SearchError> {
        let question = |hits| PartQuestion::Fetch { plan: format.clone(), hits };
        let hits = |reply| if let PartReply::Hits(hits) = reply { Some(hits) } else { None };
        by_owner(self.index.partitions, self.ask, page, question, hits).await
    }

    /// What a document at a fixed place shows besides itself.
    pub(in crate::search) fn pin_extras(&self, pin: PinnedDoc, format: &FormatPlan) -> HitExtras {
        HitExtras {
            score: self.request.show_ranking_score.then_some(1.0),
            score_details: self.request.show_ranking_score_details.then(|| pin.details()),
            geo_distance: pin.geo_distance.filter(|_| format.retrieve.covers("_geo")),
            ..HitExtras::default()
        }
    }

    /// What a hit shows besides its document.
    pub(in crate::search) async fn extras(
        &self,
        hit: &RankedDoc,
        ranked: &Ranked,
        scorer: &Scorer<'_>,
        format: &FormatPlan,
    ) -> HitExtras {
        let mut extras = HitExtras::default();
        if self.request.show_ranking_score {
            extras.score = Some(scorer.score(hit, self.pacer).await.global());
        }
        if self.request.show_ranking_score_details {
            let hidden = |field: &str| !self.index.settings.displayed(field);
            extras.score_details = Some(scorer.details(hit, &hidden, self.pacer).await);
        }
        if format.retrieve.covers("_geo") {
            extras.geo_distance = self.distance(&ranked.question.plan, &hit.sorts);
        }
        extras
    }

    /// How far a document is from the point that is sorted by, where hits may show that.
    pub(super) fn distance(&self, plan: &RankPlan, sorts: &[SortValue]) -> Option<f64> {
        let point = self.request.sort.iter().find_map(|criterion| match &criterion.by {
            CriterionBy::Point { point, is_plain: true } => Some(*point),
            _ => None,
        })?;
        let same = |by: &SortBy| matches!(by, SortBy::Geo { lat, lng, .. } if *lat == point.lat && *lng == point.lng);
        match sorts.get(plan.rules.sorts.iter().position(same)?)? {
            SortValue::Point { own, .. } => Some(*own),
            _ => None,
        }
    }
}
