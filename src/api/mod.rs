//! The HTTP interface: what each route reads from a request, checks, and responds. Handlers hold no index logic: they decode,
//! call the engine or the control plane, and encode.

pub mod batches;
pub mod chats;
mod completions;
pub mod decode;
pub mod documents;
pub mod dumps_and_snapshots;
pub mod error;
pub mod export;
pub mod features;
pub mod fields;
pub mod indexes;
pub mod keys;
pub mod logs;
mod long_body;
pub mod metrics;
pub mod network;
pub mod page;
pub mod reader;
pub mod router;
pub mod search;
pub mod search_rules;
pub mod settings;
pub mod stats;
pub mod tasks;
pub mod uuids;
pub mod webhooks;

use router::Route;

use crate::app::App;

/// Every route of the server.
pub fn routes() -> Vec<Route<App>> {
    let parts = [
        batches::routes(),
        chats::routes(),
        completions::routes(),
        documents::routes(),
        dumps_and_snapshots::routes(),
        export::routes(),
        features::routes(),
        fields::routes(),
        indexes::routes(),
        keys::routes(),
        logs::routes(),
        network::routes(),
        search::routes(),
        search_rules::routes(),
        settings::routes::routes(),
        stats::routes(),
        tasks::routes(),
        metrics::routes(),
        webhooks::routes(),
    ];
    parts.into_iter().flatten().collect()
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
