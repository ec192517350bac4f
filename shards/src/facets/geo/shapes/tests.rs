use futures_lite::future::block_on;
use proptest::prelude::*;
use serde_json::json;
use storage_engine::vector::Unpaced;

use super::*;
use crate::facets::filter::parse_filter_text;
use crate::facets::test_support::{Facets, Pauses, filterable};

#[test]
fn documents_hold_geojson_or_are_refused() {
    let ring = json!([[[0, 0], [1, 0], [1, 1], [0, 0]]]);
    for good in [
        json!({"type": "Point", "coordinates": [1, 2]}),
        json!({"type": "Point", "coordinates": [1, 2, 3], "x": 1}),
        json!({"type": "Point", "coordinates": [200, 95]}),
        json!({"type": "Polygon", "coordinates": ring}),
        json!({"type": "MultiPolygon", "coordinates": [ring, ring]}),
        json!({"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [1, 0]]]}),
        json!({"type": "LineString", "coordinates": []}),
        json!({"type": "GeometryCollection", "geometries": []}),
        json!({"type": "FeatureCollection", "features": []}),
        json!({"type": "Feature", "geometry": {"type": "Point", "coordinates": [1, 2]}, "properties": {}}),
        json!({"type": "Feature", "geometry": {"type": "Point", "coordinates": [1, 2]}}),
    ] {
        assert!(check_shape(&good).is_ok(), "{good}: {:?}", check_shape(&good));
    }
    for bad in [
        json!(null),
        json!("text"),
        json!([1, 2]),
        json!({}),
        json!({"type": "Circle"}),
        json!({"type": "Point"}),
        json!({"type": "Point", "coordinates": []}),
        json!({"type": "Point", "coordinates": [1]}),
        json!({"type": "Point", "coordinates": [[1, 2]]}),
        json!({"type": "Point", "coordinates": ["1", "2"]}),
        json!({"type": "Polygon", "coordinates": []}),
        json!({"type": "Polygon", "coordinates": [[]]}),
        json!({"type": "Feature", "geometry": null, "properties": {}}),
        json!({"type": "Feature", "properties": "x", "geometry": {"type": "Point", "coordinates": [1, 2]}}),
        json!({"type": "FeatureCollection", "features": [{"type": "Point", "coordinates": [1, 2]}]}),
    ] {
        let error = check_shape(&bad).map_err(|error| error.code);
        assert_eq!(error, Err("invalid_document_geo_field"), "{bad}");
    }
    assert_eq!(shape_of(&json!({"type": "MultiPoint", "coordinates": []})), None, "nothing to be found");
}

fn position() -> impl Strategy<Value = Value> {
    prop_oneof![
        (-180.0..180.0f64, -90.0..90.0f64).prop_map(|(lng, lat)| json!([lng, lat])),
        (-5..5i8, -5..5i8).prop_map(|(lng, lat)| json!([lng, lat])),
    ]
}

fn shape() -> impl Strategy<Value = Value> {
    let positions = |least| proptest::collection::vec(position(), least..6);
    prop_oneof![
        position().prop_map(|at| json!({"type": "Point", "coordinates": at})),
        positions(0).prop_map(|points| json!({"type": "MultiPoint", "coordinates": points})),
        positions(2).prop_map(|line| json!({"type": "LineString", "coordinates": line})),
        (positions(3), proptest::option::of(positions(3))).prop_map(|(outer, hole)| {
            let rings: Vec<_> = std::iter::once(outer).chain(hole).collect();
            json!({"type": "Feature", "geometry": {"type": "Polygon", "coordinates": rings}})
        }),
        positions(3).prop_map(|ring| json!({"type": "GeometryCollection", "geometries": [
            {"type": "Polygon", "coordinates": [ring]}, {"type": "Point", "coordinates": [3, 3]}]})),
    ]
}

/// A region, and the filter that asks for it.
fn region() -> impl Strategy<Value = (Region, String)> {
    let at = || (-90.0..90.0f64, -180.0..180.0f64).prop_map(|(lat, lng)| GeoPoint { lat, lng });
    prop_oneof![
        (at(), at()).prop_map(|(a, b)| {
            let (top, bottom) = (a.lat.max(b.lat), a.lat.min(b.lat));
            let bounds = GeoBox { top_right: GeoPoint { lat: top, ..a }, bottom_left: GeoPoint { lat: bottom, ..b } };
            (Region::rectangle(&bounds), format!("_geoBoundingBox([{top:?}, {:?}], [{bottom:?}, {:?}])", a.lng, b.lng))
        }),
        (at(), 0.0..3_000_000.0f64).prop_map(|(centre, radius)| {
            let filter = format!("_geoRadius({:?}, {:?}, {radius:?}, 12)", centre.lat, centre.lng);
            (Region::circle(centre, radius, 12), filter)
        }),
        proptest::collection::vec(at(), 3..6).prop_map(|points| {
            let pairs: Vec<_> = points.iter().map(|point| format!("[{:?}, {:?}]", point.lat, point.lng)).collect();
            (Region::polygon(&points), format!("_geoPolygon({})", pairs.join(", ")))
        }),
    ]
}

fn meets(region: &Region, shape: &Shape) -> Result<bool, Malformed> {
    block_on(region.meets(shape.bytes(), &Unpaced))
}

/// All edges at once.
fn meets_at_once(region: &Region, shape: &Shape) -> bool {
    let (_, mut parts) = decode(shape.bytes()).expect("a shape");
    let parts = std::iter::from_fn(|| parts.next()).map(|part| part.expect("a part"));
    parts.into_iter().any(|part| match part {
        Part::Point(point) => region.area.intersects(&point),
        Part::Line(line) => region.area.intersects(&line),
        Part::Polygon(polygon) => region.area.intersects(&polygon),
    })
}

/// All edges of a line were once compared with all of a region in one step.
#[test]
fn many_edges_give_way() {
    let region = Region::circle(GeoPoint { lat: 0.0, lng: 0.0 }, 100_000.0, 2000);
    let around = (0..2000).map(|at| {
        let (sin, cos) = (f64::from(at) / 2000.0 * std::f64::consts::TAU).sin_cos();
        json!([1.08 * sin, 1.08 * cos])
    });
    let around = json!({"type": "LineString", "coordinates": around.collect::<Vec<_>>()});
    let (shape, pauses) = (shape_of(&around).expect("a shape"), Pauses::default());
    assert_eq!(block_on(region.meets(shape.bytes(), &pauses)), Ok(false));
    assert!(pauses.0.get() > 100, "{}", pauses.0.get());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Steps find what all edges at once say, where the region and the shape lie on the same side of the antimeridian.
    #[test]
    fn edges_compared_in_steps_meet_as_at_once(
        shapes in proptest::collection::vec(shape(), 0..20),
        corners in proptest::collection::vec((-20.0..20.0f64, -20.0..20.0f64), 3..9),
    ) {
        let corners: Vec<_> = corners.into_iter().map(|(lat, lng)| GeoPoint { lat, lng }).collect();
        let region = Region::polygon(&corners);
        for shape in shapes.iter().filter_map(shape_of) {
            prop_assert_eq!(meets(&region, &shape), Ok(meets_at_once(&region, &shape)));
        }
    }

    /// A filter finds through the cells what asking every document finds.
    #[test]
    fn filters_find_every_shape_that_meets(shapes in proptest::collection::vec(shape(), 0..20), (region, filter) in region()) {
        let documents = shapes.iter().map(|shape| json!({"_geojson": shape}));
        let facets = Facets::with(filterable(&["_geojson"]), documents);
        let filter = parse_filter_text(&filter, "invalid_search_filter").expect("it parses").expect("it is not empty");
        let found: Vec<u32> = block_on(filter.evaluate(&facets, &Unpaced)).expect("it is right").into_iter().collect();
        let is_met = |shape: &Value| shape_of(shape).is_some_and(|shape| meets(&region, &shape) == Ok(true));
        let expected: Vec<u32> = (0..shapes.len()).filter(|at| is_met(&shapes[*at])).map(|at| at as u32).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn any_bytes_are_a_shape_or_malformed(bytes: Vec<u8>, (region, _) in region()) {
        let _ = block_on(region.meets(&bytes, &Unpaced));
    }
}

/// A circle around the antimeridian or a pole is where its centre is, not all around the globe.
#[test]
fn circles_reach_over_the_antimeridian_and_the_poles() {
    let at = |lng: f64, lat: f64| shape_of(&json!({"type": "Point", "coordinates": [lng, lat]})).expect("a shape");
    let circle = Region::circle(GeoPoint { lat: 0.0, lng: 179.0 }, 500_000.0, 32);
    for (lng, expected) in [(177.0, true), (180.0, true), (-178.0, true), (0.0, false), (-170.0, false)] {
        assert_eq!(meets(&circle, &at(lng, 0.0)), Ok(expected), "{lng}");
    }
    let over = json!({"type": "LineString", "coordinates": [[-190, 0], [-183, 0]]});
    assert_eq!(meets(&circle, &shape_of(&over).expect("a shape")), Ok(true), "which is 170 to 177");
    let polar = Region::circle(GeoPoint { lat: 89.0, lng: 20.0 }, 300_000.0, 32);
    for (lng, lat, expected) in
        [(20.0, 90.0, true), (-160.0, 89.0, true), (-179.9, 89.0, true), (20.0, 87.0, true), (-160.0, 87.0, false)]
    {
        assert_eq!(meets(&polar, &at(lng, lat)), Ok(expected), "{lng} {lat}");
    }
}

#[test]
fn lines_within_and_holes_count_as_areas_do() {
    let region =
        Region::polygon(&[(0.0, 0.0), (0.0, 10.0), (10.0, 10.0), (10.0, 0.0)].map(|(lat, lng)| GeoPoint { lat, lng }));
    let meets = |shape: Value| meets(&region, &shape_of(&shape).expect("a shape"));
    assert_eq!(meets(json!({"type": "LineString", "coordinates": [[1, 1], [2, 2]]})), Ok(true));
    let holed = json!([[[-20, -20], [20, -20], [20, 20], [-20, 20]], [[-15, -15], [15, -15], [15, 15], [-15, 15]]]);
    assert_eq!(meets(json!({"type": "Polygon", "coordinates": holed})), Ok(false), "it lies in the hole");
    assert_eq!(meets(json!({"type": "Point", "coordinates": [10, 10]})), Ok(true), "on a corner");
    assert_eq!(meets(json!({"type": "Point", "coordinates": [10.001, 10]})), Ok(false));
}
