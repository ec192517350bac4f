//! CSV bodies: a header of typed columns, then one document a record.

use csv::{ByteRecord, ReaderBuilder};

use crate::document::json::put_string;
use crate::document::payload::PayloadError;

/// What the cells of a column become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CellType {
    Text,
    Number,
    Boolean,
}

/// Reads the records of a CSV body.
pub struct CsvReader<'a> {
    reader: csv::Reader<&'a [u8]>,
    columns: Vec<(String, CellType)>,
    record: ByteRecord,
}

impl<'a> CsvReader<'a> {
    /// Reads the header.
    pub fn new(body: &'a [u8], delimiter: u8) -> Result<Self, PayloadError> {
        let mut reader = ReaderBuilder::new().delimiter(delimiter).has_headers(true).from_reader(body);
        let header = reader.headers().map_err(|error| malformed(&error))?;
        let columns = header.iter().map(column).collect();
        Ok(Self { reader, columns, record: ByteRecord::new() })
    }

    /// How many bytes were read from the body.
    pub fn offset(&self) -> usize {
        self.reader.position().byte() as usize
    }

    /// Takes the next record; false at the end.
    pub fn advance(&mut self) -> Result<bool, PayloadError> {
        self.reader.read_byte_record(&mut self.record).map_err(|error| malformed(&error))
    }

    /// Calls `each` with the names and the values (JSON text) of the record, in the order of the columns. Of columns with the
    /// same name the last one counts, which is for the caller to see to.
    pub fn for_each_field<E: From<PayloadError>>(
        &self,
        mut each: impl FnMut(&str, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut value = Vec::new();
        for ((name, kind), cell) in self.columns.iter().zip(self.record.iter()) {
            value.clear();
            put_cell(&mut value, *kind, cell).map_err(|why| PayloadError::Malformed(self.of_line(name, &why)))?;
            each(name, &value)?;
        }
        Ok(())
    }

    /// What is wrong with a cell of the record, and where that is.
    fn of_line(&self, column: &str, why: &str) -> String {
        let line = self.record.position().map_or(0, csv::Position::line);
        format!("line {line}, column `{column}`: {why}")
    }
}

/// The name and type of a header cell.
fn column(cell: &str) -> (String, CellType) {
    let typed = cell.rsplit_once(':').and_then(|(name, kind)| match kind {
        "string" => Some((name, CellType::Text)),
        "number" => Some((name, CellType::Number)),
        "boolean" => Some((name, CellType::Boolean)),
        _ => None,
    });
    let (name, kind) = typed.unwrap_or((cell, CellType::Text));
    (name.to_owned(), kind)
}

/// Appends a cell as JSON; fails with what is wrong with it.
fn put_cell(out: &mut Vec<u8>, kind: CellType, cell: &[u8]) -> Result<(), String> {
    let text = std::str::from_utf8(cell).map_err(|_| "the cell is not UTF-8")?;
    let text = if kind == CellType::Text { text } else { text.trim() };
    match kind {
        _ if text.is_empty() => out.extend_from_slice(b"null"),
        CellType::Text => put_string(out, text),
        CellType::Boolean if matches!(text, "true" | "false") => out.extend_from_slice(text.as_bytes()),
        CellType::Boolean => return Err(format!("`{text}` is neither `true` nor `false`")),
        CellType::Number => {
            let number = text.parse::<i64>().map(serde_json::Number::from).map(Some);
            let number = number.or_else(|_| text.parse::<f64>().map(serde_json::Number::from_f64));
            let number = number.map_err(|_| format!("`{text}` is not a number"))?;
            match number {
                Some(number) => out.extend_from_slice(number.to_string().as_bytes()),
                None => out.extend_from_slice(b"null"),
            }
        }
    }
    Ok(())
}

fn malformed(error: &csv::Error) -> PayloadError {
    PayloadError::Malformed(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documents(body: &str) -> Result<Vec<String>, PayloadError> {
        let (mut reader, mut found) = (CsvReader::new(body.as_bytes(), b',')?, Vec::new());
        while reader.advance()? {
            let mut line = Vec::new();
            reader.for_each_field(|name, value| {
                line.push(format!("{name}={}", String::from_utf8_lossy(value)));
                Ok::<_, PayloadError>(())
            })?;
            found.push(line.join(" "));
        }
        Ok(found)
    }

    #[test]
    fn headers_give_types_by_their_last_part() {
        let body = "id,a:b:number,size:int,ok:boolean,when:\n7, 1e3 ,5,true,x\n\n8,inf,,,\"a \"\"q\"\"\nb\"\n";
        assert_eq!(
            documents(body).unwrap(),
            [
                r#"id="7" a:b=1000.0 size:int="5" ok=true when:="x""#,
                r#"id="8" a:b=null size:int=null ok=null when:="a \"q\"\nb""#,
            ]
        );
    }

    #[test]
    fn a_bad_cell_is_named_by_its_place() {
        let told = documents("a,n:number\n\"x\ny\",1\nz,one\n");
        let Err(PayloadError::Malformed(why)) = told else { panic!("{told:?}") };
        assert_eq!(why, "line 4, column `n`: `one` is not a number");
    }

    #[test]
    fn bad_bodies_are_refused() {
        for bad in ["a,b\n1\n", "a:number\nx\n", "a:boolean\nTrue\n", "a\n1,2\n"] {
            assert!(matches!(documents(bad), Err(PayloadError::Malformed(_))), "{bad}");
        }
        assert_eq!(documents("a,b\n").unwrap().len(), 0);
        assert_eq!(
            documents("a,b\n\"x,1\n").ok().map(|d| d.len()),
            None,
            "an unclosed quote runs to the end: one cell"
        );
        let invalid = CsvReader::new(b"a\n\xff\n", b',').and_then(|mut reader| {
            reader.advance()?;
            reader.for_each_field(|_, _| Ok::<_, PayloadError>(()))
        });
        assert!(invalid.is_err());
    }
}
