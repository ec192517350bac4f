//! Many ids of documents in one piece of memory.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Ids of documents in some order, duplicates included. Each costs its bytes and eight more, where a `String` for each would cost
/// some fifty: a waiting task may have millions. Clones share one memory. In records it is an array of strings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DocumentIds(Arc<Texts>);

#[derive(Debug, Default, PartialEq, Eq)]
struct Texts {
    /// One id after another.
    text: String,
    /// Where in it each ends.
    ends: Vec<usize>,
}

impl DocumentIds {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.ends.is_empty()
    }

    /// Each, in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> + Clone {
        let Texts { text, ends } = &*self.0;
        let starts = std::iter::once(0).chain(ends.iter().copied());
        starts.zip(ends).map(|(start, end)| &text[start..*end])
    }
}

impl Texts {
    fn push(&mut self, id: &str) {
        self.text.push_str(id);
        self.ends.push(self.text.len());
    }

    /// They do not change any more.
    fn close(mut self) -> DocumentIds {
        self.text.shrink_to_fit();
        self.ends.shrink_to_fit();
        DocumentIds(Arc::new(self))
    }
}

impl<T: AsRef<str>> FromIterator<T> for DocumentIds {
    fn from_iter<I: IntoIterator<Item = T>>(ids: I) -> Self {
        let mut texts = Texts::default();
        ids.into_iter().for_each(|id| texts.push(id.as_ref()));
        texts.close()
    }
}

impl Serialize for DocumentIds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl DocumentIds {
    /// Reads an array in which every item is an id after `text` has made it one, item by item: of none is more kept than its text.
    ///
    /// # Errors
    /// Those of the deserializer; there is no array, or an item is not of this type.
    pub fn read<'de, D, T, S>(deserializer: D, text: fn(T) -> S) -> Result<Self, D::Error>
    where
        D: Deserializer<'de>,
        T: Deserialize<'de>,
        S: AsRef<str>,
    {
        deserializer.deserialize_seq(Ids(text))
    }
}

impl<'de> Deserialize<'de> for DocumentIds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::read(deserializer, std::convert::identity::<Cow<'de, str>>)
    }
}

struct Ids<T, S>(fn(T) -> S);

impl<'de, T: Deserialize<'de>, S: AsRef<str>> Visitor<'de> for Ids<T, S> {
    type Value = DocumentIds;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an array of ids")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<DocumentIds, A::Error> {
        let mut texts = Texts::default();
        while let Some(item) = items.next_element()? {
            texts.push((self.0)(item).as_ref());
        }
        Ok(texts.close())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_back_as_they_were() {
        for given in [vec![], vec![""], vec!["a", "", "a", "\"\\\n", "ü-\u{1F980}", "10"], vec!["", ""]] {
            let ids: DocumentIds = given.iter().collect();
            assert_eq!((ids.len(), ids.is_empty()), (given.len(), given.is_empty()));
            assert_eq!(ids.iter().collect::<Vec<_>>(), given);
            assert_eq!(ids.iter().clone().count(), given.len());
        }
        let (cut, whole): (DocumentIds, DocumentIds) = (["a", "bc"].iter().collect(), ["ab", "c"].iter().collect());
        assert_ne!(cut, whole);
    }

    /// Records of earlier versions hold an array of strings, and they must stay readable.
    #[test]
    fn records_hold_an_array_of_strings() {
        for given in [vec![], vec![String::new()], vec!["a".to_owned(), "\"\\\n".to_owned(), "ü\u{1F980}".to_owned()]]
        {
            let ids: DocumentIds = given.iter().collect();
            let record = serde_json::to_vec(&given).unwrap();
            assert_eq!(serde_json::to_vec(&ids).unwrap(), record);
            assert_eq!(serde_json::from_slice::<DocumentIds>(&record).unwrap(), ids);
            assert_eq!(serde_json::from_value::<DocumentIds>(serde_json::json!(given)).unwrap(), ids);
        }
        for wrong in ["null", "{}", "\"a\"", "[1]", "[null]", "[\"a\""] {
            assert!(serde_json::from_str::<DocumentIds>(wrong).is_err(), "{wrong}");
        }
    }

    /// Six deletions of three million short ids each once took a gigabyte while they waited.
    #[test]
    fn ids_cost_little_more_than_their_bytes() {
        let ids: DocumentIds = (0..10_000).map(|number| format!("doc-{number}")).collect();
        let bytes: usize = ids.iter().map(str::len).sum();
        let copy = ids.clone();
        assert!(Arc::ptr_eq(&ids.0, &copy.0));
        assert!(ids.0.text.capacity() <= bytes + bytes / 8 && ids.0.ends.capacity() <= 10_000 + 10_000 / 8);
    }
}
