//! The members of a hit as raw JSON text: code that shows or moves a hit need not parse its values.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// The members of an object in order, with their text.
pub(super) struct Members<'a>(pub(super) Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Members<'a> {
    /// The value of this name.
    pub(super) fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| *value)
    }

    /// Takes a member out.
    pub(super) fn take(&mut self, name: &str) -> Option<&'a RawValue> {
        let at = self.0.iter().position(|(other, _)| other == name)?;
        Some(self.0.remove(at).1)
    }

    /// A value that is of this type.
    pub(super) fn read<T: Deserialize<'a>>(&self, name: &str) -> Option<T> {
        self.get(name).and_then(|value| serde_json::from_str(value.get()).ok())
    }

    /// Writes the object, with other values for some members and with some more at the end.
    pub(super) fn write(&self, out: &mut Vec<u8>, others: &[(&str, Vec<u8>)], more: &[(&str, &str)]) {
        let mut before = b'{';
        let mut member = |name: &str, value: &[u8]| {
            out.push(before);
            before = b',';
            // Few names have anything to escape.
            match name.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
                true => {
                    out.push(b'"');
                    out.extend_from_slice(name.as_bytes());
                    out.push(b'"');
                }
                false => out.extend_from_slice(Value::from(name).to_string().as_bytes()),
            }
            out.push(b':');
            out.extend_from_slice(value);
        };
        for (name, value) in &self.0 {
            let other = others.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_slice());
            member(name, other.unwrap_or_else(|| value.get().as_bytes()));
        }
        more.iter().for_each(|(name, value)| member(name, value.as_bytes()));
        if before == b'{' {
            out.push(b'{');
        }
        out.push(b'}');
    }
}

/// A name that is copied only where it holds an escape.
#[derive(serde::Deserialize)]
pub(super) struct Name<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::with_capacity(8);
                while let Some((name, value)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
                    members.push((name.0, value));
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(Object).map(Members)
    }
}
