//! Encoding of a partition's files: headers, records of vectors and codes, frames of changed links, the manifest. `FORMAT.md`
//! specifies the formats.

use roaring::RoaringBitmap;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::codes::{CODE_HEADER_BYTES, code_bytes};
use super::links::Links;
use super::{CodeKind, Config, DIMENSIONS_MAX, LINKS_BOTTOM, LINKS_UPPER, Metric};

/// Name of the file of full vectors.
pub(super) const VECTORS: &str = "vectors";
/// Name of the file of codes.
pub(super) const CODES: &str = "codes";
/// Bytes before the first record of `vectors` and `codes`.
const HEADER_BYTES: u64 = 4096;
/// Before a record's content: checksum (8), document (4), ordinal (2), zero (2).
const RECORD_HEADER_BYTES: usize = 16;
/// Records of vectors begin at multiples of this.
const VECTOR_ALIGNMENT: usize = 64;
/// Records of codes begin at multiples of this.
const CODE_ALIGNMENT: usize = 16;
/// Before a frame's content: its length (8), checksum (8), epoch (8).
pub(super) const FRAME_HEADER_BYTES: usize = 24;
const FILE_MAGIC: &[u8; 8] = b"SKERRYVF";
const MANIFEST_MAGIC: &[u8; 8] = b"SKERRYVM";
/// Version of the formats.
pub(super) const VERSION: u32 = 1;
/// Layers above the bottom at most: a 33rd of the nodes of one is in the next, so never reached.
pub(super) const LEVEL_MAX: u8 = 12;

/// The checksum of all files here.
pub(super) fn checksum(seed: u64, bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, seed)
}

/// Name of the graph file that a merge at `epoch` wrote.
pub(super) fn graph_name(epoch: u64) -> String {
    format!("graph-{epoch:016x}")
}

/// Name of the file of changes to the graph file of `epoch`, 0 for none.
pub(super) fn delta_name(epoch: u64) -> String {
    format!("delta-{epoch:016x}")
}

/// The format version of bytes that begin with a mark and their version and end with their checksum, where it is another one
/// than this program's.
fn other_version(bytes: &[u8], magic: &[u8; 8]) -> Option<u32> {
    let (content, sum) = bytes.split_last_chunk::<8>()?;
    let mut reader = Reader(content);
    let is_marked = reader.take(8)? == magic && u64::from_le_bytes(*sum) == checksum(0, content);
    reader.u32().filter(|version| is_marked && *version != VERSION)
}

/// What a file of records begins with: that it is one, and of which shape.
pub(super) struct FileHeader;

impl FileHeader {
    /// Bytes of the part that says something; the first record begins further on.
    pub const BYTES: usize = 32;

    pub fn encode(config: &Config, name: &str) -> Vec<u8> {
        let mut out = FILE_MAGIC.to_vec();
        out.extend(VERSION.to_le_bytes());
        out.extend(config.dimensions.to_le_bytes());
        out.push(place(&METRICS, &config.metric));
        out.push(place(&KINDS, &config.code_kind()));
        out.push(u8::from(name == VECTORS));
        out.resize(Self::BYTES - 8, 0);
        let sum = checksum(0, &out);
        out.extend(sum.to_le_bytes());
        out
    }

    /// The format version of a header that another version of the program wrote.
    pub fn other_version(header: &[u8]) -> Option<u32> {
        other_version(header, FILE_MAGIC)
    }
}

/// Where the records of a file are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Records {
    /// Bytes from one to the next.
    pub stride: usize,
}

impl Records {
    /// Those of the full vectors.
    pub fn vectors(config: &Config) -> Self {
        Self { stride: (RECORD_HEADER_BYTES + config.dimensions as usize * 4).next_multiple_of(VECTOR_ALIGNMENT) }
    }

    /// Those of the codes.
    pub fn codes(config: &Config) -> Self {
        let content = CODE_HEADER_BYTES + code_bytes(config.code_kind(), config.dimensions);
        Self { stride: (RECORD_HEADER_BYTES + content).next_multiple_of(CODE_ALIGNMENT) }
    }

    /// Where the record of a node begins.
    pub fn offset(&self, node: u32) -> u64 {
        HEADER_BYTES + u64::from(node) * self.stride as u64
    }

    /// A record. Content that is shorter than it is followed by zeros.
    pub fn encode(&self, node: u32, doc: u32, ordinal: u16, content: &[u8]) -> Vec<u8> {
        let mut record = vec![0; self.stride];
        record[8..12].copy_from_slice(&doc.to_le_bytes());
        record[12..14].copy_from_slice(&ordinal.to_le_bytes());
        record[RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + content.len()].copy_from_slice(content);
        let sum = checksum(u64::from(node), &record[8..]);
        record[..8].copy_from_slice(&sum.to_le_bytes());
        record
    }

    /// Document, ordinal and content of a record, if it is what was written for this node.
    pub fn decode<'a>(&self, node: u32, record: &'a [u8]) -> Option<(u32, u16, &'a [u8])> {
        if record.len() != self.stride || record[..8] != checksum(u64::from(node), &record[8..]).to_le_bytes() {
            return None;
        }
        let doc = u32::from_le_bytes(record[8..12].try_into().ok()?);
        let ordinal = u16::from_le_bytes(record[12..14].try_into().ok()?);
        Some((doc, ordinal, &record[RECORD_HEADER_BYTES..]))
    }
}

/// The bytes of a vector.
pub(super) fn vector_bytes(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// The vector of these bytes.
pub(super) fn vector_of(bytes: &[u8], dimensions: u32) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().take(dimensions as usize).map(|value| f32::from_le_bytes(*value)).collect()
}

/// Changed links: of nodes in the bottom layer, and of nodes in the layers above it, from layer 1 up (none: the node is not there).
#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    pub bottom: Vec<(u32, Links)>,
    pub upper: Vec<(u32, Vec<Vec<u32>>)>,
}

/// Takes parts off the front of bytes; each is none where too few are left.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (part, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(part)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|part| part[0])
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    /// A count (u8), at most `most`, and as many nodes, each below `nodes`.
    fn links(&mut self, most: usize, nodes: u32) -> Option<Vec<u32>> {
        let len = usize::from(self.u8()?);
        let found: Vec<u32> = (0..len).map(|_| self.u32()).collect::<Option<_>>()?;
        (len <= most && found.iter().all(|node| *node < nodes)).then_some(found)
    }
}

fn put_links(out: &mut Vec<u8>, links: &[u32]) {
    out.push(links.len() as u8);
    out.extend(links.iter().flat_map(|node| node.to_le_bytes()));
}

impl Changes {
    /// The changes as a frame.
    pub fn encode(&self, epoch: u64) -> Vec<u8> {
        let mut out = vec![0; FRAME_HEADER_BYTES];
        out.extend((self.bottom.len() as u32).to_le_bytes());
        for (node, links) in &self.bottom {
            out.extend(node.to_le_bytes());
            put_links(&mut out, links.as_slice());
        }
        out.extend((self.upper.len() as u32).to_le_bytes());
        for (node, levels) in &self.upper {
            out.extend(node.to_le_bytes());
            out.push(levels.len() as u8);
            levels.iter().for_each(|links| put_links(&mut out, links));
        }
        let len = (out.len() - FRAME_HEADER_BYTES) as u64;
        out[..8].copy_from_slice(&len.to_le_bytes());
        out[16..24].copy_from_slice(&epoch.to_le_bytes());
        let sum = checksum(len, &out[16..]);
        out[8..16].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Bytes of the frame at the front of `bytes`, as its header has it; none where the header is not whole.
    pub fn frame_bytes(bytes: &[u8]) -> Option<usize> {
        usize::try_from(Reader(bytes).u64()?).ok()?.checked_add(FRAME_HEADER_BYTES)
    }

    /// The changes of the frame at the front of `bytes` and the frame's length; none where it is not whole, or names a
    /// node that is not below `nodes`.
    pub fn decode(bytes: &[u8], nodes: u32) -> Option<(Self, usize)> {
        let frame = bytes.get(..Self::frame_bytes(bytes)?)?;
        let mut header = Reader(bytes);
        let (len, sum) = (header.u64()?, header.u64()?);
        if checksum(len, &frame[16..]) != sum {
            return None;
        }
        let mut reader = Reader(&frame[FRAME_HEADER_BYTES..]);
        let mut changes = Self::default();
        for _ in 0..reader.u32()? {
            let node = reader.u32().filter(|node| *node < nodes)?;
            changes.bottom.push((node, Links::of(&reader.links(LINKS_BOTTOM, nodes)?)));
        }
        for _ in 0..reader.u32()? {
            let node = reader.u32().filter(|node| *node < nodes)?;
            let levels = reader.u8().filter(|levels| *levels <= LEVEL_MAX)?;
            let levels = (0..levels).map(|_| reader.links(LINKS_UPPER, nodes)).collect::<Option<_>>()?;
            changes.upper.push((node, levels));
        }
        reader.0.is_empty().then_some((changes, frame.len()))
    }
}

/// What a state consists of: the caller keeps these bytes with its own state of the same epoch.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Manifest {
    pub config: Config,
    pub epoch: u64,
    /// Nodes are numbered below this.
    pub node_count: u32,
    /// Where searches begin: a node and its layer.
    pub entry: Option<(u32, u8)>,
    /// Epoch in the name of the graph's file, 0 for none.
    pub base: u64,
    /// Pages in it.
    pub pages: u32,
    /// Bytes of the frame behind them.
    pub upper_bytes: u64,
    /// Bytes of the file of changes.
    pub delta_bytes: u64,
    /// Nodes that are vectors of documents.
    pub live: RoaringBitmap,
}

const METRICS: [Metric; 4] = [Metric::Cosine, Metric::Dot, Metric::Euclidean, Metric::Hamming];
const KINDS: [CodeKind; 4] = [CodeKind::Int8, CodeKind::Bits, CodeKind::Int4, CodeKind::Int2];

fn place<T: PartialEq>(all: &[T], one: &T) -> u8 {
    all.iter().position(|known| known == one).expect("all are listed") as u8
}

impl Manifest {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MANIFEST_MAGIC.to_vec();
        out.extend(VERSION.to_le_bytes());
        out.extend(self.config.dimensions.to_le_bytes());
        out.push(place(&METRICS, &self.config.metric));
        out.push(place(&KINDS, &self.config.codes));
        out.extend(self.config.build_width.to_le_bytes());
        out.extend(self.config.seed.to_le_bytes());
        out.extend(self.epoch.to_le_bytes());
        out.extend(self.node_count.to_le_bytes());
        let (node, level) = self.entry.unwrap_or((u32::MAX, 0));
        out.extend(node.to_le_bytes());
        out.push(level);
        out.extend(self.base.to_le_bytes());
        out.extend(self.pages.to_le_bytes());
        out.extend(self.upper_bytes.to_le_bytes());
        out.extend(self.delta_bytes.to_le_bytes());
        self.live.serialize_into(&mut out).expect("memory takes all bytes");
        let sum = checksum(0, &out);
        out.extend(sum.to_le_bytes());
        out
    }

    /// The format version of a manifest that another version of the program wrote.
    pub fn other_version(bytes: &[u8]) -> Option<u32> {
        other_version(bytes, MANIFEST_MAGIC)
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (content, sum) = bytes.split_last_chunk::<8>()?;
        if u64::from_le_bytes(*sum) != checksum(0, content) {
            return None;
        }
        let mut reader = Reader(content);
        if reader.take(8)? != MANIFEST_MAGIC || reader.u32()? != VERSION {
            return None;
        }
        let config = Config {
            dimensions: reader.u32().filter(|dimensions| (1..=DIMENSIONS_MAX).contains(dimensions))?,
            metric: *METRICS.get(usize::from(reader.u8()?))?,
            codes: *KINDS.get(usize::from(reader.u8()?))?,
            build_width: u16::from_le_bytes(reader.take(2)?.try_into().ok()?),
            seed: reader.u64()?,
        };
        let (epoch, node_count) = (reader.u64()?, reader.u32()?);
        let entry = Some((reader.u32()?, reader.u8()?)).filter(|(node, _)| *node != u32::MAX);
        let (base, pages, upper_bytes, delta_bytes) = (reader.u64()?, reader.u32()?, reader.u64()?, reader.u64()?);
        let live = RoaringBitmap::deserialize_from(reader.0).ok()?;
        let below = |node: u32| node < node_count;
        let sound = entry.is_none_or(|(node, level)| live.contains(node) && level <= LEVEL_MAX);
        (sound && live.max().is_none_or(below)).then_some(Self {
            config,
            epoch,
            node_count,
            entry,
            base,
            pages,
            upper_bytes,
            delta_bytes,
            live,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_and_frames_are_read_back_and_damage_is_found() {
        let manifest = Manifest {
            config: Config::new(384, Metric::Euclidean),
            epoch: 9,
            node_count: 100,
            entry: Some((3, 2)),
            base: 7,
            pages: 4,
            upper_bytes: 50,
            delta_bytes: 60,
            live: (0..90).collect(),
        };
        let bytes = manifest.encode();
        assert_eq!(Manifest::decode(&bytes), Some(manifest));
        let changes = Changes {
            bottom: vec![(1, Links::of(&[2, 3])), (9, Links::default())],
            upper: vec![(4, vec![vec![5], vec![]]), (6, vec![])],
        };
        let frame = changes.encode(9);
        let (read, len) = Changes::decode(&[&frame[..], b"next"].concat(), 10).expect("a frame");
        assert_eq!((len, format!("{read:?}")), (frame.len(), format!("{changes:?}")));
        assert!(Changes::decode(&frame, 9).is_none(), "node 9 is not below 9");
        assert_eq!((Changes::frame_bytes(&frame[..8]), Changes::frame_bytes(&frame[..7])), (Some(frame.len()), None));
        for (original, decodes) in [
            (&bytes, &(|b: &[u8]| Manifest::decode(b).is_some()) as &dyn Fn(&[u8]) -> bool),
            (&frame, &|b| Changes::decode(b, 10).is_some()),
        ] {
            for bit in 0..original.len() * 8 {
                let mut flipped = original.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(!decodes(&flipped), "bit {bit}");
            }
            assert!((0..original.len()).all(|len| !decodes(&original[..len])));
        }
    }

    #[test]
    fn records_of_other_nodes_are_refused() {
        let records = Records::vectors(&Config::new(3, Metric::Dot));
        let record = records.encode(5, 8, 2, &vector_bytes(&[1.0, -2.0, 0.5]));
        let (doc, ordinal, content) = records.decode(5, &record).expect("its own");
        assert_eq!((doc, ordinal, vector_of(content, 3)), (8, 2, vec![1.0, -2.0, 0.5]));
        assert!(records.decode(6, &record).is_none());
        assert_eq!((records.stride, records.offset(2)), (64, 4096 + 128));
    }
}
