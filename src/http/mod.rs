//! HTTP/1.1 as bytes: reading requests strictly, writing responses, and the types in between. No socket, no clock.

pub mod body;
pub mod compress;
pub mod parse;
pub mod request;
pub mod respond;
pub mod weight;

pub use request::{BodyError, Head, Headers, Method, Request, Response, ResponseBody, Service};
