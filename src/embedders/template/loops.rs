//! Loops. Unlike the library's, they count their iterations and check a range before expanding it.

use std::collections::HashMap;
use std::io::Write;

use liquid_core::error::{Error, Result, ResultLiquidExt};
use liquid_core::model::{KString, KStringCow, KStringRef, Scalar, Value, ValueCow, ValueView};
use liquid_core::parser::{BlockElement, Language, TagBlock, TagTokenIter, TryMatchToken};
use liquid_core::runtime::{Expression, Interrupt, InterruptRegister, Renderable, Runtime, Template};
use liquid_lib::stdlib::{Range, RangeExpression};

use super::super::view::{Entries, View};
use super::block::Block;
use super::meter::{Metered, charge};
use super::scope::Scope;

/// Numbers of a range.
const RANGE_MAX: i64 = 10_000;

pub(super) const FOR: Block = Block { start: "for", end: "endfor", parse: parse_for };
pub(super) const TABLE_ROW: Block = Block { start: "tablerow", end: "endtablerow", parse: parse_table_row };

/// What a loop goes over.
#[derive(Debug)]
struct Head {
    variable: KString,
    range: RangeExpression,
    limit: Option<Expression>,
    offset: Option<Expression>,
    columns: Option<Expression>,
    is_reversed: bool,
}

#[derive(Debug)]
struct For {
    head: Head,
    content: Template,
    otherwise: Option<Template>,
}

#[derive(Debug)]
struct TableRow {
    head: Head,
    content: Template,
}

fn parse_for(
    arguments: TagTokenIter<'_>,
    block: &mut TagBlock<'_, '_>,
    options: &Language,
) -> Result<Box<dyn Renderable>> {
    let head = Head::parse(arguments, &["limit", "offset", "reversed"])?;
    let (mut content, mut otherwise) = (Vec::new(), None);
    while let Some(element) = block.next()? {
        match element {
            BlockElement::Tag(mut tag) if tag.name() == "else" => {
                tag.tokens().expect_nothing()?;
                otherwise = Some(Template::new(block.parse_all(options)?));
                break;
            }
            element => content.push(element.parse(block, options)?),
        }
    }
    Ok(Box::new(For { head, content: Template::new(content), otherwise }))
}

fn parse_table_row(
    arguments: TagTokenIter<'_>,
    block: &mut TagBlock<'_, '_>,
    options: &Language,
) -> Result<Box<dyn Renderable>> {
    let head = Head::parse(arguments, &["limit", "offset", "cols"])?;
    Ok(Box::new(TableRow { head, content: Template::new(block.parse_all(options)?) }))
}

impl Head {
    fn parse(mut arguments: TagTokenIter<'_>, known: &[&str]) -> Result<Self> {
        let variable = arguments.expect_next("Identifier expected.")?.expect_identifier().into_result()?;
        let within = arguments.expect_next("\"in\" expected.")?;
        within.expect_str("in").into_result_custom_msg("\"in\" expected.")?;
        let range = match arguments.expect_next("Array or range expected.")?.expect_value() {
            TryMatchToken::Matches(array) => RangeExpression::Array(array),
            TryMatchToken::Fails(token) => {
                let (start, stop) = token.expect_range().into_result()?;
                RangeExpression::Counted(start, stop)
            }
        };
        let variable = KString::from_ref(variable);
        let mut head = Self { variable, range, limit: None, offset: None, columns: None, is_reversed: false };
        while let Some(token) = arguments.next() {
            match token.as_str() {
                name if !known.contains(&name) => {
                    return Err(token.raise_custom_error(&format!("one of {known:?} expected")));
                }
                "reversed" => head.is_reversed = true,
                "limit" => head.limit = Some(value(&mut arguments)?),
                "offset" => head.offset = Some(value(&mut arguments)?),
                _ => head.columns = Some(value(&mut arguments)?),
            }
        }
        Ok(head)
    }

    /// The items that the loop goes over, out of those of `range`.
    fn items<'r>(&self, range: &'r Range<'_>, runtime: &dyn Runtime) -> Result<Vec<Item<'r>>> {
        if let Range::Counted(start, stop) = range
            && stop.checked_sub(*start).is_none_or(|rounds| rounds >= RANGE_MAX)
            && stop > start
        {
            return Err(Error::with_msg(format!("a range has at most {RANGE_MAX} numbers")));
        }
        let mut items = all_items(range)?;
        let offset = number(&self.offset, runtime)?.unwrap_or(0).min(items.len());
        let limit = number(&self.limit, runtime)?;
        let limit = limit.map_or(items.len() - offset, |limit| limit.min(items.len()));
        items.drain(..offset);
        // Where the limit goes past the end, the reference's loop goes on with nothing.
        items.resize(limit, Item::One(Value::Nil.into()));
        if self.is_reversed {
            items.reverse();
        }
        charge(runtime, items.len() as u64)?;
        Ok(items)
    }
}

impl Renderable for For {
    fn render_to(&self, writer: &mut dyn Write, runtime: &dyn Runtime) -> Result<()> {
        let range = self.head.range.evaluate(runtime)?;
        let items = self.head.items(&range, runtime)?;
        if items.is_empty() {
            return self.otherwise.as_ref().map_or(Ok(()), |otherwise| otherwise.render_to(writer, runtime));
        }
        let parent = runtime.try_get(&[Scalar::new("forloop")]);
        let parent = parent.map_or(View::Nil, |parent| View::from_copy(parent.into_owned()));
        let count = items.len();
        for (at, item) in items.into_iter().enumerate() {
            let mut progress = progress(at, count);
            progress.0.push(("parentloop".into(), parent.clone()));
            let name = self.head.variable.as_ref();
            let values = round([("forloop".into(), &progress), (name, item.as_view())]);
            let scope = Metered(Scope { parent: runtime, values: &values });
            let rendered = self.content.render_to(writer, &scope);
            rendered.context_key("index").value_with(|| (at + 1).to_string().into())?;
            let interrupt = scope.registers().get_mut::<InterruptRegister>().reset();
            if interrupt == Some(Interrupt::Break) {
                break;
            }
        }
        Ok(())
    }
}

impl Renderable for TableRow {
    fn render_to(&self, writer: &mut dyn Write, runtime: &dyn Runtime) -> Result<()> {
        let range = self.head.range.evaluate(runtime)?;
        let items = self.head.items(&range, runtime)?;
        let count = items.len();
        let columns = number(&self.head.columns, runtime)?.unwrap_or(count);
        if columns == 0 && count > 0 {
            return Err(Error::with_msg("a table row needs at least one column"));
        }
        let write = |writer: &mut dyn Write, text: &str| {
            writer.write_all(text.as_bytes()).map_err(|error| Error::with_msg(error.to_string()))
        };
        for (at, item) in items.into_iter().enumerate() {
            let (row, column) = (at / columns, at % columns);
            let (is_first, is_last) = (column == 0, column + 1 == columns || at + 1 == count);
            let mut progress = progress(at, count);
            progress.0.extend([
                ("col0".into(), scalar(column as i64)),
                ("col".into(), scalar(column as i64 + 1)),
                ("col_first".into(), scalar(is_first)),
                ("col_last".into(), scalar(is_last)),
            ]);
            if is_first {
                write(writer, &format!("<tr class=\"row{}\">", row + 1))?;
            }
            write(writer, &format!("<td class=\"col{}\">", column + 1))?;
            let name = self.head.variable.as_ref();
            let values = round([("tablerow".into(), &progress), (name, item.as_view())]);
            let scope = Metered(Scope { parent: runtime, values: &values });
            let rendered = self.content.render_to(writer, &scope);
            rendered.context_key("index").value_with(|| (at + 1).to_string().into())?;
            write(writer, "</td>")?;
            if is_last {
                write(writer, "</tr>")?;
            }
        }
        Ok(())
    }
}

/// What a loop's variable stands for in one round.
#[derive(Clone)]
enum Item<'r> {
    One(ValueCow<'r>),
    /// A name and a value of an object.
    Pair(Vec<ValueCow<'r>>),
}

impl Item<'_> {
    fn as_view(&self) -> &dyn ValueView {
        match self {
            Self::One(item) => item,
            Self::Pair(pair) => pair,
        }
    }
}

/// Everything in a range. Unlike the library's, pairs of objects are not copied.
fn all_items<'r>(range: &'r Range<'_>) -> Result<Vec<Item<'r>>> {
    if let Range::Array(value) = range
        && let Some(fields) = value.as_object()
    {
        let pair = |(name, value): (KStringCow<'_>, &'r dyn ValueView)| {
            Item::Pair(vec![Value::scalar(name.into_owned()).into(), ValueCow::Borrowed(value)])
        };
        return Ok(fields.iter().map(pair).collect());
    }
    Ok(range.evaluate()?.into_iter().map(Item::One).collect())
}

/// The values of one round of a loop.
type Round<'v> = HashMap<KStringRef<'v>, &'v dyn ValueView>;

fn round<'v>(values: [(KStringRef<'v>, &'v dyn ValueView); 2]) -> Round<'v> {
    values.into_iter().collect()
}

/// How far a loop is.
fn progress(at: usize, count: usize) -> Entries {
    let (at, count) = (at as i64, count as i64);
    Entries(vec![
        ("length".into(), scalar(count)),
        ("index0".into(), scalar(at)),
        ("index".into(), scalar(at + 1)),
        ("rindex0".into(), scalar(count - at - 1)),
        ("rindex".into(), scalar(count - at)),
        ("first".into(), scalar(at == 0)),
        ("last".into(), scalar(at + 1 == count)),
    ])
}

fn scalar(value: impl Into<Scalar>) -> View {
    View::Scalar(value.into())
}

/// The value after a name and a colon.
fn value(arguments: &mut TagTokenIter<'_>) -> Result<Expression> {
    let colon = arguments.expect_next("\":\" expected.")?;
    colon.expect_str(":").into_result_custom_msg("\":\" expected.")?;
    arguments.expect_next("Value expected.")?.expect_value().into_result()
}

/// A whole number; a negative one counts as more than there can be, as it does for the reference.
fn number(expression: &Option<Expression>, runtime: &dyn Runtime) -> Result<Option<usize>> {
    let Some(expression) = expression else { return Ok(None) };
    let value = expression.evaluate(runtime)?;
    let number = value.as_scalar().and_then(|scalar| scalar.to_integer());
    let number = number.ok_or_else(|| Error::with_msg(format!("expected a whole number, found {}", value.type_name())));
    number.map(|number| Some(number as usize))
}
