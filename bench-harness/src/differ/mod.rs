//! Asks two servers the same and tells where their answers differ, each difference reduced to a small case.
//!
//! Everything follows from the seed: which settings the indexes get, which queries are asked. The two servers hold the same
//! documents of one file.

mod compare;
pub mod corpus;
mod make;
mod reduce;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::Value;

use self::corpus::Corpus;
use self::make::{Kind, Query};
use crate::Servers;
use crate::http::Client;
use crate::load::{delete_index, payloads, send_all};

/// Bytes of one request that loads documents.
const BATCH_BYTES: usize = 10_000_000;

/// How much is asked.
pub struct Effort {
    /// Decides settings and queries.
    pub seed: u64,
    /// Queries of each round.
    pub queries: usize,
    /// Rounds, each with settings of its own.
    pub rounds: usize,
    /// Documents of the file that are used.
    pub documents: usize,
    /// Whether the indexes are there already: then nothing is loaded and all rounds ask under the settings that they have.
    pub loaded: bool,
    /// Reduced cases shown of each kind of query.
    pub shown: usize,
}

/// What one kind of query came to.
#[derive(Default)]
struct Tally {
    asked: usize,
    differing: usize,
    by_label: BTreeMap<&'static str, usize>,
    shown: usize,
}

/// The servers compared.
pub struct Pair {
    index: String,
    clients: [Client; 2],
}

impl Pair {
    fn connect(servers: &Servers) -> io::Result<Self> {
        let [a, b] = servers.servers.as_slice() else {
            return Err(io::Error::other("exactly two servers are compared: give --server twice"));
        };
        let connect = |address: &String| Client::connect(address, servers.key.as_deref());
        Ok(Self { index: servers.index.clone(), clients: [connect(a)?, connect(b)?] })
    }

    fn load(&mut self, settings: &Value, documents: &str) -> io::Result<()> {
        for client in &mut self.clients {
            delete_index(client, &self.index)?;
            let task = client.json("PATCH", &format!("/indexes/{}/settings", self.index), Some(settings))?;
            client.wait(&task)?;
            send_all(client, &self.index, &payloads(documents, BATCH_BYTES))?;
        }
        Ok(())
    }

    /// The answers to a query, each with its status.
    pub fn ask(&mut self, query: &Query) -> io::Result<[(u16, Value); 2]> {
        let path = format!("/indexes/{}/search", self.index);
        let body = query.body().to_string().into_bytes();
        let ask = |client: &mut Client| -> io::Result<(u16, Value)> {
            let (status, answer) = client.send("POST", &path, "application/json", &body)?;
            Ok((status, serde_json::from_slice(answer).map_err(io::Error::other)?))
        };
        let [a, b] = &mut self.clients;
        Ok([ask(a)?, ask(b)?])
    }

    /// What is different between the answers to a query; empty when they are the same.
    pub fn differences(&mut self, query: &Query) -> io::Result<Vec<compare::Difference>> {
        let [a, b] = self.ask(query)?;
        Ok(compare::differences(&a, &b))
    }
}

/// Compares two servers and prints what was asked, what differed and the reduced cases. Fails when anything differed.
pub fn run(servers: &Servers, file: &Path, effort: &Effort) -> io::Result<()> {
    let text = std::fs::read_to_string(file)?;
    let end = text.match_indices('\n').nth(effort.documents.saturating_sub(1)).map_or(text.len(), |(at, _)| at + 1);
    let documents = &text[..end];
    let corpus = Corpus::new(documents)?;
    let mut pair = Pair::connect(servers)?;
    let mut tallies: BTreeMap<Kind, Tally> = BTreeMap::new();
    for round in 0..effort.rounds {
        let mut rng = StdRng::seed_from_u64(effort.seed.wrapping_mul(1_000_003).wrapping_add(round as u64));
        let settings = make::settings(&corpus, &mut rng, round);
        if effort.loaded {
            println!("round {round}");
        } else {
            println!("round {round}: settings {settings}");
            pair.load(&settings, documents)?;
        }
        for number in 0..effort.queries {
            let query = make::query(&corpus, &mut rng, Kind::ALL[number % Kind::ALL.len()]);
            compare_one(&mut pair, query, effort, tallies.entry(Kind::ALL[number % Kind::ALL.len()]).or_default())?;
        }
    }
    report(&tallies)
}

fn compare_one(pair: &mut Pair, query: Query, effort: &Effort, tally: &mut Tally) -> io::Result<()> {
    tally.asked += 1;
    let found = pair.differences(&query)?;
    let Some(first) = found.first() else { return Ok(()) };
    tally.differing += 1;
    *tally.by_label.entry(first.label).or_default() += 1;
    if tally.shown < effort.shown {
        tally.shown += 1;
        let (reduced, difference) = reduce::reduce(pair, query, first.clone())?;
        println!("{}: {}", difference.label, reduced.body());
        println!("    {}", difference.text);
    }
    Ok(())
}

fn report(tallies: &BTreeMap<Kind, Tally>) -> io::Result<()> {
    println!("{:12} {:>7} {:>9}", "kind", "queries", "differing");
    let mut differing = 0;
    for (kind, tally) in tallies {
        let labels: Vec<String> = tally.by_label.iter().map(|(label, count)| format!("{label} {count}")).collect();
        println!("{:12} {:7} {:9}  {}", format!("{kind:?}"), tally.asked, tally.differing, labels.join(", "));
        differing += tally.differing;
    }
    if differing == 0 { Ok(()) } else { Err(io::Error::other(format!("{differing} answers differ"))) }
}
