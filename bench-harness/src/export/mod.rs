//! Exports: an index is loaded into one server, sent to others by that server, and then compared with what they have: every
//! document, with its vectors, and every setting.

mod compare;

use std::io;
use std::path::PathBuf;
use std::time::Instant;

use serde_json::{Value, json};

use crate::Servers;
use crate::http::Client;
use crate::load::{Source, delete_index, payloads, send_all};
use crate::report::{median, print_host};
use crate::vectors::VectorSet;

/// The embedder that the vectors are for.
const EMBEDDER: &str = "v";

/// What to measure.
#[derive(clap::Args)]
pub struct Shape {
    #[command(flatten)]
    source: Source,
    /// Folder with `vectors.i8.npy`, a vector for each line of the file.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Documents of the file that are used at most.
    #[arg(long, default_value_t = usize::MAX)]
    documents: usize,
    /// Exports to each server.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Uses the index of the first server as it is.
    #[arg(long)]
    loaded: bool,
}

/// What one export took, in seconds.
struct Times {
    /// Until the task of the source has succeeded.
    sent: f64,
    /// Until the target has nothing left to do.
    taken: f64,
}

/// Loads the first server, exports to each of the others, compares, and prints what it took.
pub fn run(servers: &Servers, shape: &Shape) -> io::Result<()> {
    print_host();
    let [source, targets @ ..] = &servers.servers[..] else { return Err(io::Error::other("no server")) };
    if targets.is_empty() {
        return Err(io::Error::other("the first server exports to the others: name two or more"));
    }
    let mut client = Client::connect(source, servers.key.as_deref())?;
    if !shape.loaded {
        load(&mut client, servers, shape)?;
    }
    let path = format!("/indexes/{}/stats", servers.index);
    let documents = client.json("GET", &path, None)?["numberOfDocuments"].as_u64().unwrap_or_default();
    println!("{documents} documents of {source}");
    println!(
        "{:22} {:>9} {:>9} {:>13} {:>10} {:>10} {:>10} {:>18}",
        "target", "sent s", "taken s", "documents/s", "equal", "different", "missing", "settings that differ"
    );
    let mut medians = Vec::new();
    for target in targets {
        let (mut sent, mut taken) = (Vec::new(), Vec::new());
        for _ in 0..shape.rounds.max(1) {
            let times = export(&mut client, servers, target)?;
            sent.push(times.sent);
            taken.push(times.taken);
        }
        let mut other = Client::connect(target, servers.key.as_deref())?;
        let counts = compare::documents(&mut client, &mut other, &servers.index)?;
        let settings = compare::settings(&mut client, &mut other, &servers.index)?;
        let settings = if settings.is_empty() { "none".to_owned() } else { settings.join(", ") };
        let (sent, taken) = (median(sent), median(taken));
        println!(
            "{target:22} {sent:9.2} {taken:9.2} {:13.0} {:10} {:10} {:10} {settings:>18}",
            documents as f64 / taken,
            counts.equal,
            counts.different,
            counts.missing
        );
        medians.push(taken);
    }
    for (target, taken) in targets.iter().zip(&medians).skip(1) {
        println!("{:32} {:9.3}", format!("first / {target}"), medians[0] / taken);
    }
    Ok(())
}

fn load(client: &mut Client, servers: &Servers, shape: &Shape) -> io::Result<()> {
    let text = std::fs::read_to_string(&shape.source.file)?;
    let lines: Vec<&str> = text.lines().take(shape.documents).collect();
    let mut settings = shape.source.settings()?.unwrap_or_else(|| json!({}));
    let vectors = shape.folder.as_ref().map(|folder| VectorSet::read(&folder.join("vectors.i8.npy"))).transpose()?;
    if let Some(vectors) = &vectors {
        settings["embedders"] = json!({EMBEDDER: {"source": "userProvided", "dimensions": vectors.dimensions()}});
    }
    delete_index(client, &servers.index)?;
    let task = client.json("PATCH", &format!("/indexes/{}/settings", servers.index), Some(&settings))?;
    client.wait(&task)?;
    let text = with_vectors(&lines, vectors.as_ref())?;
    let began = Instant::now();
    send_all(client, &servers.index, &payloads(&text, shape.source.batch_bytes))?;
    let seconds = began.elapsed().as_secs_f64();
    println!("loaded {} documents, {:.1} MB, in {seconds:.2} s", lines.len(), text.len() as f64 / 1e6);
    Ok(())
}

/// The lines, each with the vector of its place.
fn with_vectors(lines: &[&str], vectors: Option<&VectorSet>) -> io::Result<String> {
    let mut out = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let open = line.trim_end().strip_suffix('}').ok_or_else(|| io::Error::other("a line is no object"))?;
        out.extend_from_slice(open.as_bytes());
        if let Some(vectors) = vectors.filter(|vectors| at < vectors.len()) {
            out.extend_from_slice(format!(r#","_vectors":{{"{EMBEDDER}":"#).as_bytes());
            vectors.put_json(at, &mut out);
            out.push(b'}');
        }
        out.extend_from_slice(b"}\n");
    }
    String::from_utf8(out).map_err(io::Error::other)
}

/// Has the first server send its index to another, which does not have it yet.
fn export(client: &mut Client, servers: &Servers, target: &str) -> io::Result<Times> {
    let mut other = Client::connect(target, servers.key.as_deref())?;
    delete_index(&mut other, &servers.index)?;
    let mut body = json!({"url": format!("http://{target}"), "indexes": {servers.index.as_str(): {}}});
    if let Some(key) = &servers.key {
        body["apiKey"] = key.as_str().into();
    }
    let began = Instant::now();
    let task = client.json("POST", "/export", Some(&body))?;
    client.wait(&task)?;
    let sent = began.elapsed().as_secs_f64();
    other.rest()?;
    let failed = other.json("GET", &format!("/tasks?limit=100&statuses=failed&indexUids={}", servers.index), None)?;
    let is_new = |task: &&Value| task["error"]["code"] != "index_not_found";
    match failed["results"].as_array().into_iter().flatten().find(is_new) {
        Some(task) => Err(io::Error::other(format!("a task of {target} failed: {task}"))),
        None => Ok(Times { sent, taken: began.elapsed().as_secs_f64() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_goes_into_the_document_of_its_line() {
        let (vectors, _) = VectorSet::clustered(1, 1, 4);
        let text = with_vectors(&[r#"{"id":1}"#, r#"{"id":2}"#], Some(&vectors)).unwrap();
        let documents: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(documents[0]["_vectors"][EMBEDDER].as_array().unwrap().len(), 4);
        assert_eq!(documents[1], json!({"id": 2}));
    }
}
