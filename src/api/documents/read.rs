//! Reading documents: one by its ID, or a page of those selected by IDs and a filter.

use std::sync::Arc;

use shards::document::RawDocument;
use shards::engine::{DocumentsQuery, IndexView};
use shards::facets::{parse_filter, parse_sort};
use shards::runtime::Checkpoint;

use super::filter_features;
use super::read_query::ReadQuery;
use super::selection::{Selection, VECTORS_FIELD};
use crate::api::error::{ApiError, ErrorCode};
use crate::api::router::{Answer, Call};
use crate::app::App;
use crate::http::Response;

pub(super) async fn one(call: Call<App>) -> Answer {
    let (mut fields, mut retrieve_vectors) = (None, false);
    for param in call.query().iter() {
        match param.name() {
            "fields" => fields = param.list_or_star(),
            "retrieveVectors" => retrieve_vectors = param.boolean(ErrorCode::InvalidDocumentRetrieveVectors)?,
            _ => return Err(param.unknown()),
        }
    }
    let (view, id) = (view(&call)?, call.param(1));
    let document = if retrieve_vectors {
        let query =
            DocumentsQuery { ids: Some(vec![id.to_string()]), limit: 1, vectors: true, ..DocumentsQuery::default() };
        call.app.reader.documents(view.clone(), query).await?.documents.pop()
    } else {
        call.app.reader.document(view.clone(), id.to_string()).await?
    };
    let not_found = || ApiError::new(ErrorCode::DocumentNotFound, format!("Document `{id}` not found."));
    let document = document.ok_or_else(not_found)?;
    let mut body = Vec::new();
    Page { view: &view, selection: Selection::new(fields), retrieve_vectors }.write(&document, &mut body)?;
    Ok(Response::json(200, body))
}

pub(super) async fn list(call: Call<App>) -> Answer {
    let query = ReadQuery::from_query(&call.query())?;
    page(call, query).await
}

pub(super) async fn fetch(mut call: Call<App>) -> Answer {
    let query = call.decoded(|body| ReadQuery::from_body(&body)).await?;
    page(call, query).await
}

async fn page(call: Call<App>, query: ReadQuery) -> Answer {
    call.index_uid()?;
    let ids = query.id_texts()?;
    let sort = query.sort.unwrap_or_default();
    parse_sort(&sort.clone().into(), ErrorCode::InvalidDocumentSort.name())?;
    let view = view(&call)?;
    if let Some(filter) = &query.filter
        && let Some(parsed) = parse_filter(filter, ErrorCode::InvalidDocumentFilter.name())?
    {
        parsed.check_features(&filter_features(&call))?;
    }
    let (offset, limit) = (query.offset, query.limit);
    let wanted = DocumentsQuery {
        ids,
        filter: query.filter,
        sort,
        after: None,
        offset: offset as u64,
        limit: limit as u64,
        vectors: query.retrieve_vectors,
    };
    let found = call.app.reader.documents(view.clone(), wanted).await?;

    let page = Page { view: &view, selection: Selection::new(query.fields), retrieve_vectors: query.retrieve_vectors };
    let mut body = Vec::with_capacity(bytes_of(&found.documents));
    body.extend_from_slice(b"{\"results\":[");
    let mut checkpoint = Checkpoint::default();
    // Documents are freed one by one: all of a long page at once takes longer than others should wait.
    for (at, document) in found.documents.into_iter().enumerate() {
        if at > 0 {
            body.push(b',');
        }
        page.write(&document, &mut body)?;
        drop(document);
        checkpoint.tick(&*call.app.runtime).await;
    }
    let end = format!("],\"offset\":{offset},\"limit\":{limit},\"total\":{}}}", found.total);
    body.extend_from_slice(end.as_bytes());
    Ok(Response::json(200, body))
}

/// About what documents take as JSON.
fn bytes_of(documents: &[RawDocument]) -> usize {
    /// What a field has besides its value: its name, most of all.
    const NAME_BYTES: usize = 16;
    let of_fields =
        |document: &RawDocument| document.fields.iter().map(|(_, raw)| raw.len() + NAME_BYTES).sum::<usize>();
    documents.iter().map(of_fields).sum::<usize>() + 128
}

/// The index that the path names.
fn view(call: &Call<App>) -> Result<Arc<IndexView>, ApiError> {
    let uid = call.index_uid()?;
    let state = call.app.control.state();
    state.index(uid).cloned().ok_or_else(|| ApiError::index_not_found(uid))
}

/// How documents of one answer are written.
struct Page<'v> {
    view: &'v IndexView,
    selection: Selection,
    retrieve_vectors: bool,
}

impl Page<'_> {
    fn write(&self, document: &RawDocument, out: &mut Vec<u8>) -> Result<(), ApiError> {
        let name_of = |id| self.view.fields.name(id).unwrap_or_default();
        let fields = || document.fields.iter().map(|(id, raw)| (name_of(*id), raw.as_ref()));
        let vectors = self.retrieve_vectors.then(|| {
            let stored = fields().find(|(name, _)| *name == VECTORS_FIELD).map(|(_, raw)| raw);
            stored.unwrap_or(b"{}")
        });
        Ok(self.selection.write(fields(), vectors, out)?)
    }
}
