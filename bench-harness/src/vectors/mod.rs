//! Searches by vectors: documents with vectors are loaded, then recall, throughput and latency are measured, with and without
//! filters, and again after half of the documents were deleted and came back.
//!
//! The vectors are those of a NumPy file of 8-bit integers (`vectors.i8.npy`) in a folder, the queries those of
//! `queries.i8.npy` beside it; or a seeded generator makes both. They are sent as floats of length 1. What the nearest really are is
//! computed here by comparing all.

mod set;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
pub use set::VectorSet;

use crate::Servers;
use crate::http::Client;
use crate::load::delete_index;
use crate::report::{anonymous_bytes, folder_bytes, median, print_host, processor_time, read_bytes};
use crate::search::{self, Round};

/// Hits of each search.
const HITS: usize = 10;
/// Queries whose nearest are computed, to tell recall by.
const KNOWN_QUERIES: usize = 400;
/// Between the last task's end and a look at sizes.
const REST: Duration = Duration::from_secs(3);
/// Documents deleted with one request.
const DELETED_AT_ONCE: usize = 10_000;

/// What to measure.
#[derive(clap::Args)]
pub struct Shape {
    /// Folder with `vectors.i8.npy` and `queries.i8.npy`.
    #[arg(long, required_unless_present = "clustered")]
    folder: Option<PathBuf>,
    /// Generate this many clustered vectors instead.
    #[arg(long)]
    clustered: Option<usize>,
    /// Dimensions of generated vectors.
    #[arg(long, default_value_t = 768)]
    dimensions: usize,
    /// Queries to generate. Recall is measured with the first 400.
    #[arg(long, default_value_t = 400)]
    queries: usize,
    /// Write the generated vectors and queries to this folder, for other programs.
    #[arg(long)]
    save: Option<PathBuf>,
    /// Maximum number of vectors to use from the folder.
    #[arg(long, default_value_t = usize::MAX)]
    documents: usize,
    /// Concurrent connections; repeatable.
    #[arg(long, default_values_t = [1, 32])]
    clients: Vec<usize>,
    /// Filter that one of this many documents passes; 1 for no filter. Repeatable.
    #[arg(long, default_values_t = [1, 2, 10, 100])]
    every: Vec<usize>,
    /// Seconds per round of searches.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Rounds, with the servers taking turns.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Use `binaryQuantized`. Recall is then measured against full vectors.
    #[arg(long)]
    quantized: bool,
    /// Bytes of each request that loads documents.
    #[arg(long, default_value_t = 8_000_000)]
    batch_bytes: usize,
    /// Use the existing indexes; load nothing.
    #[arg(long)]
    loaded: bool,
    /// Search this many times per second while documents are loaded, and print the latency of these searches.
    #[arg(long)]
    watch: Option<f64>,
    /// Afterwards delete half of the documents, add them again, and measure once more.
    #[arg(long)]
    churn: bool,
    /// Data directory of each server, in the same order, to measure disk usage.
    #[arg(long)]
    data: Vec<PathBuf>,
    /// Process ID of each server, in the same order, to measure memory and disk reads.
    #[arg(long)]
    pid: Vec<u32>,
}

/// The vectors, the queries, and for each query and filter its nearest.
struct Bench<'b> {
    servers: &'b Servers,
    shape: &'b Shape,
    vectors: VectorSet,
    queries: VectorSet,
    nearest: Vec<Vec<Vec<usize>>>,
}

/// Loads and searches each server and prints what it took.
pub fn run(servers: &Servers, shape: &Shape) -> io::Result<()> {
    print_host();
    let (mut vectors, queries) = match (&shape.folder, shape.clustered) {
        (Some(folder), None) => {
            (VectorSet::read(&folder.join("vectors.i8.npy"))?, VectorSet::read(&folder.join("queries.i8.npy"))?)
        }
        (_, count) => VectorSet::clustered(count.unwrap_or(0), shape.queries, shape.dimensions),
    };
    vectors.truncate(shape.documents);
    if let Some(folder) = &shape.save {
        vectors.write(&folder.join("vectors.i8.npy"))?;
        queries.write(&folder.join("queries.i8.npy"))?;
    }
    let mut known = queries.clone();
    known.truncate(if shape.folder.is_some() { usize::MAX } else { KNOWN_QUERIES });
    let nearest = vectors.nearest(&known, &shape.every, HITS);
    println!("{} vectors of {} numbers, {} queries", vectors.len(), vectors.dimensions(), queries.len());
    let bench = Bench { servers, shape, vectors, queries, nearest };
    if !shape.loaded {
        bench.load_all()?;
    }
    bench.search_all()?;
    if shape.churn {
        for server in &servers.servers {
            bench.churn(server)?;
        }
        bench.search_all()?;
    }
    Ok(())
}

impl Bench<'_> {
    fn connect(&self, server: &str) -> io::Result<Client> {
        Client::connect(server, self.servers.key.as_deref())
    }

    fn path(&self, rest: &str) -> String {
        format!("/indexes/{}{rest}", self.servers.index)
    }

    fn body(&self, query: usize, every: usize) -> Vec<u8> {
        let mut vector = Vec::new();
        self.queries.put_json(query, &mut vector);
        let filter = if every > 1 { format!(r#""filter":"passes = {every}","#) } else { String::new() };
        let rest = format!(
            r#"{{{filter}"limit":{HITS},"attributesToRetrieve":["id"],"hybrid":{{"embedder":"v","semanticRatio":1.0}},"vector":"#
        );
        [rest.as_bytes(), &vector, b"}"].concat()
    }

    fn bodies(&self, every: usize) -> Vec<Vec<u8>> {
        (0..self.queries.len()).map(|query| self.body(query, every)).collect()
    }

    fn load_all(&self) -> io::Result<()> {
        println!(
            "{:22} {:>9} {:>13} {:>14} {:>17}",
            "server", "seconds", "documents/s", "disk bytes/doc", "memory bytes/doc"
        );
        let mut first = None;
        let count = self.vectors.len().max(1) as f64;
        for (at, server) in self.servers.servers.iter().enumerate() {
            let mut client = self.connect(server)?;
            delete_index(&mut client, &self.servers.index)?;
            let mut embedder = json!({"source": "userProvided", "dimensions": self.vectors.dimensions()});
            if self.shape.quantized {
                embedder["binaryQuantized"] = true.into();
            }
            let settings = json!({"embedders": {"v": embedder}, "filterableAttributes": ["passes"]});
            let task = client.json("PATCH", &self.path("/settings"), Some(&settings))?;
            client.wait(&task)?;
            let memory = || self.shape.pid.get(at).map_or(0, |pid| anonymous_bytes(*pid)) as f64;
            let before = memory();
            let (began, loading) = (Instant::now(), AtomicBool::new(true));
            let watched = std::thread::scope(|scope| {
                let watch = scope.spawn(|| self.watch(server, &loading));
                let sent = self.send(&mut client, 0..self.vectors.len());
                loading.store(false, Ordering::Relaxed);
                sent?;
                watch.join().map_err(|_| io::Error::other("a client panicked"))?
            })?;
            let seconds = began.elapsed().as_secs_f64();
            std::thread::sleep(REST);
            let disk = self.shape.data.get(at).map_or(0, |folder| folder_bytes(folder)) as f64;
            let (disk, memory, per_second) = (disk / count, (memory() - before) / count, count / seconds);
            println!("{server:22} {seconds:9.2} {per_second:13.0} {disk:14.0} {memory:17.0}");
            if let Some(round) = watched {
                search::print_row("loading", server, &round);
            }
            match first {
                None => first = Some(per_second),
                Some(first) => println!("{:22} {:>9} {:13.3}", format!("first / {server}"), "", first / per_second),
            }
        }
        Ok(())
    }

    /// Searches at a fixed rate as long as documents are loaded, from the moment on that there is something to find.
    fn watch(&self, server: &str, loading: &AtomicBool) -> io::Result<Option<Round>> {
        let Some(rate) = self.shape.watch else { return Ok(None) };
        let (bodies, mut client) = (self.bodies(1), self.connect(server)?);
        while loading.load(Ordering::Relaxed) && self.found(&mut client, &bodies[0])?.is_empty() {
            std::thread::sleep(Duration::from_millis(50));
        }
        let shape = search::Shape { clients: 2, rate: Some(rate), seconds: 1.0, rounds: 1, seed: 1 };
        search::rounds_while(loading, server, self.servers, &bodies, &shape)
    }

    /// Sends these documents and waits for the last task.
    fn send(&self, client: &mut Client, documents: impl Iterator<Item = usize>) -> io::Result<()> {
        let (mut payload, mut last) = (Vec::new(), Value::Null);
        let mut post = |client: &mut Client, payload: &mut Vec<u8>| -> io::Result<()> {
            let (status, answer) = client.send("POST", &self.path("/documents"), "application/x-ndjson", payload)?;
            if status != 202 {
                return Err(io::Error::other(format!("documents: {status} {}", String::from_utf8_lossy(answer))));
            }
            last = serde_json::from_slice(answer).map_err(io::Error::other)?;
            payload.clear();
            Ok(())
        };
        for at in documents {
            let passes: Vec<usize> = self.shape.every.iter().copied().filter(|every| at % every.max(&1) == 0).collect();
            payload.extend_from_slice(format!(r#"{{"id":{at},"passes":{passes:?},"_vectors":{{"v":"#).as_bytes());
            self.vectors.put_json(at, &mut payload);
            payload.extend_from_slice(b"}}\n");
            if payload.len() >= self.shape.batch_bytes {
                post(client, &mut payload)?;
            }
        }
        if !payload.is_empty() {
            post(client, &mut payload)?;
        }
        client.wait(&last).map(drop)
    }

    /// Deletes every second document and adds it again.
    fn churn(&self, server: &str) -> io::Result<()> {
        let mut client = self.connect(server)?;
        let odd: Vec<usize> = (1..self.vectors.len()).step_by(2).collect();
        let began = Instant::now();
        let mut last = Value::Null;
        for ids in odd.chunks(DELETED_AT_ONCE) {
            last = client.json("POST", &self.path("/documents/delete-batch"), Some(&json!(ids)))?;
        }
        client.wait(&last)?;
        let deleted = began.elapsed().as_secs_f64();
        self.send(&mut client, odd.iter().copied())?;
        let added = began.elapsed().as_secs_f64() - deleted;
        println!("{server:22} deleted {} in {deleted:.1} s, added them in {added:.1} s", odd.len());
        Ok(())
    }

    fn found(&self, client: &mut Client, body: &[u8]) -> io::Result<Vec<usize>> {
        let (status, answer) = client.send("POST", &self.path("/search"), "application/json", body)?;
        if status != 200 {
            return Err(io::Error::other(format!("search: {status} {}", String::from_utf8_lossy(answer))));
        }
        let answer: Value = serde_json::from_slice(answer).map_err(io::Error::other)?;
        let hits = answer["hits"].as_array().map_or(&[][..], Vec::as_slice);
        Ok(hits.iter().filter_map(|hit| hit["id"].as_u64().map(|id| id as usize)).collect())
    }

    /// The share of the nearest that searches find.
    fn recall(&self, server: &str, filter: usize, bodies: &[Vec<u8>]) -> io::Result<f64> {
        let (mut right, mut all, mut client) = (0, 0, self.connect(server)?);
        for (body, nearest) in bodies.iter().zip(&self.nearest) {
            let hits = self.found(&mut client, body)?;
            right += nearest[filter].iter().filter(|id| hits.contains(id)).count();
            all += nearest[filter].len();
        }
        Ok(right as f64 / (all as f64).max(1.0))
    }

    fn search_all(&self) -> io::Result<()> {
        println!(
            "{:>6} {:>7} {:22} {:>9} {:>9} {:>9} {:>9} {:>10} {:>9} {:>7}",
            "share", "clients", "server", "recall@10", "p50 us", "p99 us", "max us", "per second", "KB read", "CPU us"
        );
        for (filter, every) in self.shape.every.iter().enumerate() {
            let bodies = self.bodies(*every);
            let recalls = self.servers.servers.iter().map(|server| self.recall(server, filter, &bodies));
            let recalls = recalls.collect::<io::Result<Vec<f64>>>()?;
            for clients in &self.shape.clients {
                let rows = self.search(&bodies, *clients)?;
                for (at, server) in self.servers.servers.iter().enumerate() {
                    let (share, recall, [p50, p99, max, rate, read, work]) =
                        (1.0 / *every as f64, recalls[at], rows[at]);
                    println!(
                        "{share:6.2} {clients:7} {server:22} {recall:9.4} {p50:9.0} {p99:9.0} {max:9.0} {rate:10.0} {read:9.1} {work:7.0}"
                    );
                }
                for (server, row) in self.servers.servers.iter().zip(&rows).skip(1) {
                    let ratio = |at: usize| rows[0][at] / row[at].max(f64::MIN_POSITIVE);
                    let (name, [p50, p99, max, rate]) = (format!("first / {server}"), [0, 1, 2, 3].map(ratio));
                    println!("{:14} {name:22} {:9} {p50:9.3} {p99:9.3} {max:9.3} {rate:10.3}", "", "");
                }
            }
        }
        Ok(())
    }

    /// Medians over the rounds of each server: p50, p99 and longest in microseconds, searches a second, and for each search KB read
    /// and microseconds of the server's processor time.
    fn search(&self, bodies: &[Vec<u8>], clients: usize) -> io::Result<Vec<[f64; 6]>> {
        let shape = search::Shape { clients, rate: None, seconds: self.shape.seconds, rounds: 1, seed: 1 };
        let mut rows: Vec<[Vec<f64>; 6]> = self.servers.servers.iter().map(|_| Default::default()).collect();
        for _ in 0..self.shape.rounds.max(1) {
            for (at, (server, row)) in self.servers.servers.iter().zip(&mut rows).enumerate() {
                let used = || self.shape.pid.get(at).map(|pid| (read_bytes(*pid), processor_time(*pid)));
                let before = used().unwrap_or_default();
                let round = search::round(server, self.servers, bodies, &shape)?;
                let count = round.latency.len().max(1) as f64;
                let quantile = |q: f64| round.latency.value_at_quantile(q) as f64;
                let after = used().unwrap_or_default();
                let kilobytes = (after.0 - before.0) as f64 / 1e3 / count;
                let work = after.1.saturating_sub(before.1).as_secs_f64() * 1e6 / count;
                let max = round.latency.max() as f64;
                let seen = [quantile(0.5), quantile(0.99), max, round.per_second, kilobytes, work];
                row.iter_mut().zip(seen).for_each(|(column, value)| column.push(value));
            }
        }
        Ok(rows.into_iter().map(|row| row.map(median)).collect())
    }
}
