//! The embedders of a core on the real executor, against a service of the test's own on loopback.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{FutureExt, LocalBoxFuture};
use serde_json::{Value, json};
use shards::document::RawDocument;
use shards::ids::{DocId, FieldId};
use shards::runtime::Runtime;
use shards::vectors::{
    DocumentEmbedding, EmbedContext, EmbedDocument, EmbedRequest, EmbedderHost, QueryRequest, TemplateField,
};

use super::{EmbedderOptions, Embedders, Tally};
use crate::on_core::on_core;
use crate::options::values::AllowedNetworks;
use crate::outgoing::{AddressPolicy, Client, Names, SystemSockets};
use crate::tasks::batch::EmbedderRequests;

/// What was counted since it was asked last.
#[derive(Default)]
struct Counted(RefCell<EmbedderRequests>);

impl Tally for Rc<Counted> {
    fn tell(&self, requests: EmbedderRequests) -> LocalBoxFuture<'static, ()> {
        let counted = self.clone();
        async move { counted.0.borrow_mut().add(requests) }.boxed_local()
    }
}

fn embedders(runtime: &Rc<dyn Runtime>, options: EmbedderOptions) -> Embedders {
    counted_embedders(runtime, options, &Rc::default())
}

fn counted_embedders(runtime: &Rc<dyn Runtime>, options: EmbedderOptions, counted: &Rc<Counted>) -> Embedders {
    let policy = AddressPolicy::new(AllowedNetworks::Any);
    let sockets = SystemSockets::new(runtime.clone(), Names::start().unwrap());
    let client = Client::new(runtime.clone(), Rc::new(sockets), policy);
    Embedders::new(runtime.clone(), client, Rc::new(counted.clone()), options, 4)
}

/// A service that answers with these statuses, then 200, and the bodies that it was sent.
#[derive(Clone)]
struct Service {
    url: String,
    seen: Arc<Mutex<Vec<Value>>>,
}

impl Service {
    /// A vector is the length of the text, then `dimensions - 1` ones.
    fn start(statuses: &[u16], dimensions: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/embed", listener.local_addr().unwrap());
        let service = Self { url, seen: Arc::default() };
        let (seen, mut statuses) = (service.seen.clone(), Vec::from(statuses).into_iter());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                answer(stream.unwrap(), statuses.next().unwrap_or(200), dimensions, &seen);
            }
        });
        service
    }

    fn settings(&self, more: Value) -> Arc<Value> {
        let mut settings = json!({"source": "rest", "url": self.url, "documentTemplate": "{{doc.t}}",
            "request": {"input": ["{{text}}", "{{..}}"]}, "response": {"data": ["{{embedding}}", "{{..}}"]}});
        for (name, value) in more.as_object().unwrap() {
            settings[name] = value.clone();
        }
        Arc::new(settings)
    }

    fn seen(&self) -> Vec<Value> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

fn answer(stream: TcpStream, status: u16, dimensions: usize, seen: &Mutex<Vec<Value>>) {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap() <= 2 {
            break;
        }
        if let Some(text) = line.strip_prefix("Content-Length: ") {
            length = text.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let vector = |text: &Value| {
        let mut vector = vec![1.0; dimensions];
        vector[0] = text.as_str().map_or(0, str::len) as f64;
        vector
    };
    let vectors: Vec<Vec<f64>> = body["input"].as_array().unwrap().iter().map(vector).collect();
    seen.lock().unwrap().push(body["input"].clone());
    let body = json!({"data": vectors}).to_string();
    let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    // A client may have read enough before the end.
    let _ = reader.into_inner().write_all((head + &body).as_bytes());
}

fn document(text: Option<&str>) -> RawDocument {
    let value = text.map(|text| json!(text).to_string().into_bytes().into_boxed_slice());
    RawDocument { doc: DocId(0), fields: value.map(|value| (FieldId(0), value)).into_iter().collect() }
}

/// Documents with their texts of now and before.
fn request(settings: &Arc<Value>, documents: Vec<(Option<&str>, Option<&str>)>) -> EmbedRequest {
    let field = TemplateField { id: FieldId(0), name: "t".into(), is_searchable: true };
    let context = EmbedContext { embedder: settings.clone(), fields: Arc::new(vec![field]) };
    let document = |(number, (now, before)): (usize, (Option<&str>, Option<&str>))| EmbedDocument {
        id: number.to_string(),
        document: document(now),
        before: before.map(|before| document(Some(before))),
    };
    let documents = documents.into_iter().enumerate().map(document).collect();
    EmbedRequest { name: "e".into(), before: context.clone(), context, slots: Arc::default(), documents }
}

fn query(settings: &Arc<Value>, text: &str, dimensions: u32) -> QueryRequest {
    QueryRequest {
        name: "e".into(),
        embedder: settings.clone(),
        text: Some(text.into()),
        media: None,
        retry_for: Duration::from_millis(20),
        dimensions,
    }
}

#[test]
fn documents_go_out_in_requests_of_ten() {
    let service = Service::start(&[500, 429], 2);
    let own = service.clone();
    on_core(|runtime| {
        async move {
            let embedders = embedders(&runtime, EmbedderOptions::default());
            let settings = own.settings(json!({}));
            assert_eq!(embedders.prepare("e", &settings).await.map(|facts| facts.dimensions), Ok(2));
            assert_eq!(own.seen(), vec![json!(["test"]); 3], "two failures are tried again");
            let texts: Vec<String> = (0..12).map(|n| "x".repeat(n)).collect();
            let documents = texts.iter().map(|text| (Some(&**text), Some("xxx"))).collect();
            let vectors = embedders.embed(request(&settings, documents)).await.unwrap();
            assert_eq!(vectors[3], DocumentEmbedding::Unchanged);
            assert_eq!(vectors[11], DocumentEmbedding::Replace(vec![(0, vec![11.0, 1.0])]));
            let mut sizes: Vec<usize> = own.seen().iter().map(|texts| texts.as_array().unwrap().len()).collect();
            sizes.sort_unstable();
            assert_eq!(sizes, [1, 10]);
        }
        .boxed_local()
    });
}

#[test]
fn failures_refuse_the_whole_or_leave_documents_out() {
    let service = Service::start(&[400, 400], 3);
    let own = service.clone();
    on_core(|runtime| {
        async move {
            let strict = embedders(&runtime, EmbedderOptions::default());
            let settings = own.settings(json!({"dimensions": 2}));
            let unrenderable = strict.embed(request(&settings, vec![(Some("a"), None), (None, None)])).await;
            assert!(unrenderable.is_err_and(|e| e.code == "invalid_document_fields" && e.message.contains("`1`")));
            assert_eq!(own.seen(), Vec::<Value>::new());
            let refused = strict.embed(request(&settings, vec![(Some("a"), None)])).await.unwrap_err();
            assert!(refused.code == "vector_embedding_error" && refused.message.contains("400"), "{refused}");
            let ignoring = EmbedderOptions {
                ignores_template_failures: true,
                ignores_embedder_failures: true,
                ..EmbedderOptions::default()
            };
            let ignoring = embedders(&runtime, ignoring);
            let vectors = ignoring.embed(request(&settings, vec![(Some("a"), None), (None, None)])).await.unwrap();
            assert_eq!(vectors, vec![DocumentEmbedding::Replace(vec![]); 2]);
            assert_eq!(own.seen().len(), 2);
            let longer = strict.embed(request(&settings, vec![(Some("a"), None)])).await.unwrap_err();
            assert!(longer.message.contains("3 numbers"), "{longer}");
        }
        .boxed_local()
    });
}

/// What no vector of the embedder can fill is not read to its end, and not asked for again.
#[test]
fn answers_far_beyond_their_vectors_are_refused() {
    let service = Service::start(&[], 2_000_000);
    let own = service.clone();
    on_core(|runtime| {
        async move {
            let embedders = embedders(&runtime, EmbedderOptions::default());
            let settings = own.settings(json!({"dimensions": 2}));
            let refused = embedders.embed(request(&settings, vec![(Some("a"), None)])).await.unwrap_err();
            assert!(refused.message.contains("the answer is larger than 41"), "{refused}");
            assert_eq!(own.seen().len(), 1);
        }
        .boxed_local()
    });
}

#[test]
fn each_try_for_a_batch_counts_and_none_for_a_search() {
    let service = Service::start(&[500, 429, 200, 200, 200, 401, 500], 2);
    on_core(|runtime| {
        async move {
            let counted = Rc::<Counted>::default();
            let embedders = counted_embedders(&runtime, EmbedderOptions::default(), &counted);
            let settings = service.settings(json!({}));
            embedders.prepare("e", &settings).await.unwrap();
            let seen = counted.0.take();
            assert_eq!((seen.total, seen.failed), (3, 2));
            assert!(seen.last_error.is_some_and(|why| why.contains("`e`") && why.contains("429")));

            let texts: Vec<String> = (0..12).map(|n| "x".repeat(n)).collect();
            let documents = || texts.iter().map(|text| (Some(&**text), None)).collect();
            embedders.embed(request(&settings, documents())).await.unwrap();
            assert_eq!(counted.0.take(), EmbedderRequests { total: 2, ..EmbedderRequests::default() });

            // The key is refused, and a failure of the other request is tried again.
            embedders.embed(request(&settings, documents())).await.unwrap_err();
            let seen = counted.0.take();
            assert_eq!((seen.total, seen.failed), (3, 2));

            let longer = service.settings(json!({"dimensions": 3}));
            embedders.embed(request(&longer, vec![(Some("a"), None)])).await.unwrap_err();
            let seen = counted.0.take();
            assert_eq!((seen.total, seen.failed), (1, 1));
            assert!(seen.last_error.is_some_and(|why| why.contains("2 numbers, expected 3")));

            service.seen();
            embedders.embed_query(query(&settings, "abc", 2)).await.unwrap();
            assert_eq!((service.seen().len(), counted.0.take()), (1, EmbedderRequests::default()));
        }
        .boxed_local()
    });
}

#[test]
fn queries_are_remembered_and_give_up_in_time() {
    let service = Service::start(&[], 2);
    let failing = Service::start(&[500; 20], 2);
    let own = service.clone();
    on_core(|runtime| {
        async move {
            let embedders = embedders(&runtime, EmbedderOptions::default());
            let settings = own.settings(json!({}));
            for _ in 0..3 {
                assert_eq!(embedders.embed_query(query(&settings, "abc", 2)).await, Ok(vec![3.0, 1.0]));
            }
            assert_eq!(own.seen().len(), 1);
            assert!(embedders.embed_query(query(&settings, "abc", 4)).await.is_err(), "of another length");
            let media = QueryRequest { media: Some(Arc::new(json!({}))), ..query(&settings, "abc", 2) };
            assert!(embedders.embed_query(media).await.is_err(), "without search fragments");
            assert!(embedders.embed_query(query(&failing.settings(json!({})), "x", 2)).await.is_err());
            assert!((2..=5).contains(&failing.seen().len()));
        }
        .boxed_local()
    });
}

#[test]
fn search_fragments_fit_exactly_one_query() {
    let service = Service::start(&[], 2);
    let own = service.clone();
    on_core(|runtime| {
        async move {
            let embedders = embedders(&runtime, EmbedderOptions::default());
            let settings = own.settings(json!({"request": {"input": ["{{fragment}}", "{{..}}"]}, "dimensions": 2,
                "searchFragments": {"text": {"value": "{{q}}"}, "both": {"value": {"image": "{{media.image}}"}}}}));
            let only_text = query(&settings, "abc", 2);
            assert_eq!(embedders.embed_query(only_text.clone()).await, Ok(vec![3.0, 1.0]));
            let media = Some(Arc::new(json!({"image": "x"})));
            let only_media = QueryRequest { text: None, media, ..only_text.clone() };
            assert!(embedders.embed_query(only_media.clone()).await.is_ok());
            assert_eq!(own.seen(), [json!(["abc"]), json!([{"image": "x"}])]);
            assert!(embedders.embed_query(QueryRequest { text: only_text.text, ..only_media.clone() }).await.is_err());
            assert!(embedders.embed_query(QueryRequest { media: None, ..only_media }).await.is_err());
        }
        .boxed_local()
    });
}

#[test]
fn the_sides_of_a_composite_embedder_must_agree() {
    let (same, longer) = (Service::start(&[], 2), Service::start(&[], 3));
    on_core(|runtime| {
        async move {
            let embedders = embedders(&runtime, EmbedderOptions::default());
            let composite = |search: &Service, indexing: &Service| {
                Arc::new(json!({"source": "composite", "searchEmbedder": *search.settings(json!({})),
                    "indexingEmbedder": *indexing.settings(json!({}))}))
            };
            let facts = embedders.prepare("e", &composite(&same, &same)).await;
            assert_eq!(facts.map(|facts| facts.dimensions), Ok(2));
            assert!(
                embedders.prepare("e", &composite(&longer, &same)).await.is_err_and(|e| e.message.contains("of 3"))
            );
        }
        .boxed_local()
    });
}
