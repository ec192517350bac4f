//! Personalization: a service that reranks hits for one user.
//!
//! [`Reranker`] sends requests and retries where that may help, unless the service has stopped responding ([`breaker`]).
//! [`ranking`] parses the responses and trusts nothing in them. `api::search::personalize` decides what the service is told of a
//! search and how its response reorders hits.

mod breaker;
mod ranking;
mod reranker;

pub use breaker::Leave;
pub use reranker::{Question, Reranker, RerankerOptions, TIME_MAX, URL_DEFAULT};
