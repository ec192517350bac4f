//! The part of a federated search that runs on the core that owns a partition.

use super::values::values_at;
use crate::ids::LocalDocId;
use crate::runtime::pause;
use crate::search::answer::SearchError;
use crate::search::messages::PartReply;
use crate::search::part::{Pacer, SearchPartition};

/// The values of documents at paths, in the order given.
pub(in crate::search) async fn values(
    partition: &dyn SearchPartition,
    paths: &[String],
    docs: &[LocalDocId],
    pacer: &dyn Pacer,
) -> Result<PartReply, SearchError> {
    let mut found = Vec::with_capacity(docs.len());
    for doc in docs {
        let mut of_document = Vec::with_capacity(paths.len());
        let names = partition.fields();
        partition
            .with_record(*doc, &mut |fields| {
                for path in paths {
                    let fields = fields.iter().map(|(field, json)| (names.name(*field).unwrap_or_default(), *json));
                    of_document.push(values_at(fields, path));
                }
            })
            .map_err(SearchError::Partition)?;
        found.push(of_document);
        pause(pacer).await;
    }
    Ok(PartReply::Values(found))
}
