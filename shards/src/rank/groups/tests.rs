//! Groups that are walked are those that reading all values gives.

use std::cell::Cell;

use futures_lite::future::block_on;
use futures_util::future::LocalBoxFuture;
use proptest::prelude::*;
use serde_json::{Value, json};
use storage_engine::vector::{Pace, Unpaced};

use super::*;
use crate::facets::FacetSource;
use crate::facets::columns::{PieceWalk, RingStep, RingWalk};
use crate::facets::geo::GeoPoint;
use crate::facets::sort::{SortBy as CriterionBy, SortCriterion, SortKeys, SortValue as KeyValue, sort_keys};
use crate::facets::test_support::{Facets, filterable};
use crate::ids::LocalDocId;
use crate::rank::RuleList;
use crate::search::column_sorter::ColumnSorter;

/// Reads the values of every candidate, one by one.
struct Twin(Rc<Facets>);

impl SortSource for Twin {
    fn sort_values(&self, by: &SortBy, docs: &[u32]) -> Result<Vec<SortValue>, String> {
        let descending = by.is_descending();
        let criterion = match by {
            SortBy::Field { name, .. } => SortCriterion::field(name.as_str(), descending),
            SortBy::Geo { lat, lng, .. } => {
                let by = CriterionBy::Point { point: GeoPoint { lat: *lat, lng: *lng }, is_plain: true };
                SortCriterion { by, descending }
            }
        };
        let locals = docs.iter().map(|doc| LocalDocId(*doc));
        let keys = sort_keys(&*self.0, &[criterion], locals).expect("memory does not fail");
        let point = |doc: u32| self.0.columns().point(LocalDocId(doc)).expect("memory does not fail");
        let value = |(doc, keys): (&u32, &SortKeys)| match (keys[0].value(descending), by) {
            (KeyValue::Number(distance), SortBy::Geo { .. }) => {
                let GeoPoint { lat, lng } = point(*doc).expect("it has a distance");
                SortValue::Point { distance, lat, lng, own: distance }
            }
            (KeyValue::Number(number), _) => SortValue::Number(number),
            (KeyValue::String(text), _) => SortValue::Text(text.to_owned()),
            (KeyValue::Missing, _) => SortValue::Missing,
        };
        Ok(docs.iter().zip(&keys).map(value).collect())
    }
}

/// Counts what is read.
struct Counting(ColumnSorter, Cell<usize>);

impl SortSource for Counting {
    fn sort_values(&self, by: &SortBy, docs: &[u32]) -> Result<Vec<SortValue>, String> {
        self.1.set(self.1.get() + docs.len());
        self.0.sort_values(by, docs)
    }

    fn walk(&self, by: &SortBy, from: Option<&Cut>) -> Option<ValueWalk> {
        self.0.walk(by, from)
    }

    fn walk_on(
        &self,
        walk: &mut ValueWalk,
        effort: usize,
        value: &mut dyn FnMut(SortValue, RoaringBitmap),
    ) -> Result<Option<usize>, String> {
        self.1.set(self.1.get() + effort);
        self.0.walk_on(walk, effort, value)
    }

    fn pieces(&self, by: &SortBy) -> Option<PieceWalk> {
        self.0.pieces(by)
    }

    fn want_pieces(&self, by: &SortBy, unread: u64) -> bool {
        self.0.want_pieces(by, unread)
    }

    fn prepare<'a>(&'a self, pace: &'a dyn Pace) -> Option<LocalBoxFuture<'a, Result<(), String>>> {
        self.0.prepare(pace)
    }

    fn rings(&self, by: &SortBy) -> Option<RingWalk> {
        self.0.rings(by)
    }

    fn rings_on(&self, rings: &mut RingWalk, effort: usize) -> Result<RingStep, String> {
        self.1.set(self.1.get() + effort);
        self.0.rings_on(rings, effort)
    }
}

/// A plan with these sort rules, `_geo` standing for the distance to a place.
fn plan(sorts: &[(&str, bool)], (lat, lng): (f64, f64)) -> RankPlan {
    let by = |(name, descending): &(&str, bool)| match *name {
        "_geo" => SortBy::Geo { lat, lng, shown: String::new(), descending: *descending },
        name => SortBy::Field { name: name.into(), descending: *descending },
    };
    let rules = RuleList { sorts: sorts.iter().map(by).collect(), ..RuleList::default() };
    RankPlan { rules, wanted: 3, ..RankPlan::default() }
}

/// The first `count` groups, and whether others are left.
fn first(
    (plan, sorter): (&RankPlan, &dyn SortSource),
    candidates: &RoaringBitmap,
    count: usize,
) -> (Vec<(Vec<SortValue>, RoaringBitmap)>, bool) {
    let mut groups = Groups::new(Rc::new(candidates.clone()));
    let mut found = Vec::new();
    while found.len() < count {
        while groups.step(plan, sorter, plan.rules.sorts.len()).expect("memory does not fail") {
            if let Some(making) = sorter.prepare(&Unpaced) {
                block_on(making).expect("memory does not fail");
            }
        }
        assert!(groups.peek().is_some() || groups.is_empty());
        let Some(group) = groups.pop() else { break };
        found.push((group.sorts, Rc::unwrap_or_clone(group.docs)));
    }
    let left = !groups.is_empty();
    while groups.discard(2) {}
    assert_eq!(left, !groups.is_empty());
    (found, left)
}

fn value() -> impl Strategy<Value = Value> {
    let scalar = || {
        prop_oneof![
            (-2..3i32).prop_map(Value::from),
            (0..1000i32).prop_map(Value::from),
            Just(json!(-0.0)),
            "[aA b]{0,2}".prop_map(Value::from),
            Just(json!(null)),
            any::<bool>().prop_map(Value::from)
        ]
    };
    prop_oneof![scalar(), proptest::collection::vec(scalar(), 0..3).prop_map(Value::from)]
}

/// Places far apart, close together and out of the usual ranges.
fn place() -> impl Strategy<Value = (f64, f64)> {
    prop_oneof![
        (-89.0..89.0f64, -180.0..180.0f64),
        (-0.1..0.1f64, 179.9..180.0f64),
        (-0.1..0.1f64, -180.0..-179.9f64),
        (-0.0001..0.0001f64, -0.0001..0.0001f64),
    ]
}

fn document() -> impl Strategy<Value = Value> {
    let members = proptest::collection::vec(("[xyz]", value()), 0..3);
    let outside = (-200.0..200.0f64, -400.0..400.0f64);
    (members, proptest::option::of(prop_oneof![9 => place(), 1 => outside])).prop_map(|(members, place)| {
        let place = place.map(|(lat, lng)| ("_geo".to_owned(), json!({"lat": lat, "lng": lng})));
        Value::Object(members.into_iter().chain(place).collect())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Walking values and rings, alone or with reading what is left, gives the groups that reading alone gives.
    #[test]
    fn walks_group_as_reading_does(
        documents in proptest::collection::vec(document(), 0..60),
        fields in proptest::sample::subsequence(vec!["x", "y", "none", "_geo"], 1..=4).prop_shuffle(),
        directions: [bool; 4],
        centre in place(),
        (step, skip) in (1..6u32, 0..6u32),
        count in 0..70usize,
    ) {
        let facets = Rc::new(Facets::with(filterable(&["x", "y", "none", "_geo"]), documents));
        let candidates: RoaringBitmap = facets.documents.iter().filter(|doc| doc % step != skip).collect();
        let sorts: Vec<_> = fields.iter().copied().zip(directions).collect();
        let plan = plan(&sorts, centre);
        let want = first((&plan, &Twin(facets.clone())), &candidates, count);
        // The first one may have what pieces there are made, which the others find.
        for _ in 0..3 {
            let sorter = ColumnSorter::new(facets.clone(), None);
            prop_assert_eq!(&first((&plan, &sorter), &candidates, count), &want);
        }
    }
}

/// The value of every candidate was once read and sorted before the first group was known.
#[test]
fn the_first_groups_need_little_reading() {
    let document = |at: u32| {
        let place = json!({"lat": f64::from(at % 60) * 2.0 - 59.0, "lng": f64::from(at / 60) * 7.0 - 170.0});
        json!({"same": 1, "few": at % 5, "own": at.wrapping_mul(2_654_435_761), "_geo": place})
    };
    let facets = Rc::new(Facets::with(filterable(&["same", "few", "own", "_geo"]), (0..3000).map(document)));
    let all = &facets.documents;
    let some: RoaringBitmap = all.iter().filter(|doc| doc % 600 == 7).collect();
    let read = |sorts: &[(&str, bool)], candidates: &RoaringBitmap| {
        let sorter = Counting(ColumnSorter::new(facets.clone(), None), Cell::new(0));
        let (found, left) = first((&plan(sorts, (1.0, 30.0)), &sorter), candidates, 3);
        assert!(left && found.len() == 3);
        sorter.1.get()
    };
    for descending in [false, true] {
        for sorts in [vec![("own", descending)], vec![("few", descending)], vec![("same", descending), ("own", true)]] {
            assert!(read(&sorts, all) < 30, "{sorts:?} {}", read(&sorts, all));
        }
    }
    assert!(read(&[("own", false)], &some) < 20, "{}", read(&[("own", false)], &some));
}

/// Where a filter leaves out the documents that would come first, all others were once read.
#[test]
fn documents_far_behind_are_found_with_little_reading() {
    let document = |at: u32| json!({"size": at, "few": at / 100, "name": format!("{:04}", 2999 - at)});
    let facets = Rc::new(Facets::with(filterable(&["size", "few", "name"]), (0..3000).map(document)));
    let many: RoaringBitmap = (1500..3000).collect();
    let scattered: RoaringBitmap = (1500..3000).filter(|at| at % 7 == 0).collect();
    for (sorts, candidates) in [
        (vec![("size", false)], &many),
        (vec![("few", false), ("size", true)], &many),
        (vec![("name", true)], &many),
        (vec![("size", false)], &scattered),
        (vec![("name", true), ("size", true)], &scattered),
    ] {
        let sorter = Counting(ColumnSorter::new(facets.clone(), None), Cell::new(0));
        let plan = plan(&sorts, (0.0, 0.0));
        let found = first((&plan, &sorter), candidates, 3);
        assert_eq!(found, first((&plan, &Twin(facets.clone())), candidates, 3));
        assert!(sorter.1.get() < 60, "{sorts:?} {}", sorter.1.get());
    }
}
