//! What a partition keeps of its vectors: in its page store one entry for each embedder, beside it a folder with the graphs.
//!
//! ```text
//! META: "vectors/" name -> u8                version
//!                          varint, bytes     documents whose vectors came with them, or that shall have none
//!                          varint, bytes     documents whose vectors are not generated again
//!                          for each graph:
//!                          varint, bytes     its folder
//!                          varint, bytes     its manifest
//! ```
//!
//! In version 1 there is one graph: its folder (empty where there is none) before the documents, its manifest as the rest.
//!
//! The entry is committed with the documents, and the manifest in it says which state of the graph's files belongs to them: a
//! document is never without its vectors, nor the other way round.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::OnceLock;

use roaring::RoaringBitmap;
use storage_engine::vector::{Budget, FetchError, Pace, VectorPartition, VectorSnapshot};
use storage_engine::{ReadTree, Snapshot};

use crate::partition::PartitionError;
use crate::partition::trees::META;
use crate::placement::{memory_bytes, processor_count};
use crate::runtime::{Runtime, RuntimePace};
use crate::text::postings::{put_varint, take_varint};

const KEY: &[u8] = b"vectors/";
const VERSION: u8 = 2;
const VERSION_OF_ONE_GRAPH: u8 = 1;

/// The memory for links and full vectors of a graph, by what this machine or container has for each of its processors.
pub fn budget() -> Budget {
    static FOUND: OnceLock<Budget> = OnceLock::new();
    *FOUND.get_or_init(|| Budget::of_core(memory_bytes() / processor_count()))
}

/// The graph of one embedder in one partition.
#[derive(Clone)]
pub struct Graph {
    /// The folder of its files, within that of the partition's vectors.
    pub folder: String,
    /// Its files.
    pub partition: VectorPartition,
    /// Its state of this epoch.
    pub snapshot: VectorSnapshot,
}

/// What a partition knows of one embedder at one epoch.
#[derive(Clone, Default)]
pub struct EmbedderVectors {
    /// The vectors, a graph for each length that they have: where an embedder's dimensions change, documents keep vectors of the
    /// length before until they get others.
    pub graphs: Vec<Graph>,
    /// Documents whose vectors came with them, or that shall have none.
    pub user: Rc<RoaringBitmap>,
    /// Documents whose vectors are not generated again.
    pub fixed: Rc<RoaringBitmap>,
}

/// A partition's vectors at one epoch, by embedder. Cheap to clone.
#[derive(Clone, Default)]
pub struct PartitionVectors(pub Rc<BTreeMap<String, EmbedderVectors>>);

/// Sums over a partition's vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VectorSums {
    /// Vectors of all embedders.
    pub embeddings: u64,
    /// Documents with a vector of any.
    pub documents: u64,
}

impl EmbedderVectors {
    /// Documents with vectors.
    pub fn documents(&self) -> RoaringBitmap {
        self.graphs.iter().fold(RoaringBitmap::new(), |all, graph| all | graph.snapshot.documents())
    }

    /// The graph with vectors of this length.
    pub fn graph_of(&self, dimensions: usize) -> Option<&Graph> {
        self.graphs.iter().find(|graph| graph.snapshot.config().dimensions as usize == dimensions)
    }

    /// A document's vectors, each with its slot.
    ///
    /// # Errors
    /// [`FetchError`].
    pub async fn numbered(&self, doc: u32) -> Result<Vec<(u16, Vec<f32>)>, FetchError> {
        match self.graphs.iter().find(|graph| graph.snapshot.documents().contains(doc)) {
            Some(graph) => graph.snapshot.numbered(doc).await,
            None => Ok(Vec::new()),
        }
    }
}

impl PartitionVectors {
    fn graphs(&self) -> impl Iterator<Item = &Graph> {
        self.0.values().flat_map(|vectors| &vectors.graphs)
    }

    /// What is known of an embedder.
    pub fn get(&self, name: &str) -> Option<&EmbedderVectors> {
        self.0.get(name)
    }

    /// The same with what the graphs have published since.
    pub fn renewed(&self) -> Self {
        let renew = |(name, vectors): (&String, &EmbedderVectors)| {
            let mut vectors = vectors.clone();
            for graph in &mut vectors.graphs {
                graph.snapshot = graph.partition.snapshot();
            }
            (name.clone(), vectors)
        };
        if self.0.is_empty() { self.clone() } else { Self(Rc::new(self.0.iter().map(renew).collect())) }
    }

    /// Opens the vectors of a partition in the state that `snapshot` names. Folders that it does not name are removed. `known` are
    /// those that are open already.
    ///
    /// # Errors
    /// [`PartitionError`].
    pub async fn open(
        runtime: &Rc<dyn Runtime>,
        root: &Path,
        snapshot: &Snapshot,
        known: &Self,
    ) -> Result<Self, PartitionError> {
        let (disk, mut found) = (runtime.disk(), BTreeMap::new());
        for (name, stored) in load(snapshot)? {
            let mut graphs = Vec::with_capacity(stored.graphs.len());
            let open = known.get(&name).map_or(&[][..], |vectors| &vectors.graphs);
            let pace = RuntimePace(&**runtime);
            for (folder, manifest) in stored.graphs {
                let partition = match open.iter().find(|open| open.folder == folder).map(|open| &open.partition) {
                    // Nothing was published since that the snapshot does not name.
                    Some(open) if !open.is_poisoned() => open.clone(),
                    Some(open) => open.open_again(&manifest, &pace).await?,
                    None => {
                        VectorPartition::open(disk.clone(), &root.join(&folder), &manifest, budget(), &pace).await?
                    }
                };
                graphs.push(Graph { folder, snapshot: partition.snapshot(), partition });
            }
            found.insert(name, EmbedderVectors { graphs, user: Rc::new(stored.user), fixed: Rc::new(stored.fixed) });
        }
        let opened = Self(Rc::new(found));
        opened.remove_others(runtime, root).await?;
        Ok(opened)
    }

    /// Loads the graphs into memory.
    ///
    /// # Errors
    /// [`PartitionError`] where a file cannot be read.
    pub async fn preload(&self, runtime: &Rc<dyn Runtime>) -> Result<(), PartitionError> {
        for graph in self.graphs() {
            graph.snapshot.preload(&RuntimePace(&**runtime)).await?;
        }
        Ok(())
    }

    /// Loads into memory what there is room for whole.
    ///
    /// # Errors
    /// [`FetchError`] where a file cannot be read.
    pub async fn preload_whole(&self, pace: &dyn Pace) -> Result<(), FetchError> {
        for graph in self.graphs() {
            graph.partition.preload_whole(pace).await?;
        }
        Ok(())
    }

    /// Whether a write to any of the graphs has failed.
    pub fn is_poisoned(&self) -> bool {
        self.graphs().any(|graph| graph.partition.is_poisoned())
    }

    /// The folders of graphs that a later state does not have any more.
    pub fn folders_missing_in(&self, later: &Self) -> Vec<String> {
        let folders = |vectors: &Self| -> Vec<String> { vectors.graphs().map(|graph| graph.folder.clone()).collect() };
        let kept = folders(later);
        folders(self).into_iter().filter(|folder| !kept.contains(folder)).collect()
    }

    /// Removes the folders that are none of these.
    async fn remove_others(&self, runtime: &Rc<dyn Runtime>, root: &Path) -> Result<(), PartitionError> {
        let disk = runtime.disk();
        if !disk.exists(root).await? {
            return Ok(());
        }
        for name in disk.list_dir(root).await? {
            if self.graphs().all(|graph| graph.folder != name) {
                disk.remove_dir_all(&root.join(&name)).await?;
            }
        }
        Ok(())
    }
}

/// One embedder's entry.
pub struct StoredVectors {
    /// See [`EmbedderVectors::user`].
    pub user: RoaringBitmap,
    /// See [`EmbedderVectors::fixed`].
    pub fixed: RoaringBitmap,
    /// For each graph its folder (see [`Graph::folder`]) and its manifest.
    pub graphs: Vec<(String, Vec<u8>)>,
}

/// The key of an embedder's entry.
pub fn key(name: &str) -> Vec<u8> {
    [KEY, name.as_bytes()].concat()
}

/// The folder of the vectors of the partition with this file.
pub fn folder_of(store: &Path) -> PathBuf {
    store.with_extension("vectors")
}

impl StoredVectors {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        for set in [&self.user, &self.fixed] {
            let mut set = set.clone();
            set.optimize();
            let mut bytes = Vec::with_capacity(set.serialized_size());
            // Writing to memory does not fail.
            let _ = set.serialize_into(&mut bytes);
            put_bytes(&mut out, &bytes);
        }
        for (folder, manifest) in &self.graphs {
            put_bytes(&mut out, folder.as_bytes());
            put_bytes(&mut out, manifest);
        }
        out
    }

    fn decode(mut bytes: &[u8]) -> Option<Self> {
        let version = *bytes.split_off_first()?;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        let one = match version {
            VERSION => None,
            VERSION_OF_ONE_GRAPH => Some(text(take_bytes(&mut bytes)?)?),
            _ => return None,
        };
        let user = RoaringBitmap::deserialize_from(take_bytes(&mut bytes)?).ok()?;
        let fixed = RoaringBitmap::deserialize_from(take_bytes(&mut bytes)?).ok()?;
        let mut graphs = Vec::new();
        if let Some(folder) = one {
            graphs.extend((!folder.is_empty()).then(|| (folder, bytes.to_vec())));
            return Some(Self { user, fixed, graphs });
        }
        while !bytes.is_empty() {
            let folder = text(take_bytes(&mut bytes)?)?;
            graphs.push((folder, take_bytes(&mut bytes)?.to_vec()));
        }
        Some(Self { user, fixed, graphs })
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u32);
    out.extend_from_slice(bytes);
}

fn take_bytes<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = take_varint(bytes)?;
    bytes.split_off(..len as usize)
}

fn load(store: &Snapshot) -> Result<Vec<(String, StoredVectors)>, PartitionError> {
    let damaged = || PartitionError::Damaged("entry of an embedder");
    let mut found = Vec::new();
    let mut cursor = store.cursor(META);
    cursor.seek(KEY)?;
    while let Some((key, value)) = cursor.next()? {
        let Some(name) = key.strip_prefix(KEY) else { break };
        let name = String::from_utf8(name.to_vec()).map_err(|_| damaged())?;
        found.push((name, StoredVectors::decode(value).ok_or_else(damaged)?));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back() {
        let stored = StoredVectors {
            user: [1, 5, 70_000].into_iter().collect(),
            fixed: RoaringBitmap::new(),
            graphs: vec![("e3-0".into(), vec![1, 2, 3]), ("e7-1".into(), vec![4])],
        };
        let bytes = stored.encode();
        let back = StoredVectors::decode(&bytes).unwrap();
        assert_eq!((back.user, back.fixed, back.graphs), (stored.user, stored.fixed, stored.graphs));
        assert!((0..8).all(|len| StoredVectors::decode(&bytes[..len]).is_none()));
    }

    #[test]
    fn entries_of_one_graph_are_read() {
        let empty = RoaringBitmap::new();
        let mut set = Vec::new();
        empty.serialize_into(&mut set).unwrap();
        for (folder, graphs) in [("e3-0", vec![("e3-0".to_owned(), vec![1, 2, 3])]), ("", Vec::new())] {
            let mut bytes = vec![VERSION_OF_ONE_GRAPH];
            [folder.as_bytes(), &set, &set].into_iter().for_each(|part| put_bytes(&mut bytes, part));
            if !folder.is_empty() {
                bytes.extend([1, 2, 3]);
            }
            assert_eq!(StoredVectors::decode(&bytes).unwrap().graphs, graphs);
        }
    }
}
