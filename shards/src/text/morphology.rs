//! Dictionaries for segmenting Japanese and Korean. They are not part of the program: the operator may name a folder for each of
//! the two languages. Without one, texts are segmented as the tokenizer segments any text in that script.
//!
//! The tokenizer has already split the text, without knowing its words, before a dictionary is applied. So the pieces between
//! separators are joined again and segmented by the cheapest path through the words of the dictionary (Kudo, Yamamoto and
//! Matsumoto, "Applying Conditional Random Fields to Japanese Morphological Analysis", 2004).

use std::borrow::Cow;
use std::error::Error;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::{fs, io, vec};

use aho_corasick::AhoCorasick;
use charabia::{Language, Script, Token};
use lindera::LinderaResult;
use lindera::dictionary::Dictionary;
use lindera::error::LinderaError;
use lindera::mode::{Mode, Penalty};
use lindera::segmenter::Segmenter;
use xxhash_rust::xxh3::Xxh3;

use super::words::is_numeric;

/// Bytes of a run that is cut at once: one to three milliseconds of work. A longer one without any separator is no text.
const RUN_BYTES_MAX: usize = 4 << 10;

static INSTALLED: OnceLock<Arc<Morphology>> = OnceLock::new();

/// Why a dictionary cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the dictionary in `{}` cannot be used: {reason}", path.display())]
pub struct DictionaryError {
    path: PathBuf,
    reason: String,
}

/// The dictionaries that there are.
pub struct Morphology {
    japanese: Option<Segmenter>,
    korean: Option<Segmenter>,
    identity: String,
}

/// The dictionaries that were installed; `None` where there are none.
pub fn installed() -> Option<Arc<Morphology>> {
    INSTALLED.get().cloned()
}

/// What tells the installed dictionaries from others: the name of each and a hash of its files. Empty where there are none.
pub fn identity() -> String {
    INSTALLED.get().map_or_else(String::new, |morphology| morphology.identity.clone())
}

impl Morphology {
    /// Reads the dictionaries of these folders. Blocks.
    ///
    /// # Errors
    /// A folder cannot be read, or does not hold a dictionary of the version that is understood.
    pub fn load(japanese: Option<&Path>, korean: Option<&Path>) -> Result<Self, DictionaryError> {
        let mut loaded = Self { japanese: None, korean: None, identity: String::new() };
        for (path, language, segmenter) in [(japanese, "ja", &mut loaded.japanese), (korean, "ko", &mut loaded.korean)]
        {
            let Some(path) = path else { continue };
            let failed = |reason: String| DictionaryError { path: path.to_owned(), reason };
            let dictionary = Dictionary::load_from_path(path).map_err(|error| failed(told(&error)))?;
            let hash = hash_of(path).map_err(|error| failed(error.to_string()))?;
            let name = &dictionary.metadata.name;
            tracing::info!(path = %path.display(), name, language, "dictionary read");
            loaded.identity += &format!("{language}:{name}:{hash:016x};");
            *segmenter = Some(segmenter_of(dictionary).map_err(|error| failed(told(&error)))?);
        }
        Ok(loaded)
    }

    /// Makes every tokenizer that is built from now on use these dictionaries. To be called once, before any is built: texts
    /// and queries must be cut alike.
    pub fn install(self) {
        if self.japanese.is_some() || self.korean.is_some() {
            let _ = INSTALLED.set(Arc::new(self));
        }
    }

    /// The tokens of `text`, cut anew where there is a dictionary for them. `tokens` are all of the text, none normalised;
    /// `whole` finds what is never cut nor put together with its neighbours.
    pub fn recut<'t, 'm, I>(&'m self, text: &'t str, tokens: I, whole: &'m AhoCorasick) -> Recut<'t, 'm, I>
    where
        I: Iterator<Item = Token<'t>>,
    {
        Recut { morphology: self, text, tokens: tokens.peekable(), whole, cut: Vec::new().into_iter() }
    }

    /// The dictionary for a token of this script and language.
    fn of(&self, token: &Token<'_>) -> Option<&Segmenter> {
        match (token.script, token.language) {
            (Script::Cj, Some(Language::Jpn)) => self.japanese.as_ref(),
            (Script::Hangul, _) => self.korean.as_ref(),
            _ => None,
        }
    }
}

fn segmenter_of(dictionary: Dictionary) -> LinderaResult<Segmenter> {
    let segmenter = Segmenter::new(Mode::Decompose(Penalty::default()), dictionary, None);
    // Blanks are words where a setting says that they do not separate. Unknown words are grouped as a whole, as the interface
    // has it; what a dictionary says of blanks in front of words never counts, as these are cut off before.
    segmenter.keep_whitespace(true).unknown_word_ladder(false).space_penalty(None)
}

/// What is wrong, without the names of kinds that the library puts around it.
fn told(error: &LinderaError) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

/// A hash of the names and contents of the files in a folder.
fn hash_of(folder: &Path) -> io::Result<u64> {
    let mut paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.retain(|path| path.is_file());
    paths.sort();
    let mut hasher = Xxh3::new();
    for path in paths {
        #[expect(clippy::disallowed_methods, reason = "dictionaries are read before any executor runs")]
        let content = fs::read(&path)?;
        hasher.update(path.file_name().unwrap_or_default().as_encoded_bytes());
        hasher.update(&content.len().to_le_bytes());
        hasher.update(&content);
    }
    Ok(hasher.digest())
}

/// Tokens, some of them cut anew. See [`Morphology::recut`].
pub struct Recut<'t, 'm, I: Iterator<Item = Token<'t>>> {
    morphology: &'m Morphology,
    text: &'t str,
    tokens: Peekable<I>,
    whole: &'m AhoCorasick,
    cut: vec::IntoIter<Token<'t>>,
}

impl<'t, I: Iterator<Item = Token<'t>>> Iterator for Recut<'t, '_, I> {
    type Item = Token<'t>;

    fn next(&mut self) -> Option<Token<'t>> {
        if let Some(token) = self.cut.next() {
            return Some(token);
        }
        let mut run = self.tokens.next()?;
        let Some(segmenter) = self.morphology.of(&run).filter(|_| !is_whole(self.whole, &run)) else {
            return Some(run);
        };
        let (start, script, language, whole) = (run.byte_start, run.script, run.language, self.whole);
        let goes_on = |next: &Token<'_>| {
            let is_same = next.script == script && next.language == language;
            is_same && next.byte_end - start <= RUN_BYTES_MAX && !is_whole(whole, next)
        };
        while let Some(next) = self.tokens.next_if(goes_on) {
            (run.byte_end, run.char_end) = (next.byte_end, next.char_end);
        }
        let text = &self.text[run.byte_start..run.byte_end];
        run.lemma = Cow::Borrowed(text);
        // The tokenizer leaves what may be a number whole.
        if !is_numeric(text) {
            self.cut = words(segmenter, text, &run).into_iter();
        }
        Some(self.cut.next().unwrap_or(run))
    }
}

/// The words of a run; none when it is one word.
fn words<'t>(segmenter: &Segmenter, text: &'t str, run: &Token<'t>) -> Vec<Token<'t>> {
    let Ok(cut) = segmenter.segment(Cow::Borrowed(text)) else { return Vec::new() };
    let mut chars = run.char_start;
    let token = |range: (usize, usize)| {
        let lemma = &text[range.0..range.1];
        let char_start = chars;
        chars += lemma.chars().count();
        Token {
            lemma: Cow::Borrowed(lemma),
            char_start,
            char_end: chars,
            byte_start: run.byte_start + range.0,
            byte_end: run.byte_start + range.1,
            script: run.script,
            language: run.language,
            ..Token::default()
        }
    };
    cut.iter().map(|word| (word.byte_start, word.byte_end)).map(token).collect()
}

/// Whether the tokenizer found this as a whole: between what it finds so, nothing is left that it would find.
fn is_whole(whole: &AhoCorasick, token: &Token<'_>) -> bool {
    whole.find(token.lemma()).is_some_and(|found| found.range() == (0..token.lemma().len()))
}

#[cfg(test)]
mod tests;
