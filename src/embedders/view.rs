//! JSON values as templates see them.
//!
//! The objects of the library have no order, but the text of a document must be the same each time. So templates are lent these
//! values. Where the library makes copies, in filters and for variables, objects become lists that begin with a mark; their
//! text is that of the object, and [`View::from_copy`] makes objects of them again.

use std::collections::BTreeMap;
use std::fmt;

use liquid_core::ObjectView;
use liquid_core::ValueView;
use liquid_core::model::{
    ArrayView, DisplayCow, KString, KStringCow, ObjectRender, ObjectSource, Scalar, ScalarCow, State, Value as Liquid,
};
use serde_json::Value;

/// A JSON value, or a state that a template compares values with.
#[derive(Clone, Debug)]
pub(super) enum View {
    Nil,
    Scalar(Scalar),
    State(State),
    List(Vec<View>),
    Entries(Entries),
}

/// The entries of an object, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Entries(pub(super) Vec<(String, View)>);

/// What no value stands for.
pub(super) static NIL: View = View::Nil;

static LIQUID_NIL: Liquid = Liquid::Nil;

/// Begins the copy of an object: it has no text, and is in no list.
const MARK: State = State::Blank;

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
    /// What the library has copied.
    pub(super) fn from_copy(copy: Liquid) -> Self {
        match copy {
            Liquid::Nil => Self::Nil,
            Liquid::Scalar(scalar) => Self::Scalar(scalar),
            Liquid::State(state) => Self::State(state),
            Liquid::Array(items) if items.first().is_some_and(|first| first.is_state()) => {
                let mut items = items.into_iter().skip(1);
                let pair = || Some((items.next()?.to_kstr().into_string(), Self::from_copy(items.next()?)));
                Self::Entries(Entries(std::iter::from_fn(pair).collect()))
            }
            Liquid::Array(items) => Self::List(items.into_iter().map(Self::from_copy).collect()),
            Liquid::Object(fields) => {
                let fields: BTreeMap<_, _> = fields.into_iter().collect();
                let entry = |(name, value): (KString, Liquid)| (name.into_string(), Self::from_copy(value));
                Self::Entries(Entries(fields.into_iter().map(entry).collect()))
            }
        }
    }

    fn inner(&self) -> &dyn ValueView {
        match self {
            Self::Nil => &LIQUID_NIL,
            Self::Scalar(scalar) => scalar,
            Self::State(state) => state,
            Self::List(items) => items,
            Self::Entries(entries) => entries,
        }
    }
}

/// Whether a value is a copy with marks in it.
pub(super) fn is_marked(value: &dyn ValueView) -> bool {
    value.as_array().is_some_and(|items| items.values().any(|item| item.is_state() || is_marked(item)))
}

/// Passes everything on to the value within.
impl ValueView for View {
    fn as_debug(&self) -> &dyn fmt::Debug {
        self
    }
    fn render(&self) -> DisplayCow<'_> {
        self.inner().render()
    }
    fn source(&self) -> DisplayCow<'_> {
        self.inner().source()
    }
    fn type_name(&self) -> &'static str {
        self.inner().type_name()
    }
    fn query_state(&self, state: State) -> bool {
        self.inner().query_state(state)
    }
    fn to_kstr(&self) -> KStringCow<'_> {
        self.inner().to_kstr()
    }
    fn to_value(&self) -> Liquid {
        self.inner().to_value()
    }
    fn as_scalar(&self) -> Option<ScalarCow<'_>> {
        self.inner().as_scalar()
    }
    fn as_array(&self) -> Option<&dyn ArrayView> {
        self.inner().as_array()
    }
    fn as_object(&self) -> Option<&dyn ObjectView> {
        self.inner().as_object()
    }
    fn as_state(&self) -> Option<State> {
        self.inner().as_state()
    }
    fn is_nil(&self) -> bool {
        self.inner().is_nil()
    }
}

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
                let copied = entries.flat_map(|(name, value)| [Liquid::scalar(name.to_owned()), value.to_value()]);
                Liquid::Array(std::iter::once(Liquid::State(MARK)).chain(copied).collect())
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
    pub(super) value: &'d View,
    pub(super) is_searchable: bool,
}

impl Named for FieldView<'_> {
    fn count(&self) -> usize {
        3
    }
    fn at(&self, place: usize) -> (&str, &dyn ValueView) {
        match place {
            0 => ("name", &self.name),
            1 => ("value", self.value),
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
