//! The trees of a partition's page store. Numbers are part of the file format: never reuse one.
//!
//! Integers in keys are big-endian so that byte order is numeric order; `doc` means a local document number (u32).

use storage_engine::TreeId;

/// Small records by name: format version, partition number and count; in partition 0 also the catalog (see `index::catalog`).
pub const META: TreeId = TreeId(0);
/// `doc` -> document record (see `document::record`).
pub const DOCUMENTS: TreeId = TreeId(1);
/// term bytes, 0x00, first `doc` of the block -> posting block (see `text::postings`).
pub const POSTINGS: TreeId = TreeId(2);
/// term bytes -> how many documents of the partition hold it (varint); then, if not all of them hold a tolerant occurrence, how
/// many do (varint).
pub const DICTIONARY: TreeId = TreeId(3);
/// Partition 0 only: external id -> DocId of the index (u32).
pub const EXTERNAL_IDS: TreeId = TreeId(4);
/// field (u16), order-preserving bits of the f64 (u64), doc >> 16 (u16) -> bitmap of doc & 0xffff.
pub const FACET_NUMBERS: TreeId = TreeId(5);
/// field (u16), normalised string with 0 and 1 escaped, 0x00, doc >> 16 (u16) -> bitmap of doc & 0xffff.
pub const FACET_STRINGS: TreeId = TreeId(6);
/// Reserved and empty: spellings are read from the documents' own values (see `facets::columns`).
pub const FACET_ORIGINALS: TreeId = TreeId(7);
/// field (u16), kind (u8: exists, null, empty), doc >> 16 (u16) -> bitmap of doc & 0xffff.
pub const FACET_FLAGS: TreeId = TreeId(8);
/// field (u16), doc -> the document's values of this field, for sort and distinct (see `facets::columns`).
pub const FACET_VALUES: TreeId = TreeId(9);
/// doc -> latitude and longitude in degrees (two f64) of documents with a valid `_geo`.
pub const GEO_POINTS: TreeId = TreeId(10);
/// Partition 0 only: field (u16) -> name and how many documents of the index have it at top level.
pub const FIELDS: TreeId = TreeId(11);
/// `doc` -> for each searchable field with at most 30 indexed words: the field's distance from the one before (varint) and how
/// many words (u8).
pub const WORD_COUNTS: TreeId = TreeId(12);
/// `doc` -> the shape in `_geojson` (see `facets::geo::shapes`) of documents with a valid one.
pub const GEO_SHAPES: TreeId = TreeId(13);
/// what (u8: points or shapes), code and level of a cell (u32, u8; see `facets::geo::cells`), doc >> 16 (u16) -> bitmap of
/// doc & 0xffff.
pub const GEO_CELLS: TreeId = TreeId(14);
