//! Drives a server with the official Rust client, unchanged, as a user would: rust-client PATH/TO/skerry
//!
//! Every step states what it expects; the first that fails ends the run.

use std::collections::HashMap;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use meilisearch_sdk::client::Client;
use meilisearch_sdk::errors::{Error, ErrorCode};
use meilisearch_sdk::key::{Action, KeyBuilder};
use meilisearch_sdk::request::HttpClient;
use meilisearch_sdk::search::{SearchQuery, SearchResults, Selectors};
use meilisearch_sdk::settings::Settings;
use meilisearch_sdk::task_info::TaskInfo;
use meilisearch_sdk::tasks::Task;
use serde::{Deserialize, Serialize};
use serde_json::json;

const MASTER_KEY: &str = "a-master-key-of-the-client-test";

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Harbour {
    id: u32,
    name: String,
    country: String,
    berths: u32,
}

/// A server that ends with the test.
struct Server {
    process: Child,
    client: Client,
    host: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    async fn start(binary: &str, folder: &Path, data: &str, more: &[&str]) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
        let address = format!("127.0.0.1:{port}");
        let process = Command::new(binary)
            .current_dir(folder)
            .args(["--http-addr", &address, "--db-path", data, "--dump-dir", "dumps", "--master-key", MASTER_KEY])
            .args(more)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server starts");
        let host = format!("http://{address}");
        let client = Client::new(&host, Some(MASTER_KEY)).expect("a client");
        let server = Self { process, client, host };
        for _ in 0..500 {
            if server.client.is_healthy().await {
                return server;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the server did not answer");
    }

    async fn done(&self, task: Result<TaskInfo, Error>) -> Task {
        let task = task.expect("it is accepted");
        let (interval, limit) = (Some(Duration::from_millis(5)), Some(Duration::from_secs(20)));
        task.wait_for_completion(&self.client, interval, limit).await.expect("it ends")
    }

    async fn succeeds(&self, task: Result<TaskInfo, Error>) {
        let task = self.done(task).await;
        assert!(task.is_success(), "{task:?}");
    }
}

fn code<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorCode {
    match result {
        Err(Error::Meilisearch(error)) => error.error_code,
        other => panic!("not refused by the server: {other:?}"),
    }
}

fn ids(found: &SearchResults<Harbour>) -> Vec<u32> {
    found.hits.iter().map(|hit| hit.result.id).collect()
}

async fn found<H: HttpClient>(query: SearchQuery<'_, H>) -> SearchResults<Harbour> {
    query.execute().await.expect("an answer")
}

async fn documents(server: &Server) {
    let harbour =
        |id, name: &str, country: &str, berths| Harbour { id, name: name.into(), country: country.into(), berths };
    let index = server.client.index("harbours");
    let harbours = [
        harbour(1, "Lerwick", "GB", 60),
        harbour(2, "Stromness", "GB", 25),
        harbour(3, "Tórshavn", "FO", 80),
        harbour(4, "Bergen", "NO", 210),
    ];
    server.succeeds(server.client.create_index("harbours", Some("id")).await).await;
    server.succeeds(index.add_documents(&harbours, None).await).await;
    assert_eq!(index.get_document::<Harbour>("3").await.expect("it is there"), harbours[2]);
    server.succeeds(index.add_or_update(&[json!({"id": 2, "berths": 30})], None).await).await;
    assert_eq!(index.get_document::<Harbour>("2").await.expect("it is there").berths, 30);
    server.succeeds(index.add_documents(&[harbour(9, "Nowhere", "", 0)], None).await).await;
    server.succeeds(index.delete_document(9).await).await;
    assert_eq!(index.get_stats().await.expect("stats").number_of_documents, 4);
    assert_eq!(index.get_documents::<Harbour>().await.expect("a list").total, 4);
}

async fn settings(server: &Server) {
    let index = server.client.index("harbours");
    let settings = Settings::new()
        .with_filterable_attributes(["country", "berths"])
        .with_sortable_attributes(["berths"])
        .with_synonyms(HashMap::from([("norway".to_owned(), vec!["bergen".to_owned()])]));
    server.succeeds(index.set_settings(&settings).await).await;
    let read = index.get_settings().await.expect("settings");
    assert_eq!(read.synonyms, settings.synonyms);
    assert_eq!(read.sortable_attributes, settings.sortable_attributes);
    server.succeeds(index.set_stop_words(["of", "the"]).await).await;
    assert_eq!(index.get_stop_words().await.expect("stop words"), ["of", "the"]);
    server.succeeds(index.reset_stop_words().await).await;
    assert!(index.get_stop_words().await.expect("stop words").is_empty());
    assert_eq!(code(index.set_ranking_rules(["nonsense"]).await), ErrorCode::InvalidSettingsRankingRules);
}

async fn searches(server: &Server) {
    let index = server.client.index("harbours");
    assert_eq!(ids(&found(index.search().with_query("lerwik").build()).await), [1], "one typo");
    assert_eq!(ids(&found(index.search().with_query("norway").build()).await), [4], "a synonym");
    assert_eq!(ids(&found(index.search().with_filter("country = GB AND berths > 40").build()).await), [1]);
    assert_eq!(ids(&found(index.search().with_sort(&["berths:desc"]).with_limit(2).build()).await), [4, 3]);
    let faceted = found(index.search().with_facets(Selectors::Some(&["country", "berths"])).build()).await;
    let countries = &faceted.facet_distribution.expect("facets")["country"];
    assert_eq!((countries["GB"], countries["NO"], countries.len()), (2, 1, 3));
    let stats = &faceted.facet_stats.expect("stats")["berths"];
    assert_eq!((stats.min, stats.max), (30.0, 210.0));
    let paged = found(index.search().with_hits_per_page(3).with_page(2).build()).await;
    assert_eq!((paged.total_hits, paged.total_pages, paged.hits.len()), (Some(4), Some(2), 1));
    let mut shown = index.search().with_query("bergen").build();
    let shown = found(shown.with_attributes_to_highlight(Selectors::All).with_show_ranking_score(true).build()).await;
    let hit = &shown.hits[0];
    assert_eq!(hit.formatted_result.as_ref().map(|shown| &shown["name"]), Some(&json!("<em>Bergen</em>")));
    assert!(hit.ranking_score.is_some_and(|score| score > 0.9));
    let values = index.facet_search("country").with_facet_query("g").execute().await.expect("values");
    assert_eq!(values.facet_hits.iter().map(|hit| (&*hit.value, hit.count)).collect::<Vec<_>>(), [("GB", 2)]);
    let (bergen, lerwick) = (index.search().with_query("bergen").build(), index.search().with_query("lerwick").build());
    let mut many = server.client.multi_search();
    let many = many.with_search_query(bergen).with_search_query(lerwick).execute::<Harbour>().await.expect("answers");
    assert_eq!(many.results.iter().map(ids).collect::<Vec<_>>(), [[4], [1]]);
    assert_eq!(code(index.search().with_filter("name = x").execute::<Harbour>().await), ErrorCode::InvalidSearchFilter);
}

async fn keys_and_tokens(server: &Server) {
    let mut builder = KeyBuilder::new();
    builder.with_action(Action::Search).with_index("harbours").with_description("reads harbours");
    let key = server.client.create_key(builder).await.expect("a key");
    let reader = Client::new(&server.host, Some(&key.key)).expect("a client");
    assert_eq!(reader.index("harbours").search().execute::<Harbour>().await.expect("an answer").hits.len(), 4);
    assert_eq!(code(reader.index("harbours").get_settings().await), ErrorCode::InvalidApiKey);
    let rules = json!({"harbours": {"filter": "country = GB"}});
    let token = reader.generate_tenant_token(key.uid.clone(), rules, None, None).expect("a token");
    let tenant = Client::new(&server.host, Some(token)).expect("a client");
    assert_eq!(ids(&tenant.index("harbours").search().execute::<Harbour>().await.expect("an answer")), [1, 2]);
    server.client.delete_key(&key).await.expect("it is deleted");
    assert_eq!(code(tenant.index("harbours").search().execute::<Harbour>().await), ErrorCode::InvalidApiKey);
}

async fn tasks(server: &Server) {
    let found = server.client.get_tasks().await.expect("tasks");
    assert!(found.results.iter().all(Task::is_success) && found.results.len() > 7, "{}", found.results.len());
    let failed = server.done(server.client.index("absent").delete().await).await;
    assert_eq!(failed.unwrap_failure().error_code, ErrorCode::IndexNotFound);
    assert_eq!(code(server.client.get_index("absent").await), ErrorCode::IndexNotFound);
}

async fn dumps(server: &Server, binary: &str, folder: &Path) {
    server.succeeds(server.client.create_dump().await).await;
    let dump =
        std::fs::read_dir(folder.join("dumps")).expect("the folder").next().expect("a dump").expect("a dump").path();
    let restored = Server::start(binary, folder, "restored", &["--import-dump", &dump.to_string_lossy()]).await;
    let found =
        restored.client.index("harbours").search().with_query("lerwik").with_filter("country = GB").execute().await;
    assert_eq!(ids(&found.expect("an answer")), [1]);
}

#[tokio::main]
async fn main() {
    let binary = std::env::args().nth(1).expect("the server's binary as the argument");
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(&binary, folder.path(), "data", &[]).await;
    documents(&server).await;
    settings(&server).await;
    searches(&server).await;
    keys_and_tokens(&server).await;
    tasks(&server).await;
    dumps(&server, &binary, folder.path()).await;
    println!("rust client: 6 passed, 0 failed");
}
