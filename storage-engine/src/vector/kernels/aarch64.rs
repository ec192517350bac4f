//! The kernels for 64-bit ARM: NEON, which all such machines have, and its dot products of bytes where `available` finds them.
//! What is unsafe here is loads inside slices, instructions for which there is no stable function yet, and calls of functions
//! whose instructions `available` has found.

use std::arch::aarch64::*;
use std::arch::{asm, is_aarch64_feature_detected};

use super::Kernels;

/// Most machines have lines of 64 bytes; where they are longer some are asked for twice.
const CACHE_LINE_BYTES: usize = 64;

/// The sets that this machine can run, slowest first.
pub(super) fn available() -> Vec<Kernels> {
    if !is_aarch64_feature_detected!("neon") {
        return Vec::new();
    }
    let neon = Kernels {
        name: "neon",
        // SAFETY: neon was found by the check above.
        dot_f32: |a, b| unsafe { dot_f32(a, b) },
        // SAFETY: as above.
        squared_f32: |a, b| unsafe { squared_f32(a, b) },
        // SAFETY: as above.
        dot_i8: |a, b| unsafe { dot_i8_neon(a, b) },
        // SAFETY: as above.
        dot_u4: |codes, levels| unsafe { dot_planes_neon::<4, 2>(codes, levels) },
        // SAFETY: as above.
        dot_u2: |codes, levels| unsafe { dot_planes_neon::<2, 4>(codes, levels) },
        // SAFETY: as above.
        hamming: |a, b| unsafe { hamming(a, b) },
        // NEON is part of what plain code is compiled for.
        ..super::SCALAR
    };
    if !is_aarch64_feature_detected!("dotprod") {
        return vec![neon];
    }
    let dotprod = Kernels {
        name: "neon with dot products",
        // SAFETY: dotprod was found by the check above.
        dot_i8: |a, b| unsafe { dot_i8_dotprod(a, b) },
        // SAFETY: as above.
        dot_u4: |codes, levels| unsafe { dot_planes_dotprod::<4, 2>(codes, levels) },
        // SAFETY: as above.
        dot_u2: |codes, levels| unsafe { dot_planes_dotprod::<2, 4>(codes, levels) },
        ..neon
    };
    vec![neon, dotprod]
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
    unsafe {
        asm!("prfm pldl1keep, [{}]", in(reg) std::ptr::from_ref(value), options(readonly, nostack, preserves_flags))
    };
}

/// Adds up `each` lane's share of both slices, sixteen floats at a time.
#[inline]
#[target_feature(enable = "neon")]
fn sum_f32(
    a: &[f32],
    b: &[f32],
    each: impl Fn(float32x4_t, float32x4_t, float32x4_t) -> float32x4_t,
    rest: fn(&[f32], &[f32]) -> f32,
) -> f32 {
    let len = a.len().min(b.len());
    let (blocks_a, rest_a) = a[..len].as_chunks::<16>();
    let (blocks_b, rest_b) = b[..len].as_chunks::<16>();
    let mut sums = [vdupq_n_f32(0.0); 4];
    for (a, b) in blocks_a.iter().zip(blocks_b) {
        for (quarter, sum) in sums.iter_mut().enumerate() {
            // SAFETY: each quarter is four of the block's sixteen floats.
            let (a, b) = unsafe { (vld1q_f32(a.as_ptr().add(quarter * 4)), vld1q_f32(b.as_ptr().add(quarter * 4))) };
            *sum = each(*sum, a, b);
        }
    }
    let halves = (vaddq_f32(sums[0], sums[1]), vaddq_f32(sums[2], sums[3]));
    vaddvq_f32(vaddq_f32(halves.0, halves.1)) + rest(rest_a, rest_b)
}

#[target_feature(enable = "neon")]
fn dot_f32(a: &[f32], b: &[f32]) -> f32 {
    sum_f32(a, b, |sum, a, b| vfmaq_f32(sum, a, b), super::scalar::dot_f32)
}

#[target_feature(enable = "neon")]
fn squared_f32(a: &[f32], b: &[f32]) -> f32 {
    let each = |sum, a, b| {
        let difference = vsubq_f32(a, b);
        vfmaq_f32(sum, difference, difference)
    };
    sum_f32(a, b, each, super::scalar::squared_f32)
}

/// Adds the products of sixteen bytes each to four sums: by products of 16 bits, which hold that of any two bytes.
#[inline]
#[target_feature(enable = "neon")]
fn widened(sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    let low = vmull_s8(vget_low_s8(a), vget_low_s8(b));
    vpadalq_s16(vpadalq_s16(sum, low), vmull_high_s8(a, b))
}

/// The same in one instruction.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn dotted(mut sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: works on registers only, and this function asks for what the instruction needs.
    unsafe {
        asm!(
            "sdot {sum:v}.4s, {a:v}.16b, {b:v}.16b",
            sum = inout(vreg) sum, a = in(vreg) a, b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}

#[inline]
#[target_feature(enable = "neon")]
fn dot_i8(a: &[i8], b: &[i8], add: impl Fn(int32x4_t, int8x16_t, int8x16_t) -> int32x4_t) -> i32 {
    let len = a.len().min(b.len());
    let (blocks_a, rest_a) = a[..len].as_chunks::<32>();
    let (blocks_b, rest_b) = b[..len].as_chunks::<32>();
    let mut sums = [vdupq_n_s32(0); 2];
    for (a, b) in blocks_a.iter().zip(blocks_b) {
        for (half, sum) in sums.iter_mut().enumerate() {
            // SAFETY: each half is sixteen of the block's thirty-two bytes.
            let (a, b) = unsafe { (vld1q_s8(a.as_ptr().add(half * 16)), vld1q_s8(b.as_ptr().add(half * 16))) };
            *sum = add(*sum, a, b);
        }
    }
    vaddvq_s32(vaddq_s32(sums[0], sums[1])) + super::scalar::dot_i8(rest_a, rest_b)
}

#[target_feature(enable = "neon")]
fn dot_i8_neon(a: &[i8], b: &[i8]) -> i32 {
    dot_i8(a, b, |sum, a, b| widened(sum, a, b))
}

#[target_feature(enable = "neon,dotprod")]
fn dot_i8_dotprod(a: &[i8], b: &[i8]) -> i32 {
    dot_i8(a, b, |sum, a, b| dotted(sum, a, b))
}

/// Codes of `BITS` bits in `PLANES` planes, each with a sum of its own.
#[inline]
#[target_feature(enable = "neon")]
fn dot_planes<const BITS: usize, const PLANES: usize>(
    codes: &[u8],
    levels: &[i8],
    add: impl Fn(int32x4_t, int8x16_t, int8x16_t) -> int32x4_t,
) -> i32 {
    let bytes = codes.len();
    assert!(levels.len() >= PLANES * bytes);
    let whole = bytes / 16 * 16;
    let mask = vdupq_n_u8((1 << BITS) - 1);
    let mut sums = [vdupq_n_s32(0); PLANES];
    for at in (0..whole).step_by(16) {
        // SAFETY: `at + 16` is not beyond the codes.
        let packed = unsafe { vld1q_u8(codes.as_ptr().add(at)) };
        for (plane, sum) in sums.iter_mut().enumerate() {
            // A shift to the left by less than nothing is one to the right.
            let shifted = vshlq_u8(packed, vdupq_n_s8(-((plane * BITS) as i8)));
            // SAFETY: there are `PLANES` times as many levels as codes, as was checked.
            let levels = unsafe { vld1q_s8(levels.as_ptr().add(plane * bytes + at)) };
            *sum = add(*sum, vreinterpretq_s8_u8(vandq_u8(shifted, mask)), levels);
        }
    }
    let rest = (0..PLANES).flat_map(|plane| {
        let codes = codes[whole..].iter().map(move |byte| i32::from(byte >> (plane * BITS) & ((1 << BITS) - 1)));
        codes.zip(&levels[plane * bytes + whole..]).map(|(code, level)| code * i32::from(*level))
    });
    let sum = sums.into_iter().fold(vdupq_n_s32(0), |all, sum| vaddq_s32(all, sum));
    vaddvq_s32(sum) + rest.sum::<i32>()
}

#[target_feature(enable = "neon")]
fn dot_planes_neon<const BITS: usize, const PLANES: usize>(codes: &[u8], levels: &[i8]) -> i32 {
    dot_planes::<BITS, PLANES>(codes, levels, |sum, a, b| widened(sum, a, b))
}

#[target_feature(enable = "neon,dotprod")]
fn dot_planes_dotprod<const BITS: usize, const PLANES: usize>(codes: &[u8], levels: &[i8]) -> i32 {
    dot_planes::<BITS, PLANES>(codes, levels, |sum, a, b| dotted(sum, a, b))
}

#[target_feature(enable = "neon")]
fn hamming(a: &[u8], b: &[u8]) -> u32 {
    let len = a.len().min(b.len());
    let (blocks_a, rest_a) = a[..len].as_chunks::<16>();
    let (blocks_b, rest_b) = b[..len].as_chunks::<16>();
    let mut sum = vdupq_n_u32(0);
    for (a, b) in blocks_a.iter().zip(blocks_b) {
        // SAFETY: a block is sixteen bytes.
        let (a, b) = unsafe { (vld1q_u8(a.as_ptr()), vld1q_u8(b.as_ptr())) };
        sum = vpadalq_u16(sum, vpaddlq_u8(vcntq_u8(veorq_u8(a, b))));
    }
    vaddvq_u32(sum) + super::scalar::hamming(rest_a, rest_b)
}
