//! Questions to partitions from the core that handles a search. Everything here is sent between cores.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use ahash::AHashSet;
use roaring::RoaringBitmap;

use super::federated::FieldValue;
use crate::facets::Filter;
use crate::facets::columns::{Cut, DistinctValues, Mark};
use crate::facets::distinct::GroupValue;
use crate::facets::distribution::{FacetCounts, FacetPlan};
use crate::facets::facet_search::{FacetHits, Spelled};
use crate::format::{FormatPlan, HitExtras};
use crate::ids::{DocId, LocalDocId};
use crate::query::{FieldTable, NodeFacts, NodeQuestion};
use crate::rank::{RankPlan, RankedPart, SortValue};

/// A question to one partition of an index at one epoch.
#[derive(Clone, Debug)]
pub enum PartQuestion {
    /// What is in the dictionary for each node.
    Resolve {
        /// The nodes, all with the same [`NodeQuestion::shard`].
        nodes: Arc<Vec<NodeQuestion>>,
        /// Which words are tolerant.
        fields: Arc<FieldTable>,
        /// Whether nearness means "in the same field".
        by_attribute: bool,
    },
    /// How many documents match each term.
    CountTerms {
        /// The terms.
        plan: Arc<RankPlan>,
        /// Only documents of this network shard count, if one is given.
        shard: Option<Arc<str>>,
    },
    /// The best documents.
    Rank(RankQuestion),
    /// Where a search may begin for a page far behind: marks along its first rule, which sorts by a field.
    Marks {
        /// The search.
        search: RankQuestion,
        /// Where the page begins and ends.
        page: (u64, u64),
    },
    /// How many documents are left of several searches together, each without those below its threshold and further members
    /// of its distinct groups.
    Narrow {
        /// The searches.
        searches: Vec<NarrowLists>,
        /// What to count over the documents that are left.
        facets: Option<Arc<FacetPlan>>,
    },
    /// The values of a facet that match, with how many of the documents left of a search have each.
    FacetSearch {
        /// The search.
        search: Box<NarrowQuestion>,
        /// The facet's dotted path.
        field: Arc<str>,
        /// What the values begin with, folded; `None`: all.
        query: Option<Arc<str>>,
    },
    /// How the first documents with some strings spell them.
    FacetSpellings {
        /// The facet's dotted path.
        field: Arc<str>,
        /// Normalised, rising.
        values: Arc<[Box<str>]>,
    },
    /// The values of fields of documents, in the order given.
    Values {
        /// Dotted paths.
        paths: Arc<Vec<String>>,
        /// Documents of the partition.
        docs: Vec<LocalDocId>,
    },
    /// A document's vectors.
    VectorsOf {
        /// Of the partition.
        doc: LocalDocId,
        /// Of which embedder.
        embedder: Arc<str>,
    },
    /// The documents nearest to the vectors of one.
    Near(NearQuestion),
    /// The bytes of hits, in the order given.
    Fetch {
        /// What they show.
        plan: Arc<FormatPlan>,
        /// Documents of the partition, with what is shown besides.
        hits: Vec<(LocalDocId, HitExtras)>,
    },
}

/// The search for documents similar to one.
#[derive(Clone, Debug)]
pub struct NearQuestion {
    /// Whose vectors.
    pub embedder: Arc<str>,
    /// That document's, each with its slot: only vectors of the same slot are compared.
    pub vectors: Arc<Vec<(u16, Vec<f32>)>>,
    /// Which documents to look at.
    pub filter: Option<Arc<Filter>>,
    /// The document itself.
    pub except: DocId,
    /// Documents wanted.
    pub limit: usize,
    /// What is left of the search's time.
    pub time_left: Duration,
}

/// What is left of a search: of its list, or of its two, by words and by meaning.
#[derive(Clone, Debug)]
pub struct NarrowLists {
    /// What each of them was asked.
    pub lists: Vec<NarrowQuestion>,
    /// What is not left all the same.
    pub merged: MergeLosses,
}

/// What the lists of a search lost when they became one.
#[derive(Clone, Debug, Default)]
pub struct MergeLosses {
    /// Documents that are not counted.
    pub dropped: RoaringBitmap,
    /// The distinct field and those of its values whose documents are not counted either.
    pub groups: Option<Arc<(Arc<str>, Vec<GroupValue>)>>,
    /// The documents that stay, whatever the lists have left of these groups.
    pub kept: RoaringBitmap,
}

/// What is left of the documents that a query admits.
#[derive(Clone, Debug)]
pub struct NarrowQuestion {
    /// The search, as it was ranked.
    pub ranked: RankQuestion,
    /// Documents that have one of these values of [`RankQuestion::distinct`] are taken away, unless kept.
    pub values: Arc<AHashSet<GroupValue>>,
    /// Documents of the partition that stay.
    pub kept: RoaringBitmap,
    /// Documents of the partition that are taken away.
    pub dropped: RoaringBitmap,
    /// Whether nothing but `kept` stays, and what no rule can place.
    pub only_kept: bool,
    /// Whether what no rule can place goes.
    pub without_lost: bool,
}

/// The search for the best documents.
#[derive(Clone, Debug)]
pub struct RankQuestion {
    /// The order.
    pub plan: Arc<RankPlan>,
    /// Which documents to look at.
    pub filter: Option<Arc<Filter>>,
    /// Documents of the index that are not ranked, because they have places of their own.
    pub pinned: Arc<Vec<DocId>>,
    /// The field whose values are asked for, for `distinct`.
    pub distinct: Option<Arc<str>>,
    /// Documents that come before this under the first rule, which sorts by a field, are counted but not ranked.
    pub behind: Option<Cut>,
    /// Whether to count its groups over all documents that the query admits.
    pub count_groups: bool,
    /// What to count over all documents that the query admits.
    pub facets: Option<Arc<FacetPlan>>,
    /// Which of the best documents to write out, by their place, and how.
    pub show: Option<(Arc<FormatPlan>, Range<usize>)>,
    /// What is left of the search's time.
    pub time_left: Duration,
}

impl RankQuestion {
    /// A search for nothing but the best documents.
    pub fn new(plan: Arc<RankPlan>, filter: Option<Arc<Filter>>, time_left: Duration) -> Self {
        Self {
            plan,
            filter,
            pinned: Arc::default(),
            distinct: None,
            behind: None,
            count_groups: false,
            facets: None,
            show: None,
            time_left,
        }
    }
}

/// A partition's reply.
#[derive(Clone, Debug)]
pub enum PartReply {
    /// To [`PartQuestion::Resolve`]: for each node.
    Facts(Vec<Arc<NodeFacts>>),
    /// To [`PartQuestion::CountTerms`], for each term.
    Counts(Vec<u64>),
    /// To [`PartQuestion::Rank`].
    Ranked(Box<RankedReply>),
    /// To [`PartQuestion::Marks`], in the order of the rule; `None` where a partition has none.
    Marks(Option<Vec<Mark>>),
    /// To [`PartQuestion::Narrow`]: how many are left, and the counts of their facets.
    Narrowed(u64, Box<FacetCounts>),
    /// To [`PartQuestion::FacetSearch`].
    FacetHits(Box<FacetHits>),
    /// To [`PartQuestion::FacetSpellings`]: for each value.
    FacetSpellings(Vec<Option<Spelled>>),
    /// To [`PartQuestion::Values`]: for each document, for each path.
    Values(Vec<Vec<Vec<FieldValue>>>),
    /// To [`PartQuestion::VectorsOf`]: with their slots.
    Vectors(Vec<(u16, Vec<f32>)>),
    /// To [`PartQuestion::Near`]: distances and documents, nearest first, and how many there were to choose from.
    Near(Vec<(f32, DocId)>, u64),
    /// To [`PartQuestion::Fetch`]: a JSON object for each hit.
    Hits(Vec<Vec<u8>>),
}

/// What a partition tells of a document at a fixed place.
#[derive(Clone, Debug)]
pub struct PinFacts {
    /// The document.
    pub doc: DocId,
    /// Its values of [`RankQuestion::distinct`].
    pub groups: Vec<GroupValue>,
    /// By what the sort rules would order it.
    pub sorts: Vec<SortValue>,
}

/// The best documents of a partition.
#[derive(Clone, Debug, Default)]
pub struct RankedReply {
    /// In order, with what scores need.
    pub part: RankedPart,
    /// Those of [`RankQuestion::pinned`] that the partition has and the filter admits.
    pub pinned: Vec<PinFacts>,
    /// Counts of the facets asked for.
    pub facets: Arc<FacetCounts>,
    /// The distinct groups of all documents that the query admits, where that was asked for and the order does not decide it.
    pub groups: Option<DistinctValues>,
    /// The documents that [`RankQuestion::show`] asked for.
    pub shown: WrittenHits,
    /// Whether time ran out.
    pub expired: bool,
}

/// Hits as JSON objects, one behind the other: a page of them takes one allocation, not one each. Long ones stand apart, so that
/// they need not be copied.
#[derive(Clone, Debug, Default)]
pub struct WrittenHits {
    json: Vec<u8>,
    /// Each document, with where its object ends, or with the object itself.
    places: Vec<(DocId, HitPlace)>,
}

#[derive(Clone, Debug)]
enum HitPlace {
    End(usize),
    Apart(Vec<u8>),
}

impl WrittenHits {
    /// Room for so many hits of an ordinary size.
    pub fn with_room(hits: usize) -> Self {
        const HIT_BYTES: usize = 640;
        Self { json: Vec::with_capacity(hits * HIT_BYTES), places: Vec::with_capacity(hits) }
    }

    /// Where the next hit is to be written.
    pub fn place(&mut self) -> &mut Vec<u8> {
        &mut self.json
    }

    /// Takes what was written since the last hit for that of a document.
    pub fn end(&mut self, doc: DocId) {
        self.places.push((doc, HitPlace::End(self.json.len())));
    }

    /// Takes the hit of a document that was written elsewhere.
    pub fn add(&mut self, doc: DocId, hit: Vec<u8>) {
        self.places.push((doc, HitPlace::Apart(hit)));
    }

    /// The hits, in the order in which they were written.
    pub fn iter(&self) -> impl Iterator<Item = (DocId, &[u8])> {
        let mut start = 0;
        self.places.iter().map(move |(doc, place)| match place {
            HitPlace::End(end) => (*doc, &self.json[std::mem::replace(&mut start, *end)..*end]),
            HitPlace::Apart(hit) => (*doc, hit.as_slice()),
        })
    }
}
