//! The kernels without special instructions: what the others are tested against.

use super::Quantized;

/// Sum of the products, in order.
pub fn dot_f32(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Sum of the squared differences, in order.
pub fn squared_f32(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

/// Sum of the products.
pub fn dot_i8(a: &[i8], b: &[i8]) -> i32 {
    a.iter().zip(b).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum()
}

/// Sum of the products of levels and the codes of four bits in two planes: the codes of the first half of the levels are the lower
/// halves of the bytes.
pub fn dot_u4(codes: &[u8], levels: &[i8]) -> i32 {
    dot_planes::<4>(codes, levels)
}

/// As [`dot_u4`], of codes of two bits in four planes.
pub fn dot_u2(codes: &[u8], levels: &[i8]) -> i32 {
    dot_planes::<2>(codes, levels)
}

fn dot_planes<const BITS: usize>(codes: &[u8], levels: &[i8]) -> i32 {
    let mask = (1u8 << BITS) - 1;
    let planes = levels.chunks(codes.len().max(1)).take(8 / BITS).enumerate();
    let products = |(plane, levels): (usize, &[i8])| -> i32 {
        let codes = codes.iter().map(|byte| i32::from(byte >> (plane * BITS) & mask));
        codes.zip(levels).map(|(code, level)| code * i32::from(*level)).sum()
    };
    planes.map(products).sum()
}

/// Number of bits that differ, eight bytes at a time.
pub fn hamming(a: &[u8], b: &[u8]) -> u32 {
    let len = a.len().min(b.len());
    let (words_a, rest_a) = a[..len].as_chunks::<8>();
    let (words_b, rest_b) = b[..len].as_chunks::<8>();
    let words = words_a.iter().zip(words_b);
    let words = words.map(|(a, b)| (u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b)).count_ones());
    words.sum::<u32>() + rest_a.iter().zip(rest_b).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>()
}

/// See [`super::Kernels::multiply_f32`].
#[inline(always)]
pub fn multiply_f32(values: &mut [f32], factors: &[f32]) {
    values.iter_mut().zip(factors).for_each(|(value, factor)| *value *= factor);
}

/// Numbers that the first steps of a transform stay within.
const TRANSFORM_BLOCK: usize = 16;

/// See [`super::Kernels::hadamard`].
#[inline(always)]
pub fn hadamard(values: &mut [f32]) {
    let scale = (values.len() as f32).sqrt().recip();
    let mut half = 1;
    if values.len() >= TRANSFORM_BLOCK {
        for block in values.as_chunks_mut::<TRANSFORM_BLOCK>().0 {
            *block = within::<8>(within::<4>(within::<2>(within::<1>(*block))));
        }
        half = TRANSFORM_BLOCK;
    }
    // Two steps at once: half as many passes over memory, and the same sums.
    while 4 * half <= values.len() {
        for four in values.chunks_exact_mut(4 * half) {
            let (low, high) = four.split_at_mut(2 * half);
            let ((a, b), (c, d)) = (low.split_at_mut(half), high.split_at_mut(half));
            for (((a, b), c), d) in a.iter_mut().zip(b).zip(c).zip(d) {
                let (ab, cd, a_b, c_d) = (*a + *b, *c + *d, *a - *b, *c - *d);
                (*a, *b, *c, *d) = (ab + cd, a_b + c_d, ab - cd, a_b - c_d);
            }
        }
        half *= 4;
    }
    if half < values.len() {
        for pair in values.chunks_exact_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
    }
    values.iter_mut().for_each(|value| *value *= scale);
}

/// A step of a transform, of pairs that lie `HALF` apart.
#[inline(always)]
fn within<const HALF: usize>(block: [f32; TRANSFORM_BLOCK]) -> [f32; TRANSFORM_BLOCK] {
    std::array::from_fn(|at| if at & HALF == 0 { block[at] + block[at | HALF] } else { block[at ^ HALF] - block[at] })
}

/// Lanes that sums are made in.
const LANES: usize = 16;

/// See [`super::Kernels::quantize`].
#[inline(always)]
pub fn quantize(values: &[f32], levels: &mut [i8]) -> Quantized {
    let (blocks, rest) = values.as_chunks::<LANES>();
    let mut most = [0f32; LANES];
    for block in blocks {
        most = std::array::from_fn(|lane| if block[lane].abs() > most[lane] { block[lane].abs() } else { most[lane] });
    }
    let most = rest.iter().map(|value| value.abs()).chain(most).fold(0f32, f32::max);
    let step = most / 127.0;
    // A step so small that its inverse is infinite codes as zeros.
    let inverse = if step > f32::MIN_POSITIVE { 1.0 / step } else { 0.0 };
    // Rounded away from 0, without a call of a function.
    let round = |value: f32| {
        let scaled = value * inverse;
        (scaled + 0.5f32.copysign(scaled)) as i32
    };
    let (mut errors, mut sums) = ([0f32; LANES], [0i32; LANES]);
    let (level_blocks, level_rest) = levels.as_chunks_mut::<LANES>();
    for (block, levels) in blocks.iter().zip(level_blocks.iter_mut()) {
        let rounded: [i32; LANES] = std::array::from_fn(|lane| round(block[lane]));
        let off: [f32; LANES] = std::array::from_fn(|lane| block[lane] - rounded[lane] as f32 * step);
        errors = std::array::from_fn(|lane| errors[lane] + off[lane] * off[lane]);
        sums = std::array::from_fn(|lane| sums[lane] + rounded[lane]);
        *levels = rounded.map(|level| level as i8);
    }
    let rest_levels = if blocks.len() < level_blocks.len() { &mut level_blocks[blocks.len()][..] } else { level_rest };
    for ((value, level), lane) in rest.iter().zip(rest_levels).zip(0..) {
        let rounded = round(*value);
        let off = value - rounded as f32 * step;
        errors[lane] += off * off;
        sums[lane] += rounded;
        *level = rounded as i8;
    }
    Quantized { step, squared_error: errors.iter().sum(), sum: sums.iter().sum() }
}
