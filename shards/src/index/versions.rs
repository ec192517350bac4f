//! Several versions of one document in a single request, and how they combine.
//!
//! A later version replaces an earlier one, or its fields replace the earlier one's fields. `_vectors` is treated like any other
//! field and validated in the resulting document: once a later version replaces an earlier one's `_vectors`, the earlier value no
//! longer counts, not even if it was invalid.

use std::collections::BTreeMap;

use roaring::RoaringBitmap;

use super::plan::{Change, stored};
use crate::document::record::{Record, put_merged, put_record};
use crate::engine::Method;
use crate::error::UserError;
use crate::ids::FieldId;
use crate::partition::PartitionError;
use crate::runtime::{Checkpoint, Runtime};
use crate::segments::{Pieces, Segments};

/// Wrong versions that are kept in mind; a request with more of them is refused whatever comes later.
const FAULTS_MAX: usize = 1000;

/// The documents of an addition: their ids and what becomes of them.
pub(super) type Admitted = Segments<(String, Change)>;

/// What is known of the versions of a request, by their places in it.
#[derive(Default)]
pub(super) struct Versions {
    /// Those that have `_vectors`.
    with_vectors: RoaringBitmap,
    /// Those whose `_vectors` are wrong, and why.
    faults: BTreeMap<u32, UserError>,
}

impl Versions {
    /// Notes that a version has `_vectors`, and what is wrong with them.
    ///
    /// # Errors
    /// The first of more faults than are kept in mind.
    pub fn note(&mut self, at: usize, fault: Option<UserError>) -> Result<(), UserError> {
        self.with_vectors.insert(at as u32);
        let Some(fault) = fault else { return Ok(()) };
        self.faults.insert(at as u32, fault);
        match self.faults.pop_first() {
            Some((_, first)) if self.faults.len() >= FAULTS_MAX => Err(first),
            Some((at, first)) => {
                self.faults.insert(at, first);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// One change for each document, in the order in which the documents come first. Versions without `_vectors` all over are left
    /// for the batch, which puts them on top of each other. `field` is that of `_vectors`.
    ///
    /// # Errors
    /// What is wrong with a document.
    pub async fn settle(
        mut self,
        found: Admitted,
        method: Method,
        (records, field): (&mut Pieces, Option<FieldId>),
        runtime: &dyn Runtime,
    ) -> Result<Result<Admitted, UserError>, PartitionError> {
        if self.with_vectors.is_empty() {
            return Ok(Ok(found));
        }
        let mut settled = Admitted::default();
        // A table that grows moves all that it holds at once; there may be hundreds of thousands.
        let mut places: BTreeMap<Box<str>, u32> = BTreeMap::new();
        let mut faults: BTreeMap<u32, UserError> = BTreeMap::new();
        for (at, (id, change)) in (0..).zip(found) {
            let place = match places.get(id.as_str()) {
                None => {
                    let place = settled.len() as u32;
                    places.insert(id.as_str().into(), place);
                    settled.push((id, change));
                    place
                }
                Some(place) => {
                    let gives = self.with_vectors.contains(at);
                    let earlier = &mut settled.get_mut(*place as usize).1;
                    *earlier = match method {
                        Method::Replace => change,
                        Method::Update => merged(records, (*earlier, change), field.filter(|_| gives))?,
                    };
                    if gives || method == Method::Replace {
                        faults.remove(place);
                    }
                    *place
                }
            };
            if let Some(fault) = self.faults.remove(&at) {
                faults.insert(place, fault);
            }
            if runtime.should_yield() {
                runtime.yield_now().await;
            }
        }
        let mut checkpoint = Checkpoint::default();
        for _ in places {
            // Freed in steps: so many ids take milliseconds.
            checkpoint.tick(runtime).await;
        }
        // The form of all `_vectors` is looked at before the length of any.
        let is_about_form = |fault: &UserError| fault.code != "invalid_vector_dimensions";
        let place = faults.iter().find(|(_, fault)| is_about_form(fault)).or(faults.iter().next()).map(|(at, _)| *at);
        Ok(place.and_then(|at| faults.remove(&at)).map_or(Ok(settled), Err))
    }
}

/// An update on top of another. `vectors`: the field of `_vectors`, where those of the later one take the place of the earlier ones.
fn merged(
    records: &mut Pieces,
    (earlier, later): (Change, Change),
    vectors: Option<FieldId>,
) -> Result<Change, PartitionError> {
    let (mut kept, mut record) = (Vec::new(), Vec::new());
    let old = Record::parse(records.get(earlier.start, earlier.len as usize))?;
    let fields: Vec<(FieldId, &[u8])> = old.fields().filter(|(field, _)| Some(*field) != vectors).collect();
    put_record(&mut kept, fields.iter().copied());
    let new = Record::parse(records.get(later.start, later.len as usize))?;
    put_merged(&mut record, Record::parse(&kept)?, new, None);
    let said = if vectors.is_some() { later.vectors } else { earlier.vectors };
    Ok(Change { vectors: said, ..stored(records, earlier.kind, &record, &[]) })
}
