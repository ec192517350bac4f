//! Where an option's value comes from: the command line, then the environment, then the configuration file, then the table.
//!
//! Each layer is brought to texts by option name; what they mean is decided once, in `mod.rs`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use clap::parser::ValueSource;

use super::OptionsError;
use super::table::{self, CONFIG_FILE, FLAGS, Flag, Kind};

/// Beginnings of names in the environment; the earlier one goes first where both are set.
const PREFIXES: [&str; 2] = ["SKERRY_", "MEILI_"];
/// The file that is read when none is named.
const FILE_DEFAULT: &str = "./config.toml";

/// Texts by option name.
pub type Layer = BTreeMap<&'static str, String>;

/// The environment, or what a test puts in its place.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Reads the command line, program name first. `Err` also for `--help` and `--version`.
pub fn from_args(args: impl IntoIterator<Item = OsString>) -> Result<Layer, clap::Error> {
    let matches = table::command().try_get_matches_from(args)?;
    let mut layer = Layer::new();
    for flag in FLAGS {
        if matches.value_source(flag.name) != Some(ValueSource::CommandLine) {
            continue;
        }
        let text = match flag.kind {
            Kind::Switch => matches.get_flag(flag.name).to_string(),
            _ => matches.get_one::<String>(flag.name).cloned().unwrap_or_default(),
        };
        layer.insert(flag.name, text);
    }
    Ok(layer)
}

/// Reads the environment.
pub fn from_env(env: Env<'_>) -> Result<Layer, OptionsError> {
    let mut layer = Layer::new();
    for flag in FLAGS {
        let Some((name, text)) = env_value(env, &flag.env_suffix()) else { continue };
        if flag.kind == Kind::Switch && !matches!(text.to_ascii_lowercase().as_str(), "true" | "false") {
            return Err(OptionsError::Usage(format!("`{name}` is `{text}`, which is neither `true` nor `false`")));
        }
        layer.insert(flag.name, text);
    }
    Ok(layer)
}

/// The first variable with this ending that is set, and its name. An empty one counts as not set, since that is how container
/// set-ups leave a variable out.
pub fn env_value(env: Env<'_>, suffix: &str) -> Option<(String, String)> {
    PREFIXES.iter().find_map(|prefix| {
        let name = format!("{prefix}{suffix}");
        env(&name).filter(|text| !text.is_empty()).map(|text| (name, text))
    })
}

/// Reads the configuration file, where there is one.
pub fn from_file(named: Option<&str>) -> Result<Layer, OptionsError> {
    let path = Path::new(named.unwrap_or(FILE_DEFAULT));
    if named.is_none() && !path.exists() {
        return Ok(Layer::new());
    }
    let failure = |reason: String| OptionsError::File { path: path.to_owned(), reason };
    let text = std::fs::read_to_string(path).map_err(|error| failure(error.to_string()))?;
    parse_file(&text).map_err(failure)
}

/// The options in the text of a configuration file.
pub fn parse_file(text: &str) -> Result<Layer, String> {
    let entries: toml::Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
    let mut layer = Layer::new();
    for (key, value) in &entries {
        let flag = FLAGS.iter().find(|flag| flag.file_key() == *key);
        let flag = flag.ok_or_else(|| format!("`{key}` is not an option"))?;
        if flag.name == CONFIG_FILE {
            return Err(format!("`{key}` cannot be set in the configuration file"));
        }
        let text = file_text(flag, value)?;
        if flag.from_file {
            layer.insert(flag.name, text);
        }
    }
    Ok(layer)
}

/// A value of the file as the text it would be on the command line.
fn file_text(flag: &Flag, value: &toml::Value) -> Result<String, String> {
    match (flag.kind, value) {
        (Kind::Switch, toml::Value::Boolean(on)) => Ok(on.to_string()),
        (Kind::Schedule, toml::Value::Boolean(false)) => Ok(String::new()),
        (Kind::Schedule, toml::Value::Boolean(true)) => Ok(table::SCHEDULE_DEFAULT_SECONDS.to_owned()),
        (Kind::Number | Kind::Size | Kind::Schedule, toml::Value::Integer(number)) => Ok(number.to_string()),
        // The number of threads is a number or a word.
        (Kind::Text, toml::Value::Integer(number)) if flag.name == "max-indexing-threads" => Ok(number.to_string()),
        (Kind::Text | Kind::Path | Kind::Size, toml::Value::String(text)) => Ok(text.clone()),
        (Kind::List, toml::Value::Array(items)) => {
            let texts: Option<Vec<&str>> = items.iter().map(toml::Value::as_str).collect();
            texts.map(|texts| texts.join(",")).ok_or_else(|| format!("`{}` must contain only strings", flag.file_key()))
        }
        (kind, other) => {
            let expected = match kind {
                Kind::Switch => "true or false",
                Kind::Number => "a whole number",
                Kind::Size => "a size, as a string or a number of bytes",
                Kind::Schedule => "a number of seconds or false",
                Kind::List => "an array of strings",
                Kind::Text | Kind::Path => "text",
            };
            Err(format!("`{}` must be {expected}, but is of type {}", flag.file_key(), other.type_str()))
        }
    }
}
