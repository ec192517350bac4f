//! Changes of a network's topology: documents are loaded through the leader, then every network shard is given to other
//! instances, again and again, and it is timed until all instances say that they are done.
//!
//! Before the first change and after each, every instance is asked the same: each must find every document, and the same
//! documents with the same scores as before. Searches at a fixed rate may run meanwhile.

mod check;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::{Map, Value, json};

use self::check::Found;
use crate::Servers;
use crate::http::Client;
use crate::load::{Source, delete_index, payloads, send_all};
use crate::queries::{self, Kind};
use crate::report::{median, print_host};
use crate::search::{self, Round, print_row};

/// The form of a task that moves documents.
const CHANGE: &str = "networkTopologyChange";

/// What to measure.
#[derive(clap::Args)]
pub struct Shape {
    #[command(flatten)]
    source: Source,
    /// Instances that have each network shard.
    #[arg(long, default_value_t = 1)]
    replicas: usize,
    /// How many times every network shard goes to the next instances; 0 leaves the documents where they were loaded.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Phrases searched through each instance before and after a change.
    #[arg(long, default_value_t = 50)]
    queries: usize,
    /// Searches so many times a second through the leader while documents move, and prints how long those searches took.
    #[arg(long)]
    watch: Option<f64>,
}

/// The instances and their part in the network.
struct Bench<'b> {
    servers: &'b Servers,
    shape: &'b Shape,
    documents: u64,
}

/// Forms the network, loads it, moves the documents and prints what each took.
pub fn run(servers: &Servers, shape: &Shape) -> io::Result<()> {
    print_host();
    let count = servers.servers.len();
    if count < 2 || !(1..count).contains(&shape.replicas) {
        return Err(io::Error::other("documents move between two or more servers, not all of which have each shard"));
    }
    let text = std::fs::read_to_string(&shape.source.file)?;
    let bench = Bench { servers, shape, documents: text.lines().count() as u64 };
    bench.form()?;
    bench.load(&text)?;
    let words = check::words(&shape.source.file, shape.queries)?;
    let before = bench.check(&words)?;
    println!("{} words find {} documents through each of {count} instances", words.len(), before.hits());
    println!("{:6} {:>9} {:>14} {:>13} {:>16}", "round", "seconds", "moved", "documents/s", "answers");
    let mut seconds = Vec::new();
    for round in 1..=shape.rounds {
        let (took, moved, watched) = bench.change(round)?;
        let differing = bench.check(&words)?.differing(&before);
        let answers = if differing == 0 { "as before".to_owned() } else { format!("{differing} differ") };
        println!("{round:6} {took:9.2} {moved:14} {:13.0} {answers:>16}", moved as f64 / took);
        if let Some(watched) = watched {
            print_row("moving", &servers.servers[0], &watched);
        }
        seconds.push(took);
    }
    if !seconds.is_empty() {
        println!("{:6} {:9.2}", "median", median(seconds));
    }
    Ok(())
}

impl Bench<'_> {
    fn connect(&self, at: usize) -> io::Result<Client> {
        Client::connect(&self.servers.servers[at], self.servers.key.as_deref())
    }

    fn count(&self) -> usize {
        self.servers.servers.len()
    }

    fn path(&self, rest: &str) -> String {
        format!("/indexes/{}{rest}", self.servers.index)
    }

    /// Which instances have which network shard in a round: there are as many shards as instances.
    fn shards(&self, round: usize) -> Value {
        let of_shard = |shard: usize| {
            let remotes =
                (0..self.shape.replicas).map(|replica| instance_name((shard + round + replica) % self.count()));
            (format!("shard-{shard}"), json!({ "remotes": remotes.collect::<Vec<_>>() }))
        };
        Value::Object((0..self.count()).map(of_shard).collect())
    }

    /// Makes the servers a network that the first leads.
    fn form(&self) -> io::Result<()> {
        let key = self.servers.key.as_deref();
        let mut remotes = Map::new();
        for (at, server) in self.servers.servers.iter().enumerate() {
            let feature = json!({"network": true});
            self.connect(at)?.json("PATCH", "/experimental-features", Some(&feature))?;
            let remote = json!({"url": format!("http://{server}"), "searchApiKey": key, "writeApiKey": key});
            remotes.insert(instance_name(at), remote);
        }
        let mut leader = self.connect(0)?;
        let network = leader.json("GET", "/network", None)?;
        if network["remotes"].as_object().is_some_and(|known| known.keys().any(|name| !remotes.contains_key(name))) {
            return Err(io::Error::other("the first server has other remotes; begin with empty data folders"));
        }
        let name = instance_name(0);
        let body = json!({"self": name, "leader": name, "remotes": remotes, "shards": self.shards(0)});
        let task = leader.json("PATCH", "/network", Some(&body))?;
        leader.wait(&task)?;
        self.rest()
    }

    /// Waits until nothing is left to do on any instance.
    fn rest(&self) -> io::Result<()> {
        (0..self.count()).try_for_each(|at| self.connect(at)?.rest())
    }

    fn load(&self, text: &str) -> io::Result<()> {
        let mut leader = self.connect(0)?;
        delete_index(&mut leader, &self.servers.index)?;
        let mut settings = self.shape.source.settings()?.unwrap_or_else(|| json!({}));
        // So that totals are exact.
        settings["pagination"] = json!({"maxTotalHits": self.documents.max(1)});
        let task = leader.json("PATCH", &self.path("/settings"), Some(&settings))?;
        leader.wait(&task)?;
        self.rest()?;
        let began = Instant::now();
        send_all(&mut leader, &self.servers.index, &payloads(text, self.shape.source.batch_bytes))?;
        self.rest()?;
        let seconds = began.elapsed().as_secs_f64();
        println!(
            "loaded {} documents into {} instances, {} for each shard, in {seconds:.2} s: {:.0} a second",
            self.documents,
            self.count(),
            self.shape.replicas,
            self.documents as f64 / seconds
        );
        Ok(())
    }

    /// Gives every network shard to the instances of a round: the seconds until none has anything left to do, how many
    /// documents were given up, and how long searches took meanwhile.
    fn change(&self, round: usize) -> io::Result<(f64, u64, Option<Round>)> {
        let moving = AtomicBool::new(true);
        std::thread::scope(|scope| {
            let watch = scope.spawn(|| self.watch(&moving));
            let changed = self.change_alone(round);
            moving.store(false, Ordering::Relaxed);
            let watched = watch.join().map_err(|_| io::Error::other("a client panicked"))??;
            let (seconds, moved) = changed?;
            Ok((seconds, moved, watched))
        })
    }

    fn change_alone(&self, round: usize) -> io::Result<(f64, u64)> {
        let mut leader = self.connect(0)?;
        let began = Instant::now();
        let task = leader.json("PATCH", "/network", Some(&json!({"shards": self.shards(round)})))?;
        leader.wait(&task)?;
        self.rest()?;
        let seconds = began.elapsed().as_secs_f64();
        let mut moved = 0;
        for at in 0..self.count() {
            let tasks = self.connect(at)?.json("GET", &format!("/tasks?types={CHANGE}&limit=1"), None)?;
            let task = &tasks["results"][0];
            if task["status"] != "succeeded" {
                return Err(io::Error::other(format!("{}: {task}", self.servers.servers[at])));
            }
            moved += task["details"]["movedDocuments"].as_u64().unwrap_or_default();
        }
        Ok((seconds, moved))
    }

    /// Searches at a fixed rate as long as documents move.
    fn watch(&self, moving: &AtomicBool) -> io::Result<Option<Round>> {
        let Some(rate) = self.shape.watch else { return Ok(None) };
        let bodies = queries::bodies(&self.shape.source.file, Kind::Two, 1, queries::QUERIES)?;
        let shape = search::Shape { clients: 4, rate: Some(rate), seconds: 0.5, rounds: 1, seed: 1 };
        search::rounds_while(moving, &self.servers.servers[0], self.servers, &bodies, &shape)
    }

    /// What each instance finds; that it finds every document, and that each document is where it is to be.
    fn check(&self, words: &[String]) -> io::Result<Found> {
        let (mut found, mut stored) = (Found::default(), 0);
        for at in 0..self.count() {
            let mut client = self.connect(at)?;
            stored += client.json("GET", &self.path("/stats"), None)?["numberOfDocuments"].as_u64().unwrap_or_default();
            let all = check::total(&mut client, &self.path("/search"))?;
            if all != self.documents {
                let message = format!("{} finds {all} of {} documents", self.servers.servers[at], self.documents);
                return Err(io::Error::other(message));
            }
            found.add(&mut client, &self.path("/search"), words)?;
        }
        let wanted = self.documents * self.shape.replicas as u64;
        if stored != wanted {
            return Err(io::Error::other(format!("{stored} documents are stored, {wanted} were to be")));
        }
        Ok(found)
    }
}

/// The name of the instance in this place of the command line.
fn instance_name(at: usize) -> String {
    format!("instance-{at}")
}
