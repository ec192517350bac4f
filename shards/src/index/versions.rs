//! Several versions of one document in a single request, and how they combine.
//!
//! A later version replaces an earlier one, or its fields replace the earlier one's fields. Reserved fields are treated like any
//! other and validated in the resulting document: once a later version replaces an earlier one's, the earlier value no longer
//! counts, not even if it was invalid.

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

/// The place of `_vectors` among the reserved fields.
const VECTORS: usize = 2;

/// What is known of the versions of a request: of `_geo`, `_geojson` and `_vectors`, in the order in which faults are told.
#[derive(Default)]
pub(super) struct Versions([Noted; 3]);

/// What is known of a reserved field.
#[derive(Default)]
struct Noted {
    /// The versions that have it, by their places in the request: all that have `_vectors`, of other fields those from the first
    /// fault on.
    given: RoaringBitmap,
    /// What is wrong with it, by the version's place in the request.
    faults: BTreeMap<u32, UserError>,
    /// What is wrong with it in the resulting documents, by their places.
    remaining: BTreeMap<u32, UserError>,
}

impl Noted {
    fn note(&mut self, at: u32, checked: Result<(), UserError>) -> Result<(), UserError> {
        self.given.insert(at);
        let Err(fault) = checked else { return Ok(()) };
        self.faults.insert(at, fault);
        match self.faults.pop_first() {
            Some((_, first)) if self.faults.len() >= FAULTS_MAX => Err(first),
            Some((at, first)) => {
                self.faults.insert(at, first);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Puts a version on top of what the document at `place` has so far; `replaces`: whether nothing of that remains.
    fn settle(&mut self, at: u32, place: u32, replaces: bool) {
        if replaces || self.given.contains(at) {
            self.remaining.remove(&place);
        }
        if let Some(fault) = self.faults.remove(&at) {
            self.remaining.insert(place, fault);
        }
    }
}

impl Versions {
    /// Notes which of `_geo`, `_geojson` and `_vectors` a version has, and what is wrong with them.
    ///
    /// # Errors
    /// The first of more faults than are kept in mind.
    pub fn note(&mut self, at: usize, checked: [Option<Result<(), UserError>>; 3]) -> Result<(), UserError> {
        for (of, (noted, checked)) in self.0.iter_mut().zip(checked).enumerate() {
            if let Some(checked) = checked
                && (of == VECTORS || checked.is_err() || !noted.given.is_empty())
            {
                noted.note(at as u32, checked)?;
            }
        }
        Ok(())
    }

    /// One change for each document, in the order in which the documents come first. Versions without `_vectors` or faults all over
    /// are left for the batch, which puts them on top of each other. `field` is that of `_vectors`.
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
        if self.0.iter().all(|noted| noted.given.is_empty()) {
            return Ok(Ok(found));
        }
        let mut settled = Admitted::default();
        // A table that grows moves all that it holds at once; there may be hundreds of thousands.
        let mut places: BTreeMap<Box<str>, u32> = BTreeMap::new();
        for (at, (id, change)) in (0..).zip(found) {
            let place = match places.get(id.as_str()) {
                None => {
                    let place = settled.len() as u32;
                    places.insert(id.as_str().into(), place);
                    settled.push((id, change));
                    place
                }
                Some(place) => {
                    let gives = self.0[VECTORS].given.contains(at);
                    let earlier = &mut settled.get_mut(*place as usize).1;
                    *earlier = match method {
                        Method::Replace => change,
                        Method::Update => merged(records, (*earlier, change), field.filter(|_| gives))?,
                    };
                    *place
                }
            };
            for noted in &mut self.0 {
                noted.settle(at, place, method == Method::Replace);
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
        let faults = self.0.map(|noted| noted.remaining);
        Ok(faults.into_iter().find_map(first_told).map_or(Ok(settled), Err))
    }
}

/// The fault of a field that is told: the first, but the form of all `_vectors` is looked at before the length of any.
fn first_told(mut faults: BTreeMap<u32, UserError>) -> Option<UserError> {
    let is_about_form = |fault: &UserError| fault.code != "invalid_vector_dimensions";
    let (place, _) = faults.iter().find(|(_, fault)| is_about_form(fault)).or(faults.iter().next())?;
    faults.remove(&{ *place })
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
