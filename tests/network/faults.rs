//! Faults while documents are written, searched and moved.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::fault::{Fault, Tally};
use crate::hosts::Host;
use crate::instance::ask;
use crate::truth::{self, INDEX, Layout, Truth, document, search_is_wrong};
use crate::{NAMES, Network, layout, number, shards};

/// The documents that stay as they are: each search for them must find them all.
const STEADY: std::ops::Range<u64> = 0..150;
/// Documents that a write adds.
const ADDED: u64 = 40;

/// Writes until told to stop. Documents of which the fate is open are left alone until the network is at rest.
fn write(leader: &Host, truth: &mut Truth, (first, seed): (u64, u64), stop: &AtomicBool) -> (u32, u32) {
    let (mut rng, mut next, mut written, mut unanswered) = (StdRng::seed_from_u64(seed), first, 0, 0);
    let steady = |id: &u64| !STEADY.contains(id);
    while !stop.load(Ordering::Relaxed) {
        let present: Vec<u64> = truth.present().into_iter().filter(steady).collect();
        let (ids, state): (Vec<u64>, Option<String>) = match rng.random_range(0..4) {
            0 if present.len() > 200 => (present.choose_multiple(&mut rng, 60).copied().collect(), None),
            1 => {
                (present.choose_multiple(&mut rng, 20).copied().collect(), Some(format!("harbour light again {next}")))
            }
            _ => {
                next += ADDED;
                ((next - ADDED..next).collect(), Some(format!("harbour light {next}")))
            }
        };
        if ids.is_empty() {
            continue;
        }
        let answer = match &state {
            Some(text) => {
                let documents: Value = ids.iter().map(|id| document(*id, text)).collect();
                ask(leader, "POST", &format!("/indexes/{INDEX}/documents?primaryKey=id"), &documents)
            }
            None => ask(leader, "POST", &format!("/indexes/{INDEX}/documents/delete-batch"), &json!(ids)),
        };
        let is_acknowledged = matches!(answer, Some((202, _)));
        truth.note(ids, &state, is_acknowledged);
        if is_acknowledged {
            written += 1;
        } else {
            unanswered += 1;
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    (written, unanswered)
}

/// What searches came to.
#[derive(Debug, Default)]
struct Searches {
    whole: u32,
    partial: u32,
    failed: u32,
    wrong: Option<String>,
}

/// Searches on all instances until told to stop.
fn search(hosts: &[Host], seed: u64, stop: &AtomicBool) -> Searches {
    let mut rng = StdRng::seed_from_u64(seed);
    let (mut searches, steady) = (Searches::default(), STEADY.collect::<BTreeSet<u64>>());
    while !stop.load(Ordering::Relaxed) {
        let number = rng.random_range(0..hosts.len());
        let is_steady = rng.random_bool(0.7);
        let word = if is_steady { "granite" } else { "harbour" };
        let body = json!({"q": word, "limit": 100_000, "attributesToRetrieve": ["id"]});
        match ask(&hosts[number], "POST", &format!("/indexes/{INDEX}/search"), &body) {
            Some((200, answer)) => {
                if let Some(wrong) = search_is_wrong(&answer, is_steady.then_some(&steady)) {
                    searches.wrong.get_or_insert(format!("asked of {}: {wrong}", NAMES[number]));
                }
                match answer["remoteErrors"] == json!({}) {
                    true => searches.whole += 1,
                    false => searches.partial += 1,
                }
            }
            _ => searches.failed += 1,
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    searches
}

/// Asks the leader until it has taken the change, as an operator would.
fn change(leader: &Host, layout: &Layout) -> Result<(), String> {
    let (began, wanted) = (Instant::now(), shards(layout));
    loop {
        let answer = ask(leader, "PATCH", "/network", &json!({ "shards": wanted }));
        let known = ask(leader, "GET", "/network", &Value::Null);
        if matches!(answer, Some((202, _))) || known.is_some_and(|(_, network)| network["shards"] == wanted) {
            return Ok(());
        }
        if began.elapsed() >= crate::REST {
            return Err(format!("the change is not taken: {answer:?}"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// One fault of one instance, some time after a change of the topology has begun.
struct Plan {
    victim: usize,
    fault: Fault,
    before: Duration,
    lasting: Duration,
    moves: bool,
    seeds: [u64; 2],
}

impl Plan {
    fn random(rng: &mut StdRng, are_isolated: bool) -> Self {
        let victim = rng.random_range(0..NAMES.len());
        let millis = Duration::from_millis;
        Self {
            victim,
            fault: Fault::random(rng, are_isolated, victim),
            before: millis(rng.random_range(0..900)),
            lasting: millis([100, 600, 2500][rng.random_range(0..3)]),
            moves: rng.random_bool(0.8),
            seeds: [rng.random(), rng.random()],
        }
    }
}

fn round(
    network: &mut Network,
    truth: &mut Truth,
    (plan, first, layout): (&Plan, u64, &Layout),
) -> (Searches, (u32, u32)) {
    let (stop, hosts) = (AtomicBool::new(false), network.hosts.clone());
    std::thread::scope(|scope| {
        let searcher = scope.spawn(|| search(&hosts, plan.seeds[0], &stop));
        let writer = scope.spawn(|| write(&hosts[0], truth, (first, plan.seeds[1]), &stop));
        std::thread::sleep(Duration::from_millis(200));
        let changer = plan.moves.then(|| scope.spawn(|| change(&hosts[0], layout)));
        std::thread::sleep(plan.before);
        let victim = &mut network.instances[plan.victim];
        plan.fault.begin(victim, &hosts);
        std::thread::sleep(plan.lasting);
        plan.fault.end(victim, &hosts);
        let changed = changer.map_or(Ok(()), |changer| changer.join().expect("the changer ends"));
        std::thread::sleep(Duration::from_millis(300));
        // Whatever comes now, the threads must end.
        stop.store(true, Ordering::Relaxed);
        changed.expect("the change is taken");
        (searcher.join().expect("the searches end"), writer.join().expect("the writer ends"))
    })
}

#[test]
fn documents_survive_faults_while_they_move() {
    let (rounds, seed) = (number("SKERRY_ROUNDS", 3), number("SKERRY_SEED", 1));
    let place = tempfile::tempdir().expect("a folder for the instances");
    let (mut tally, mut slowest) = (Tally::new(), Duration::ZERO);
    let (mut whole, mut partial, mut failed, mut written, mut unanswered) = (0, 0, 0, 0, 0);
    let mut at = layout(0);
    let mut network = Network::start(place.path(), &at);
    let mut truth = Truth::default();
    network.instances[0]
        .ask("PATCH", &format!("/indexes/{INDEX}/settings"), &truth::settings())
        .expect("the leader answers");
    let steady: Value = STEADY.map(|id| document(id, "granite")).collect();
    let path = format!("/indexes/{INDEX}/documents?primaryKey=id");
    let answer = network.instances[0].ask("POST", &path, &steady).expect("the leader answers");
    assert_eq!(answer.0, 202, "{}", answer.1);
    truth.note(STEADY, &Some("granite".into()), true);
    network.rest(&at, &mut truth, "at the start");
    for round_number in 0..rounds {
        // Each round can be had by itself: seed and round give all that happens in it.
        let mut rng = StdRng::seed_from_u64(seed.wrapping_mul(1_000_003).wrapping_add(round_number));
        let plan = Plan::random(&mut rng, network.space.are_isolated());
        let next = if plan.moves { layout(round_number as usize + 1) } else { at.clone() };
        let what = format!(
            "round {round_number} of seed {seed}: {:?} of {} after {:?} for {:?}, moving: {}",
            plan.fault, NAMES[plan.victim], plan.before, plan.lasting, plan.moves
        );
        let (searches, writes) = round(&mut network, &mut truth, (&plan, (round_number + 1) * 1_000_000, &next));
        at = next;
        let rest = network.rest(&at, &mut truth, &what);
        println!("{what}; {writes:?} writes, {searches:?}, at rest after {rest:?}");
        if let Some(wrong) = searches.wrong {
            panic!("{what}: {wrong}");
        }
        *tally.entry(plan.fault.kind()).or_default() += 1;
        slowest = slowest.max(rest);
        (whole, partial, failed) = (whole + searches.whole, partial + searches.partial, failed + searches.failed);
        (written, unanswered) = (written + writes.0, unanswered + writes.1);
    }
    println!(
        "{rounds} rounds {tally:?}: {written} writes acknowledged, {unanswered} not; {whole} searches whole, {partial} said to be \
         partial, {failed} not answered; {} documents; longest way to rest {slowest:?}",
        truth.present().len()
    );
}
