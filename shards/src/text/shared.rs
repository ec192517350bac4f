//! The tokenizer of an index, shared by all cores.
//!
//! Building it takes a microsecond for each word in the settings, without a place to yield. So if there are many words, the core
//! that brings the settings has it built on a side thread and sends it to all others.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::TextTokenizer;
use crate::runtime::{Runtime, SideThreadError, aside};
use crate::settings::Settings;

/// Stop words up to this many are read without a side thread: a tenth of a millisecond.
const FEW_WORDS: usize = 256;

/// The tokenizer of these settings: `before`, that of earlier ones, where what it depends on is as it was; else a new one.
///
/// # Errors
/// Building it panicked, or the side threads have ended.
pub async fn tokenizer(
    runtime: &dyn Runtime,
    settings: &Arc<Settings>,
    before: Option<(&Arc<Settings>, &Arc<TextTokenizer>)>,
) -> Result<Arc<TextTokenizer>, SideThreadError> {
    if let Some((earlier, known)) = before
        && Arc::ptr_eq(earlier, settings)
    {
        return Ok(known.clone());
    }
    let is_quick = is_built_quickly(settings) && before.is_none_or(|(earlier, _)| is_built_quickly(earlier));
    let settings = settings.clone();
    let before = before.map(|(earlier, known)| (earlier.clone(), known.clone()));
    let build = move || match before {
        Some((earlier, known)) if cuts_alike(&earlier, &settings) => known,
        _ => Arc::new(TextTokenizer::new(&settings)),
    };
    if is_quick { Ok(build()) } else { aside(runtime, build).await }
}

/// Whether a tokenizer of these settings is built, or compared with another, in no time worth mentioning. An automaton is not:
/// all default separators are in it.
fn is_built_quickly(settings: &Settings) -> bool {
    let automaton: [&BTreeSet<String>; 3] =
        [&settings.dictionary, &settings.separator_tokens, &settings.non_separator_tokens];
    automaton.iter().all(|words| words.is_empty()) && settings.stop_words.len() <= FEW_WORDS
}

/// Whether texts are cut alike under both settings: all that [`TextTokenizer::new`] reads is equal.
fn cuts_alike(one: &Settings, other: &Settings) -> bool {
    one.stop_words == other.stop_words
        && one.dictionary == other.dictionary
        && one.separator_tokens == other.separator_tokens
        && one.non_separator_tokens == other.non_separator_tokens
        && one.localized_attributes == other.localized_attributes
}
