//! Chat workspaces: each one defines how a language model is reached and with which prompts.
//!
//! They are part of the control plane's state, durable and known to every core. Changing the settings of a workspace creates it.

pub mod model;
pub mod stream;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shards::error::UserError;

/// Bytes of the name of a workspace.
pub const NAME_BYTES_MAX: usize = 400;

/// Workspaces by name.
pub type Chats = BTreeMap<String, ChatSettings>;

/// Who runs the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ChatSource {
    /// OpenAI, or whatever speaks like it.
    #[default]
    OpenAi,
    /// OpenAI's models at Azure; needs `baseUrl`, `deploymentId` and `apiVersion`.
    AzureOpenAi,
    /// Mistral.
    Mistral,
    /// A server of one's own; needs `baseUrl`.
    VLlm,
}

impl ChatSource {
    /// The source of this name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "openAi" => Some(Self::OpenAi),
            "azureOpenAi" => Some(Self::AzureOpenAi),
            "mistral" => Some(Self::Mistral),
            "vLlm" => Some(Self::VLlm),
            _ => None,
        }
    }
}

/// Writes the texts of a workspace, their names in the interface and their access by name from one list.
macro_rules! texts {
    ($type:ident: $about:literal, $($(#[doc = $doc:literal])+ $field:ident = $name:literal,)+) => {
        #[doc = $about]
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $type {
            $($(#[doc = $doc])+ #[serde(rename = $name)] pub $field: Option<String>,)+
        }

        impl $type {
            /// The interface's names, in its order.
            pub const NAMES: &[&str] = &[$($name,)+];

            /// The text of this name.
            pub fn text(&mut self, name: &str) -> Option<&mut Option<String>> {
                match name { $($name => Some(&mut self.$field),)+ _ => None }
            }
        }
    };
}

texts! {
    ChatAccess: "How the model is reached. All of it may be absent.",
    /// The organisation that pays.
    org_id = "orgId",
    /// The project that pays.
    project_id = "projectId",
    /// The version of the model's interface.
    api_version = "apiVersion",
    /// The deployment of the model.
    deployment_id = "deploymentId",
    /// Where the model is; any text.
    base_url = "baseUrl",
    /// The key that opens it, in clear.
    api_key = "apiKey",
}

texts! {
    ChatPrompts: "What the model is told; built-in texts stand where there is none.",
    /// Before everything else.
    system = "system",
    /// About the function that searches.
    search_description = "searchDescription",
    /// About its parameter `q`.
    search_q_param = "searchQParam",
    /// About its parameter `filter`.
    search_filter_param = "searchFilterParam",
    /// About its parameter `index_uid`.
    search_index_uid_param = "searchIndexUidParam",
}

impl ChatPrompts {
    /// The built-in texts.
    pub fn built_in() -> Self {
        let text = |text: &str| Some(text.to_owned());
        Self {
            system: text(
                "You answer questions about what is stored in a search engine. Look it up with the functions you are given \
                 before you answer, answer only from what you find, and say so when you find nothing.",
            ),
            search_description: text(
                "Searches the documents of one index by words. Use few and telling words. Examples: to find films about \
                 the sea, search for `sea`; to find boots of a brand, search for `boots` and filter by the brand.",
            ),
            search_q_param: text(
                "The words to search for, in the language of the documents. Empty to see all documents.",
            ),
            search_filter_param: text(
                "Restricts the search to documents with certain values, such as `genre = comedy AND year > 1990`. Empty for no \
                 restriction. Only these fields can be used, with these values:",
            ),
            search_index_uid_param: text("The name of the index to search in."),
        }
    }

    /// Takes away those that are the built-in ones.
    pub fn forget_built_in(&mut self) {
        let mut built_in = Self::built_in();
        for name in Self::NAMES {
            if let (Some(own), Some(text)) = (self.text(name), built_in.text(name))
                && own == text
            {
                *own = None;
            }
        }
    }

    /// These texts, with the built-in ones where there is none.
    pub fn effective(&self) -> Self {
        let (mut effective, mut own) = (Self::built_in(), self.clone());
        for name in Self::NAMES {
            if let (Some(text), Some(Some(given))) = (effective.text(name), own.text(name)) {
                *text = Some(given.clone());
            }
        }
        effective
    }
}

/// The settings of a workspace, as they are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatSettings {
    /// Who runs the model.
    #[serde(default)]
    pub source: ChatSource,
    /// How it is reached.
    #[serde(flatten)]
    pub access: ChatAccess,
    /// What it is told.
    #[serde(default)]
    pub prompts: ChatPrompts,
}

/// What a client changes. What is not in it is kept; a `None` takes away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatPatch {
    /// Who runs the model.
    pub source: Option<ChatSource>,
    /// Texts of [`ChatAccess`] by their names.
    pub access: TextChanges,
    /// Texts of [`ChatPrompts`] by their names; `Some(None)` takes all away.
    pub prompts: Option<Option<TextChanges>>,
}

/// Texts by their names: the new one, or `None` for one that goes.
pub type TextChanges = Vec<(String, Option<String>)>;

/// A change of workspaces.
#[derive(Clone, Debug)]
pub enum ChatChange {
    /// Change the settings, making the workspace where there is none; `bad_request` when they lack what the source needs.
    Patch(String, ChatPatch),
    /// Give a workspace the settings of a new one; `chat_not_found`.
    Reset(String),
    /// Take a workspace away; `chat_not_found`.
    Delete(String),
}

impl ChatChange {
    /// Makes the change: which workspace is different now, and how; `None` when it is gone.
    ///
    /// # Errors
    /// As named at the variants; nothing has changed then.
    pub fn apply(self, chats: &mut Chats) -> Result<(String, Option<ChatSettings>), UserError> {
        let (name, settings) = match self {
            Self::Patch(name, patch) => {
                let settings = patch.applied(chats.get(&name).cloned().unwrap_or_default())?;
                (name, settings)
            }
            Self::Reset(name) => {
                find(chats, &name)?;
                (name, ChatSettings::default())
            }
            Self::Delete(name) => {
                find(chats, &name)?;
                chats.remove(&name);
                return Ok((name, None));
            }
        };
        chats.insert(name.clone(), settings.clone());
        Ok((name, Some(settings)))
    }
}

impl ChatPatch {
    fn applied(self, mut settings: ChatSettings) -> Result<ChatSettings, UserError> {
        settings.source = self.source.unwrap_or(settings.source);
        for (name, value) in self.access {
            if let Some(text) = settings.access.text(&name) {
                *text = value;
            }
        }
        match self.prompts {
            None => {}
            Some(None) => settings.prompts = ChatPrompts::default(),
            Some(Some(prompts)) => {
                for (name, value) in prompts {
                    if let Some(text) = settings.prompts.text(&name) {
                        *text = value;
                    }
                }
            }
        }
        settings.check()?;
        Ok(settings)
    }
}

impl ChatSettings {
    /// Whether there is what the source needs.
    fn check(&self) -> Result<(), UserError> {
        let needed: &[&str] = match self.source {
            ChatSource::AzureOpenAi => &["baseUrl", "deploymentId", "apiVersion"],
            ChatSource::VLlm => &["baseUrl"],
            ChatSource::OpenAi | ChatSource::Mistral => &[],
        };
        let mut access = self.access.clone();
        match needed.iter().find(|name| access.text(name).is_none_or(|text| text.is_none())) {
            Some(missing) => {
                let message = format!("This `source` needs `{missing}`.");
                Err(UserError::new("bad_request", message))
            }
            None => Ok(()),
        }
    }
}

/// The settings of a workspace.
///
/// # Errors
/// `chat_not_found`.
pub fn find<'c>(chats: &'c Chats, name: &str) -> Result<&'c ChatSettings, UserError> {
    let not_found = || UserError::new("chat_not_found", format!("The chat workspace `{name}` does not exist."));
    chats.get(name).ok_or_else(not_found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patch(access: &[(&str, Option<&str>)], source: Option<ChatSource>) -> ChatChange {
        let access = access.iter().map(|(name, value)| (name.to_string(), value.map(String::from))).collect();
        ChatChange::Patch("w".into(), ChatPatch { source, access, prompts: None })
    }

    #[test]
    fn a_source_gets_what_it_needs_or_nothing_changes() {
        let mut chats = Chats::new();
        let refused = patch(&[("apiKey", Some("k"))], Some(ChatSource::VLlm)).apply(&mut chats).unwrap_err();
        assert_eq!((refused.code, chats.len()), ("bad_request", 0));
        patch(&[("baseUrl", Some("any text"))], Some(ChatSource::VLlm)).apply(&mut chats).unwrap();
        assert!(patch(&[("baseUrl", None)], None).apply(&mut chats).is_err());
        patch(&[("baseUrl", None)], Some(ChatSource::Mistral)).apply(&mut chats).unwrap();
        assert_eq!(chats["w"], ChatSettings { source: ChatSource::Mistral, ..ChatSettings::default() });
        let kept = serde_json::to_vec(&chats["w"]).unwrap();
        assert_eq!(serde_json::from_slice::<ChatSettings>(&kept).unwrap(), chats["w"]);
    }

    #[test]
    fn own_prompts_stand_before_built_in_ones() {
        let own =
            ChatPrompts { system: Some("mine".into()), search_q_param: Some(String::new()), ..Default::default() };
        let effective = own.effective();
        assert_eq!((effective.system.as_deref(), effective.search_q_param.as_deref()), (Some("mine"), Some("")));
        assert_eq!(effective.search_description, ChatPrompts::built_in().search_description);
    }

    #[test]
    fn only_known_workspaces_are_reset_and_deleted() {
        let mut chats = Chats::new();
        for change in [ChatChange::Reset("w".into()), ChatChange::Delete("w".into())] {
            assert_eq!(change.apply(&mut chats).unwrap_err().code, "chat_not_found");
        }
        patch(&[("orgId", Some("o"))], None).apply(&mut chats).unwrap();
        ChatChange::Reset("w".into()).apply(&mut chats).unwrap();
        assert_eq!(chats["w"], ChatSettings::default());
        ChatChange::Delete("w".into()).apply(&mut chats).unwrap();
        assert!(chats.is_empty());
    }
}
