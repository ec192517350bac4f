//! Loads data sets and drives searches against any server that speaks the interface; given several servers it takes
//! them in turn, round by round, so that a machine's drift meets all of them, and prints ratios of medians.

// A load generator blocks by design: it runs beside the server, not inside it.
#![allow(clippy::disallowed_methods)]

mod closed;
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
    /// Address of a server, such as `127.0.0.1:7700`; may be given several times, the first is compared with the others.
    #[arg(long = "server", required = true)]
    pub servers: Vec<String>,
    /// The index used on each of them.
    #[arg(long, default_value = "bench")]
    pub index: String,
    /// Key sent as bearer.
    #[arg(long)]
    pub key: Option<String>,
}

#[derive(Subcommand)]
enum Command {
    /// Deletes the index, sets its settings, loads a file and waits until it can be searched.
    Load {
        #[command(flatten)]
        servers: Servers,
        #[command(flatten)]
        source: load::Source,
        /// Data folder of each server, in their order, for the size on disk.
        #[arg(long)]
        data: Vec<PathBuf>,
        /// Process of each server, in their order, for its memory.
        #[arg(long)]
        pid: Vec<u32>,
    },
    /// Times searches of several kinds, with a number of clients, closed or open loop.
    Search {
        #[command(flatten)]
        servers: Servers,
        /// The file that was loaded: queries are made of its words.
        #[arg(long)]
        file: PathBuf,
        /// one, two, three, prefix, misspelt, filtered, faceted; all where none is given.
        #[arg(long)]
        kind: Vec<queries::Kind>,
        /// Connections that search at once.
        #[arg(long, default_value_t = 1)]
        clients: usize,
        /// Searches a second over all connections; without it each client sends its next search at once.
        #[arg(long)]
        rate: Option<f64>,
        /// Seconds of one round.
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
        /// Rounds of each server and kind.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// The queries' seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Different queries of each kind, which come again and again.
        #[arg(long, default_value_t = queries::QUERIES)]
        queries: usize,
    },
    /// Time from sending one document until a search finds it.
    Write {
        #[command(flatten)]
        servers: Servers,
        /// How many documents, one after another.
        #[arg(long, default_value_t = 100)]
        count: usize,
    },
    /// Latency of searches at a fixed rate: idle, then while another index is loaded.
    Mixed {
        #[command(flatten)]
        servers: Servers,
        /// The file that was loaded: queries are made of its words.
        #[arg(long)]
        file: PathBuf,
        /// NDJSON file loaded into a second index, again and again, while searches run.
        #[arg(long)]
        load: PathBuf,
        /// Searches a second.
        #[arg(long, default_value_t = 200.0)]
        rate: f64,
        /// Connections that search.
        #[arg(long, default_value_t = 4)]
        clients: usize,
        /// Seconds of each phase.
        #[arg(long, default_value_t = 8.0)]
        seconds: f64,
    },
    /// Loads documents with vectors, then measures recall, searches a second and their times.
    Vectors {
        #[command(flatten)]
        servers: Servers,
        #[command(flatten)]
        shape: vectors::Shape,
    },
    /// Whether requests that ask for as much work as they can hold up the ordinary searches of others.
    Stalls {
        #[command(flatten)]
        servers: Servers,
        /// NDJSON file that is loaded.
        #[arg(long)]
        file: PathBuf,
        /// Seconds of each kind of request.
        #[arg(long, default_value_t = 1.0)]
        seconds: f64,
        /// Connections with ordinary searches.
        #[arg(long, default_value_t = 4)]
        clients: usize,
        /// Ordinary searches a second.
        #[arg(long, default_value_t = 400.0)]
        rate: f64,
        /// Milliseconds that an ordinary search may take at most.
        #[arg(long, default_value_t = 10.0)]
        bar_ms: f64,
        /// Uses the indexes as they are.
        #[arg(long)]
        loaded: bool,
        /// Only kinds of requests whose name contains this.
        #[arg(long, default_value = "")]
        only: String,
    },
    /// Loads a network of instances and times changes in which every document moves; checks what is found after each.
    Reshard {
        /// The first is to lead.
        #[command(flatten)]
        servers: Servers,
        #[command(flatten)]
        shape: network::Shape,
    },
    /// Has the first server send an index to each of the others, and compares what they have with it.
    Export {
        #[command(flatten)]
        servers: Servers,
        #[command(flatten)]
        shape: export::Shape,
    },
    /// Asks two servers the same, under several settings, and reports every difference reduced to a small case.
    Differ {
        #[command(flatten)]
        servers: Servers,
        /// NDJSON file that both load.
        #[arg(long)]
        file: PathBuf,
        /// Decides settings and queries.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Queries of each round.
        #[arg(long, default_value_t = 900)]
        queries: usize,
        /// Rounds, each with settings of its own; those of the first are plain.
        #[arg(long, default_value_t = 4)]
        rounds: usize,
        /// Documents of the file that are used, from the first.
        #[arg(long, default_value_t = 5000)]
        documents: usize,
        /// Uses the indexes as they are: loads nothing, changes no settings.
        #[arg(long)]
        loaded: bool,
        /// Reduced cases shown of each kind of query.
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
