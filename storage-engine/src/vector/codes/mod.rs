//! Quantized codes, their distances, and the error bounds of these distances.
//!
//! * Eight bits: `c[i] = round(x[i] / s)` with `s = max |x| / 127`, each vector with its own `s` (the one-level form of LVQ,
//!   arXiv 2304.04759, without its mean).
//! * Four or two bits: levels of the rotated vector ([`packed`], [`rotation`]). 2-bit codes are derived from 4-bit codes.
//! * One bit: whether the component is greater than 0, in 64-bit words.
//!
//! A code is compared with a [`Probe`]: a query, or another code, in eight bits or one.
//!
//! Distances of codes have the same order as those of the metric but are cheaper to compute: `-cos` for cosine, `-dot` for dot,
//! the squared distance for euclidean, the number of differing bits for 1-bit codes.

mod packed;
mod rotation;

use packed::{Fit, pack, packed_bytes, unpack};
use rotation::Rotation;

use super::kernels::{Kernels, Quantized, kernels};
use super::{CodeKind, Config, Metric};

/// Before each code in memory: scale, norm, error (f32 each) and document (u32).
pub const CODE_HEADER_BYTES: usize = 16;

/// Norms below this are loose: the rule for tiny norms may make the vector equal to all others, so no graph can place it.
pub const NORM_LOOSE: f32 = 1e-3;

/// The interface's distance is 0 where the product of the norms is not above this.
const NORMS_PRODUCT_MIN: f32 = f32::EPSILON;

/// Bytes of a code with its header, a multiple of 16.
pub fn code_stride(kind: CodeKind, dimensions: u32) -> usize {
    CODE_HEADER_BYTES + code_bytes(kind, dimensions).next_multiple_of(16)
}

/// Bytes of a code itself.
pub fn code_bytes(kind: CodeKind, dimensions: u32) -> usize {
    match kind {
        CodeKind::Int8 => dimensions as usize,
        CodeKind::Int4 => packed_bytes(dimensions as usize, 4),
        CodeKind::Int2 => packed_bytes(dimensions as usize, 2),
        CodeKind::Bits => dimensions.div_ceil(64) as usize * 8,
    }
}

fn f32_at(bytes: &[u8], at: usize) -> f32 {
    f32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// A code's factor: a dot product of a code's levels and a probe's times both factors is that of the vectors (of unit length,
/// for cosine).
fn scale(code: &[u8]) -> f32 {
    f32_at(code, 0)
}

/// The vector's norm.
pub fn norm(code: &[u8]) -> f32 {
    f32_at(code, 4)
}

/// Length of the difference between the vector and what its code says.
fn error(code: &[u8]) -> f32 {
    f32_at(code, 8)
}

/// The document of a code's vector.
#[inline(always)]
pub fn doc(code: &[u8]) -> u32 {
    u32::from_le_bytes(code[12..16].try_into().expect("four bytes"))
}

/// Whether a code's vector is too short for the graph: it is compared with every query instead.
pub fn is_loose(metric: Metric, norm: f32) -> bool {
    metric == Metric::Cosine && !(norm >= NORM_LOOSE && norm.is_finite())
}

/// What codes are compared with.
#[derive(Clone, Debug, Default)]
pub struct Probe {
    scale: f32,
    /// The vector's norm.
    pub norm: f32,
    error: f32,
    /// Sum of the levels, for codes whose levels are not counted from 0.
    sum: i32,
    levels: Vec<i8>,
}

impl Probe {
    /// Puts a vector's 8-bit code here, followed by zeros up to `len`, which is no less than the vector's.
    fn set(&mut self, vector: &[f32], metric: Metric, len: usize) {
        self.norm = (kernels().dot_f32)(vector, vector).sqrt();
        self.levels.clear();
        self.levels.resize(len, 0);
        let Quantized { step, squared_error, sum } = (kernels().quantize)(vector, &mut self.levels);
        (self.sum, self.error) = (sum, squared_error.sqrt());
        self.scale = of_unit(step, self.norm, metric);
    }
}

/// A factor for the vector of length 1, where the metric compares those.
fn of_unit(factor: f32, norm: f32, metric: Metric) -> f32 {
    match metric {
        Metric::Cosine if norm > 0.0 => factor / norm,
        Metric::Cosine => 0.0,
        _ => factor,
    }
}

/// Makes codes and probes of vectors.
#[derive(Clone, Debug)]
pub struct Coder {
    config: Config,
    /// For codes of four and two bits.
    rotation: Option<Rotation>,
}

impl Coder {
    /// For the vectors of a partition made with `config`.
    pub fn new(config: &Config) -> Self {
        let rotated = config.code_kind() == CodeKind::Int4;
        Self { config: *config, rotation: rotated.then(|| Rotation::new(config.dimensions as usize)) }
    }

    fn rotated(&self, vector: &[f32]) -> Vec<f32> {
        let mut vector = vector.to_vec();
        if let Some(rotation) = &self.rotation {
            rotation.apply(&mut vector);
        }
        vector
    }

    /// A query, or a vector that others are compared with.
    pub fn probe(&self, vector: &[f32]) -> Probe {
        let mut probe = Probe::default();
        if self.config.code_kind() == CodeKind::Bits {
            probe.norm = (kernels().dot_f32)(vector, vector).sqrt();
            let mut bits = vec![0; code_bytes(CodeKind::Bits, self.config.dimensions)];
            put_bits(vector, &mut bits);
            probe.levels.extend_from_slice(as_i8(&bits));
        } else {
            // As long as the planes of the codes that it is compared with.
            let len = match self.config.code_kind() {
                CodeKind::Int8 => vector.len(),
                _ => 2 * packed_bytes(vector.len(), 4).max(2 * packed_bytes(vector.len(), 2)),
            };
            probe.set(&self.rotated(vector), self.config.metric, len);
        }
        probe
    }

    /// Writes the code of `vector` with its header into `out`, which is as long as [`code_stride`] says for the partition's kind
    /// of code.
    pub fn encode(&self, doc: u32, vector: &[f32], out: &mut [u8]) {
        out.fill(0);
        let (header, code) = out.split_at_mut(CODE_HEADER_BYTES);
        let norm = (kernels().dot_f32)(vector, vector).sqrt();
        let fit = match self.config.code_kind() {
            CodeKind::Bits => {
                put_bits(vector, code);
                Fit::default()
            }
            CodeKind::Int8 => {
                let mut probe = Probe::default();
                probe.set(vector, self.config.metric, vector.len());
                code[..vector.len()].copy_from_slice(as_u8(&probe.levels));
                Fit { factor: probe.scale, error: probe.error }
            }
            CodeKind::Int4 | CodeKind::Int2 => {
                let fit = pack(&self.rotated(vector), norm, 4, code);
                Fit { factor: of_unit(fit.factor, norm, self.config.metric), ..fit }
            }
        };
        put_header(header, fit, norm, doc);
    }

    /// Writes a code of two bits made of one of four, both with their headers.
    pub fn narrow(&self, from: &[u8], out: &mut [u8]) {
        out.fill(0);
        let (norm, metric) = (norm(from), self.config.metric);
        let factor = if metric == Metric::Cosine { scale(from) * norm } else { scale(from) };
        let mut levels = vec![0; self.config.dimensions as usize];
        unpack(&from[CODE_HEADER_BYTES..][..code_bytes(CodeKind::Int4, self.config.dimensions)], 4, &mut levels);
        let vector: Vec<f32> = levels.iter().map(|level| f32::from(*level) * factor).collect();
        let (header, code) = out.split_at_mut(CODE_HEADER_BYTES);
        let fit = pack(&vector, norm, 2, &mut code[..code_bytes(CodeKind::Int2, self.config.dimensions)]);
        put_header(header, Fit { factor: of_unit(fit.factor, norm, metric), ..fit }, norm, doc(from));
    }
}

fn put_bits(vector: &[f32], out: &mut [u8]) {
    for (at, value) in vector.iter().enumerate() {
        out[at / 8] |= u8::from(*value > 0.0) << (at % 8);
    }
}

fn put_header(header: &mut [u8], fit: Fit, norm: f32, doc: u32) {
    header[0..4].copy_from_slice(&fit.factor.to_le_bytes());
    header[4..8].copy_from_slice(&norm.to_le_bytes());
    header[8..12].copy_from_slice(&fit.error.to_le_bytes());
    header[12..16].copy_from_slice(&doc.to_le_bytes());
}

fn as_i8(bytes: &[u8]) -> &[i8] {
    // SAFETY: i8 has the size and alignment of u8, and every bit pattern is one.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) }
}

fn as_u8(levels: &[i8]) -> &[u8] {
    // SAFETY: u8 has the size and alignment of i8, and every bit pattern is one.
    unsafe { std::slice::from_raw_parts(levels.as_ptr().cast(), levels.len()) }
}

/// The vector that a 1-bit code of [`Metric::Hamming`] stands for.
pub fn decode_bits(config: &Config, code: &[u8]) -> Vec<f32> {
    let code = &code[CODE_HEADER_BYTES..];
    (0..config.dimensions as usize).map(|at| f32::from(code[at / 8] >> (at % 8) & 1)).collect()
}

/// Compares codes of one kind with probes.
#[derive(Clone, Copy, Debug)]
pub struct Comparer {
    kernels: &'static Kernels,
    kind: CodeKind,
    metric: Metric,
    dimensions: u32,
    bytes: usize,
}

impl Comparer {
    /// For codes of this kind of the vectors of `config`.
    pub fn new(config: &Config, kind: CodeKind) -> Self {
        let bytes = code_bytes(kind, config.dimensions);
        Self { kernels: kernels(), kind, metric: config.metric, dimensions: config.dimensions, bytes }
    }

    /// The kind of code.
    pub fn kind(&self) -> CodeKind {
        self.kind
    }

    /// Makes a code what others are compared with.
    pub fn probe(&self, code: &[u8], probe: &mut Probe) {
        (probe.scale, probe.norm, probe.error) = (scale(code), norm(code), error(code));
        let levels = &code[CODE_HEADER_BYTES..CODE_HEADER_BYTES + self.bytes];
        probe.levels.clear();
        match self.kind {
            CodeKind::Int8 | CodeKind::Bits => probe.levels.extend_from_slice(as_i8(levels)),
            CodeKind::Int4 | CodeKind::Int2 => {
                let bits = if self.kind == CodeKind::Int4 { 4 } else { 2 };
                probe.levels.resize(levels.len() * 8 / bits, 0);
                let (own, rest) = probe.levels.split_at_mut(self.dimensions as usize);
                unpack(levels, bits, own);
                rest.fill(0);
                probe.sum = own.iter().map(|level| i32::from(*level)).sum();
            }
        }
    }

    /// The distance of a code with its header.
    #[inline]
    pub fn distance(&self, probe: &Probe, code: &[u8]) -> f32 {
        let levels = &code[CODE_HEADER_BYTES..CODE_HEADER_BYTES + self.bytes];
        let sum = match self.kind {
            CodeKind::Bits => return (self.kernels.hamming)(as_u8(&probe.levels), levels) as f32,
            CodeKind::Int8 => (self.kernels.dot_i8)(&probe.levels, as_i8(levels)),
            // A code is the level's place: see `packed`.
            CodeKind::Int4 => 2 * (self.kernels.dot_u4)(levels, &probe.levels) - 15 * probe.sum,
            CodeKind::Int2 => 2 * (self.kernels.dot_u2)(levels, &probe.levels) - 3 * probe.sum,
        };
        let dot = sum as f32 * scale(code) * probe.scale;
        match self.metric {
            Metric::Euclidean => probe.norm * probe.norm + norm(code) * norm(code) - 2.0 * dot,
            _ => -dot,
        }
    }

    /// Whether the product of the norms is too small for a cosine: the distance is then 0.
    pub fn too_short(&self, probe: &Probe, code: &[u8]) -> bool {
        self.metric == Metric::Cosine && probe.norm * norm(code) <= NORMS_PRODUCT_MIN
    }

    /// How far [`Self::distance`] from a query can be from the truth, at most (Cauchy and Schwarz: each code's error times the
    /// other's length), or in so many standard deviations of what errors of independent signs add up to. 0 where the bits
    /// are the vector, infinite for other 1-bit codes, whose error has no bound, and for norms that are no numbers.
    pub fn error_bound(&self, query: &Probe, code: &[u8], deviations: Option<f32>) -> f32 {
        match (self.metric, self.kind) {
            (Metric::Hamming, _) => 0.0,
            (_, CodeKind::Bits) => f32::INFINITY,
            (metric, _) => {
                let (long, short) = (query.norm, norm(code));
                let likely =
                    deviations.map_or(1.0, |deviations| (deviations / (self.dimensions as f32).sqrt()).min(1.0));
                let bound = (long * error(code) + query.error * (short + error(code))) * likely;
                // Rounding of the sums themselves: a millionth of what is summed.
                let bound = match metric {
                    Metric::Cosine => bound / (long * short) + 1e-6,
                    Metric::Euclidean => 2.0 * bound + 1e-6 * (long * long + short * short),
                    _ => bound + 1e-6 * long * short,
                };
                if bound.is_nan() { f32::INFINITY } else { bound }
            }
        }
    }

    /// The code distance of a query and a full vector with these norms, without the codes' errors.
    pub fn true_distance(&self, query: &[f32], vector: &[f32], norm_query: f32, norm: f32) -> f32 {
        match self.metric {
            Metric::Cosine => -cosine(self.kernels, query, vector, norm_query * norm),
            Metric::Dot => -(self.kernels.dot_f32)(query, vector),
            Metric::Euclidean => (self.kernels.squared_f32)(query, vector),
            // The bits are the vector: codes are compared, never this.
            Metric::Hamming => 0.0,
        }
    }

    /// The code distance of what is `factor` times as far from a query as what has this one; infinite where lengths do not
    /// follow from distances: of products, and of bits.
    pub fn farther(&self, distance: f32, factor: f32) -> f32 {
        match (self.metric, self.kind) {
            (Metric::Dot | Metric::Hamming, _) | (_, CodeKind::Bits) => f32::INFINITY,
            // Between vectors of length 1, twice one more than the distance is the square of the Euclidean one.
            (Metric::Cosine, _) => factor * factor * (1.0 + distance).max(0.0) - 1.0,
            (Metric::Euclidean, _) => factor * factor * distance.max(0.0),
        }
    }

    /// The metric's distance for the code distance of a true comparison.
    pub fn reported(&self, distance: f32) -> f32 {
        match self.metric {
            Metric::Cosine => ((1.0 + distance) / 2.0).clamp(0.0, 1.0),
            Metric::Dot => distance,
            Metric::Euclidean => distance.max(0.0).sqrt(),
            Metric::Hamming => distance / (self.bytes * 8) as f32,
        }
    }
}

/// The cosine; 1 where the product of the norms is too small to tell.
fn cosine(kernels: &Kernels, a: &[f32], b: &[f32], norms: f32) -> f32 {
    // Of an infinite norm and 0 the product is no number.
    if norms <= NORMS_PRODUCT_MIN || norms.is_nan() {
        return 1.0;
    }
    let cosine = (kernels.dot_f32)(a, b) / norms;
    if cosine.is_finite() && norms.is_finite() {
        return cosine.clamp(-1.0, 1.0);
    }
    // Numbers beyond 1e19, whose squares are no 32-bit floats.
    let sum = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    (sum(a, b) / (sum(a, a).sqrt() * sum(b, b).sqrt())).clamp(-1.0, 1.0) as f32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn code(config: &Config, vector: &[f32]) -> Vec<u8> {
        let mut out = vec![0; code_stride(config.code_kind(), config.dimensions)];
        Coder::new(config).encode(7, vector, &mut out);
        out
    }

    fn of_kind(dimensions: usize, metric: Metric, codes: CodeKind) -> Config {
        Config { codes, ..Config::new(dimensions as u32, metric) }
    }

    fn pairs() -> impl Strategy<Value = (Vec<f32>, Vec<f32>)> {
        let number = prop_oneof![-1.0f32..1.0, -1e-3f32..1e-3, -100f32..100.0];
        proptest::collection::vec((number.clone(), number), 1..80).prop_map(|pairs| pairs.into_iter().unzip())
    }

    proptest! {
        /// The re-ranking stops reading where no unread vector can be nearer: a bound too small would lose hits.
        #[test]
        fn errors_keep_their_bound((a, b) in pairs()) {
            for metric in [Metric::Cosine, Metric::Dot, Metric::Euclidean] {
                for kind in [CodeKind::Int8, CodeKind::Int4] {
                    let config = of_kind(a.len(), metric, kind);
                    let (probe, code) = (Coder::new(&config).probe(&a), code(&config, &b));
                    let norms = (probe.norm, norm(&code));
                    if is_loose(metric, norms.0) || is_loose(metric, norms.1) {
                        continue;
                    }
                    let comparer = Comparer::new(&config, kind);
                    let truth = comparer.true_distance(&a, &b, norms.0, norms.1);
                    let coded = comparer.distance(&probe, &code);
                    let bound = comparer.error_bound(&probe, &code, None) * 1.001 + 1e-5 * (norms.0 + norms.1).powi(2);
                    prop_assert!((truth - coded).abs() <= bound, "{metric:?} {kind:?} {truth} {coded} {bound}");
                }
            }
        }

        /// A code as a probe gives the distance of the two codes, whichever of them is the probe.
        #[test]
        fn codes_are_compared_with_codes((a, b) in pairs()) {
            for (stored, kind) in
                [(CodeKind::Int8, CodeKind::Int8), (CodeKind::Int4, CodeKind::Int4), (CodeKind::Int4, CodeKind::Int2)]
            {
                let config = of_kind(a.len(), Metric::Dot, stored);
                let comparer = Comparer::new(&config, kind);
                let codes = [&a, &b].map(|vector| {
                    let code = code(&config, vector);
                    let mut narrow = vec![0; code_stride(kind, config.dimensions)];
                    if stored == kind { narrow.copy_from_slice(&code) } else { Coder::new(&config).narrow(&code, &mut narrow) }
                    narrow
                });
                let mut probe = Probe::default();
                let distances = [(0, 1), (1, 0)].map(|(from, to)| {
                    comparer.probe(&codes[from], &mut probe);
                    comparer.distance(&probe, &codes[to])
                });
                prop_assert!((distances[0] - distances[1]).abs() <= 1e-5 * distances[0].abs(), "{kind:?} {distances:?}");
            }
        }

        #[test]
        fn bits_are_read_back((a, b) in pairs()) {
            let config = Config::new(a.len() as u32, Metric::Hamming);
            let (probe, code_a, code_b) = (Coder::new(&config).probe(&a), code(&config, &a), code(&config, &b));
            let signs: Vec<f32> = a.iter().map(|v| f32::from(u8::from(*v > 0.0))).collect();
            prop_assert_eq!(decode_bits(&config, &code_a), signs);
            let differ = a.iter().zip(&b).filter(|(a, b)| (**a > 0.0) != (**b > 0.0)).count() as f32;
            let comparer = Comparer::new(&config, CodeKind::Bits);
            let words = a.len().div_ceil(64) as f32;
            let distance = comparer.reported(comparer.distance(&probe, &code_b));
            prop_assert_eq!(distance, differ / (64.0 * words));
            prop_assert_eq!(doc(&code_a), 7);
        }
    }

    #[test]
    fn tiny_norms_are_equal_to_everything_and_huge_ones_are_compared() {
        let config = Config::new(2, Metric::Cosine);
        let comparer = Comparer::new(&config, CodeKind::Int8);
        assert!(is_loose(config.metric, norm(&code(&config, &[0.0, 0.0]))));
        assert!(is_loose(config.metric, norm(&code(&config, &[3e38, 3e38]))));
        let distance = |a: &[f32], b: &[f32]| {
            let norm = |v: &[f32]| (kernels().dot_f32)(v, v).sqrt();
            comparer.reported(comparer.true_distance(a, b, norm(a), norm(b)))
        };
        assert_eq!(distance(&[0.0, 0.0], &[1.0, 2.0]), 0.0);
        assert_eq!(distance(&[3e38, 0.0], &[1.0, 0.0]), 0.0);
        assert_eq!(distance(&[3e38, 3e38], &[0.0, 0.0]), 0.0);
        assert_eq!(distance(&[3e38, 3e38], &[-1.0, -1.0]), 1.0);
        assert_eq!(distance(&[1.0, 0.0], &[0.0, 3.0]), 0.5);
        assert_eq!(distance(&[1.0, 0.0], &[-2.0, 0.0]), 1.0);
    }

    /// In the directions that matter, errors are those of independent signs: a search stops reading by that.
    #[test]
    fn errors_of_packed_codes_are_as_likely_as_said() {
        use rand::rngs::StdRng;
        use rand::{Rng, SeedableRng};
        let mut rng = StdRng::seed_from_u64(3);
        // Most of the length lies in few numbers, as in the outliers of real embeddings.
        let mut vector = || -> Vec<f32> {
            (0..384).map(|at| (rng.random::<f32>() - 0.5) * if at % 40 == 0 { 10.0 } else { 1.0 }).collect()
        };
        let config = of_kind(384, Metric::Cosine, CodeKind::Int4);
        let (coder, query) = (Coder::new(&config), vector());
        let probe = coder.probe(&query);
        for kind in [CodeKind::Int4, CodeKind::Int2] {
            let comparer = Comparer::new(&config, kind);
            let (mut beyond, mut sum) = ([0; 3], 0.0);
            for _ in 0..2000 {
                let other = vector();
                let mut stored = code(&config, &other);
                if kind == CodeKind::Int2 {
                    let mut narrow = vec![0; code_stride(kind, config.dimensions)];
                    coder.narrow(&stored, &mut narrow);
                    stored = narrow;
                }
                let truth = comparer.true_distance(&query, &other, probe.norm, norm(&stored));
                let off = comparer.distance(&probe, &stored) - truth;
                sum += off;
                for (count, deviations) in beyond.iter_mut().zip([1.0, 2.0, 4.0]) {
                    *count += usize::from(off.abs() > comparer.error_bound(&probe, &stored, Some(deviations)));
                }
            }
            assert!(beyond[0] < 800 && beyond[1] < 150 && beyond[2] == 0, "{kind:?} {beyond:?}");
            assert!((sum / 2000.0).abs() < 0.002, "{kind:?} {sum}");
        }
    }
}
