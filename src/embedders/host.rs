//! The embedders of one core, as the engine asks for them.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{FutureExt, LocalBoxFuture};
use serde_json::Value;
use shards::error::UserError;
use shards::runtime::Runtime;
use shards::settings::{EmbedderConfig, EmbedderSource};
use shards::vectors::{DocumentEmbedding, EmbedRequest, EmbedderFacts, EmbedderHost, QueryRequest};

use super::cache::QueryCache;
use super::exchange::FRAGMENT;
use super::render::{Plan, plan};
use super::source::{Embedder, EmbedderOptions, Side, Source, fragments, side_settings};
use super::tally::{Purpose, Tally};
use super::template::JsonTemplate;
use super::transport::{Failure, Transport, misfit};
use super::view::{Globals, View};
use crate::archive::aside;
use crate::outgoing::Client;

const EMBEDDING_CODE: &str = "vector_embedding_error";
const DOCUMENT_CODE: &str = "invalid_document_fields";

/// What a service is asked to find out the length of its vectors.
const PROBE: &str = "test";
/// What both sides of a composite embedder must make nearly the same vectors of.
const PROBES: [&str; 3] = [PROBE, "a brave dog", "This is a sample text. It is meant to compare similarity."];
/// How far these may be apart: half of one minus the cosine.
const PROBE_DISTANCE_MAX: f32 = 0.01;

/// The embedders of one core. Cheap to clone.
#[derive(Clone)]
pub struct Embedders {
    shared: Rc<Shared>,
}

struct Shared {
    runtime: Rc<dyn Runtime>,
    transport: Transport,
    options: EmbedderOptions,
    cache: RefCell<QueryCache>,
}

impl Embedders {
    /// The embedders of a core that calls services through `client`, and tells `tally` of the requests that are no search's.
    /// `cache_entries`: query vectors kept for each embedder.
    pub fn new(
        runtime: Rc<dyn Runtime>,
        client: Client,
        tally: Rc<dyn Tally>,
        options: EmbedderOptions,
        cache_entries: usize,
    ) -> Self {
        let transport = Transport::new(runtime.clone(), client, tally, &options);
        let cache = RefCell::new(QueryCache::new(cache_entries));
        Self { shared: Rc::new(Shared { runtime, transport, options, cache }) }
    }
}

impl EmbedderHost for Embedders {
    fn prepare(&self, name: &str, embedder: &Arc<Value>) -> LocalBoxFuture<'static, Result<EmbedderFacts, UserError>> {
        let (shared, name, embedder) = (self.shared.clone(), name.to_owned(), embedder.clone());
        async move { shared.prepare(&name, &embedder).await.map_err(|why| embedding_error(&name, &why)) }.boxed_local()
    }

    fn embed(&self, request: EmbedRequest) -> LocalBoxFuture<'static, Result<Vec<DocumentEmbedding>, UserError>> {
        let shared = self.shared.clone();
        async move { shared.embed_documents(request).await }.boxed_local()
    }

    fn embed_query(&self, request: QueryRequest) -> LocalBoxFuture<'static, Result<Vec<f32>, UserError>> {
        let shared = self.shared.clone();
        async move { shared.embed_query(&request).await.map_err(|why| query_error(&request.name, &why)) }.boxed_local()
    }
}

fn embedding_error(name: &str, why: &str) -> UserError {
    UserError::new(EMBEDDING_CODE, format!("Embedder `{name}` cannot be used: {why}."))
}

fn query_error(name: &str, why: &str) -> UserError {
    UserError::new(EMBEDDING_CODE, format!("The query cannot be embedded by `{name}`: {why}."))
}

impl Shared {
    async fn prepare(&self, name: &str, settings: &Value) -> Result<EmbedderFacts, String> {
        let (config, purpose) = (EmbedderConfig::of(settings), Purpose::Batch(name));
        let dimensions = match config.source {
            EmbedderSource::Composite => self.compare_sides(settings, purpose).await?,
            _ => {
                let embedder = Embedder::of(settings, Side::Indexing, &self.options)?;
                self.dimensions(&embedder, purpose).await?
            }
        };
        match u32::try_from(dimensions) {
            Ok(dimensions) if dimensions > 0 => Ok(EmbedderFacts { dimensions }),
            _ => Err(format!("its vectors have {dimensions} numbers")),
        }
    }

    async fn dimensions(&self, embedder: &Embedder, purpose: Purpose<'_>) -> Result<usize, String> {
        match embedder.dimensions {
            Some(dimensions) => Ok(dimensions),
            None => Ok(self.one(embedder, PROBE.into(), purpose).await?.len()),
        }
    }

    /// Checks that both sides of a composite embedder make the same vectors, and finds their length.
    async fn compare_sides(&self, settings: &Value, purpose: Purpose<'_>) -> Result<usize, String> {
        let indexing = Embedder::of(settings, Side::Indexing, &self.options)?;
        let search = Embedder::of(settings, Side::Search, &self.options)?;
        let has_fragments = |side, name: &str| side_settings(settings, side).get(name).is_some();
        if has_fragments(Side::Indexing, "indexingFragments") || has_fragments(Side::Search, "searchFragments") {
            let told = if indexing.dimensions.is_some() { &indexing } else { &search };
            return self.dimensions(told, purpose).await;
        }
        let texts = || PROBES.iter().map(|text| Value::from(*text)).collect::<Vec<_>>();
        let of_indexing = all(self.vectors(&indexing, texts(), purpose).await)?;
        let of_search = all(self.vectors(&search, texts(), purpose).await)?;
        for ((text, left), right) in PROBES.iter().zip(&of_indexing).zip(&of_search) {
            if left.len() != right.len() {
                let (left, right) = (left.len(), right.len());
                return Err(format!("`indexingEmbedder` makes vectors of {left} numbers, `searchEmbedder` of {right}"));
            }
            if distance(left, right) > PROBE_DISTANCE_MAX {
                return Err(format!("`indexingEmbedder` and `searchEmbedder` make different vectors of `{text}`"));
            }
        }
        of_indexing.first().map(Vec::len).ok_or_else(|| "it made no vector".into())
    }

    async fn one(&self, embedder: &Embedder, input: Value, purpose: Purpose<'_>) -> Result<Vec<f32>, String> {
        let vectors = all(self.vectors(embedder, vec![input], purpose).await)?;
        vectors.into_iter().next().ok_or_else(|| "it made no vector".into())
    }

    /// One result for each input.
    async fn vectors(
        &self,
        embedder: &Embedder,
        inputs: Vec<Value>,
        purpose: Purpose<'_>,
    ) -> Vec<Result<Vec<f32>, Failure>> {
        let count = inputs.len();
        let mut results = match &embedder.source {
            Source::Remote(remote) => self.transport.embed(remote, inputs, purpose).await,
            #[cfg(feature = "local-models")]
            Source::Local(model) => super::local::embed(&*self.runtime, model, &inputs).await,
            #[cfg(not(feature = "local-models"))]
            Source::Local(model) => vec![Err(model.unavailable()); count],
            Source::UserProvided => vec![Err(Failure::plain("its vectors come with the documents")); count],
        };
        // A service's vectors were looked at with its answer, a model's were not.
        for result in &mut results {
            if let Ok(vector) = result
                && let Some(why) = misfit(vector, embedder.dimensions)
            {
                *result = Err(Failure::plain(why));
            }
        }
        results
    }

    async fn embed_documents(&self, request: EmbedRequest) -> Result<Vec<DocumentEmbedding>, UserError> {
        let name = request.name.clone();
        let fault = |why: &str| embedding_error(&name, why);
        let settings = request.context.embedder.clone();
        let embedder = Embedder::of(&settings, Side::Indexing, &self.options).map_err(|why| fault(&why))?;
        // Templates are other people's programs: an executor does not wait for them.
        let planned = aside(&*self.runtime, move || {
            let ids: Vec<String> = request.documents.iter().map(|document| document.id.clone()).collect();
            plan(&request).map(|plans| (ids, plans))
        });
        let (ids, plans) = planned.await.map_err(|error| fault(&error.to_string()))?.map_err(|why| fault(&why))?;
        let mut inputs = Vec::new();
        for (id, plan) in ids.iter().zip(&plans) {
            match plan {
                Plan::Failed(why) if !self.options.ignores_template_failures => {
                    let message = format!("The document `{id}` cannot be rendered for embedder `{name}`: {why}.");
                    return Err(UserError::new(DOCUMENT_CODE, message));
                }
                Plan::Failed(_) | Plan::Unchanged => {}
                Plan::Replace(texts) => inputs.extend(texts.iter().map(|(_, text)| text.clone())),
                Plan::Patch(texts) => inputs.extend(texts.iter().filter_map(|(_, text)| text.clone())),
            }
        }
        let results = match inputs.is_empty() {
            true => Vec::new(),
            false => self.vectors(&embedder, inputs, Purpose::Batch(&name)).await,
        };
        let mut vectors = results.into_iter();
        let mut next = |id: &String| match vectors.next() {
            Some(Ok(vector)) => Ok(Some(vector)),
            Some(Err(failure)) if self.options.ignores_embedder_failures => {
                tracing::warn!(embedder = %name, document = id, error = failure.why, "a document is stored without vectors");
                Ok(None)
            }
            Some(Err(failure)) => Err(fault(&format!("while embedding the document `{id}`: {}", failure.why))),
            None => Err(fault("it gave too few vectors")),
        };
        let finished = plans.into_iter().zip(&ids).map(|(plan, id)| finish(plan, || next(id)));
        finished.collect()
    }

    async fn embed_query(&self, request: &QueryRequest) -> Result<Vec<f32>, String> {
        let settings = side_settings(&request.embedder, Side::Search);
        let embedder = Embedder::of(&request.embedder, Side::Search, &self.options)?;
        if matches!(embedder.source, Source::UserProvided) {
            return Err("it embeds nothing itself; pass `vector`".into());
        }
        let takes_fragments =
            matches!(&embedder.source, Source::Remote(remote) if remote.request.placeholder() == FRAGMENT);
        let purpose = || Purpose::Search(self.runtime.now().after(request.retry_for));
        let vector = if takes_fragments {
            let input = self.search_fragment(settings, request).await?;
            self.one(&embedder, input, purpose()).await?
        } else if request.media.is_some() {
            return Err("it has no `searchFragments`, so it takes no `media`".into());
        } else {
            let text = request.text.clone().ok_or("there is no text to embed")?;
            let identity = settings.to_string();
            let known = self.cache.borrow_mut().get(&identity, &text);
            match known {
                Some(vector) => vector,
                None => {
                    let vector = self.one(&embedder, text.as_str().into(), purpose()).await?;
                    self.cache.borrow_mut().put(&identity, &text, &vector);
                    vector
                }
            }
        };
        let (found, wanted) = (vector.len(), request.dimensions);
        if found == wanted as usize { Ok(vector) } else { Err(format!("it gave {found} numbers, expected {wanted}")) }
    }

    /// The one search fragment that can be rendered of a query.
    async fn search_fragment(&self, settings: &Value, request: &QueryRequest) -> Result<Value, String> {
        let fragments = fragments(settings, "searchFragments")?;
        let (text, media) = (request.text.clone(), request.media.clone());
        let rendered = aside(&*self.runtime, move || {
            let text = text.map(|text| View::from(Value::from(text)));
            let media = media.map(|media| View::from(Value::clone(&media)));
            let mut globals = Globals::default();
            globals.0.extend(text.as_ref().map(|text| ("q", text as _)));
            globals.0.extend(media.as_ref().map(|media| ("media", media as _)));
            let render = |(name, fragment): (String, JsonTemplate)| Some((name, fragment.render(&globals).ok()?));
            fragments.into_iter().filter_map(render).collect::<Vec<_>>()
        });
        let mut rendered = rendered.await.map_err(|error| error.to_string())?;
        match (rendered.pop(), rendered.is_empty()) {
            (Some((_, value)), true) => Ok(value),
            (None, _) => Err("none of its `searchFragments` fits `q` and `media`".into()),
            (Some((last, _)), _) => {
                let others: Vec<String> = rendered.into_iter().map(|(name, _)| name).collect();
                Err(format!(
                    "`q` and `media` fit more than one of its `searchFragments`: `{}`, `{last}`",
                    others.join("`, `")
                ))
            }
        }
    }
}

/// All vectors, or the first failure.
fn all(results: Vec<Result<Vec<f32>, Failure>>) -> Result<Vec<Vec<f32>>, String> {
    results.into_iter().collect::<Result<_, _>>().map_err(|failure: Failure| failure.why)
}

/// Puts vectors in the place of texts; one that is missing leaves the document without.
fn finish(
    plan: Plan,
    mut next: impl FnMut() -> Result<Option<Vec<f32>>, UserError>,
) -> Result<DocumentEmbedding, UserError> {
    Ok(match plan {
        Plan::Unchanged => DocumentEmbedding::Unchanged,
        Plan::Failed(_) => DocumentEmbedding::Replace(Vec::new()),
        Plan::Replace(texts) => {
            let mut vectors = Vec::with_capacity(texts.len());
            for (slot, _) in texts {
                vectors.extend(next()?.map(|vector| (slot, vector)));
            }
            vectors.sort_by_key(|(slot, _)| *slot);
            DocumentEmbedding::Replace(vectors)
        }
        Plan::Patch(texts) => {
            let mut vectors = Vec::with_capacity(texts.len());
            for (slot, text) in texts {
                vectors.push((slot, if text.is_some() { next()? } else { None }));
            }
            vectors.sort_by_key(|(slot, _)| *slot);
            DocumentEmbedding::Patch(vectors)
        }
    })
}

/// Half of one minus the cosine.
fn distance(left: &[f32], right: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let norms = (dot(left, left) * dot(right, right)).sqrt();
    if norms <= f32::EPSILON { 0.0 } else { (1.0 - (dot(left, right) / norms).clamp(-1.0, 1.0)) / 2.0 }
}
