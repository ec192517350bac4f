//! The kernels without special instructions: what the others are tested against.

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
