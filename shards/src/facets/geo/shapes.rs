//! Shapes on the globe: those of documents (`_geojson`) and those of geo filters.
//!
//! As the interface has it, shapes lie in the plane of longitudes and latitudes: an edge is straight there. A circle becomes a
//! polygon. What reaches over the antimeridian, a region or a document's shape at longitudes beyond 180, meets what lies on
//! either side of it.

use geo::algorithm::{BoundingRect, Destination, Haversine, Intersects, Translate};
use geo::{Coord, Geometry, LineString, MultiPolygon, Point, Polygon};
use serde::Deserialize;
use serde_json::Value;

use super::cells::Bounds;
use super::{GeoBox, GeoPoint};
use crate::error::UserError;

/// A document's shape, as it is kept: its bounds and its parts, points, lines and polygons.
///
/// Four doubles (west, south, east, north), then for each part its kind, how many lists of positions it has (u32), for each list
/// its length (u32) and longitudes and latitudes (doubles). All little-endian.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    bounds: Bounds,
    bytes: Box<[u8]>,
}

const POINT: u8 = 0;
const LINE: u8 = 1;
const POLYGON: u8 = 2;

/// Checks a document's `_geojson` and reads it; `None` for one without any position, such as an empty collection. Fails with
/// `invalid_document_geo_field`.
pub fn check_shape(value: &Value) -> Result<Option<Shape>, UserError> {
    let fail = |what: &str| {
        Err(UserError::new("invalid_document_geo_field", format!("the `_geojson` field must be GeoJSON: {what}")))
    };
    let parsed = match geojson::GeoJson::deserialize(value) {
        Ok(parsed) => parsed,
        Err(error) => return fail(&error.to_string()),
    };
    let geometry = match Geometry::try_from(parsed) {
        Ok(geometry) => geometry,
        Err(error) => return fail(&error.to_string()),
    };
    let mut parts = Vec::new();
    flatten(geometry, &mut parts);
    if parts.iter().any(|part| matches!(part, Part::Polygon(polygon) if polygon.exterior().0.len() < 3)) {
        return fail("the ring of a polygon has at least three positions");
    }
    Ok(Shape::new(&parts))
}

/// A document's shape, if it has a valid one.
pub fn shape_of(value: &Value) -> Option<Shape> {
    check_shape(value).ok().flatten()
}

/// A piece of a shape.
enum Part {
    Point(Point),
    Line(LineString),
    Polygon(Polygon),
}

fn flatten(geometry: Geometry, parts: &mut Vec<Part>) {
    match geometry {
        Geometry::Point(point) => parts.push(Part::Point(point)),
        Geometry::LineString(line) => parts.push(Part::Line(line)),
        Geometry::Polygon(polygon) => parts.push(Part::Polygon(polygon)),
        Geometry::MultiPoint(points) => parts.extend(points.0.into_iter().map(Part::Point)),
        Geometry::MultiLineString(lines) => parts.extend(lines.0.into_iter().map(Part::Line)),
        Geometry::MultiPolygon(polygons) => parts.extend(polygons.0.into_iter().map(Part::Polygon)),
        Geometry::GeometryCollection(members) => members.0.into_iter().for_each(|member| flatten(member, parts)),
        // No GeoJSON becomes one of these, but each is a polygon or a line.
        Geometry::Line(line) => parts.push(Part::Line(LineString::from(line))),
        Geometry::Rect(rectangle) => parts.push(Part::Polygon(rectangle.to_polygon())),
        Geometry::Triangle(triangle) => parts.push(Part::Polygon(triangle.to_polygon())),
    }
}

impl Shape {
    fn new(parts: &[Part]) -> Option<Self> {
        let (mut bytes, mut bounds) = (vec![0; 32], None);
        for part in parts {
            let lists: Vec<&[Coord]> = match part {
                Part::Point(point) => vec![std::slice::from_ref(&point.0)],
                Part::Line(line) => vec![&line.0],
                Part::Polygon(polygon) => {
                    let rings = std::iter::once(polygon.exterior()).chain(polygon.interiors());
                    rings.map(|ring| ring.0.as_slice()).collect()
                }
            };
            bytes.push(match part {
                Part::Point(_) => POINT,
                Part::Line(_) => LINE,
                Part::Polygon(_) => POLYGON,
            });
            bytes.extend_from_slice(&(lists.len() as u32).to_le_bytes());
            for list in lists {
                bytes.extend_from_slice(&(list.len() as u32).to_le_bytes());
                for at in list {
                    bytes.extend_from_slice(&at.x.to_le_bytes());
                    bytes.extend_from_slice(&at.y.to_le_bytes());
                    let own = Bounds::of_point(at.x, at.y);
                    bounds = Some(bounds.map_or(own, |all: Bounds| all.around(&own)));
                }
            }
        }
        let bounds = bounds?;
        for (at, edge) in [bounds.west, bounds.south, bounds.east, bounds.north].into_iter().enumerate() {
            bytes[at * 8..][..8].copy_from_slice(&edge.to_le_bytes());
        }
        Some(Self { bounds, bytes: bytes.into() })
    }

    /// The least rectangle around it.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// The shape as it is kept.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The bounds of a kept shape, and its parts still to be read; `None` if the bytes are no shape.
fn decode(bytes: &[u8]) -> Option<(Bounds, Parts<'_>)> {
    let mut rest = bytes;
    let [west, south, east, north] =
        [take_f64(&mut rest)?, take_f64(&mut rest)?, take_f64(&mut rest)?, take_f64(&mut rest)?];
    Some((Bounds { west, south, east, north }, Parts { rest }))
}

/// Reads the parts of a kept shape one by one.
#[derive(Clone, Copy)]
struct Parts<'b> {
    rest: &'b [u8],
}

impl Parts<'_> {
    /// The next part; `Err` if the bytes are none, `None` after the last one.
    fn next(&mut self) -> Option<Result<Part, Malformed>> {
        let (kind, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(self.part(*kind).ok_or(Malformed))
    }

    fn part(&mut self, kind: u8) -> Option<Part> {
        let lists = take_u32(&mut self.rest)?;
        match kind {
            POINT => Some(Part::Point(Point(*self.list()?.0.first()?))),
            LINE => Some(Part::Line(self.list()?)),
            POLYGON => {
                let outer = self.list()?;
                let holes = (1..lists).map(|_| self.list()).collect::<Option<Vec<_>>>()?;
                Some(Part::Polygon(Polygon::new(outer, holes)))
            }
            _ => None,
        }
    }

    fn list(&mut self) -> Option<LineString> {
        let length = take_u32(&mut self.rest)? as usize;
        let (bytes, rest) = self.rest.split_at_checked(length.checked_mul(16)?)?;
        self.rest = rest;
        let (doubles, _) = bytes.as_chunks::<8>();
        let (positions, _) = doubles.as_chunks::<2>();
        Some(LineString(
            positions.iter().map(|[x, y]| Coord { x: f64::from_le_bytes(*x), y: f64::from_le_bytes(*y) }).collect(),
        ))
    }
}

fn take_f64(rest: &mut &[u8]) -> Option<f64> {
    let (bytes, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(f64::from_le_bytes(*bytes))
}

fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    let (bytes, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u32::from_le_bytes(*bytes))
}

/// The latitude of the pole within a circle, the nearer one if both are.
fn pole_within(centre: GeoPoint, radius_m: f64) -> Option<f64> {
    let pole = if centre.lat < 0.0 { -90.0 } else { 90.0 };
    (centre.distance_m(GeoPoint { lat: pole, lng: centre.lng }) <= radius_m).then_some(pole)
}

/// Bytes that are no shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// What a geo filter asks shapes to meet.
#[derive(Clone, Debug)]
pub struct Region {
    area: MultiPolygon,
    bounds: Vec<Bounds>,
    /// Its area is exactly its bounds.
    is_rectangular: bool,
}

impl Region {
    /// The rectangle; two of them when it crosses the antimeridian.
    pub fn rectangle(bounds: &GeoBox) -> Self {
        let bounds: Vec<Bounds> = bounds.bounds().into_vec();
        let area = bounds
            .iter()
            .map(|b| geo::Rect::new(Coord { x: b.west, y: b.south }, Coord { x: b.east, y: b.north }).to_polygon());
        Self { area: area.collect(), bounds, is_rectangular: true }
    }

    /// The area within a ring of points, which is closed here.
    pub fn polygon(points: &[GeoPoint]) -> Self {
        let ring: LineString = points.iter().map(|point| Coord { x: point.lng, y: point.lat }).collect();
        Self::new(vec![Polygon::new(ring, Vec::new())])
    }

    /// A circle, as a polygon of `corners` corners at `radius_m` metres from its centre. A negative radius has no area.
    pub fn circle(centre: GeoPoint, radius_m: f64, corners: usize) -> Self {
        if radius_m < 0.0 {
            return Self::new(Vec::new());
        }
        let middle = Point::new(centre.lng, centre.lat);
        let corner = |at: usize| {
            let at = Haversine.destination(middle, 360.0 * at as f64 / corners as f64, radius_m);
            // On the centre's side of the antimeridian, even if beyond 180 degrees.
            let turns = ((at.x() - centre.lng) / 360.0).round();
            Coord { x: at.x() - 360.0 * turns, y: at.y() }
        };
        let mut ring: Vec<Coord> = (0..corners).map(corner).collect();
        if let Some(pole) = pole_within(centre, radius_m) {
            // The ring goes around the globe: the area is what lies between it and the pole.
            ring.sort_by(|a, b| a.x.total_cmp(&b.x));
            let (first, last) = (ring[0], ring[ring.len() - 1]);
            ring.insert(0, Coord { x: last.x - 360.0, y: last.y });
            ring.push(Coord { x: first.x + 360.0, y: first.y });
            ring.extend([Coord { x: first.x + 360.0, y: pole }, Coord { x: last.x - 360.0, y: pole }]);
        }
        let ring = LineString(ring);
        let reach = ring.bounding_rect();
        let mut area = vec![Polygon::new(ring, Vec::new())];
        if let Some(reach) = reach {
            let beyond = [(reach.min().x < -180.0, 360.0), (reach.max().x > 180.0, -360.0)];
            area.extend(
                beyond
                    .into_iter()
                    .filter(|(is_beyond, _)| *is_beyond)
                    .map(|(_, by)| area[0].translate(by, 0.0))
                    .collect::<Vec<_>>(),
            );
        }
        Self::new(area)
    }

    fn new(area: Vec<Polygon>) -> Self {
        let rectangles = area.iter().filter_map(BoundingRect::bounding_rect);
        let bounds = rectangles
            .map(|rectangle| {
                let (min, max) = (rectangle.min(), rectangle.max());
                Bounds { west: min.x, south: min.y, east: max.x, north: max.y }
            })
            .collect();
        Self { area: MultiPolygon(area), bounds, is_rectangular: false }
    }

    /// Rectangles around it: what meets none of them does not meet the region.
    pub fn bounds(&self) -> &[Bounds] {
        &self.bounds
    }

    /// Whether it shares a point with a kept shape.
    pub fn meets(&self, shape: &[u8]) -> Result<bool, Malformed> {
        let (bounds, parts) = decode(shape).ok_or(Malformed)?;
        if self.meets_moved(&bounds, parts, 0.0)? {
            return Ok(true);
        }
        let beyond = [(bounds.west < -180.0, 360.0), (bounds.east > 180.0, -360.0)];
        for (_, by) in beyond.into_iter().filter(|(is_beyond, _)| *is_beyond) {
            let bounds = Bounds { west: bounds.west + by, east: bounds.east + by, ..bounds };
            if self.meets_moved(&bounds, parts, by)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether it shares a point with these parts moved eastwards, `bounds` being around them then.
    fn meets_moved(&self, bounds: &Bounds, mut parts: Parts<'_>, by: f64) -> Result<bool, Malformed> {
        if !self.bounds.iter().any(|own| own.meets(bounds)) {
            return Ok(false);
        }
        if self.is_rectangular && self.bounds.iter().any(|own| own.covers(bounds)) {
            return Ok(true);
        }
        while let Some(part) = parts.next() {
            let meets = match part? {
                Part::Point(point) => self.area.intersects(&point.translate(by, 0.0)),
                Part::Line(line) => self.area.intersects(&line.translate(by, 0.0)),
                Part::Polygon(polygon) => self.area.intersects(&polygon.translate(by, 0.0)),
            };
            if meets {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use futures_lite::future::block_on;
    use proptest::prelude::*;
    use serde_json::json;
    use storage_engine::vector::Unpaced;

    use super::*;
    use crate::facets::filter::parse_filter_text;
    use crate::facets::test_support::{Facets, filterable};

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
                let bounds =
                    GeoBox { top_right: GeoPoint { lat: top, ..a }, bottom_left: GeoPoint { lat: bottom, ..b } };
                (
                    Region::rectangle(&bounds),
                    format!("_geoBoundingBox([{top:?}, {:?}], [{bottom:?}, {:?}])", a.lng, b.lng),
                )
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

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// A filter finds through the cells what asking every document finds.
        #[test]
        fn filters_find_every_shape_that_meets(shapes in proptest::collection::vec(shape(), 0..20), (region, filter) in region()) {
            let documents = shapes.iter().map(|shape| json!({"_geojson": shape}));
            let facets = Facets::with(filterable(&["_geojson"]), documents);
            let filter = parse_filter_text(&filter, "invalid_search_filter").expect("it parses").expect("it is not empty");
            let found: Vec<u32> = block_on(filter.evaluate(&facets, &Unpaced)).expect("it is right").into_iter().collect();
            let meets = |shape: &Value| shape_of(shape).is_some_and(|shape| region.meets(shape.bytes()) == Ok(true));
            let expected: Vec<u32> = (0..shapes.len()).filter(|at| meets(&shapes[*at])).map(|at| at as u32).collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn any_bytes_are_a_shape_or_malformed(bytes: Vec<u8>, (region, _) in region()) {
            let _ = region.meets(&bytes);
        }
    }

    /// A circle around the antimeridian or a pole is where its centre is, not all around the globe.
    #[test]
    fn circles_reach_over_the_antimeridian_and_the_poles() {
        let at = |lng: f64, lat: f64| shape_of(&json!({"type": "Point", "coordinates": [lng, lat]})).expect("a shape");
        let circle = Region::circle(GeoPoint { lat: 0.0, lng: 179.0 }, 500_000.0, 32);
        for (lng, expected) in [(177.0, true), (180.0, true), (-178.0, true), (0.0, false), (-170.0, false)] {
            assert_eq!(circle.meets(at(lng, 0.0).bytes()), Ok(expected), "{lng}");
        }
        let over = json!({"type": "LineString", "coordinates": [[-190, 0], [-183, 0]]});
        assert_eq!(circle.meets(shape_of(&over).expect("a shape").bytes()), Ok(true), "which is 170 to 177");
        let polar = Region::circle(GeoPoint { lat: 89.0, lng: 20.0 }, 300_000.0, 32);
        for (lng, lat, expected) in
            [(20.0, 90.0, true), (-160.0, 89.0, true), (-179.9, 89.0, true), (20.0, 87.0, true), (-160.0, 87.0, false)]
        {
            assert_eq!(polar.meets(at(lng, lat).bytes()), Ok(expected), "{lng} {lat}");
        }
    }

    #[test]
    fn lines_within_and_holes_count_as_areas_do() {
        let region = Region::polygon(
            &[(0.0, 0.0), (0.0, 10.0), (10.0, 10.0), (10.0, 0.0)].map(|(lat, lng)| GeoPoint { lat, lng }),
        );
        let meets = |shape: Value| region.meets(shape_of(&shape).expect("a shape").bytes());
        assert_eq!(meets(json!({"type": "LineString", "coordinates": [[1, 1], [2, 2]]})), Ok(true));
        let holed = json!([[[-20, -20], [20, -20], [20, 20], [-20, 20]], [[-15, -15], [15, -15], [15, 15], [-15, 15]]]);
        assert_eq!(meets(json!({"type": "Polygon", "coordinates": holed})), Ok(false), "it lies in the hole");
        assert_eq!(meets(json!({"type": "Point", "coordinates": [10, 10]})), Ok(true), "on a corner");
        assert_eq!(meets(json!({"type": "Point", "coordinates": [10.001, 10]})), Ok(false));
    }
}
