//! A server process of a scenario: started in a folder of its own, stopped, killed and started again.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;

use crate::client;

/// How long a server may take to answer its first health check, in tries of 20 ms.
const START_TRIES: usize = 1500;

pub struct Server {
    pub port: u16,
    pub key: Option<String>,
    pub folder: PathBuf,
    binary: String,
    /// What every start gets, without the scenario's own arguments.
    base: Vec<String>,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    scenario_folder: String,
    child: Option<Child>,
}

/// A port that nobody listens on, and that no other scenario got: between the choice and its server's start it is anybody's, and
/// with several scenarios at once two got the same now and then, and asked one server.
fn free_port() -> u16 {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        if GIVEN.lock().unwrap_or_else(PoisonError::into_inner).insert(port) {
            return port;
        }
    }
}

/// The newest file in `folder` that ends in `ending`, or `none`.
pub fn newest(folder: &Path, ending: &str) -> String {
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    files
        .filter(|path| path.to_string_lossy().ends_with(ending))
        .max_by_key(|path| path.metadata().and_then(|m| m.modified()).ok())
        .map_or_else(|| "none".to_owned(), |path| path.to_string_lossy().into_owned())
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|item| item.as_str().map(String::from)).collect()
}

impl Server {
    /// Starts `binary` with `flags` and what the scenario's `spec` asks for.
    pub fn start(
        binary: &str,
        flags: &str,
        spec: &Value,
        folder: PathBuf,
        scenario_folder: &Path,
    ) -> Result<Self, String> {
        fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
        let (port, key) = (free_port(), spec["master_key"].as_str().filter(|key| !key.is_empty()).map(String::from));
        let at = |name: &str| folder.join(name).to_string_lossy().into_owned();
        let mut base: Vec<String> = flags.split_whitespace().map(String::from).collect();
        // Relative, as the default of the flag is.
        base.extend(["--http-addr".into(), format!("127.0.0.1:{port}"), "--db-path".into(), "data".into()]);
        base.extend(["--dump-dir".into(), at("dumps"), "--snapshot-dir".into(), at("snapshots")]);
        if let Some(key) = &key {
            base.extend(["--master-key".into(), key.clone()]);
        }
        let scenario_folder = scenario_folder.to_string_lossy().into_owned();
        let own = strings(&spec["args"]).into_iter().map(|word| word.replace("{scenario}", &scenario_folder));
        let environment = spec["env"].as_object().into_iter().flatten();
        let environment =
            environment.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect();
        let arguments = base.iter().cloned().chain(own).collect();
        let binary = binary.to_owned();
        let mut server = Self { port, key, folder, binary, base, arguments, environment, scenario_folder, child: None };
        server.spawn()?;
        Ok(server)
    }

    fn spawn(&mut self) -> Result<(), String> {
        let log = File::options().create(true).append(true).open(self.folder.join("log")).map_err(|e| e.to_string())?;
        let errors = log.try_clone().map_err(|e| e.to_string())?;
        let child = Command::new(&self.binary)
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn();
        self.child = Some(child.map_err(|e| format!("{}: {e}", self.binary))?);
        for _ in 0..START_TRIES {
            if client::send(self.port, "GET", "/health", &[], None).is_ok_and(|answer| answer.status == 200) {
                return Ok(());
            }
            if !self.is_running() {
                let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                return Err(format!(
                    "the server did not start: {}",
                    &log[log.floor_char_boundary(log.len().saturating_sub(600))..]
                ));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err("the server did not answer GET /health".into())
    }

    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// The process that runs, if one does.
    pub fn process(&mut self) -> Option<u32> {
        let running = self.is_running();
        self.child.as_ref().filter(|_| running).map(Child::id)
    }

    /// SIGKILL, or SIGTERM and up to ten seconds for an orderly end.
    pub fn stop(&mut self, kill: bool) {
        let Some(mut child) = self.child.take() else { return };
        if !kill && matches!(child.try_wait(), Ok(None)) {
            let _ = Command::new("kill").arg(child.id().to_string()).status();
            for _ in 0..500 {
                if !matches!(child.try_wait(), Ok(None)) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Stops the server as the step says and starts it again, perhaps with other arguments or on an empty folder.
    pub fn restart(&mut self, step: &Value) -> Result<(), String> {
        self.stop(step["restart"] == "kill");
        if step["wipe"] == true {
            let _ = fs::remove_dir_all(self.folder.join("data"));
        }
        if step.get("args").is_some() {
            let found = [
                ("{scenario}", self.scenario_folder.clone()),
                ("{dir}", self.folder.to_string_lossy().into_owned()),
                ("{dump}", newest(&self.folder.join("dumps"), ".dump")),
                ("{snapshot}", newest(&self.folder.join("snapshots"), ".snapshot")),
            ];
            let own = strings(&step["args"])
                .into_iter()
                .map(|word| found.iter().fold(word, |word, (name, value)| word.replace(name, value)));
            self.arguments = self.base.iter().cloned().chain(own).collect();
        }
        if let Some(key) = step.get("master_key") {
            self.key = key.as_str().filter(|key| !key.is_empty()).map(String::from);
            for words in [&mut self.base, &mut self.arguments] {
                if let Some(at) = words.iter().position(|word| word == "--master-key") {
                    words.drain(at..at + 2);
                }
                if let Some(key) = &self.key {
                    words.extend(["--master-key".to_owned(), key.clone()]);
                }
            }
        }
        self.spawn()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop(true);
    }
}
