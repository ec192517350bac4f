//! Loads data sets and measures any server with the Meilisearch interface. Several servers take turns, round by round, so that
//! drift of the machine affects all of them alike; ratios of medians are printed.

// A load generator blocks by design: it runs beside the server, not inside it.
#![allow(clippy::disallowed_methods)]

mod closed;
mod costs;
mod differ;
mod export;
mod http;
mod load;
mod mixed;
mod network;
mod queries;
mod report;
mod search;
mod stalls;
mod vectors;
mod write;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

/// One figure is worth nothing without its host: every command prints the machine first.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The servers measured, and where.
#[derive(Args, Clone)]
pub struct Servers {
    /// Address of a server, such as `127.0.0.1:7700`; repeatable: the first one is compared with the others.
    #[arg(long = "server", required = true)]
    pub servers: Vec<String>,
    /// Index to use on each server.
    #[arg(long, default_value = "bench")]
    pub index: String,
    /// API key, sent as a bearer token.
    #[arg(long)]
    pub key: Option<String>,
}

#[derive(Subcommand)]
enum Command {
    /// Load a file: deletes the index, applies settings, sends the documents and waits until they can be searched.
    Load {
        #[command(flatten)]
        servers: Servers,
        #[command(flatten)]
        source: load::Source,
        /// Data directory of each server, in the same order, to measure disk usage.
        #[arg(long)]
        data: Vec<PathBuf>,
        /// Process ID of each server, in the same order, to measure memory.
        #[arg(long)]
        pid: Vec<u32>,
    },
    /// Measure the latency and throughput of several kinds of searches, closed or open loop.
    Search {
        #[command(flatten)]
        servers: Servers,
        /// The loaded file, from whose words queries are generated.
        #[arg(long)]
        file: PathBuf,
        /// one, two, three, prefix, misspelt, filtered or faceted; default: all.
        #[arg(long)]
        kind: Vec<queries::Kind>,
        /// Concurrent connections.
        #[arg(long, default_value_t = 1)]
        clients: usize,
        /// Searches per second over all connections (open loop); without it each client sends its next search at once (closed loop).
        #[arg(long)]
        rate: Option<f64>,
        /// Seconds per round.
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
        /// Rounds per server and kind.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Seed of the queries.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Number of different queries of each kind, which are repeated in turn.
        #[arg(long, default_value_t = queries::QUERIES)]
        queries: usize,
    },
    /// Measure the time from sending a document until a search finds it.
    Write {
        #[command(flatten)]
        servers: Servers,
        /// Number of documents, sent one after another.
        #[arg(long, default_value_t = 100)]
        count: usize,
    },
    /// Measure search latency at a fixed rate: first idle, then while another index is loaded.
    Mixed {
        #[command(flatten)]
        servers: Servers,
        /// The loaded file, from whose words queries are generated.
        #[arg(long)]
        file: PathBuf,
        /// NDJSON file loaded repeatedly into a second index while searches run.
        #[arg(long)]
        load: PathBuf,
        /// Searches per second.
        #[arg(long, default_value_t = 200.0)]
        rate: f64,
        /// Connections that search.
        #[arg(long, default_value_t = 4)]
        clients: usize,
        /// Seconds per phase.
        #[arg(long, default_value_t = 8.0)]
        seconds: f64,
    },
    /// Load documents with vectors, then measure recall, throughput and latency.
    Vectors {
        #[command(flatten)]
        servers: Servers,
        #[command(flatten)]
        shape: vectors::Shape,
    },
    /// Measure whether expensive requests delay the ordinary searches of other clients.
    Stalls {
        #[command(flatten)]
        servers: Servers,
        /// NDJSON file to load.
        #[arg(long)]
        file: PathBuf,
        /// Seconds per kind of request.
        #[arg(long, default_value_t = 1.0)]
        seconds: f64,
        /// Connections that send ordinary searches.
        #[arg(long, default_value_t = 4)]
        clients: usize,
        /// Ordinary searches per second.
        #[arg(long, default_value_t = 400.0)]
        rate: f64,
        /// Maximum latency of an ordinary search, in milliseconds.
        #[arg(long, default_value_t = 10.0)]
        bar_ms: f64,
        /// Use the existing indexes; load nothing.
        #[arg(long)]
        loaded: bool,
        /// Run only kinds of requests whose name contains this.
        #[arg(long, default_value = "")]
        only: String,
    },
    /// Load a large index of small documents, then measure what single requests of many kinds cost, and compare the answers.
    Costs {
        #[command(flatten)]
        servers: Servers,
        #[command(flatten)]
        shape: costs::Shape,
    },
    /// Load a network of instances, then time topology changes that move every document, checking search results after each.
    Reshard {
        /// The first one becomes the leader.
        #[command(flatten)]
        servers: Servers,
        #[command(flatten)]
        shape: network::Shape,
    },
    /// Export an index from the first server to each of the others, and compare the copies with it.
    Export {
        #[command(flatten)]
        servers: Servers,
        #[command(flatten)]
        shape: export::Shape,
    },
    /// Send two servers the same queries under several settings, and report every difference, reduced to a small case.
    Differ {
        #[command(flatten)]
        servers: Servers,
        /// NDJSON file that both servers load.
        #[arg(long)]
        file: PathBuf,
        /// Seed of the settings and queries.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Queries per round.
        #[arg(long, default_value_t = 900)]
        queries: usize,
        /// Rounds, each with its own settings; those of the first are plain.
        #[arg(long, default_value_t = 4)]
        rounds: usize,
        /// Number of documents to use, from the start of the file.
        #[arg(long, default_value_t = 5000)]
        documents: usize,
        /// Use the existing indexes: load nothing and change no settings.
        #[arg(long)]
        loaded: bool,
        /// Reduced cases to show per kind of query.
        #[arg(long, default_value_t = 3)]
        shown: usize,
    },
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Load { servers, source, data, pid } => load::run(&servers, &source, &data, &pid),
        Command::Search { servers, file, kind, clients, rate, seconds, rounds, seed, queries } => {
            search::run(&servers, &file, &kind, queries, &search::Shape { clients, rate, seconds, rounds, seed })
        }
        Command::Vectors { servers, shape } => vectors::run(&servers, &shape),
        Command::Costs { servers, shape } => costs::run(&servers, &shape),
        Command::Reshard { servers, shape } => network::run(&servers, &shape),
        Command::Export { servers, shape } => export::run(&servers, &shape),
        Command::Write { servers, count } => write::run(&servers, count),
        Command::Stalls { servers, file, seconds, clients, rate, bar_ms, loaded, only } => {
            stalls::run(&servers, &file, &stalls::Effort { seconds, clients, rate, bar_ms, loaded, only })
        }
        Command::Differ { servers, file, seed, queries, rounds, documents, loaded, shown } => {
            differ::run(&servers, &file, &differ::Effort { seed, queries, rounds, documents, loaded, shown })
        }
        Command::Mixed { servers, file, load, rate, clients, seconds } => mixed::run(
            &servers,
            &file,
            &load,
            &search::Shape { clients, rate: Some(rate), seconds, rounds: 1, seed: 1 },
        ),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
