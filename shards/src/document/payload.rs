//! Bodies of documents: the check before they are accepted, and reading them when the task runs.

use crate::document::csv::CsvReader;
use crate::document::json::{CopyError, JsonError, JsonReader, NameError, Unnamed};
use crate::document::members::{Begun, Members, TakesMembers};
use crate::document::names::{FieldNames, Scope, VECTORS};
use crate::error::UserError;
use crate::ids::FieldId;

/// How a body of documents is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum PayloadFormat {
    /// An array of objects, or one object.
    Json,
    /// Objects one after another.
    Ndjson,
    /// A header and records.
    Csv {
        /// Between two cells; ASCII.
        delimiter: u8,
    },
}

/// Why a body is refused, or fails its task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// The body is not of its format (`malformed_payload`).
    #[error("{0}")]
    Malformed(String),
    /// An element is JSON but not an object (`internal`, as the interface has it).
    #[error("a document is not an object")]
    NotAnObject,
    /// The index can hold no more names (`max_fields_limit_exceeded`).
    #[error("a document has too many fields: an index holds at most 65,535 names")]
    NamesFull,
}

impl From<PayloadError> for UserError {
    fn from(error: PayloadError) -> Self {
        let code = match &error {
            PayloadError::Malformed(_) => "malformed_payload",
            PayloadError::NotAnObject => "internal",
            PayloadError::NamesFull => "max_fields_limit_exceeded",
        };
        UserError::new(code, error.to_string())
    }
}

impl From<JsonError> for PayloadError {
    fn from(error: JsonError) -> Self {
        Self::Malformed(error.to_string())
    }
}

/// Where the documents of a body are.
enum Source<'a> {
    /// `first`: no element was read yet. `single`: one object stands for an array.
    Json {
        reader: JsonReader<'a>,
        first: bool,
        single: bool,
        done: bool,
    },
    Ndjson(JsonReader<'a>),
    Csv(Box<CsvReader<'a>>),
}

impl<'a> Source<'a> {
    fn new(body: &'a [u8], format: PayloadFormat) -> Result<Self, PayloadError> {
        Ok(match format {
            PayloadFormat::Json => {
                let mut reader = JsonReader::new(body);
                let single = match reader.peek() {
                    Some(b'{') => true,
                    Some(b'[') => false,
                    _ => return Ok(reader.fail("expected an array or an object")?),
                };
                reader.take(b'[');
                Self::Json { reader, first: true, single, done: false }
            }
            PayloadFormat::Ndjson => Self::Ndjson(JsonReader::new(body)),
            PayloadFormat::Csv { delimiter } => Self::Csv(Box::new(CsvReader::new(body, delimiter)?)),
        })
    }

    fn offset(&self) -> usize {
        match self {
            Self::Json { reader, .. } | Self::Ndjson(reader) => reader.offset(),
            Self::Csv(reader) => reader.offset(),
        }
    }

    /// The error of an element that is no object, read just now. Within an array such an element ends the reading, so that
    /// an array that goes on after it counts as malformed.
    fn not_an_object(&mut self) -> PayloadError {
        if let Self::Json { reader, single: false, .. } = self
            && !reader.take(b']')
        {
            return PayloadError::Malformed("an element is not an object".into());
        }
        PayloadError::NotAnObject
    }

    /// Moves to the next document; false at the end. Checks what stands between documents.
    fn advance(&mut self) -> Result<bool, PayloadError> {
        match self {
            Self::Csv(reader) => reader.advance(),
            Self::Ndjson(reader) => Ok(reader.peek().is_some()),
            Self::Json { done: true, .. } => Ok(false),
            Self::Json { reader, first, single: true, done } => {
                *done = !*first;
                if *done && reader.peek().is_some() {
                    reader.fail("trailing characters")?;
                }
                *first = false;
                Ok(!*done)
            }
            Self::Json { reader, first, single: false, done } => {
                // What follows the closing bracket is not looked at.
                *done = reader.take(b']');
                if !*done && !*first && !reader.take(b',') {
                    reader.fail("expected `,` or `]`")?;
                }
                *first = false;
                Ok(!*done)
            }
        }
    }
}

/// Checks a body piece by piece.
pub struct PayloadCheck<'a> {
    source: Source<'a>,
    documents: u64,
    members: Members<(), ()>,
    checked: Checked,
}

impl<'a> PayloadCheck<'a> {
    /// Begins the check of a body.
    pub fn new(body: &'a [u8], format: PayloadFormat) -> Result<Self, PayloadError> {
        let (members, checked) = (Members::default(), Checked::default());
        Ok(Self { source: Source::new(body, format)?, documents: 0, members, checked })
    }

    /// Checks about `bytes` more bytes: whole values, except arrays that are members of a document. Returns the number of documents when
    /// the end is reached.
    pub fn advance(&mut self, bytes: usize) -> Result<Option<u64>, PayloadError> {
        let until = self.source.offset().saturating_add(bytes);
        while self.source.offset() < until {
            if !self.members.is_under_way() && !self.source.advance()? {
                return Ok(Some(self.documents));
            }
            match &mut self.source {
                Source::Csv(reader) => reader.for_each_field(|_, _| Ok::<_, PayloadError>(()))?,
                Source::Json { reader, .. } | Source::Ndjson(reader) => {
                    if !self.members.is_under_way() && reader.peek() != Some(b'{') {
                        reader.skip_value(&mut self.checked.scratch, 1)?;
                        return Err(self.source.not_an_object());
                    }
                    if !self.members.read_some(reader, &mut self.checked, until)? {
                        break;
                    }
                }
            }
            self.documents += 1;
        }
        Ok(None)
    }
}

/// Takes members to check them only: nobody reads the copies.
#[derive(Default)]
struct Checked {
    scratch: Vec<u8>,
    names: Unnamed,
}

impl TakesMembers for Checked {
    type Names = Unnamed;
    type Member = ();

    fn begin(&mut self, _: &str) -> Result<Begun<(), ()>, PayloadError> {
        Ok(Begun { member: (), scope: (), keeps_numbers: true })
    }

    fn copy(&mut self) -> (&mut Vec<u8>, &mut Unnamed) {
        self.scratch.clear();
        (&mut self.scratch, &mut self.names)
    }

    fn reread(&mut self, _: &mut JsonReader<'_>, _: Begun<(), ()>, _: usize) -> Result<(), PayloadError> {
        // Does not happen where names are of no interest.
        Err(PayloadError::Malformed("a name is repeated".into()))
    }

    fn end(&mut self, (): ()) {}
}

/// Checks a whole body at once, at some hundred megabytes a second; returns the number of documents. For bodies of more than
/// some 100 kB use [`PayloadCheck`] and yield between its steps.
pub fn check(format: PayloadFormat, body: &[u8]) -> Result<u64, PayloadError> {
    let mut check = PayloadCheck::new(body, format)?;
    loop {
        if let Some(documents) = check.advance(usize::MAX)? {
            return Ok(documents);
        }
    }
}

/// One document of a body: its top-level fields with canonical JSON text, rising by field, each field once.
#[derive(Default)]
pub struct DocumentFields {
    spans: Vec<(FieldId, u32, u32)>,
    bytes: Vec<u8>,
    /// The fields in the order in which the body names them, for inferring the primary key.
    pub in_order: Vec<FieldId>,
}

impl DocumentFields {
    /// The fields with their JSON text, rising by field.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (FieldId, &[u8])> + Clone {
        self.spans.iter().map(|(field, start, end)| (*field, &self.bytes[*start as usize..*end as usize]))
    }

    /// The JSON text of one field.
    pub fn get(&self, field: FieldId) -> Option<&[u8]> {
        self.iter().find(|(id, _)| *id == field).map(|(_, value)| value)
    }

    fn clear(&mut self) {
        self.spans.clear();
        self.bytes.clear();
        self.in_order.clear();
    }

    fn close_value(&mut self, field: FieldId, start: usize) {
        self.spans.push((field, start as u32, self.bytes.len() as u32));
        self.in_order.push(field);
    }

    /// Puts the fields in order; of several values of one field the last counts.
    fn finish(&mut self) {
        let later = |a: &(FieldId, u32, u32), b: &(FieldId, u32, u32)| a.0.cmp(&b.0).then(b.1.cmp(&a.1));
        if !self.spans.is_sorted_by(|a, b| a.0 < b.0) {
            self.spans.sort_unstable_by(later);
            self.spans.dedup_by_key(|span| span.0);
        }
    }
}

/// Reads the documents of a body that was checked, numbering the names they bring along.
pub struct Documents<'a> {
    source: Source<'a>,
    vectors_as_written: bool,
    members: Members<(FieldId, usize), Scope>,
}

/// What a step of [`Documents::next_some`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentStep {
    /// The document goes on.
    More,
    /// It is whole.
    Whole,
    /// There are no more documents.
    End,
}

impl<'a> Documents<'a> {
    /// Begins to read a body.
    pub fn new(body: &'a [u8], format: PayloadFormat) -> Result<Self, PayloadError> {
        Ok(Self { source: Source::new(body, format)?, vectors_as_written: false, members: Members::default() })
    }

    /// The same, but numbers within `_vectors` are left as they are written, for a reader that takes them from there.
    pub fn with_vectors_as_written(self) -> Self {
        Self { vectors_as_written: true, ..self }
    }

    /// How many bytes of the body were read.
    pub fn offset(&self) -> usize {
        self.source.offset()
    }

    /// Reads the next document into `document`; false at the end of the body.
    pub fn next(&mut self, names: &mut FieldNames<'_>, document: &mut DocumentFields) -> Result<bool, PayloadError> {
        loop {
            match self.next_some(names, document, usize::MAX)? {
                DocumentStep::More => {}
                step => return Ok(step == DocumentStep::Whole),
            }
        }
    }

    /// As [`Self::next`], but reads only about so many bytes of a document with a long array, and goes on where it is called again.
    pub fn next_some(
        &mut self,
        names: &mut FieldNames<'_>,
        document: &mut DocumentFields,
        bytes: usize,
    ) -> Result<DocumentStep, PayloadError> {
        if !self.members.is_under_way() {
            if !self.source.advance()? {
                return Ok(DocumentStep::End);
            }
            document.clear();
        }
        match &mut self.source {
            Source::Csv(reader) => reader.for_each_field(|name, value| {
                let (field, _) = names.top_level(name).map_err(name_error)?;
                let start = document.bytes.len();
                document.bytes.extend_from_slice(value);
                document.close_value(field, start);
                Ok::<_, PayloadError>(())
            })?,
            Source::Json { reader, .. } | Source::Ndjson(reader) => {
                let mut taker = Taker { names, document, vectors_as_written: self.vectors_as_written };
                let until = reader.offset().saturating_add(bytes);
                if !self.members.read_some(reader, &mut taker, until)? {
                    return Ok(DocumentStep::More);
                }
            }
        }
        document.finish();
        Ok(DocumentStep::Whole)
    }
}

/// Reads one JSON object that is a whole document (an edited one, for example).
pub fn read_document(
    text: &[u8],
    names: &mut FieldNames<'_>,
    document: &mut DocumentFields,
) -> Result<(), PayloadError> {
    document.clear();
    let mut taker = Taker { names, document: &mut *document, vectors_as_written: false };
    Members::default().read_some(&mut JsonReader::new(text), &mut taker, usize::MAX)?;
    document.finish();
    Ok(())
}

/// Takes the members of a document to keep them.
struct Taker<'t, 'm> {
    names: &'t mut FieldNames<'m>,
    document: &'t mut DocumentFields,
    vectors_as_written: bool,
}

impl<'m> TakesMembers for Taker<'_, 'm> {
    type Names = FieldNames<'m>;
    /// A field, and where its value starts among those of the document.
    type Member = (FieldId, usize);

    fn begin(&mut self, name: &str) -> Result<Begun<Self::Member, Scope>, PayloadError> {
        let (field, scope) = self.names.top_level(name).map_err(name_error)?;
        let keeps_numbers = self.vectors_as_written && name == VECTORS;
        Ok(Begun { member: (field, self.document.bytes.len()), scope, keeps_numbers })
    }

    fn copy(&mut self) -> (&mut Vec<u8>, &mut FieldNames<'m>) {
        (&mut self.document.bytes, self.names)
    }

    fn reread(
        &mut self,
        reader: &mut JsonReader<'_>,
        Begun { member: (_, start), scope, .. }: Begun<Self::Member, Scope>,
        value_start: usize,
    ) -> Result<(), PayloadError> {
        self.document.bytes.truncate(start);
        copy_last_members(reader, value_start, self.names, scope, self.document)
    }

    fn end(&mut self, (field, start): Self::Member) {
        self.document.close_value(field, start);
    }
}

/// Reads a value in which some object names a member twice: builds the tree, in which the last one wins, and copies that.
fn copy_last_members(
    reader: &mut JsonReader<'_>,
    value_start: usize,
    names: &mut FieldNames<'_>,
    scope: Scope,
    document: &mut DocumentFields,
) -> Result<(), PayloadError> {
    reader.rewind(value_start);
    reader.peek();
    let start = reader.offset();
    reader.skip_value(&mut Vec::new(), 2)?;
    let tree: serde_json::Value =
        serde_json::from_slice(reader.slice_from(start)).map_err(|error| PayloadError::Malformed(error.to_string()))?;
    let text = tree.to_string();
    match JsonReader::new(text.as_bytes()).copy_value(&mut document.bytes, names, scope, 2) {
        Ok(()) => Ok(()),
        Err(CopyError::NamesFull) => Err(PayloadError::NamesFull),
        Err(other) => Err(PayloadError::Malformed(other.to_string())),
    }
}

fn name_error(error: NameError) -> PayloadError {
    match error {
        NameError::Full => PayloadError::NamesFull,
        NameError::Repeated => PayloadError::Malformed("a name is repeated".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::record::{Record, put_record};
    use crate::fields::FieldsMap;

    fn read(body: &str, format: PayloadFormat) -> Result<(Vec<String>, Vec<String>), PayloadError> {
        let (mut map, mut found) = (FieldsMap::default(), Vec::new());
        let mut names = FieldNames::new(&mut map);
        let (mut documents, mut document) = (Documents::new(body.as_bytes(), format)?, DocumentFields::default());
        while documents.next(&mut names, &mut document)? {
            let (mut record, mut json) = (Vec::new(), Vec::new());
            put_record(&mut record, document.iter());
            Record::parse(&record).unwrap().write_json(names.map(), &mut json);
            found.push(String::from_utf8(json).unwrap());
        }
        Ok((found, map.iter().map(|(_, name)| name.to_owned()).collect()))
    }

    fn both(body: &str, format: PayloadFormat) -> Result<u64, PayloadError> {
        let checked = check(format, body.as_bytes());
        let read = read(body, format).map(|(documents, _)| documents.len() as u64);
        assert_eq!(checked.is_ok(), read.is_ok(), "{body}: what is accepted must be readable");
        checked
    }

    #[test]
    fn json_bodies() {
        let check = |body| both(body, PayloadFormat::Json);
        assert_eq!(check("[]"), Ok(0));
        assert_eq!(check("[] trailing text after an array is not looked at"), Ok(0));
        assert_eq!(check(r#" {"id":1} "#), Ok(1));
        assert_eq!(check(r#"[{"id":1},{"id":2}]x"#), Ok(2));
        assert_eq!(check("[1]"), Err(PayloadError::NotAnObject));
        assert_eq!(check("[{},[{}] ]"), Err(PayloadError::NotAnObject));
        for bad in [
            "[1,{}]",
            "[1",
            "12",
            "null",
            "\"text\"",
            "",
            "{}x",
            "[{}",
            "[{},]",
            "[,{}]",
            "[{} {}]",
            r#"{"a":}"#,
            r#"{"a" 1}"#,
        ] {
            assert!(matches!(check(bad), Err(PayloadError::Malformed(_))), "{bad}");
        }
    }

    #[test]
    fn ndjson_bodies() {
        let check = |body| both(body, PayloadFormat::Ndjson);
        assert_eq!(check("{\"a\":1}{\"a\":\n2}\r\n\n{}"), Ok(3));
        assert_eq!(check(" \n "), Ok(0));
        assert_eq!(check("{}\n3"), Err(PayloadError::NotAnObject));
        assert!(matches!(check("{},{}"), Err(PayloadError::Malformed(_))));
    }

    #[test]
    fn names_are_numbered_by_first_sight_parents_before_children() {
        let (_, names) =
            read(r#"{"b":{"x":[[{"y":1}],{"z":{}}]},"a":1,"_vectors":{"m":{"k":1}},"b.x":2}"#, PayloadFormat::Json)
                .unwrap();
        assert_eq!(names, ["b", "b.x", "b.x.y", "b.x.z", "a", "_vectors"]);
    }

    #[test]
    fn fields_come_in_the_order_of_the_index_and_the_last_of_repeated_names_counts() {
        let body = r#"{"a":1,"b":2}{"b":3,"c":{"k":1, "l":{"k":0}, "k":2},"a":4,"b":5}"#;
        let (documents, _) = read(body, PayloadFormat::Ndjson).unwrap();
        assert_eq!(documents[1], r#"{"a":4,"b":5,"c":{"k":2,"l":{"k":0}}}"#);
    }

    #[test]
    fn a_check_in_steps_gives_the_same_count() {
        let body = "{\"a\":[1,2]}\n".repeat(50);
        let mut check = PayloadCheck::new(body.as_bytes(), PayloadFormat::Ndjson).unwrap();
        let mut steps = 1;
        while check.advance(100).unwrap().is_none() {
            steps += 1;
        }
        assert_eq!((steps, check.documents), (6, 50));
    }

    /// Long arrays are read in steps; whatever is in them comes out as when they are read at once.
    #[test]
    fn documents_are_read_in_steps() {
        let long: Vec<String> = (0..50).map(|at| format!(r#" {{"k":{at} , "l":[{at}.50,"x"]}}"#)).collect();
        let twice = long.join(",").replacen("\"k\":20", "\"k\":20,\"k\":21", 1);
        let body = format!(
            r#"{{"id":1,"a":[{}],"b":[],"c":[[1],[]]}}{{}}{{"a":[{twice}],"_vectors":[1.50, 2.50, 3.50, 4.50, 5.50]}}"#,
            long.join(",")
        );
        for bytes in [1, 10, 100, usize::MAX] {
            let mut check = PayloadCheck::new(body.as_bytes(), PayloadFormat::Ndjson).unwrap();
            let mut steps = 0;
            while check.advance(bytes).unwrap().is_none() {
                steps += 1;
            }
            assert_eq!(check.documents, 3);
            assert_eq!(steps > 60, bytes <= 10, "{steps} steps");
            let (mut map, mut document) = (FieldsMap::default(), DocumentFields::default());
            let mut names = FieldNames::new(&mut map);
            let whole = Documents::new(body.as_bytes(), PayloadFormat::Ndjson).unwrap();
            let (mut found, mut more) = (Vec::new(), 0);
            let mut documents = whole.with_vectors_as_written();
            loop {
                match documents.next_some(&mut names, &mut document, bytes).unwrap() {
                    DocumentStep::More => more += 1,
                    DocumentStep::End => break,
                    DocumentStep::Whole => {
                        found.push(document.iter().map(|(_, value)| value.to_vec()).collect::<Vec<_>>())
                    }
                }
            }
            assert_eq!(more > 60, bytes <= 10, "{more} steps");
            let plain = long.join(",").replace(' ', "").replace(".50", ".5");
            let last = plain.replacen("\"k\":20", "\"k\":21", 1);
            let texts = |texts: &[&str]| texts.iter().map(|text| text.as_bytes().to_vec()).collect::<Vec<_>>();
            assert_eq!(found[0], texts(&["1", &format!("[{plain}]"), "[]", "[[1],[]]"]));
            assert_eq!(found[1..], [texts(&[]), texts(&[&format!("[{last}]"), "[1.50,2.50,3.50,4.50,5.50]"])]);
        }
    }

    /// What is wrong within a long array is told as elsewhere.
    #[test]
    fn broken_arrays_are_told() {
        for bad in ["[1,]", "[1 2]", "[1", "[,1]", "[1,2}", "[[1,2}]"] {
            let body = format!(r#"{{"a":{bad}}}"#);
            assert!(matches!(both(&body, PayloadFormat::Ndjson), Err(PayloadError::Malformed(_))), "{bad}");
        }
        assert_eq!(both(r#"{"a" : [ ] , "b" : [ 1 , 2 ] }"#, PayloadFormat::Ndjson), Ok(1));
    }

    #[test]
    fn csv_documents_are_read_like_others() {
        let (documents, names) = read("id,n:number,n\n1,2,x\n", PayloadFormat::Csv { delimiter: b',' }).unwrap();
        assert_eq!((documents[0].as_str(), names.len()), (r#"{"id":"1","n":"x"}"#, 2));
    }
}
