//! Distances between vectors and between their codes, by the widest instructions that this machine has.
//!
//! [`kernels`] looks once what there is: AVX-512 (with VNNI and VPOPCNTDQ), AVX2 with FMA, NEON, or plain code. The plain functions in
//! [`scalar`] are the definition; tests hold the others to them. Sums of 32-bit floats are made in another order by
//! each, so they differ in the last digits; the integer kernels agree to the bit.

#[cfg(target_arch = "aarch64")]
mod aarch64;
pub mod scalar;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::sync::OnceLock;

/// The functions of one instruction set. Both arguments of each must have the same length; what goes past the shorter is
/// left out. Codes of four and two bits come in two and four planes as long as the codes, and with at least as many levels.
#[derive(Clone, Copy, Debug)]
pub struct Kernels {
    /// Name of the instruction set, for reports.
    pub name: &'static str,
    /// Sum of the products.
    pub dot_f32: fn(&[f32], &[f32]) -> f32,
    /// Sum of the squared differences.
    pub squared_f32: fn(&[f32], &[f32]) -> f32,
    /// Sum of the products; exact up to 2^17 dimensions.
    pub dot_i8: fn(&[i8], &[i8]) -> i32,
    /// Sum of the products of codes of four bits, in bytes of two, and levels.
    pub dot_u4: fn(&[u8], &[i8]) -> i32,
    /// Sum of the products of codes of two bits, in bytes of four, and levels.
    pub dot_u2: fn(&[u8], &[i8]) -> i32,
    /// Number of bits that differ.
    pub hamming: fn(&[u8], &[u8]) -> u32,
    /// Multiplies each number by its factor.
    pub multiply_f32: fn(&mut [f32], &[f32]),
    /// The Walsh-Hadamard transform of a power of two of numbers, scaled to keep their length. To the bit the same in all sets.
    pub hadamard: fn(&mut [f32]),
    /// Writes finite numbers as levels of 8 bits, at most 127 on either side of 0. To the bit the same in all sets.
    pub quantize: fn(&[f32], &mut [i8]) -> Quantized,
}

/// What levels are to the numbers that they were made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantized {
    /// Width of a level.
    pub step: f32,
    /// Sum of the squared differences.
    pub squared_error: f32,
    /// Sum of the levels.
    pub sum: i32,
}

/// The plain functions.
pub const SCALAR: Kernels = Kernels {
    name: "scalar",
    dot_f32: scalar::dot_f32,
    squared_f32: scalar::squared_f32,
    dot_i8: scalar::dot_i8,
    dot_u4: scalar::dot_u4,
    dot_u2: scalar::dot_u2,
    hamming: scalar::hamming,
    multiply_f32: scalar::multiply_f32,
    hadamard: scalar::hadamard,
    quantize: scalar::quantize,
};

/// The fastest functions for this machine, found at the first call.
pub fn kernels() -> &'static Kernels {
    static FOUND: OnceLock<Kernels> = OnceLock::new();
    FOUND.get_or_init(|| all().last().copied().unwrap_or(SCALAR))
}

/// All sets that this machine can run, slowest first.
pub fn all() -> Vec<Kernels> {
    #[cfg(target_arch = "x86_64")]
    return std::iter::once(SCALAR).chain(x86::available()).collect();
    #[cfg(target_arch = "aarch64")]
    return std::iter::once(SCALAR).chain(aarch64::available()).collect();
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return vec![SCALAR];
}

/// The bytes of numbers, for [`prefetch`].
pub fn bytes_of(numbers: &[f32]) -> &[u8] {
    // SAFETY: every byte of a number is one, and they are as many.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}

/// Asks the processor to fetch the cache lines of `bytes` that will be needed soon.
#[inline(always)]
pub fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    x86::prefetch(bytes);
    #[cfg(target_arch = "aarch64")]
    aarch64::prefetch(bytes);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = bytes;
}

/// The same for the cache line on which `value` begins.
#[inline(always)]
pub fn prefetch_line<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    x86::prefetch_line(value);
    #[cfg(target_arch = "aarch64")]
    aarch64::prefetch_line(value);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = value;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn near(a: f32, b: f32, magnitude: f32) -> bool {
        (a - b).abs() <= 1e-5 * magnitude.max(1e-6)
    }

    proptest! {
        #[test]
        fn float_kernels_agree_with_the_plain_ones(pairs in proptest::collection::vec((-2.0f32..2.0, -2.0f32..2.0), 0..200)) {
            let (a, b): (Vec<f32>, Vec<f32>) = pairs.into_iter().unzip();
            let magnitude: f32 = a.iter().zip(&b).map(|(a, b)| (a * b).abs() + (a - b) * (a - b)).sum();
            for set in all() {
                let (dot, squared) = ((set.dot_f32)(&a, &b), (set.squared_f32)(&a, &b));
                prop_assert!(near(dot, scalar::dot_f32(&a, &b), magnitude), "{} dot {dot}", set.name);
                prop_assert!(near(squared, scalar::squared_f32(&a, &b), magnitude), "{} squared {squared}", set.name);
            }
        }

        #[test]
        fn transforms_and_levels_agree_to_the_bit(numbers in proptest::collection::vec(-2.0f32..2.0, 1..600)) {
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            let span = 1 << numbers.len().ilog2();
            for set in all() {
                let (mut given, mut plain) = (numbers.clone(), numbers.clone());
                (set.multiply_f32)(&mut given, &numbers);
                scalar::multiply_f32(&mut plain, &numbers);
                (set.hadamard)(&mut given[..span]);
                hadamard_by_definition(&mut plain[..span]);
                prop_assert_eq!(bits(&given), bits(&plain), "{}", set.name);
                let (mut levels, mut plain) = (vec![0; numbers.len()], vec![0; numbers.len()]);
                let quantized = (set.quantize)(&numbers, &mut levels);
                prop_assert_eq!(quantized, scalar::quantize(&numbers, &mut plain), "{}", set.name);
                prop_assert_eq!(&levels, &plain, "{}", set.name);
                let off = |value: f32, level: i8| value - f32::from(level) * quantized.step;
                let errors: f32 = numbers.iter().zip(&levels).map(|(value, level)| off(*value, *level).powi(2)).sum();
                prop_assert!(numbers.iter().zip(&levels).all(|(v, l)| off(*v, *l).abs() <= 0.501 * quantized.step));
                prop_assert!(levels.iter().any(|level| level.abs() == 127) || quantized.step == 0.0);
                prop_assert!((errors - quantized.squared_error).abs() <= 1e-3 * errors);
                prop_assert_eq!(quantized.sum, levels.iter().map(|level| i32::from(*level)).sum::<i32>());
            }
        }

        #[test]
        fn integer_kernels_agree_to_the_bit(pairs in proptest::collection::vec((-128i8..=127, -128i8..=127), 0..500)) {
            let (a, b): (Vec<i8>, Vec<i8>) = pairs.into_iter().unzip();
            let bits = |values: &[i8]| values.iter().map(|v| *v as u8).collect::<Vec<u8>>();
            for set in all() {
                prop_assert_eq!((set.dot_i8)(&a, &b), scalar::dot_i8(&a, &b), "{}", set.name);
                for bytes in [a.len() / 4, a.len() / 8 * 2] {
                    let (codes, levels) = (bits(&b), &a);
                    let (codes, two) = (&codes[..bytes], &levels[..bytes * 2]);
                    prop_assert_eq!((set.dot_u4)(codes, two), scalar::dot_u4(codes, two), "{}", set.name);
                    prop_assert_eq!((set.dot_u2)(codes, levels), scalar::dot_u2(codes, levels), "{}", set.name);
                }
                prop_assert_eq!((set.hamming)(&bits(&a), &bits(&b)), scalar::hamming(&bits(&a), &bits(&b)), "{}", set.name);
            }
        }
    }

    /// Step by step: pairs that lie one apart, two apart and so on.
    fn hadamard_by_definition(values: &mut [f32]) {
        let mut half = 1;
        while half < values.len() {
            for pair in values.chunks_exact_mut(2 * half) {
                for at in 0..half {
                    (pair[at], pair[at + half]) = (pair[at] + pair[at + half], pair[at] - pair[at + half]);
                }
            }
            half *= 2;
        }
        let scale = (values.len() as f32).sqrt().recip();
        values.iter_mut().for_each(|value| *value *= scale);
    }

    /// Of zeros, and of numbers so small that a level's width has no inverse, all levels are 0; the largest numbers have some.
    #[test]
    fn extreme_numbers_have_levels() {
        for set in all() {
            for value in [0.0, 1e-39, f32::MAX] {
                let mut levels = vec![1; 20];
                let quantized = (set.quantize)(&[value, -value].repeat(10), &mut levels);
                let level = if value == f32::MAX { 127 } else { 0 };
                assert_eq!((levels, quantized.sum), ([level, -level].repeat(10), 0), "{} {value}", set.name);
            }
        }
    }

    /// The 16-bit steps of some instruction sets saturate; the largest products must not.
    #[test]
    fn extreme_values_do_not_saturate() {
        for len in [1, 31, 64, 384, 1537] {
            for (a, b) in [(-128i8, -128i8), (-128, 127), (127, 127)] {
                let (left, right) = (vec![a; len], vec![b; len]);
                for set in all() {
                    let wanted = i32::from(a) * i32::from(b) * len as i32;
                    assert_eq!((set.dot_i8)(&left, &right), wanted, "{} {len} {a} {b}", set.name);
                    let levels = vec![a; 4 * len];
                    let sum = i32::from(a) * len as i32;
                    assert_eq!((set.dot_u4)(&vec![255; len], &levels[..2 * len]), 2 * 15 * sum, "{} {len}", set.name);
                    assert_eq!((set.dot_u2)(&vec![255; len], &levels), 4 * 3 * sum, "{} {len}", set.name);
                }
            }
        }
    }

    #[test]
    fn different_lengths_use_the_shorter() {
        for set in all() {
            assert_eq!((set.dot_f32)(&[1.0; 40], &[2.0; 17]), 34.0, "{}", set.name);
            assert_eq!((set.dot_i8)(&[1; 40], &[2; 90]), 80, "{}", set.name);
            assert_eq!((set.hamming)(&[255; 40], &[0; 70]), 320, "{}", set.name);
        }
    }
}
