//! Codes of two or four bits per component (the one-vector form of extended RaBitQ, arXiv 2409.09913).
//!
//! A component's code `c` of `b` bits stands for the level `2c - (2^b - 1)`, an odd integer, times the vector's factor. Several
//! widths of the levels are tried; the one whose levels have the direction closest to the vector's is used. The factor makes the
//! levels' product with the vector itself exact, so products with other vectors are unbiased.
//!
//! A code has `8 / b` planes: byte `j` of `n` holds the codes of components `j`, `n + j`, ..., the first in its lowest bits.

use crate::vector::kernels::kernels;

/// Bytes of a code are a multiple of this.
const BYTES_MULTIPLE: usize = 32;

/// No code has more levels on one side of 0.
const LEVELS_MAX: f32 = 64.0;

/// Widths of a level that are tried, in standard deviations of the numbers.
fn widths(bits: usize) -> &'static [f32] {
    if bits == 2 { &[0.75, 0.9, 1.05, 1.2] } else { &[0.26, 0.3, 0.34, 0.39] }
}

/// Bytes of a code of so many numbers.
pub fn packed_bytes(dimensions: usize, bits: usize) -> usize {
    dimensions.div_ceil(8 / bits).next_multiple_of(BYTES_MULTIPLE)
}

/// What levels times a factor are to the vector that they were made of.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fit {
    /// The factor.
    pub factor: f32,
    /// Length of the difference.
    pub error: f32,
}

/// Writes the code of `vector` into `out`, which is [`packed_bytes`] long and zero. `norm` is the vector's length, or that of the
/// vector of which it is a code itself.
pub fn pack(vector: &[f32], norm: f32, bits: usize, out: &mut [u8]) -> Fit {
    let (last, deviation) = ((1 << bits) - 1, norm / (vector.len() as f32).sqrt());
    if !(deviation > f32::MIN_POSITIVE && deviation.is_finite()) {
        return Fit { factor: 0.0, error: norm };
    }
    let mut levels = vec![0.0; vector.len()];
    let tried = widths(bits).iter().map(|width| {
        let inverse = 1.0 / (deviation * width);
        levels.iter_mut().zip(vector).for_each(|(out, value)| *out = level(*value, inverse, last) as f32);
        let (product, square) = ((kernels().dot_f32)(&levels, vector), (kernels().dot_f32)(&levels, &levels));
        (product / square.sqrt(), product, square, inverse)
    });
    let (_, product, square, inverse) = tried.max_by(|a, b| a.0.total_cmp(&b.0)).expect("some widths are tried");
    for (plane, values) in vector.chunks(out.len()).enumerate() {
        for (byte, value) in out.iter_mut().zip(values) {
            *byte |= (((level(*value, inverse, last) + last) / 2) as u8) << (plane * bits);
        }
    }
    let factor = norm * norm / product;
    // The product of the vector and the coded one is the vector's square, so the difference's is that of the coded one less it.
    let error = (factor * factor * square - norm * norm).max(0.0).sqrt();
    if factor.is_finite() && error.is_finite() { Fit { factor, error } } else { Fit { factor: 0.0, error: norm } }
}

/// The level of a number, where a level is one `inverse`-th wide.
#[inline(always)]
fn level(value: f32, inverse: f32, last: i32) -> i32 {
    // Rounding down by way of positive numbers takes one instruction for several values at once.
    let step = ((value * inverse).clamp(-LEVELS_MAX, LEVELS_MAX) + LEVELS_MAX) as i32 - LEVELS_MAX as i32;
    (2 * step + 1).clamp(-last, last)
}

/// Writes the levels of a code, as many as `out` is long.
pub fn unpack(code: &[u8], bits: usize, out: &mut [i8]) {
    let last = (1u8 << bits) - 1;
    for (plane, levels) in out.chunks_mut(code.len()).enumerate() {
        for (level, byte) in levels.iter_mut().zip(code) {
            *level = (2 * (byte >> (plane * bits) & last)) as i8 - last as i8;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::vector::kernels::scalar::dot_f32;

    proptest! {
        /// The levels times the factor have the vector's product with itself, and are as far from it as said.
        #[test]
        fn codes_are_what_they_say(vector in proptest::collection::vec(-2.0f32..2.0, 1..300)) {
            for bits in [2, 4] {
                let norm = dot_f32(&vector, &vector).sqrt();
                let mut code = vec![0; packed_bytes(vector.len(), bits)];
                let fit = pack(&vector, norm, bits, &mut code);
                let mut levels = vec![0; vector.len()];
                unpack(&code, bits, &mut levels);
                let coded: Vec<f32> = levels.iter().map(|level| f32::from(*level) * fit.factor).collect();
                let difference: Vec<f32> = vector.iter().zip(&coded).map(|(a, b)| a - b).collect();
                let error = dot_f32(&difference, &difference).sqrt();
                prop_assert!((dot_f32(&vector, &coded) - norm * norm).abs() <= 1e-3 * norm * norm);
                prop_assert!((error - fit.error).abs() <= 1e-2 * norm, "{error} {}", fit.error);
            }
        }
    }

    #[test]
    fn zeros_and_huge_numbers_have_codes_too() {
        for value in [0.0, 1e-30, 3e38] {
            let mut code = vec![0; packed_bytes(64, 4)];
            let fit = pack(&[value; 64], value * 8.0, 4, &mut code);
            assert!(fit.factor.is_finite(), "{value}");
        }
    }
}
