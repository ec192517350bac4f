//! Loading a file: documents a second from the first byte sent until the last task has succeeded.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Servers;
use crate::http::Client;
use crate::report::{anonymous_bytes, folder_bytes, print_host};

/// Between the last task's end and a look at the size on disk.
const REST: Duration = Duration::from_secs(5);

/// What is loaded.
#[derive(clap::Args)]
pub struct Source {
    /// NDJSON file whose documents have the key `id`.
    #[arg(long)]
    pub file: PathBuf,
    /// JSON file of settings, sent before the documents.
    #[arg(long)]
    settings: Option<PathBuf>,
    /// Bytes of each request of documents, cut at lines.
    #[arg(long, default_value_t = 20_000_000)]
    pub batch_bytes: usize,
}

impl Source {
    /// The settings, if there is a file of them.
    pub fn settings(&self) -> io::Result<Option<Value>> {
        let read = |file| serde_json::from_slice(&std::fs::read(file)?).map_err(io::Error::other);
        self.settings.as_ref().map(read).transpose()
    }
}

/// The file cut into payloads at line ends.
pub fn payloads(text: &str, batch_bytes: usize) -> Vec<&str> {
    let (mut out, mut rest) = (Vec::new(), text);
    while rest.len() > batch_bytes {
        let mut cut = batch_bytes;
        while !rest.is_char_boundary(cut) {
            cut -= 1;
        }
        let cut = rest[..cut].rfind('\n').map_or(rest.len(), |at| at + 1);
        let (head, tail) = rest.split_at(cut);
        out.push(head);
        rest = tail;
    }
    if !rest.is_empty() {
        out.push(rest);
    }
    out
}

/// Deletes an index if it is there and waits for it.
pub fn delete_index(client: &mut Client, index: &str) -> io::Result<()> {
    let task = client.json("DELETE", &format!("/indexes/{index}"), None)?;
    let uid = task["taskUid"].as_u64().ok_or_else(|| io::Error::other(format!("no task in {task}")))?;
    client.wait_for(uid, false).map(drop)
}

/// Sends every payload, then waits for the last task.
pub fn send_all(client: &mut Client, index: &str, payloads: &[&str]) -> io::Result<()> {
    let mut last = Value::Null;
    for payload in payloads {
        let path = format!("/indexes/{index}/documents");
        let (status, answer) = client.send("POST", &path, "application/x-ndjson", payload.as_bytes())?;
        if status != 202 {
            return Err(io::Error::other(format!("documents: {status} {}", String::from_utf8_lossy(answer))));
        }
        last = serde_json::from_slice(answer).map_err(io::Error::other)?;
    }
    client.wait(&last).map(drop)
}

/// Loads the file into each server and prints what it took.
pub fn run(servers: &Servers, source: &Source, data: &[PathBuf], pids: &[u32]) -> io::Result<()> {
    print_host();
    let (text, settings) = (std::fs::read_to_string(&source.file)?, source.settings()?);
    let payloads = payloads(&text, source.batch_bytes);
    let lines = text.lines().count();
    println!("file: {} documents, {:.1} MB, {} requests", lines, text.len() as f64 / 1e6, payloads.len());
    println!(
        "{:22} {:>9} {:>13} {:>11} {:>11} {:>11}",
        "server", "seconds", "documents/s", "disk MB", "disk/JSON", "anon MB"
    );
    let mut first = None;
    for (at, server) in servers.servers.iter().enumerate() {
        let mut client = Client::connect(server, servers.key.as_deref())?;
        delete_index(&mut client, &servers.index)?;
        if let Some(settings) = &settings {
            let task = client.json("PATCH", &format!("/indexes/{}/settings", servers.index), Some(settings))?;
            client.wait(&task)?;
        }
        let began = Instant::now();
        send_all(&mut client, &servers.index, &payloads)?;
        let seconds = began.elapsed().as_secs_f64();
        // The size at rest: what a server tidies up after its last task counts for it.
        std::thread::sleep(REST);
        let disk = data.get(at).map_or(0, |folder| folder_bytes(folder)) as f64;
        let memory = pids.get(at).map_or(0, |pid| anonymous_bytes(*pid)) as f64;
        let per_second = lines as f64 / seconds;
        let (mb, ratio) = (disk / 1e6, disk / text.len() as f64);
        println!("{server:22} {seconds:9.2} {per_second:13.0} {mb:11.1} {ratio:11.2} {:11.1}", memory / 1e6);
        match first {
            None => first = Some(per_second),
            Some(first) => println!("{:22} {:>9} {:13.3}", format!("first / {server}"), "", first / per_second),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A document cut in two would be refused by the server as malformed.
    #[test]
    fn payloads_are_cut_at_line_ends_and_lose_nothing() {
        let text = (0..50).map(|n| format!("{{\"id\":{n},\"é\":\"é\"}}\n")).collect::<String>();
        for size in [1, 17, 40, 400, 10_000] {
            let parts = payloads(&text, size);
            assert_eq!(parts.concat(), text);
            assert!(parts.iter().all(|part| part.ends_with('\n')));
        }
    }
}
