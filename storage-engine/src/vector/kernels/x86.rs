//! The kernels for x86-64. Everything here that is unsafe is a load inside a slice or a call of a function whose
//! instructions `available` has found on this machine.

use std::arch::x86_64::*;

use super::{Kernels, Quantized};

const CACHE_LINE_BYTES: usize = 64;

/// The sets that this machine can run, slowest first.
pub(super) fn available() -> Vec<Kernels> {
    let mut sets = Vec::new();
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("popcnt") {
        sets.push(Kernels {
            name: "avx2",
            // SAFETY: avx2, fma and popcnt were found by the check around this table.
            dot_f32: |a, b| unsafe { dot_f32_avx2(a, b) },
            // SAFETY: as above.
            squared_f32: |a, b| unsafe { squared_f32_avx2(a, b) },
            // SAFETY: as above.
            dot_i8: |a, b| unsafe { dot_i8_avx2(a, b) },
            // SAFETY: as above.
            dot_u4: |codes, levels| unsafe { dot_planes_avx2::<4, 2>(codes, levels) },
            // SAFETY: as above.
            dot_u2: |codes, levels| unsafe { dot_planes_avx2::<2, 4>(codes, levels) },
            // SAFETY: as above.
            hamming: |a, b| unsafe { hamming_popcnt(a, b) },
            // SAFETY: as above.
            multiply_f32: |values, factors| unsafe { multiply_f32_avx2(values, factors) },
            // SAFETY: as above.
            hadamard: |values| unsafe { hadamard_avx2(values) },
            // SAFETY: as above.
            quantize: |values, levels| unsafe { quantize_avx2(values, levels) },
        });
    }
    let avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
    if avx512 && is_x86_feature_detected!("avx512vnni") && is_x86_feature_detected!("avx512vpopcntdq") {
        sets.push(Kernels {
            name: "avx512",
            // SAFETY: avx512f, avx512bw, avx512vnni and avx512vpopcntdq were found by the check around this table.
            dot_f32: |a, b| unsafe { dot_f32_avx512(a, b) },
            // SAFETY: as above.
            squared_f32: |a, b| unsafe { squared_f32_avx512(a, b) },
            // SAFETY: as above.
            dot_i8: |a, b| unsafe { dot_i8_avx512(a, b) },
            // SAFETY: as above.
            dot_u4: |codes, levels| unsafe { dot_planes_avx512::<4, 2>(codes, levels) },
            // SAFETY: as above.
            dot_u2: |codes, levels| unsafe { dot_planes_avx512::<2, 4>(codes, levels) },
            // SAFETY: as above.
            hamming: |a, b| unsafe { hamming_avx512(a, b) },
            // SAFETY: as above.
            multiply_f32: |values, factors| unsafe { multiply_f32_avx512(values, factors) },
            // SAFETY: as above.
            hadamard: |values| unsafe { hadamard_avx512(values) },
            // SAFETY: as above.
            quantize: |values, levels| unsafe { quantize_avx512(values, levels) },
        });
    }
    sets
}

/// Asks for the cache lines of `bytes`.
#[inline(always)]
pub(super) fn prefetch(bytes: &[u8]) {
    for line in bytes.chunks(CACHE_LINE_BYTES) {
        prefetch_line(&line[0]);
    }
}

/// Asks for the cache line on which `value` begins.
#[inline(always)]
pub(super) fn prefetch_line<T>(value: &T) {
    // SAFETY: a prefetch reads nothing that the program can see, and faults at no address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast()) };
}

#[target_feature(enable = "avx2,fma")]
fn sum_avx2(lanes: __m256) -> f32 {
    let half = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps::<1>(lanes));
    let pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
    _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps::<1>(pair, pair)))
}

#[target_feature(enable = "avx2,fma")]
fn dot_f32_avx2(a: &[f32], b: &[f32]) -> f32 {
    let len = a.len().min(b.len());
    let (blocks_a, rest_a) = a[..len].as_chunks::<16>();
    let (blocks_b, rest_b) = b[..len].as_chunks::<16>();
    let mut sums = [_mm256_setzero_ps(); 2];
    for (a, b) in blocks_a.iter().zip(blocks_b) {
        for (half, sum) in sums.iter_mut().enumerate() {
            // SAFETY: each half is eight of the block's sixteen floats.
            let (a, b) =
                unsafe { (_mm256_loadu_ps(a.as_ptr().add(half * 8)), _mm256_loadu_ps(b.as_ptr().add(half * 8))) };
            *sum = _mm256_fmadd_ps(a, b, *sum);
        }
    }
    sum_avx2(_mm256_add_ps(sums[0], sums[1])) + super::scalar::dot_f32(rest_a, rest_b)
}

#[target_feature(enable = "avx2,fma")]
fn squared_f32_avx2(a: &[f32], b: &[f32]) -> f32 {
    let len = a.len().min(b.len());
    let (blocks_a, rest_a) = a[..len].as_chunks::<16>();
    let (blocks_b, rest_b) = b[..len].as_chunks::<16>();
    let mut sums = [_mm256_setzero_ps(); 2];
    for (a, b) in blocks_a.iter().zip(blocks_b) {
        for (half, sum) in sums.iter_mut().enumerate() {
            // SAFETY: each half is eight of the block's sixteen floats.
            let (a, b) =
                unsafe { (_mm256_loadu_ps(a.as_ptr().add(half * 8)), _mm256_loadu_ps(b.as_ptr().add(half * 8))) };
            let difference = _mm256_sub_ps(a, b);
            *sum = _mm256_fmadd_ps(difference, difference, *sum);
        }
    }
    sum_avx2(_mm256_add_ps(sums[0], sums[1])) + super::scalar::squared_f32(rest_a, rest_b)
}

#[target_feature(enable = "avx2")]
fn sum_i32_avx2(lanes: __m256i) -> i32 {
    let half = _mm_add_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256::<1>(lanes));
    let pair = _mm_add_epi32(half, _mm_unpackhi_epi64(half, half));
    _mm_cvtsi128_si32(_mm_add_epi32(pair, _mm_shuffle_epi32::<1>(pair)))
}

#[target_feature(enable = "avx2")]
fn dot_i8_avx2(a: &[i8], b: &[i8]) -> i32 {
    let len = a.len().min(b.len());
    let (blocks_a, rest_a) = a[..len].as_chunks::<16>();
    let (blocks_b, rest_b) = b[..len].as_chunks::<16>();
    let mut sum = _mm256_setzero_si256();
    for (a, b) in blocks_a.iter().zip(blocks_b) {
        // SAFETY: a block is sixteen bytes.
        let (a, b) = unsafe { (_mm_loadu_si128(a.as_ptr().cast()), _mm_loadu_si128(b.as_ptr().cast())) };
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_cvtepi8_epi16(a), _mm256_cvtepi8_epi16(b)));
    }
    sum_i32_avx2(sum) + super::scalar::dot_i8(rest_a, rest_b)
}

/// Codes of `BITS` bits in `PLANES` planes. The products of two codes and levels fit 16 bits.
#[target_feature(enable = "avx2")]
fn dot_planes_avx2<const BITS: usize, const PLANES: usize>(codes: &[u8], levels: &[i8]) -> i32 {
    let bytes = codes.len();
    assert!(levels.len() >= PLANES * bytes);
    let whole = bytes / 32 * 32;
    let (mask, ones) = (_mm256_set1_epi8((1 << BITS) - 1), _mm256_set1_epi16(1));
    let mut sum = _mm256_setzero_si256();
    for at in (0..whole).step_by(32) {
        // SAFETY: `at + 32` is not beyond the codes.
        let packed = unsafe { _mm256_loadu_si256(codes.as_ptr().add(at).cast()) };
        for plane in 0..PLANES {
            let shifted = _mm256_srl_epi16(packed, _mm_cvtsi32_si128((plane * BITS) as i32));
            // SAFETY: there are `PLANES` times as many levels as codes, as was checked.
            let levels = unsafe { _mm256_loadu_si256(levels.as_ptr().add(plane * bytes + at).cast()) };
            let pairs = _mm256_maddubs_epi16(_mm256_and_si256(shifted, mask), levels);
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
        }
    }
    let rest = (0..PLANES).flat_map(|plane| {
        let codes = codes[whole..].iter().map(move |byte| i32::from(byte >> (plane * BITS) & ((1 << BITS) - 1)));
        codes.zip(&levels[plane * bytes + whole..]).map(|(code, level)| code * i32::from(*level))
    });
    sum_i32_avx2(sum) + rest.sum::<i32>()
}

/// The plain function, compiled with the instruction that counts bits.
#[target_feature(enable = "popcnt")]
fn hamming_popcnt(a: &[u8], b: &[u8]) -> u32 {
    super::scalar::hamming(a, b)
}

#[target_feature(enable = "avx512f")]
fn dot_f32_avx512(a: &[f32], b: &[f32]) -> f32 {
    let len = a.len().min(b.len());
    let (blocks_a, rest_a) = a[..len].as_chunks::<64>();
    let (blocks_b, rest_b) = b[..len].as_chunks::<64>();
    let mut sums = [_mm512_setzero_ps(); 4];
    for (a, b) in blocks_a.iter().zip(blocks_b) {
        for (quarter, sum) in sums.iter_mut().enumerate() {
            let at = quarter * 16;
            // SAFETY: each quarter is sixteen of the block's sixty-four floats.
            let (a, b) = unsafe { (_mm512_loadu_ps(a.as_ptr().add(at)), _mm512_loadu_ps(b.as_ptr().add(at))) };
            *sum = _mm512_fmadd_ps(a, b, *sum);
        }
    }
    for (a, b) in rest_a.chunks(16).zip(rest_b.chunks(16)) {
        let mask = (u32::MAX >> (32 - a.len())) as __mmask16;
        // SAFETY: the mask covers the chunk's floats; lanes outside it are not read.
        let (a, b) = unsafe { (_mm512_maskz_loadu_ps(mask, a.as_ptr()), _mm512_maskz_loadu_ps(mask, b.as_ptr())) };
        sums[0] = _mm512_fmadd_ps(a, b, sums[0]);
    }
    _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3])))
}

#[target_feature(enable = "avx512f")]
fn squared_f32_avx512(a: &[f32], b: &[f32]) -> f32 {
    let len = a.len().min(b.len());
    let (blocks_a, rest_a) = a[..len].as_chunks::<64>();
    let (blocks_b, rest_b) = b[..len].as_chunks::<64>();
    let mut sums = [_mm512_setzero_ps(); 4];
    for (a, b) in blocks_a.iter().zip(blocks_b) {
        for (quarter, sum) in sums.iter_mut().enumerate() {
            let at = quarter * 16;
            // SAFETY: each quarter is sixteen of the block's sixty-four floats.
            let (a, b) = unsafe { (_mm512_loadu_ps(a.as_ptr().add(at)), _mm512_loadu_ps(b.as_ptr().add(at))) };
            let difference = _mm512_sub_ps(a, b);
            *sum = _mm512_fmadd_ps(difference, difference, *sum);
        }
    }
    for (a, b) in rest_a.chunks(16).zip(rest_b.chunks(16)) {
        let mask = (u32::MAX >> (32 - a.len())) as __mmask16;
        // SAFETY: the mask covers the chunk's floats; lanes outside it are not read.
        let (a, b) = unsafe { (_mm512_maskz_loadu_ps(mask, a.as_ptr()), _mm512_maskz_loadu_ps(mask, b.as_ptr())) };
        let difference = _mm512_sub_ps(a, b);
        sums[0] = _mm512_fmadd_ps(difference, difference, sums[0]);
    }
    _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3])))
}

/// The instruction multiplies unsigned by signed bytes: with `a + 128` in place of `a` the sum is `128 * sum(b)` too large, which is
/// counted beside it and taken off.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn dot_i8_avx512(a: &[i8], b: &[i8]) -> i32 {
    let len = a.len().min(b.len());
    let (blocks_a, rest_a) = a[..len].as_chunks::<64>();
    let (blocks_b, rest_b) = b[..len].as_chunks::<64>();
    let shift = _mm512_set1_epi8(-128);
    let (mut sum, mut excess) = (_mm512_setzero_si512(), _mm512_setzero_si512());
    for (a, b) in blocks_a.iter().zip(blocks_b) {
        // SAFETY: a block is sixty-four bytes.
        let (a, b) = unsafe { (_mm512_loadu_si512(a.as_ptr().cast()), _mm512_loadu_si512(b.as_ptr().cast())) };
        sum = _mm512_dpbusd_epi32(sum, _mm512_xor_si512(a, shift), b);
        excess = _mm512_dpbusd_epi32(excess, shift, b);
    }
    if !rest_a.is_empty() {
        let mask = u64::MAX >> (64 - rest_a.len());
        // SAFETY: the mask covers the rest, which is shorter than sixty-four bytes; lanes outside it are not read.
        let (a, b) =
            unsafe { (_mm512_maskz_loadu_epi8(mask, rest_a.as_ptr()), _mm512_maskz_loadu_epi8(mask, rest_b.as_ptr())) };
        sum = _mm512_dpbusd_epi32(sum, _mm512_xor_si512(a, shift), b);
        excess = _mm512_dpbusd_epi32(excess, shift, b);
    }
    _mm512_reduce_add_epi32(_mm512_sub_epi32(sum, excess))
}

/// Codes of `BITS` bits in `PLANES` planes, each with a sum of its own: the instruction takes several cycles.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn dot_planes_avx512<const BITS: usize, const PLANES: usize>(codes: &[u8], levels: &[i8]) -> i32 {
    let bytes = codes.len();
    assert!(levels.len() >= PLANES * bytes);
    let mask = _mm512_set1_epi8((1 << BITS) - 1);
    let mut sums = [_mm512_setzero_si512(); PLANES];
    for at in (0..bytes).step_by(64) {
        let these = u64::MAX >> (64 - (bytes - at).min(64));
        // SAFETY: the mask ends with the codes; lanes outside it are not read.
        let packed = unsafe { _mm512_maskz_loadu_epi8(these, codes.as_ptr().add(at).cast()) };
        for (plane, sum) in sums.iter_mut().enumerate() {
            let shifted = _mm512_srl_epi16(packed, _mm_cvtsi32_si128((plane * BITS) as i32));
            // SAFETY: there are `PLANES` times as many levels as codes, as was checked.
            let levels = unsafe { _mm512_maskz_loadu_epi8(these, levels.as_ptr().add(plane * bytes + at)) };
            *sum = _mm512_dpbusd_epi32(*sum, _mm512_and_si512(shifted, mask), levels);
        }
    }
    let sum = sums.into_iter().fold(_mm512_setzero_si512(), |all, sum| _mm512_add_epi32(all, sum));
    _mm512_reduce_add_epi32(sum)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vpopcntdq")]
fn hamming_avx512(a: &[u8], b: &[u8]) -> u32 {
    let len = a.len().min(b.len());
    let mut sum = _mm512_setzero_si512();
    for (a, b) in a[..len].chunks(64).zip(b[..len].chunks(64)) {
        let mask = u64::MAX >> (64 - a.len());
        // SAFETY: the mask covers the chunk's bytes; lanes outside it are not read.
        let (a, b) = unsafe {
            (_mm512_maskz_loadu_epi8(mask, a.as_ptr().cast()), _mm512_maskz_loadu_epi8(mask, b.as_ptr().cast()))
        };
        sum = _mm512_add_epi64(sum, _mm512_popcnt_epi64(_mm512_xor_si512(a, b)));
    }
    _mm512_reduce_add_epi64(sum) as u32
}

/// The plain functions, compiled for wider registers.
#[target_feature(enable = "avx2")]
fn multiply_f32_avx2(values: &mut [f32], factors: &[f32]) {
    super::scalar::multiply_f32(values, factors);
}

#[target_feature(enable = "avx2")]
fn hadamard_avx2(values: &mut [f32]) {
    super::scalar::hadamard(values);
}

#[target_feature(enable = "avx512f,avx512bw")]
fn multiply_f32_avx512(values: &mut [f32], factors: &[f32]) {
    super::scalar::multiply_f32(values, factors);
}

#[target_feature(enable = "avx512f,avx512bw")]
fn hadamard_avx512(values: &mut [f32]) {
    super::scalar::hadamard(values);
}

#[target_feature(enable = "avx2")]
fn quantize_avx2(values: &[f32], levels: &mut [i8]) -> Quantized {
    super::scalar::quantize(values, levels)
}

#[target_feature(enable = "avx512f,avx512bw")]
fn quantize_avx512(values: &[f32], levels: &mut [i8]) -> Quantized {
    super::scalar::quantize(values, levels)
}
