//! The filter language: text to tree. Recursive descent with a depth limit, so no text can exhaust the stack.
//!
//! ```text
//! or      := and { "OR" and }         and := not { "AND" not }      not := "NOT" not | primary
//! primary := "(" or ")" | geo function | _vectors test | value test
//! ```

use storage_engine::vector::Pace;

use super::lexer::Reader;
use super::tree::{Comparison, GeoTest, Node, Operator, SyntaxError, Test, VectorsPart, VectorsTest};
use crate::facets::geo::{GeoBox, GeoPoint};
use crate::query::resolve::rest;

/// Deepest level of the grammar: each OR, AND, NOT and primary entered counts one. It bounds the parser's stack.
const DEPTH_MAX: u32 = 200;

/// Parses one expression; `None` for text of nothing but white space. Lets others have their turn between tests and values of
/// lists, of which a text can have as many as fit into a request.
pub(super) async fn parse(text: &str, pace: &dyn Pace) -> Result<Option<Node>, SyntaxError> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let mut parser = Parser { reader: Reader::new(text), pace };
    let node = parser.or(0).await?;
    if !parser.reader.is_at_end() {
        return Err(parser.reader.error("found unexpected characters at the end of the filter"));
    }
    Ok(Some(node))
}

struct Parser<'t> {
    reader: Reader<'t>,
    pace: &'t dyn Pace,
}

impl Parser<'_> {
    fn check_depth(&self, depth: u32) -> Result<(), SyntaxError> {
        if depth > DEPTH_MAX {
            return Err(self.reader.error("the filter nests too deeply"));
        }
        Ok(())
    }

    async fn or(&mut self, depth: u32) -> Result<Node, SyntaxError> {
        self.check_depth(depth)?;
        let mut members = vec![self.and(depth + 1).await?];
        while self.reader.take_spaced_keyword("OR") {
            members.push(self.and(depth + 1).await?);
        }
        Ok(Node::or(members))
    }

    async fn and(&mut self, depth: u32) -> Result<Node, SyntaxError> {
        self.check_depth(depth)?;
        let mut members = vec![self.not(depth + 1).await?];
        while self.reader.take_spaced_keyword("AND") {
            members.push(self.not(depth + 1).await?);
        }
        Ok(Node::and(members))
    }

    async fn not(&mut self, mut depth: u32) -> Result<Node, SyntaxError> {
        self.check_depth(depth)?;
        let mut negations = 0;
        while self.reader.take_spaced_keyword("NOT") {
            (negations, depth) = (negations + 1, depth + 1);
            self.check_depth(depth)?;
        }
        let node = self.primary(depth + 1).await?;
        Ok((0..negations).fold(node, |node, _| Node::not(node)))
    }

    async fn primary(&mut self, depth: u32) -> Result<Node, SyntaxError> {
        self.check_depth(depth)?;
        rest(self.pace).await;
        self.reader.skip_any_white();
        if self.reader.take("(") {
            let inner = Box::pin(self.or(depth + 1)).await?;
            self.reader.skip_white();
            if !self.reader.take(")") {
                return Err(self.reader.error("expected a closing parenthesis `)`"));
            }
            self.reader.skip_white();
            return Ok(inner);
        }
        match self.reader.peek_word() {
            "_geoRadius" => self.geo_radius(),
            "_geoBoundingBox" => self.geo_box(),
            "_geoPolygon" if self.reader.take("_geoPolygon(") => self.geo_polygon(),
            word if word == "_vectors" || word.starts_with("_vectors.") => {
                if self.tests_values() {
                    self.test().await
                } else {
                    self.vectors()
                }
            }
            _ => self.test().await,
        }
    }

    /// An attribute, an operator and its operands.
    async fn test(&mut self) -> Result<Node, SyntaxError> {
        let attribute = self.reader.value("an attribute")?;
        if let Some(comparison) = self.reader.take_comparison() {
            let operand = self.reader.value("a value")?;
            return Ok(Node::test(attribute, Operator::Compare(comparison, operand)));
        }
        if self.reader.take_keyword("IN") {
            let list = self.list().await?;
            return Ok(Node::test(attribute, Operator::In(list)));
        }
        if self.reader.take_keyword("NOT") {
            return self.negated_test(attribute).await;
        }
        if self.reader.take_keyword("IS") {
            return self.is_test(attribute);
        }
        if let Some(operator) = self.plain_operator()? {
            return Ok(Node::test(attribute, operator));
        }
        if self.reader.is_at_end() {
            return Err(self.reader.error("expected an operator after the attribute, found the end of the filter"));
        }
        let from = self.reader.value("an operator")?;
        if !self.reader.take_keyword("TO") || !self.reader.take_white() {
            return Err(self.reader.error(
                "expected an operation `=`, `!=`, `>=`, `>`, `<=`, `<`, `IN`, `NOT IN`, `TO`, `EXISTS`, `NOT EXISTS`, \
                 `IS NULL`, `IS NOT NULL`, `IS EMPTY`, `IS NOT EMPTY`, `CONTAINS`, `NOT CONTAINS`, `STARTS WITH`, \
                 `NOT STARTS WITH`",
            ));
        }
        let to = self.reader.value("a value")?;
        Ok(Node::test(attribute, Operator::Between(from, to)))
    }

    /// What follows the NOT of `x NOT IN […]`, `x NOT EXISTS` and the like: written as the complement of the plain test.
    async fn negated_test(&mut self, attribute: String) -> Result<Node, SyntaxError> {
        let spaced = self.reader.take_white();
        let operator = if self.reader.take_keyword("IN") {
            Some(Operator::In(self.list().await?))
        } else if spaced {
            self.plain_operator()?
        } else {
            None
        };
        match operator {
            Some(operator) => Ok(Node::not(Node::test(attribute, operator))),
            None => Err(self.reader.error("expected `IN`, `EXISTS`, `CONTAINS` or `STARTS WITH` after `NOT`")),
        }
    }

    /// What follows the IS of `x IS NULL` and the like.
    fn is_test(&mut self, attribute: String) -> Result<Node, SyntaxError> {
        let expected = "expected `NULL`, `NOT NULL`, `EMPTY` or `NOT EMPTY` after `IS`";
        if !self.reader.take_white() {
            return Err(self.reader.error(expected));
        }
        let negated = self.reader.take_keyword("NOT");
        if negated && !self.reader.take_white() {
            return Err(self.reader.error(expected));
        }
        let operator = if self.reader.take("NULL") {
            Operator::IsNull
        } else if self.reader.take("EMPTY") {
            Operator::IsEmpty
        } else {
            return Err(self.reader.error(expected));
        };
        let test = Node::test(attribute, operator);
        Ok(if negated { Node::not(test) } else { test })
    }

    /// The operators that can follow both an attribute and its NOT. They need no separator after them.
    fn plain_operator(&mut self) -> Result<Option<Operator>, SyntaxError> {
        Ok(if self.reader.take("EXISTS") {
            Some(Operator::Exists)
        } else if self.reader.take("CONTAINS") {
            Some(Operator::Contains(self.reader.value("a value")?))
        } else if self.reader.take("STARTS WITH") {
            Some(Operator::StartsWith(self.reader.value("a value")?))
        } else {
            None
        })
    }

    /// `[a, b, c]`, where a last comma is allowed.
    async fn list(&mut self) -> Result<Vec<String>, SyntaxError> {
        self.reader.skip_white();
        if !self.reader.take("[") {
            return Err(self.reader.error("expected `[` after `IN`"));
        }
        let mut values = Vec::new();
        loop {
            rest(self.pace).await;
            self.reader.skip_any_white();
            if self.reader.take("]") {
                break;
            }
            values.push(self.reader.value("a value")?);
            if !self.reader.take(",") {
                if !self.reader.take("]") {
                    return Err(self.reader.error("expected `,` or `]` in the list of `IN`"));
                }
                break;
            }
        }
        self.reader.skip_white();
        Ok(values)
    }

    fn geo_radius(&mut self) -> Result<Node, SyntaxError> {
        let start = self.reader.position();
        if !self.reader.take("_geoRadius(") {
            return Err(self.reader.error("`_geoRadius` takes three or four numbers: `_geoRadius(lat, lng, radius)`"));
        }
        let mut numbers = vec![self.reader.number()?];
        while self.reader.take(",") {
            numbers.push(self.reader.number()?);
        }
        self.expect(")")?;
        let (lat, lng, radius_m, resolution) = match numbers[..] {
            [lat, lng, radius] => (lat, lng, radius, None),
            [lat, lng, radius, resolution] => (lat, lng, radius, Some(resolution)),
            _ => return Err(self.reader.error_from(start, "`_geoRadius` takes three or four numbers")),
        };
        Ok(Node::Geo(GeoTest::Radius { centre: GeoPoint { lat, lng }, radius_m, resolution }))
    }

    fn geo_box(&mut self) -> Result<Node, SyntaxError> {
        let usage = "`_geoBoundingBox` takes two corners: `_geoBoundingBox([topLat, rightLng], [bottomLat, leftLng])`";
        if !self.reader.take("_geoBoundingBox(") {
            return Err(self.reader.error(usage));
        }
        let top_right = self.pair()?;
        self.expect(",")?;
        let bottom_left = self.pair()?;
        self.expect(")")?;
        Ok(Node::Geo(GeoTest::Box(GeoBox { top_right, bottom_left })))
    }

    /// The points of a polygon; its name and parenthesis are already taken.
    fn geo_polygon(&mut self) -> Result<Node, SyntaxError> {
        let mut points = vec![self.pair()?];
        while self.reader.take(",") {
            self.reader.skip_white();
            if self.reader.starts_with(")") {
                break;
            }
            points.push(self.pair()?);
        }
        self.expect(")")?;
        if points.len() < 3 {
            return Err(self.reader.error("`_geoPolygon` takes at least three points"));
        }
        Ok(Node::Geo(GeoTest::Polygon(points)))
    }

    /// `[lat, lng]` with white space around.
    fn pair(&mut self) -> Result<GeoPoint, SyntaxError> {
        self.reader.skip_white();
        self.expect("[")?;
        let lat = self.reader.number()?;
        self.expect(",")?;
        let lng = self.reader.number()?;
        self.expect("]")?;
        self.reader.skip_white();
        Ok(GeoPoint { lat, lng })
    }

    fn expect(&mut self, token: &str) -> Result<(), SyntaxError> {
        if self.reader.take(token) { Ok(()) } else { Err(self.reader.error(&format!("expected `{token}`"))) }
    }

    /// Whether the word that comes next is compared with values. Then it is a field as any other, whatever its name.
    fn tests_values(&mut self) -> bool {
        let start = self.reader.position();
        self.reader.take(self.reader.peek_word());
        self.reader.skip_white();
        let compares = self.reader.take_comparison().is_some() || self.reader.take_keyword("IS");
        let lists =
            self.reader.take_keyword("IN") || self.reader.take_keyword("NOT") && self.reader.take_spaced_keyword("IN");
        self.reader.rewind(start);
        compares || lists
    }

    /// A test of a document's vectors.
    fn vectors(&mut self) -> Result<Node, SyntaxError> {
        self.reader.take("_vectors");
        let mut embedder = None;
        let mut part = VectorsPart::Any;
        if self.reader.take(".") {
            embedder = Some(self.reader.segment("the name of an embedder")?);
            if self.reader.take(".") {
                part = match self.reader.bare_segment() {
                    "userProvided" => VectorsPart::UserProvided,
                    "documentTemplate" => VectorsPart::DocumentTemplate,
                    "regenerate" => VectorsPart::Regenerate,
                    "fragments" if self.reader.take(".") => {
                        VectorsPart::Fragment(self.reader.segment("the name of a fragment")?)
                    }
                    _ => {
                        return Err(self
                            .reader
                            .error("expected `fragments.NAME`, `userProvided`, `documentTemplate` or `regenerate`"));
                    }
                };
            }
        }
        let spaced = self.reader.take_white();
        let negated = spaced && self.reader.take_keyword("NOT") && self.reader.take_white();
        if spaced && self.reader.take("EXISTS") {
            let test = Node::Vectors(VectorsTest { embedder, part });
            return Ok(if negated { Node::not(test) } else { test });
        }
        Err(self.reader.error("expected `EXISTS` or `NOT EXISTS` after the `_vectors` filter"))
    }
}

impl Node {
    fn test(attribute: String, operator: Operator) -> Self {
        Self::Test(Test { attribute, operator })
    }
}

impl Reader<'_> {
    fn take_comparison(&mut self) -> Option<Comparison> {
        // The two-character operators first: `<` begins `<=`.
        let table = [
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("=", Comparison::Equal),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        table.into_iter().find_map(|(text, comparison)| self.take(text).then_some(comparison))
    }
}
