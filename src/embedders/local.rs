//! Models that run in this process: BERT and similar ones, from a folder on disk, without any network access.
//!
//! Everything here blocks or uses much CPU time, so it runs on side threads. The arithmetic has threads of its own, half as many
//! as the machine has cores, so that the executors keep the others.

// No executor runs any of this, so it may block.
#![allow(clippy::disallowed_methods)]

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::bert::{BertModel, Config};
use serde_json::Value;
use shards::runtime::Runtime;
use tokenizers::{PaddingParams, Tokenizer, TruncationParams};

use super::source::{LocalModel, Pooling};
use super::transport::Failure;
use crate::archive::aside;

/// Texts that go through a model at once: a fraction of a second on one thread.
const TEXTS_AT_ONCE: usize = 8;
/// Models in memory. Of more, the one loaded first goes.
const MODELS_MAX: usize = 4;

/// What names a model, and the model.
type NamedModel = (LocalModel, Arc<Loaded>);

/// The models in memory, for all cores. Only side threads wait for the lock, for as long as a model is read.
static MODELS: LazyLock<Mutex<Vec<NamedModel>>> = LazyLock::new(Mutex::default);

/// A model in memory.
struct Loaded {
    model: BertModel,
    tokenizer: Tokenizer,
    takes_first: bool,
    normalises: bool,
    threads: rayon::ThreadPool,
}

/// The vectors of texts, one result for each.
pub(super) async fn embed(
    runtime: &dyn Runtime,
    model: &LocalModel,
    inputs: &[Value],
) -> Vec<Result<Vec<f32>, Failure>> {
    let mut results = Vec::with_capacity(inputs.len());
    for chunk in inputs.chunks(TEXTS_AT_ONCE) {
        let model = model.clone();
        let texts: Vec<String> = chunk.iter().map(|input| input.as_str().unwrap_or_default().to_owned()).collect();
        let vectors = aside(runtime, move || loaded(&model)?.embed(texts)).await;
        match vectors.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(vectors) => results.extend(vectors.into_iter().map(Ok)),
            Err(why) => results.extend(chunk.iter().map(|_| Err(Failure::plain(why.clone())))),
        }
    }
    results
}

/// The model, read from disk unless it is in memory.
fn loaded(model: &LocalModel) -> Result<Arc<Loaded>, String> {
    let mut models = MODELS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, loaded)) = models.iter().find(|(known, _)| known == model) {
        return Ok(loaded.clone());
    }
    let loaded = Arc::new(Loaded::read(model)?);
    if models.len() >= MODELS_MAX {
        models.remove(0);
    }
    models.push((model.clone(), loaded.clone()));
    Ok(loaded)
}

/// The folder of a model: itself one, or the place of a model of that name in the cache that the usual tools fill.
fn folder(model: &LocalModel) -> Result<PathBuf, String> {
    let own = PathBuf::from(&model.model);
    if own.is_dir() {
        return Ok(own);
    }
    let missing = || {
        let name = &model.model;
        format!("the model `{name}` is not on this machine: name its folder, or put it into the cache of Hugging Face")
    };
    let named = |variable: &str| std::env::var_os(variable).map(PathBuf::from);
    let home = named("HF_HOME").or_else(|| Some(named("HOME")?.join(".cache/huggingface"))).ok_or_else(missing)?;
    let cached = home.join("hub").join(format!("models--{}", model.model.replace('/', "--")));
    let wanted = model.revision.as_deref().unwrap_or("main");
    // A branch stands in a file of its own, a commit is a folder.
    let commit = std::fs::read_to_string(cached.join("refs").join(wanted)).unwrap_or_else(|_| wanted.to_owned());
    let folder = cached.join("snapshots").join(commit.trim());
    if folder.is_dir() { Ok(folder) } else { Err(missing()) }
}

fn json_file(path: &Path) -> Result<Value, String> {
    let text = std::fs::read(path).map_err(|error| format!("`{}` cannot be read: {error}", path.display()))?;
    serde_json::from_slice(&text).map_err(|error| format!("`{}` is not JSON: {error}", path.display()))
}

impl Loaded {
    fn read(model: &LocalModel) -> Result<Self, String> {
        let folder = folder(model)?;
        let description = json_file(&folder.join("config.json"))?;
        let kind = description.get("model_type").and_then(Value::as_str).unwrap_or("bert").to_owned();
        if kind != "bert" {
            return Err(format!("models of the type `{kind}` cannot run here, only `bert`"));
        }
        let config: Config = serde_json::from_value(description).map_err(|error| format!("`config.json`: {error}"))?;
        let weights_path = folder.join("model.safetensors");
        let weights = std::fs::read(&weights_path).map_err(|error| format!("`{}`: {error}", weights_path.display()))?;
        let failed = |error: candle_core::Error| format!("the model cannot be read: {error}");
        let weights = VarBuilder::from_buffered_safetensors(weights, DType::F32, &Device::Cpu).map_err(failed)?;
        let bert = BertModel::load(weights, &config).map_err(failed)?;
        let (takes_first, normalises) = sentence_settings(&folder, model.pooling);
        let threads = std::thread::available_parallelism().map_or(1, usize::from).div_ceil(2);
        let threads = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|number| format!("model-{number}"))
            .build()
            .map_err(|error| format!("no threads for a model: {error}"))?;
        Ok(Self { model: bert, tokenizer: tokenizer(&folder, &config)?, takes_first, normalises, threads })
    }

    fn embed(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, String> {
        let encoded = self.tokenizer.encode_batch(texts, true).map_err(|error| format!("tokens: {error}"))?;
        self.threads.install(|| self.forward(&encoded)).map_err(|error| format!("the model failed: {error}"))
    }

    fn forward(&self, encoded: &[tokenizers::Encoding]) -> candle_core::Result<Vec<Vec<f32>>> {
        let width = encoded.iter().map(|encoding| encoding.get_ids().len()).max().unwrap_or(0);
        let shape = (encoded.len(), width);
        let ids: Vec<u32> = encoded.iter().flat_map(|encoding| encoding.get_ids()).copied().collect();
        let mask: Vec<u32> = encoded.iter().flat_map(|encoding| encoding.get_attention_mask()).copied().collect();
        let ids = Tensor::from_vec(ids, shape, &Device::Cpu)?;
        let mask = Tensor::from_vec(mask, shape, &Device::Cpu)?;
        let tokens = self.model.forward(&ids, &ids.zeros_like()?, Some(&mask))?;
        let pooled = if self.takes_first {
            tokens.narrow(1, 0, 1)?.squeeze(1)?
        } else {
            let mask = mask.to_dtype(DType::F32)?.unsqueeze(2)?;
            let sums = tokens.broadcast_mul(&mask)?.sum(1)?;
            sums.broadcast_div(&mask.sum(1)?.clamp(1e-9f32, f32::MAX)?)?
        };
        let pooled = if self.normalises {
            let norms = pooled.sqr()?.sum_keepdim(1)?.sqrt()?.clamp(1e-12f32, f32::MAX)?;
            pooled.broadcast_div(&norms)?
        } else {
            pooled
        };
        pooled.to_vec2()
    }
}

/// Whether the first token's vector is the text's, and whether vectors are brought to length 1: as the model's own files say,
/// where the settings do not.
fn sentence_settings(folder: &Path, pooling: Pooling) -> (bool, bool) {
    let own = json_file(&folder.join("1_Pooling/config.json")).unwrap_or_default();
    let takes_first = match pooling {
        Pooling::ForceCls => true,
        Pooling::ForceMean => false,
        Pooling::UseModel => own.get("pooling_mode_cls_token").and_then(Value::as_bool).unwrap_or(false),
    };
    let modules = json_file(&folder.join("modules.json")).unwrap_or_default();
    let is_normalising =
        |module: &Value| module.get("type").and_then(Value::as_str).is_some_and(|kind| kind.ends_with(".Normalize"));
    (takes_first, modules.as_array().is_some_and(|modules| modules.iter().any(is_normalising)))
}

/// The tokenizer, which pads to the longest text and cuts at what the model takes.
fn tokenizer(folder: &Path, config: &Config) -> Result<Tokenizer, String> {
    let failed = |error: tokenizers::Error| format!("`tokenizer.json`: {error}");
    let mut tokenizer = Tokenizer::from_file(folder.join("tokenizer.json")).map_err(failed)?;
    let own = json_file(&folder.join("sentence_bert_config.json")).unwrap_or_default();
    let own = own.get("max_seq_length").and_then(Value::as_u64).and_then(|length| usize::try_from(length).ok());
    let max_length = own.unwrap_or(usize::MAX).min(config.max_position_embeddings);
    tokenizer.with_truncation(Some(TruncationParams { max_length, ..TruncationParams::default() })).map_err(failed)?;
    let pad_id = u32::try_from(config.pad_token_id).unwrap_or(0);
    tokenizer.with_padding(Some(PaddingParams { pad_id, ..PaddingParams::default() }));
    Ok(tokenizer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(folder: &str) -> LocalModel {
        LocalModel { model: folder.into(), revision: None, pooling: Pooling::UseModel }
    }

    #[test]
    fn a_model_that_is_not_there_is_named() {
        assert!(Loaded::read(&model("/nowhere/at/all")).err().unwrap().contains("/nowhere/at/all"));
        let empty = tempfile::tempdir().unwrap();
        std::fs::write(empty.path().join("config.json"), r#"{"model_type": "whisper"}"#).unwrap();
        assert!(Loaded::read(&model(empty.path().to_str().unwrap())).err().unwrap().contains("whisper"));
    }

    /// `SKERRY_MODEL` names a folder with all-MiniLM-L6-v2.
    #[test]
    #[ignore = "needs SKERRY_MODEL"]
    fn a_sentence_model_puts_like_beside_like() {
        let folder = std::env::var("SKERRY_MODEL").unwrap();
        let model = Loaded::read(&model(&folder)).unwrap();
        let texts = ["A dog runs over the meadow", "A puppy is running through grass", "Interest rates rose again"];
        let vectors = model.embed(texts.map(String::from).to_vec()).unwrap();
        let dot = |a: usize, b: usize| vectors[a].iter().zip(&vectors[b]).map(|(a, b)| a * b).sum::<f32>();
        assert!((dot(0, 0) - 1.0).abs() < 1e-4, "its vectors have length 1");
        assert!(dot(0, 1) > 0.5 && dot(0, 2) < 0.3, "{} {}", dot(0, 1), dot(0, 2));
        let alone = model.embed(vec![texts[2].into()]).unwrap();
        assert!(alone[0].iter().zip(&vectors[2]).all(|(a, b)| (a - b).abs() < 1e-4), "padding changes nothing");
    }
}
