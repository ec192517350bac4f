//! Chat workspaces and their settings.

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use super::decode::{self, check_json, malformed_payload};
use super::error::{ApiError, ErrorCode};
use super::page::Page;
use super::router::{Answer, Call, Route};
use super::settings::mask::mask;
use crate::app::App;
use crate::chats::{
    ChatAccess, ChatChange, ChatPatch, ChatPrompts, ChatSettings, ChatSource, Chats, NAME_BYTES_MAX, TextChanges, find,
};
use crate::control::ControlChange;
use crate::http::Response;
use crate::routes;

/// Every mistake in a body has this code here.
const CODE: ErrorCode = ErrorCode::BadRequest;

/// The routes of this file.
pub fn routes() -> Vec<Route<App>> {
    routes! {
        Get "/chats" ChatsGet => list;
        Get "/chats/{workspace}" ChatsGet => one;
        Delete "/chats/{workspace}" ChatsDelete => delete;
        Get "/chats/{workspace}/settings" ChatsSettingsGet => settings;
        Patch "/chats/{workspace}/settings" ChatsSettingsUpdate => update;
        Delete "/chats/{workspace}/settings" ChatsSettingsUpdate => reset;
    }
}

async fn list(call: Call<App>) -> Answer {
    let page = Page::parse(&call.query(), ErrorCode::InvalidIndexOffset, ErrorCode::InvalidIndexLimit)?;
    check_feature(&call)?;
    let chats = call.app.control.state().chats.clone();
    Ok(page.answer(chats.keys(), |name| json!({ "uid": name })))
}

async fn one(call: Call<App>) -> Answer {
    check_feature(&call)?;
    let name = call.param(0);
    decode::check_index_uid(name)?;
    find(&call.app.control.state().chats, name)?;
    Ok(Response::from_json(200, &json!({ "uid": name })))
}

async fn delete(call: Call<App>) -> Answer {
    check_feature(&call)?;
    call.app.control.change(ControlChange::Chat(ChatChange::Delete(call.param(0).into()))).await?;
    Ok(Response::empty(204))
}

async fn settings(call: Call<App>) -> Answer {
    check_feature(&call)?;
    shown(&call)
}

async fn update(mut call: Call<App>) -> Answer {
    let patch = call.read(patch).await?;
    check_feature(&call)?;
    let name = call.param(0);
    if name.len() > NAME_BYTES_MAX {
        let message = format!("The name of a workspace has at most {NAME_BYTES_MAX} bytes.");
        return Err(ApiError::new(ErrorCode::InvalidIndexUid, message));
    }
    call.app.control.change(ControlChange::Chat(ChatChange::Patch(name.into(), patch))).await?;
    shown(&call)
}

async fn reset(call: Call<App>) -> Answer {
    check_feature(&call)?;
    call.app.control.change(ControlChange::Chat(ChatChange::Reset(call.param(0).into()))).await?;
    shown(&call)
}

fn check_feature(call: &Call<App>) -> Result<(), ApiError> {
    match call.app.control.state().features.chat_completions {
        true => Ok(()),
        false => Err(ApiError::feature_not_enabled("Using the routes under `/chats`", "chatCompletions")),
    }
}

fn shown(call: &Call<App>) -> Answer {
    let state = call.app.control.state();
    let mut object = export(find(&state.chats, call.param(0))?);
    if let Some(Value::String(key)) = object.get_mut("apiKey") {
        *key = mask(key);
    }
    Ok(Response::from_json(200, &object))
}

/// Settings as clients see them, with built-in prompts where there are none of their own, but with the key in clear.
pub fn export(settings: &ChatSettings) -> Value {
    let mut object = Map::new();
    object.insert("source".into(), json!(settings.source));
    let (mut access, mut prompts) = (settings.access.clone(), settings.prompts.effective());
    for name in ChatAccess::NAMES {
        object.insert((*name).into(), access.text(name).and_then(Option::take).into());
    }
    let prompt = |name: &&str| ((*name).to_owned(), Value::from(prompts.text(name).and_then(Option::take)));
    let prompts: Map<String, Value> = ChatPrompts::NAMES.iter().map(prompt).collect();
    object.insert("prompts".into(), prompts.into());
    object.into()
}

/// The settings that [`export`] wrote, here or in the reference.
///
/// # Errors
/// What is wrong with them.
pub fn import(name: &str, value: &Value) -> Result<ChatSettings, ApiError> {
    let sent = SentSettings::deserialize(value).map_err(|error| ApiError::new(CODE, error.to_string()))?;
    let change = ChatChange::Patch(name.into(), sent.into());
    let (_, settings) = change.apply(&mut Chats::new())?;
    let mut settings = settings.unwrap_or_default();
    settings.prompts.forget_built_in();
    Ok(settings)
}

/// What a client changes, as it is sent. A list stands for the members in their order, as the reference has it.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct SentSettings {
    #[serde(deserialize_with = "given")]
    source: Option<Option<ChatSource>>,
    #[serde(deserialize_with = "given")]
    org_id: SentText,
    #[serde(deserialize_with = "given")]
    project_id: SentText,
    #[serde(deserialize_with = "given")]
    api_version: SentText,
    #[serde(deserialize_with = "given")]
    deployment_id: SentText,
    #[serde(deserialize_with = "given")]
    base_url: SentText,
    #[serde(deserialize_with = "given")]
    api_key: SentText,
    #[serde(deserialize_with = "given")]
    prompts: Option<Option<SentPrompts>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct SentPrompts {
    #[serde(deserialize_with = "given")]
    system: SentText,
    #[serde(deserialize_with = "given")]
    search_description: SentText,
    #[serde(deserialize_with = "given")]
    search_q_param: SentText,
    #[serde(deserialize_with = "given")]
    search_filter_param: SentText,
    #[serde(deserialize_with = "given")]
    search_index_uid_param: SentText,
}

/// A text that is given, one that is taken back (null), or nothing.
type SentText = Option<Option<String>>;

/// Tells null from nothing.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(value: D) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(value).map(Some)
}

impl From<SentSettings> for ChatPatch {
    fn from(sent: SentSettings) -> Self {
        let access = [
            ("orgId", sent.org_id),
            ("projectId", sent.project_id),
            ("apiVersion", sent.api_version),
            ("deploymentId", sent.deployment_id),
            ("baseUrl", sent.base_url),
            ("apiKey", sent.api_key),
        ];
        let prompts = |sent: SentPrompts| {
            changes([
                ("system", sent.system),
                ("searchDescription", sent.search_description),
                ("searchQParam", sent.search_q_param),
                ("searchFilterParam", sent.search_filter_param),
                ("searchIndexUidParam", sent.search_index_uid_param),
            ])
        };
        Self {
            source: sent.source.map(Option::unwrap_or_default),
            access: changes(access),
            prompts: sent.prompts.map(|sent| sent.map(prompts)),
        }
    }
}

fn changes<const N: usize>(texts: [(&str, SentText); N]) -> TextChanges {
    texts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?))).collect()
}

/// Reads a body. Its first mistake counts: what does not fit has the routes' code, as has a member that comes twice.
fn patch(content_type: Option<&str>, body: &[u8]) -> Result<ChatPatch, ApiError> {
    check_json(content_type, body)?;
    serde_json::from_slice::<SentSettings>(body).map(ChatPatch::from).map_err(|error| match error.is_data() {
        true => ApiError::new(CODE, format!("The settings of the workspace are wrong: {error}.")),
        false => malformed_payload("json", error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<ChatPatch, &'static str> {
        patch(Some("application/json"), body.as_bytes()).map_err(|error| error.code.name())
    }

    /// The last of two members of a name once counted, and a source was a text only.
    #[test]
    fn the_first_mistake_of_a_body_counts() {
        for (body, wanted) in [
            (r#"{"source":"openAi","source":"mistral"}"#, "bad_request"),
            (r#"{"prompts":{"system":"a","system":"b"}}"#, "bad_request"),
            (r#"{"orgId":"a","orgId":"a"} x"#, "bad_request"),
            (r#"{"source":5,"source":"openAi"}"#, "malformed_payload"),
            (r#"{"source":{"mistral":1}}"#, "bad_request"),
            (r#"{"source":{"other":null}}"#, "bad_request"),
            (r#"{"source":{"openAi":null,"mistral":null}}"#, "malformed_payload"),
            (r#"{"source":5,"foo":1}"#, "malformed_payload"),
            (r#"{"foo":1,"source":5}"#, "bad_request"),
            (r#"{"apiKey":5}"#, "bad_request"),
            (r#"{"prompts":{"system":null,"q":1}}"#, "bad_request"),
            ("5", "bad_request"),
            ("{", "malformed_payload"),
        ] {
            assert_eq!(read(body), Err(wanted), "{body}");
        }
    }

    #[test]
    fn null_takes_back_and_nothing_keeps() {
        let sent =
            read(r#"{"source":{"vLlm":null},"baseUrl":"x","orgId":null,"prompts":{"searchQParam":"q"}}"#).unwrap();
        let access = vec![("orgId".to_owned(), None), ("baseUrl".to_owned(), Some("x".to_owned()))];
        let prompts = Some(Some(vec![("searchQParam".to_owned(), Some("q".to_owned()))]));
        assert_eq!(sent, ChatPatch { source: Some(ChatSource::VLlm), access, prompts });
        assert_eq!(read("{}"), Ok(ChatPatch::default()));
        assert_eq!(read("[]"), Ok(ChatPatch::default()));
        let back = read(r#"{"source":null,"prompts":null}"#).unwrap();
        assert_eq!((back.source, back.prompts), (Some(ChatSource::OpenAi), Some(None)));
    }
}
