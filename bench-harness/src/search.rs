//! Searches with a number of clients: closed loop (each sends its next at once) or open loop (arrivals at a fixed
//! rate, latency counted from the moment a search was due, so that a stalled server cannot hide its stall).

use std::io;
use std::net::ToSocketAddrs;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use hdrhistogram::Histogram;

use crate::http::{Client, write_head};
use crate::queries::{self, Kind};
use crate::report::{median, print_host};
use crate::{Servers, closed};

/// How searches arrive.
pub struct Shape {
    pub clients: usize,
    /// Searches a second over all clients; `None` for a closed loop.
    pub rate: Option<f64>,
    pub seconds: f64,
    pub rounds: usize,
    pub seed: u64,
}

/// What one round saw.
pub struct Round {
    /// Microseconds.
    pub latency: Histogram<u64>,
    pub per_second: f64,
}

fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 120_000_000, 3)
        .unwrap_or_else(|error| unreachable!("fixed bounds are valid: {error}"))
}

/// Rounds as long as something goes on, together as one; none where it had ended before.
pub fn rounds_while(
    going_on: &AtomicBool,
    address: &str,
    servers: &Servers,
    bodies: &[Vec<u8>],
    shape: &Shape,
) -> io::Result<Option<Round>> {
    let mut all: Option<Round> = None;
    while going_on.load(Ordering::Relaxed) {
        let round = round(address, servers, bodies, shape)?;
        match &mut all {
            None => all = Some(round),
            Some(all) => all.latency.add(round.latency).map_err(io::Error::other)?,
        }
    }
    Ok(all)
}

/// Threads of a closed loop at most: half of the processors, so that as much is left to a server on the same machine.
fn threads_max() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get().div_ceil(2))
}

/// One round against one server. Clients that wait for times of their own have a thread each.
pub fn round(address: &str, servers: &Servers, bodies: &[Vec<u8>], shape: &Shape) -> io::Result<Round> {
    if shape.rate.is_none() && shape.clients > threads_max() {
        return closed_round(address, servers, bodies, shape);
    }
    let path = path(servers);
    let start_line = Barrier::new(shape.clients);
    let began = Instant::now();
    let results: Vec<io::Result<Histogram<u64>>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..shape.clients)
            .map(|number| {
                let (path, start_line) = (&path, &start_line);
                scope.spawn(move || {
                    let connected = Client::connect(address, servers.key.as_deref());
                    start_line.wait();
                    client_loop(connected?, path, bodies, number, shape)
                })
            })
            .collect();
        workers.into_iter().map(joined).collect()
    });
    together(results, began)
}

fn path(servers: &Servers) -> String {
    format!("/indexes/{}/search", servers.index)
}

/// A closed loop of more clients than threads.
fn closed_round(address: &str, servers: &Servers, bodies: &[Vec<u8>], shape: &Shape) -> io::Result<Round> {
    let (path, threads) = (path(servers), threads_max());
    let requests = bodies.iter().map(|body| {
        let mut request = Vec::with_capacity(body.len() + 256);
        let kind = ("application/json", body.len());
        write_head(&mut request, ("POST", &path), address, servers.key.as_deref(), kind)?;
        request.extend_from_slice(body);
        Ok(request)
    });
    let requests: Vec<Vec<u8>> = requests.collect::<io::Result<_>>()?;
    let place = address.to_socket_addrs()?.next().ok_or_else(|| io::Error::other("no such address"))?;
    let length = Duration::from_secs_f64(shape.seconds);
    let began = Instant::now();
    let results: Vec<io::Result<Histogram<u64>>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let requests = &requests;
                scope.spawn(move || {
                    let mut latency = new_histogram();
                    let clients = (thread..shape.clients).step_by(threads);
                    let starts = clients.map(|client| start_of(client, shape, requests.len()));
                    closed::run(place, starts, requests, length, &mut latency).map(|()| latency)
                })
            })
            .collect();
        workers.into_iter().map(joined).collect()
    });
    together(results, began)
}

/// What a client's thread ended with.
fn joined(worker: std::thread::ScopedJoinHandle<'_, io::Result<Histogram<u64>>>) -> io::Result<Histogram<u64>> {
    worker.join().unwrap_or_else(|_| Err(io::Error::other("a client panicked")))
}

/// What all clients' threads saw since they began.
fn together(results: Vec<io::Result<Histogram<u64>>>, began: Instant) -> io::Result<Round> {
    let mut latency = new_histogram();
    for result in results {
        latency.add(result?).map_err(io::Error::other)?;
    }
    let per_second = latency.len() as f64 / began.elapsed().as_secs_f64();
    Ok(Round { latency, per_second })
}

/// Where a client begins among the requests: each elsewhere.
fn start_of(client: usize, shape: &Shape, requests: usize) -> usize {
    client * requests / shape.clients.max(1)
}

fn client_loop(
    mut client: Client,
    path: &str,
    bodies: &[Vec<u8>],
    number: usize,
    shape: &Shape,
) -> io::Result<Histogram<u64>> {
    let mut latency = new_histogram();
    let began = Instant::now();
    let length = Duration::from_secs_f64(shape.seconds);
    let gap = shape.rate.map(|rate| Duration::from_secs_f64(shape.clients as f64 / rate));
    let mut due = began + gap.map_or(Duration::ZERO, |gap| gap.mul_f64(number as f64 / shape.clients as f64));
    for at in start_of(number, shape, bodies.len()).. {
        match gap {
            Some(_) => {
                if let Some(early) = due.checked_duration_since(Instant::now()) {
                    std::thread::sleep(early);
                }
            }
            None => due = Instant::now(),
        }
        if due.duration_since(began) >= length {
            break;
        }
        let (status, answer) = client.send("POST", path, "application/json", &bodies[at % bodies.len()])?;
        if status != 200 {
            return Err(io::Error::other(format!("a search answered {status}: {}", String::from_utf8_lossy(answer))));
        }
        latency.saturating_record(due.elapsed().as_micros() as u64);
        due += gap.unwrap_or_default();
    }
    Ok(latency)
}

/// Runs the kinds one after another, servers in turn, and prints the medians over the rounds. Of each kind there are so many
/// different queries, which come again and again.
pub fn run(servers: &Servers, file: &Path, kinds: &[Kind], queries: usize, shape: &Shape) -> io::Result<()> {
    print_host();
    let kinds = if kinds.is_empty() { Kind::value_variants() } else { kinds };
    println!("{:10} {:22} {:>9} {:>9} {:>9} {:>10}", "kind", "server", "p50 us", "p99 us", "max us", "per second");
    for kind in kinds {
        let mut bodies = queries::bodies(file, *kind, shape.seed, queries)?;
        let mut rounds: Vec<Vec<Round>> = servers.servers.iter().map(|_| Vec::new()).collect();
        for at in 0..=shape.rounds {
            for (server, rounds) in servers.servers.iter().zip(&mut rounds) {
                let seen = round(server, servers, &bodies, shape)?;
                // The first round warms caches and connections.
                if at > 0 {
                    rounds.push(seen);
                }
            }
            // With so many queries that no client gets to where another one began, none comes again.
            let next = bodies.len() / shape.clients.max(1) / (shape.rounds + 1);
            bodies.rotate_left(next);
        }
        let of = |rounds: &[Round], f: &dyn Fn(&Round) -> f64| median(rounds.iter().map(f).collect());
        let rows: Vec<[f64; 4]> = rounds
            .iter()
            .map(|rounds| {
                let at = |q: f64| of(rounds, &|round| round.latency.value_at_quantile(q) as f64);
                [
                    at(0.5),
                    at(0.99),
                    of(rounds, &|round| round.latency.max() as f64),
                    of(rounds, &|round| round.per_second),
                ]
            })
            .collect();
        let name = format!("{kind:?}").to_lowercase();
        for (server, [p50, p99, max, per_second]) in servers.servers.iter().zip(&rows) {
            println!("{name:10} {server:22} {p50:9.0} {p99:9.0} {max:9.0} {per_second:10.0}");
        }
        for (server, row) in servers.servers.iter().zip(&rows).skip(1) {
            let [p50, p99, max, per_second] = std::array::from_fn(|i| rows[0][i] / row[i].max(f64::MIN_POSITIVE));
            println!("{name:10} {:22} {p50:9.3} {p99:9.3} {max:9.3} {per_second:10.3}", format!("first / {server}"));
        }
    }
    Ok(())
}

/// Prints one row of a latency table.
pub fn print_row(name: &str, server: &str, round: &Round) {
    let at = |q| round.latency.value_at_quantile(q);
    println!("{name:10} {server:22} {:9} {:9} {:9} {:10.0}", at(0.5), at(0.99), round.latency.max(), round.per_second);
}
