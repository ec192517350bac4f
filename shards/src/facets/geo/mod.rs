//! Geo search: points (`_geo`), [`shapes`] (`_geojson`), distances, and the [`cells`] that filters use to find documents.

pub mod areas;
pub mod cells;
mod meet;
pub mod shapes;

use std::hash::{Hash, Hasher};

use serde_json::Value;
use smallvec::{SmallVec, smallvec};

use cells::Bounds;

use crate::error::UserError;
use crate::settings::{FilterableRule, Settings};

/// Radius of the sphere that distances are measured on, in metres.
const EARTH_RADIUS_M: f64 = 6_371_000.0;

/// The greatest distance of two places, in metres.
pub const MERIDIAN_M: f64 = std::f64::consts::PI * EARTH_RADIUS_M;

/// Candidates within this many metres of the first one of a sort bucket share its bucket.
const BUCKET_METRES: f64 = 1.0;

/// Most documents in one bucket of a geo sort.
const BUCKET_DOCUMENTS_MAX: usize = 1000;

/// From this many candidates on, a geo sort walks them by exact distance; below, by whole metres.
const EXACT_WALK_CANDIDATES: usize = 1000;

/// A place, in degrees. Documents may hold places outside of the usual ranges; requests may not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GeoPoint {
    /// North of the equator.
    pub lat: f64,
    /// East of Greenwich.
    pub lng: f64,
}

impl Hash for GeoPoint {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Zeros of either sign are equal.
        ((self.lat + 0.0).to_bits(), (self.lng + 0.0).to_bits()).hash(state);
    }
}

impl GeoPoint {
    /// The haversine distance in metres, rounded to the millimetre.
    pub fn distance_m(self, other: Self) -> f64 {
        let haversine = |radians: f64| (1.0 - radians.cos()) / 2.0;
        let (lat, other_lat) = (self.lat.to_radians(), other.lat.to_radians());
        let inner =
            haversine(other_lat - lat) + lat.cos() * other_lat.cos() * haversine((other.lng - self.lng).to_radians());
        let metres = 2.0 * EARTH_RADIUS_M * inner.clamp(0.0, 1.0).sqrt().asin();
        (metres * 1000.0).round() / 1000.0
    }

    /// Whether latitude is within ±90 and longitude within ±180 degrees.
    pub fn is_in_range(self) -> bool {
        (-90.0..=90.0).contains(&self.lat) && (-180.0..=180.0).contains(&self.lng)
    }
}

/// A rectangle between two meridians and two parallels, edges included. With `right < left` it crosses the antimeridian.
#[derive(Clone, Copy, Debug, PartialEq, Hash)]
pub struct GeoBox {
    /// The corner with the greatest latitude, at the eastern edge.
    pub top_right: GeoPoint,
    /// The corner with the least latitude, at the western edge.
    pub bottom_left: GeoPoint,
}

impl GeoBox {
    /// Rectangles that do not cross the antimeridian: one, or one on either side of it.
    pub fn bounds(&self) -> SmallVec<[Bounds; 2]> {
        let (south, north) = (self.bottom_left.lat, self.top_right.lat);
        let (west, east) = (self.bottom_left.lng, self.top_right.lng);
        if east < west {
            let own = |west, east| Bounds { west, south, east, north };
            return SmallVec::from_buf([own(west, 180.0), own(-180.0, east)]);
        }
        smallvec![Bounds { west, south, east, north }]
    }

    /// Whether the point lies inside or on an edge.
    pub fn contains(self, point: GeoPoint) -> bool {
        let (left, right) = (self.bottom_left.lng, self.top_right.lng);
        let between =
            if right < left { point.lng >= left || point.lng <= right } else { (left..=right).contains(&point.lng) };
        between && (self.bottom_left.lat..=self.top_right.lat).contains(&point.lat)
    }
}

/// Rectangles that hold every point within so many metres of a centre; wider than need be, never narrower. Of points
/// within the usual ranges, that is.
pub fn around(centre: GeoPoint, radius_m: f64) -> Vec<Bounds> {
    /// A little more, for rounding.
    const MARGIN: f64 = 1.0001;
    if radius_m < 0.0 {
        return Vec::new();
    }
    let reach = (radius_m / EARTH_RADIUS_M) * MARGIN + 1e-9;
    let lat = centre.lat.to_radians();
    let (south, north) = ((lat - reach).to_degrees(), (lat + reach).to_degrees());
    if reach >= std::f64::consts::FRAC_PI_2 || south <= -90.0 || north >= 90.0 {
        return vec![Bounds::GLOBE];
    }
    // The meridians that touch the circle.
    let width = (reach.sin() / lat.cos()).clamp(0.0, 1.0).asin().to_degrees() * MARGIN + 1e-9;
    let (west, east) = (centre.lng - width, centre.lng + width);
    let mut found = vec![Bounds { west, south, east, north }];
    if west < -180.0 {
        found.push(Bounds { west: west + 360.0, south, east: 180.0, north });
    }
    if east > 180.0 {
        found.push(Bounds { west: -180.0, south, east: east - 360.0, north });
    }
    found
}

/// Whether documents' `_geo` are examined and kept as points: `_geo` is sortable, or filterable by its plain name.
pub fn takes_points(settings: &Settings) -> bool {
    filters_points(settings) || sorts_points(settings)
}

/// Whether geo filters look at `_geo`. Patterns do not switch them on.
pub fn filters_points(settings: &Settings) -> bool {
    is_plainly_filterable(settings, "_geo")
}

/// Whether documents may be sorted by distance.
pub fn sorts_points(settings: &Settings) -> bool {
    settings.sortable_attributes.contains("_geo")
}

/// Whether documents' `_geojson` are examined and geo filters look at them.
pub fn takes_shapes(settings: &Settings) -> bool {
    is_plainly_filterable(settings, "_geojson")
}

fn is_plainly_filterable(settings: &Settings, field: &str) -> bool {
    settings.filterable_attributes.iter().any(|rule| matches!(rule, FilterableRule::Name(name) if name == field))
}

/// The point in the `_geo` of a document that is stored; none where it has no coordinates. Objects in an array are taken
/// together as if they were one.
///
/// # Errors
/// `invalid_document_geo_field` when there is one coordinate without the other, or one that is no finite number.
pub fn stored_point(value: &Value) -> Result<Option<GeoPoint>, UserError> {
    let found = |name: &str| {
        let mut found = Vec::new();
        members(value, name, &mut found);
        found
    };
    match (found("lat").as_slice(), found("lng").as_slice()) {
        ([], []) => Ok(None),
        ([lat], [lng]) => match (coordinate(lat), coordinate(lng)) {
            (Some(lat), Some(lng)) => Ok(Some(GeoPoint { lat, lng })),
            (None, _) => fail("`lat` is not a number", value),
            (_, None) => fail("`lng` is not a number", value),
        },
        ([], _) => fail("`lat` is missing", value),
        (_, []) => fail("`lng` is missing", value),
        _ => fail("there are several points", value),
    }
}

fn members<'v>(value: &'v Value, name: &str, found: &mut Vec<&'v Value>) {
    match value {
        Value::Object(object) => found.extend(object.get(name)),
        Value::Array(items) => items.iter().for_each(|item| members(item, name, found)),
        _ => {}
    }
}

/// A coordinate: a finite number, or a string of one.
fn coordinate(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    number.filter(|number| number.is_finite())
}

fn fail<T>(what: &str, found: &Value) -> Result<T, UserError> {
    let message = format!("the `_geo` field must be an object with the numbers `lat` and `lng`: {what}, found {found}");
    Err(UserError::new("invalid_document_geo_field", message))
}

/// Checks a document's `_geo` where [`takes_points`]: null, or an object with exactly `lat` and `lng`, each a finite number
/// or a string of one. Otherwise the addition fails with `invalid_document_geo_field`.
pub fn check_point(value: &Value) -> Result<Option<GeoPoint>, UserError> {
    match value {
        Value::Null => Ok(None),
        Value::Object(members) => match stored_point(value)? {
            None => fail("`lat` and `lng` are missing", value),
            Some(_) if members.len() > 2 => fail("it has other members", value),
            point => Ok(point),
        },
        _ => fail("it is not an object", value),
    }
}

/// One document in a geo sort: its distance in metres, and its number, whose order is the last tie-break.
pub type Distance<D> = (f64, D);

/// Groups documents into the buckets of a geo sort, in order. Within a bucket they are equal for the later rules; the first
/// one of each is the one that the others are near to. `candidates` says how many documents the whole sort is over.
///
/// Walking the documents by distance, one that is within a metre of the *first* of the current bucket joins it.
pub fn sort_buckets<D: Ord + Copy>(documents: &[Distance<D>], descending: bool, candidates: usize) -> Vec<Vec<D>> {
    let mut walk: Vec<(f64, D)> = documents.to_vec();
    if candidates < EXACT_WALK_CANDIDATES {
        walk.sort_by(|a, b| a.0.trunc().total_cmp(&b.0.trunc()).then(a.1.cmp(&b.1)));
    } else {
        walk.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    }
    if descending {
        walk.reverse();
    }
    let mut buckets: Vec<Vec<D>> = Vec::new();
    let mut first = f64::NEG_INFINITY;
    for (distance, doc) in walk {
        match buckets.last_mut() {
            Some(bucket) if (distance - first).abs() <= BUCKET_METRES && bucket.len() < BUCKET_DOCUMENTS_MAX => {
                bucket.push(doc);
            }
            _ => {
                first = distance;
                buckets.push(vec![doc]);
            }
        }
    }
    buckets
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const LILLE: GeoPoint = GeoPoint { lat: 50.6299, lng: 3.0569 };
    const PARIS: GeoPoint = GeoPoint { lat: 48.8566, lng: 2.3522 };

    #[test]
    fn distances_are_great_circles_to_the_millimetre() {
        assert_eq!(LILLE.distance_m(LILLE), 0.0);
        assert_eq!(LILLE.distance_m(PARIS), PARIS.distance_m(LILLE));
        assert!((203_000.0..205_000.0).contains(&LILLE.distance_m(PARIS)));
        let antipodes = GeoPoint { lat: 0.0, lng: 0.0 }.distance_m(GeoPoint { lat: 0.0, lng: 180.0 });
        assert!((antipodes - std::f64::consts::PI * EARTH_RADIUS_M).abs() < 0.001);
    }

    #[test]
    fn boxes_may_cross_the_antimeridian() {
        let at = |lat, lng| GeoPoint { lat, lng };
        let pacific = GeoBox { top_right: at(10.0, -170.0), bottom_left: at(-10.0, 170.0) };
        assert!(pacific.contains(at(0.0, 175.0)) && pacific.contains(at(0.0, -175.0)));
        assert!(pacific.contains(at(10.0, 170.0)) && !pacific.contains(at(0.0, 0.0)));
        let africa = GeoBox { top_right: at(10.0, 20.0), bottom_left: at(-10.0, 0.0) };
        assert!(africa.contains(at(0.0, 0.0)) && !africa.contains(at(0.0, 21.0)) && !africa.contains(at(11.0, 1.0)));
    }

    #[test]
    fn a_documents_point_is_null_or_exactly_two_finite_numbers() {
        assert_eq!(check_point(&json!(null)), Ok(None));
        assert_eq!(check_point(&json!({"lat": "1.5", "lng": 91})), Ok(Some(GeoPoint { lat: 1.5, lng: 91.0 })));
        assert_eq!(check_point(&json!({"lat": 91, "lng": "1.5"})), Ok(Some(GeoPoint { lat: 91.0, lng: 1.5 })));
        assert_eq!(check_point(&json!({"lng": -200.0, "lat": 0})), Ok(Some(GeoPoint { lat: 0.0, lng: -200.0 })));
        for bad in [
            json!("x"),
            json!("1,2"),
            json!([1, 2]),
            json!({"lat": null, "lng": 1}),
            json!({"lat": "x", "lng": 1}),
            json!([{"lat": 1, "lng": 2}]),
            json!({}),
            json!({"lat": 1}),
            json!({"lat": " 1", "lng": 1}),
            json!({"lat": "inf", "lng": 1}),
            json!({"lat": 1, "lng": true}),
            json!({"lat": 1, "lng": 2, "alt": 3}),
        ] {
            assert_eq!(check_point(&bad).map_err(|error| error.code), Err("invalid_document_geo_field"), "{bad}");
        }
    }

    /// Buckets are measured from their first member, not from the neighbour: 0.0, 0.8 and 1.6 are two buckets, cut
    /// differently in either direction.
    #[test]
    fn a_bucket_reaches_one_metre_from_its_first_member() {
        let documents = [(1.6, 3), (0.0, 1), (0.8, 2)];
        assert_eq!(sort_buckets(&documents, false, 3), [vec![1, 2], vec![3]]);
        assert_eq!(sort_buckets(&documents, true, 3), [vec![3, 2], vec![1]]);
        // Few candidates are walked by whole metres.
        assert_eq!(sort_buckets(&[(0.5, 1), (0.1, 2)], false, 2), [vec![1, 2]]);
        assert_eq!(sort_buckets(&[(0.5, 1), (0.1, 2)], false, 1000), [vec![2, 1]]);
    }
}
