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

/// Number of bits that differ, eight bytes at a time.
pub fn hamming(a: &[u8], b: &[u8]) -> u32 {
    let len = a.len().min(b.len());
    let (words_a, rest_a) = a[..len].as_chunks::<8>();
    let (words_b, rest_b) = b[..len].as_chunks::<8>();
    let words = words_a.iter().zip(words_b);
    let words = words.map(|(a, b)| (u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b)).count_ones());
    words.sum::<u32>() + rest_a.iter().zip(rest_b).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>()
}
