//! Evaluates a filter on one partition.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::hash_map::Entry;

use ahash::AHashMap;
use futures_util::future::LocalBoxFuture;
use roaring::RoaringBitmap;
use storage_engine::vector::Pace;

use super::Filter;
use super::check::SHARD;
use super::ranges::{PendingOf, PendingRanges, Range, within_all, within_any};
use super::tree::{Comparison, GeoTest, Node, Operator, Test};
use crate::error::UserError;
use crate::facets::columns::{BlockUnion, ColumnError, Columns, Flag};
use crate::facets::geo::areas::{BoxArea, CircleArea};
use crate::facets::geo::shapes::Region;
use crate::facets::geo::{self, GeoBox, GeoPoint};
use crate::facets::normalise::{STRING_BYTES_MAX, normalise, number_bits, parse_number};
use crate::facets::source::{FacetError, FacetSource, in_network_shard};
use crate::ids::FieldId;
use crate::runtime::pause_at;

/// Operators that an attribute does not take are refused with this code on every route.
const OPERATOR_CODE: &str = "invalid_search_filter";

impl Filter {
    /// The local numbers of the documents selected. The attributes must have been checked
    /// ([`check_attributes`](Filter::check_attributes)).
    ///
    /// From left to right: an AND stops once nothing is left, so mistakes to its right go unnoticed; an OR evaluates all of
    /// its members. With several partitions the filter is at fault if it is at fault in one of them.
    pub async fn evaluate(&self, source: &dyn FacetSource, pace: &dyn Pace) -> Result<RoaringBitmap, FacetError> {
        let columns = source.columns().held_by(source.resident_fields());
        Evaluation { source, columns, code: self.code, pace }.node(&self.root).await
    }
}

/// Corners of the polygon that stands for a circle among shapes.
const CIRCLE_CORNERS: f64 = 125.0;

/// Conditions that are passed over between two looks at whether others wait.
const SKIPPED_PER_LOOK: usize = 64;
/// Parts of strings that are looked for at once: so few that their automaton is soon built.
const PARTS_PER_SCAN: usize = 64;

/// The members of a chain that were evaluated: an equal one changes nothing. Two of the same hash may be taken for new ones.
#[derive(Default)]
struct Seen<'n> {
    hasher: ahash::RandomState,
    members: AHashMap<u64, &'n Node>,
}

impl<'n> Seen<'n> {
    fn is_new(&mut self, member: &'n Node) -> bool {
        match self.members.entry(self.hasher.hash_one(member)) {
            Entry::Occupied(known) => *known.get() != member,
            Entry::Vacant(place) => {
                place.insert(member);
                true
            }
        }
    }
}

struct Evaluation<'s> {
    source: &'s dyn FacetSource,
    columns: Columns<'s>,
    code: &'static str,
    pace: &'s dyn Pace,
}

impl Evaluation<'_> {
    fn node<'a>(&'a self, node: &'a Node) -> LocalBoxFuture<'a, Result<RoaringBitmap, FacetError>> {
        Box::pin(async move {
            self.pause().await;
            match node {
                Node::And(members) => self.all(members).await,
                Node::Or(members) => self.any(members).await,
                Node::Not(inner) => Ok(self.source.documents() - self.node(inner).await?),
                Node::Test(test) => self.test(test).await,
                Node::Geo(test) => self.geo(test).await,
                Node::Vectors(test) => self.source.documents_with_vectors(test).map_err(|error| match error {
                    FacetError::User(error) => self.fail(&error.message),
                    other => other,
                }),
            }
        })
    }

    async fn all(&self, members: &[Node]) -> Result<RoaringBitmap, FacetError> {
        // `None`: all documents.
        let mut selected: Option<RoaringBitmap> = None;
        let (mut seen, mut ranges) = (Seen::default(), PendingRanges::default());
        for (at, member) in members.iter().enumerate() {
            if selected.as_ref().is_some_and(RoaringBitmap::is_empty) {
                break;
            }
            if !seen.is_new(member) || self.add_range(member, &mut ranges) {
                pause_at(at + 1, SKIPPED_PER_LOOK, self.pace).await;
                continue;
            }
            // A mistake goes unnoticed where nothing is left before it.
            if !ranges.is_empty() && self.may_fail(member) {
                let narrowed = self.narrowed(selected, &mut ranges).await?;
                if narrowed.is_empty() {
                    return Ok(narrowed);
                }
                selected = Some(narrowed);
            }
            selected = Some(match (selected, member) {
                // Without a set of all other documents for each test.
                (Some(selected), Node::Not(inner)) => selected - self.node(inner).await?,
                (Some(selected), member) => selected & self.node(member).await?,
                (None, member) => self.node(member).await?,
            });
        }
        if members.is_empty() {
            return Ok(RoaringBitmap::new());
        }
        self.narrowed(selected, &mut ranges).await
    }

    /// Those of some documents, or of all, that are in all of the pending ranges.
    async fn narrowed(
        &self,
        selected: Option<RoaringBitmap>,
        ranges: &mut PendingRanges<'_>,
    ) -> Result<RoaringBitmap, FacetError> {
        let mut selected = selected.unwrap_or_else(|| self.source.documents().clone());
        for (field, PendingOf { plain, negated }) in ranges.take() {
            if !selected.is_empty() && !negated.is_empty() {
                selected -= within_any(&self.columns, field, &negated, self.pace).await?;
            }
            selected = within_all(&self.columns, field, &plain, selected, self.pace).await?;
        }
        Ok(selected)
    }

    async fn any(&self, members: &[Node]) -> Result<RoaringBitmap, FacetError> {
        let mut selected = RoaringBitmap::new();
        let (mut seen, mut ranges) = (Seen::default(), PendingRanges::default());
        // By attribute: what values may contain, except the first such part. That one is looked for in its place, and shows that
        // the attribute takes the operator.
        let mut parts: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (at, member) in members.iter().enumerate() {
            if !seen.is_new(member) || self.add_range(member, &mut ranges) {
                pause_at(at + 1, SKIPPED_PER_LOOK, self.pace).await;
                continue;
            }
            if let Node::Test(Test { attribute, operator: Operator::Contains(part) }) = member {
                if let Some(parts) = parts.get_mut(attribute.as_str()) {
                    parts.push(part);
                    pause_at(at + 1, SKIPPED_PER_LOOK, self.pace).await;
                    continue;
                }
                parts.insert(attribute, Vec::new());
            }
            selected |= self.node(member).await?;
        }
        for (attribute, parts) in parts {
            selected |= self.containing_any(attribute, &parts).await?;
        }
        for (field, PendingOf { plain, negated }) in ranges.take() {
            selected |= within_any(&self.columns, field, &plain, self.pace).await?;
            if !negated.is_empty() {
                let documents = self.source.documents();
                selected |=
                    documents - within_all(&self.columns, field, &negated, documents.clone(), self.pace).await?;
            }
        }
        Ok(selected)
    }

    /// Adds a test of a range, or that it does not hold, to those that are evaluated together, unless it is at fault.
    fn add_range<'n>(&self, node: &'n Node, ranges: &mut PendingRanges<'n>) -> bool {
        let (test, is_negated) = match node {
            Node::Test(test) => (test, false),
            Node::Not(inner) => match &**inner {
                Node::Test(test) => (test, true),
                _ => return false,
            },
            _ => return false,
        };
        let Some(range) = Range::of(&test.operator) else { return false };
        let Some(field) = self.tested_field(test).filter(|_| self.check_operator(test).is_ok()) else { return false };
        ranges.add(field, range, is_negated);
        true
    }

    /// Whether something but the partition's file may be wrong with a member.
    fn may_fail(&self, node: &Node) -> bool {
        match node {
            Node::Not(inner) => self.may_fail(inner),
            Node::Test(test) if test.attribute == SHARD => true,
            Node::Test(test) => self.tested_field(test).is_some() && self.check_operator(test).is_err(),
            _ => true,
        }
    }

    /// The field of a test, but of `_shard`. One that no document ever had selects nothing whatever the operator, even `!=`; nor
    /// is the operator looked at.
    fn tested_field(&self, test: &Test) -> Option<FieldId> {
        self.source.fields().id(&test.attribute).filter(|_| !matches!(&*test.attribute, SHARD | "_vectors"))
    }

    /// Lets others have their turn.
    async fn pause(&self) {
        if self.pace.due() {
            self.pace.pause().await;
        }
    }

    async fn test(&self, test: &Test) -> Result<RoaringBitmap, FacetError> {
        if test.attribute == SHARD {
            return self.shard(&test.operator);
        }
        let Some(field) = self.tested_field(test) else { return Ok(RoaringBitmap::new()) };
        self.check_operator(test)?;
        Ok(match &test.operator {
            Operator::Compare(Comparison::Equal, operand) => self.equal(field, operand)?,
            Operator::Compare(Comparison::NotEqual, operand) => self.source.documents() - self.equal(field, operand)?,
            Operator::Compare(..) | Operator::Between(..) => {
                within_any(&self.columns, field, Range::of(&test.operator).as_slice(), self.pace).await?
            }
            Operator::In(operands) => {
                let mut selected = BlockUnion::default();
                for operand in operands {
                    self.pause().await;
                    self.add_equal(field, operand, &mut selected)?;
                }
                selected.finish()
            }
            Operator::Exists => self.columns.flagged(field, Flag::Exists)?,
            Operator::IsNull => self.columns.flagged(field, Flag::Null)?,
            Operator::IsEmpty => self.columns.flagged(field, Flag::Empty)?,
            Operator::Contains(part) => self.columns.with_string_containing(field, &normalise(part), self.pace).await?,
            Operator::StartsWith(prefix) => match normalise(prefix).as_ref() {
                "" => self.columns.flagged(field, Flag::Exists)?,
                prefix => self.columns.with_string_starting(field, prefix, self.pace).await?,
            },
        })
    }

    /// The documents of which a string contains one of these parts. Looks at each value once for many parts together.
    async fn containing_any(&self, attribute: &str, parts: &[&str]) -> Result<RoaringBitmap, FacetError> {
        let mut selected = RoaringBitmap::new();
        let Some(field) = self.source.fields().id(attribute).filter(|_| attribute != "_vectors") else {
            return Ok(selected);
        };
        for parts in parts.chunks(PARTS_PER_SCAN) {
            self.pause().await;
            let parts = parts.iter().map(|part| normalise(part));
            // No value is longer.
            let parts: Vec<Cow<'_, str>> = parts.filter(|part| part.len() <= STRING_BYTES_MAX).collect();
            selected |= self.columns.with_string_containing_any(field, &parts, self.pace).await?;
        }
        Ok(selected)
    }

    /// Whether the settings let this attribute take this operator.
    fn check_operator(&self, test: &Test) -> Result<(), UserError> {
        let features = self.source.settings().filterable(&test.attribute).unwrap_or_default().filter;
        let allowed = match &test.operator {
            Operator::Compare(Comparison::Equal | Comparison::NotEqual, _) | Operator::In(_) => features.equality,
            Operator::Compare(..) | Operator::Between(..) => features.comparison,
            _ => features.equality || features.comparison,
        };
        if allowed {
            return Ok(());
        }
        let message = format!("the filter operator is not allowed for the attribute `{}`", test.attribute);
        Err(UserError::new(OPERATOR_CODE, message))
    }

    fn equal(&self, field: FieldId, operand: &str) -> Result<RoaringBitmap, ColumnError> {
        let mut selected = BlockUnion::default();
        self.add_equal(field, operand, &mut selected)?;
        Ok(selected.finish())
    }

    fn add_equal(&self, field: FieldId, operand: &str, selected: &mut BlockUnion) -> Result<(), ColumnError> {
        self.columns.add_with_string(field, &normalise(operand), selected)?;
        match parse_number(operand) {
            Some(number) => self.columns.add_with_number(field, number_bits(number), selected),
            None => Ok(()),
        }
    }

    /// The documents of network shards, by names that the index knows; one that is held elsewhere has none here.
    fn shard(&self, operator: &Operator) -> Result<RoaringBitmap, FacetError> {
        let refuse = |message: String| FacetError::User(UserError::new(OPERATOR_CODE, message));
        let names = match operator {
            Operator::Compare(Comparison::Equal | Comparison::NotEqual, name) => std::slice::from_ref(name),
            Operator::In(names) => names.as_slice(),
            _ => return Err(refuse("`_shard` only takes the operators `=`, `!=`, `IN` and `NOT IN`".into())),
        };
        let known = &self.source.settings().network_shards;
        let mut selected = RoaringBitmap::new();
        for name in names {
            if !known.contains(name) {
                return Err(refuse(format!("the shard `{name}` does not exist")));
            }
            selected |= in_network_shard(self.source, name)?;
        }
        match operator {
            Operator::Compare(Comparison::NotEqual, _) => Ok(self.source.documents() - selected),
            _ => Ok(selected),
        }
    }

    async fn geo(&self, test: &GeoTest) -> Result<RoaringBitmap, FacetError> {
        let settings = self.source.settings();
        let (points, shapes) = (geo::filters_points(settings), geo::takes_shapes(settings));
        if matches!(test, GeoTest::Polygon(_)) && !shapes {
            return Err(self.fail("`_geoPolygon` needs `_geojson` to be filterable"));
        }
        if !points && !shapes {
            return Err(self.fail("`_geo` and `_geojson` are not filterable"));
        }
        match test {
            GeoTest::Radius { centre, radius_m, resolution } => {
                self.within_radius(*centre, *radius_m, *resolution, (points, shapes)).await
            }
            GeoTest::Box(bounds) => self.within_box(bounds, (points, shapes)).await,
            GeoTest::Polygon(corners) => {
                corners.iter().copied().try_for_each(|corner| self.check_range(corner))?;
                Ok(self.columns.with_shape(&Region::polygon(corners), self.pace).await?)
            }
        }
    }

    /// The documents whose points or shapes touch a circle, as far as these are filterable.
    async fn within_radius(
        &self,
        centre: GeoPoint,
        radius_m: f64,
        resolution: Option<f64>,
        (points, shapes): (bool, bool),
    ) -> Result<RoaringBitmap, FacetError> {
        self.check_range(centre)?;
        if !radius_m.is_finite() {
            return Err(self.fail("the radius of `_geoRadius` is too large a number"));
        }
        let corners = resolution.map_or(CIRCLE_CORNERS, f64::trunc);
        if !(3.0..=1000.0).contains(&corners) {
            return Err(self.fail("the resolution of `_geoRadius` is between 3 and 1000"));
        }
        let mut selected = RoaringBitmap::new();
        if points {
            selected |= self.columns.with_point(&CircleArea::new(centre, radius_m), self.pace).await?;
        }
        if shapes {
            let region = Region::circle(centre, radius_m, corners as usize);
            selected |= self.columns.with_shape(&region, self.pace).await?;
        }
        Ok(selected)
    }

    /// The documents whose points or shapes touch a box, as far as these are filterable.
    async fn within_box(&self, bounds: &GeoBox, (points, shapes): (bool, bool)) -> Result<RoaringBitmap, FacetError> {
        self.check_range(bounds.top_right)?;
        self.check_range(bounds.bottom_left)?;
        if bounds.top_right.lat < bounds.bottom_left.lat {
            return Err(self.fail("the top of a `_geoBoundingBox` must not be below its bottom"));
        }
        let mut selected = RoaringBitmap::new();
        if points {
            selected |= self.columns.with_point(&BoxArea::new(*bounds), self.pace).await?;
        }
        if shapes {
            selected |= self.columns.with_shape(&Region::rectangle(bounds), self.pace).await?;
        }
        Ok(selected)
    }

    fn check_range(&self, point: GeoPoint) -> Result<(), FacetError> {
        if point.is_in_range() {
            return Ok(());
        }
        let GeoPoint { lat, lng } = point;
        Err(self.fail(&format!("`{lat}, {lng}`: latitudes are between -90 and 90, longitudes between -180 and 180")))
    }

    fn fail(&self, message: &str) -> FacetError {
        FacetError::User(UserError::new(self.code, message))
    }
}
