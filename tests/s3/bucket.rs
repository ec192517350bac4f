//! A bucket as S3 has it, as far as uploads in parts need one: it checks how each request is signed, and fails as it is told to.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How the bucket fails, the next so many times that it is asked for this.
#[derive(Clone, Debug, Default)]
pub struct Mood {
    about: &'static str,
    fault: Fault,
    times: usize,
}

#[derive(Clone, Debug, Default)]
enum Fault {
    #[default]
    None,
    Status(u16),
    Reset,
    /// No answer ever.
    Silence,
    NoTag,
    /// An answer that is no XML.
    Garbage,
    /// Success, and an error in the body.
    LateError,
}

impl Mood {
    pub fn status(about: &'static str, status: u16, times: usize) -> Self {
        Self { about, fault: Fault::Status(status), times }
    }

    pub fn reset(about: &'static str, times: usize) -> Self {
        Self { about, fault: Fault::Reset, times }
    }

    pub fn silent(about: &'static str) -> Self {
        Self { about, fault: Fault::Silence, times: usize::MAX }
    }

    pub fn no_tag() -> Self {
        Self { about: "part", fault: Fault::NoTag, times: usize::MAX }
    }

    pub fn garbage() -> Self {
        Self { about: "create", fault: Fault::Garbage, times: usize::MAX }
    }

    pub fn failed_completion(times: usize) -> Self {
        Self { about: "complete", fault: Fault::LateError, times }
    }
}

#[derive(Default)]
struct State {
    mood: Mood,
    begun: usize,
    /// The parts of each open upload.
    uploads: BTreeMap<String, BTreeMap<u64, Vec<u8>>>,
    objects: Vec<(String, Vec<u8>)>,
    part_sizes: Vec<usize>,
    in_flight: usize,
    in_flight_max: usize,
    waiting: usize,
    forms: Vec<String>,
    signers: Vec<(String, Option<String>)>,
}

pub struct Bucket {
    port: u16,
    state: Arc<Mutex<State>>,
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bucket {
    /// Listens on a free port; its threads live until the process ends.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = shared.clone();
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        Self { port, state }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn be(&self, mood: Mood) {
        let mut state = locked(&self.state);
        (state.mood, state.waiting) = (mood, 0);
    }

    /// The last object: its path and its bytes.
    pub fn object(&self) -> (String, Vec<u8>) {
        locked(&self.state).objects.last().cloned().expect("there is an object")
    }

    /// The sizes of the last object's parts.
    pub fn part_sizes(&self) -> Vec<usize> {
        locked(&self.state).part_sizes.clone()
    }

    pub fn in_flight_max(&self) -> usize {
        locked(&self.state).in_flight_max
    }

    pub fn open_uploads(&self) -> usize {
        locked(&self.state).uploads.len()
    }

    /// Requests that have got silence.
    pub fn waiting(&self) -> usize {
        locked(&self.state).waiting
    }

    pub fn token_form(&self) -> String {
        locked(&self.state).forms.last().cloned().unwrap_or_default()
    }

    /// Whether every request was signed with this key and session.
    pub fn signed_by(&self, key: &str, session: Option<&str>) -> bool {
        let signers = &locked(&self.state).signers;
        !signers.is_empty() && signers.iter().all(|(by, with)| by == key && with.as_deref() == session)
    }
}

struct Asked {
    method: String,
    path: String,
    query: BTreeMap<String, String>,
}

fn serve(stream: TcpStream, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        match reader.read_line(&mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) if line.trim().is_empty() => break,
            Ok(_) => head.push(line.trim().to_owned()),
        }
    }
    let mut words = head[0].split(' ').map(String::from);
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let query = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(name), decoded(value))
    });
    let asked = Asked { method, path: path.to_owned(), query: query.collect() };
    let length = head.iter().find_map(|line| line.strip_prefix("Content-Length: ")).and_then(|text| text.parse().ok());
    let about = about(&asked);
    if about == "part" {
        let mut state = locked(state);
        state.in_flight += 1;
        state.in_flight_max = state.in_flight_max.max(state.in_flight);
    }
    let mut body = vec![0; length.unwrap_or(0)];
    let answer = match reader.read_exact(&mut body) {
        Ok(()) => Some(answer(state, about, &asked, body)),
        Err(_) => None,
    };
    if about == "part" {
        locked(state).in_flight -= 1;
    }
    let mut stream = reader.into_inner();
    match answer {
        Some(Answer::Text(status, headers, text)) => {
            let length = text.len();
            let _ = write!(stream, "HTTP/1.1 {status} X\r\n{headers}Content-Length: {length}\r\n\r\n{text}");
        }
        Some(Answer::Reset) => reset(&stream),
        Some(Answer::Silence) => {
            // Until the other side gives up.
            let _ = stream.read(&mut [0]);
        }
        None => {}
    }
}

enum Answer {
    Text(u16, String, String),
    Reset,
    Silence,
}

fn about(asked: &Asked) -> &'static str {
    match asked.method.as_str() {
        "POST" if asked.path == "/sts" => "keys",
        "POST" if asked.query.contains_key("uploads") => "create",
        "PUT" if asked.query.contains_key("partNumber") => "part",
        "POST" if asked.query.contains_key("uploadId") => "complete",
        "DELETE" if asked.query.contains_key("uploadId") => "abort",
        _ => "unknown",
    }
}

fn answer(state: &Mutex<State>, about: &'static str, asked: &Asked, body: Vec<u8>) -> Answer {
    let mut state = locked(state);
    let ok = |text: &str| Answer::Text(200, String::new(), text.to_owned());
    let error = |status: u16, code: &str| {
        Answer::Text(status, String::new(), format!("<Error><Code>{code}</Code><Message>told to</Message></Error>"))
    };
    if about == "keys" {
        state.forms.push(String::from_utf8_lossy(&body).into_owned());
        return ok("<R xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><C><AccessKeyId>ROLEKEY</AccessKeyId>\
                   <SecretAccessKey>s</SecretAccessKey><SessionToken>session</SessionToken>\
                   <Expiration>2999-01-01T00:00:00Z</Expiration></C></R>");
    }
    match signer(asked) {
        Some(signer) => state.signers.push(signer),
        None => return error(403, "SignatureDoesNotMatch"),
    }
    let mut with_tag = true;
    if state.mood.about == about && state.mood.times > 0 {
        state.mood.times -= 1;
        match state.mood.fault {
            Fault::None => {}
            Fault::Status(status) => return error(status, "Fake"),
            Fault::Reset => return Answer::Reset,
            Fault::Silence => {
                state.waiting += 1;
                return Answer::Silence;
            }
            Fault::NoTag => with_tag = false,
            Fault::Garbage => return ok("no XML"),
            Fault::LateError => return error(200, "InternalError"),
        }
    }
    let id = asked.query.get("uploadId").cloned().unwrap_or_default();
    match about {
        "create" => {
            state.begun += 1;
            let id = format!("upload/{}+=", state.begun);
            state.uploads.insert(id.clone(), BTreeMap::new());
            ok(&format!(
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<InitiateMultipartUploadResult \
                 xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
            ))
        }
        "part" => {
            let number = asked.query["partNumber"].parse().unwrap_or_default();
            let Some(parts) = state.uploads.get_mut(&id) else { return error(404, "NoSuchUpload") };
            parts.insert(number, body);
            let tag = if with_tag { format!("ETag: \"tag-{number}\"\r\n") } else { String::new() };
            Answer::Text(200, tag, String::new())
        }
        "complete" => {
            let Some(parts) = state.uploads.remove(&id) else { return error(404, "NoSuchUpload") };
            let list: String = parts
                .keys()
                .map(|number| {
                    format!("<Part><PartNumber>{number}</PartNumber><ETag>&quot;tag-{number}&quot;</ETag></Part>")
                })
                .collect();
            if !String::from_utf8_lossy(&body).contains(&format!("\">{list}</CompleteMultipartUpload>")) {
                return error(400, "InvalidPart");
            }
            state.part_sizes = parts.values().map(Vec::len).collect();
            let whole = parts.into_values().flatten().collect();
            state.objects.push((asked.path.clone(), whole));
            ok("\n <CompleteMultipartUploadResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"/>")
        }
        "abort" if state.uploads.remove(&id).is_some() => Answer::Text(204, String::new(), String::new()),
        _ => error(404, "NoSuchUpload"),
    }
}

/// The key that a request is signed with, and its session; `None` where the signature is not as it has to look.
fn signer(asked: &Asked) -> Option<(String, Option<String>)> {
    let value = |name: &str| asked.query.get(name).map(String::as_str);
    let credential: Vec<&str> = value("X-Amz-Credential")?.split('/').collect();
    let [key, date, "us-east-1", "s3", "aws4_request"] = credential[..] else { return None };
    let is_hex = |text: &str| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let fits = value("X-Amz-Algorithm")? == "AWS4-HMAC-SHA256"
        && value("X-Amz-Date")?.starts_with(date)
        && value("X-Amz-Expires")? == "28800"
        && value("X-Amz-SignedHeaders")? == "host"
        && is_hex(value("X-Amz-Signature")?);
    fits.then(|| (key.to_owned(), value("X-Amz-Security-Token").map(String::from)))
}

fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.bytes());
    while let Some(byte) = rest.next() {
        let mut digit = || rest.next().and_then(|byte| (byte as char).to_digit(16)).unwrap_or(0) as u8;
        bytes.push(if byte == b'%' { digit() * 16 + digit() } else { byte });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Closes a connection so that the other side hears of it at once.
fn reset(stream: &TcpStream) {
    let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
