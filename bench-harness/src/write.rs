//! How soon a document that was sent can be searched.

use std::io;
use std::time::Instant;

use serde_json::json;

use crate::Servers;
use crate::http::Client;
use crate::report::print_host;

/// Writes documents one after another into the index and searches each until it is found.
pub fn run(servers: &Servers, count: usize) -> io::Result<()> {
    print_host();
    println!(
        "{:22} {:>12} {:>12} {:>12} {:>12}",
        "server", "202 p50 us", "found p50 us", "found p99 us", "found max us"
    );
    for server in &servers.servers {
        let mut client = Client::connect(server, servers.key.as_deref())?;
        let (mut accepted, mut found) = (Vec::new(), Vec::new());
        for number in 0..count {
            // A word that no other document has, of letters alone so that it stays one word.
            let letters = |n: usize| (0..6).map(|i| char::from(b'a' + ((n >> (i * 3)) % 8) as u8)).collect::<String>();
            let word = format!("zyx{}{}", letters(number), letters(std::process::id() as usize));
            let document = json!([{"id": format!("w{number}"), "words": [word], "definition": "a written word"}]);
            let began = Instant::now();
            client.json("POST", &format!("/indexes/{}/documents", servers.index), Some(&document))?;
            accepted.push(began.elapsed().as_micros() as u64);
            let query = json!({"q": format!("\"{word}\""), "limit": 1});
            loop {
                let answer = client.json("POST", &format!("/indexes/{}/search", servers.index), Some(&query))?;
                if answer["hits"].as_array().is_some_and(|hits| !hits.is_empty()) {
                    break;
                }
            }
            found.push(began.elapsed().as_micros() as u64);
        }
        accepted.sort_unstable();
        found.sort_unstable();
        let at = |list: &[u64], q: f64| list.get(((list.len() as f64 - 1.0) * q) as usize).copied().unwrap_or(0);
        let (a50, f50, f99, max) = (at(&accepted, 0.5), at(&found, 0.5), at(&found, 0.99), at(&found, 1.0));
        println!("{server:22} {a50:12} {f50:12} {f99:12} {max:12}");
    }
    Ok(())
}
