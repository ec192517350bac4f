//! How documents spell their strings.

use ahash::AHashMap;
use storage_engine::vector::Pace;

use super::reader::Columns;
use super::store::ColumnError;
use super::values::Strings;
use crate::ids::{FieldId, LocalDocId};
use crate::runtime::pause_at;

/// In a document whose strings take more bytes, the next one is looked for behind the last one found: it may have a million,
/// all of which are asked for.
const SHORT_BYTES_MAX: usize = if cfg!(test) { 8 } else { 4096 };

/// Strings passed over between two looks at whether others wait.
const STRINGS_PER_LOOK: usize = 1024;

/// Looks spellings up, of values that are asked for in ascending order.
pub struct Speller<'c> {
    columns: Columns<'c>,
    field: FieldId,
    /// Where the long documents met so far were left.
    long: AHashMap<LocalDocId, Strings<'c>>,
    #[cfg(test)]
    pub(super) passed: usize,
}

impl<'c> Speller<'c> {
    /// For the strings of a field.
    pub fn new(columns: Columns<'c>, field: FieldId) -> Self {
        Self {
            columns,
            field,
            long: AHashMap::new(),
            #[cfg(test)]
            passed: 0,
        }
    }

    /// How a document spells a normalised value, which is greater than those asked for before; the value where it does not
    /// have it.
    pub async fn spelling<'v>(
        &mut self,
        document: LocalDocId,
        value: &'v str,
        pace: &dyn Pace,
    ) -> Result<&'v str, ColumnError>
    where
        'c: 'v,
    {
        let mut strings = match self.long.get(&document) {
            Some(strings) => strings.clone(),
            None => match self.columns.values(self.field, document)? {
                Some(values) => values.strings(),
                None => return Ok(value),
            },
        };
        let is_long = strings.bytes_left() > SHORT_BYTES_MAX || self.long.contains_key(&document);
        let (mut before, mut spelling) = (strings.clone(), value);
        for at in 1_usize.. {
            let Some((found, spelled)) = strings.next() else { break };
            #[cfg(test)]
            {
                self.passed += 1;
            }
            if found >= value {
                spelling = if found == value { spelled } else { value };
                break;
            }
            before = strings.clone();
            pause_at(at, STRINGS_PER_LOOK, pace).await;
        }
        if is_long {
            self.long.insert(document, before);
        }
        Ok(spelling)
    }
}

#[cfg(test)]
mod tests {
    use futures_lite::future::block_on;
    use serde_json::json;
    use storage_engine::vector::Unpaced;

    use super::*;
    use crate::facets::source::FacetSource;
    use crate::facets::test_support::{Facets, filterable};

    /// All spellings of a long document take one walk through its strings, not one for each.
    #[test]
    fn a_long_document_is_walked_once() {
        let names: Vec<String> = (100..600).map(|number| format!("N{number}")).collect();
        let facets = Facets::with(filterable(&["v"]), [json!({ "v": names }), json!({"v": ["n101", "n300"]})]);
        let mut speller = Speller::new(facets.columns(), facets.fields.id("v").unwrap());
        let mut of = |document, value: &str| {
            block_on(speller.spelling(LocalDocId(document), value, &Unpaced)).unwrap().to_owned()
        };
        assert_eq!(of(1, "n101"), "n101");
        for number in 100..600 {
            assert_eq!(of(0, &format!("n{number}")), format!("N{number}"));
        }
        assert_eq!((of(0, "n999"), of(1, "n300"), of(1, "n301")), ("n999".into(), "n300".into(), "n301".into()));
        assert!(speller.passed < 1010, "{} strings passed", speller.passed);
    }
}
