//! Documents: reading, adding, deleting, editing.

mod add;
mod delete;
mod edit;
mod read;
pub mod read_query;
pub mod selection;

use shards::facets::FilterFeatureSet;

use super::error::ApiError;
use super::router::{Call, Route};
use crate::app::App;
use crate::routes;

/// The routes of this folder.
pub fn routes() -> Vec<Route<App>> {
    routes! {
        Get "/indexes/{uid}/documents" DocumentsGet => read::list;
        Post "/indexes/{uid}/documents" DocumentsAdd => add::replace;
        Put "/indexes/{uid}/documents" DocumentsAdd => add::update;
        Delete "/indexes/{uid}/documents" DocumentsDelete => delete::all;
        Post "/indexes/{uid}/documents/fetch" DocumentsGet => read::fetch;
        Post "/indexes/{uid}/documents/delete" DocumentsDelete => delete::by_filter;
        Post "/indexes/{uid}/documents/delete-batch" DocumentsDelete => delete::batch;
        Post "/indexes/{uid}/documents/edit" DocumentsEdit => edit::edit;
        Get "/indexes/{uid}/documents/{id}" DocumentsGet => read::one;
        Delete "/indexes/{uid}/documents/{id}" DocumentsDelete => delete::one;
    }
}

/// The query string of routes that take nothing else in it.
fn custom_metadata(call: &Call<App>) -> Result<Option<String>, ApiError> {
    let mut metadata = None;
    for param in call.query().iter() {
        match param.name() {
            "customMetadata" => metadata = Some(param.text().to_string()),
            _ => return Err(param.unknown()),
        }
    }
    Ok(metadata)
}

/// The features that filters may use now.
pub(super) fn filter_features(call: &Call<App>) -> FilterFeatureSet {
    let features = call.app.control.state().features;
    FilterFeatureSet { contains: features.contains_filter, network: features.network, multimodal: features.multimodal }
}
