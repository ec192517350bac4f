//! Replays recorded HTTP conversations against the server's binary and compares every answer.
//!
//! The scenarios under `scenarios/` hold what a client sends and what the reference server answered. The ones that must
//! pass are listed in `whole.txt`, which says of the others why they do not. Arguments: path prefixes of scenarios to run
//! instead (`cargo test --test conformance -- documents/stats`), `--show` to print every difference, `--jobs N`.
//! `SKERRY_BIN` names another binary, `SKERRY_ARGS` other arguments than the two sets tried by default.

// A test process of its own: it may block.
#![allow(clippy::disallowed_methods)]

mod client;
mod compare;
mod mocks;
mod scenario;
// Other tests use more of it.
#[allow(dead_code)]
mod server;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Every scenario runs on one core, and on three cores with three partitions: the answers must not differ.
const ARGUMENT_SETS: [&str; 2] = ["--cores 1", "--cores 3 --partitions 3"];

struct Arguments {
    prefixes: Vec<String>,
    show: bool,
    list: bool,
    jobs: usize,
}

fn arguments() -> Arguments {
    let mut found = Arguments { prefixes: Vec::new(), show: false, list: false, jobs: 4 };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--show" => found.show = true,
            "--list" => found.list = true,
            "--jobs" => found.jobs = words.next().and_then(|n| n.parse().ok()).unwrap_or(found.jobs),
            "--exact" | "--nocapture" | "--quiet" | "-q" => {}
            _ => found.prefixes.push(word.trim_end_matches(".json").to_owned()),
        }
    }
    found
}

/// The scenarios below `root` in order of their names, as paths without `.json`.
fn scenario_names(root: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the scenarios folder can be listed").flatten() {
            let path = entry.path();
            if path.is_dir() {
                if path.file_name().is_some_and(|name| name != "data") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|ending| ending == "json") {
                let name = path.strip_prefix(root).expect("it lies below the root").with_extension("");
                names.push(name.to_string_lossy().into_owned());
            }
        }
    }
    names.sort();
    names
}

fn wanted(root: &Path, prefixes: &[String]) -> Vec<String> {
    let listed: Vec<String> = if prefixes.is_empty() {
        let list = std::fs::read_to_string(root.with_file_name("whole.txt")).expect("whole.txt can be read");
        list.lines()
            .map(|line| line.split('#').next().unwrap_or("").trim().to_owned())
            .filter(|l| !l.is_empty())
            .collect()
    } else {
        prefixes.to_vec()
    };
    let (without, with): (Vec<_>, Vec<_>) = listed.iter().partition(|line| line.starts_with('!'));
    let matches = |name: &str, prefix: &str| {
        name.strip_prefix(prefix.trim_end_matches('/')).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let all = scenario_names(root);
    // Words on the command line may be meant for other tests.
    for line in listed.iter().filter(|_| prefixes.is_empty()) {
        let prefix = line.trim_start_matches('!');
        assert!(all.iter().any(|name| matches(name, prefix)), "no scenario is called {prefix}");
    }
    all.into_iter()
        .filter(|name| with.iter().any(|prefix| matches(name, prefix)))
        .filter(|name| !without.iter().any(|prefix| matches(name, &prefix[1..])))
        .collect()
}

fn main() -> ExitCode {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/scenarios");
    let binary = std::env::var("SKERRY_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_skerry").to_owned());
    let given = arguments();
    if given.list {
        return ExitCode::SUCCESS;
    }
    let names = wanted(&root, &given.prefixes);
    if names.is_empty() {
        println!("0 scenarios");
        return ExitCode::SUCCESS;
    }
    let sets: Vec<String> = match std::env::var("SKERRY_ARGS") {
        Ok(one) => vec![one],
        Err(_) => ARGUMENT_SETS.map(String::from).to_vec(),
    };
    let runs: Vec<(&String, &String)> = sets.iter().flat_map(|set| names.iter().map(move |name| (name, set))).collect();
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..given.jobs.min(runs.len()) {
            scope.spawn(|| {
                while let Some((name, set)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let problems = scenario::run(&root.join(format!("{name}.json")), &binary, set);
                    if problems.is_empty() {
                        continue;
                    }
                    let shown = if given.show { problems.len() } else { 1 };
                    println!("FAIL {name} with {set} ({} differences)", problems.len());
                    problems.iter().take(shown).for_each(|problem| println!("     {problem:.900}"));
                    failures.lock().expect("no run panics while it holds the list").push(*name);
                }
            });
        }
    });
    let failed = failures.into_inner().expect("all runs have ended").len();
    println!("{} passed, {failed} failed", runs.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
