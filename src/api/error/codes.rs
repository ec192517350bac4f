//! Every error code of the interface with its HTTP status and its type.

/// The four kinds of errors that a client can tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request is at fault.
    InvalidRequest,
    /// The key is at fault.
    Auth,
    /// The server is at fault.
    Internal,
    /// The machine or another machine is at fault.
    System,
}

impl ErrorKind {
    /// The name that stands in an error object's `type`.
    pub fn name(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request",
            Self::Auth => "auth",
            Self::Internal => "internal",
            Self::System => "system",
        }
    }
}

/// Writes the enum and its three look-ups from one table: a status and a kind, then the codes that have them.
macro_rules! error_codes {
    ($($status:literal $kind:ident: $($variant:ident = $name:literal,)+)+) => {
        /// A code of the interface: what a client's program looks at. Status and type follow from it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorCode {
            $($(#[doc = concat!("`", $name, "`, status ", stringify!($status), ".")] $variant,)+)+
        }

        impl ErrorCode {
            /// All codes, in the order of the table.
            pub const ALL: &[Self] = &[$($(Self::$variant,)+)+];

            /// The code as clients see it, such as `invalid_index_uid`.
            pub fn name(self) -> &'static str {
                match self { $($(Self::$variant => $name,)+)+ }
            }

            /// The HTTP status of an answer with this code.
            pub fn status(self) -> u16 {
                match self { $($(Self::$variant)|+ => $status,)+ }
            }

            /// The `type` of an answer with this code.
            pub fn kind(self) -> ErrorKind {
                match self { $($(Self::$variant)|+ => ErrorKind::$kind,)+ }
            }

            /// The code of this name; `None` for a name that is no code.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($($name => Some(Self::$variant),)+)+ _ => None }
            }
        }
    };
}

error_codes! {
    400 InvalidRequest:
    BadParameter = "bad_parameter",
    BadRequest = "bad_request",
    DuplicateIndexFound = "duplicate_index_found",
    EditDocumentsByFunctionError = "edit_documents_by_function_error",
    FacetSearchDisabled = "facet_search_disabled",
    FeatureNotEnabled = "feature_not_enabled",
    ImmutableApiKeyActions = "immutable_api_key_actions",
    ImmutableApiKeyCreatedAt = "immutable_api_key_created_at",
    ImmutableApiKeyExpiresAt = "immutable_api_key_expires_at",
    ImmutableApiKeyIndexes = "immutable_api_key_indexes",
    ImmutableApiKeyKey = "immutable_api_key_key",
    ImmutableApiKeyUid = "immutable_api_key_uid",
    ImmutableApiKeyUpdatedAt = "immutable_api_key_updated_at",
    ImmutableIndexCreatedAt = "immutable_index_created_at",
    ImmutableIndexUpdatedAt = "immutable_index_updated_at",
    ImmutableWebhook = "immutable_webhook",
    ImmutableWebhookIsEditable = "immutable_webhook_is_editable",
    ImmutableWebhookUuid = "immutable_webhook_uuid",
    InconsistentDocumentChangeHeaders = "inconsistent_document_change_headers",
    IndexPrimaryKeyAlreadyExists = "index_primary_key_already_exists",
    IndexPrimaryKeyMultipleCandidatesFound = "index_primary_key_multiple_candidates_found",
    IndexPrimaryKeyNoCandidateFound = "index_primary_key_no_candidate_found",
    InvalidApiKeyActions = "invalid_api_key_actions",
    InvalidApiKeyDescription = "invalid_api_key_description",
    InvalidApiKeyExpiresAt = "invalid_api_key_expires_at",
    InvalidApiKeyIndexes = "invalid_api_key_indexes",
    InvalidApiKeyLimit = "invalid_api_key_limit",
    InvalidApiKeyName = "invalid_api_key_name",
    InvalidApiKeyOffset = "invalid_api_key_offset",
    InvalidApiKeyUid = "invalid_api_key_uid",
    InvalidBatchUids = "invalid_batch_uids",
    InvalidChatCompletionApiKey = "invalid_chat_completion_api_key",
    InvalidChatCompletionApiVersion = "invalid_chat_completion_api_version",
    InvalidChatCompletionBaseApi = "invalid_chat_completion_base_api",
    InvalidChatCompletionDeploymentId = "invalid_chat_completion_deployment_id",
    InvalidChatCompletionOrgId = "invalid_chat_completion_org_id",
    InvalidChatCompletionPreQueryPrompt = "invalid_chat_completion_pre_query_prompt",
    InvalidChatCompletionProjectId = "invalid_chat_completion_project_id",
    InvalidChatCompletionPrompts = "invalid_chat_completion_prompts",
    InvalidChatCompletionSearchDescriptionPrompt = "invalid_chat_completion_search_description_prompt",
    InvalidChatCompletionSearchFilterParamPrompt = "invalid_chat_completion_search_filter_param_prompt",
    InvalidChatCompletionSearchIndexUidParamPrompt = "invalid_chat_completion_search_index_uid_param_prompt",
    InvalidChatCompletionSearchQueryParamPrompt = "invalid_chat_completion_search_query_param_prompt",
    InvalidChatCompletionSource = "invalid_chat_completion_source",
    InvalidChatCompletionSystemPrompt = "invalid_chat_completion_system_prompt",
    InvalidChatSettingDocumentTemplate = "invalid_chat_setting_document_template",
    InvalidDocumentCsvDelimiter = "invalid_document_csv_delimiter",
    InvalidDocumentEditionContext = "invalid_document_edition_context",
    InvalidDocumentEditionFunctionFilter = "invalid_document_edition_function_filter",
    InvalidDocumentFields = "invalid_document_fields",
    InvalidDocumentFilter = "invalid_document_filter",
    InvalidDocumentGeoField = "invalid_document_geo_field",
    InvalidDocumentGeojsonField = "invalid_document_geojson_field",
    InvalidDocumentId = "invalid_document_id",
    InvalidDocumentIds = "invalid_document_ids",
    InvalidDocumentLimit = "invalid_document_limit",
    InvalidDocumentOffset = "invalid_document_offset",
    InvalidDocumentRetrieveVectors = "invalid_document_retrieve_vectors",
    InvalidDocumentSort = "invalid_document_sort",
    InvalidDynamicSearchRuleActions = "invalid_dynamic_search_rule_actions",
    InvalidDynamicSearchRuleActive = "invalid_dynamic_search_rule_active",
    InvalidDynamicSearchRuleConditions = "invalid_dynamic_search_rule_conditions",
    InvalidDynamicSearchRuleDescription = "invalid_dynamic_search_rule_description",
    InvalidDynamicSearchRuleFilter = "invalid_dynamic_search_rule_filter",
    InvalidDynamicSearchRuleFilterActive = "invalid_dynamic_search_rule_filter_active",
    InvalidDynamicSearchRuleFilterAttributePatterns = "invalid_dynamic_search_rule_filter_attribute_patterns",
    InvalidDynamicSearchRuleLimit = "invalid_dynamic_search_rule_limit",
    InvalidDynamicSearchRuleOffset = "invalid_dynamic_search_rule_offset",
    InvalidDynamicSearchRulePriority = "invalid_dynamic_search_rule_priority",
    InvalidExportApiKey = "invalid_export_api_key",
    InvalidExportIndexFilter = "invalid_export_index_filter",
    InvalidExportIndexOverrideSettings = "invalid_export_index_override_settings",
    InvalidExportIndexesPatterns = "invalid_export_indexes_patterns",
    InvalidExportPayloadSize = "invalid_export_payload_size",
    InvalidExportUrl = "invalid_export_url",
    InvalidFacetSearchExhaustiveFacetCount = "invalid_facet_search_exhaustive_facet_count",
    InvalidFacetSearchFacetName = "invalid_facet_search_facet_name",
    InvalidFacetSearchName = "invalid_facet_search_name",
    InvalidFacetSearchQuery = "invalid_facet_search_query",
    InvalidHeaderValue = "invalid_header_value",
    InvalidIndexCustomMetadata = "invalid_index_custom_metadata",
    InvalidIndexFieldsFilter = "invalid_index_fields_filter",
    InvalidIndexFieldsFilterAttributePatterns = "invalid_index_fields_filter_attribute_patterns",
    InvalidIndexFieldsFilterDisplayed = "invalid_index_fields_filter_displayed",
    InvalidIndexFieldsFilterDistinct = "invalid_index_fields_filter_distinct",
    InvalidIndexFieldsFilterFilterable = "invalid_index_fields_filter_filterable",
    InvalidIndexFieldsFilterRankingRule = "invalid_index_fields_filter_ranking_rule",
    InvalidIndexFieldsFilterSearchable = "invalid_index_fields_filter_searchable",
    InvalidIndexFieldsFilterSortable = "invalid_index_fields_filter_sortable",
    InvalidIndexLimit = "invalid_index_limit",
    InvalidIndexOffset = "invalid_index_offset",
    InvalidIndexPrimaryKey = "invalid_index_primary_key",
    InvalidIndexUid = "invalid_index_uid",
    InvalidMultiSearchDistinct = "invalid_multi_search_distinct",
    InvalidMultiSearchFacetOrder = "invalid_multi_search_facet_order",
    InvalidMultiSearchFacets = "invalid_multi_search_facets",
    InvalidMultiSearchFacetsByIndex = "invalid_multi_search_facets_by_index",
    InvalidMultiSearchFederated = "invalid_multi_search_federated",
    InvalidMultiSearchFederationOptions = "invalid_multi_search_federation_options",
    InvalidMultiSearchMaxValuesPerFacet = "invalid_multi_search_max_values_per_facet",
    InvalidMultiSearchMergeFacets = "invalid_multi_search_merge_facets",
    InvalidMultiSearchQueryFacets = "invalid_multi_search_query_facets",
    InvalidMultiSearchQueryPagination = "invalid_multi_search_query_pagination",
    InvalidMultiSearchQueryPersonalization = "invalid_multi_search_query_personalization",
    InvalidMultiSearchQueryPosition = "invalid_multi_search_query_position",
    InvalidMultiSearchQueryRankingRules = "invalid_multi_search_query_ranking_rules",
    InvalidMultiSearchQueryShowPerformanceDetails = "invalid_multi_search_query_show_performance_details",
    InvalidMultiSearchRemote = "invalid_multi_search_remote",
    InvalidMultiSearchWeight = "invalid_multi_search_weight",
    InvalidNetworkLeader = "invalid_network_leader",
    InvalidNetworkRemotes = "invalid_network_remotes",
    InvalidNetworkSearchApiKey = "invalid_network_search_api_key",
    InvalidNetworkSelf = "invalid_network_self",
    InvalidNetworkShards = "invalid_network_shards",
    InvalidNetworkUrl = "invalid_network_url",
    InvalidNetworkWriteApiKey = "invalid_network_write_api_key",
    InvalidSearchAttributesToCrop = "invalid_search_attributes_to_crop",
    InvalidSearchAttributesToHighlight = "invalid_search_attributes_to_highlight",
    InvalidSearchAttributesToRetrieve = "invalid_search_attributes_to_retrieve",
    InvalidSearchAttributesToSearchOn = "invalid_search_attributes_to_search_on",
    InvalidSearchCropLength = "invalid_search_crop_length",
    InvalidSearchCropMarker = "invalid_search_crop_marker",
    InvalidSearchDistinct = "invalid_search_distinct",
    InvalidSearchEmbedder = "invalid_search_embedder",
    InvalidSearchFacets = "invalid_search_facets",
    InvalidSearchFilter = "invalid_search_filter",
    InvalidSearchHighlightPostTag = "invalid_search_highlight_post_tag",
    InvalidSearchHighlightPreTag = "invalid_search_highlight_pre_tag",
    InvalidSearchHitsPerPage = "invalid_search_hits_per_page",
    InvalidSearchHybridQuery = "invalid_search_hybrid_query",
    InvalidSearchLimit = "invalid_search_limit",
    InvalidSearchLocales = "invalid_search_locales",
    InvalidSearchMatchingStrategy = "invalid_search_matching_strategy",
    InvalidSearchMedia = "invalid_search_media",
    InvalidSearchMediaAndVector = "invalid_search_media_and_vector",
    InvalidSearchOffset = "invalid_search_offset",
    InvalidSearchPage = "invalid_search_page",
    InvalidSearchPersonalize = "invalid_search_personalize",
    InvalidSearchPersonalizeUserContext = "invalid_search_personalize_user_context",
    InvalidSearchQ = "invalid_search_q",
    InvalidSearchRankingScoreThreshold = "invalid_search_ranking_score_threshold",
    InvalidSearchRetrieveVectors = "invalid_search_retrieve_vectors",
    InvalidSearchSemanticRatio = "invalid_search_semantic_ratio",
    InvalidSearchShowMatchesPosition = "invalid_search_show_matches_position",
    InvalidSearchShowPerformanceDetails = "invalid_search_show_performance_details",
    InvalidSearchShowRankingScore = "invalid_search_show_ranking_score",
    InvalidSearchShowRankingScoreDetails = "invalid_search_show_ranking_score_details",
    InvalidSearchSort = "invalid_search_sort",
    InvalidSearchUseNetwork = "invalid_search_use_network",
    InvalidSearchVector = "invalid_search_vector",
    InvalidSettingsDictionary = "invalid_settings_dictionary",
    InvalidSettingsDisplayedAttributes = "invalid_settings_displayed_attributes",
    InvalidSettingsDistinctAttribute = "invalid_settings_distinct_attribute",
    InvalidSettingsEmbedders = "invalid_settings_embedders",
    InvalidSettingsFacetSearch = "invalid_settings_facet_search",
    InvalidSettingsFaceting = "invalid_settings_faceting",
    InvalidSettingsFilterableAttributes = "invalid_settings_filterable_attributes",
    InvalidSettingsForeignKeys = "invalid_settings_foreign_keys",
    InvalidSettingsIndexChat = "invalid_settings_index_chat",
    InvalidSettingsLocalizedAttributes = "invalid_settings_localized_attributes",
    InvalidSettingsNonSeparatorTokens = "invalid_settings_non_separator_tokens",
    InvalidSettingsPagination = "invalid_settings_pagination",
    InvalidSettingsPrefixSearch = "invalid_settings_prefix_search",
    InvalidSettingsProximityPrecision = "invalid_settings_proximity_precision",
    InvalidSettingsRankingRules = "invalid_settings_ranking_rules",
    InvalidSettingsSearchCutoffMs = "invalid_settings_search_cutoff_ms",
    InvalidSettingsSearchableAttributes = "invalid_settings_searchable_attributes",
    InvalidSettingsSeparatorTokens = "invalid_settings_separator_tokens",
    InvalidSettingsSortableAttributes = "invalid_settings_sortable_attributes",
    InvalidSettingsStopWords = "invalid_settings_stop_words",
    InvalidSettingsSynonyms = "invalid_settings_synonyms",
    InvalidSettingsTypoTolerance = "invalid_settings_typo_tolerance",
    InvalidSimilarAttributesToRetrieve = "invalid_similar_attributes_to_retrieve",
    InvalidSimilarEmbedder = "invalid_similar_embedder",
    InvalidSimilarFilter = "invalid_similar_filter",
    InvalidSimilarId = "invalid_similar_id",
    InvalidSimilarLimit = "invalid_similar_limit",
    InvalidSimilarOffset = "invalid_similar_offset",
    InvalidSimilarRankingScoreThreshold = "invalid_similar_ranking_score_threshold",
    InvalidSimilarRetrieveVectors = "invalid_similar_retrieve_vectors",
    InvalidSimilarShowPerformanceDetails = "invalid_similar_show_performance_details",
    InvalidSimilarShowRankingScore = "invalid_similar_show_ranking_score",
    InvalidSimilarShowRankingScoreDetails = "invalid_similar_show_ranking_score_details",
    InvalidSkipCreation = "invalid_skip_creation",
    InvalidSwapDuplicateIndexFound = "invalid_swap_duplicate_index_found",
    InvalidSwapIndexes = "invalid_swap_indexes",
    InvalidSwapRename = "invalid_swap_rename",
    InvalidTaskAfterEnqueuedAt = "invalid_task_after_enqueued_at",
    InvalidTaskAfterFinishedAt = "invalid_task_after_finished_at",
    InvalidTaskAfterStartedAt = "invalid_task_after_started_at",
    InvalidTaskBeforeEnqueuedAt = "invalid_task_before_enqueued_at",
    InvalidTaskBeforeFinishedAt = "invalid_task_before_finished_at",
    InvalidTaskBeforeStartedAt = "invalid_task_before_started_at",
    InvalidTaskCanceledBy = "invalid_task_canceled_by",
    InvalidTaskFrom = "invalid_task_from",
    InvalidTaskLimit = "invalid_task_limit",
    InvalidTaskReverse = "invalid_task_reverse",
    InvalidTaskStatuses = "invalid_task_statuses",
    InvalidTaskTypes = "invalid_task_types",
    InvalidTaskUids = "invalid_task_uids",
    InvalidVectorDimensions = "invalid_vector_dimensions",
    InvalidVectorsType = "invalid_vectors_type",
    InvalidWebhookHeaders = "invalid_webhook_headers",
    InvalidWebhookUrl = "invalid_webhook_url",
    InvalidWebhookUuid = "invalid_webhook_uuid",
    InvalidWebhooks = "invalid_webhooks",
    MalformedPayload = "malformed_payload",
    MaxFieldsLimitExceeded = "max_fields_limit_exceeded",
    MissingApiKeyActions = "missing_api_key_actions",
    MissingApiKeyExpiresAt = "missing_api_key_expires_at",
    MissingApiKeyIndexes = "missing_api_key_indexes",
    MissingDocumentEditionFunction = "missing_document_edition_function",
    MissingDocumentFilter = "missing_document_filter",
    MissingDocumentId = "missing_document_id",
    MissingFacetSearchFacetName = "missing_facet_search_facet_name",
    MissingIndexUid = "missing_index_uid",
    MissingNetworkUrl = "missing_network_url",
    MissingPayload = "missing_payload",
    MissingSearchHybrid = "missing_search_hybrid",
    MissingSwapIndexes = "missing_swap_indexes",
    MissingTaskFilters = "missing_task_filters",
    NetworkVersionTooOld = "network_version_too_old",
    NotFoundSimilarId = "not_found_similar_id",
    NotLeader = "not_leader",
    RemoteBadRequest = "remote_bad_request",
    TooManyVectors = "too_many_vectors",
    UnexpectedNetworkPreviousRemotes = "unexpected_network_previous_remotes",
    UnprocessedNetworkTask = "unprocessed_network_task",
    UnretrievableErrorCode = "unretrievable_error_code",
    VectorEmbeddingError = "vector_embedding_error",
    400 Internal:
    InvalidS3SnapshotParameters = "invalid_s3_snapshot_parameters",
    InvalidS3SnapshotRequest = "invalid_s3_snapshot_request",
    UnretrievableDocument = "unretrievable_document",
    401 Auth:
    MissingAuthorizationHeader = "missing_authorization_header",
    MissingMasterKey = "missing_master_key",
    403 Auth:
    InvalidApiKey = "invalid_api_key",
    RemoteInvalidApiKey = "remote_invalid_api_key",
    404 InvalidRequest:
    ApiKeyNotFound = "api_key_not_found",
    BatchNotFound = "batch_not_found",
    ChatNotFound = "chat_not_found",
    DocumentNotFound = "document_not_found",
    DumpNotFound = "dump_not_found",
    DynamicSearchRuleNotFound = "dynamic_search_rule_not_found",
    IndexNotFound = "index_not_found",
    TaskFileNotFound = "task_file_not_found",
    TaskNotFound = "task_not_found",
    WebhookNotFound = "webhook_not_found",
    409 InvalidRequest:
    ApiKeyAlreadyExists = "api_key_already_exists",
    DumpAlreadyProcessing = "dump_already_processing",
    IndexAlreadyExists = "index_already_exists",
    412 InvalidRequest:
    ImportTaskAlreadyReceived = "import_task_already_received",
    ImportTaskUnknownRemote = "import_task_unknown_remote",
    NetworkVersionMismatch = "network_version_mismatch",
    ReceiveImportFinishedUnknownRemote = "receive_import_finished_unknown_remote",
    413 InvalidRequest:
    PayloadTooLarge = "payload_too_large",
    415 InvalidRequest:
    InvalidContentType = "invalid_content_type",
    MissingContentType = "missing_content_type",
    UnsupportedMediaType = "unsupported_media_type",
    422 System:
    IoError = "io_error",
    NoSpaceLeftOnDevice = "no_space_left_on_device",
    TooManyOpenFiles = "too_many_open_files",
    451 InvalidRequest:
    RequiresEnterpriseEdition = "requires_enterprise_edition",
    500 Internal:
    DatabaseSizeLimitReached = "database_size_limit_reached",
    DumpProcessFailed = "dump_process_failed",
    IndexCreationFailed = "index_creation_failed",
    Internal = "internal",
    InvalidState = "invalid_state",
    InvalidStoreFile = "invalid_store_file",
    501 InvalidRequest:
    UnimplementedExternalFunctionCalling = "unimplemented_external_function_calling",
    UnimplementedMultiChoiceChatCompletions = "unimplemented_multi_choice_chat_completions",
    UnimplementedNonStreamingChatCompletions = "unimplemented_non_streaming_chat_completions",
    502 Internal:
    S3SnapshotServerError = "s3_snapshot_server_error",
    502 System:
    RemoteBadResponse = "remote_bad_response",
    RemoteCouldNotSendRequest = "remote_could_not_send_request",
    RemoteRemoteError = "remote_remote_error",
    RemoteTimeout = "remote_timeout",
    503 InvalidRequest:
    ImportTaskWithoutNetworkTask = "import_task_without_network_task",
    503 System:
    TooManySearchRequests = "too_many_search_requests",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_codes() {
        assert_eq!(ErrorCode::ALL.len(), 278);
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_name(code.name()), Some(*code));
        }
        assert_eq!(ErrorCode::from_name("no_such_code"), None);
    }

    #[test]
    fn exceptions_have_their_status_and_type() {
        let of = |code: ErrorCode| (code.status(), code.kind());
        assert_eq!(of(ErrorCode::InvalidIndexUid), (400, ErrorKind::InvalidRequest));
        assert_eq!(of(ErrorCode::UnretrievableDocument), (400, ErrorKind::Internal));
        assert_eq!(of(ErrorCode::MissingMasterKey), (401, ErrorKind::Auth));
        assert_eq!(of(ErrorCode::TooManySearchRequests), (503, ErrorKind::System));
        assert_eq!(of(ErrorCode::ImportTaskWithoutNetworkTask), (503, ErrorKind::InvalidRequest));
        assert_eq!(of(ErrorCode::S3SnapshotServerError), (502, ErrorKind::Internal));
    }
}
