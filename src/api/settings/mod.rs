//! The settings of an index as clients write and read them: one table with a row per setting.
//!
//! A change goes through three steps. [`SettingsPatch::decode`] and its siblings check what the body alone can show and convert
//! it to the canonical form that task details show. [`SettingsPatch::check_meaning`] checks experimental features and
//! combinations of values. [`SettingsPatch::apply`] runs in the task: it merges the change into the index's settings and rejects
//! what only the merged settings can show.

mod apply;
mod check;
mod embedders;
pub mod locales;
pub(crate) mod mask;
mod patch;
pub mod routes;
mod show;
mod words;

use serde_json::Value;
use shards::error::UserError;
use shards::settings::Settings;

pub use patch::{GatedFeatures, SettingsPatch};
pub use show::{chat as chat_settings, export_all, show_all, show_one};

use crate::api::decode::Node;
use crate::api::error::{ApiError, ErrorCode};

/// The document template of embedders and chats that are given none.
pub const DEFAULT_TEMPLATE: &str = "{% for field in fields %}{% if field.is_searchable and field.value != nil %}\
     {{ field.name }}: {{ field.value }}\n{% endif %}{% endfor %}";

/// The size in bytes that goes with a document template.
pub const DEFAULT_TEMPLATE_BYTES: u64 = 400;

/// The verb with which a setting's own route changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// The value is replaced.
    Put,
    /// The object is merged.
    Patch,
}

/// One setting: how it is named, checked, stored and shown.
pub struct Setting {
    /// Its key in the whole.
    pub key: &'static str,
    /// The last segment of its own route.
    pub route: &'static str,
    /// The whole of it, as the router reads it.
    pub pattern: &'static str,
    /// The verb of that route.
    pub verb: Verb,
    /// The code of a value that will not do.
    pub code: ErrorCode,
    /// Brings a value that is not null into canonical form.
    check: fn(&Node<'_>, ErrorCode) -> Result<Value, ApiError>,
    /// Puts a canonical value, or null for the default, into the settings.
    apply: fn(&mut Settings, &Value) -> Result<(), UserError>,
    /// The stored value as clients read it.
    show: fn(&Settings) -> Value,
}

impl Setting {
    /// The setting with this route segment, such as `stop-words`.
    pub fn of_route(segment: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| setting.route == segment)
    }

    /// The setting with this name in a body, such as `stopWords`.
    pub fn of_key(key: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| setting.key == key)
    }
}

/// Every setting, in the order in which `GET /settings` lists them.
pub const SETTINGS: &[Setting] = &[
    Setting {
        key: "displayedAttributes",
        route: "displayed-attributes",
        pattern: "/indexes/{uid}/settings/displayed-attributes",
        verb: Verb::Put,
        code: ErrorCode::InvalidSettingsDisplayedAttributes,
        check: check::strings,
        apply: apply::displayed_attributes,
        show: |settings| settings.displayed_attributes.clone().into(),
    },
    Setting {
        key: "searchableAttributes",
        route: "searchable-attributes",
        pattern: "/indexes/{uid}/settings/searchable-attributes",
        verb: Verb::Put,
        code: ErrorCode::InvalidSettingsSearchableAttributes,
        check: check::strings,
        apply: apply::searchable_attributes,
        show: |settings| settings.searchable_attributes.clone().into(),
    },
    Setting {
        key: "filterableAttributes",
        route: "filterable-attributes",
        pattern: "/indexes/{uid}/settings/filterable-attributes",
        verb: Verb::Put,
        code: ErrorCode::InvalidSettingsFilterableAttributes,
        check: check::filterable_attributes,
        apply: |settings, value| apply::whole(&mut settings.filterable_attributes, value),
        show: |settings| show::json(&settings.filterable_attributes),
    },
    Setting {
        key: "sortableAttributes",
        route: "sortable-attributes",
        pattern: "/indexes/{uid}/settings/sortable-attributes",
        verb: Verb::Put,
        code: ErrorCode::InvalidSettingsSortableAttributes,
        check: check::string_set,
        apply: |settings, value| apply::whole(&mut settings.sortable_attributes, value),
        show: |settings| show::json(&settings.sortable_attributes),
    },
    Setting {
        key: "foreignKeys",
        route: "foreign-keys",
        pattern: "/indexes/{uid}/settings/foreign-keys",
        verb: Verb::Put,
        code: ErrorCode::InvalidSettingsForeignKeys,
        check: check::foreign_keys,
        apply: |settings, value| apply::whole(&mut settings.foreign_keys, value),
        show: |settings| show::json(&settings.foreign_keys),
    },
    Setting {
        key: "rankingRules",
        route: "ranking-rules",
        pattern: "/indexes/{uid}/settings/ranking-rules",
        verb: Verb::Put,
        code: ErrorCode::InvalidSettingsRankingRules,
        check: check::ranking_rules,
        apply: apply::ranking_rules,
        show: |settings| settings.ranking_rules.clone().into(),
    },
    Setting {
        key: "stopWords",
        route: "stop-words",
        pattern: "/indexes/{uid}/settings/stop-words",
        verb: Verb::Put,
        code: ErrorCode::InvalidSettingsStopWords,
        check: check::string_set,
        apply: apply::stop_words,
        show: |settings| show::json(&settings.stop_words),
    },
    Setting {
        key: "nonSeparatorTokens",
        route: "non-separator-tokens",
        pattern: "/indexes/{uid}/settings/non-separator-tokens",
        verb: Verb::Put,
        code: ErrorCode::InvalidSettingsNonSeparatorTokens,
        check: check::string_set,
        apply: |settings, value| apply::whole(&mut settings.non_separator_tokens, value),
        show: |settings| show::json(&settings.non_separator_tokens),
    },
    Setting {
        key: "separatorTokens",
        route: "separator-tokens",
        pattern: "/indexes/{uid}/settings/separator-tokens",
        verb: Verb::Put,
        code: ErrorCode::InvalidSettingsSeparatorTokens,
        check: check::string_set,
        apply: |settings, value| apply::whole(&mut settings.separator_tokens, value),
        show: |settings| show::json(&settings.separator_tokens),
    },
    Setting {
        key: "dictionary",
        route: "dictionary",
        pattern: "/indexes/{uid}/settings/dictionary",
        verb: Verb::Put,
        code: ErrorCode::InvalidSettingsDictionary,
        check: check::string_set,
        apply: |settings, value| apply::whole(&mut settings.dictionary, value),
        show: |settings| show::json(&settings.dictionary),
    },
    Setting {
        key: "synonyms",
        route: "synonyms",
        pattern: "/indexes/{uid}/settings/synonyms",
        verb: Verb::Put,
        code: ErrorCode::InvalidSettingsSynonyms,
        check: check::synonyms,
        apply: apply::synonyms,
        show: |settings| show::json(&settings.synonyms),
    },
    Setting {
        key: "distinctAttribute",
        route: "distinct-attribute",
        pattern: "/indexes/{uid}/settings/distinct-attribute",
        verb: Verb::Put,
        code: ErrorCode::InvalidSettingsDistinctAttribute,
        check: check::string,
        apply: |settings, value| apply::whole(&mut settings.distinct_attribute, value),
        show: |settings| settings.distinct_attribute.clone().into(),
    },
    Setting {
        key: "proximityPrecision",
        route: "proximity-precision",
        pattern: "/indexes/{uid}/settings/proximity-precision",
        verb: Verb::Put,
        code: ErrorCode::InvalidSettingsProximityPrecision,
        check: |node, code| check::one_of(node, &["byWord", "byAttribute"], code),
        apply: |settings, value| apply::whole(&mut settings.proximity_precision, value),
        show: |settings| show::json(&settings.proximity_precision),
    },
    Setting {
        key: "typoTolerance",
        route: "typo-tolerance",
        pattern: "/indexes/{uid}/settings/typo-tolerance",
        verb: Verb::Patch,
        code: ErrorCode::InvalidSettingsTypoTolerance,
        check: check::typo_tolerance,
        apply: apply::typo_tolerance,
        show: |settings| show::json(&settings.typo_tolerance),
    },
    Setting {
        key: "faceting",
        route: "faceting",
        pattern: "/indexes/{uid}/settings/faceting",
        verb: Verb::Patch,
        code: ErrorCode::InvalidSettingsFaceting,
        check: check::faceting,
        apply: apply::faceting,
        show: |settings| show::json(&settings.faceting),
    },
    Setting {
        key: "pagination",
        route: "pagination",
        pattern: "/indexes/{uid}/settings/pagination",
        verb: Verb::Patch,
        code: ErrorCode::InvalidSettingsPagination,
        check: check::pagination,
        apply: |settings, value| apply::merged(&mut settings.pagination, value),
        show: |settings| show::json(&settings.pagination),
    },
    Setting {
        key: "embedders",
        route: "embedders",
        pattern: "/indexes/{uid}/settings/embedders",
        verb: Verb::Patch,
        code: ErrorCode::InvalidSettingsEmbedders,
        check: embedders::check,
        apply: embedders::apply,
        show: show::embedders,
    },
    Setting {
        key: "searchCutoffMs",
        route: "search-cutoff-ms",
        pattern: "/indexes/{uid}/settings/search-cutoff-ms",
        verb: Verb::Put,
        code: ErrorCode::InvalidSettingsSearchCutoffMs,
        check: |node, code| node.u64(code).map(Value::from),
        apply: |settings, value| apply::whole(&mut settings.search_cutoff_ms, value),
        show: |settings| settings.search_cutoff_ms.into(),
    },
    Setting {
        key: "localizedAttributes",
        route: "localized-attributes",
        pattern: "/indexes/{uid}/settings/localized-attributes",
        verb: Verb::Put,
        code: ErrorCode::InvalidSettingsLocalizedAttributes,
        check: check::localized_attributes,
        apply: apply::localized_attributes,
        show: |settings| show::json(&settings.localized_attributes),
    },
    Setting {
        key: "facetSearch",
        route: "facet-search",
        pattern: "/indexes/{uid}/settings/facet-search",
        verb: Verb::Put,
        code: ErrorCode::InvalidSettingsFacetSearch,
        check: |node, code| node.boolean(code).map(Value::from),
        apply: |settings, value| {
            settings.facet_search = value.as_bool().unwrap_or(true);
            Ok(())
        },
        show: |settings| settings.facet_search.into(),
    },
    Setting {
        key: "prefixSearch",
        route: "prefix-search",
        pattern: "/indexes/{uid}/settings/prefix-search",
        verb: Verb::Put,
        code: ErrorCode::InvalidSettingsPrefixSearch,
        check: |node, code| check::one_of(node, &["indexingTime", "disabled"], code),
        apply: |settings, value| apply::whole(&mut settings.prefix_search, value),
        show: |settings| show::json(&settings.prefix_search),
    },
    Setting {
        key: "chat",
        route: "chat",
        pattern: "/indexes/{uid}/settings/chat",
        verb: Verb::Patch,
        code: ErrorCode::InvalidSettingsIndexChat,
        check: check::chat,
        apply: apply::chat,
        show: show::chat,
    },
];
