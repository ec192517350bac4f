//! Switches for experimental features.

use serde::{Deserialize, Serialize};

/// Writes the struct, the names in the interface's order, and the access by name from one list.
macro_rules! features {
    ($($(#[doc = $doc:literal])+ $field:ident = $name:literal,)+) => {
        /// Which features are on. As JSON: the interface's object of all of them.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Features {
            $($(#[doc = $doc])+ #[serde(rename = $name)] pub $field: bool,)+
        }

        impl Features {
            /// The interface's names, in its order.
            pub const NAMES: &[&str] = &[$($name,)+];

            /// The switch of this name.
            pub fn switch(&mut self, name: &str) -> Option<&mut bool> {
                match name { $($name => Some(&mut self.$field),)+ _ => None }
            }

            /// On where either is.
            pub fn or(self, other: Self) -> Self {
                Self { $($field: self.$field || other.$field,)+ }
            }
        }
    };
}

features! {
    /// `GET /metrics`.
    metrics = "metrics",
    /// The routes under `/logs`.
    logs_route = "logsRoute",
    /// Editing documents by a function.
    edit_documents_by_function = "editDocumentsByFunction",
    /// `CONTAINS` and `STARTS WITH` in filters.
    contains_filter = "containsFilter",
    /// The routes under `/dynamic-search-rules`.
    dynamic_search_rules = "dynamicSearchRules",
    /// Searches over several instances.
    network = "network",
    /// `GET /tasks/{uid}/documents`.
    get_task_documents_route = "getTaskDocumentsRoute",
    /// `POST /tasks/compact`.
    task_queue_compaction_route = "taskQueueCompactionRoute",
    /// Embedders for indexing and searching apart.
    composite_embedders = "compositeEmbedders",
    /// The routes under `/chats`.
    chat_completions = "chatCompletions",
    /// Embedders of pictures and fragments.
    multimodal = "multimodal",
    /// Documents of other indexes in hits.
    foreign_keys = "foreignKeys",
}

/// Which switches are to be set, by the interface's names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeaturesPatch(pub Vec<(&'static str, bool)>);

impl Features {
    /// The interface's name that this text is.
    pub fn named(text: &str) -> Option<&'static str> {
        Self::NAMES.iter().copied().find(|name| *name == text)
    }
}

impl FeaturesPatch {
    /// The switches with these set.
    pub fn applied(&self, mut features: Features) -> Features {
        for (name, is_on) in &self.0 {
            if let Some(switch) = features.switch(name) {
                *switch = *is_on;
            }
        }
        features
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_its_switch() {
        let mut features = Features::default();
        for name in Features::NAMES {
            *features.switch(name).unwrap() = true;
        }
        let object = serde_json::to_value(features).unwrap();
        let names: Vec<&str> = object.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(names, Features::NAMES);
        assert!(object.as_object().unwrap().values().all(|value| value == true));
        assert!(features.switch("metric").is_none());
        let other = Features { metrics: true, ..Features::default() };
        assert_eq!(Features::default().or(other), other);
    }
}
