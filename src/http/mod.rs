//! HTTP/1.1 as bytes: reading requests strictly, writing responses, and the types in between. No socket, no clock.

pub mod body;
pub mod parse;
pub mod request;

pub use request::{BodyError, Head, Headers, Method, Request, Response, ResponseBody, Service};
