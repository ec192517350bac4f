//! What a key may do: the names that a key's `actions` list can hold, and the rights that routes ask for.
//!
//! A route asks for one [`Action`]. A key stores [`ActionName`]s, some of which (`*`, `documents.*`, ...) stand for
//! several rights. Wildcards are fixed names, not patterns: only those that [`ActionName::parse`] takes exist.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! actions {
    ($($variant:ident = $name:literal,)*) => {
        /// A right that a route asks for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Action {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
        }

        impl Action {
            /// Every right, in the order of their declaration.
            pub const ALL: &[Action] = &[$(Action::$variant,)*];

            /// The name of the right, as in a key's list.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Action::$variant => $name,)*
                }
            }
        }
    };
}

actions! {
    Search = "search",
    DocumentsAdd = "documents.add",
    DocumentsGet = "documents.get",
    DocumentsDelete = "documents.delete",
    // Editing by function: the three rights above together do not give it.
    DocumentsEdit = "documents.*",
    IndexesCreate = "indexes.create",
    IndexesGet = "indexes.get",
    IndexesUpdate = "indexes.update",
    IndexesDelete = "indexes.delete",
    IndexesSwap = "indexes.swap",
    IndexesCompact = "indexes.compact",
    FieldsPost = "fields.post",
    TasksCancel = "tasks.cancel",
    TasksDelete = "tasks.delete",
    TasksGet = "tasks.get",
    TasksCompact = "tasks.compact",
    SettingsGet = "settings.get",
    SettingsUpdate = "settings.update",
    StatsGet = "stats.get",
    MetricsGet = "metrics.get",
    DumpsCreate = "dumps.create",
    SnapshotsCreate = "snapshots.create",
    Version = "version",
    KeysCreate = "keys.create",
    KeysGet = "keys.get",
    KeysUpdate = "keys.update",
    KeysDelete = "keys.delete",
    ExperimentalGet = "experimental.get",
    ExperimentalUpdate = "experimental.update",
    Export = "export",
    NetworkGet = "network.get",
    NetworkUpdate = "network.update",
    ChatCompletions = "chatCompletions",
    ChatsGet = "chats.get",
    ChatsDelete = "chats.delete",
    ChatsSettingsGet = "chatsSettings.get",
    ChatsSettingsUpdate = "chatsSettings.update",
    WebhooksGet = "webhooks.get",
    WebhooksCreate = "webhooks.create",
    WebhooksUpdate = "webhooks.update",
    WebhooksDelete = "webhooks.delete",
    DynamicSearchRulesGet = "dynamicSearchRules.get",
    DynamicSearchRulesCreate = "dynamicSearchRules.create",
    DynamicSearchRulesUpdate = "dynamicSearchRules.update",
    DynamicSearchRulesDelete = "dynamicSearchRules.delete",
}

impl Action {
    /// Whether it is about the keys themselves; without a master key those routes answer `missing_master_key`.
    pub fn is_about_keys(self) -> bool {
        matches!(self, Action::KeysCreate | Action::KeysGet | Action::KeysUpdate | Action::KeysDelete)
    }

    /// Whether a tenant token can stand for a key on routes of this right.
    pub fn takes_tenant_tokens(self) -> bool {
        matches!(self, Action::Search | Action::ChatCompletions)
    }
}

/// A set of [`Action`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights(u64);

// One bit for each right.
const _: () = assert!(Action::ALL.len() <= 64);

impl Rights {
    /// No right at all.
    pub const NONE: Rights = Rights(0);
    /// Every right.
    pub const EVERY: Rights = Rights(u64::MAX >> (64 - Action::ALL.len()));

    const fn of(actions: &[Action]) -> Rights {
        let mut bits = 0;
        let mut next = 0;
        while next < actions.len() {
            bits |= 1 << (actions[next] as u8);
            next += 1;
        }
        Rights(bits)
    }

    /// Whether this right is among them.
    pub fn contains(self, action: Action) -> bool {
        self.0 & (1 << (action as u8)) != 0
    }

    /// These and those.
    pub fn union(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }
}

/// The rights that `*.get` stands for. Dumps, snapshots, keys and chat completions are not among them; exports are.
const READ_ONLY: Rights = Rights::of(&[
    Action::Search,
    Action::DocumentsGet,
    Action::IndexesGet,
    Action::FieldsPost,
    Action::TasksGet,
    Action::SettingsGet,
    Action::StatsGet,
    Action::MetricsGet,
    Action::Version,
    Action::ExperimentalGet,
    Action::Export,
    Action::NetworkGet,
    Action::ChatsGet,
    Action::ChatsSettingsGet,
    Action::WebhooksGet,
    Action::DynamicSearchRulesGet,
]);

/// The names that stand for another set than the one right of that name.
const GROUPS: &[(&str, Rights)] = &[
    ("*", Rights::EVERY),
    ("*.get", READ_ONLY),
    // Not editing by function, although its route asks for this name: the reference gives that to keys for everything only.
    ("documents.*", Rights::of(&[Action::DocumentsAdd, Action::DocumentsGet, Action::DocumentsDelete])),
    (
        "indexes.*",
        Rights::of(&[
            Action::IndexesCreate,
            Action::IndexesGet,
            Action::IndexesUpdate,
            Action::IndexesDelete,
            Action::IndexesSwap,
            Action::IndexesCompact,
        ]),
    ),
    ("tasks.*", Rights::of(&[Action::TasksCancel, Action::TasksDelete, Action::TasksGet, Action::TasksCompact])),
    ("settings.*", Rights::of(&[Action::SettingsGet, Action::SettingsUpdate])),
    ("stats.*", Rights::of(&[Action::StatsGet])),
    ("metrics.*", Rights::of(&[Action::MetricsGet])),
    ("dumps.*", Rights::of(&[Action::DumpsCreate])),
    ("snapshots.*", Rights::of(&[Action::SnapshotsCreate])),
    ("chats.*", Rights::of(&[Action::ChatsGet, Action::ChatsDelete])),
    ("chatsSettings.*", Rights::of(&[Action::ChatsSettingsGet, Action::ChatsSettingsUpdate])),
    (
        "webhooks.*",
        Rights::of(&[Action::WebhooksGet, Action::WebhooksCreate, Action::WebhooksUpdate, Action::WebhooksDelete]),
    ),
    (
        "dynamicSearchRules.*",
        Rights::of(&[
            Action::DynamicSearchRulesGet,
            Action::DynamicSearchRulesCreate,
            Action::DynamicSearchRulesUpdate,
            Action::DynamicSearchRulesDelete,
        ]),
    ),
    // A second family of names for the feature routes; both mean the same, and the name that was given is kept.
    ("experimental_features.get", Rights::of(&[Action::ExperimentalGet])),
    ("experimental_features.update", Rights::of(&[Action::ExperimentalUpdate])),
    ("experimental_features.*", Rights::of(&[Action::ExperimentalGet, Action::ExperimentalUpdate])),
];

/// A name in a key's list of actions, kept as it was given.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActionName(&'static str);

impl ActionName {
    /// The name, when it is one of those that exist.
    pub fn parse(text: &str) -> Option<ActionName> {
        let groups = GROUPS.iter().map(|(name, _)| *name);
        ActionName::names().chain(groups).find(|name| *name == text).map(ActionName)
    }

    /// Its text.
    pub fn as_str(self) -> &'static str {
        self.0
    }

    /// The rights that it stands for.
    pub fn rights(self) -> Rights {
        if let Some((_, rights)) = GROUPS.iter().find(|(name, _)| *name == self.0) {
            return *rights;
        }
        let action = Action::ALL.iter().find(|action| action.as_str() == self.0);
        action.map_or(Rights::NONE, |action| Rights::of(&[*action]))
    }

    fn names() -> impl Iterator<Item = &'static str> {
        Action::ALL.iter().map(|action| action.as_str())
    }
}

impl fmt::Debug for ActionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Serialize for ActionName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0)
    }
}

impl<'de> Deserialize<'de> for ActionName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        ActionName::parse(&text).ok_or_else(|| D::Error::custom(format!("`{text}` is not the name of an action")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(name: &str) -> Rights {
        ActionName::parse(name).map(ActionName::rights).unwrap()
    }

    /// Every right can be given on its own, except editing by function, which only `*` gives.
    #[test]
    fn each_right_has_a_name_that_gives_it_alone() {
        for action in Action::ALL {
            let rights = rights(action.as_str());
            for other in Action::ALL {
                let expected = match action {
                    Action::DocumentsEdit => {
                        matches!(other, Action::DocumentsAdd | Action::DocumentsGet | Action::DocumentsDelete)
                    }
                    action => other == action,
                };
                assert_eq!(rights.contains(*other), expected, "{action:?} gives {other:?}");
            }
            assert!(Rights::EVERY.contains(*action));
        }
    }

    #[test]
    fn rights_over_documents_do_not_give_editing() {
        let three = rights("documents.add").union(rights("documents.get")).union(rights("documents.delete"));
        assert!(!three.contains(Action::DocumentsEdit) && !rights("documents.*").contains(Action::DocumentsEdit));
        assert!(rights("*").contains(Action::DocumentsEdit));
    }

    #[test]
    fn reading_everything_leaves_keys_and_chats_out() {
        let rights = rights("*.get");
        for action in [Action::KeysGet, Action::ChatCompletions, Action::DumpsCreate, Action::SnapshotsCreate] {
            assert!(!rights.contains(action));
        }
        for action in [Action::Search, Action::Export, Action::Version, Action::FieldsPost] {
            assert!(rights.contains(action));
        }
    }

    #[test]
    fn wildcards_are_names_and_not_patterns() {
        for name in ["keys.*", "experimental.*", "network.*", "search.*", "*.*", "doc*", "", "Search"] {
            assert_eq!(ActionName::parse(name), None, "{name}");
        }
    }

    #[test]
    fn both_families_of_feature_names_are_kept_apart_and_mean_the_same() {
        assert_eq!(ActionName::parse("experimental_features.update").unwrap().as_str(), "experimental_features.update");
        assert_eq!(rights("experimental_features.update"), rights("experimental.update"));
    }
}
