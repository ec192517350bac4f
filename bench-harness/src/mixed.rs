//! Searches while documents are loaded: their latency against that of an idle server.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::http::Client;
use crate::queries::{self, Kind};
use crate::report::print_host;
use crate::search::{Shape, print_row, round};
use crate::{Servers, load};

/// Bytes of one request of the load that runs beside the searches.
const LOAD_BATCH_BYTES: usize = 4 << 20;

/// Idle phase, then the same searches while `file_to_load` is loaded again and again into an index of its own.
pub fn run(servers: &Servers, file: &Path, file_to_load: &Path, shape: &Shape) -> io::Result<()> {
    print_host();
    let bodies = queries::bodies(file, Kind::Two, shape.seed, queries::QUERIES)?;
    let text = std::fs::read_to_string(file_to_load)?;
    let payloads = load::payloads(&text, LOAD_BATCH_BYTES);
    println!("{:10} {:22} {:>9} {:>9} {:>9} {:>10}", "phase", "server", "p50 us", "p99 us", "max us", "per second");
    for server in &servers.servers {
        let idle = round(server, servers, &bodies, shape)?;
        print_row("idle", server, &idle);
        let (stop, loads) = (AtomicBool::new(false), AtomicUsize::new(0));
        let (loading, done) = std::thread::scope(|scope| {
            let loader = scope.spawn(|| -> io::Result<()> {
                let mut client = Client::connect(server, servers.key.as_deref())?;
                while !stop.load(Ordering::Relaxed) {
                    load::delete_index(&mut client, "bench-load")?;
                    load::send_all(&mut client, "bench-load", &payloads)?;
                    loads.fetch_add(1, Ordering::Relaxed);
                }
                load::delete_index(&mut client, "bench-load")
            });
            let loading = round(server, servers, &bodies, shape);
            stop.store(true, Ordering::Relaxed);
            (loading, loader.join().unwrap_or_else(|_| Err(io::Error::other("the loader panicked"))))
        });
        let loading = loading?;
        done?;
        print_row("loading", server, &loading);
        let p99 = |round: &crate::search::Round| round.latency.value_at_quantile(0.99) as f64;
        let (ratio, loads) = (p99(&loading) / p99(&idle).max(1.0), loads.load(Ordering::Relaxed));
        println!("loading / idle p99 of {server}: {ratio:.2} ({loads} loads ended)");
    }
    Ok(())
}
