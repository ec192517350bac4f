//! The service that puts what was found in the order of one person.
//!
//! [`Reranker`] asks it, and asks again where that may help, as long as it answers at all ([`breaker`]); [`ranking`] reads what it
//! answers, of which nothing is believed.
//! What it is told of a search, and where hits go by its answer, is in `api::search::personalize`.

mod breaker;
mod ranking;
mod reranker;

pub use breaker::Leave;
pub use reranker::{Question, Reranker, RerankerOptions, TIME_MAX, URL_DEFAULT};
