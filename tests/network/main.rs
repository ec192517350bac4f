//! Three instances on three hosts, with every network shard on two of them.
//!
//! * [`faults`]: while documents are written through the leader, searched everywhere and moved between the instances, one
//!   instance after another is killed, held up, cut off or out of space. Searches must be right or say that they are partial;
//!   afterwards each acknowledged document is on both instances of its shard, on no other, and found once.
//! * [`equality`]: searches over the network find what one instance finds.
//! * [`promotion`]: a leader that is lost is replaced by another instance, and writes nothing when it is back.
//!
//! `SKERRY_ROUNDS` sets how many times, `SKERRY_SEED` what happens, `SKERRY_BIN` another binary.

// A test process of its own: it may block.
#![allow(clippy::disallowed_methods)]
// The client is shared with the replayer, which uses more of it.
#![allow(dead_code)]

#[path = "../conformance/client.rs"]
mod client;
mod equality;
mod fault;
mod faults;
mod hosts;
mod instance;
mod promotion;
mod truth;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use hosts::{Host, Hosts};
use instance::{Instance, is_idle};
use serde_json::{Value, json};
use truth::{Layout, Truth};

/// The names of the instances.
const NAMES: [&str; 3] = ["a", "b", "c"];
/// Where the shards are, from one change to the next: every document moves in some of them.
const LAYOUTS: [[(&str, [&str; 2]); 3]; 3] = [
    [("s1", ["a", "b"]), ("s2", ["b", "c"]), ("s3", ["a", "c"])],
    [("s1", ["b", "c"]), ("s2", ["a", "c"]), ("s3", ["a", "b"])],
    [("s1", ["a", "c"]), ("s2", ["a", "b"]), ("s3", ["b", "c"])],
];
/// How long the network may take to come to rest.
const REST: Duration = Duration::from_secs(90);

/// A number of the environment.
fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn layout(number: usize) -> Layout {
    LAYOUTS[number % LAYOUTS.len()].iter().map(|(shard, on)| (*shard, on.iter().copied().collect())).collect()
}

/// The member `shards` of a network.
fn shards(layout: &Layout) -> Value {
    layout.iter().map(|(shard, on)| ((*shard).to_owned(), json!({ "remotes": on }))).collect()
}

fn remote(host: &Host) -> Value {
    json!({ "url": format!("http://{}", host.address) })
}

/// Three instances of which `a` leads.
struct Network {
    instances: Vec<Instance>,
    hosts: Vec<Host>,
    // The last to go.
    space: Hosts,
}

impl Network {
    /// Starts them, in this layout.
    fn start(place: &Path, layout: &Layout) -> Self {
        let binary = binary();
        let space = Hosts::new(NAMES.len() as u8, place);
        let hosts: Vec<Host> = (0..NAMES.len()).map(|number| space.host(number)).collect();
        let start = |(name, host): (&&'static str, &Host)| Instance::start(name, host.clone(), &binary, &[]);
        let instances: Vec<Instance> = NAMES.iter().zip(&hosts).map(start).collect();
        for instance in &instances {
            instance.ask("PATCH", "/experimental-features", &json!({"network": true})).expect("an instance answers");
        }
        let network = Self { instances, hosts, space };
        let remotes: Value = network.by_name().iter().map(|(name, host)| ((*name).to_owned(), remote(host))).collect();
        let first = json!({"self": "a", "leader": "a", "remotes": remotes, "shards": shards(layout)});
        let (status, answer) = network.instances[0].ask("PATCH", "/network", &first).expect("the leader answers");
        assert_eq!(status, 202, "{answer}");
        network
    }

    fn by_name(&self) -> BTreeMap<&'static str, Host> {
        self.instances.iter().map(|instance| (instance.name, instance.host.clone())).collect()
    }

    /// Waits until nothing is under way and all documents are where they should be; how long that took.
    fn rest(&self, layout: &Layout, truth: &mut Truth, what: &str) -> Duration {
        Self::rest_of(&self.by_name(), layout, truth, what)
    }

    /// The same for all instances but one, which is not of the network any more.
    fn rest_without(&self, gone: &str, layout: &Layout, truth: &mut Truth) -> Duration {
        let mut hosts = self.by_name();
        hosts.remove(gone);
        Self::rest_of(&hosts, layout, truth, &format!("without {gone}"))
    }

    fn rest_of(hosts: &BTreeMap<&'static str, Host>, layout: &Layout, truth: &mut Truth, what: &str) -> Duration {
        let began = Instant::now();
        loop {
            let wrong = match hosts.values().all(is_idle) {
                true => truth.check(hosts, layout),
                false => Some("tasks wait".to_owned()),
            };
            let Some(wrong) = wrong else { return began.elapsed() };
            if began.elapsed() >= REST {
                for (name, host) in hosts {
                    let tasks = "/tasks?statuses=enqueued,processing,failed&limit=4";
                    println!("{name}: {:?}", instance::ask(host, "GET", tasks, &Value::Null));
                }
                if std::env::var_os("SKERRY_WAIT").is_some() {
                    println!("{what}: {wrong}; waiting to be looked at");
                    std::thread::sleep(Duration::from_secs(100_000));
                }
                panic!("{what}: {wrong}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn binary() -> String {
    let binary = std::env::var("SKERRY_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_skerry").to_owned());
    std::path::absolute(&binary).expect("the binary has a path").to_string_lossy().into_owned()
}
