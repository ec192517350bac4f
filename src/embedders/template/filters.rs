//! The standard filters, each with a bound on its output.

use std::fmt;

use liquid_core::error::Result;
use liquid_core::model::{Value, ValueCow, ValueView};
use liquid_core::parser::{Filter, FilterArguments, FilterReflection, ParseFilter};
use liquid_core::runtime::{Expression, Runtime};

use super::super::view::{View, is_marked};
use super::lists;
use super::meter::{VALUE_BYTES, VALUE_BYTES_MAX, charge, size, steps_of, too_much};

/// A filter whose values are bounded.
#[derive(Clone)]
pub(super) struct BoundedFilter(pub(super) Box<dyn ParseFilter>);

/// A use of one in a template.
#[derive(Debug)]
struct Use {
    name: String,
    filter: Box<dyn Filter>,
    /// Its arguments without names.
    arguments: Vec<Expression>,
}

impl ParseFilter for BoundedFilter {
    fn parse(&self, arguments: FilterArguments<'_>) -> Result<Box<dyn Filter>> {
        let positional: Vec<Expression> = arguments.positional.collect();
        let arguments =
            FilterArguments { positional: Box::new(positional.clone().into_iter()), keyword: arguments.keyword };
        let filter = self.0.parse(arguments)?;
        Ok(Box::new(Use { name: self.reflection().name().to_owned(), filter, arguments: positional }))
    }

    fn reflection(&self) -> &dyn FilterReflection {
        self.0.reflection()
    }
}

impl Filter for Use {
    fn evaluate(&self, input: &dyn ValueView, runtime: &dyn Runtime) -> Result<Value> {
        // What the filter before this one made.
        let view = is_marked(input).then(|| View::from_copy(input.to_value()));
        let input = view.as_ref().map_or(input, |view| view);
        charge(runtime, steps_of(input))?;
        if size(input).saturating_add(self.growth(input, runtime)?) > VALUE_BYTES_MAX {
            return Err(too_much());
        }
        let value = self.value(input, runtime)?;
        if size(&value) > VALUE_BYTES_MAX { Err(too_much()) } else { Ok(value) }
    }
}

impl Use {
    fn value(&self, input: &dyn ValueView, runtime: &dyn Runtime) -> Result<Value> {
        let field =
            || -> Result<Option<String>> { Ok(self.argument(0, runtime)?.map(|field| field.to_kstr().into_string())) };
        match self.name.as_str() {
            "sort" => lists::sorted(input, field()?.as_deref()),
            "sort_natural" => lists::sorted_naturally(input, field()?.as_deref()),
            "uniq" => lists::unique(input),
            _ => self.filter.evaluate(input, runtime),
        }
    }

    /// Bytes that the value may have more than the input, for filters that can make very much of little at once.
    fn growth(&self, input: &dyn ValueView, runtime: &dyn Runtime) -> Result<usize> {
        let items = || input.as_array().map_or(0, |items| items.size().max(0) as usize);
        Ok(match self.name.as_str() {
            "replace" => {
                let count = self.count(input, runtime)?;
                count.saturating_mul(self.argument(1, runtime)?.map_or(0, |with| with.to_kstr().len()))
            }
            "split" => self.count(input, runtime)?.saturating_mul(VALUE_BYTES),
            "join" => items().saturating_mul(self.argument(0, runtime)?.map_or(1, |between| between.to_kstr().len())),
            "uniq" => {
                // It compares all items with each other.
                charge(runtime, (items() as u64).saturating_pow(2) / 64)?;
                0
            }
            _ => 0,
        })
    }

    /// How often the first argument stands in the input.
    fn count(&self, input: &dyn ValueView, runtime: &dyn Runtime) -> Result<usize> {
        let Some(wanted) = self.argument(0, runtime)? else { return Ok(0) };
        Ok(input.to_kstr().matches(wanted.to_kstr().as_str()).count())
    }

    fn argument<'s>(&'s self, place: usize, runtime: &'s dyn Runtime) -> Result<Option<ValueCow<'s>>> {
        self.arguments.get(place).map(|argument| argument.evaluate(runtime)).transpose()
    }
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.filter.fmt(f)
    }
}
