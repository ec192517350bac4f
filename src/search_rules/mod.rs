//! Dynamic search rules: documents pinned to fixed positions of a result while certain conditions hold.
//!
//! They are part of the control plane's state, durable and known to every core. A search calls [`SearchRules::pins`] to learn
//! which documents to pin; the engine finds and places them.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use shards::error::UserError;
use shards::search::Pin;
use time::OffsetDateTime;
use unicode_normalization::UnicodeNormalization;

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchRule {
    /// Its name.
    pub uid: String,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Smaller is stronger; none is weakest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u64>,
    /// Whether it is looked at.
    pub active: bool,
    /// All must hold.
    pub conditions: Vec<Condition>,
    /// What it does; never empty.
    pub actions: Vec<PinAction>,
}

/// What must hold for a rule to apply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Condition {
    /// The search has no text but blanks, or (false) has some.
    QueryIsEmpty(bool),
    /// The search's text contains this.
    QueryContains(Needle),
    /// It is a time between these, both included.
    Time {
        /// Not before.
        #[serde(default, with = "time::serde::rfc3339::option")]
        start: Option<OffsetDateTime>,
        /// Not after.
        #[serde(default, with = "time::serde::rfc3339::option")]
        end: Option<OffsetDateTime>,
    },
}

/// A text that is looked for in queries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Needle {
    text: String,
    /// Decomposed and in lower case. Queries are not decomposed, so that accents composed there never match: that is the
    /// interface.
    compared: String,
}

/// Puts a document at a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PinAction {
    /// The only index that it is for; `None`: every index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index_uid: Option<String>,
    /// The document's id; without it the action does nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The place, from 0.
    pub position: u32,
}

/// All rules of the instance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SearchRules {
    by_uid: BTreeMap<String, Arc<SearchRule>>,
    /// Those that are active, strongest first.
    strongest_first: Vec<Arc<SearchRule>>,
}

/// A change of the rules.
#[derive(Clone, Debug)]
pub enum SearchRuleChange {
    /// Make or change one; `invalid_dynamic_search_rule_actions` for a new one without actions.
    Patch(String, SearchRulePatch),
    /// Take one away; `dynamic_search_rule_not_found`.
    Delete(String),
}

/// What is to be different about a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchRulePatch {
    /// `Some(None)` takes it away.
    pub description: Option<Option<String>>,
    /// `Some(None)` takes it away.
    pub priority: Option<Option<u64>>,
    /// Whether it is looked at.
    pub active: Option<bool>,
    /// All conditions.
    pub conditions: Option<Vec<Condition>>,
    /// All actions; not empty.
    pub actions: Option<Vec<PinAction>>,
}

/// The error for a rule that is not there.
pub fn search_rule_not_found(uid: &str) -> UserError {
    UserError::new("dynamic_search_rule_not_found", format!("Dynamic search rule `{uid}` not found."))
}

impl Needle {
    /// The text as it was given.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl From<String> for Needle {
    fn from(text: String) -> Self {
        let compared = text.nfkd().collect::<String>().to_lowercase();
        Self { text, compared }
    }
}

impl From<Needle> for String {
    fn from(needle: Needle) -> Self {
        needle.text
    }
}

impl Condition {
    /// `query` is in lower case; `None` for a search without one.
    fn holds(&self, query: Option<&str>, now: OffsetDateTime) -> bool {
        match self {
            Self::QueryIsEmpty(wanted) => query.is_none_or(|query| query.trim().is_empty()) == *wanted,
            Self::QueryContains(needle) => query.is_some_and(|query| query.contains(&needle.compared)),
            Self::Time { start, end } => start.is_none_or(|start| start <= now) && end.is_none_or(|end| now <= end),
        }
    }
}

impl SearchRule {
    /// Stronger rules come first; of equals the one whose name does.
    fn strength(&self, other: &Self) -> Ordering {
        let priority = |rule: &Self| (rule.priority.is_none(), rule.priority);
        priority(self).cmp(&priority(other)).then_with(|| self.uid.cmp(&other.uid))
    }

    /// The priority as a number that grows as strength falls.
    fn weakness(&self) -> u64 {
        self.priority.unwrap_or(u64::MAX)
    }
}

impl SearchRules {
    /// The rule of this name.
    pub fn get(&self, uid: &str) -> Option<&SearchRule> {
        self.by_uid.get(uid).map(|rule| &**rule)
    }

    /// All rules in the order of their names' bytes.
    pub fn iter(&self) -> impl Iterator<Item = &SearchRule> {
        self.by_uid.values().map(|rule| &**rule)
    }

    /// Puts a rule in, in place of the one of its name.
    pub fn insert(&mut self, rule: SearchRule) {
        self.by_uid.insert(rule.uid.clone(), Arc::new(rule));
        self.sort();
    }

    fn sort(&mut self) {
        self.strongest_first = self.by_uid.values().filter(|rule| rule.active).cloned().collect();
        self.strongest_first.sort_by(|left, right| left.strength(right));
    }

    /// The documents that a search of index `index_uid` has to place, strongest first; no document twice.
    pub fn pins(&self, index_uid: &str, query: Option<&str>, now: OffsetDateTime) -> Vec<Pin> {
        if self.strongest_first.is_empty() {
            return Vec::new();
        }
        let query = query.map(str::to_lowercase);
        let mut pins = Vec::new();
        let mut pinned: BTreeSet<&str> = BTreeSet::new();
        let applies =
            |rule: &&Arc<SearchRule>| rule.conditions.iter().all(|condition| condition.holds(query.as_deref(), now));
        for rule in self.strongest_first.iter().filter(applies) {
            for action in &rule.actions {
                let is_meant = action.index_uid.as_deref().is_none_or(|uid| uid == index_uid);
                if let Some(id) = action.id.as_deref().filter(|_| is_meant)
                    && pinned.insert(id)
                {
                    pins.push(Pin { id: id.to_owned(), position: action.position, priority: rule.weakness() });
                }
            }
        }
        pins
    }
}

impl SearchRuleChange {
    /// Makes the change: which rule is different now, and how; `None` when it is gone.
    ///
    /// # Errors
    /// As named at the variants; nothing has changed then.
    pub fn apply(self, rules: &mut SearchRules) -> Result<(String, Option<SearchRule>), UserError> {
        match self {
            Self::Patch(uid, patch) => {
                let rule = patch.applied(rules.get(&uid), &uid)?;
                rules.insert(rule.clone());
                Ok((uid, Some(rule)))
            }
            Self::Delete(uid) => {
                rules.by_uid.remove(&uid).ok_or_else(|| search_rule_not_found(&uid))?;
                rules.sort();
                Ok((uid, None))
            }
        }
    }
}

impl SearchRulePatch {
    fn applied(self, old: Option<&SearchRule>, uid: &str) -> Result<SearchRule, UserError> {
        let mut rule = old.cloned().unwrap_or_else(|| SearchRule {
            uid: uid.to_owned(),
            description: None,
            priority: None,
            active: true,
            conditions: Vec::new(),
            actions: Vec::new(),
        });
        rule.description = self.description.unwrap_or(rule.description);
        rule.priority = self.priority.unwrap_or(rule.priority);
        rule.active = self.active.unwrap_or(rule.active);
        rule.conditions = self.conditions.unwrap_or(rule.conditions);
        rule.actions = self.actions.unwrap_or(rule.actions);
        if rule.actions.is_empty() {
            let message = "A dynamic search rule needs at least one action in `actions`.";
            return Err(UserError::new("invalid_dynamic_search_rule_actions", message));
        }
        Ok(rule)
    }
}

#[cfg(test)]
mod tests;
