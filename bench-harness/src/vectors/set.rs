//! Sets of vectors: read from NumPy files or made by a seeded generator, and what their true neighbours are.

use std::io;
use std::path::Path;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Vectors of 8-bit integers, one after another. Compared by cosine, they lose little against floats, and their true neighbours
/// are found in integers: the same on every machine.
#[derive(Clone)]
pub struct VectorSet {
    numbers: Vec<i8>,
    norms: Vec<f64>,
    dimensions: usize,
}

/// Numbers that a generated vector is made of before it is spread over all dimensions: real embeddings, too, have far fewer
/// directions of their own than numbers.
const LATENT: usize = 48;
/// Generated vectors of one cluster, on average.
const CLUSTER: usize = 200;
/// How far generated vectors are from the middle of their cluster, where the middles are 1 from theirs.
const SPREAD: f32 = 0.6;
/// A part of each number of a generated vector that is noise.
const NOISE: f32 = 0.1;

fn dot(a: &[i8], b: &[i8]) -> i32 {
    a.iter().zip(b).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum()
}

impl VectorSet {
    fn new(numbers: Vec<i8>, dimensions: usize) -> Self {
        let norm = |row: &[i8]| f64::from(dot(row, row)).sqrt().max(f64::MIN_POSITIVE);
        let norms = numbers.chunks_exact(dimensions).map(norm).collect();
        Self { numbers, norms, dimensions }
    }

    /// Reads a NumPy file of rows of 8-bit integers.
    pub fn read(path: &Path) -> io::Result<Self> {
        let bytes = std::fs::read(path)?;
        let bad = |what: &str| io::Error::other(format!("{}: {what}", path.display()));
        let length = bytes.get(8..10).ok_or_else(|| bad("too short"))?;
        let start = 10 + usize::from(u16::from_le_bytes([length[0], length[1]]));
        let header = String::from_utf8_lossy(bytes.get(10..start).ok_or_else(|| bad("too short"))?).into_owned();
        if !header.contains("'|i1'") || header.contains("'fortran_order': True") {
            return Err(bad("rows of 8-bit integers are expected"));
        }
        let shape = header.split_once("'shape': (").and_then(|(_, rest)| rest.split_once(')'));
        let shape = shape.map(|(shape, _)| shape).ok_or_else(|| bad("no shape"))?;
        let sizes: Vec<usize> = shape.split(',').filter_map(|size| size.trim().parse().ok()).collect();
        let [rows, dimensions] = sizes[..] else { return Err(bad("two sizes are expected")) };
        let numbers: Vec<i8> = bytes[start..].iter().map(|byte| *byte as i8).collect();
        if numbers.len() != rows * dimensions || dimensions == 0 {
            return Err(bad("its size is not that of its shape"));
        }
        Ok(Self::new(numbers, dimensions))
    }

    /// Writes such a file.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let shape = format!("({}, {})", self.len(), self.dimensions);
        let header = format!("{{'descr': '|i1', 'fortran_order': False, 'shape': {shape}, }}");
        // Magic, version and the header's length take 10 bytes; the numbers begin at a multiple of 64.
        let padded = (10 + header.len() + 1).next_multiple_of(64) - 10;
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((padded as u16).to_le_bytes());
        bytes.extend(format!("{header:<width$}\n", width = padded - 1).bytes());
        bytes.extend(self.numbers.iter().map(|number| *number as u8));
        std::fs::write(path, bytes)
    }

    /// Makes `count` vectors around random middles, and `queries` more around the same.
    pub fn clustered(count: usize, queries: usize, dimensions: usize) -> (Self, Self) {
        let mut rng = StdRng::seed_from_u64(1);
        let mut normal = move || (0..4).map(|_| rng.random::<f32>()).sum::<f32>() - 2.0;
        let spread: Vec<f32> = (0..LATENT * dimensions).map(|_| normal()).collect();
        let middles: Vec<f32> = (0..(count / CLUSTER).max(1) * LATENT).map(|_| normal()).collect();
        let mut row = vec![0f32; dimensions];
        let mut numbers = Vec::with_capacity((count + queries) * dimensions);
        for at in 0..count + queries {
            let middle = at.wrapping_mul(7919) % (middles.len() / LATENT);
            row.fill_with(|| NOISE * normal());
            for (latent, middle) in middles[middle * LATENT..][..LATENT].iter().enumerate() {
                let value = middle + SPREAD * normal();
                for (number, spread) in row.iter_mut().zip(&spread[latent * dimensions..]) {
                    *number += value * spread;
                }
            }
            let most = row.iter().fold(f32::MIN_POSITIVE, |most, number| most.max(number.abs()));
            numbers.extend(row.iter().map(|number| (number * 127.0 / most).round() as i8));
        }
        let of_queries = numbers.split_off(count * dimensions);
        (Self::new(numbers, dimensions), Self::new(of_queries, dimensions))
    }

    /// Keeps at most so many, the first.
    pub fn truncate(&mut self, count: usize) {
        self.numbers.truncate(count.saturating_mul(self.dimensions));
        self.norms.truncate(count);
    }

    /// Number of vectors.
    pub fn len(&self) -> usize {
        self.norms.len()
    }

    /// Numbers in each.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    fn row(&self, at: usize) -> &[i8] {
        &self.numbers[at * self.dimensions..(at + 1) * self.dimensions]
    }

    /// Appends a vector of length 1 as a JSON array, with the digits that embeddings usually have.
    pub fn put_json(&self, at: usize, out: &mut Vec<u8>) {
        use io::Write;
        out.push(b'[');
        for (place, number) in self.row(at).iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            let value = (f64::from(*number) / self.norms[at]) as f32;
            // Writing to memory does not fail.
            let _ = write!(out, "{comma}{value}");
        }
        out.push(b']');
    }

    /// For each query and each of `every` the `count` vectors nearest to it, nearest first, among those whose number that one
    /// divides. Uses all processors.
    pub fn nearest(&self, queries: &Self, every: &[usize], count: usize) -> Vec<Vec<Vec<usize>>> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let all: Vec<usize> = (0..queries.len()).collect();
        let one = |query: &usize| {
            let (row, norm) = (queries.row(*query), queries.norms[*query]);
            let distance = |at: usize| -f64::from(dot(self.row(at), row)) / (self.norms[at] * norm);
            let distances: Vec<f64> = (0..self.len()).map(distance).collect();
            every.iter().map(|every| least(&distances, *every, count)).collect()
        };
        std::thread::scope(|scope| {
            let parts = all.chunks(all.len().div_ceil(threads).max(1));
            let workers: Vec<_> =
                parts.map(|part| scope.spawn(move || part.iter().map(one).collect::<Vec<_>>())).collect();
            workers.into_iter().flat_map(|worker| worker.join().unwrap_or_default()).collect()
        })
    }
}

/// The places of the least numbers, of those that `every` divides.
fn least(distances: &[f64], every: usize, count: usize) -> Vec<usize> {
    let mut found: Vec<usize> = (0..distances.len()).step_by(every.max(1)).collect();
    let compare = |a: &usize, b: &usize| distances[*a].total_cmp(&distances[*b]).then(a.cmp(b));
    if count < found.len() {
        found.select_nth_unstable_by(count, compare);
        found.truncate(count);
    }
    found.sort_by(compare);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_are_those_in_the_same_direction() {
        let vectors = VectorSet::new(vec![1, 0, 0, 1, 3, 3, -1, 0], 2);
        let queries = VectorSet::new(vec![2, 1, -5, 0, 0, 1], 2);
        let found = vectors.nearest(&queries, &[1, 2], 10);
        assert_eq!(found[0], [vec![2, 0, 1, 3], vec![2, 0]]);
        assert_eq!(found[1], [vec![3, 1, 2, 0], vec![2, 0]]);
        assert_eq!(vectors.nearest(&queries, &[1], 1)[2], [[1]]);
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vectors.i8.npy");
        let set = VectorSet::new(vec![1, -2, 3, 4, 5, -128], 3);
        set.write(&path).unwrap();
        let read = VectorSet::read(&path).unwrap();
        assert_eq!((read.len(), read.dimensions(), &read.numbers), (2, 3, &set.numbers));
        assert_eq!(std::fs::read(&path).unwrap().len() % 64, 6);
    }

    #[test]
    fn generated_vectors_are_the_same_each_time_and_have_near_ones() {
        let (vectors, queries) = VectorSet::clustered(2000, 5, 32);
        let (again, _) = VectorSet::clustered(2000, 5, 32);
        assert_eq!((vectors.len(), queries.len(), vectors.numbers == again.numbers), (2000, 5, true));
        let mut json = Vec::new();
        vectors.put_json(7, &mut json);
        let read: Vec<f64> = serde_json::from_slice(&json).unwrap();
        let length = read.iter().map(|number| number * number).sum::<f64>();
        assert!(read.len() == 32 && (length - 1.0).abs() < 1e-5, "{length}");
    }
}
