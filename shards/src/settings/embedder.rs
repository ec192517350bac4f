//! An embedder of an index as the engine sees it: read from the interface's object, comparable with what it was before.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Who makes an embedder's vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmbedderSource {
    /// A service with the interface of OpenAI.
    OpenAi,
    /// A model that runs in this process.
    HuggingFace,
    /// An Ollama server.
    Ollama,
    /// The documents bring their vectors.
    UserProvided,
    /// Any HTTP service, described by templates.
    Rest,
    /// Two embedders: one for documents, one for queries.
    Composite,
}

/// What is embedded of a document.
#[derive(Clone, Debug, PartialEq)]
pub enum EmbedderInput {
    /// Nothing: vectors come with the documents.
    Nothing,
    /// The rendering of this document template gives one vector.
    Template(String),
    /// Each of these, by name, gives one vector; every string within is a template.
    Fragments(BTreeMap<String, Value>),
}

/// How similarities are spread, to be shifted so that they mean the same for every embedder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distribution {
    /// The usual similarity, 0 to 1.
    pub mean: f32,
    /// Its spread, above 0 and up to 1.
    pub sigma: f32,
}

/// An embedder of an index.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbedderConfig {
    /// Who makes the vectors.
    pub source: EmbedderSource,
    /// The length of the vectors where the settings say it. Otherwise the embedder must be asked.
    pub dimensions: Option<usize>,
    /// Whether one bit is kept of each number.
    pub quantized: bool,
    /// The shift in force, that of a known model included.
    pub distribution: Option<Distribution>,
    /// What is embedded.
    pub input: EmbedderInput,
    /// What decides the vector of a text.
    identity: Value,
}

/// What a change of an embedder's settings asks to be embedded again. Documents that are not to be regenerated never are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reembedding {
    /// Nothing.
    Nothing,
    /// Every document.
    All,
    /// Documents whose text is another one under the new template, or under other searchable attributes.
    ChangedTexts,
    /// Only some fragments: those that are new or whose template changed, and those that are gone.
    Fragments {
        /// To be embedded where their rendering differs.
        changed: Vec<String>,
        /// Whose vectors go.
        removed: Vec<String>,
    },
}

impl Distribution {
    /// The shifted similarity, never 0 and at most 1.
    pub fn shift(self, similarity: f32) -> f32 {
        const SIGMA: f32 = 0.4;
        const MEAN: f32 = 0.5;
        let factor = SIGMA / self.sigma;
        let shifted = factor * similarity + (MEAN - factor * self.mean);
        if shifted <= 0.0 { f32::EPSILON } else { shifted.min(1.0) }
    }
}

impl EmbedderConfig {
    /// Reads the settings of one embedder, which were checked when they were accepted.
    pub fn of(settings: &Value) -> Self {
        let nothing = Map::new();
        let fields = settings.as_object().unwrap_or(&nothing);
        let source = source(fields);
        let indexing = side(fields, source, "indexingEmbedder");
        let search = side(fields, source, "searchEmbedder");
        let own = distribution(fields);
        Self {
            source,
            dimensions: dimensions(indexing).or_else(|| dimensions(search)),
            quantized: fields.get("binaryQuantized").and_then(Value::as_bool).unwrap_or(false),
            distribution: own.or_else(|| usual_distribution(search)).or_else(|| usual_distribution(indexing)),
            input: input(indexing),
            identity: json!([fields.get("source"), identity(indexing)]),
        }
    }

    /// Whether documents have their vectors made by this server.
    pub fn generates(&self) -> bool {
        self.source != EmbedderSource::UserProvided
    }

    /// What has to be embedded again after a change from `before`.
    pub fn reembedding(&self, before: &Self) -> Reembedding {
        if self.identity != before.identity {
            return if self.generates() { Reembedding::All } else { Reembedding::Nothing };
        }
        match (&before.input, &self.input) {
            (before, after) if before == after => Reembedding::Nothing,
            (EmbedderInput::Template(_), EmbedderInput::Template(_)) => Reembedding::ChangedTexts,
            (EmbedderInput::Fragments(before), EmbedderInput::Fragments(after)) => {
                let differs = |(name, value): &(&String, &Value)| before.get(*name) != Some(*value);
                let changed = after.iter().filter(differs).map(|(name, _)| name.clone()).collect();
                let removed = before.keys().filter(|name| !after.contains_key(*name)).cloned().collect();
                Reembedding::Fragments { changed, removed }
            }
            (_, EmbedderInput::Nothing) => Reembedding::Nothing,
            _ => Reembedding::All,
        }
    }
}

fn text<'v>(fields: &'v Map<String, Value>, name: &str) -> Option<&'v str> {
    fields.get(name).and_then(Value::as_str)
}

fn source(fields: &Map<String, Value>) -> EmbedderSource {
    match text(fields, "source") {
        Some("huggingFace") => EmbedderSource::HuggingFace,
        Some("ollama") => EmbedderSource::Ollama,
        Some("userProvided") => EmbedderSource::UserProvided,
        Some("rest") => EmbedderSource::Rest,
        Some("composite") => EmbedderSource::Composite,
        _ => EmbedderSource::OpenAi,
    }
}

/// The object that describes one of the two sides: of a composite embedder its own, else the whole.
fn side<'v>(fields: &'v Map<String, Value>, source: EmbedderSource, name: &str) -> &'v Map<String, Value> {
    match source {
        EmbedderSource::Composite => fields.get(name).and_then(Value::as_object).unwrap_or(fields),
        _ => fields,
    }
}

fn dimensions(fields: &Map<String, Value>) -> Option<usize> {
    let given = fields.get("dimensions").and_then(Value::as_u64).and_then(|size| usize::try_from(size).ok());
    given.or_else(|| match (source(fields), text(fields, "model")) {
        (EmbedderSource::OpenAi, Some("text-embedding-3-large")) => Some(3072),
        (EmbedderSource::OpenAi, _) => Some(1536),
        _ => None,
    })
}

fn distribution(fields: &Map<String, Value>) -> Option<Distribution> {
    let given = fields.get("distribution")?;
    let number = |name: &str| given.get(name).and_then(Value::as_f64).map(|number| number as f32);
    Some(Distribution { mean: number("mean")?, sigma: number("sigma")? })
}

/// What is known of some models.
fn usual_distribution(fields: &Map<String, Value>) -> Option<Distribution> {
    let (mean, sigma) = match (source(fields), text(fields, "model")) {
        (EmbedderSource::OpenAi, Some("text-embedding-ada-002")) => (0.90, 0.08),
        (EmbedderSource::OpenAi, Some("text-embedding-3-large")) => (0.70, 0.1),
        (EmbedderSource::OpenAi, _) => (0.75, 0.1),
        (EmbedderSource::HuggingFace, Some("BAAI/bge-base-en-v1.5")) => (0.85, 0.1),
        _ => return None,
    };
    Some(Distribution { mean, sigma })
}

fn input(fields: &Map<String, Value>) -> EmbedderInput {
    if source(fields) == EmbedderSource::UserProvided {
        return EmbedderInput::Nothing;
    }
    match fields.get("indexingFragments").and_then(Value::as_object).filter(|fragments| !fragments.is_empty()) {
        Some(fragments) => {
            let value = |fragment: &Value| fragment.get("value").cloned().unwrap_or_default();
            EmbedderInput::Fragments(fragments.iter().map(|(name, fragment)| (name.clone(), value(fragment))).collect())
        }
        None => EmbedderInput::Template(text(fields, "documentTemplate").unwrap_or_default().to_owned()),
    }
}

/// The fields of which a change makes other vectors of the same text.
fn identity(fields: &Map<String, Value>) -> Value {
    let mut names = vec!["source", "model", "revision", "pooling", "request", "response"];
    match source(fields) {
        EmbedderSource::OpenAi => names.push("dimensions"),
        EmbedderSource::Ollama | EmbedderSource::Rest => names.push("url"),
        EmbedderSource::HuggingFace | EmbedderSource::UserProvided | EmbedderSource::Composite => {}
    }
    names.into_iter().map(|name| fields.get(name).cloned().unwrap_or_default()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(before: Value, after: Value) -> Reembedding {
        EmbedderConfig::of(&after).reembedding(&EmbedderConfig::of(&before))
    }

    fn with(base: &Value, field: &str, value: Value) -> Value {
        let mut changed = base.clone();
        changed[field] = value;
        changed
    }

    #[test]
    fn only_what_decides_the_vectors_has_them_made_again() {
        let rest = json!({"source": "rest", "url": "http://a", "dimensions": 3, "documentTemplate": "{{doc.a}}",
            "request": "{{text}}", "response": "{{embedding}}", "headers": {}});
        for (field, value, wanted) in [
            ("url", json!("http://b"), Reembedding::All),
            ("request", json!(["{{text}}"]), Reembedding::All),
            ("response", json!(["{{embedding}}"]), Reembedding::All),
            ("documentTemplate", json!("{{doc.b}}"), Reembedding::ChangedTexts),
            ("dimensions", json!(4), Reembedding::Nothing),
            ("headers", json!({"a": "b"}), Reembedding::Nothing),
            ("apiKey", json!("k"), Reembedding::Nothing),
            ("documentTemplateMaxBytes", json!(9), Reembedding::Nothing),
            ("binaryQuantized", json!(true), Reembedding::Nothing),
            ("distribution", json!({"mean": 0.5, "sigma": 0.1}), Reembedding::Nothing),
        ] {
            assert_eq!(change(rest.clone(), with(&rest, field, value)), wanted, "{field}");
        }
        let open_ai = json!({"source": "openAi", "model": "text-embedding-3-small", "documentTemplate": "x"});
        assert_eq!(change(open_ai.clone(), with(&open_ai, "url", json!("http://x"))), Reembedding::Nothing);
        assert_eq!(change(open_ai.clone(), with(&open_ai, "dimensions", json!(9))), Reembedding::All);
        assert_eq!(change(rest.clone(), open_ai), Reembedding::All);
        let own = json!({"source": "userProvided", "dimensions": 3});
        assert_eq!(change(rest, own), Reembedding::Nothing);
    }

    #[test]
    fn fragments_are_told_apart() {
        let of =
            |fragments: Value| json!({"source": "rest", "request": "{{fragment}}", "indexingFragments": fragments});
        let before = of(json!({"a": {"value": "1"}, "b": {"value": "2"}, "c": {"value": "3"}}));
        let after = of(json!({"b": {"value": "2"}, "c": {"value": "4"}, "d": {"value": "5"}}));
        let wanted = Reembedding::Fragments { changed: vec!["c".into(), "d".into()], removed: vec!["a".into()] };
        assert_eq!(change(before.clone(), after), wanted);
        assert_eq!(change(before.clone(), of(Value::Null)), Reembedding::All);
        assert_eq!(change(before.clone(), before), Reembedding::Nothing);
    }

    #[test]
    fn a_composite_embedder_follows_its_indexing_side() {
        let of = |search: &str, indexing: &str| {
            json!({"source": "composite", "searchEmbedder": {"source": "rest", "url": search, "dimensions": 3},
                "indexingEmbedder": {"source": "rest", "url": indexing, "documentTemplate": "t"}})
        };
        assert_eq!(change(of("a", "b"), of("c", "b")), Reembedding::Nothing);
        assert_eq!(change(of("a", "b"), of("a", "c")), Reembedding::All);
        let config = EmbedderConfig::of(&of("a", "b"));
        assert_eq!((config.dimensions, &config.input), (Some(3), &EmbedderInput::Template("t".into())));
    }

    #[test]
    fn shifts_of_known_models_are_built_in() {
        let shift = |settings: Value| EmbedderConfig::of(&settings).distribution.map(|d| (d.mean, d.sigma));
        assert_eq!(shift(json!({"source": "openAi", "model": "text-embedding-ada-002"})), Some((0.90, 0.08)));
        assert_eq!(shift(json!({"source": "huggingFace", "model": "BAAI/bge-base-en-v1.5"})), Some((0.85, 0.1)));
        assert_eq!(shift(json!({"source": "userProvided", "dimensions": 2})), None);
        assert_eq!(shift(json!({"source": "rest", "distribution": {"mean": 0.2, "sigma": 1.0}})), Some((0.2, 1.0)));
        let shifted = Distribution { mean: 0.5, sigma: 0.4 }.shift(0.7);
        assert!((shifted - 0.7).abs() < 1e-6, "a spread of 0.4 around 0.5 is the aim itself");
        assert_eq!(Distribution { mean: 0.9, sigma: 0.1 }.shift(0.1), f32::EPSILON);
        assert_eq!(Distribution { mean: 0.1, sigma: 0.1 }.shift(0.9), 1.0);
    }
}
