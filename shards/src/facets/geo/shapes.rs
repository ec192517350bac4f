//! Shapes on the globe: those of documents (`_geojson`) and those of geo filters.
//!
//! As in the interface, shapes lie in the plane of longitudes and latitudes, in which edges are straight. A circle becomes a
//! polygon. A region or a document's shape that crosses the antimeridian (longitudes beyond 180) intersects what lies on either
//! side of it.

use geo::algorithm::{BoundingRect, Destination, Haversine, Intersects, Translate};
use geo::{Coord, Geometry, LineString, MultiPolygon, Point, Polygon};
use serde::Deserialize;
use serde_json::Value;
use storage_engine::vector::Pace;

use super::cells::Bounds;
use super::meet::{area_meets_line, areas_meet};
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

impl Part {
    /// Moved eastwards.
    fn moved(self, by: f64) -> Self {
        match self {
            Self::Point(point) => Self::Point(point.translate(by, 0.0)),
            Self::Line(line) => Self::Line(line.translate(by, 0.0)),
            Self::Polygon(polygon) => Self::Polygon(polygon.translate(by, 0.0)),
        }
    }
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
    pub async fn meets(&self, shape: &[u8], pace: &dyn Pace) -> Result<bool, Malformed> {
        let (bounds, parts) = decode(shape).ok_or(Malformed)?;
        if self.meets_moved(&bounds, parts, 0.0, pace).await? {
            return Ok(true);
        }
        let beyond = [(bounds.west < -180.0, 360.0), (bounds.east > 180.0, -360.0)];
        for (_, by) in beyond.into_iter().filter(|(is_beyond, _)| *is_beyond) {
            let bounds = Bounds { west: bounds.west + by, east: bounds.east + by, ..bounds };
            if self.meets_moved(&bounds, parts, by, pace).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether it shares a point with these parts moved eastwards, `bounds` being around them then.
    async fn meets_moved(
        &self,
        bounds: &Bounds,
        mut parts: Parts<'_>,
        by: f64,
        pace: &dyn Pace,
    ) -> Result<bool, Malformed> {
        if !self.bounds.iter().any(|own| own.meets(bounds)) {
            return Ok(false);
        }
        if self.is_rectangular && self.bounds.iter().any(|own| own.covers(bounds)) {
            return Ok(true);
        }
        while let Some(part) = parts.next() {
            if self.meets_part(&part?.moved(by), pace).await {
                return Ok(true);
            }
            if pace.due() {
                pace.pause().await;
            }
        }
        Ok(false)
    }

    async fn meets_part(&self, part: &Part, pace: &dyn Pace) -> bool {
        for area in &self.area {
            let meets = match part {
                Part::Point(point) => area.intersects(point),
                Part::Line(line) => area_meets_line(area, line, pace).await,
                Part::Polygon(polygon) => areas_meet(area, polygon, pace).await,
            };
            if meets {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests;
