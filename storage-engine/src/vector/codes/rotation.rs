//! Rotation of vectors by seeded random signs and Walsh-Hadamard transforms (Ailon and Chazelle 2009, doi 10.1137/060673096).
//! It spreads what is concentrated in a few components over all of them, so that codes of few bits lose the same amount of every
//! vector and their errors are practically independent of the query (the argument of RaBitQ, arXiv 2405.12497).

use crate::vector::files::checksum;
use crate::vector::kernels::kernels;

/// Rounds of two transforms each.
const ROUNDS: u64 = 2;
/// Seeds the signs: the same for all partitions, so codes can be compared between them.
const SEED: u64 = 0x0705;

/// A rotation of vectors of one length. Lengths and angles stay, but for rounding.
#[derive(Clone, Debug)]
pub struct Rotation {
    /// For each transform a sign for each number.
    signs: Vec<Vec<f32>>,
    /// Numbers in a transform: the greatest power of two that is not above the dimensions.
    span: usize,
}

impl Rotation {
    /// The rotation for vectors of so many numbers, at least 1.
    pub fn new(dimensions: usize) -> Self {
        let sign = |transform: u64, at: usize| match checksum(SEED + transform, &(at as u64).to_le_bytes()) & 1 {
            0 => 1.0,
            _ => -1.0,
        };
        let signs = (0..2 * ROUNDS).map(|transform| (0..dimensions).map(|at| sign(transform, at)).collect());
        Self { signs: signs.collect(), span: 1 << dimensions.max(1).ilog2() }
    }

    /// Rotates a vector. A transform takes the first numbers, the next one the last, so that together they reach all.
    pub fn apply(&self, vector: &mut [f32]) {
        let from = [0, vector.len() - self.span];
        for (signs, from) in self.signs.iter().zip(from.into_iter().cycle()) {
            (kernels().multiply_f32)(vector, signs);
            (kernels().hadamard)(&mut vector[from..from + self.span]);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::vector::kernels::scalar::dot_f32;

    proptest! {
        #[test]
        fn lengths_and_angles_stay(pairs in proptest::collection::vec((-1.0f32..1.0, -1.0f32..1.0), 1..300)) {
            let (mut a, mut b): (Vec<f32>, Vec<f32>) = pairs.into_iter().unzip();
            let before = (dot_f32(&a, &a), dot_f32(&b, &b), dot_f32(&a, &b));
            let rotation = Rotation::new(a.len());
            rotation.apply(&mut a);
            rotation.apply(&mut b);
            let after = (dot_f32(&a, &a), dot_f32(&b, &b), dot_f32(&a, &b));
            for (before, after) in [(before.0, after.0), (before.1, after.1), (before.2, after.2)] {
                prop_assert!((before - after).abs() < 1e-3, "{before} {after}");
            }
        }
    }

    /// One number alone becomes many of about the same size.
    #[test]
    fn what_is_in_one_number_is_spread() {
        for dimensions in [128, 384, 768, 1000] {
            for at in [0, dimensions / 2, dimensions - 1] {
                let mut vector = vec![0.0; dimensions];
                vector[at] = 1.0;
                Rotation::new(dimensions).apply(&mut vector);
                let most = vector.iter().fold(0f32, |most, value| most.max(value.abs()));
                assert!(most < 0.35, "{dimensions} {at} {most}");
            }
        }
    }
}
