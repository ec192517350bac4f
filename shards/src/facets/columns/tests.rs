use std::ops::Bound;
use std::rc::Rc;

use futures_lite::future::block_on;
use futures_util::FutureExt;
use proptest::prelude::*;
use roaring::RoaringBitmap;
use serde_json::{Value, json};
use storage_engine::vector::Unpaced;

use super::{ColumnWriter, Columns, DocValues, Flag, ReindexPlan, Touched, drop_field, drop_places};
use crate::facets::Extractor;
use crate::facets::filter::tests::document;
use crate::facets::geo::areas::{Area, BoxArea, CircleArea};
use crate::facets::geo::{GeoBox, GeoPoint};
use crate::facets::source::FacetSource;
use crate::facets::test_support::{Busy, Facets, filterable};
use crate::ids::{FieldId, LocalDocId};
use crate::settings::Settings;

/// Whether a point lies in an area.
type Holds = Box<dyn Fn(GeoPoint) -> bool>;

fn changes() -> impl Strategy<Value = Vec<Vec<(u32, Option<Value>)>>> {
    // Numbers in two blocks, so that a value's documents are cut.
    let number = prop_oneof![0..6u32, 65_534..65_540u32];
    let change = (number, proptest::option::weighted(0.7, document()));
    proptest::collection::vec(proptest::collection::vec(change, 0..6), 0..5)
}

/// The columns as one batch over the final documents would have written them.
fn rebuilt(facets: &Facets) -> Facets {
    let mut rebuilt = Facets { fields: facets.fields.clone(), ..Facets::new(facets.settings.clone()) };
    rebuilt.put(facets.json.iter().map(|(number, json)| (*number, Some(json.clone()))));
    rebuilt
}

/// What the engine does when settings change.
fn reindex(facets: &mut Facets, settings: Settings) {
    let plan = ReindexPlan::between(&facets.fields, &facets.settings, &settings);
    for field in &plan.drop {
        while !drop_field(&mut facets.columns, *field, 3).expect("memory does not fail") {}
    }
    for place in &plan.drop_places {
        while !drop_places(&mut facets.columns, *place, 3).expect("memory does not fail") {}
    }
    let mut extractor = Extractor::only(&settings, plan.add.iter().copied());
    let mut writer = ColumnWriter::new();
    for (number, json) in facets.json.iter().filter(|_| plan.reads_documents()) {
        let members = json.as_object().expect("documents are objects");
        let raw: Vec<_> = members
            .iter()
            .map(|(name, value)| (facets.fields.id(name).expect("met"), value.to_string().into_bytes()))
            .collect();
        let facts = extractor.extract(&facets.fields, raw.iter().map(|(field, json)| (*field, json.as_slice())));
        writer.add(LocalDocId(*number), None, Some(&facts));
    }
    writer.flush(&mut facets.columns).expect("memory does not fail");
    facets.resident = Rc::new(facets.resident.after(&Touched::everything()));
    facets.settings = settings;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// After any history the trees hold exactly the bytes that a rebuild writes: updates leave nothing behind.
    #[test]
    fn updates_leave_what_a_rebuild_writes(batches in changes()) {
        let mut facets = Facets::new(filterable(&["x", "y", "w"]));
        for batch in batches {
            facets.put(batch);
        }
        prop_assert_eq!(&facets.columns, &rebuilt(&facets).columns);
        if facets.json.is_empty() {
            prop_assert!(facets.columns.entries.is_empty());
        }
    }

    /// So does a change of settings.
    #[test]
    fn a_reindex_leaves_what_a_rebuild_writes(
        batches in changes(),
        points in proptest::collection::vec(prop_oneof![Just(json!(null)), Just(json!({"lat": "1", "lng": 2})), Just(json!({"lat": "x"}))], 0..4),
        from in proptest::sample::subsequence(vec!["x", "x.y", "w", "y", "_geo", "_geo.lat"], 0..4),
        to in proptest::sample::subsequence(vec!["x", "x.y", "w", "y", "_geo", "_geo.lat"], 0..4),
    ) {
        let mut facets = Facets::new(filterable(&from));
        for batch in batches {
            facets.put(batch);
        }
        facets.put(points.into_iter().enumerate().map(|(at, point)| (at as u32, Some(json!({ "_geo": point })))));
        reindex(&mut facets, filterable(&to));
        prop_assert_eq!(&facets.columns, &rebuilt(&facets).columns);
    }
}

#[test]
fn a_document_that_comes_twice_in_a_batch_keeps_the_last_state() {
    let mut facets = Facets::with(filterable(&["x"]), [json!({"x": [1, "a"]})]);
    facets.put([(0, None), (0, Some(json!({"x": [1, 2]}))), (1, Some(json!({"x": 1}))), (1, None)]);
    assert_eq!(facets.columns, rebuilt(&facets).columns);
}

/// Walks visit every value once, with the documents of all its blocks, in either direction.
#[test]
fn walks_join_the_blocks_of_a_value() {
    let mut facets = Facets::new(filterable(&["x", "z"]));
    let far = 200_000;
    facets.put([
        (1, Some(json!({"x": [1, "a"], "z": 7}))),
        (far, Some(json!({"x": [1, -2, "b"]}))),
        (3, Some(json!({"x": ["a\u{0}", "b"]}))),
    ]);
    let field = facets.fields.id("x").expect("met");
    let columns = Columns::new(&facets.columns);
    for descending in [false, true] {
        let mut strings = Vec::new();
        let mut visit = |value: &str, documents: RoaringBitmap| {
            strings.push((value.to_owned(), documents.iter().collect::<Vec<_>>()));
            Ok(std::ops::ControlFlow::Continue(()))
        };
        block_on(columns.walk_strings((field, descending), None, &mut visit, &Unpaced)).expect("memory does not fail");
        let mut expected = [("a", vec![1]), ("a\u{0}", vec![3]), ("b", vec![3, far])].map(|(v, d)| (v.to_owned(), d));
        if descending {
            expected.reverse();
        }
        assert_eq!(strings, expected);
        let mut count = 0;
        let mut visit = |_: &u64, documents: RoaringBitmap| {
            count += documents.len();
            Ok(std::ops::ControlFlow::Continue(()))
        };
        block_on(columns.walk_numbers((field, descending), None, &mut visit, &Unpaced)).expect("memory does not fail");
        assert_eq!(count, 3);
    }
    assert!(columns.is_flagged(field, Flag::Exists, LocalDocId(far)).expect("memory does not fail"));
    assert!(!columns.is_flagged(field, Flag::Null, LocalDocId(far)).expect("memory does not fail"));
    assert_eq!(columns.flagged(FieldId(999), Flag::Exists).expect("memory does not fail"), RoaringBitmap::new());
}

/// Places that many documents have in common with the edges of boxes, some of them out of the usual ranges.
fn place() -> impl Strategy<Value = (f64, f64)> {
    let degrees = |most: i32| (-most * 4..=most * 4).prop_map(|quarters| f64::from(quarters) / 4.0);
    let few = prop_oneof![Just(0.0), Just(45.0), Just(90.0), Just(-90.0)];
    (prop_oneof![degrees(90), few], prop_oneof![degrees(180), Just(180.0), Just(-180.0), 0.0..0.02f64])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Areas find the points that lie in them, whether entries of cells are read, pieces of these are held, or the places of all
    /// documents are.
    #[test]
    fn areas_hold_the_points_in_them(
        points in prop_oneof![4 => proptest::collection::vec((place(), 0..9u8), 1..30), 1 => proptest::collection::vec((place(), 0..9u8), 65..90)],
        areas in proptest::collection::vec((place(), place(), proptest::option::of(0.0..20_100_000.0f64)), 1..9)
    ) {
        let points: Vec<GeoPoint> = points
            .into_iter()
            .map(|((lat, lng), far)| GeoPoint { lat, lng: if far == 0 { lng + 200.0 } else { lng } })
            .collect();
        let documents = points.iter().map(|point| json!({"_geo": {"lat": point.lat, "lng": point.lng}}));
        let facets = Facets::with(filterable(&["_geo"]), documents);
        let columns = facets.columns().held_by(facets.resident_fields());
        for (one, other, radius) in areas {
            let (south, north) = (one.0.min(other.0), one.0.max(other.0));
            let bounds = GeoBox {
                top_right: GeoPoint { lat: north, lng: one.1 },
                bottom_left: GeoPoint { lat: south, lng: other.1 },
            };
            let centre = GeoPoint { lat: one.0, lng: one.1 };
            let (area, holds): (Box<dyn Area>, Holds) = match radius {
                Some(radius) => (
                    Box::new(CircleArea::new(centre, radius)), Box::new(move |point| centre.distance_m(point) <= radius)
                ),
                None => (Box::new(BoxArea::new(bounds)), Box::new(move |point| bounds.contains(point))),
            };
            let found = block_on(columns.with_point(&*area, &Unpaced));
            let expected = (0..points.len() as u32).filter(|at| holds(points[*at as usize]));
            prop_assert_eq!(found.expect("memory does not fail"), expected.collect::<RoaringBitmap>(), "{:?} {:?}", bounds, radius);
        }
        while facets.resident.forget_some() {}
        prop_assert_eq!(facets.resident.bytes(), 0);
    }
}

/// The places of points are kept once areas have read enough, also where a search is dropped while it reads them.
#[test]
fn places_are_held_when_that_pays() {
    let documents = (0..30).map(|at| json!({"_geo": {"lat": at, "lng": at}}));
    let facets = Facets::with(filterable(&["_geo"]), documents);
    let columns = facets.columns().held_by(facets.resident_fields());
    let area = CircleArea::new(GeoPoint { lat: 10.0, lng: 10.0 }, 20_000_000.0);
    let all = || block_on(columns.with_point(&area, &Unpaced)).expect("memory does not fail").len();
    assert_eq!((all(), facets.resident.bytes()), (30, 0));
    let mut dropped = Box::pin(columns.with_point(&area, &Busy));
    assert!((&mut dropped).now_or_never().is_none());
    assert_eq!((all(), facets.resident.bytes()), (30, 0), "somebody reads them");
    drop(dropped);
    assert_eq!(all(), 30);
    assert!(facets.resident.bytes() > 0);
    assert_eq!(all(), 30);
}

/// What a document of the following test has.
fn small(value: u32, far: bool) -> Value {
    let lng = if far { 200.0 } else { f64::from(value) * 3.0 };
    json!({"v": [value % 7, value, format!("{value:02}")], "_geo": {"lat": value, "lng": lng}})
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// What is held of an epoch is right at the next, whatever was written in between.
    #[test]
    fn what_is_held_stays_right(
        count in 8..90u32,
        batches in proptest::collection::vec((
            proptest::collection::vec((0..100u32, proptest::option::weighted(0.8, (0..60u32, any::<bool>()))), 0..7),
            proptest::collection::vec((0..60u32, 0..60u32), 0..4),
        ), 1..9),
    ) {
        let first = (0..count).map(|number| small(number * 13 % 60, number % 9 == 0));
        let mut facets = Facets::with(filterable(&["v", "_geo"]), first);
        let field = facets.fields.id("v").expect("met");
        for (changes, questions) in batches {
            for (from, to) in questions {
                let (plain, held) = (facets.columns(), facets.columns().held_by(facets.resident_fields()));
                let bits = |number: u32| crate::facets::normalise::number_bits(f64::from(number));
                let numbers = (Bound::Included(bits(from)), Bound::Excluded(bits(to)));
                let find = |columns: Columns<'_>| block_on(columns.with_number_in(field, numbers.0, numbers.1, &Unpaced));
                prop_assert_eq!(find(held).unwrap(), find(plain).unwrap());
                let (from_text, to_text) = (format!("{from:02}"), format!("{to:02}"));
                let find = |columns: Columns<'_>| {
                    block_on(columns.with_string_in(field, Bound::Included(&from_text), Bound::Included(&to_text), &Unpaced))
                };
                prop_assert_eq!(find(held).unwrap(), find(plain).unwrap());
                let area = CircleArea::new(GeoPoint { lat: f64::from(from), lng: 9.0 }, f64::from(to) * 100_000.0);
                let find = |columns: Columns<'_>| block_on(columns.with_point(&area, &Unpaced));
                prop_assert_eq!(find(held).unwrap(), find(plain).unwrap());
                let fields = &facets.resident;
                let resident = block_on(fields.get(&plain, field, (40, 100), &Unpaced)).unwrap();
                for document in resident.iter().flat_map(|_| 0..100) {
                    let one = RoaringBitmap::from([document]);
                    let lists = block_on(resident.as_ref().expect("there").lists_of(&one, &Unpaced));
                    let kept = lists.first().map(|(list, ..)| resident.as_ref().expect("there").values(*list).unwrap());
                    let values = |values: DocValues<'_>| {
                        (values.numbers().collect::<Vec<_>>(), values.strings().map(|(text, _)| text.to_owned()).collect::<Vec<_>>())
                    };
                    let there = plain.values(field, LocalDocId(document)).unwrap();
                    prop_assert_eq!(kept.map(values), there.map(values));
                }
            }
            facets.put(changes.into_iter().map(|(number, new)| (number, new.map(|(value, far)| small(value, far)))));
        }
        let resident = &facets.resident;
        while resident.forget_some() {}
        prop_assert_eq!(resident.bytes(), 0);
    }
}

/// After a small change all that is held is still there, and used.
#[test]
fn a_small_change_leaves_what_is_held() {
    let mut facets = Facets::with(filterable(&["v", "_geo"]), (0..60).map(|number| small(number, false)));
    let field = facets.fields.id("v").expect("met");
    let area = CircleArea::new(GeoPoint { lat: 0.0, lng: 0.0 }, 20_000_000.0);
    let ask = |facets: &Facets| {
        let columns = facets.columns().held_by(facets.resident_fields());
        block_on(columns.with_number_in(field, Bound::Unbounded, Bound::Unbounded, &Unpaced)).unwrap();
        block_on(columns.with_point(&area, &Unpaced)).unwrap();
        block_on(facets.resident.get(&columns, field, (60, 60), &Unpaced)).unwrap();
    };
    (0..3).for_each(|_| ask(&facets));
    let whole = facets.resident.bytes();
    assert!(whole > 0);
    facets.put([(60, Some(small(60, false)))]);
    assert_eq!(facets.resident.bytes(), whole);
    ask(&facets);
    assert!(facets.resident.bytes() > whole, "with the new document");
    let before = facets.resident.bytes();
    facets.put([]);
    assert_eq!(facets.resident.bytes(), before);
}
