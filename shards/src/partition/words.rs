//! Extracts the words of a document for the inverted index.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use charabia::Language;

use super::error::PartitionError;
use super::terms::{TermNo, Terms};
use crate::document::record::{Record, put_record};
use crate::document::walk::{Leaf, LeafVisitor, Paths, literal_text};
use crate::fields::FieldsMap;
use crate::ids::FieldId;
use crate::runtime::{Checkpoint, Runtime};
use crate::settings::{Settings, covers_subtree};
use crate::text::TextTokenizer;
use crate::text::postings::{put_occurrences, put_varint};
use crate::text::tokenizer::Piece;
use crate::text::words::{FieldCursor, is_numeric};

/// Word counts above this are not kept.
const WORD_COUNT_MAX: u32 = 30;
/// Documents of more bytes are cut on another thread: one of several megabytes takes seconds.
const LONG_DOCUMENT_BYTES: usize = 100 << 10;
/// Documents that are more work, as [`TextTokenizer::work`] has it, are cut in steps: it takes a tenth of a millisecond and more.
const ONE_STEP_WORK: usize = 8 << 10;

/// What the index does with the values of a field.
#[derive(Clone, Default)]
struct FieldRole {
    searchable: bool,
    /// It or something below it is searchable.
    enters: bool,
    /// Its words are only found as written.
    exact: bool,
    languages: Option<Rc<[Language]>>,
}

/// Turns documents into words under fixed settings.
pub struct WordReader {
    tokenizer: Arc<TextTokenizer>,
    settings: Arc<Settings>,
    /// By field; as long as the part of the names seen so far.
    roles: Vec<FieldRole>,
    paths: Paths,
    walk: WalkState,
}

#[derive(Default)]
struct WalkState {
    /// Term and place (field << 16 | position) of every word, in order of appearance.
    words: Vec<(TermNo, u32)>,
    /// By field: where its next value begins and how many words it has; only those in `touched` are of this document.
    cursors: Vec<(FieldCursor, u32)>,
    touched: Vec<FieldId>,
    scratch: String,
}

/// The words of one document, grouped by term.
#[derive(Default)]
pub struct DocumentWords {
    /// Term, where its occurrence list lies in `lists`, and whether an occurrence is tolerant; rising by term number.
    pub terms: Vec<(TermNo, std::ops::Range<u32>, bool)>,
    /// Encoded occurrence lists.
    pub lists: Vec<u8>,
    /// The stored form of the fields' word counts.
    pub counts: Vec<u8>,
    places: Vec<u32>,
}

impl DocumentWords {
    /// The encoded occurrence list that lies at `range`.
    pub fn list(&self, range: &std::ops::Range<u32>) -> &[u8] {
        &self.lists[range.start as usize..range.end as usize]
    }

    /// Forgets the document.
    pub fn clear(&mut self) {
        self.terms.clear();
        self.lists.clear();
        self.counts.clear();
    }
}

impl WordReader {
    /// A reader under these settings.
    pub fn new(settings: Arc<Settings>, tokenizer: Arc<TextTokenizer>) -> Self {
        Self { tokenizer, settings, roles: Vec::new(), paths: Paths::default(), walk: WalkState::default() }
    }

    /// Reads the words of a document into `out`, numbering new terms.
    pub fn read(
        &mut self,
        names: &FieldsMap,
        record: Record<'_>,
        terms: &mut Terms,
        out: &mut DocumentWords,
    ) -> Result<(), PartitionError> {
        self.begin(names, out);
        let words = WordSink { tokenizer: &self.tokenizer, walk: &mut self.walk, terms: &mut *terms };
        let mut visitor = WordVisitor { roles: Roles(&self.roles), words };
        walk_fields(&mut self.paths, names, record, &mut visitor)?;
        self.end(terms, out);
        Ok(())
    }

    fn begin(&mut self, names: &FieldsMap, out: &mut DocumentWords) {
        out.clear();
        self.learn(names);
        self.walk.words.clear();
    }

    fn end(&mut self, terms: &Terms, out: &mut DocumentWords) {
        self.group(terms, out);
        self.put_counts(out);
    }

    /// As [`Self::read`], in short steps; a long document is cut on another thread, if one is free.
    pub async fn read_aside(
        &mut self,
        runtime: &dyn Runtime,
        names: &Arc<FieldsMap>,
        record: Record<'_>,
        terms: &mut Terms,
        out: &mut DocumentWords,
    ) -> Result<(), PartitionError> {
        if record.byte_len() > LONG_DOCUMENT_BYTES
            && let Some((known, words)) = self.cut_aside(runtime, names, record).await
        {
            let mut numbered = Vec::with_capacity(words.terms.len());
            let mut checkpoint = Checkpoint::default();
            for (term, range, tolerant) in words.terms {
                numbered.push((terms.number(known.text(term)), range, tolerant));
                checkpoint.tick(runtime).await;
            }
            numbered.sort_unstable_by_key(|(term, ..)| *term);
            *out = DocumentWords { terms: numbered, ..words };
            return Ok(());
        }
        if record.fields().map(|(_, value)| self.tokenizer.work(value)).sum::<usize>() <= ONE_STEP_WORK {
            return self.read(names, record, terms, out);
        }
        self.read_in_steps(runtime, names, record, terms, out).await
    }

    async fn read_in_steps(
        &mut self,
        runtime: &dyn Runtime,
        names: &FieldsMap,
        record: Record<'_>,
        terms: &mut Terms,
        out: &mut DocumentWords,
    ) -> Result<(), PartitionError> {
        self.begin(names, out);
        let mut gathered = ValueVisitor { roles: Roles(&self.roles), values: Vec::new() };
        walk_fields(&mut self.paths, names, record, &mut gathered)?;
        let mut words = WordSink { tokenizer: &self.tokenizer, walk: &mut self.walk, terms: &mut *terms };
        let mut checkpoint = Checkpoint::default();
        for (field, (text, languages)) in gathered.values {
            match text {
                Some(text) => words.value_in_steps(field, &text, languages, (runtime, &mut checkpoint)).await,
                None => words.value(field, None, None),
            }
            checkpoint.look(runtime).await;
        }
        self.end(terms, out);
        Ok(())
    }

    /// The words of a document, cut on another thread, with the terms that their numbers refer to; `None` when that did not
    /// work.
    async fn cut_aside(
        &self,
        runtime: &dyn Runtime,
        names: &Arc<FieldsMap>,
        record: Record<'_>,
    ) -> Option<(Terms, DocumentWords)> {
        let (settings, tokenizer, names) = (self.settings.clone(), self.tokenizer.clone(), names.clone());
        let mut bytes = Vec::with_capacity(record.byte_len());
        let fields: Vec<_> = record.fields().collect();
        put_record(&mut bytes, fields.into_iter());
        let cut = Arc::new(OnceLock::new());
        let place = cut.clone();
        let job = Box::new(move || {
            let (mut terms, mut words) = (Terms::default(), DocumentWords::default());
            let record = Record::parse(&bytes).map_err(PartitionError::from);
            let mut reader = WordReader::new(settings, tokenizer);
            // Whoever asked meets an error again, and tells it.
            if record.and_then(|record| reader.read(&names, record, &mut terms, &mut words)).is_ok() {
                let _ = place.set((terms, words));
            }
        });
        runtime.side_thread(job).await.ok()?;
        Arc::into_inner(cut).and_then(OnceLock::into_inner)
    }

    /// Looks at names that are new.
    fn learn(&mut self, names: &FieldsMap) {
        let numeric_fields = &self.settings.typo_tolerance.disable_on_attributes;
        for (_, name) in names.iter().skip(self.roles.len()) {
            let searchable = self.settings.searchable_weight(name).is_some();
            let below = |attribute: &String| covers_subtree(name, attribute);
            self.roles.push(FieldRole {
                searchable,
                enters: searchable || self.settings.searchable_attributes.iter().any(below),
                exact: numeric_fields.iter().any(|attribute| covers_subtree(attribute, name)),
                languages: self.tokenizer.languages(name).map(Rc::from),
            });
        }
        self.walk.cursors.resize(self.roles.len(), Default::default());
    }

    fn group(&mut self, terms: &Terms, out: &mut DocumentWords) {
        let numbers_exact = self.settings.typo_tolerance.disable_on_numbers;
        self.walk.words.sort_unstable();
        for of_term in self.walk.words.chunk_by(|a, b| a.0 == b.0) {
            let term = of_term[0].0;
            let start = out.lists.len() as u32;
            out.places.clear();
            out.places.extend(of_term.iter().map(|(_, place)| *place));
            out.places.dedup();
            put_occurrences(&mut out.lists, &out.places);
            let tolerant = |place: &u32| self.roles.get((place >> 16) as usize).is_some_and(|role| !role.exact);
            let numeric = numbers_exact && std::str::from_utf8(terms.text(term)).is_ok_and(is_numeric);
            out.terms.push((term, start..out.lists.len() as u32, !numeric && out.places.iter().any(tolerant)));
        }
    }

    fn put_counts(&mut self, out: &mut DocumentWords) {
        self.walk.touched.sort_unstable();
        let mut before = 0;
        for field in self.walk.touched.drain(..) {
            let (_, count) = std::mem::take(&mut self.walk.cursors[usize::from(field.0)]);
            if (1..=WORD_COUNT_MAX).contains(&count) {
                put_varint(&mut out.counts, u32::from(field.0) - before);
                out.counts.push(count as u8);
                before = u32::from(field.0);
            }
        }
    }
}

/// What the index does with the values of all fields.
#[derive(Clone, Copy)]
struct Roles<'r>(&'r [FieldRole]);

/// A value that is searched: its text, `None` where there is none, and the languages that it may be in.
type Searched<'r, 'l> = (Option<Cow<'l, str>>, Option<&'r [Language]>);

impl<'r> Roles<'r> {
    fn enters(self, field: FieldId) -> bool {
        self.0.get(usize::from(field.0)).is_some_and(|role| role.enters)
    }

    fn searched<'l>(self, field: FieldId, leaf: Leaf<'l>) -> Option<Searched<'r, 'l>> {
        let role = self.0.get(usize::from(field.0)).filter(|role| role.searchable)?;
        Some(match leaf {
            Leaf::Null | Leaf::Empty => (None, None),
            Leaf::Text(text) => (Some(Cow::Borrowed(text)), role.languages.as_deref()),
            Leaf::Literal(text) => (Some(literal_text(text)), None),
        })
    }
}

/// Gathers the values that are searched.
struct ValueVisitor<'r> {
    roles: Roles<'r>,
    values: Vec<(FieldId, Searched<'r, 'static>)>,
}

impl LeafVisitor for ValueVisitor<'_> {
    fn enters(&mut self, field: FieldId) -> bool {
        self.roles.enters(field)
    }

    fn leaf(&mut self, field: FieldId, leaf: Leaf<'_>) {
        if let Some((text, languages)) = self.roles.searched(field, leaf) {
            self.values.push((field, (text.map(|text| Cow::Owned(text.into_owned())), languages)));
        }
    }
}

/// Cuts the values that are searched.
struct WordVisitor<'r> {
    roles: Roles<'r>,
    words: WordSink<'r>,
}

impl LeafVisitor for WordVisitor<'_> {
    fn enters(&mut self, field: FieldId) -> bool {
        self.roles.enters(field)
    }

    fn leaf(&mut self, field: FieldId, leaf: Leaf<'_>) {
        if let Some((text, languages)) = self.roles.searched(field, leaf) {
            self.words.value(field, text.as_deref(), languages);
        }
    }
}

/// Takes the words of a document's values.
struct WordSink<'r> {
    tokenizer: &'r TextTokenizer,
    walk: &'r mut WalkState,
    terms: &'r mut Terms,
}

impl WordSink<'_> {
    /// Takes a field's next value; `text` is `None` for one without.
    fn value(&mut self, field: FieldId, text: Option<&str>, languages: Option<&[Language]>) {
        let (cursor, scratch, mut words) = field_words(field, self.walk, self.terms);
        match text {
            Some(text) => {
                cursor
                    .visit_value(self.tokenizer, languages, text, scratch, |word, position| words.put(word, position));
            }
            None => cursor.skip_value(),
        }
    }

    /// As [`Self::value`], pausing between words where cutting takes long.
    async fn value_in_steps(
        &mut self,
        field: FieldId,
        text: &str,
        languages: Option<&[Language]>,
        (runtime, checkpoint): (&dyn Runtime, &mut Checkpoint),
    ) {
        if self.tokenizer.takes_short_cut(text.as_bytes(), languages) {
            return self.value(field, Some(text), languages);
        }
        let (cursor, _, mut words) = field_words(field, self.walk, self.terms);
        let mut value = cursor.begin();
        if !value.is_beyond() {
            for token in self.tokenizer.iter(text, languages) {
                let Some(piece) = Piece::of(&token) else { continue };
                if value.piece(piece, |word, position| words.put(word, position)).is_break() {
                    break;
                }
                checkpoint.tick(runtime).await;
            }
        }
        cursor.end(&value);
    }
}

/// Where the words of one field go.
struct FieldWords<'w> {
    field: FieldId,
    count: &'w mut u32,
    words: &'w mut Vec<(TermNo, u32)>,
    terms: &'w mut Terms,
}

impl FieldWords<'_> {
    fn put(&mut self, word: &str, position: u16) {
        *self.count += 1;
        self.words.push((self.terms.number(word.as_bytes()), u32::from(self.field.0) << 16 | u32::from(position)));
    }
}

/// A field that is to take a value: the position reached, room to cut in, and where its words go.
fn field_words<'w>(
    field: FieldId,
    walk: &'w mut WalkState,
    terms: &'w mut Terms,
) -> (&'w mut FieldCursor, &'w mut String, FieldWords<'w>) {
    let WalkState { words, cursors, touched, scratch } = walk;
    let (cursor, count) = &mut cursors[usize::from(field.0)];
    if cursor.is_fresh() {
        touched.push(field);
    }
    (cursor, scratch, FieldWords { field, count, words, terms })
}

fn walk_fields(
    paths: &mut Paths,
    names: &FieldsMap,
    record: Record<'_>,
    visitor: &mut impl LeafVisitor,
) -> Result<(), PartitionError> {
    for (field, value) in record.fields() {
        paths.walk(names, field, value, visitor)?;
    }
    Ok(())
}
