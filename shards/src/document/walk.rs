//! Walks the values of a stored document down to its leaves.

use std::borrow::Cow;

use ahash::AHashMap;

use crate::document::json::{JsonError, JsonReader};
use crate::fields::FieldsMap;
use crate::ids::FieldId;

/// A value without parts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Leaf<'a> {
    /// The text of a string.
    Text(&'a str),
    /// The JSON text of a number or a boolean.
    Literal(&'a str),
    /// `null`
    Null,
    /// No value of its own: comes before the parts of an array or object that is a member's value, and once for each array or
    /// object without parts. It has no word, but it takes a value's place where positions are counted, as null does.
    Empty,
}

/// The text of a number or a boolean as it is searched and shown: `1.50` is `1.5`, `1e+21` is `1e21`.
pub fn literal_text(text: &str) -> Cow<'_, str> {
    const SURE_DIGITS: usize = 18;
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = digits.len() <= SURE_DIGITS && digits.bytes().all(|b| b.is_ascii_digit()) && text != "-0";
    if plain || matches!(text, "true" | "false") {
        return Cow::Borrowed(text);
    }
    let number = serde_json::from_str::<serde_json::Number>(text);
    number.map_or(Cow::Borrowed(text), |number| number.to_string().replace("e+", "e").into())
}

/// Hears of a document's leaves.
pub trait LeafVisitor {
    /// Whether anything at or below this field is of interest.
    fn enters(&mut self, field: FieldId) -> bool;
    /// A leaf of this field.
    fn leaf(&mut self, field: FieldId, leaf: Leaf<'_>);
}

/// Finds the fields of nested names. Remembers what it found: a known name costs one lookup and no dotted path is put together.
#[derive(Default)]
pub struct Paths {
    /// By parent.
    children: Vec<AHashMap<Box<str>, Option<FieldId>>>,
    path: String,
    scratch: String,
}

impl Paths {
    /// Calls `visitor` with the leaves of a field's value (canonical JSON), in document order.
    pub fn walk(
        &mut self,
        names: &FieldsMap,
        field: FieldId,
        value: &[u8],
        visitor: &mut impl LeafVisitor,
    ) -> Result<(), JsonError> {
        if !visitor.enters(field) {
            return Ok(());
        }
        self.value(&mut JsonReader::new(value), names, Some(field), visitor)
    }

    /// `field` is `None` for values of no interest, which are only passed over.
    fn value(
        &mut self,
        reader: &mut JsonReader<'_>,
        names: &FieldsMap,
        field: Option<FieldId>,
        visitor: &mut impl LeafVisitor,
    ) -> Result<(), JsonError> {
        match (reader.peek(), field) {
            (Some(b'"'), Some(field)) => {
                let mut scratch = std::mem::take(&mut self.scratch);
                visitor.leaf(field, Leaf::Text(reader.string(&mut scratch)?));
                self.scratch = scratch;
            }
            (Some(b'"'), None) => drop(reader.raw_string()?),
            (Some(b'['), _) => {
                reader.take(b'[');
                empty_leaf(reader, b']', field, visitor);
                while !reader.take(b']') {
                    self.value(reader, names, field, visitor)?;
                    reader.take(b',');
                }
            }
            (Some(b'{'), _) => {
                reader.take(b'{');
                empty_leaf(reader, b'}', field, visitor);
                while !reader.take(b'}') {
                    let child = self.member(reader, names, field)?.filter(|child| visitor.enters(*child));
                    reader.take(b':');
                    if let (Some(b'[' | b'{'), Some(child)) = (reader.peek(), child) {
                        visitor.leaf(child, Leaf::Empty);
                    }
                    self.value(reader, names, child, visitor)?;
                    reader.take(b',');
                }
            }
            (Some(_), _) => {
                let literal = reader.literal()?;
                if let Some(field) = field {
                    visitor.leaf(field, if literal == "null" { Leaf::Null } else { Leaf::Literal(literal) });
                }
            }
            (None, _) => reader.fail("expected a value")?,
        }
        Ok(())
    }

    /// Takes a member's name and returns its field.
    fn member(
        &mut self,
        reader: &mut JsonReader<'_>,
        names: &FieldsMap,
        parent: Option<FieldId>,
    ) -> Result<Option<FieldId>, JsonError> {
        let Some(parent) = parent else { return reader.raw_string().map(|_| None) };
        let name = reader.string(&mut self.scratch)?;
        let at = usize::from(parent.0);
        if self.children.len() <= at {
            self.children.resize_with(at + 1, AHashMap::new);
        }
        if let Some(known) = self.children[at].get(name) {
            return Ok(*known);
        }
        self.path.clear();
        self.path.push_str(names.name(parent).unwrap_or_default());
        self.path.push('.');
        self.path.push_str(name);
        let field = names.id(&self.path);
        self.children[at].insert(name.into(), field);
        Ok(field)
    }
}

/// Tells of an array or object that ends where it began.
fn empty_leaf(reader: &mut JsonReader<'_>, end: u8, field: Option<FieldId>, visitor: &mut impl LeafVisitor) {
    if let (Some(field), true) = (field, reader.peek() == Some(end)) {
        visitor.leaf(field, Leaf::Empty);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Collect(Vec<String>, FieldId);

    impl LeafVisitor for Collect {
        fn enters(&mut self, field: FieldId) -> bool {
            field != self.1
        }
        fn leaf(&mut self, field: FieldId, leaf: Leaf<'_>) {
            self.0.push(format!("{}:{leaf:?}", field.0));
        }
    }

    #[test]
    fn leaves_come_in_document_order_under_their_paths() {
        let mut names = FieldsMap::default();
        let [a, _, c, _] = ["a", "a.b", "a.c", "a.b.d"].map(|name| names.insert(name).unwrap());
        let value =
            br#"[{"b":["x\n",{"d":-1.5}],"c":{"z":["}"]}},null,[true,[]],{"unknown":{"q":[1,{}]}},"e",{"b":{}}]"#;
        let mut found = Collect(Vec::new(), c);
        let mut paths = Paths::default();
        for _ in 0..2 {
            found.0.clear();
            paths.walk(&names, a, value, &mut found).unwrap();
            assert_eq!(
                found.0,
                [
                    "1:Empty",
                    r#"1:Text("x\n")"#,
                    r#"3:Literal("-1.5")"#,
                    "0:Null",
                    r#"0:Literal("true")"#,
                    "0:Empty",
                    r#"0:Text("e")"#,
                    "1:Empty",
                    "1:Empty",
                ]
            );
        }
    }

    #[test]
    fn numbers_have_one_text() {
        for (text, want) in [
            ("7", "7"),
            ("-12", "-12"),
            ("1.50", "1.5"),
            ("3.0", "3.0"),
            ("1e+21", "1e21"),
            ("1E3", "1000.0"),
            ("100000000000000000000", "1e20"),
            ("true", "true"),
        ] {
            assert_eq!(literal_text(text), want);
        }
    }

    /// Bytes from a damaged file must end the walk, not hang it.
    #[test]
    fn damaged_values_are_errors() {
        let (mut names, mut found) = (FieldsMap::default(), Collect(Vec::new(), FieldId(9)));
        let a = names.insert("a").unwrap();
        for bad in ["[", "{", "[1", "{\"a\"", "\"", "]", "{1}", "[}", ""] {
            assert!(Paths::default().walk(&names, a, bad.as_bytes(), &mut found).is_err(), "{bad}");
        }
    }
}
