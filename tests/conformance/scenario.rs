//! Runs one scenario: its mocks and servers, then its steps in order.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use serde_json::{Value, json};

use crate::client;
use crate::compare::{differ, drop_paths, key_order, normal, pointer, unordered};
use crate::mocks::Mock;
use crate::server::{Server, newest};

/// How long a task may take, in tries of 20 ms.
const TASK_TRIES: usize = 3000;

struct Run {
    servers: BTreeMap<String, Server>,
    mocks: BTreeMap<String, Mock>,
    names: BTreeMap<String, Value>,
    folder: std::path::PathBuf,
}

/// Every difference between what the server answers and what was recorded.
pub fn run(path: &Path, binary: &str, flags: &str) -> Vec<String> {
    match try_run(path, binary, flags) {
        Ok(problems) => problems,
        Err(error) => vec![error],
    }
}

fn try_run(path: &Path, binary: &str, flags: &str) -> Result<Vec<String>, String> {
    let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    let scenario: Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
    let place = tempfile::tempdir().map_err(|e| e.to_string())?;
    let folder = path.parent().ok_or("a scenario lies in a folder")?.to_path_buf();
    let mut run = Run { servers: BTreeMap::new(), mocks: BTreeMap::new(), names: BTreeMap::new(), folder };
    for (name, spec) in scenario["mocks"].as_object().into_iter().flatten() {
        let mock = Mock::start(spec);
        run.names.insert(format!("{name}_url"), format!("http://127.0.0.1:{}", mock.port).into());
        run.mocks.insert(name.clone(), mock);
    }
    let one = json!({"main": scenario.get("server").cloned().unwrap_or_else(|| json!({}))});
    for (name, spec) in scenario.get("servers").unwrap_or(&one).as_object().into_iter().flatten() {
        let spec = substitute(spec, &run.names);
        let server = Server::start(binary, flags, &spec, place.path().join(name), &run.folder)?;
        run.names.insert(format!("{name}_url"), format!("http://127.0.0.1:{}", server.port).into());
        run.servers.insert(name.clone(), server);
    }
    let mut problems = Vec::new();
    for (at, step) in scenario["steps"].as_array().into_iter().flatten().enumerate() {
        let label = step["do"].as_str().unwrap_or("(no request)").to_owned();
        match run.step(step) {
            Ok(got) => problems
                .extend(differ(&step["expect"], &got, "").into_iter().map(|d| format!("step {at} {label}: {d}"))),
            Err(error) => problems.push(format!("step {at} {label}: {error}")),
        }
    }
    for (name, server) in &mut run.servers {
        let expected_down = problems.iter().any(|p| p.contains("did not start")) || text.contains("\"fails\"");
        if !expected_down && !server.is_running() {
            problems.push(format!("server {name} is not running at the end"));
        }
        server.stop(false);
    }
    Ok(problems)
}

fn now_plus(seconds: i64) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64);
    let date = time::OffsetDateTime::from_unix_timestamp(since + seconds).unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
    date.format(&time::format_description::well_known::Rfc3339).unwrap_or_default()
}

fn substitute_text(text: &str, names: &BTreeMap<String, Value>) -> Value {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("${") {
        let Some(end) = rest[at..].find('}') else { break };
        let name = &rest[at + 2..at + end];
        out.push_str(&rest[..at]);
        let seconds = name.strip_prefix("now").and_then(|s| s.strip_suffix('s')).and_then(|s| s.parse::<i64>().ok());
        match (seconds, names.get(name)) {
            (Some(seconds), _) => out.push_str(&now_plus(seconds)),
            (None, Some(value)) if out.is_empty() && at == 0 && end + 1 == text.len() => return value.clone(),
            (None, Some(Value::String(value))) => out.push_str(value),
            (None, Some(value)) => out.push_str(&value.to_string()),
            (None, None) => out.push_str(&rest[at..=at + end]),
        }
        rest = &rest[at + end + 1..];
    }
    (out + rest).into()
}

fn substitute(value: &Value, names: &BTreeMap<String, Value>) -> Value {
    let text_of = |text: &str| match substitute_text(text, names) {
        Value::String(text) => text,
        other => other.to_string(),
    };
    match value {
        Value::String(text) => substitute_text(text, names),
        Value::Array(items) => items.iter().map(|item| substitute(item, names)).collect(),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(key, v)| (text_of(key), substitute(v, names))).collect())
        }
        other => other.clone(),
    }
}

/// One JSON value, on one line or laid out on many, or else what each line holds.
pub fn parse_lines(text: &str) -> Value {
    if let Ok(one) = serde_json::from_str::<Value>(text) {
        return Value::Array(vec![one]);
    }
    let lines: Vec<&str> = if text.is_empty() { vec![text] } else { text.lines().collect() };
    lines.into_iter().map(|line| serde_json::from_str::<Value>(line).unwrap_or_else(|_| line.into())).collect()
}

fn list(step: &Value, name: &str) -> Vec<String> {
    step[name].as_array().into_iter().flatten().filter_map(|v| v.as_str().map(String::from)).collect()
}

impl Run {
    fn step(&mut self, step: &Value) -> Result<Value, String> {
        let expect = step.get("expect").is_some();
        if !expect {
            return Err("the scenario has no expectation for it".into());
        }
        let step = substitute(step, &self.names);
        if let Some(name) = step["sink"].as_str() {
            return self.sink(name, &step);
        }
        let server = step["on"].as_str().unwrap_or("main");
        let server = self.servers.get_mut(server).ok_or("no such server")?;
        if step.get("restart").is_some() {
            return match server.restart(&step) {
                Ok(()) => Ok(json!({"restarted": true})),
                Err(_) if step["fails"] == true => Ok(json!({"restarted": false, "running": server.is_running()})),
                Err(error) => Err(error),
            };
        }
        if let Some(kind) = step["archive"].as_str() {
            let mut answer = normal(&archive(server, kind, &list(&step, "read"))?);
            drop_paths(&mut answer, &list(&step, "ignore"));
            unordered(&mut answer, &list(&step, "unordered"));
            return Ok(answer);
        }
        if let Some(ms) = step["sleep_ms"].as_u64() {
            std::thread::sleep(Duration::from_millis(ms));
            return Ok(json!({"slept": true}));
        }
        self.request(&step)
    }

    fn sink(&self, name: &str, step: &Value) -> Result<Value, String> {
        std::thread::sleep(Duration::from_millis(step["after_ms"].as_u64().unwrap_or(300)));
        let mock = self.mocks.get(name).ok_or("no such mock")?;
        let part = step["contains"].as_str().unwrap_or("");
        let mut seen: Vec<Value> =
            mock.seen().into_iter().filter(|s| s["body"].as_str().is_some_and(|b| b.contains(part))).collect();
        if let Some(last) = step["last"].as_u64() {
            seen.drain(..seen.len().saturating_sub(last as usize));
        }
        for request in &mut seen {
            let body = parse_lines(request["body"].as_str().unwrap_or(""));
            request["body"] = body;
        }
        let mut answer = normal(&json!({"seen": seen}));
        drop_paths(&mut answer, &list(step, "ignore"));
        unordered(&mut answer, &list(step, "unordered"));
        Ok(answer)
    }

    fn body(&self, step: &Value, headers: &mut Vec<(String, String)>) -> Result<Option<Vec<u8>>, String> {
        let is_json = |headers: &mut Vec<(String, String)>| {
            if !headers.iter().any(|(name, _)| name == "Content-Type") {
                headers.push(("Content-Type".into(), "application/json".into()));
            }
        };
        if let Some(body) = step.get("json") {
            is_json(headers);
            return Ok(Some(body.to_string().into_bytes()));
        }
        if let Some(raw) = step.get("raw") {
            return Ok(Some(raw.as_str().map_or_else(|| raw.to_string(), String::from).into_bytes()));
        }
        if let Some(coded) = step["base64"].as_str() {
            return base64::engine::general_purpose::STANDARD.decode(coded).map(Some).map_err(|e| e.to_string());
        }
        let Some(file) = step["file"].as_str() else { return Ok(None) };
        is_json(headers);
        let bytes = std::fs::read(self.folder.join(file)).map_err(|e| e.to_string())?;
        if !file.ends_with(".gz") {
            return Ok(Some(bytes));
        }
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut plain).map_err(|e| e.to_string())?;
        Ok(Some(plain))
    }

    fn request(&mut self, step: &Value) -> Result<Value, String> {
        let (method, path) = step["do"].as_str().and_then(|s| s.split_once(' ')).ok_or("a step has a request")?;
        let mut headers: Vec<(String, String)> = Vec::new();
        for (name, value) in step["headers"].as_object().into_iter().flatten() {
            headers.push((name.clone(), value.as_str().map_or_else(|| value.to_string(), String::from)));
        }
        let body = self.body(step, &mut headers)?;
        let server = self.servers.get(step["on"].as_str().unwrap_or("main")).ok_or("no such server")?;
        let auth = step["auth"].as_str().map(String::from).or_else(|| server.key.clone());
        if let Some(key) = auth.filter(|key| !key.is_empty() && key != "none") {
            headers.retain(|(name, _)| name != "Authorization");
            headers.push(("Authorization".into(), format!("Bearer {key}")));
        }
        let path = encode_path(path);
        let tries = step["until_tries"].as_u64().unwrap_or(1).max(1);
        let mut last = None;
        for _ in 0..tries {
            let answer =
                client::send(server.port, method, &path, &headers, body.as_deref()).map_err(|e| e.to_string())?;
            let parsed: Option<Value> = serde_json::from_slice(&answer.body).ok();
            let done = match (step["until"].as_object(), &parsed) {
                (None, _) => true,
                (Some(want), Some(got)) => want.iter().all(|(at, v)| pointer(got, at).unwrap_or(&Value::Null) == v),
                (Some(_), None) => false,
            };
            last = Some((answer, parsed));
            if done {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let (answer, parsed) = last.ok_or("no answer")?;
        for (name, at) in step["save"].as_object().into_iter().flatten() {
            let at = at.as_str().unwrap_or("");
            let value =
                parsed.as_ref().and_then(|body| pointer(body, at)).ok_or_else(|| format!("nothing at {at} to save"))?;
            self.names.insert(name.clone(), value.clone());
        }
        let mut got = shape(step, &answer, parsed.clone());
        let uid = parsed.as_ref().and_then(|body| body["taskUid"].as_u64());
        if let (true, 200 | 202, Some(uid)) = (step["wait"] == true, answer.status, uid) {
            got["task"] = wait_for_task(server, &headers, uid)?;
        }
        let mut got = normal(&got);
        drop_paths(&mut got, &list(step, "ignore"));
        key_order(&mut got, &list(step, "key_order"));
        unordered(&mut got, &list(step, "unordered"));
        Ok(got)
    }
}

/// Bytes outside ASCII and blanks as percent codes, as an HTTP client sends them.
fn encode_path(path: &str) -> String {
    path.bytes()
        .map(|b| if b.is_ascii() && b != b' ' { char::from(b).to_string() } else { format!("%{b:02X}") })
        .collect()
}

fn wait_for_task(server: &Server, headers: &[(String, String)], uid: u64) -> Result<Value, String> {
    let mut auth: Vec<_> = headers.iter().filter(|(name, _)| name == "Authorization").cloned().collect();
    if let Some(key) = &server.key {
        auth = vec![("Authorization".into(), format!("Bearer {key}"))];
    }
    for _ in 0..TASK_TRIES {
        let answer =
            client::send(server.port, "GET", &format!("/tasks/{uid}"), &auth, None).map_err(|e| e.to_string())?;
        let task: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        if matches!(task["status"].as_str(), Some("succeeded" | "failed" | "canceled")) {
            return Ok(task);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(format!("task {uid} has not ended"))
}

fn shape(step: &Value, answer: &client::Answer, parsed: Option<Value>) -> Value {
    let mut got = json!({"status": answer.status});
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    if let Some(names) = step["answer_headers"].as_array() {
        let names = names.iter().filter_map(Value::as_str);
        let found =
            names.map(|name| (name.to_owned(), answer.header(&name.to_lowercase()).map_or(Value::Null, Value::from)));
        got["headers"] = Value::Object(found.collect());
    }
    let has_text = !text.is_empty() && parsed.is_none();
    if has_text && answer.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream")) {
        let lines = text.lines().filter_map(|line| line.strip_prefix("data:"));
        got["events"] = lines.map(|line| parse_lines(line.trim())[0].clone()).collect();
        return got;
    }
    if let Some(pattern) = step["grep"].as_str() {
        let expression = regex::Regex::new(pattern).expect("a scenario's expression is valid");
        got["lines"] = text.lines().filter(|line| has_text && expression.is_match(line)).map(Value::from).collect();
    } else if step["text"] == "ignore" {
        // Nothing of the body is compared.
    } else if has_text {
        got["text"] = text.into();
    }
    if let Some(body) = parsed.filter(|body| !body.is_null() && step["text"] != "ignore") {
        got["body"] = body;
    }
    got
}

/// What the newest dump or snapshot of a server holds: the names in it, and some files' content, line by line.
fn archive(server: &Server, kind: &str, read: &[String]) -> Result<Value, String> {
    let path = newest(&server.folder.join(format!("{kind}s")), &format!(".{kind}"));
    let file = std::fs::File::open(&path).map_err(|e| format!("{path}: {e}"))?;
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(file));
    let (mut files, mut contents) = (Vec::new(), json!({}));
    for entry in archive.entries().map_err(|e| e.to_string())? {
        let mut entry = entry.map_err(|e| e.to_string())?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let name = entry.path().map_err(|e| e.to_string())?.to_string_lossy().trim_start_matches("./").to_owned();
        if read.contains(&name) {
            let mut text = Vec::new();
            entry.read_to_end(&mut text).map_err(|e| e.to_string())?;
            contents[&name] = parse_lines(&String::from_utf8_lossy(&text));
        }
        files.push(name);
    }
    files.sort();
    Ok(json!({"files": files, "read": contents}))
}
