//! The codes that the walk looks at, their distances, and how far those may be from the true ones.
//!
//! An 8-bit code is `c[i] = round(x[i] / s)` with `s = max |x| / 127`, each vector with its own `s` (the one-level form of
//! LVQ, arXiv 2304.04759, without its mean). A 1-bit code has a bit for each number greater than 0, in words of 64.
//!
//! A code's distance is ordered as the metric's but is another number, cheaper to get: `-cos` for cosine, `-dot` for dot,
//! the squared distance for euclidean, differing bits for 1-bit codes.

use super::kernels::{Kernels, kernels};
use super::{CodeKind, Config, Metric};

/// Before each code in memory: scale, norm, error (f32 each) and document (u32).
pub const CODE_HEADER_BYTES: usize = 16;

/// Norms below this are loose: the rule for tiny norms may make the vector equal to all others, so no graph can place it.
pub const NORM_LOOSE: f32 = 1e-3;

/// The interface's distance is 0 where the product of the norms is not above this.
const NORMS_PRODUCT_MIN: f32 = f32::EPSILON;

/// Bytes of a code with its header, a multiple of 16.
pub fn code_stride(config: &Config) -> usize {
    CODE_HEADER_BYTES + code_bytes(config).next_multiple_of(16)
}

/// Bytes of a code itself.
pub fn code_bytes(config: &Config) -> usize {
    match config.code_kind() {
        CodeKind::Int8 => config.dimensions as usize,
        CodeKind::Bits => config.dimensions.div_ceil(64) as usize * 8,
    }
}

fn f32_at(bytes: &[u8], at: usize) -> f32 {
    f32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// A code's factor: a dot product of codes times both factors is that of the vectors (of unit length, for cosine).
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

fn as_i8(bytes: &[u8]) -> &[i8] {
    // SAFETY: i8 has the size and alignment of u8, and every bit pattern is one.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) }
}

/// Writes the code of `vector` with its header into `out`, which is [`code_stride`] bytes long.
pub fn encode(config: &Config, doc: u32, vector: &[f32], out: &mut [u8]) {
    out.fill(0);
    let (header, code) = out.split_at_mut(CODE_HEADER_BYTES);
    let norm = (kernels().dot_f32)(vector, vector).sqrt();
    let (mut factor, mut error) = (0.0, 0.0);
    match config.code_kind() {
        CodeKind::Bits => {
            for (at, value) in vector.iter().enumerate() {
                code[at / 8] |= u8::from(*value > 0.0) << (at % 8);
            }
        }
        CodeKind::Int8 => {
            let step = vector.iter().fold(0f32, |most, v| most.max(v.abs())) / 127.0;
            // A step so small that its inverse is infinite codes as zeros.
            let inverse = if step > f32::MIN_POSITIVE { 1.0 / step } else { 0.0 };
            let mut squared_error = 0.0;
            for (value, out) in vector.iter().zip(code.iter_mut()) {
                let rounded = (value * inverse).round();
                *out = rounded as i8 as u8;
                squared_error += (value - rounded * step) * (value - rounded * step);
            }
            error = squared_error.sqrt();
            factor = match config.metric {
                Metric::Cosine if norm > 0.0 => step / norm,
                Metric::Cosine => 0.0,
                _ => step,
            };
        }
    }
    header[0..4].copy_from_slice(&f32::to_le_bytes(factor));
    header[4..8].copy_from_slice(&f32::to_le_bytes(norm));
    header[8..12].copy_from_slice(&f32::to_le_bytes(error));
    header[12..16].copy_from_slice(&doc.to_le_bytes());
}

/// Whether a code's vector is too short for the graph: it is compared with every query instead.
pub fn is_loose(config: &Config, code: &[u8]) -> bool {
    let norm = norm(code);
    config.metric == Metric::Cosine && !(norm >= NORM_LOOSE && norm.is_finite())
}

/// The vector that a 1-bit code of [`Metric::Hamming`] stands for.
pub fn decode_bits(config: &Config, code: &[u8]) -> Vec<f32> {
    let code = &code[CODE_HEADER_BYTES..];
    (0..config.dimensions as usize).map(|at| f32::from(code[at / 8] >> (at % 8) & 1)).collect()
}

/// Compares codes of one partition.
#[derive(Clone, Copy, Debug)]
pub struct Comparer {
    kernels: &'static Kernels,
    kind: CodeKind,
    metric: Metric,
    bytes: usize,
}

impl Comparer {
    /// For codes of `config`.
    pub fn new(config: &Config) -> Self {
        Self { kernels: kernels(), kind: config.code_kind(), metric: config.metric, bytes: code_bytes(config) }
    }

    /// The distance of two codes with their headers.
    #[inline]
    pub fn distance(&self, a: &[u8], b: &[u8]) -> f32 {
        let end = CODE_HEADER_BYTES + self.bytes;
        let (code_a, code_b) = (&a[CODE_HEADER_BYTES..end], &b[CODE_HEADER_BYTES..end]);
        match self.kind {
            CodeKind::Bits => (self.kernels.hamming)(code_a, code_b) as f32,
            CodeKind::Int8 => {
                let dot = (self.kernels.dot_i8)(as_i8(code_a), as_i8(code_b)) as f32 * scale(a) * scale(b);
                match self.metric {
                    Metric::Euclidean => norm(a) * norm(a) + norm(b) * norm(b) - 2.0 * dot,
                    _ => -dot,
                }
            }
        }
    }

    /// Whether the product of the norms is too small for a cosine: the distance is then 0.
    pub fn too_short(&self, a: &[u8], b: &[u8]) -> bool {
        self.metric == Metric::Cosine && norm(a) * norm(b) <= NORMS_PRODUCT_MIN
    }

    /// How far [`Self::distance`] from a query's code can be from the truth (Cauchy and Schwarz: each code's error times
    /// the other's length). 0 where the bits are the vector, infinite
    /// for other 1-bit codes, whose error has no bound, and for norms that are no numbers.
    pub fn error_bound(&self, query: &[u8], code: &[u8]) -> f32 {
        match (self.metric, self.kind) {
            (Metric::Hamming, _) => 0.0,
            (_, CodeKind::Bits) => f32::INFINITY,
            (metric, CodeKind::Int8) => {
                let (long, short) = (norm(query), norm(code));
                let bound = long * error(code) + error(query) * (short + error(code));
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
    if norms <= NORMS_PRODUCT_MIN {
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
        let mut out = vec![0; code_stride(config)];
        encode(config, 7, vector, &mut out);
        out
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
                let config = Config::new(a.len() as u32, metric);
                let (code_a, code_b) = (code(&config, &a), code(&config, &b));
                if is_loose(&config, &code_a) || is_loose(&config, &code_b) {
                    continue;
                }
                let comparer = Comparer::new(&config);
                let (norm_a, norm_b) = (norm(&code_a), norm(&code_b));
                let truth = comparer.true_distance(&a, &b, norm_a, norm_b);
                let coded = comparer.distance(&code_a, &code_b);
                let bound = comparer.error_bound(&code_a, &code_b) + 1e-5 * (norm_a + norm_b).powi(2);
                prop_assert!((truth - coded).abs() <= bound, "{metric:?} {truth} {coded} {bound}");
            }
        }

        #[test]
        fn bits_are_read_back((a, b) in pairs()) {
            let config = Config::new(a.len() as u32, Metric::Hamming);
            let (code_a, code_b) = (code(&config, &a), code(&config, &b));
            let signs: Vec<f32> = a.iter().map(|v| f32::from(u8::from(*v > 0.0))).collect();
            prop_assert_eq!(decode_bits(&config, &code_a), signs);
            let differ = a.iter().zip(&b).filter(|(a, b)| (**a > 0.0) != (**b > 0.0)).count() as f32;
            let comparer = Comparer::new(&config);
            let words = a.len().div_ceil(64) as f32;
            let distance = comparer.reported(comparer.distance(&code_a, &code_b));
            prop_assert_eq!(distance, differ / (64.0 * words));
            prop_assert_eq!(doc(&code_a), 7);
        }
    }

    #[test]
    fn tiny_norms_are_equal_to_everything_and_huge_ones_are_compared() {
        let config = Config::new(2, Metric::Cosine);
        let comparer = Comparer::new(&config);
        assert!(is_loose(&config, &code(&config, &[0.0, 0.0])));
        assert!(is_loose(&config, &code(&config, &[3e38, 3e38])));
        let distance = |a: &[f32], b: &[f32]| {
            let norm = |v: &[f32]| (kernels().dot_f32)(v, v).sqrt();
            comparer.reported(comparer.true_distance(a, b, norm(a), norm(b)))
        };
        assert_eq!(distance(&[0.0, 0.0], &[1.0, 2.0]), 0.0);
        assert_eq!(distance(&[3e38, 0.0], &[1.0, 0.0]), 0.0);
        assert_eq!(distance(&[3e38, 3e38], &[-1.0, -1.0]), 1.0);
        assert_eq!(distance(&[1.0, 0.0], &[0.0, 3.0]), 0.5);
        assert_eq!(distance(&[1.0, 0.0], &[-2.0, 0.0]), 1.0);
    }
}
