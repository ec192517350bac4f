//! Facts of a partition's documents, kept in trees.
//!
//! | tree | key | value |
//! |---|---|---|
//! | `FACET_NUMBERS` | field, number bits, `doc >> 16` | block: the documents of this value |
//! | `FACET_STRINGS` | field, escaped string, `0x00`, `doc >> 16` | block |
//! | `FACET_FLAGS` | field, kind, `doc >> 16` | block: documents whose field exists, is null, is empty |
//! | `FACET_VALUES` | field, doc | the document's values and spellings ([`values`]) |
//! | `GEO_POINTS` | doc | latitude, longitude |
//! | `GEO_SHAPES` | doc | the shape (`geo::shapes`) |
//! | `GEO_CELLS` | points or shapes, cell, `doc >> 16` | block: the documents under this cell (`geo::cells`) |
//!
//! A value's documents are cut into blocks of 65,536 numbers, so that an update rewrites only the blocks it touches. The
//! original spelling of a string is read from `FACET_VALUES` of the document in question: which spelling a client sees
//! depends on which documents matched, and a document's own copy cannot go stale.

mod block;
mod block_union;
mod changes;
mod coarse;
mod counting;
mod cuts;
mod distinct_values;
mod epoch_cache;
mod guided;
mod keys;
mod piece_walk;
mod places;
mod points;
mod reader;
mod reindex;
mod resident;
mod ring_walk;
mod speller;
pub(crate) mod store;
mod take_common;
#[cfg(test)]
mod tests;
mod touched;
mod value_walk;
mod values;
mod writer;

pub use block_union::BlockUnion;
pub use changes::FactChanges;
pub use counting::{Counted, CountedSet};
pub use cuts::{Before, Cut, DEEP_OFFSET, FieldOrder, Mark};
pub use distinct_values::DistinctValues;
pub use guided::Guide;
pub use keys::{Flag, Place};
pub use piece_walk::PieceWalk;
pub use reader::{Columns, Visit};
pub use reindex::{ReindexPlan, drop_field, drop_places};
pub use resident::{ResidentField, ResidentFields};
pub use ring_walk::{Ring, RingStep, RingWalk};
pub use speller::Speller;
pub use store::{ColumnError, ColumnRead, ColumnWrite, Entry};
pub use take_common::take_common;
pub use touched::Touched;
pub use value_walk::{FieldValue, ValueWalk};
pub use values::DocValues;
pub use writer::ColumnWriter;
