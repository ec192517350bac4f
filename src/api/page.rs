//! Paginated lists.

use serde_json::{Value, json};

use super::decode::Params;
use super::error::{ApiError, ErrorCode};
use crate::http::Response;

/// Items of a page unless asked otherwise.
const LIMIT: usize = 20;

/// Which part of a list is asked for.
pub struct Page {
    offset: usize,
    limit: usize,
}

impl Page {
    /// Reads `offset` and `limit`, with the error code of each; any other parameter is refused.
    pub fn parse(query: &Params, offset_code: ErrorCode, limit_code: ErrorCode) -> Result<Self, ApiError> {
        let mut page = Self { offset: 0, limit: LIMIT };
        for param in query.iter() {
            match param.name() {
                "offset" => page.offset = param.usize(offset_code)?,
                "limit" => page.limit = param.usize(limit_code)?,
                _ => return Err(param.unknown()),
            }
        }
        Ok(page)
    }

    /// The answer: the part of `items` asked for, each written by `write`, beside their number.
    pub fn answer<T>(&self, items: impl ExactSizeIterator<Item = T>, write: impl Fn(T) -> Value) -> Response {
        let total = items.len();
        let results: Vec<Value> = items.skip(self.offset).take(self.limit).map(write).collect();
        let body = json!({ "results": results, "offset": self.offset, "limit": self.limit, "total": total });
        Response::from_json(200, &body)
    }
}
