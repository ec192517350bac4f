//! Parameters of a document listing, from a query string or a body.

use serde_json::Value;

use crate::api::decode::{Node, Param, Params};
use crate::api::error::{ApiError, ErrorCode};

/// Longest id in bytes.
const ID_BYTES_MAX: usize = 511;

/// A listing as it was asked for. Nothing but types and ids is checked.
#[derive(Debug, PartialEq)]
pub struct ReadQuery {
    /// Documents to pass over.
    pub offset: usize,
    /// Documents to return.
    pub limit: usize,
    /// Parts to show; `None` for everything.
    pub fields: Option<Vec<String>>,
    /// Whether to show `_vectors`.
    pub retrieve_vectors: bool,
    /// Ids to choose from, as their text; `None` for all.
    pub ids: Option<Vec<Value>>,
    /// A filter in any of its forms.
    pub filter: Option<Value>,
    /// Criteria, each such as `year:desc`.
    pub sort: Option<Vec<String>>,
}

impl Default for ReadQuery {
    fn default() -> Self {
        Self { offset: 0, limit: 20, fields: None, retrieve_vectors: false, ids: None, filter: None, sort: None }
    }
}

impl ReadQuery {
    /// From the query string of `GET /indexes/{uid}/documents`.
    pub fn from_query(params: &Params) -> Result<Self, ApiError> {
        let mut read = Self::default();
        for param in params.iter() {
            match param.name() {
                "offset" => read.offset = param.usize(ErrorCode::InvalidDocumentOffset)?,
                "limit" => read.limit = param.usize(ErrorCode::InvalidDocumentLimit)?,
                "fields" => read.fields = param.list_or_star(),
                "retrieveVectors" => {
                    read.retrieve_vectors = param.boolean(ErrorCode::InvalidDocumentRetrieveVectors)?
                }
                "ids" => read.ids = Some(param.list().into_iter().map(Value::from).collect()),
                "filter" => read.filter = filter_parameter(param),
                "sort" => read.sort = Some(sort_items(param.text())),
                _ => return Err(param.unknown()),
            }
        }
        Ok(read)
    }

    /// From the body of `POST /indexes/{uid}/documents/fetch`.
    pub fn from_body(body: &Value) -> Result<Self, ApiError> {
        let mut read = Self::default();
        for field in Node::body(body).fields(ErrorCode::BadRequest)? {
            match field.name() {
                "offset" => read.offset = field.usize(ErrorCode::InvalidDocumentOffset)?,
                "limit" => read.limit = field.usize(ErrorCode::InvalidDocumentLimit)?,
                "fields" => read.fields = field.nullable(|field| field.strings(ErrorCode::InvalidDocumentFields))?,
                "retrieveVectors" => {
                    read.retrieve_vectors = field.boolean(ErrorCode::InvalidDocumentRetrieveVectors)?
                }
                "ids" => read.ids = field.nullable(ids)?,
                "filter" => read.filter = field.nullable(|field| Ok(field.value().clone()))?,
                "sort" => read.sort = field.nullable(|field| field.strings(ErrorCode::InvalidDocumentSort))?,
                _ => return Err(field.unknown(ErrorCode::BadRequest)),
            }
        }
        Ok(read)
    }

    /// The ids as texts.
    ///
    /// # Errors
    /// `invalid_document_ids` for one that no document can have.
    pub fn id_texts(&self) -> Result<Option<Vec<String>>, ApiError> {
        let Some(ids) = &self.ids else { return Ok(None) };
        ids.iter().map(id_text).collect::<Result<Vec<String>, ApiError>>().map(Some)
    }
}

fn ids(field: &Node<'_>) -> Result<Vec<Value>, ApiError> {
    Ok(field.items(ErrorCode::InvalidDocumentIds)?.map(|item| item.value().clone()).collect())
}

fn id_text(id: &Value) -> Result<String, ApiError> {
    let text = match id {
        Value::String(text) if is_id(text) => Some(text.clone()),
        Value::Number(number) if number.is_i64() || number.is_u64() => Some(number.to_string()),
        _ => None,
    };
    let message = || {
        format!(
            "`{id}` is not a valid document id. An id is an integer, or a string of 1 to {ID_BYTES_MAX} characters of a-z, \
             A-Z, 0-9, hyphen (-) and underscore (_)."
        )
    };
    text.ok_or_else(|| ApiError::new(ErrorCode::InvalidDocumentIds, message()))
}

fn is_id(text: &str) -> bool {
    (1..=ID_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

/// A filter in a query string: JSON where it is JSON, else the expression itself. An empty one is no filter. Unlike in a
/// body, `null` is a filter, though one that is refused like a list that holds it.
pub fn filter_parameter(param: &Param) -> Option<Value> {
    let text = param.text();
    match serde_json::from_str(text) {
        Ok(Value::Null) => Some(vec![Value::Null].into()),
        Ok(value) => Some(value),
        Err(_) if text.trim().is_empty() => None,
        Err(_) => Some(text.into()),
    }
}

/// The criteria of a `sort` parameter: between commas, except those within the parentheses of a point; blanks and outer
/// double quotes are trimmed.
pub fn sort_items(text: &str) -> Vec<String> {
    let (mut items, mut depth, mut start) = (Vec::new(), 0u32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                items.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    items.push(&text[start..]);
    items.into_iter().map(|item| item.trim().trim_matches('"').to_string()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn get(query: &str) -> Result<ReadQuery, &'static str> {
        ReadQuery::from_query(&Params::parse(query)).map_err(|error| error.code.name())
    }

    fn post(body: Value) -> Result<ReadQuery, &'static str> {
        ReadQuery::from_body(&body).map_err(|error| error.code.name())
    }

    /// The two routes answer the same thing, but what is empty or starred differs.
    #[test]
    fn query_strings_and_bodies_differ_in_their_lists() {
        assert_eq!(get("fields=*,id").unwrap().fields, None);
        assert_eq!(get("fields=").unwrap().fields, Some(vec![]));
        assert_eq!(post(json!({"fields": ["*"]})).unwrap().fields, Some(vec!["*".into()]));
        assert_eq!(
            post(json!({"fields": null, "ids": null, "filter": null, "sort": null})).unwrap(),
            ReadQuery::default()
        );
        assert_eq!(get("ids=").unwrap().ids, Some(vec![]));
    }

    #[test]
    fn each_field_has_its_code() {
        for (query, code) in [
            ("offset=-1", "invalid_document_offset"),
            ("limit=", "invalid_document_limit"),
            ("retrieveVectors=1", "invalid_document_retrieve_vectors"),
            ("Limit=1", "bad_request"),
        ] {
            assert_eq!(get(query).unwrap_err(), code);
        }
        for (body, code) in [
            (json!({"offset": null}), "invalid_document_offset"),
            (json!({"retrieveVectors": null}), "invalid_document_retrieve_vectors"),
            (json!({"fields": "a"}), "invalid_document_fields"),
            (json!({"ids": 1}), "invalid_document_ids"),
            (json!({"sort": "a:asc"}), "invalid_document_sort"),
            (json!([]), "bad_request"),
        ] {
            assert_eq!(post(body).unwrap_err(), code);
        }
    }

    #[test]
    fn ids_are_integers_or_short_words() {
        let ids = |body: Value| post(json!({"ids": body})).unwrap().id_texts().map_err(|error| error.code.name());
        assert_eq!(
            ids(json!([1, "a-b_C", -5, u64::MAX])),
            Ok(Some(vec!["1".into(), "a-b_C".into(), "-5".into(), u64::MAX.to_string()]))
        );
        for bad in [json!([1.5]), json!([""]), json!(["a b"]), json!([null]), json!(["x".repeat(512)])] {
            assert_eq!(ids(bad), Err("invalid_document_ids"));
        }
    }

    #[test]
    fn filters_and_sorts_of_query_strings() {
        let filter = |text: &str| get(&format!("filter={text}")).unwrap().filter;
        assert_eq!(filter("a%20=%201"), Some(json!("a = 1")));
        assert_eq!(filter("%22a%20=%201%22"), Some(json!("a = 1")));
        assert_eq!((filter("12"), filter("")), (Some(json!(12)), None));
        assert_eq!(filter("null"), Some(json!([null])));
        assert_eq!(sort_items("a:asc, _geoPoint(1,2):desc"), ["a:asc", "_geoPoint(1,2):desc"]);
        assert_eq!(sort_items("\"a:asc\""), ["a:asc"]);
    }
}
