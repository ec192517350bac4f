//! An instance on a host: started, killed, held up, asked.

use std::fs::File;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::client;
use crate::hosts::Host;

/// How long an instance may take to come up.
const START: Duration = Duration::from_secs(60);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(12);
/// Shorter than in production, so that many faults fit into a minute.
const TIMES: [(&str, &str); 4] = [
    ("MEILI_EXPERIMENTAL_PROXY_CONNECT_TIMEOUT_SECONDS", "1"),
    ("MEILI_EXPERIMENTAL_PROXY_REQUEST_TIMEOUT_SECONDS", "3"),
    ("MEILI_EXPERIMENTAL_PROXY_BACKOFF_TIMEOUT_SECONDS", "1"),
    ("MEILI_EXPERIMENTAL_REMOTE_SEARCH_TIMEOUT_SECONDS", "3"),
];

/// One instance.
pub struct Instance {
    /// Its name in the network.
    pub name: &'static str,
    /// Where it is.
    pub host: Host,
    binary: String,
    arguments: Vec<String>,
    child: Option<Child>,
}

/// Asks whoever is at the address of a host; `None` without a whole answer.
pub fn ask(host: &Host, method: &str, path: &str, body: &Value) -> Option<(u16, Value)> {
    let headers = [("Content-Type".to_owned(), "application/json".to_owned())];
    let body = (!body.is_null()).then(|| body.to_string());
    let body = body.as_deref().map(str::as_bytes);
    let answer = client::send_to(host.address, PATIENCE, (method, path), &headers, body).ok()?;
    Some((answer.status, serde_json::from_slice(&answer.body).unwrap_or_default()))
}

/// Whether nothing waits there.
pub fn is_idle(host: &Host) -> bool {
    let waiting = ask(host, "GET", "/tasks?statuses=enqueued,processing&limit=1", &Value::Null);
    waiting.is_some_and(|(status, body)| status == 200 && body["total"] == 0)
}

impl Instance {
    /// Starts an instance on a host.
    pub fn start(name: &'static str, host: Host, binary: &str, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
        let mut instance = Self { name, host, binary: binary.to_owned(), arguments, child: None };
        instance.restart();
        instance
    }

    /// Asks it.
    pub fn ask(&self, method: &str, path: &str, body: &Value) -> Option<(u16, Value)> {
        ask(&self.host, method, path, body)
    }

    /// Starts it after it was killed or has ended.
    pub fn restart(&mut self) {
        let folder = self.host.folder().to_owned();
        // Not on the disk that is filled.
        let log = folder.with_extension("log");
        let log = File::options().create(true).append(true).open(&log).expect("a log is opened");
        let mut command = self.host.command(&self.binary);
        command.args(["--cores", "1", "--experimental-allowed-ip-networks", "10.0.0.0/8,127.0.0.0/8"]);
        command.args(["--http-addr", &self.host.address.to_string(), "--db-path", "data"]).args(&self.arguments);
        command.args(["--dump-dir", "dumps", "--snapshot-dir", "snapshots"]).envs(TIMES);
        command
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stderr(log.try_clone().expect("a log has two names"))
            .stdout(log);
        self.child = Some(command.spawn().expect("an instance starts"));
        let began = Instant::now();
        // Over a link that is cut it cannot be asked.
        while self.ask("GET", "/health", &Value::Null).is_none_or(|(status, _)| status != 200) {
            let ended = self.child.as_mut().and_then(|child| child.try_wait().ok()).flatten();
            assert!(ended.is_none() && began.elapsed() < START, "`{}` does not start: {ended:?}", self.name);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Stops it in the middle of whatever it does, or lets it go on.
    pub fn set_held(&self, is_held: bool) {
        let child = self.child.as_ref().expect("it runs");
        let signal = if is_held { "-STOP" } else { "-CONT" };
        let _ = std::process::Command::new("kill").args([signal, &child.id().to_string()]).status();
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.kill();
    }
}
