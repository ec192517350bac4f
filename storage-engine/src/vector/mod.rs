//! The nearest-neighbour index of one partition and one embedder: a disk-bound HNSW graph (Malkov and Yashunin 2016,
//! arXiv 1603.09320). The graph is searched by small codes in memory; results are re-ranked by the full vectors on disk.
//!
//! * [`kernels`]: SIMD distance kernels, each with a scalar twin.
//! * [`codes`]: codes of one to eight bits per component, their distances and error bounds.
//! * [`chunked`], [`slabs`]: in-memory arrays that are cheap to copy, and the memory of large ones.
//! * [`links`], [`cache`]: the graph in memory: changes on top of a file of pages, which are cached within a budget.
//! * [`state`]: an immutable state, which readers can hold as long as they like.
//! * [`walk`]: a graph search as a step machine; it says which pages it needs and waits for nothing.
//! * [`search`], [`nearest`]: exact scan or graph search, then re-ranking by batched reads.
//! * [`draft`], [`connect`]: inserting, deleting with repair of the neighbours, and preparing an epoch.
//! * [`preload`]: reading files that fit into memory as a whole.
//! * [`files`], [`partition`]: file formats (see `FORMAT.md`), opening, publishing.
//!
//! Nothing here is `Send`: a partition belongs to one core. Every long loop asks a [`Pace`] whether others wait. The same calls
//! with the same seed give the same graph and the same results, whatever is in memory; equal distances are ordered by document.

pub mod cache;
pub mod chunked;
pub mod codes;
mod connect;
pub mod draft;
mod files;
pub mod kernels;
pub mod links;
mod nearest;
pub mod partition;
mod preload;
mod search;
mod slabs;
pub mod state;
#[cfg(test)]
mod tests;
mod walk;

use std::future::Future;
use std::path::Path;
use std::pin::Pin;

pub use draft::Draft;
pub use partition::{BeginError, Prepared, VectorPartition};
pub use search::{Plan, SearchOptions};
pub use state::{VectorSizes, VectorSnapshot};

use crate::io::DiskError;

/// Links that a node has at most in a layer above the bottom (the paper's M).
pub const LINKS_UPPER: usize = 16;
/// Links that a node has at most in the bottom layer.
pub const LINKS_BOTTOM: usize = 32;
/// Dimensions of a vector at most.
pub const DIMENSIONS_MAX: u32 = 1 << 16;

/// How far apart two vectors are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// `(1 - cos) / 2`; 0 where the product of the norms is at most 1.19e-7.
    Cosine,
    /// The negated sum of products.
    Dot,
    /// The length of the difference.
    Euclidean,
    /// Bits that differ, as a share of the dimensions rounded up to a multiple of 64. Only the bits (1 where a number is
    /// greater than 0) are kept: vectors are read back as 0.0 and 1.0.
    Hamming,
}

/// What is kept in memory of each vector, for the walk. [`Metric::Hamming`] keeps its bits whatever is said here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeKind {
    /// One byte for each dimension.
    Int8,
    /// One bit for each dimension, its sign.
    Bits,
    /// Four bits for each dimension of the rotated vector. In memory they become [`CodeKind::Int2`] where they would be more than
    /// [`Budget::code_bytes`].
    Int4,
    /// Two bits for each dimension of the rotated vector. Only in memory: files of such a partition have [`CodeKind::Int4`].
    Int2,
}

/// With fewer dimensions the errors of codes of four bits are no longer small against the distances, and little is saved.
const INT4_DIMENSIONS_MIN: u32 = 128;

/// What a partition is made with; it stays with its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Numbers in a vector, 1 to [`DIMENSIONS_MAX`].
    pub dimensions: u32,
    /// The distance.
    pub metric: Metric,
    /// The codes.
    pub codes: CodeKind,
    /// Nodes that an insertion keeps in view (the paper's efConstruction).
    pub build_width: u16,
    /// Seeds the nodes' layers.
    pub seed: u64,
}

impl Config {
    /// The default choices for vectors of this many dimensions.
    pub fn new(dimensions: u32, metric: Metric) -> Self {
        let codes = if dimensions < INT4_DIMENSIONS_MIN { CodeKind::Int8 } else { CodeKind::Int4 };
        Self { dimensions, metric, codes, build_width: 125, seed: 0x5eed }
    }

    /// What the codes in files really are.
    pub fn code_kind(&self) -> CodeKind {
        match (self.metric, self.codes) {
            (Metric::Hamming, _) => CodeKind::Bits,
            (_, CodeKind::Int2) => CodeKind::Int4,
            (_, codes) => codes,
        }
    }
}

/// Memory of a partition. Upper layers are always there, and codes of some kind.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Codes of four bits that are kept, bytes: where they would be more, codes of two bits are kept in their place, and searches
    /// read more full vectors.
    pub code_bytes: u64,
    /// Pages of the graph's file that are kept, bytes.
    pub graph_bytes: u64,
    /// Full vectors that are kept, bytes.
    pub vector_bytes: u64,
    /// Pages and vectors that all partitions of this core keep together, bytes.
    pub kept_bytes: u64,
    /// The same together with the codes and the changes of their graphs, which are always there, bytes.
    pub with_pinned_bytes: u64,
    /// Where the file of full vectors is larger than this, the system would not keep it in memory either, and vectors are read past
    /// its page cache.
    pub direct_bytes: u64,
    /// Changes of the graph that are kept beside its file before they are merged into a new one, bytes at least; a quarter of the
    /// file where that is more.
    pub overlay_bytes: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Budget {
    /// The default.
    pub const DEFAULT: Self = Self {
        code_bytes: u64::MAX,
        graph_bytes: 256 << 20,
        vector_bytes: 256 << 20,
        kept_bytes: u64::MAX,
        with_pinned_bytes: u64::MAX,
        direct_bytes: u64::MAX,
        overlay_bytes: 8 << 20,
    };

    /// Of the memory that a core may use no more than a quarter for codes, another for links and an eighth for full vectors; three
    /// eighths of it for links and vectors of all partitions, and less where they and the codes would leave too little to the rest
    /// of the server.
    pub fn of_core(bytes: u64) -> Self {
        let most = Self::default();
        let part = |of: u64, most: u64| (bytes / of).max(PART_BYTES_MIN).min(most);
        Self {
            code_bytes: part(4, most.code_bytes),
            graph_bytes: part(4, most.graph_bytes),
            vector_bytes: part(8, u64::MAX),
            kept_bytes: part(8, most.kept_bytes / 3) * 3,
            with_pinned_bytes: bytes.saturating_sub(OTHERS_BYTES_MIN.max(bytes / 4)),
            direct_bytes: part(2, most.direct_bytes),
            overlay_bytes: (bytes / 16).clamp(OVERLAY_BYTES_MIN, most.overlay_bytes),
        }
    }
}

/// Changes that are kept before a merge, however little memory there is.
const OVERLAY_BYTES_MIN: u64 = 1 << 20;
/// What a core leaves to all but vectors, at least: with two cores a server with 200,000 documents takes 25 MB of each when it starts.
const OTHERS_BYTES_MIN: u64 = 40 << 20;
/// What a core's caches get at least.
const PART_BYTES_MIN: u64 = 4 << 20;

/// A document near a query.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Neighbor {
    /// The document.
    pub doc: u32,
    /// The distance of its nearest vector, as the metric defines it.
    pub distance: f32,
}

/// How long loops let others have their turn.
pub trait Pace {
    /// Whether somebody waits; asked every few ten microseconds.
    fn due(&self) -> bool;
    /// Lets the others work.
    fn pause(&self) -> Pin<Box<dyn Future<Output = ()> + '_>>;
    /// Whether the search should end with what it has found.
    fn stopped(&self) -> bool {
        false
    }
}

/// A pace that never pauses, for tools and tests.
pub struct Unpaced;

impl Pace for Unpaced {
    fn due(&self) -> bool {
        false
    }

    fn pause(&self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(std::future::ready(()))
    }
}

/// Why bytes of a partition's files could not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// A file operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The bytes are not what was written.
    #[error(
        "{file}: {what} {number} is damaged (it does not match its checksum); restore the index from a dump or a replica"
    )]
    Damaged {
        /// The file.
        file: String,
        /// Kind of the part: a page, a record.
        what: &'static str,
        /// Which of them.
        number: u64,
    },
}

impl FetchError {
    fn damaged(file: &Path, what: &'static str, number: u64) -> Self {
        Self::Damaged { file: file.display().to_string(), what, number }
    }
}

/// Why numbers are no vector of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadVector {
    /// Too many or too few.
    #[error("the vector has {found} dimensions where {expected} are expected")]
    Dimensions {
        /// Those of the partition.
        expected: u32,
        /// Those given.
        found: usize,
    },
    /// A number is infinite or none.
    #[error("the vector's number {at} is not finite")]
    NotFinite {
        /// Its place.
        at: usize,
    },
}

impl Config {
    /// Checks that these numbers can be a vector.
    ///
    /// # Errors
    /// [`BadVector`].
    pub fn check(&self, vector: &[f32]) -> Result<(), BadVector> {
        if vector.len() != self.dimensions as usize {
            return Err(BadVector::Dimensions { expected: self.dimensions, found: vector.len() });
        }
        vector.iter().position(|v| !v.is_finite()).map_or(Ok(()), |at| Err(BadVector::NotFinite { at }))
    }
}

/// Why a vector could not be put or a document's not be removed. The draft must then be dropped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PutError {
    /// Nothing was changed.
    #[error(transparent)]
    Vector(#[from] BadVector),
    /// Documents have at most 65,536 vectors, partitions at most 2^32 - 2. Nothing was changed.
    #[error("there is no room for more vectors")]
    Full,
    /// A file operation failed.
    #[error(transparent)]
    Fetch(#[from] FetchError),
}

/// Why a search failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SearchError {
    /// The query is no vector of this partition.
    #[error(transparent)]
    Vector(#[from] BadVector),
    /// A file operation failed.
    #[error(transparent)]
    Fetch(#[from] FetchError),
}

/// Why a partition could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// A file operation failed, or a file is damaged.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The manifest is damaged. It is kept with the partition's documents.
    #[error(
        "{folder}: the manifest of these vectors is damaged (it does not match its checksum); restore the index from a dump or a \
         replica"
    )]
    Manifest {
        /// The partition's folder.
        folder: String,
    },
    /// Another version of the program wrote the vectors.
    #[error(
        "{place}: the vectors have format version {found}, this program reads version {}; start the version of the program that \
         wrote them, or start anew with a dump that it makes",
        files::VERSION
    )]
    Version {
        /// The partition's folder, or a file of it.
        place: String,
        /// Its format version.
        found: u32,
    },
    /// A file of records is not the one that the manifest tells of.
    #[error(
        "{file}: the header is not that of vectors with {dimensions} dimensions as the manifest has them, or it is damaged; restore \
         the index from a dump or a replica"
    )]
    Header {
        /// The file.
        file: String,
        /// Those of the manifest.
        dimensions: u32,
    },
}

impl From<DiskError> for PutError {
    fn from(error: DiskError) -> Self {
        Self::Fetch(error.into())
    }
}

impl From<DiskError> for OpenError {
    fn from(error: DiskError) -> Self {
        Self::Fetch(error.into())
    }
}
