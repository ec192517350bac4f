//! What a partition keeps of its vectors: in its page store one entry for each embedder, beside it a folder with the graphs.
//!
//! ```text
//! META: "vectors/" name -> u8                version
//!                          varint, bytes     folder of the graph, none where there was never a vector
//!                          varint, bytes     documents whose vectors came with them, or that shall have none
//!                          varint, bytes     documents whose vectors are not generated again
//!                          rest              the graph's manifest
//! ```
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
const VERSION: u8 = 1;

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
    /// The vectors; `None` where there never was one.
    pub graph: Option<Graph>,
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
    pub fn documents(&self) -> Option<&RoaringBitmap> {
        self.graph.as_ref().map(|graph| graph.snapshot.documents())
    }
}

impl PartitionVectors {
    /// What is known of an embedder.
    pub fn get(&self, name: &str) -> Option<&EmbedderVectors> {
        self.0.get(name)
    }

    /// The same with what the graphs have published since.
    pub fn renewed(&self) -> Self {
        let renew = |(name, vectors): (&String, &EmbedderVectors)| {
            let mut vectors = vectors.clone();
            if let Some(graph) = &mut vectors.graph {
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
            let mut graph = None;
            let open = known.get(&name).and_then(|vectors| vectors.graph.as_ref());
            let pace = RuntimePace(&**runtime);
            let partition = match open.filter(|open| open.folder == stored.folder).map(|open| &open.partition) {
                // Nothing was published since that the snapshot does not name.
                Some(open) if !open.is_poisoned() => Some(open.clone()),
                Some(open) => Some(open.open_again(&stored.manifest, &pace).await?),
                None if stored.folder.is_empty() => None,
                None => {
                    let folder = root.join(&stored.folder);
                    Some(VectorPartition::open(disk.clone(), &folder, &stored.manifest, budget(), &pace).await?)
                }
            };
            if let Some(partition) = partition {
                graph = Some(Graph { folder: stored.folder, snapshot: partition.snapshot(), partition });
            }
            found.insert(name, EmbedderVectors { graph, user: Rc::new(stored.user), fixed: Rc::new(stored.fixed) });
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
        for graph in self.0.values().filter_map(|vectors| vectors.graph.as_ref()) {
            graph.snapshot.preload(&RuntimePace(&**runtime)).await?;
        }
        Ok(())
    }

    /// Loads into memory what there is room for whole.
    ///
    /// # Errors
    /// [`FetchError`] where a file cannot be read.
    pub async fn preload_whole(&self, pace: &dyn Pace) -> Result<(), FetchError> {
        for graph in self.0.values().filter_map(|vectors| vectors.graph.as_ref()) {
            graph.partition.preload_whole(pace).await?;
        }
        Ok(())
    }

    /// Whether a write to any of the graphs has failed.
    pub fn is_poisoned(&self) -> bool {
        self.0.values().filter_map(|vectors| vectors.graph.as_ref()).any(|graph| graph.partition.is_poisoned())
    }

    /// The folders of graphs that a later state does not have any more.
    pub fn folders_missing_in(&self, later: &Self) -> Vec<String> {
        let folders = |vectors: &Self| -> Vec<String> {
            vectors.0.values().filter_map(|vectors| Some(vectors.graph.as_ref()?.folder.clone())).collect()
        };
        let kept = folders(later);
        folders(self).into_iter().filter(|folder| !kept.contains(folder)).collect()
    }

    /// Removes the folders that are none of these.
    async fn remove_others(&self, runtime: &Rc<dyn Runtime>, root: &Path) -> Result<(), PartitionError> {
        let disk = runtime.disk();
        if !disk.exists(root).await? {
            return Ok(());
        }
        let graphs = || self.0.values().filter_map(|vectors| vectors.graph.as_ref());
        for name in disk.list_dir(root).await? {
            if graphs().all(|graph| graph.folder != name) {
                disk.remove_dir_all(&root.join(&name)).await?;
            }
        }
        Ok(())
    }
}

/// One embedder's entry.
pub struct StoredVectors {
    /// See [`Graph::folder`]; empty where there is none.
    pub folder: String,
    /// See [`EmbedderVectors::user`].
    pub user: RoaringBitmap,
    /// See [`EmbedderVectors::fixed`].
    pub fixed: RoaringBitmap,
    /// The graph's.
    pub manifest: Vec<u8>,
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
        put_bytes(&mut out, self.folder.as_bytes());
        for set in [&self.user, &self.fixed] {
            let mut set = set.clone();
            set.optimize();
            let mut bytes = Vec::with_capacity(set.serialized_size());
            // Writing to memory does not fail.
            let _ = set.serialize_into(&mut bytes);
            put_bytes(&mut out, &bytes);
        }
        out.extend_from_slice(&self.manifest);
        out
    }

    fn decode(mut bytes: &[u8]) -> Option<Self> {
        if *bytes.split_off_first()? != VERSION {
            return None;
        }
        let folder = String::from_utf8(take_bytes(&mut bytes)?.to_vec()).ok()?;
        let user = RoaringBitmap::deserialize_from(take_bytes(&mut bytes)?).ok()?;
        let fixed = RoaringBitmap::deserialize_from(take_bytes(&mut bytes)?).ok()?;
        Some(Self { folder, user, fixed, manifest: bytes.to_vec() })
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
            folder: "e3-0".into(),
            user: [1, 5, 70_000].into_iter().collect(),
            fixed: RoaringBitmap::new(),
            manifest: vec![1, 2, 3],
        };
        let bytes = stored.encode();
        let back = StoredVectors::decode(&bytes).unwrap();
        assert_eq!(
            (back.folder, back.user, back.fixed, back.manifest),
            (stored.folder, stored.user, stored.fixed, stored.manifest)
        );
        assert!((0..8).all(|len| StoredVectors::decode(&bytes[..len]).is_none()));
    }
}
