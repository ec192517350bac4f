//! Counters for `GET /metrics`.
//!
//! Every core counts for itself; the core that serves the request collects the counts of the others and adds them up. Labels that
//! clients can invent (unknown paths, model names) are bounded.

mod exposition;
mod process;

pub use self::exposition::Exposition;
pub use self::process::ProcessFigures;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use ahash::AHashMap;

use crate::http::Method;

/// Upper bounds of the classes of response times, in seconds.
const RESPONSE_SECONDS: [f64; 14] = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];

/// Paths that no route has, each with its verb and status, that one core counts one by one; and series of conversations.
const SERIES_MAX: usize = 1_000;
/// Bytes of a label's value that a client made up.
const LABEL_BYTES_MAX: usize = 200;
/// Stands for values that are too long or too many.
const OTHER: &str = "other";

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counter {
    /// Requests by method, path and status.
    HttpRequests,
    /// Searches that models made.
    ChatSearches,
    /// Tokens of conversations sent to models, by model and workspace.
    ChatPromptTokens,
    /// Tokens that models answered.
    ChatCompletionTokens,
    /// Both.
    ChatTokens,
}

impl Counter {
    /// Name and description.
    fn about(self) -> (&'static str, &'static str) {
        match self {
            Self::HttpRequests => ("http_requests_total", "Requests by method, path and status"),
            Self::ChatSearches => ("chat_searches_total", "Searches made for conversations"),
            Self::ChatPromptTokens => ("chat_prompt_tokens_total", "Tokens sent to models"),
            Self::ChatCompletionTokens => ("chat_completion_tokens_total", "Tokens that models answered"),
            Self::ChatTokens => ("chat_tokens_total", "Tokens sent to models and answered by them"),
        }
    }
}

/// Labels with their values, in the order of their names.
pub type Labels = Vec<(&'static str, String)>;

/// The times of the responses on one path.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times {
    /// Responses within each of [`RESPONSE_SECONDS`] and not within the one before; slower ones are in `count` alone.
    classes: [u64; RESPONSE_SECONDS.len()],
    seconds: f64,
    count: u64,
}

/// Counts of one core, or of all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    counters: BTreeMap<(Counter, Labels), u64>,
    times: BTreeMap<Labels, Times>,
    /// Searches that were cut off.
    degraded: u64,
    /// Searches for a person.
    personalized: u64,
    /// Searches that run now.
    pub searches_running: u64,
    /// Searches that wait now.
    pub searches_waiting: u64,
}

impl Counts {
    /// Adds the counts of another core.
    pub fn add(&mut self, other: Self) {
        for (series, count) in other.counters {
            *self.counters.entry(series).or_default() += count;
        }
        self.degraded += other.degraded;
        self.personalized += other.personalized;
        self.searches_running += other.searches_running;
        self.searches_waiting += other.searches_waiting;
        for (labels, times) in other.times {
            let known = self.times.entry(labels).or_default();
            known.classes.iter_mut().zip(times.classes).for_each(|(class, more)| *class += more);
            known.seconds += times.seconds;
            known.count += times.count;
        }
    }

    /// Writes them as metrics.
    pub fn write(&self, out: &mut Exposition) {
        for ((counter, labels), count) in &self.counters {
            let (name, about) = counter.about();
            out.family(name, "counter", about);
            out.value(labels, *count as f64);
        }
        for (labels, times) in &self.times {
            out.family("http_response_time_seconds", "histogram", "Times of responses");
            let mut within = 0;
            for (class, bound) in times.classes.iter().zip(RESPONSE_SECONDS) {
                within += class;
                out.bucket(labels, &bound.to_string(), within);
            }
            out.bucket(labels, "+Inf", times.count);
            out.suffixed("_sum", labels, times.seconds);
            out.suffixed("_count", labels, times.count as f64);
        }
        out.gauge("searches_running", "Searches that run", self.searches_running as f64);
        out.gauge("searches_waiting_to_be_processed", "Searches that wait", self.searches_waiting as f64);
        if self.degraded > 0 {
            out.gauge("degraded_search_requests", "Searches that were cut off", self.degraded as f64);
        }
        if self.personalized > 0 {
            out.gauge("personalized_search_requests", "Searches for a person", self.personalized as f64);
        }
    }
}

/// The counts of one core while it counts.
#[derive(Debug, Default)]
pub struct Counting {
    /// Of conversations.
    counters: RefCell<BTreeMap<(Counter, Labels), u64>>,
    /// Requests by verb, pattern of the route and status; every request comes here.
    requests: RefCell<AHashMap<(Method, &'static str, u16), u64>>,
    /// Requests that no route has.
    strays: RefCell<AHashMap<(Method, String, u16), u64>>,
    times: RefCell<AHashMap<(Method, &'static str), Times>>,
    degraded: Cell<u64>,
    personalized: Cell<u64>,
}

impl Counting {
    /// Counts something of a conversation. A label that is too long, and all labels of a series too many, are told as others.
    pub fn count(&self, counter: Counter, mut labels: Labels, more: u64) {
        let mut counters = self.counters.borrow_mut();
        labels
            .iter_mut()
            .filter(|(_, value)| value.len() > LABEL_BYTES_MAX)
            .for_each(|(_, value)| *value = OTHER.into());
        let mut series = (counter, labels);
        if counters.len() >= SERIES_MAX && !counters.contains_key(&series) {
            series.1.iter_mut().for_each(|(_, value)| *value = OTHER.into());
        }
        *counters.entry(series).or_default() += more;
    }

    /// Counts a search that was cut off.
    pub fn degraded_search(&self) {
        self.degraded.set(self.degraded.get() + 1);
    }

    /// Counts a search for a person.
    pub fn personalized_search(&self) {
        self.personalized.set(self.personalized.get() + 1);
    }

    /// Counts a request on a route, and its time where that was taken.
    pub fn request(&self, method: Method, pattern: &'static str, status: u16, took: Option<Duration>) {
        *self.requests.borrow_mut().entry((method, pattern, status)).or_default() += 1;
        if let Some(took) = took {
            self.times.borrow_mut().entry((method, pattern)).or_default().add(took);
        }
    }

    /// Counts a request on a path that no route has. A path that is too long, or one too many, is told as another.
    pub fn stray_request(&self, method: Method, path: &str, status: u16) {
        let mut strays = self.strays.borrow_mut();
        let mut stray = (method, if path.len() > LABEL_BYTES_MAX { OTHER } else { path }.to_owned(), status);
        if strays.len() >= SERIES_MAX && !strays.contains_key(&stray) {
            stray.1 = OTHER.to_owned();
        }
        *strays.entry(stray).or_default() += 1;
    }

    /// The counts so far.
    pub fn so_far(&self) -> Counts {
        let counters = self.counters.borrow().clone();
        let (degraded, personalized) = (self.degraded.get(), self.personalized.get());
        let mut counts = Counts { counters, degraded, personalized, ..Counts::default() };
        for ((method, path, status), count) in self.strays.borrow().iter() {
            let labels = request_labels(*method, path.clone(), Some(*status));
            counts.counters.insert((Counter::HttpRequests, labels), *count);
        }
        for ((method, pattern, status), count) in self.requests.borrow().iter() {
            let labels = request_labels(*method, shown(pattern), Some(*status));
            *counts.counters.entry((Counter::HttpRequests, labels)).or_default() += count;
        }
        for ((method, pattern), times) in self.times.borrow().iter() {
            counts.times.insert(request_labels(*method, shown(pattern), None), times.clone());
        }
        counts
    }
}

impl Times {
    fn add(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        if let Some(class) = RESPONSE_SECONDS.iter().position(|bound| seconds <= *bound) {
            self.classes[class] += 1;
        }
        self.seconds += seconds;
        self.count += 1;
    }
}

fn request_labels(method: Method, path: String, status: Option<u16>) -> Labels {
    let mut labels = vec![("method", method.as_str().to_owned()), ("path", path)];
    labels.extend(status.map(|status| ("status", status.to_string())));
    labels
}

/// A pattern with the names of parameters that the interface shows.
fn shown(pattern: &str) -> String {
    let mut before = "";
    let segments = pattern.split('/').map(|segment| {
        let name = match before {
            _ if !segment.starts_with('{') => segment,
            "indexes" => "{index_uid}",
            "documents" => "{document_id}",
            "tasks" => "{task_id}",
            "batches" => "{batch_id}",
            "keys" => "{key}",
            "chats" => "{workspace_uid}",
            "webhooks" => "{uuid}",
            _ => "{uid}",
        };
        before = segment;
        name
    });
    segments.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_cores_add_up() {
        let (one, other) = (Counting::default(), Counting::default());
        let labels = |model: &str| vec![("model", model.to_owned()), ("workspace", "a\"b".to_owned())];
        one.count(Counter::ChatTokens, labels("m"), 3);
        other.count(Counter::ChatTokens, labels("m"), 4);
        other.count(Counter::ChatTokens, labels("n"), 1);
        for milliseconds in [1, 20, 60_000] {
            let took = Some(Duration::from_millis(milliseconds));
            other.request(Method::Get, "/indexes/{uid}/documents/{id}", 200, took);
        }
        one.stray_request(Method::Post, "/x", 404);
        let mut counts = one.so_far();
        counts.add(other.so_far());
        let mut out = Exposition::default();
        counts.write(&mut out);
        out.gauge("index_count", "Indexes", 2.0);
        let text = out.into_text();
        let route = "method=\"GET\",path=\"/indexes/{index_uid}/documents/{document_id}\"";
        for line in [
            "# TYPE meilisearch_chat_tokens_total counter",
            "meilisearch_chat_tokens_total{model=\"m\",workspace=\"a\\\"b\"} 7",
            "meilisearch_chat_tokens_total{model=\"n\",workspace=\"a\\\"b\"} 1",
            "meilisearch_http_requests_total{method=\"POST\",path=\"/x\",status=\"404\"} 1",
            &format!("meilisearch_http_requests_total{{{route},status=\"200\"}} 3"),
            &format!("meilisearch_http_response_time_seconds_bucket{{{route},le=\"0.01\"}} 1"),
            &format!("meilisearch_http_response_time_seconds_bucket{{{route},le=\"10\"}} 2"),
            &format!("meilisearch_http_response_time_seconds_bucket{{{route},le=\"+Inf\"}} 3"),
            &format!("meilisearch_http_response_time_seconds_count{{{route}}} 3"),
            "meilisearch_index_count 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert_eq!(text.matches("# HELP meilisearch_chat_tokens_total").count(), 1);
        assert!(!text.contains("degraded") && !text.contains("personalized"));
        other.degraded_search();
        other.personalized_search();
        counts.add(other.so_far());
        assert_eq!((counts.degraded, counts.personalized), (1, 1));
    }

    /// Whoever asks for thousands of paths, or for paths of thousands of bytes, fills no memory.
    #[test]
    fn what_clients_make_up_is_bounded() {
        let counting = Counting::default();
        let requests = 3 * SERIES_MAX as u64;
        for number in 0..requests {
            counting.stray_request(Method::Get, &format!("/{number}"), 404);
            counting.stray_request(Method::Get, &"/x".repeat(1 + number as usize), 404);
            let labels = vec![("model", "m".repeat(number as usize)), ("workspace", number.to_string())];
            counting.count(Counter::ChatTokens, labels, 1);
        }
        let counts = counting.so_far();
        // Each kind may have the series of the others beside.
        assert!(counts.counters.len() <= 2 * (SERIES_MAX + 1));
        let of =
            |counter| counts.counters.iter().filter(|((of, _), _)| *of == counter).map(|(_, count)| count).sum::<u64>();
        assert_eq!((of(Counter::HttpRequests), of(Counter::ChatTokens)), (2 * requests, requests));
        let longest = counts.counters.keys().flat_map(|(_, labels)| labels).map(|(_, value)| value.len()).max();
        assert_eq!(longest, Some(LABEL_BYTES_MAX));
    }
}
