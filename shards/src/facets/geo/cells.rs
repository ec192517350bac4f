//! A grid over the globe, so that a filter examines only documents near its target.
//!
//! The plane of longitudes and latitudes is repeatedly halved in both directions; a *cell* of level n is one of the 4^n pieces. A
//! document is indexed under the smallest cells of which at most four cover its bounding box. Cells are numbered along a Z-curve,
//! each like the first of its finest parts, so that all parts of a cell are adjacent in key order.

use smallvec::SmallVec;

/// Level of the finest cells: 1/65,536 of a turn wide, about 600 metres at the equator.
const LEVEL_MAX: u8 = 16;

/// Columns of finest cells, and rows.
pub const COLUMNS: u32 = 1 << LEVEL_MAX;

/// A request is covered with about this many cells; with more of them fewer documents outside are looked at.
pub const COVER_CELLS: usize = 24;

/// A rectangle of longitudes and latitudes, edges included; never crosses the antimeridian.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Least longitude.
    pub west: f64,
    /// Least latitude.
    pub south: f64,
    /// Greatest longitude.
    pub east: f64,
    /// Greatest latitude.
    pub north: f64,
}

impl Bounds {
    /// The usual ranges.
    pub const GLOBE: Self = Self { west: -180.0, south: -90.0, east: 180.0, north: 90.0 };

    /// The rectangle of one point.
    pub fn of_point(lng: f64, lat: f64) -> Self {
        Self { west: lng, south: lat, east: lng, north: lat }
    }

    /// Whether the rectangles share a point.
    pub fn meets(&self, other: &Self) -> bool {
        self.west <= other.east && other.west <= self.east && self.south <= other.north && other.south <= self.north
    }

    /// Whether `other` lies within this one.
    pub fn covers(&self, other: &Self) -> bool {
        self.west <= other.west && other.east <= self.east && self.south <= other.south && other.north <= self.north
    }

    /// The least rectangle around both.
    pub fn around(&self, other: &Self) -> Self {
        Self {
            west: self.west.min(other.west),
            south: self.south.min(other.south),
            east: self.east.max(other.east),
            north: self.north.max(other.north),
        }
    }

    /// Columns and rows of the finest cells of which every point within the usual ranges lies in the rectangle; `None` when there are
    /// none. Columns and rows never fall with rising longitudes and latitudes: whatever lies in a later column than the western edge
    /// is east of that.
    pub(super) fn inner_grid(&self) -> Option<Grid> {
        let Grid { columns, rows } = self.grid();
        let last = (1 << LEVEL_MAX) - 1;
        let inner = |(first, end): (u32, u32), (is_first, is_last): (bool, bool)| {
            let from = if is_first { 0 } else { first + 1 };
            let to = if is_last { last } else { end.checked_sub(1)? };
            (from <= to).then_some((from, to))
        };
        let (globe, west_east) = (Self::GLOBE, (self.west <= Self::GLOBE.west, self.east >= Self::GLOBE.east));
        let columns = inner(columns, west_east)?;
        let rows = inner(rows, (self.south <= globe.south, self.north >= globe.north))?;
        Some(Grid { columns, rows })
    }

    /// Columns and rows of the finest cells that are touched: first and last of each. What a request has outside of the usual
    /// ranges counts at the edge.
    pub(super) fn grid(&self) -> Grid {
        let steps = f64::from(1u32 << LEVEL_MAX);
        // The cast cuts off fractions and what is too large; the greatest longitude and latitude belong to the last cell.
        let step = |part: f64| (part * steps).clamp(0.0, steps - 1.0) as u32;
        let (column, row) = (|lng: f64| step((lng + 180.0) / 360.0), |lat: f64| step((lat + 90.0) / 180.0));
        Grid { columns: (column(self.west), column(self.east)), rows: (row(self.south), row(self.north)) }
    }
}

/// The column and the row of a finest cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spot {
    /// From the west.
    pub column: u16,
    /// From the south.
    pub row: u16,
}

/// A rectangle of finest cells: the first and the last of its columns and rows.
#[derive(Clone, Copy)]
pub(super) struct Grid {
    pub columns: (u32, u32),
    pub rows: (u32, u32),
}

impl Grid {
    /// Whether `other` lies within this one.
    pub fn covers(&self, other: &Self) -> bool {
        let inside = |outer: (u32, u32), inner: (u32, u32)| outer.0 <= inner.0 && inner.1 <= outer.1;
        inside(self.columns, other.columns) && inside(self.rows, other.rows)
    }

    fn meets(&self, other: &Self) -> bool {
        let meets = |a: (u32, u32), b: (u32, u32)| a.0 <= b.1 && b.0 <= a.1;
        meets(self.columns, other.columns) && meets(self.rows, other.rows)
    }

    /// Whether a cell lies within it.
    pub fn holds(&self, spot: Spot) -> bool {
        let inside = |(first, last): (u32, u32), at: u16| (first..=last).contains(&u32::from(at));
        inside(self.columns, spot.column) && inside(self.rows, spot.row)
    }

    /// Which of up to 64 cells lie within it, a bit for each.
    pub fn held(&self, spots: &[Spot]) -> u64 {
        /// Moves the lowest bits of eight bytes together in the highest byte.
        const TOGETHER: u64 = 0x0102_0408_1020_4080;
        // Numbers of 16 bits and bytes, of which processors compare many at once.
        let (column, columns) = (self.columns.0 as u16, (self.columns.1 - self.columns.0) as u16);
        let (row, rows) = (self.rows.0 as u16, (self.rows.1 - self.rows.0) as u16);
        let mut held = [0u8; 64];
        for (held, spot) in held.iter_mut().zip(spots) {
            let inside = spot.column.wrapping_sub(column) <= columns && spot.row.wrapping_sub(row) <= rows;
            *held = u8::from(inside);
        }
        let words = held.as_chunks::<8>().0.iter().enumerate();
        words.fold(0, |bits, (at, word)| bits | u64::from_le_bytes(*word).wrapping_mul(TOGETHER) >> 56 << (8 * at))
    }
}

/// One cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// The number of its first finest part on the Z-curve.
    pub code: u32,
    /// From 0, the whole globe, to [`LEVEL_MAX`].
    pub level: u8,
}

impl Cell {
    /// The whole globe.
    pub const WHOLE: Self = Self { code: 0, level: 0 };

    /// The cell of a number and a level, as they are stored; `None` where there is no such level.
    pub fn stored(code: u32, level: u8) -> Option<Self> {
        (level <= LEVEL_MAX).then_some(Self { code, level })
    }

    /// The whole globe's first part for the whole globe, else the cell.
    pub fn below_whole(self) -> Self {
        Self { level: self.level.max(1), ..self }
    }

    /// Whether a point is under this cell because it lies in it: those out of the usual ranges are under the whole globe.
    pub fn holds_points(self) -> bool {
        self.level == LEVEL_MAX
    }

    fn at(level: u8, column: u32, row: u32) -> Self {
        let shift = LEVEL_MAX - level;
        Self { code: spread(column << shift) | spread(row << shift) << 1, level }
    }

    /// The number of the last of its finest parts.
    pub fn last_code(self) -> u32 {
        // As many as there are finest parts, less one; the whole globe has all numbers.
        let parts_less_one = u32::MAX.checked_shr(2 * u32::from(self.level)).unwrap_or(0);
        self.code | parts_less_one
    }

    pub(super) fn grid(self) -> Grid {
        let last = self.last_code();
        Grid { columns: (gather(self.code), gather(last)), rows: (gather(self.code >> 1), gather(last >> 1)) }
    }

    /// Where a finest cell is; of others, where their first part is.
    pub fn spot(self) -> Spot {
        Spot { column: gather(self.code) as u16, row: gather(self.code >> 1) as u16 }
    }

    /// The cell around this one, one level up.
    pub(super) fn parent(self) -> Option<Self> {
        let level = self.level.checked_sub(1)?;
        let kept = u32::MAX.checked_shl(32 - 2 * u32::from(level)).unwrap_or(0);
        Some(Self { code: self.code & kept, level })
    }

    fn children(self) -> impl Iterator<Item = Self> {
        let level = self.level + 1;
        (0..4u32).map(move |part| Self { code: self.code | part << (32 - 2 * u32::from(level)), level })
    }
}

/// The even bits of `value` moved apart: its 16 low bits at the places 0, 2, 4 and so on.
fn spread(value: u32) -> u32 {
    let mut bits = value & 0xffff;
    for (shift, mask) in [(8, 0x00ff_00ff), (4, 0x0f0f_0f0f), (2, 0x3333_3333), (1, 0x5555_5555)] {
        bits = (bits | bits << shift) & mask;
    }
    bits
}

/// The bits at the places 0, 2, 4 and so on, moved together.
fn gather(value: u32) -> u32 {
    let mut bits = value & 0x5555_5555;
    for (shift, mask) in [(1, 0x3333_3333), (2, 0x0f0f_0f0f), (4, 0x00ff_00ff), (8, 0x0000_ffff)] {
        bits = (bits | bits >> shift) & mask;
    }
    bits
}

/// The cells under which a document with these bounds is found: at most four, of the finest level where that suffices. What
/// reaches out of the usual ranges lies under the whole globe, where every request finds it: a point at 200 degrees is near one
/// at -160.
pub fn cells_of(bounds: &Bounds) -> SmallVec<[Cell; 4]> {
    if !Bounds::GLOBE.covers(bounds) {
        return SmallVec::from_slice(&[Cell::WHOLE]);
    }
    let Grid { columns, rows } = bounds.grid();
    for level in (0..=LEVEL_MAX).rev() {
        let shift = LEVEL_MAX - level;
        let (west, east, south, north) = (columns.0 >> shift, columns.1 >> shift, rows.0 >> shift, rows.1 >> shift);
        if east - west <= 1 && north - south <= 1 {
            return (south..=north)
                .flat_map(|row| (west..=east).map(move |column| Cell::at(level, column, row)))
                .collect();
        }
    }
    SmallVec::from_slice(&[Cell::WHOLE])
}

/// Where documents that may meet a request are found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cover {
    /// Cells whose every part counts.
    pub wholes: Vec<Cell>,
    /// Cells around those: only what lies under them themselves, not under their parts.
    pub around: Vec<Cell>,
}

/// Covers rectangles with cells.
pub fn cover(rectangles: &[Bounds]) -> Cover {
    cover_with(rectangles, COVER_CELLS)
}

/// As [`cover`], each with about so many cells.
pub fn cover_with(rectangles: &[Bounds], cells: usize) -> Cover {
    let mut wholes: Vec<Cell> = rectangles.iter().flat_map(|bounds| cover_one(bounds, cells)).collect();
    wholes.sort_unstable();
    wholes.dedup();
    // A cell sorts before its parts, which are in it already.
    wholes.dedup_by(|part, whole| whole.level <= part.level && part.code <= whole.last_code());
    let mut around: Vec<Cell> =
        wholes.iter().flat_map(|cell| std::iter::successors(cell.parent(), |cell| cell.parent())).collect();
    around.sort_unstable();
    around.dedup();
    Cover { wholes, around }
}

fn cover_one(bounds: &Bounds, cells: usize) -> Vec<Cell> {
    let wanted = bounds.grid();
    let mut done = Vec::new();
    let mut open = std::collections::VecDeque::from([Cell::WHOLE]);
    while done.len() + open.len() < cells
        && let Some(cell) = open.pop_front()
    {
        if cell.level == LEVEL_MAX || wanted.covers(&cell.grid()) {
            done.push(cell);
            continue;
        }
        open.extend(cell.children().filter(|child| child.grid().meets(&wanted)));
    }
    done.extend(open);
    done
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bounds() -> impl Strategy<Value = Bounds> {
        let size = prop_oneof![Just(0.0), 0.0..0.01f64, 0.0..3.0f64, 0.0..360.0f64];
        (-200.0..200.0f64, -100.0..100.0f64, size.clone(), size).prop_map(|(west, south, width, height)| Bounds {
            west,
            south,
            east: west + width,
            north: south + height,
        })
    }

    fn is_found(cover: &Cover, cell: Cell) -> bool {
        cover.around.contains(&cell)
            || cover
                .wholes
                .iter()
                .any(|whole| whole.level <= cell.level && (whole.code..=whole.last_code()).contains(&cell.code))
    }

    proptest! {
        /// What meets a request is found under one of the cells that cover the request.
        #[test]
        fn whatever_meets_a_rectangle_is_under_its_cells(document in bounds(), requests in proptest::collection::vec(bounds(), 1..3)) {
            let cells = cells_of(&document);
            prop_assert!((1..=4).contains(&cells.len()));
            let cover = cover(&requests);
            if requests.iter().any(|request| request.meets(&document)) {
                prop_assert!(cells.iter().any(|cell| is_found(&cover, *cell)), "{:?} {:?}", cells, cover);
            }
        }

        #[test]
        fn a_cell_knows_its_parts(column in 0..1u32 << 16, row in 0..1u32 << 16, level in 0..LEVEL_MAX) {
            let finest = Cell::at(LEVEL_MAX, column, row);
            prop_assert_eq!((gather(finest.code), gather(finest.code >> 1)), (column, row));
            let shift = LEVEL_MAX - level;
            let cell = Cell::at(level, column >> shift, row >> shift);
            prop_assert!((cell.code..=cell.last_code()).contains(&finest.code));
            let children: Vec<Cell> = cell.children().collect();
            prop_assert!(children.iter().all(|child| child.parent() == Some(cell)));
            prop_assert_eq!(children[3].last_code(), cell.last_code());
        }
    }

    #[test]
    fn small_things_lie_under_small_cells() {
        assert_eq!(cells_of(&Bounds::of_point(2.35, 48.85)).len(), 1);
        assert_eq!(cells_of(&Bounds::of_point(2.35, 48.85))[0].level, LEVEL_MAX);
        let france = Bounds { west: -5.0, south: 42.0, east: 8.0, north: 51.0 };
        assert!(cells_of(&france).iter().all(|cell| (3..8).contains(&cell.level)));
        // Across the middle of the globe, where cells of every level part.
        assert_eq!(cells_of(&Bounds { west: -0.001, south: -0.001, east: 0.001, north: 0.001 }).len(), 4);
        let cover = cover(&[Bounds { west: 2.3, south: 48.8, east: 2.4, north: 48.9 }]);
        assert!(!is_found(&cover, cells_of(&Bounds::of_point(3.5, 48.85))[0]), "a neighbour is not looked at");
    }
}
