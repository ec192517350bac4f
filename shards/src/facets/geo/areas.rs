//! What the finest [cells](super::cells) tell of the points in them: that they lie in an area, that they do not, or nothing.

use smallvec::SmallVec;

use super::cells::{Bounds, COLUMNS, Cell, Grid, Spot};
use super::{EARTH_RADIUS_M, GeoBox, GeoPoint, around};

/// What a cell tells of the points within the usual ranges that lie in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lies {
    /// All of them are in the area.
    Inside,
    /// None is.
    Outside,
    /// Each has to be looked at.
    Unknown,
}

/// An area of points, told apart by cells first.
pub trait Area {
    /// Rectangles that hold all points of the area that are within the usual ranges.
    fn rectangles(&self) -> &[Bounds];

    /// Whether a point is in the area.
    fn holds(&self, point: GeoPoint) -> bool;

    /// Whether all points in a cell, of any level, are in the area; false where that takes long to find out.
    fn holds_cell(&self, cell: Cell) -> bool;

    /// What a finest cell tells.
    fn lies(&self, spot: Spot) -> Lies;

    /// The same for up to 64 cells: a bit for each that is inside, and a bit for each of which that is unknown.
    fn lie(&self, spots: &[Spot]) -> (u64, u64);
}

/// [`Area::lie`] by [`Area::lies`], which is known where this is compiled.
#[inline(always)]
fn lie_one_by_one(spots: &[Spot], lies: impl Fn(Spot) -> Lies) -> (u64, u64) {
    let (mut inside, mut unknown) = (0, 0);
    for (at, spot) in spots.iter().enumerate().take(64) {
        let lies = lies(*spot);
        inside |= u64::from(lies == Lies::Inside) << at;
        unknown |= u64::from(lies == Lies::Unknown) << at;
    }
    (inside, unknown)
}

/// The area of a box.
pub struct BoxArea {
    bounds: GeoBox,
    rectangles: SmallVec<[Bounds; 2]>,
    /// Cells of which every point is in one of the rectangles, and cells that they touch.
    inner: SmallVec<[Grid; 2]>,
    touched: SmallVec<[Grid; 2]>,
}

impl BoxArea {
    /// That of this box.
    pub fn new(bounds: GeoBox) -> Self {
        let rectangles = bounds.bounds();
        let inner = rectangles.iter().filter_map(Bounds::inner_grid).collect();
        let touched = rectangles.iter().map(Bounds::grid).collect();
        Self { bounds, rectangles, inner, touched }
    }
}

impl Area for BoxArea {
    fn rectangles(&self) -> &[Bounds] {
        &self.rectangles
    }

    fn holds(&self, point: GeoPoint) -> bool {
        self.bounds.contains(point)
    }

    fn holds_cell(&self, cell: Cell) -> bool {
        let grid = cell.grid();
        self.inner.iter().any(|area| area.covers(&grid))
    }

    #[inline]
    fn lies(&self, spot: Spot) -> Lies {
        if !self.touched.iter().any(|area| area.holds(spot)) {
            return Lies::Outside;
        }
        if self.inner.iter().any(|area| area.holds(spot)) { Lies::Inside } else { Lies::Unknown }
    }

    fn lie(&self, spots: &[Spot]) -> (u64, u64) {
        let mut touched = 0;
        for area in &self.touched {
            touched |= area.held(spots);
        }
        if touched == 0 {
            return (0, 0);
        }
        let mut inside = 0;
        for area in &self.inner {
            inside |= area.held(spots);
        }
        (inside, touched & !inside)
    }
}

/// Bands of a circle at most: the sines and roots of each take longer than to look at a hundred cells.
const BANDS_MAX: u32 = 256;
/// Distances are exact to a few decimetres where they are greatest.
const MARGIN_M: f64 = 1.0;
/// So near the poles, the meridians are too close to be told apart.
const COSINES_MIN: f64 = 1e-4;

/// The area of a circle.
///
/// The rows of cells are taken together in bands. On a parallel the circle reaches as far to the west of its centre as to the east:
/// the least and the greatest reach of the parallels of a band tell which of its cells are inside and which are outside.
pub struct CircleArea {
    centre: GeoPoint,
    radius_m: f64,
    rectangles: Vec<Bounds>,
    /// The first row of the first band, and the rows of each as a power of two.
    first_row: u32,
    rows_bits: u32,
    bands: Vec<Band>,
}

/// The columns of a band in which cells are inside, and those in which they are not outside. These go around the globe: each is a first
/// one and how many come after it, or -1 where there are none.
#[derive(Clone, Copy)]
struct Band {
    inner: (u16, i32),
    outer: (u16, i32),
}

impl Band {
    const UNKNOWN: Self = Self { inner: (0, -1), outer: (0, COLUMNS as i32 - 1) };
}

impl CircleArea {
    /// That of the circle around this point, which is within the usual ranges.
    pub fn new(centre: GeoPoint, radius_m: f64) -> Self {
        let rectangles = around(centre, radius_m);
        let mut area = Self { centre, radius_m, rectangles, first_row: 0, rows_bits: 0, bands: Vec::new() };
        let rows = area.rectangles.iter().map(|bounds| bounds.grid().rows);
        let Some((first, last)) = rows.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))) else { return area };
        while (last - first) >> area.rows_bits >= BANDS_MAX {
            area.rows_bits += 1;
        }
        area.first_row = first;
        let starts = (first..=last).step_by(1 << area.rows_bits);
        area.bands = starts.map(|start| area.band(start, (start + (1 << area.rows_bits)).min(COLUMNS))).collect();
        area
    }

    /// The band of these rows, the second of which is behind the last.
    fn band(&self, from: u32, before: u32) -> Band {
        let parallel = |row: u32| (f64::from(row) / f64::from(COLUMNS) * 180.0 - 90.0).to_radians();
        let (south, north, lat) = (parallel(from), parallel(before), self.centre.lat.to_radians());
        if south.cos().min(north.cos()) * lat.cos() < COSINES_MIN {
            return Band::UNKNOWN;
        }
        let reach = |radius_m: f64, greatest: bool| {
            let radius = radius_m / EARTH_RADIUS_M;
            if radius < 0.0 {
                return None;
            }
            if radius >= std::f64::consts::PI {
                return Some(180.0);
            }
            // Where a meridian touches the circle, which reaches least or farthest there.
            let touches = (lat.sin() / radius.cos()).clamp(-1.0, 1.0).asin().clamp(south, north);
            let mut found: Option<f64> = None;
            // A small circle may meet no parallel of these but that of its centre.
            for parallel in [south, touches, lat.clamp(south, north), north] {
                let haversine = (radius / 2.0).sin().powi(2) - ((parallel - lat) / 2.0).sin().powi(2);
                let squared = haversine / (parallel.cos() * lat.cos());
                let reach = (squared >= 0.0).then(|| 2.0 * squared.min(1.0).sqrt().asin().to_degrees());
                match (reach, greatest) {
                    (None, false) => return None,
                    (None, true) => {}
                    (Some(reach), true) => found = Some(found.map_or(reach, |found| found.max(reach))),
                    (Some(reach), false) => found = Some(found.map_or(reach, |found| found.min(reach))),
                }
            }
            found
        };
        let (least, greatest) = (reach(self.radius_m - MARGIN_M, false), reach(self.radius_m + MARGIN_M, true));
        let columns = f64::from(COLUMNS);
        let column = |degrees: f64| (degrees + 180.0) / 360.0 * columns;
        let (west, east) = (|reach| column(self.centre.lng - reach), |reach| column(self.centre.lng + reach));
        // A cell more than need be at either end, or less.
        let inner = least.map_or((0, -1), |least| {
            if least >= 180.0 {
                return (0, COLUMNS as i32 - 1);
            }
            let (first, last) = (west(least).floor() as i32 + 2, east(least).floor() as i32 - 2);
            (first.rem_euclid(COLUMNS as i32) as u16, (last - first).max(-1))
        });
        let outer = greatest.map_or((0, -1), |greatest| {
            let (first, last) = (west(greatest).floor() as i32 - 1, east(greatest).floor() as i32 + 1);
            if last - first >= COLUMNS as i32 - 1 {
                return (0, COLUMNS as i32 - 1);
            }
            (first.rem_euclid(COLUMNS as i32) as u16, last - first)
        });
        Band { inner, outer }
    }

    #[inline(always)]
    fn told(&self, spot: Spot) -> Lies {
        let band = u32::from(spot.row).wrapping_sub(self.first_row) >> self.rows_bits;
        let Some(band) = self.bands.get(band as usize) else { return Lies::Outside };
        let within = |(first, after): (u16, i32)| i32::from(spot.column.wrapping_sub(first)) <= after;
        match (within(band.inner), within(band.outer)) {
            (true, _) => Lies::Inside,
            (_, true) => Lies::Unknown,
            _ => Lies::Outside,
        }
    }
}

impl Area for CircleArea {
    fn rectangles(&self) -> &[Bounds] {
        &self.rectangles
    }

    fn holds(&self, point: GeoPoint) -> bool {
        self.centre.distance_m(point) <= self.radius_m
    }

    fn holds_cell(&self, _: Cell) -> bool {
        false
    }

    fn lies(&self, spot: Spot) -> Lies {
        self.told(spot)
    }

    fn lie(&self, spots: &[Spot]) -> (u64, u64) {
        lie_one_by_one(spots, |spot| self.told(spot))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::facets::geo::MERIDIAN_M;
    use crate::facets::geo::cells::cells_of;

    /// Points of all kinds, many of them at the poles, the equator and the antimeridian.
    fn point() -> impl Strategy<Value = GeoPoint> {
        let lat =
            prop_oneof![4 => -90.0..=90.0f64, 1 => Just(90.0), 1 => Just(-90.0), 1 => Just(0.0), 1 => 89.9..=90.0f64];
        let lng = prop_oneof![4 => -180.0..=180.0f64, 1 => Just(180.0), 1 => Just(-180.0), 1 => 179.99..=180.0f64];
        (lat, lng).prop_map(|(lat, lng)| GeoPoint { lat, lng })
    }

    /// A point at a distance and in a direction.
    fn beyond(from: GeoPoint, metres: f64, bearing: f64) -> GeoPoint {
        let (lat, angle) = (from.lat.to_radians(), metres / EARTH_RADIUS_M);
        let sine = (lat.sin() * angle.cos() + lat.cos() * angle.sin() * bearing.cos()).clamp(-1.0, 1.0);
        let turn = (bearing.sin() * angle.sin() * lat.cos()).atan2(angle.cos() - lat.sin() * sine);
        let lng = (from.lng + turn.to_degrees() + 540.0).rem_euclid(360.0) - 180.0;
        GeoPoint { lat: sine.asin().to_degrees().clamp(-90.0, 90.0), lng: lng.clamp(-180.0, 180.0) }
    }

    fn check(area: &dyn Area, points: &[GeoPoint]) -> Result<(), TestCaseError> {
        let spot = |point: &GeoPoint| cells_of(&Bounds::of_point(point.lng, point.lat))[0].spot();
        let spots: Vec<Spot> = points.iter().map(spot).collect();
        let (inside, unknown) = area.lie(&spots);
        prop_assert_eq!(inside & unknown, 0);
        for (at, point) in points.iter().enumerate() {
            let lies = area.lies(spots[at]);
            prop_assert_eq!(lies == Lies::Inside, inside >> at & 1 == 1);
            prop_assert_eq!(lies == Lies::Unknown, unknown >> at & 1 == 1);
            match lies {
                Lies::Inside => prop_assert!(area.holds(*point), "{:?}", point),
                Lies::Outside => prop_assert!(!area.holds(*point), "{:?}", point),
                Lies::Unknown => {}
            }
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        /// What a cell tells of its points is true of each of them, near the edge of a circle, too.
        #[test]
        fn cells_tell_the_points_of_circles_apart(
            centre in point(),
            radius in prop_oneof![Just(0.0), 0.0..2000.0f64, 0.0..300_000.0f64, 0.0..MERIDIAN_M * 1.01, Just(MERIDIAN_M / 2.0), Just(-1.0)],
            others in proptest::collection::vec(point(), 20),
            edges in proptest::collection::vec((-2000.0..2000.0f64, 0.0..7.0f64), 40),
        ) {
            let area = CircleArea::new(centre, radius);
            let at_edge = edges.iter().map(|(off, bearing)| beyond(centre, (radius + off).max(0.0), *bearing));
            check(&area, &others.into_iter().chain(at_edge).chain([centre]).collect::<Vec<_>>())?;
        }

        #[test]
        fn cells_tell_the_points_of_boxes_apart(a in point(), b in point(), others in proptest::collection::vec(point(), 40)) {
            let area = BoxArea::new(GeoBox { top_right: GeoPoint { lat: a.lat.max(b.lat), ..a }, bottom_left: GeoPoint { lat: a.lat.min(b.lat), ..b } });
            let corners = [a, b, GeoPoint { lat: a.lat, lng: b.lng }, GeoPoint { lat: b.lat, lng: a.lng }];
            let at_edge = others.iter().flat_map(|other| [GeoPoint { lat: a.lat, ..*other }, GeoPoint { lng: b.lng, ..*other }]);
            check(&area, &others[..10].iter().copied().chain(corners).chain(at_edge.take(40)).collect::<Vec<_>>())?;
            for point in &others {
                let cell = cells_of(&Bounds::of_point(point.lng, point.lat))[0];
                let around = std::iter::successors(Some(cell), |cell| cell.parent()).skip(3).step_by(3);
                prop_assert!(around.into_iter().all(|cell| !area.holds_cell(cell) || area.holds(*point)));
            }
        }
    }

    /// Most cells tell: those of a wide band at the edge do not.
    #[test]
    fn few_cells_are_unknown() {
        let cells = |area: &dyn Area| {
            let all = (0..=u16::MAX)
                .step_by(64)
                .flat_map(|row| (0..=u16::MAX).step_by(64).map(move |column| Spot { column, row }));
            all.map(|spot| area.lies(spot)).fold([0, 0, 0], |mut counts, lies| {
                counts[lies as usize] += 1;
                counts
            })
        };
        let centre = GeoPoint { lat: 40.0, lng: 170.0 };
        let [inside, outside, unknown] = cells(&CircleArea::new(centre, 3_000_000.0));
        assert!(inside > 40_000 && outside > 900_000 && unknown < inside / 40, "{inside} {outside} {unknown}");
    }
}
