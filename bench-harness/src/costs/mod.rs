//! What single requests cost on a large index of small documents: processor time of the server and time until the answer, kind by
//! kind, on several servers in turn, whose answers are compared.

mod cases;
mod documents;

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::cases::{CASES, Case};
use self::documents::Documents;
use crate::Servers;
use crate::http::Client;
use crate::load::{delete_index, payloads, send_all};
use crate::report::{anonymous_bytes, print_host, processor_time};

/// Bytes of one request that loads documents.
const BATCH_BYTES: usize = 90_000_000;
/// Between a request's answer and the look at the processor time: what a server does behind the answer counts.
const REST: Duration = Duration::from_millis(5);
/// After a write: what servers do behind the end of its task does not count.
const SETTLED: Duration = Duration::from_millis(200);

/// What is loaded, and what is asked.
#[derive(clap::Args)]
pub struct Shape {
    /// Documents, each of about 100 bytes.
    #[arg(long, default_value_t = 500_000)]
    documents: u32,
    /// Seed of the documents.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Different requests of each kind.
    #[arg(long, default_value_t = 24)]
    requests: u32,
    /// Process ID of each server, in the same order.
    #[arg(long, required = true)]
    pid: Vec<u32>,
    /// Use the existing indexes; load nothing.
    #[arg(long)]
    loaded: bool,
    /// Run only kinds of requests whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Change one document before each request, so that the request is the first at a new state of the index.
    #[arg(long)]
    write: bool,
    /// Delete documents by filters at the end, which changes the index.
    #[arg(long)]
    delete: bool,
}

/// One server, its process, and what requests of one kind have cost so far.
struct Asked {
    client: Client,
    pid: u32,
    wall: Duration,
    processor: Duration,
}

impl Asked {
    fn ask(&mut self, case: &Case, index: &str, number: u32) -> io::Result<Value> {
        let body = (case.body)(number).to_string();
        let (before, began) = (processor_time(self.pid), Instant::now());
        let (status, answer) = self.client.send(
            "POST",
            &format!("/indexes/{index}/{}", case.route),
            "application/json",
            body.as_bytes(),
        )?;
        let answer: Value = serde_json::from_slice(answer).map_err(io::Error::other)?;
        self.wall += began.elapsed();
        if status != 200 {
            return Err(io::Error::other(format!("{body} was answered {status}: {answer}")));
        }
        std::thread::sleep(REST);
        self.processor += processor_time(self.pid).saturating_sub(before);
        Ok(answer)
    }
}

/// What two servers must agree about.
fn essence(answer: &Value) -> Value {
    let ids = |hits: &Value| hits.as_array().map(|hits| hits.iter().map(|hit| hit["id"].clone()).collect::<Vec<_>>());
    let total = ["estimatedTotalHits", "totalHits", "total"].into_iter().find_map(|member| answer.get(member));
    json!({
        "hits": ids(&answer["hits"]).or_else(|| ids(&answer["results"])),
        "total": total,
        "facets": answer.get("facetHits").or(answer.get("facetDistribution")),
    })
}

/// Loads each server unless told not to, then asks.
pub fn run(servers: &Servers, shape: &Shape) -> io::Result<()> {
    print_host();
    if shape.pid.len() != servers.servers.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "one --pid for each --server is needed"));
    }
    let mut asked = Vec::new();
    for (server, pid) in servers.servers.iter().zip(&shape.pid) {
        let client = Client::connect(server, servers.key.as_deref())?;
        asked.push(Asked { client, pid: *pid, wall: Duration::ZERO, processor: Duration::ZERO });
    }
    if !shape.loaded {
        load(servers, shape, &mut asked)?;
    }
    println!("{:34} {:22} {:>9} {:>9} {:>8}", "kind", "server", "wall ms", "CPU ms", "differ");
    let mut differing = BTreeMap::new();
    for case in CASES.iter().filter(|case| case.name.contains(&shape.only)) {
        connect(servers, &mut asked)?;
        let mut differ = vec![0; asked.len()];
        for number in 0..shape.requests {
            if shape.write {
                write(servers, &mut asked, shape, number)?;
            }
            let mut first = None;
            for (server, differ) in asked.iter_mut().zip(&mut differ) {
                let essence = essence(&server.ask(case, &servers.index, number)?);
                *differ += u32::from(*first.get_or_insert_with(|| essence.clone()) != essence);
            }
        }
        for ((server, address), differ) in asked.iter_mut().zip(&servers.servers).zip(differ) {
            print_row(case.name, address, server, (shape.requests, differ));
            *differing.entry(address).or_insert(0) += differ;
        }
    }
    println!("answers that differ from the first server's: {differing:?}");
    if shape.delete { delete(servers, &mut asked) } else { Ok(()) }
}

/// Connects anew: a server closes a connection that was idle while others were asked.
fn connect(servers: &Servers, asked: &mut [Asked]) -> io::Result<()> {
    for (server, address) in asked.iter_mut().zip(&servers.servers) {
        server.client = Client::connect(address, servers.key.as_deref())?;
    }
    Ok(())
}

/// Changes one document on all servers, and waits until they have settled.
fn write(servers: &Servers, asked: &mut [Asked], shape: &Shape, number: u32) -> io::Result<()> {
    let changed = json!([documents::change(number, shape.documents)]);
    for server in &mut *asked {
        let path = format!("/indexes/{}/documents", servers.index);
        let task = server.client.json("PUT", &path, Some(&changed))?;
        server.client.wait(&task)?;
    }
    std::thread::sleep(SETTLED);
    connect(servers, asked)
}

fn print_row(name: &str, address: &str, server: &mut Asked, (requests, differ): (u32, u32)) {
    let mean = |time: Duration| time.as_secs_f64() * 1e3 / f64::from(requests.max(1));
    println!("{name:34} {address:22} {:9.2} {:9.2} {differ:8}", mean(server.wall), mean(server.processor));
    (server.wall, server.processor) = (Duration::ZERO, Duration::ZERO);
}

fn load(servers: &Servers, shape: &Shape, asked: &mut [Asked]) -> io::Result<()> {
    let text = Documents::new(shape.seed, shape.documents).lines();
    println!("{} documents, {:.1} MB", shape.documents, text.len() as f64 / 1e6);
    println!("{:22} {:>9} {:>9} {:>9}", "load", "s", "CPU s", "anon MB");
    for (server, address) in asked.iter_mut().zip(&servers.servers) {
        server.client = Client::connect(address, servers.key.as_deref())?;
        delete_index(&mut server.client, &servers.index)?;
        let path = format!("/indexes/{}/settings", servers.index);
        let task = server.client.json("PATCH", &path, Some(&documents::settings()))?;
        server.client.wait(&task)?;
        let (before, began) = (processor_time(server.pid), Instant::now());
        send_all(&mut server.client, &servers.index, &payloads(&text, BATCH_BYTES))?;
        let (wall, processor) = (began.elapsed(), processor_time(server.pid).saturating_sub(before));
        let memory = anonymous_bytes(server.pid) as f64 / 1e6;
        println!("{address:22} {:9.2} {:9.2} {memory:9.1}", wall.as_secs_f64(), processor.as_secs_f64());
    }
    Ok(())
}

/// Deletes by filters that fewer and fewer documents pass, each once.
fn delete(servers: &Servers, asked: &mut [Asked]) -> io::Result<()> {
    for (name, filter) in [
        ("delete one of 1,000 by filter", "group = 77"),
        ("delete one of 20 by filter", "group >= 950"),
        ("delete half by filter", "group < 475"),
    ] {
        for (server, address) in asked.iter_mut().zip(&servers.servers) {
            server.client = Client::connect(address, servers.key.as_deref())?;
            let path = format!("/indexes/{}/documents/delete", servers.index);
            let (before, began) = (processor_time(server.pid), Instant::now());
            let task = server.client.json("POST", &path, Some(&json!({ "filter": filter })))?;
            server.client.wait(&task)?;
            server.wall = began.elapsed();
            server.processor = processor_time(server.pid).saturating_sub(before);
            print_row(name, address, server, (1, 0));
        }
    }
    Ok(())
}
