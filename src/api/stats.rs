//! Statistics, health, version.

use serde_json::{Map, Value, json};
use shards::engine::IndexView;

use super::error::ApiError;
use super::router::{Answer, Call, Route};
use crate::app::App;
use crate::http::Response;
use crate::routes;

/// The commit this was built from, when the build says so.
const COMMIT_SHA: Option<&str> = option_env!("SKERRY_COMMIT_SHA");
/// Its date.
const COMMIT_DATE: Option<&str> = option_env!("SKERRY_COMMIT_DATE");

/// The routes of this file.
pub fn routes() -> Vec<Route<App>> {
    routes! {
        Get "/" - => root;
        Get "/health" - => health;
        Get "/version" Version => version;
        Get "/stats" StatsGet => all;
        Get "/indexes/{uid}/stats" StatsGet => of_index;
    }
}

async fn root(_: Call<App>) -> Answer {
    // Clients compare this text to know whether the instance is up.
    Ok(Response::from_json(200, &json!({ "status": "Meilisearch is running" })))
}

async fn health(_: Call<App>) -> Answer {
    Ok(Response::from_json(200, &json!({ "status": "available" })))
}

async fn version(_: Call<App>) -> Answer {
    let body = json!({
        "commitSha": COMMIT_SHA.unwrap_or("unknown"),
        "commitDate": COMMIT_DATE.unwrap_or("unknown"),
        "pkgVersion": env!("CARGO_PKG_VERSION"),
    });
    Ok(Response::from_json(200, &body))
}

async fn all(call: Call<App>) -> Answer {
    let status = call.app.control.status().await?;
    let state = call.app.control.state();
    let mut indexes = Map::new();
    let (mut file_bytes, mut used_bytes, mut last_update) = (status.file_bytes, status.used_bytes, None);
    for (uid, view) in state.indexes.iter() {
        file_bytes += view.store_bytes.file;
        used_bytes += view.store_bytes.used;
        if call.grant.sees_index(uid) {
            last_update = last_update.max(Some(view.updated_at));
            indexes.insert(uid.to_string(), object(view, status.processing_indexes.iter().any(|name| **name == **uid)));
        }
    }
    let body = json!({
        "databaseSize": file_bytes,
        "usedDatabaseSize": used_bytes,
        "lastUpdate": last_update.map(|date| date.to_string()),
        "indexes": indexes,
    });
    Ok(Response::from_json(200, &body))
}

async fn of_index(call: Call<App>) -> Answer {
    let uid = call.index_uid()?;
    let status = call.app.control.status().await?;
    let state = call.app.control.state();
    let view = state.index(uid).ok_or_else(|| ApiError::index_not_found(uid))?;
    Ok(Response::from_json(200, &object(view, status.processing_indexes.iter().any(|name| name == uid))))
}

fn object(view: &IndexView, is_indexing: bool) -> Value {
    let distribution: Map<String, Value> =
        view.field_distribution.iter().map(|(field, count)| (field.clone(), (*count).into())).collect();
    json!({
        "numberOfDocuments": view.documents,
        "rawDocumentDbSize": view.raw_bytes,
        "avgDocumentSize": view.raw_bytes.checked_div(view.documents).unwrap_or(0),
        "isIndexing": is_indexing,
        "numberOfEmbeddings": view.vectors.embeddings,
        "numberOfEmbeddedDocuments": view.vectors.documents,
        "fieldDistribution": distribution,
    })
}
