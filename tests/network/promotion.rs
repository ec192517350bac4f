//! A leader that is lost: another instance takes its place by one request, and the old one leads nothing when it is back.

use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::hosts::Host;
use crate::instance::ask;
use crate::truth::{self, INDEX, Layout, Truth, document};
use crate::{NAMES, Network, layout, number, remote, shards};

/// Writes documents until told otherwise by an answer; the acknowledged ones are noted. How many were not.
fn write(host: &Host, truth: &mut Truth, first: u64, count: u64) -> u64 {
    let mut refused = 0;
    for number in 0..count {
        let ids = first + number * 10..first + (number + 1) * 10;
        let text = format!("beacon {first}");
        let documents: Value = ids.clone().map(|id| document(id, &text)).collect();
        let answer = ask(host, "POST", &format!("/indexes/{INDEX}/documents?primaryKey=id"), &documents);
        let is_acknowledged = matches!(answer, Some((202, _)));
        refused += u64::from(!is_acknowledged);
        truth.note(ids, &Some(text), is_acknowledged);
    }
    refused
}

/// Asks again until the answer is 202, as an operator would.
fn insist(host: &Host, body: &Value, what: &str) -> Duration {
    let began = Instant::now();
    loop {
        match ask(host, "PATCH", "/network", body) {
            Some((202, _)) => return began.elapsed(),
            answer => assert!(began.elapsed() < crate::REST, "{what}: {answer:?}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The layout on two instances alone.
fn without(gone: &str, layout: &Layout) -> Layout {
    let stay =
        |on: &std::collections::BTreeSet<&'static str>| on.iter().copied().filter(|name| *name != gone).collect();
    layout.iter().map(|(shard, on)| (*shard, stay(on))).collect()
}

#[test]
fn an_operator_replaces_a_lost_leader() {
    let (rounds, seed) = (number("SKERRY_ROUNDS", 2), number("SKERRY_SEED", 1));
    let place = tempfile::tempdir().expect("a folder for the instances");
    let whole = layout(0);
    let mut network = Network::start(place.path(), &whole);
    let mut truth = Truth::default();
    let mut leader = 0;
    let path = format!("/indexes/{INDEX}/settings");
    network.instances[0].ask("PATCH", &path, &truth::settings()).expect("the leader answers");
    // A leader that is lost while documents move has to come back: the change that makes the network must have ended.
    network.rest(&whole, &mut truth, "at the start");
    for round in 0..rounds {
        let mut rng = StdRng::seed_from_u64(seed.wrapping_mul(1_000_003).wrapping_add(round));
        let (old, new) = (leader, (leader + rng.random_range(1..3)) % 3);
        let (old_name, new_name) = (NAMES[old], NAMES[new]);
        let is_cut = network.space.are_isolated() && rng.random_bool(0.6);
        let others: Vec<Host> =
            network.hosts.iter().enumerate().filter(|(at, _)| *at != old).map(|(_, host)| host.clone()).collect();
        let base = (round + 1) * 1_000_000;
        assert_eq!(write(&network.hosts[old], &mut truth, base, 10), 0, "a leader with its network acknowledges");
        // Lost to the other instances; where it is only cut off, clients still reach it.
        match is_cut {
            true => network.instances[old].host.set_apart(&others, true),
            false => network.instances[old].kill(),
        }
        let take_over = json!({"leader": new_name, "remotes": {old_name: null}});
        let taken = insist(&network.hosts[new], &take_over, "another instance takes over");
        assert_eq!(write(&network.hosts[new], &mut truth, base + 1000, 10), 0, "the new leader acknowledges");
        if is_cut {
            let mut lost = Truth::default();
            assert_eq!(
                write(&network.hosts[old], &mut lost, base + 2000, 3),
                3,
                "one that is alone acknowledges nothing"
            );
            let alone = json!({"remotes": {NAMES[3 - old - new]: null, new_name: null}});
            let answer = ask(&network.hosts[old], "PATCH", "/network", &alone);
            assert!(
                answer.as_ref().is_some_and(|(status, _)| *status >= 400),
                "one that is alone decides nothing: {answer:?}"
            );
            network.instances[old].host.set_apart(&others, false);
        } else {
            network.instances[old].restart();
        }
        network.rest_without(old_name, &without(old_name, &whole), &mut truth);
        let mut lost = Truth::default();
        assert_eq!(write(&network.hosts[old], &mut lost, base + 3000, 3), 3, "the old leader acknowledges nothing");
        let (_, answer) =
            ask(&network.hosts[old], "PATCH", "/network", &json!({ "shards": shards(&whole) })).expect("an answer");
        assert_eq!(answer["code"], "network_version_too_old", "the old leader changes nothing: {answer}");
        // It joins again, and brings nothing along.
        let join = json!({"remotes": {old_name: remote(&network.hosts[old])}, "shards": shards(&whole)});
        let joined = insist(&network.hosts[new], &join, "the old leader joins");
        let what = format!("round {round} of seed {seed}: {new_name} after {old_name}, cut off: {is_cut}");
        let rest = network.rest(&whole, &mut truth, &what);
        let leaders: Vec<Value> = network
            .hosts
            .iter()
            .map(|host| ask(host, "GET", "/network", &Value::Null).expect("an answer").1["leader"].clone())
            .collect();
        assert_eq!(leaders, [json!(new_name), json!(new_name), json!(new_name)], "{what}");
        println!("{what}; taken over in {taken:?}, joined after {joined:?}, at rest after {rest:?}");
        leader = new;
    }
    println!("{rounds} leaders replaced, {} documents", truth.present().len());
}
