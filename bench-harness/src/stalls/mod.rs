//! Whether one client's requests can hold up everybody else's: requests that ask for as much work as they can on one
//! connection, ordinary searches on others, and what these others then wait.

mod cases;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use self::cases::Case;
use crate::Servers;
use crate::differ::corpus::Corpus;
use crate::http::Client;
use crate::load::{delete_index, payloads, send_all};
use crate::queries::{self, Kind};
use crate::report::print_host;
use crate::search::{Round, Shape, round};

/// Bytes of one request that loads documents.
const BATCH_BYTES: usize = 20_000_000;

/// How much is asked, and what is allowed.
pub struct Effort {
    /// Seconds of each kind of request.
    pub seconds: f64,
    /// Connections with ordinary searches.
    pub clients: usize,
    /// Ordinary searches a second, over all connections.
    pub rate: f64,
    /// Milliseconds that an ordinary search may take at most.
    pub bar_ms: f64,
    /// Uses the indexes as they are.
    pub loaded: bool,
    /// Only kinds whose name contains this.
    pub only: String,
}

/// What the requests of one kind came to.
struct Seen {
    asked: usize,
    refused: usize,
    slowest: Duration,
}

/// Asks one kind of request, one after another, until told to stop.
fn ask(address: &str, servers: &Servers, case: &Case, stop: &AtomicBool) -> io::Result<Seen> {
    let mut client = Client::connect(address, servers.key.as_deref())?;
    let mut seen = Seen { asked: 0, refused: 0, slowest: Duration::ZERO };
    while !stop.load(Ordering::Relaxed) {
        let body = (case.make)(seen.asked).to_string().into_bytes();
        let began = Instant::now();
        let (status, answer) = client.send("POST", &case.path, "application/json", &body)?;
        seen.slowest = seen.slowest.max(began.elapsed());
        seen.asked += 1;
        if status != 200 {
            seen.refused += 1;
            if seen.refused == 1 {
                let answer = String::from_utf8_lossy(answer);
                println!("{}: {status} {}", case.name, answer.chars().take(200).collect::<String>());
            }
        }
    }
    Ok(seen)
}

fn load(address: &str, servers: &Servers, text: &str, corpus: &Corpus, long: &str) -> io::Result<()> {
    let mut client = Client::connect(address, servers.key.as_deref())?;
    client.json("PATCH", "/experimental-features", Some(&json!({"containsFilter": true})))?;
    for index in [servers.index.as_str(), long] {
        delete_index(&mut client, index)?;
    }
    let path = format!("/indexes/{}/settings", servers.index);
    let task = client.json("PATCH", &path, Some(&cases::settings(corpus)))?;
    client.wait(&task)?;
    send_all(&mut client, &servers.index, &payloads(text, BATCH_BYTES))?;
    let documents = cases::long_documents(corpus);
    send_all(&mut client, long, &payloads(&documents, BATCH_BYTES))
}

/// Loads the file and long documents, then asks each kind of request beside ordinary searches. Fails when one of these took
/// longer than it may.
pub fn run(servers: &Servers, file: &Path, effort: &Effort) -> io::Result<()> {
    print_host();
    let text = std::fs::read_to_string(file)?;
    let corpus = Corpus::new(&text)?;
    let bodies = queries::bodies(file, Kind::One, 1, queries::QUERIES)?;
    let long = format!("{}-long", servers.index);
    let cases = cases::cases(&corpus, &servers.index, &long);
    let shape = Shape { clients: effort.clients, rate: Some(effort.rate), seconds: effort.seconds, rounds: 1, seed: 1 };
    let mut too_long = 0;
    for address in &servers.servers {
        if !effort.loaded {
            load(address, servers, &text, &corpus, &long)?;
        }
        println!("{address}: milliseconds of ordinary searches beside these requests");
        println!("{:28} {:>7} {:>11} {:>9} {:>9} {:>9}", "beside", "asked", "slowest", "p50", "p99", "worst");
        let idle = round(address, servers, &bodies, &shape)?;
        print("nothing", &Seen { asked: 0, refused: 0, slowest: Duration::ZERO }, &idle, effort);
        for case in cases.iter().filter(|case| case.name.contains(&effort.only)) {
            let stop = AtomicBool::new(false);
            let (seen, others) = std::thread::scope(|scope| {
                let asking = scope.spawn(|| ask(address, servers, case, &stop));
                let others = round(address, servers, &bodies, &shape);
                stop.store(true, Ordering::Relaxed);
                (asking.join().unwrap_or_else(|_| Err(io::Error::other("a client panicked"))), others)
            });
            too_long += usize::from(print(&case.name, &seen?, &others?, effort));
        }
    }
    if too_long == 0 { Ok(()) } else { Err(io::Error::other(format!("{too_long} kinds of requests hold others up"))) }
}

/// Prints a row; returns whether others waited longer than they may.
fn print(name: &str, seen: &Seen, others: &Round, effort: &Effort) -> bool {
    let at = |quantile| others.latency.value_at_quantile(quantile) as f64 / 1000.0;
    let worst = others.latency.max() as f64 / 1000.0;
    let too_long = worst > effort.bar_ms;
    let mark = if too_long { " !" } else { "" };
    let slowest = seen.slowest.as_secs_f64() * 1000.0;
    println!("{name:28} {:7} {slowest:11.1} {:9.2} {:9.2} {worst:9.2}{mark}", seen.asked, at(0.5), at(0.99));
    too_long
}
