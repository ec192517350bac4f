//! A repeatable outside world: an embedder, a sink that keeps what it gets, and a script of fixed answers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

pub struct Mock {
    pub port: u16,
    state: Arc<State>,
}

struct State {
    kind: String,
    dimensions: usize,
    routes: Value,
    keep_headers: Vec<String>,
    answers: Mutex<Vec<Value>>,
    seen: Mutex<Vec<Value>>,
}

impl Mock {
    /// Listens on a free port; threads of it live until the process ends.
    pub fn start(spec: &Value) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let kept = spec["keep_headers"].as_array().into_iter().flatten().filter_map(|v| v.as_str().map(String::from));
        let state = Arc::new(State {
            kind: spec["kind"].as_str().unwrap_or("sink").to_owned(),
            dimensions: spec["dimensions"].as_u64().unwrap_or(8) as usize,
            routes: spec["routes"].clone(),
            keep_headers: kept.collect(),
            answers: Mutex::new(spec["answers"].as_array().cloned().unwrap_or_default()),
            seen: Mutex::new(Vec::new()),
        });
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = shared.clone();
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        Self { port, state }
    }

    /// The requests received so far.
    pub fn seen(&self) -> Vec<Value> {
        self.state.seen.lock().expect("no handler panics while it holds the list").clone()
    }
}

struct Received {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Received {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

fn receive(from: &mut BufReader<TcpStream>) -> Option<Received> {
    let mut line = String::new();
    from.read_line(&mut line).ok().filter(|n| *n > 0)?;
    let mut words = line.split_whitespace().map(String::from);
    let mut request = Received { method: words.next()?, path: words.next()?, headers: Vec::new(), body: Vec::new() };
    loop {
        let mut line = String::new();
        from.read_line(&mut line).ok()?;
        // Blanks at the end of a value are kept, as the recordings have them.
        let Some((name, value)) = line.trim_end_matches(['\r', '\n']).split_once(':') else { break };
        request.headers.push((name.to_owned(), value.trim_start().to_owned()));
    }
    if let Some(length) = request.header("content-length").and_then(|n| n.parse::<usize>().ok()) {
        request.body.resize(length, 0);
        from.read_exact(&mut request.body).ok()?;
    } else if request.header("transfer-encoding").is_some_and(|coding| coding.contains("chunked")) {
        loop {
            let mut line = String::new();
            from.read_line(&mut line).ok()?;
            let size = usize::from_str_radix(line.trim(), 16).ok()?;
            let start = request.body.len();
            request.body.resize(start + size, 0);
            from.read_exact(&mut request.body[start..]).ok()?;
            from.read_line(&mut String::new()).ok()?;
            if size == 0 {
                break;
            }
        }
    }
    if request.header("content-encoding") == Some("gzip") {
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&request.body[..]).read_to_end(&mut plain).ok()?;
        request.body = plain;
    }
    Some(request)
}

fn serve(stream: TcpStream, state: &State) {
    let Ok(mut out) = stream.try_clone() else { return };
    let mut from = BufReader::new(stream);
    while let Some(request) = receive(&mut from) {
        let header = |name: &str| request.header(name).map_or(Value::Null, Value::from);
        let mut kept = json!({"method": request.method, "path": request.path, "body": String::from_utf8_lossy(&request.body),
            "authorization": header("authorization"), "contentType": header("content-type")});
        if !state.keep_headers.is_empty() {
            kept["headers"] =
                Value::Object(state.keep_headers.iter().map(|name| (name.clone(), header(name))).collect());
        }
        state.seen.lock().expect("no handler panics while it holds the list").push(kept);
        if let Some(ms) = number_after(&request.path, "/delay-") {
            std::thread::sleep(Duration::from_millis(ms));
        }
        let (status, kind, body) = answer(&request, state);
        let head = format!("HTTP/1.1 {status} Mock\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n", body.len());
        if out.write_all(head.as_bytes()).and_then(|()| out.write_all(body.as_bytes())).is_err() {
            return;
        }
    }
}

fn number_after(path: &str, mark: &str) -> Option<u64> {
    let rest = path.split_once(mark)?.1;
    rest[..rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len()].parse().ok()
}

fn answer(request: &Received, state: &State) -> (u64, String, String) {
    let path = &request.path;
    if state.kind == "script" {
        let route = format!("{} {}", request.method, path.split('?').next().unwrap_or(path));
        let said = state.routes.get(&route).cloned().unwrap_or_else(|| {
            let mut answers = state.answers.lock().expect("no handler panics while it holds the list");
            if answers.len() > 1 { answers.remove(0) } else { answers.first().cloned().unwrap_or_default() }
        });
        let body = said.get("body").cloned().unwrap_or_else(|| json!({}));
        let body = body.as_str().map_or_else(|| body.to_string(), String::from);
        return (
            said["status"].as_u64().unwrap_or(200),
            said["type"].as_str().unwrap_or("application/json").into(),
            body,
        );
    }
    let json_kind = "application/json".to_owned();
    if state.kind != "embedder" {
        return (if path.ends_with("/fail") { 500 } else { 200 }, json_kind, "{}".into());
    }
    let Ok(body) = serde_json::from_slice::<Value>(&request.body) else { return (400, json_kind, "{}".into()) };
    let (status, answer) = embedder_answer(path, &body, state.dimensions);
    (status, json_kind, answer.to_string())
}

fn embedder_answer(path: &str, body: &Value, dimensions: usize) -> (u64, Value) {
    let given = ["input", "texts", "inputs", "text"]
        .iter()
        .find_map(|name| body.get(name))
        .cloned()
        .unwrap_or_else(|| "".into());
    let many = given.as_array().cloned().unwrap_or_else(|| vec![given.clone()]);
    let text_of = |v: &Value| v.as_str().map_or_else(|| v.to_string(), String::from);
    let embed_all = |dimensions| many.iter().map(|text| embed(&text_of(text), dimensions)).collect::<Vec<Value>>();
    let vectors = embed_all(dimensions);
    let failed = json!({"error": "the mock was told to fail"});
    if let Some(status) = number_after(path, "/status/") {
        return (status, failed);
    }
    let answer = if path.ends_with("/api/embeddings") {
        json!({"embedding": embed(body["prompt"].as_str().unwrap_or(""), dimensions)})
    } else if path.ends_with("/embeddings") {
        let data = vectors.iter().enumerate().map(|(i, v)| json!({"object": "embedding", "index": i, "embedding": v}));
        json!({"object": "list", "model": body.get("model").cloned().unwrap_or_else(|| "mock".into()),
            "usage": {"prompt_tokens": 1, "total_tokens": 1}, "data": data.collect::<Value>()})
    } else if path.ends_with("/api/embed") {
        json!({"model": body.get("model").cloned().unwrap_or_else(|| "mock".into()), "embeddings": vectors})
    } else if path.ends_with("/fail") {
        return (500, failed);
    } else if let Some(told) = number_after(path, "/dims/") {
        json!({"data": embed_all(told as usize)})
    } else if path.ends_with("/short") {
        json!({"data": vectors[..vectors.len().saturating_sub(1)]})
    } else if path.ends_with("/nested") {
        json!({"outcome": {"items": vectors.iter().map(|v| json!({"values": v})).collect::<Value>()}})
    } else if given.is_array() {
        json!({"embeddings": vectors, "data": vectors})
    } else {
        json!({"embedding": vectors[0], "data": vectors[0]})
    };
    (200, answer)
}

/// A repeatable unit vector for a text: word hashes summed, so that texts that share words are close.
fn embed(text: &str, dimensions: usize) -> Value {
    let text = text.to_lowercase();
    let mut words: Vec<&str> =
        text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty()).collect();
    if words.is_empty() {
        words.push("");
    }
    let mut sums = vec![0.0f64; dimensions];
    for word in words {
        let hash = Sha256::digest(word.as_bytes());
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum += (f64::from(hash[i % 32]) - 127.5) / 127.5;
        }
    }
    let norm = sums.iter().map(|x| x * x).sum::<f64>().sqrt();
    let norm = if norm == 0.0 { 1.0 } else { norm };
    sums.iter().map(|x| Value::from((x / norm * 1e6).round() / 1e6)).collect()
}
