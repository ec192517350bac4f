//! JSON values as templates see them.
//!
//! Liquid copies every object that a template names, and its own objects have no order. To make the text of a document
//! deterministic, the values of `fields` are copied flat, as lists of names and values, which render the same but in order.

use std::fmt;

use liquid_core::ValueView;
use liquid_core::model::{
    ArrayView, DisplayCow, KString, KStringCow, ObjectRender, ObjectSource, Scalar, ScalarCow, State, Value as Liquid,
};
use liquid_core::{Object, ObjectView};
use serde_json::Value;

/// A JSON value.
#[derive(Debug)]
pub(super) enum View {
    Nil,
    Scalar(Scalar),
    List(Vec<View>),
    Entries(Entries),
}

/// The entries of an object, in order.
#[derive(Debug, Default)]
pub(super) struct Entries(pub(super) Vec<(String, View)>);

/// What no value stands for.
pub(super) static NIL: View = View::Nil;

static LIQUID_NIL: Liquid = Liquid::Nil;

impl From<Value> for View {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Nil,
            Value::Bool(truth) => Self::Scalar(Scalar::new(truth)),
            Value::Number(number) => Self::Scalar(match (number.as_i64(), number.as_f64()) {
                (Some(number), _) => Scalar::new(number),
                // Liquid's integers end here; the digits remain.
                (None, _) if number.is_u64() => Scalar::new(number.to_string()),
                (None, Some(number)) => Scalar::new(number),
                (None, None) => Scalar::new(number.to_string()),
            }),
            Value::String(text) => Self::Scalar(Scalar::new(text)),
            Value::Array(items) => Self::List(items.into_iter().map(Self::from).collect()),
            Value::Object(fields) => {
                Self::Entries(Entries(fields.into_iter().map(|(name, value)| (name, value.into())).collect()))
            }
        }
    }
}

impl View {
    /// A copy in which objects are lists of their names and values.
    fn flat(&self) -> Liquid {
        match self {
            Self::Nil => Liquid::Nil,
            Self::Scalar(scalar) => Liquid::Scalar(scalar.clone()),
            Self::List(items) => Liquid::Array(items.iter().map(Self::flat).collect()),
            Self::Entries(entries) => {
                let pairs = entries.0.iter().flat_map(|(name, value)| [Liquid::scalar(name.clone()), value.flat()]);
                Liquid::Array(pairs.collect())
            }
        }
    }

    fn inner(&self) -> &dyn ValueView {
        match self {
            Self::Nil => &LIQUID_NIL,
            Self::Scalar(scalar) => scalar,
            Self::List(items) => items,
            Self::Entries(entries) => entries,
        }
    }
}

/// A value that is copied flat.
#[derive(Debug)]
pub(super) struct FlatView<'d>(pub(super) &'d View);

/// Passes everything on to the value within but for the copy.
macro_rules! passed_on {
    ([$($life:lifetime)?] $name:ty, $inner:expr, $copy:expr) => {
        impl<$($life)?> ValueView for $name {
            fn as_debug(&self) -> &dyn fmt::Debug {
                self
            }
            fn render(&self) -> DisplayCow<'_> {
                $inner(self).render()
            }
            fn source(&self) -> DisplayCow<'_> {
                $inner(self).source()
            }
            fn type_name(&self) -> &'static str {
                $inner(self).type_name()
            }
            fn query_state(&self, state: State) -> bool {
                $inner(self).query_state(state)
            }
            fn to_kstr(&self) -> KStringCow<'_> {
                $inner(self).to_kstr()
            }
            fn to_value(&self) -> Liquid {
                $copy(self)
            }
            fn as_scalar(&self) -> Option<ScalarCow<'_>> {
                $inner(self).as_scalar()
            }
            fn as_array(&self) -> Option<&dyn ArrayView> {
                $inner(self).as_array()
            }
            fn as_object(&self) -> Option<&dyn ObjectView> {
                $inner(self).as_object()
            }
            fn as_state(&self) -> Option<State> {
                $inner(self).as_state()
            }
            fn is_nil(&self) -> bool {
                $inner(self).is_nil()
            }
        }
    };
}

passed_on!([] View, View::inner, |view: &View| view.inner().to_value());
passed_on!(['d] FlatView<'d>, |view: &'_ FlatView<'d>| -> &'d dyn ValueView { view.0.inner() }, |view: &FlatView<'d>| view.0.flat());

/// Something with named values that templates can look into.
pub(super) trait Named: fmt::Debug {
    /// How many there are.
    fn count(&self) -> usize;
    /// The names and values, in order.
    fn at(&self, place: usize) -> (&str, &dyn ValueView);
}

/// Makes an object for templates of whatever is [`Named`].
macro_rules! object_view {
    ([$($life:lifetime)?] $name:ty) => {
        impl<$($life)?> ValueView for $name {
            fn as_debug(&self) -> &dyn fmt::Debug {
                self
            }
            fn render(&self) -> DisplayCow<'_> {
                DisplayCow::Owned(Box::new(ObjectRender::new(self)))
            }
            fn source(&self) -> DisplayCow<'_> {
                DisplayCow::Owned(Box::new(ObjectSource::new(self)))
            }
            fn type_name(&self) -> &'static str {
                "object"
            }
            fn query_state(&self, state: State) -> bool {
                match state {
                    State::Truthy => true,
                    State::DefaultValue | State::Empty | State::Blank => self.count() == 0,
                }
            }
            fn to_kstr(&self) -> KStringCow<'_> {
                KStringCow::from_string(ObjectRender::new(self).to_string())
            }
            fn to_value(&self) -> Liquid {
                let entries = (0..self.count()).map(|place| self.at(place));
                let owned = entries.map(|(name, value)| (KString::from_ref(name), value.to_value()));
                Liquid::Object(owned.collect::<Object>())
            }
            fn as_object(&self) -> Option<&dyn ObjectView> {
                Some(self)
            }
        }

        impl<$($life)?> ObjectView for $name {
            fn as_value(&self) -> &dyn ValueView {
                self
            }
            fn size(&self) -> i64 {
                self.count() as i64
            }
            fn keys<'k>(&'k self) -> Box<dyn Iterator<Item = KStringCow<'k>> + 'k> {
                Box::new((0..self.count()).map(|place| KStringCow::from_ref(self.at(place).0)))
            }
            fn values<'k>(&'k self) -> Box<dyn Iterator<Item = &'k dyn ValueView> + 'k> {
                Box::new((0..self.count()).map(|place| self.at(place).1))
            }
            fn iter<'k>(&'k self) -> Box<dyn Iterator<Item = (KStringCow<'k>, &'k dyn ValueView)> + 'k> {
                let entries = (0..self.count()).map(|place| self.at(place));
                Box::new(entries.map(|(name, value)| (KStringCow::from_ref(name), value)))
            }
            fn contains_key(&self, index: &str) -> bool {
                self.get(index).is_some()
            }
            fn get<'s>(&'s self, index: &str) -> Option<&'s dyn ValueView> {
                (0..self.count()).map(|place| self.at(place)).find(|(name, _)| *name == index).map(|(_, value)| value)
            }
        }
    };
}

impl Named for Entries {
    fn count(&self) -> usize {
        self.0.len()
    }
    fn at(&self, place: usize) -> (&str, &dyn ValueView) {
        let (name, value) = &self.0[place];
        (name, value)
    }
}

object_view!([] Entries);

/// An entry of `fields` in a document template.
#[derive(Debug)]
pub(super) struct FieldView<'d> {
    pub(super) name: &'d str,
    pub(super) value: FlatView<'d>,
    pub(super) is_searchable: bool,
}

impl Named for FieldView<'_> {
    fn count(&self) -> usize {
        3
    }
    fn at(&self, place: usize) -> (&str, &dyn ValueView) {
        match place {
            0 => ("name", &self.name),
            1 => ("value", &self.value),
            _ => ("is_searchable", &self.is_searchable),
        }
    }
}

object_view!(['d] FieldView<'d>);

/// What a template finds at top level.
#[derive(Debug, Default)]
pub(super) struct Globals<'d>(pub(super) Vec<(&'static str, &'d dyn ValueView)>);

impl Named for Globals<'_> {
    fn count(&self) -> usize {
        self.0.len()
    }
    fn at(&self, place: usize) -> (&str, &dyn ValueView) {
        self.0[place]
    }
}

object_view!(['d] Globals<'d>);

/// What a document template finds at top level.
#[derive(Debug)]
pub(super) struct DocumentGlobals<'d> {
    pub(super) doc: &'d View,
    pub(super) fields: Vec<FieldView<'d>>,
}

impl Named for DocumentGlobals<'_> {
    fn count(&self) -> usize {
        2
    }
    fn at(&self, place: usize) -> (&str, &dyn ValueView) {
        if place == 0 { ("doc", self.doc) } else { ("fields", &self.fields) }
    }
}

object_view!(['d] DocumentGlobals<'d>);
