//! Requests to a model: the address, the credentials, and the conversation with the search function in it.

use serde_json::{Map, Value, json};

use super::{ChatAccess, ChatPrompts, ChatSettings, ChatSource};

/// The function by which a model searches.
pub const SEARCH_FUNCTION: &str = "_meiliSearchInIndex";

const OPEN_AI_URL: &str = "https://api.openai.com/v1";
const MISTRAL_URL: &str = "https://api.mistral.ai/v1";

/// Families of models that know the role `system` alone.
const WITHOUT_DEVELOPER_ROLE: [&str; 6] = ["gpt-3.5", "gpt-4", "gpt-4.1", "gpt-4.5", "gpt-4o", "chatgpt-4o"];

/// An index that the model may search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchableIndex {
    /// Its name.
    pub uid: String,
    /// What its settings tell the model of it.
    pub description: String,
    /// Its filterable fields, each with some of its values, most frequent first.
    pub values: Vec<(String, Vec<String>)>,
}

/// The address of the model; `None` when the settings lack what the source needs.
pub fn address(settings: &ChatSettings) -> Option<String> {
    let ChatAccess { base_url, deployment_id, api_version, .. } = &settings.access;
    let base = base_url.as_deref().map(|url| url.trim_end_matches('/'));
    Some(match settings.source {
        ChatSource::OpenAi => format!("{}/chat/completions", base.unwrap_or(OPEN_AI_URL)),
        ChatSource::Mistral => format!("{}/chat/completions", base.unwrap_or(MISTRAL_URL)),
        ChatSource::VLlm => format!("{}/chat/completions", base?),
        ChatSource::AzureOpenAi => format!(
            "{}/openai/deployments/{}/chat/completions?api-version={}",
            base?,
            deployment_id.as_deref()?,
            api_version.as_deref()?
        ),
    })
}

/// The headers that say who asks.
pub fn headers(settings: &ChatSettings) -> Vec<(&'static str, String)> {
    let ChatAccess { api_key, org_id, project_id, .. } = &settings.access;
    let key = api_key.as_deref().unwrap_or_default();
    if settings.source == ChatSource::AzureOpenAi {
        return vec![("api-key", key.to_owned())];
    }
    let mut headers = vec![("Authorization", format!("Bearer {key}"))];
    headers.extend(org_id.iter().map(|org| ("OpenAI-Organization", org.clone())));
    headers.extend(project_id.iter().map(|project| ("OpenAI-Project", project.clone())));
    headers
}

/// The body of the first request: the client's fields with the system's message in front and the search function as the only
/// tool. Later rounds add their messages to it.
pub fn body(
    settings: &ChatSettings,
    prompts: &ChatPrompts,
    indexes: &[SearchableIndex],
    mut fields: Map<String, Value>,
) -> Map<String, Value> {
    let model = fields.get("model").and_then(Value::as_str).unwrap_or_default();
    let role = system_role(settings.source, model);
    let system = json!({"role": role, "content": prompts.system});
    if let Some(Value::Array(messages)) = fields.get_mut("messages") {
        messages.insert(0, system);
    }
    fields.insert("stream".into(), true.into());
    match settings.source {
        ChatSource::OpenAi | ChatSource::AzureOpenAi => {
            fields.insert("stream_options".into(), json!({"include_usage": true}));
        }
        ChatSource::Mistral | ChatSource::VLlm => {
            fields.remove("stream_options");
        }
    }
    fields.insert("tools".into(), json!([search_function(prompts, indexes)]));
    fields
}

fn system_role(source: ChatSource, model: &str) -> &'static str {
    let is_older = WITHOUT_DEVELOPER_ROLE
        .iter()
        .any(|family| model.strip_prefix(family).is_some_and(|rest| rest.is_empty() || rest.starts_with('-')));
    match source {
        ChatSource::OpenAi | ChatSource::AzureOpenAi if !is_older => "developer",
        _ => "system",
    }
}

fn search_function(prompts: &ChatPrompts, indexes: &[SearchableIndex]) -> Value {
    let mut about = prompts.search_description.clone().unwrap_or_default();
    let mut filter = prompts.search_filter_param.clone().unwrap_or_default();
    for index in indexes {
        about.push_str(&format!("\n\n - {}: {}\n\n", index.uid, index.description));
        if !index.values.is_empty() {
            filter.push_str(&format!("\n\nIn the index {}:\n", index.uid));
        }
        for (field, values) in &index.values {
            filter.push_str(&format!("{field}: {}.\n", values.join(", ")));
        }
    }
    let names: Vec<&str> = indexes.iter().map(|index| index.uid.as_str()).collect();
    json!({"type": "function", "function": {
        "name": SEARCH_FUNCTION,
        "description": about,
        "parameters": {
            "type": "object",
            "properties": {
                "index_uid": {"type": "string", "enum": names, "description": prompts.search_index_uid_param},
                "q": {"type": "string", "description": prompts.search_q_param},
                "filter": {"type": "string", "description": filter},
            },
            "required": ["index_uid", "q", "filter"],
            "additionalProperties": false,
        },
        "strict": true,
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(source: ChatSource, base_url: Option<&str>) -> ChatSettings {
        let access = ChatAccess {
            base_url: base_url.map(str::to_owned),
            deployment_id: Some("d".into()),
            api_version: Some("2024".into()),
            ..ChatAccess::default()
        };
        ChatSettings { source, access, ..ChatSettings::default() }
    }

    #[test]
    fn each_source_has_its_address() {
        let of = |source, base| address(&settings(source, base)).unwrap_or_default();
        assert_eq!(of(ChatSource::OpenAi, None), "https://api.openai.com/v1/chat/completions");
        assert_eq!(of(ChatSource::Mistral, Some("http://m/v1/")), "http://m/v1/chat/completions");
        assert_eq!(of(ChatSource::VLlm, None), "");
        assert_eq!(
            of(ChatSource::AzureOpenAi, Some("http://a")),
            "http://a/openai/deployments/d/chat/completions?api-version=2024"
        );
    }

    #[test]
    fn older_models_are_told_by_the_system() {
        for model in ["gpt-4o-mini", "gpt-4", "gpt-3.5-turbo", "chatgpt-4o-latest"] {
            assert_eq!(system_role(ChatSource::OpenAi, model), "system", "{model}");
        }
        for model in ["o3", "gpt-5", "gpt-4oo", "mock"] {
            assert_eq!(system_role(ChatSource::AzureOpenAi, model), "developer", "{model}");
        }
        assert_eq!(system_role(ChatSource::Mistral, "o3"), "system");
    }

    #[test]
    fn the_search_function_is_the_only_tool() {
        let fields = json!({"model": "o3", "messages": [{"role": "user", "content": "x"}], "tools": [1]});
        let index = SearchableIndex {
            uid: "trees".into(),
            description: "All the trees".into(),
            values: vec![("kind".into(), vec!["soft".into(), "hard".into()])],
        };
        let Value::Object(fields) = fields else { unreachable!() };
        let prompts = ChatPrompts { search_description: Some("find".into()), ..ChatPrompts::built_in() };
        let body = Value::from(body(&settings(ChatSource::OpenAi, None), &prompts, &[index], fields));
        let function = &body["tools"][0]["function"];
        assert_eq!(
            (body["messages"][0]["role"].as_str(), body["tools"].as_array().map(Vec::len)),
            (Some("developer"), Some(1))
        );
        assert_eq!(function["description"], "find\n\n - trees: All the trees\n\n");
        assert_eq!(function["parameters"]["properties"]["index_uid"]["enum"], json!(["trees"]));
        assert!(
            function["parameters"]["properties"]["filter"]["description"].to_string().contains("kind: soft, hard.")
        );
        assert_eq!(body["stream_options"], json!({"include_usage": true}));
    }
}
