//! Searches by vectors: documents with vectors loaded a second, then recall and searches a second over HTTP.
//!
//! The vectors are those of a NumPy file of 8-bit integers (`vectors.i8.npy`) in a folder, the queries those of
//! `queries.i8.npy` beside it. What the nearest really are is computed here by comparing all.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::Servers;
use crate::http::Client;
use crate::load::{delete_index, payloads, send_all};
use crate::report::print_host;

/// Hits of each search.
const HITS: usize = 10;
/// Bytes of each request of documents.
const BATCH_BYTES: usize = 8_000_000;

/// Vectors of one length, one after another.
struct Matrix {
    numbers: Vec<i8>,
    dimensions: usize,
}

impl Matrix {
    /// Reads a NumPy file of rows of 8-bit integers.
    fn read(path: &Path) -> io::Result<Self> {
        let bytes = std::fs::read(path)?;
        let bad = |what: &str| io::Error::other(format!("{}: {what}", path.display()));
        let length = bytes.get(8..10).ok_or_else(|| bad("too short"))?;
        let start = 10 + usize::from(u16::from_le_bytes([length[0], length[1]]));
        let header = String::from_utf8_lossy(bytes.get(10..start).ok_or_else(|| bad("too short"))?).into_owned();
        if !header.contains("'|i1'") || header.contains("'fortran_order': True") {
            return Err(bad("rows of 8-bit integers are expected"));
        }
        let shape = header.split_once("'shape': (").and_then(|(_, rest)| rest.split_once(')'));
        let shape = shape.map(|(shape, _)| shape).ok_or_else(|| bad("no shape"))?;
        let sizes: Vec<usize> = shape.split(',').filter_map(|size| size.trim().parse().ok()).collect();
        let [rows, dimensions] = sizes[..] else { return Err(bad("two sizes are expected")) };
        let numbers: Vec<i8> = bytes[start..].iter().map(|byte| *byte as i8).collect();
        if numbers.len() != rows * dimensions || dimensions == 0 {
            return Err(bad("its size is not that of its shape"));
        }
        Ok(Self { numbers, dimensions })
    }

    fn rows(&self) -> impl ExactSizeIterator<Item = &[i8]> {
        self.numbers.chunks_exact(self.dimensions)
    }
}

/// The squared cosine's order without its roots: the cosine of two rows.
fn cosine(a: &[i8], b: &[i8]) -> f64 {
    let dot = |a: &[i8], b: &[i8]| a.iter().zip(b).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum::<i32>();
    f64::from(dot(a, b)) / (f64::from(dot(a, a)) * f64::from(dot(b, b))).sqrt().max(f64::MIN_POSITIVE)
}

/// The rows nearest to a query, nearest first; only those whose number leaves no remainder.
fn nearest(vectors: &Matrix, query: &[i8], every: usize) -> Vec<usize> {
    let rows = vectors.rows().enumerate().filter(|(at, _)| at % every == 0);
    let mut found: Vec<(f64, usize)> = rows.map(|(at, row)| (-cosine(row, query), at)).collect();
    let count = HITS.min(found.len());
    if count < found.len() {
        found.select_nth_unstable_by(count, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    }
    found.truncate(count);
    found.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    found.into_iter().map(|(_, at)| at).collect()
}

/// How to measure.
pub struct Shape {
    /// Rows loaded; all of the file when it has fewer.
    pub documents: usize,
    /// Connections that search at once.
    pub clients: usize,
    /// Seconds of searching.
    pub seconds: f64,
    /// Of how many documents the filter lets one pass; 1 is no filter.
    pub every: usize,
    /// Whether only the signs of vectors are kept. Recall is then that of the signs against full vectors.
    pub quantized: bool,
    /// Uses the index as it is.
    pub loaded: bool,
}

/// Loads and searches each server and prints what it took.
pub fn run(servers: &Servers, folder: &Path, shape: &Shape) -> io::Result<()> {
    print_host();
    let mut vectors = Matrix::read(&folder.join("vectors.i8.npy"))?;
    vectors.numbers.truncate(shape.documents.saturating_mul(vectors.dimensions));
    let queries = Matrix::read(&folder.join("queries.i8.npy"))?;
    let every = shape.every.max(1);
    let exact: Vec<Vec<usize>> = queries.rows().map(|query| nearest(&vectors, query, every)).collect();
    let bodies: Vec<Vec<u8>> = queries.rows().map(|query| body(query, every)).collect();
    println!("{} vectors of {} numbers, {} queries", vectors.rows().len(), vectors.dimensions, bodies.len());
    for server in &servers.servers {
        let mut client = Client::connect(server, servers.key.as_deref())?;
        if !shape.loaded {
            load(&mut client, servers, &vectors, shape)?;
        }
        let recall = recall(&mut client, &servers.index, &bodies, &exact)?;
        println!("{server}: recall@{HITS} {recall:.4}");
        search(server, servers, &bodies, shape)?;
    }
    Ok(())
}

fn body(query: &[i8], every: usize) -> Vec<u8> {
    let mut body = json!({"vector": query, "limit": HITS, "attributesToRetrieve": ["id"],
        "hybrid": {"embedder": "v", "semanticRatio": 1.0}});
    if every > 1 {
        body["filter"] = json!(format!("share_{every} = 1"));
    }
    body.to_string().into_bytes()
}

fn load(client: &mut Client, servers: &Servers, vectors: &Matrix, shape: &Shape) -> io::Result<()> {
    delete_index(client, &servers.index)?;
    let field = format!("share_{}", shape.every.max(1));
    let mut embedder = json!({"source": "userProvided", "dimensions": vectors.dimensions});
    if shape.quantized {
        embedder["binaryQuantized"] = true.into();
    }
    let settings = json!({"embedders": {"v": embedder}, "filterableAttributes": [field]});
    let task = client.json("PATCH", &format!("/indexes/{}/settings", servers.index), Some(&settings))?;
    client.wait(&task)?;
    let mut text = String::new();
    for (at, row) in vectors.rows().enumerate() {
        let passes = u8::from(at % shape.every.max(1) == 0);
        let document: Value = json!({"id": at, field.as_str(): passes, "_vectors": {"v": row}});
        text.push_str(&document.to_string());
        text.push('\n');
    }
    let began = Instant::now();
    send_all(client, &servers.index, &payloads(&text, BATCH_BYTES))?;
    let seconds = began.elapsed().as_secs_f64();
    println!("loaded in {seconds:.1} s: {:.0} documents/s", vectors.rows().len() as f64 / seconds);
    Ok(())
}

fn found(client: &mut Client, path: &str, body: &[u8]) -> io::Result<Vec<usize>> {
    let (status, answer) = client.send("POST", path, "application/json", body)?;
    if status != 200 {
        return Err(io::Error::other(format!("search: {status} {}", String::from_utf8_lossy(answer))));
    }
    let answer: Value = serde_json::from_slice(answer).map_err(io::Error::other)?;
    let hits = answer["hits"].as_array().map_or(&[][..], Vec::as_slice);
    Ok(hits.iter().filter_map(|hit| hit["id"].as_u64().map(|id| id as usize)).collect())
}

/// The share of the nearest that searches find.
fn recall(client: &mut Client, index: &str, bodies: &[Vec<u8>], exact: &[Vec<usize>]) -> io::Result<f64> {
    let path = format!("/indexes/{index}/search");
    let (mut right, mut all) = (0, 0);
    for (body, exact) in bodies.iter().zip(exact) {
        let hits = found(client, &path, body)?;
        right += exact.iter().filter(|id| hits.contains(id)).count();
        all += exact.len();
    }
    Ok(right as f64 / (all as f64).max(1.0))
}

/// Searches a second, closed loop, and their times.
fn search(server: &str, servers: &Servers, bodies: &[Vec<u8>], shape: &Shape) -> io::Result<()> {
    let path = format!("/indexes/{}/search", servers.index);
    let (next, began) = (AtomicUsize::new(0), Instant::now());
    let end = began + Duration::from_secs_f64(shape.seconds);
    let one = || -> io::Result<Histogram<u64>> {
        let mut times = Histogram::new(3).map_err(io::Error::other)?;
        let mut client = Client::connect(server, servers.key.as_deref())?;
        while Instant::now() < end {
            let body = &bodies[next.fetch_add(1, Ordering::Relaxed) % bodies.len()];
            let sent = Instant::now();
            found(&mut client, &path, body)?;
            times.record(sent.elapsed().as_micros() as u64).map_err(io::Error::other)?;
        }
        Ok(times)
    };
    let mut all: Histogram<u64> = Histogram::new(3).map_err(io::Error::other)?;
    std::thread::scope(|scope| -> io::Result<()> {
        let clients: Vec<_> = (0..shape.clients.max(1)).map(|_| scope.spawn(one)).collect();
        for client in clients {
            let times = client.join().map_err(|_| io::Error::other("a client panicked"))??;
            all.add(times).map_err(io::Error::other)?;
        }
        Ok(())
    })?;
    let per_second = all.len() as f64 / began.elapsed().as_secs_f64();
    let ms = |share: f64| all.value_at_quantile(share) as f64 / 1e3;
    println!(
        "{server}: {} clients, {per_second:.0} searches/s, p50 {:.2} ms, p99 {:.2} ms",
        shape.clients.max(1),
        ms(0.5),
        ms(0.99)
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_are_those_in_the_same_direction() {
        let vectors = Matrix { numbers: vec![1, 0, 0, 1, 3, 3, -1, 0], dimensions: 2 };
        assert_eq!(nearest(&vectors, &[2, 1], 1), [2, 0, 1, 3]);
        assert_eq!(nearest(&vectors, &[2, 1], 2), [2, 0]);
    }
}
