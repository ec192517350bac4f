//! Tests in steps whether areas and lines intersect, because both may have very many edges.

use geo::algorithm::{BoundingRect, Intersects};
use geo::{Line, LineString, Polygon, Rect};
use storage_engine::vector::Pace;

use crate::runtime::pause_at;

/// Edges looked at, or pairs of edges, between two looks at whether others wait.
const EDGES_PER_LOOK: usize = if cfg!(test) { 8 } else { 4096 };

/// Whether an area and a line share a point, just as [`Intersects`] says at once. Where no edges meet, the line lies within or
/// without, as any of its points does.
pub async fn area_meets_line(area: &Polygon, line: &LineString, pace: &dyn Pace) -> bool {
    let Some(first) = line.0.first() else { return false };
    if lie_apart(area, line) {
        return false;
    }
    if area.intersects(first) {
        return true;
    }
    for ring in std::iter::once(area.exterior()).chain(area.interiors()) {
        if edges_meet(line, ring, pace).await {
            return true;
        }
    }
    false
}

/// Whether two areas share a point. Where no edges meet, one lies within the other or they lie apart, as a corner of each tells.
/// The holes of both need not be compared: areas that meet there also meet elsewhere.
pub async fn areas_meet(one: &Polygon, other: &Polygon, pace: &dyn Pace) -> bool {
    if lie_apart(one, other) {
        return false;
    }
    let within =
        |inner: &Polygon, outer: &Polygon| inner.exterior().0.first().is_some_and(|corner| outer.intersects(corner));
    if within(one, other) || within(other, one) || edges_meet(one.exterior(), other.exterior(), pace).await {
        return true;
    }
    for hole in one.interiors() {
        if rings_meet(other.exterior(), hole, pace).await {
            return true;
        }
    }
    for hole in other.interiors() {
        if rings_meet(one.exterior(), hole, pace).await {
            return true;
        }
    }
    false
}

/// Whether the least rectangles around both share no point. Holes do not widen them: what reaches out of its area is not met
/// there.
fn lie_apart<B: BoundingRect<f64, Output = Option<Rect>>>(one: &Polygon, other: &B) -> bool {
    match (one.bounding_rect(), other.bounding_rect()) {
        (Some(around_one), Some(around_other)) => !around_one.intersects(&around_other),
        _ => false,
    }
}

/// A ring of a single position has no edges, but that position is in it.
async fn rings_meet(one: &LineString, other: &LineString, pace: &dyn Pace) -> bool {
    if one.0.len() == 1 || other.0.len() == 1 { one.intersects(other) } else { edges_meet(one, other, pace).await }
}

/// An edge with the least rectangle around it.
type Edge = (Line, Rect);

async fn edges_meet(one: &LineString, other: &LineString, pace: &dyn Pace) -> bool {
    let (Some(around_one), Some(around_other)) = (one.bounding_rect(), other.bounding_rect()) else { return false };
    if !around_one.intersects(&around_other) {
        return false;
    }
    let one = edges_within(one, &around_other, pace).await;
    let other = edges_within(other, &around_one, pace).await;
    let mut slices = 0;
    for (line, around) in &one {
        let meets = |(other, around_other): &Edge| around.intersects(around_other) && line.intersects(other);
        for slice in other.chunks(EDGES_PER_LOOK) {
            if slice.iter().any(meets) {
                return true;
            }
            // Short slices are looked at together.
            pause_at(slices, EDGES_PER_LOOK / slice.len(), pace).await;
            slices += 1;
        }
    }
    false
}

/// The edges that may share a point with something in the rectangle.
async fn edges_within(line: &LineString, rectangle: &Rect, pace: &dyn Pace) -> Vec<Edge> {
    let mut edges = Vec::new();
    for (at, edge) in line.lines().enumerate() {
        let around = edge.bounding_rect();
        if around.intersects(rectangle) {
            edges.push((edge, around));
        }
        pause_at(at, EDGES_PER_LOOK, pace).await;
    }
    edges
}

#[cfg(test)]
mod tests {
    use futures_lite::future::block_on;
    use geo::Coord;
    use proptest::prelude::*;
    use storage_engine::vector::Unpaced;

    use super::*;

    /// Mostly on a grid, where edges touch and lie on each other.
    fn coordinate() -> impl Strategy<Value = f64> {
        prop_oneof![
            4 => (-4..=4i8).prop_map(f64::from),
            1 => (-12..=12i8).prop_map(|thirds| f64::from(thirds) / 3.0),
            1 => -4.0..4.0f64,
        ]
    }

    fn line(positions: std::ops::Range<usize>) -> impl Strategy<Value = LineString> {
        let position = (coordinate(), coordinate()).prop_map(|(x, y)| Coord { x, y });
        proptest::collection::vec(position, positions).prop_map(LineString)
    }

    fn rectangle() -> impl Strategy<Value = Rect> {
        let corner = || (coordinate(), coordinate());
        (corner(), corner()).prop_map(|(one, other)| Rect::new(one, other))
    }

    fn area() -> impl Strategy<Value = Polygon> {
        let any = (line(0..8), proptest::collection::vec(line(1..6), 0..3));
        // What lies in a hole of it is not met.
        let frame = (rectangle(), 0..4i8).prop_map(|(hole, width)| {
            let by = f64::from(width);
            let (least, most) = (hole.min(), hole.max());
            let around = Rect::new((least.x - by, least.y - by), (most.x + by, most.y + by));
            Polygon::new(around.to_polygon().exterior().clone(), vec![hole.to_polygon().exterior().clone()])
        });
        prop_oneof![
            any.prop_map(|(around, holes)| Polygon::new(around, holes)),
            rectangle().prop_map(|rectangle| rectangle.to_polygon()),
            frame,
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        /// Holes may reach out of their areas and rings be single positions: what documents hold is not checked for that.
        #[test]
        fn areas_meet_in_steps_as_at_once(one in area(), other in area()) {
            prop_assert_eq!(block_on(areas_meet(&one, &other, &Unpaced)), one.intersects(&other));
            prop_assert_eq!(block_on(areas_meet(&other, &one, &Unpaced)), other.intersects(&one));
        }

        #[test]
        fn lines_meet_areas_in_steps_as_at_once(area in area(), line in line(0..9)) {
            prop_assert_eq!(block_on(area_meets_line(&area, &line, &Unpaced)), area.intersects(&line));
        }
    }
}
