//! The services that embedders call, from their settings and the environment.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};
use shards::settings::{EmbedderConfig, EmbedderSource};
use url::Url;

use super::exchange::{EMBEDDING, FRAGMENT, Pattern, TEXT};
use super::template::JsonTemplate;
#[cfg(not(feature = "local-models"))]
use super::transport::Failure;

const OPENAI_URL: &str = "https://api.openai.com/v1/embeddings";
const OLLAMA_URL: &str = "http://localhost:11434/api/embeddings";

/// What the environment says about embedders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbedderOptions {
    /// The key of openAi embedders that have none.
    pub openai_key: Option<String>,
    /// The address of ollama embedders that have none.
    pub ollama_url: Option<String>,
    /// Time for one request.
    pub timeout: Duration,
    /// The longest wait between two tries, before jitter.
    pub retry_wait_max: Duration,
    /// Leaves documents without vectors whose template cannot be rendered.
    pub ignores_template_failures: bool,
    /// Leaves documents without vectors that the embedder fails on.
    pub ignores_embedder_failures: bool,
}

impl Default for EmbedderOptions {
    fn default() -> Self {
        Self {
            openai_key: None,
            ollama_url: None,
            timeout: Duration::from_secs(30),
            retry_wait_max: Duration::from_secs(60),
            ignores_template_failures: false,
            ignores_embedder_failures: false,
        }
    }
}

/// Who turns texts into vectors.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// Nobody: vectors are given.
    UserProvided,
    /// A service.
    Remote(Box<Remote>),
    /// A model that runs here.
    Local(LocalModel),
}

/// A service.
#[derive(Clone, Debug)]
pub(super) struct Remote {
    pub(super) url: Url,
    pub(super) bearer: Option<String>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) request: Pattern,
    pub(super) response: Pattern,
    /// Whether a text that is refused is tried again alone, and cut.
    pub(super) is_openai: bool,
    /// Numbers of a vector, where the settings say it.
    pub(super) dimensions: Option<usize>,
}

/// A model that runs here.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LocalModel {
    /// A folder, or a name under which a cache of models has one.
    pub(super) model: String,
    pub(super) revision: Option<String>,
    pub(super) pooling: Pooling,
}

/// How the vectors of a text's tokens become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pooling {
    /// As the model's own configuration says.
    UseModel,
    /// Their mean.
    ForceMean,
    /// That of the first.
    ForceCls,
}

/// Which side of an embedder is meant; they differ in composite ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Indexing,
    Search,
}

/// One side of an embedder, ready for use.
pub(super) struct Embedder {
    pub(super) source: Source,
    /// Numbers of a vector, where the settings or the model say it.
    pub(super) dimensions: Option<usize>,
}

impl Embedder {
    /// A side of the embedder with these settings.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub(super) fn of(settings: &Value, side: Side, options: &EmbedderOptions) -> Result<Self, String> {
        let settings = side_settings(settings, side);
        let config = EmbedderConfig::of(settings);
        let nothing = Map::new();
        let fields = settings.as_object().unwrap_or(&nothing);
        let service = |remote: Remote| Source::Remote(Box::new(Remote { dimensions: config.dimensions, ..remote }));
        let source = match config.source {
            EmbedderSource::UserProvided => Source::UserProvided,
            EmbedderSource::HuggingFace => Source::Local(LocalModel::of(fields)),
            EmbedderSource::OpenAi => service(openai(fields, options)?),
            EmbedderSource::Ollama => service(ollama(fields, options)?),
            EmbedderSource::Rest => service(rest(fields)?),
            EmbedderSource::Composite => return Err("a composite embedder stands inside another".into()),
        };
        Ok(Self { source, dimensions: config.dimensions })
    }
}

/// The object that describes a side of an embedder.
pub(super) fn side_settings(settings: &Value, side: Side) -> &Value {
    let name = match side {
        Side::Indexing => "indexingEmbedder",
        Side::Search => "searchEmbedder",
    };
    match EmbedderConfig::of(settings).source {
        EmbedderSource::Composite => settings.get(name).unwrap_or(settings),
        _ => settings,
    }
}

/// The fragments under this name, with their templates; none when there are none.
///
/// # Errors
/// Why a template cannot be read.
pub(super) fn fragments(settings: &Value, name: &str) -> Result<BTreeMap<String, JsonTemplate>, String> {
    let fragments = settings.get(name).and_then(Value::as_object).into_iter().flatten();
    let parsed = fragments.map(|(name, fragment)| {
        let template = JsonTemplate::parse(fragment.get("value").unwrap_or(&Value::Null))?;
        Ok((name.clone(), template))
    });
    parsed.collect()
}

impl LocalModel {
    /// What a build without local models says.
    #[cfg(not(feature = "local-models"))]
    pub(super) fn unavailable(&self) -> Failure {
        Failure::plain(format!(
            "the model `{}` cannot run here: this server was built without local models",
            self.model
        ))
    }

    fn of(fields: &Map<String, Value>) -> Self {
        let pooling = match text(fields, "pooling") {
            Some("forceMean") => Pooling::ForceMean,
            Some("forceCls") => Pooling::ForceCls,
            _ => Pooling::UseModel,
        };
        Self {
            model: text(fields, "model").unwrap_or_default().to_owned(),
            revision: text(fields, "revision").map(String::from),
            pooling,
        }
    }
}

fn openai(fields: &Map<String, Value>, options: &EmbedderOptions) -> Result<Remote, String> {
    let model = text(fields, "model").unwrap_or("text-embedding-3-small");
    let mut request = json!({"model": model, "input": [TEXT, "{{..}}"]});
    if let (Some(size), true) = (fields.get("dimensions"), model.contains("-3-")) {
        request["dimensions"] = size.clone();
    }
    let url = text(fields, "url").unwrap_or(OPENAI_URL);
    let remote = remote(url, &request, &json!({"data": [{"embedding": EMBEDDING}, "{{..}}"]}))?;
    // The operator's own key is for OpenAI alone: whoever may change settings could have it sent anywhere.
    let is_theirs = Url::parse(OPENAI_URL).is_ok_and(|theirs| theirs.origin() == remote.url.origin());
    let operators = options.openai_key.clone().filter(|_| is_theirs);
    Ok(Remote { bearer: text(fields, "apiKey").map(String::from).or(operators), is_openai: true, ..remote })
}

fn ollama(fields: &Map<String, Value>, options: &EmbedderOptions) -> Result<Remote, String> {
    let url = text(fields, "url").or(options.ollama_url.as_deref()).unwrap_or(OLLAMA_URL);
    let model = text(fields, "model").unwrap_or_default();
    let (request, response) = if url.ends_with("/api/embed") {
        (json!({"model": model, "input": [TEXT, "{{..}}"]}), json!({"embeddings": [EMBEDDING, "{{..}}"]}))
    } else if url.ends_with("/api/embeddings") {
        (json!({"model": model, "prompt": TEXT}), json!({"embedding": EMBEDDING}))
    } else {
        return Err(format!(
            "the address `{url}` of an ollama server ends in neither `/api/embed` nor `/api/embeddings`"
        ));
    };
    Ok(Remote { bearer: text(fields, "apiKey").map(String::from), ..remote(url, &request, &response)? })
}

fn rest(fields: &Map<String, Value>) -> Result<Remote, String> {
    let value = |name: &str| fields.get(name).ok_or_else(|| format!("`{name}` is missing"));
    let headers = fields.get("headers").and_then(Value::as_object).into_iter().flatten();
    let headers = headers.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    let headers: Vec<(String, String)> = headers.collect();
    let names_key = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
    Ok(Remote {
        bearer: text(fields, "apiKey").map(String::from).filter(|_| !names_key),
        headers,
        ..remote(text(fields, "url").unwrap_or_default(), value("request")?, value("response")?)?
    })
}

fn remote(url: &str, request: &Value, response: &Value) -> Result<Remote, String> {
    let request = Pattern::parse(request, &[TEXT, FRAGMENT]).map_err(|why| format!("`request` {why}"))?;
    let response = Pattern::parse(response, &[EMBEDDING]).map_err(|why| format!("`response` {why}"))?;
    let url = Url::parse(url).map_err(|error| format!("`{url}` is no absolute URL: {error}"))?;
    Ok(Remote { url, bearer: None, headers: Vec::new(), request, response, is_openai: false, dimensions: None })
}

fn text<'v>(fields: &'v Map<String, Value>, name: &str) -> Option<&'v str> {
    fields.get(name).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote_of(settings: Value, options: &EmbedderOptions) -> Remote {
        match Embedder::of(&settings, Side::Indexing, options).unwrap().source {
            Source::Remote(remote) => *remote,
            _ => panic!("no service"),
        }
    }

    #[test]
    fn each_source_has_its_request() {
        let options = EmbedderOptions {
            openai_key: Some("env".into()),
            ollama_url: Some("http://o/api/embed".into()),
            ..EmbedderOptions::default()
        };
        let texts = [json!("a"), json!("b")];
        let openai =
            remote_of(json!({"source": "openAi", "model": "text-embedding-3-large", "dimensions": 9}), &options);
        assert_eq!(
            openai.request.fill(&texts),
            json!({"model": "text-embedding-3-large", "input": ["a", "b"], "dimensions": 9})
        );
        assert_eq!((openai.url.as_str(), openai.bearer.as_deref()), (OPENAI_URL, Some("env")));
        let ada = remote_of(
            json!({"source": "openAi", "model": "text-embedding-ada-002", "dimensions": 1536, "apiKey": "own"}),
            &options,
        );
        assert_eq!(ada.request.fill(&texts), json!({"model": "text-embedding-ada-002", "input": ["a", "b"]}));
        assert_eq!(ada.bearer.as_deref(), Some("own"));
        let ollama = remote_of(json!({"source": "ollama", "model": "m"}), &options);
        assert_eq!((ollama.url.as_str(), ollama.request.is_repeated()), ("http://o/api/embed", true));
        let old = remote_of(json!({"source": "ollama", "model": "m"}), &EmbedderOptions::default());
        assert_eq!(old.request.fill(&texts), json!({"model": "m", "prompt": "a"}));
        let rest = json!({"source": "rest", "url": "http://r", "request": "{{text}}", "response": "{{embedding}}",
            "apiKey": "k", "headers": {"authorization": "Basic x"}});
        let rest = remote_of(rest, &options);
        assert_eq!((rest.bearer, rest.headers.len()), (None, 1));
    }

    /// Settings that name another address once had the operator's key sent there.
    #[test]
    fn the_operators_key_goes_to_openai_alone() {
        let options = EmbedderOptions { openai_key: Some("env".into()), ..EmbedderOptions::default() };
        let bearer = |url: &str| {
            let settings = json!({"source": "openAi", "model": "text-embedding-3-small", "url": url});
            remote_of(settings, &options).bearer
        };
        assert_eq!(bearer("https://api.openai.com/v1/other").as_deref(), Some("env"));
        for url in ["http://api.openai.com/v1", "https://api.openai.com:444/", "https://api.openai.com.example.net/"] {
            assert_eq!(bearer(url), None, "{url}");
        }
        let own = json!({"source": "openAi", "url": "http://localhost", "apiKey": "own"});
        assert_eq!(remote_of(own, &options).bearer.as_deref(), Some("own"));
    }

    #[test]
    fn sides_of_composite_embedders_differ() {
        let side =
            |url: &str| json!({"source": "rest", "url": url, "request": "{{text}}", "response": "{{embedding}}"});
        let composite =
            json!({"source": "composite", "searchEmbedder": side("http://s"), "indexingEmbedder": side("http://i")});
        for (wanted, which) in [("http://i/", Side::Indexing), ("http://s/", Side::Search)] {
            match Embedder::of(&composite, which, &EmbedderOptions::default()).unwrap().source {
                Source::Remote(remote) => assert_eq!(remote.url.as_str(), wanted),
                _ => panic!("no service"),
            }
        }
    }
}
