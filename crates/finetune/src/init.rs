//! Seeded initial values, equal on every machine and for any number of threads.
//!
//! The name of a parameter selects a ChaCha stream, and each element uses fixed words of that
//! stream, so chunks can be computed in any order. A normal value is the sum of eight uniform
//! 16-bit integers, which is exact; a logarithm or a cosine would depend on the machine's math
//! library. The tails end at 4.9 standard deviations.

use half::bf16;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use sha2::{Digest, Sha256};

use crate::parameters::{Init, Parameter, Storage, normed_weight};

/// Version of the generator, stored in checkpoints. Increased if a seed would give other values.
pub const INIT_VERSION: u32 = 1;

/// Words of the stream per element, for every distribution.
const WORDS_PER_ELEMENT: u128 = 4;

/// Elements per work item of a thread.
const CHUNK: usize = 1 << 16;

/// Returns the initial values of a parameter.
pub fn initial_values(parameter: &Parameter, seed: u64) -> Vec<f32> {
    let mut values = vec![0.0; parameter.len()];
    fill(&mut values, 0, parameter, seed);
    values
}

/// Fills `values` with the initial values of `parameter` from index `first`. Uses one thread per
/// CPU core. Values of [`Storage::F32WithF16`] with one part are rounded to bf16.
pub fn fill(values: &mut [f32], first: usize, parameter: &Parameter, seed: u64) {
    fill_unrounded(values, first, parameter, seed);
    if let Storage::F32WithF16 { terms: 1, .. } = parameter.storage {
        values.iter_mut().for_each(|value| *value = bf16::from_f32(*value).to_f32());
    }
}

fn fill_unrounded(values: &mut [f32], first: usize, parameter: &Parameter, seed: u64) {
    if let Init::Constant(value) = parameter.init {
        values.fill(value);
        return;
    }
    let weight = normed_weight(&parameter.name);
    let generator = generator(weight.as_deref().unwrap_or(&parameter.name), seed);
    if let Init::RowNorms { width, deviation } = parameter.init {
        let mut row = vec![0.0; width];
        for (index, norm) in values.iter_mut().enumerate() {
            fill_part(
                &mut row,
                (first + index) * width,
                Init::Normal(deviation),
                generator.clone(),
            );
            *norm = row_norm(&row);
        }
        return;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let chunks = values.len().div_ceil(CHUNK);
    let per_thread = chunks.div_ceil(cores).max(1) * CHUNK;
    if values.len() <= per_thread {
        return fill_part(values, first, parameter.init, generator);
    }
    std::thread::scope(|scope| {
        for (index, part) in values.chunks_mut(per_thread).enumerate() {
            let generator = generator.clone();
            let first = first + index * per_thread;
            scope.spawn(move || fill_part(part, first, parameter.init, generator));
        }
    });
}

/// Returns the Euclidean norm of a row.
pub(crate) fn row_norm(row: &[f32]) -> f32 {
    row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt() as f32
}

/// Returns the generator at the start of the stream of `name`.
fn generator(name: &str, seed: u64) -> ChaCha8Rng {
    let digest = Sha256::digest(name.as_bytes());
    let stream = u64::from_le_bytes(digest[..8].try_into().expect("a digest has 32 bytes"));
    let mut generator = ChaCha8Rng::seed_from_u64(seed);
    generator.set_stream(stream);
    generator
}

/// Fills `part` with the elements from index `first`.
fn fill_part(part: &mut [f32], first: usize, init: Init, mut generator: ChaCha8Rng) {
    generator.set_word_pos(first as u128 * WORDS_PER_ELEMENT);
    let mut bytes = [0; 16];
    for value in part {
        generator.fill_bytes(&mut bytes);
        *value = match init {
            Init::Constant(constant) => constant,
            Init::Normal(deviation) => normal(&bytes) * deviation,
            Init::Uniform(bound) => uniform(&bytes) * bound,
            Init::RowNorms { .. } => unreachable!("norms are computed from rows"),
        };
    }
}

/// Returns a value with mean 0 and variance 1 from 16 random bytes.
fn normal(bytes: &[u8; 16]) -> f32 {
    let terms = bytes.chunks_exact(2).map(|pair| i32::from(u16::from_le_bytes([pair[0], pair[1]])));
    // Twice the sum, less twice its mean of 8 · 65535 / 2, is an exact integer.
    let centred = 2 * terms.sum::<i32>() - 8 * 65535;
    // The variance of one term is (65536² - 1) / 12; the constant is 1 / (2 · √(8 · that)).
    const INVERSE_DEVIATION: f64 = 1.0 / 107_019.839_842_900_15;
    (f64::from(centred) * INVERSE_DEVIATION) as f32
}

/// Returns a value between -1 and 1 from the first 4 random bytes.
fn uniform(bytes: &[u8; 16]) -> f32 {
    let word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    ((f64::from(word) + 0.5) / 2_147_483_648.0 - 1.0) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameter(len: usize, init: Init) -> Parameter {
        let name = "model.test.weight".to_owned();
        let storage = Storage::F32;
        let (shape, layout) = (vec![len], crate::parameters::Layout::default());
        Parameter { name, shape, trainable: true, decayed: true, init, storage, layout }
    }

    #[test]
    fn moments_are_those_of_the_distribution() {
        let values = initial_values(&parameter(200_000, Init::Normal(0.02)), 7);
        let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / values.len() as f64;
        let square =
            values.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / values.len() as f64;
        assert!(mean.abs() < 2e-4, "{mean}");
        assert!((square.sqrt() - 0.02).abs() < 1e-4, "{}", square.sqrt());
        let bounded = initial_values(&parameter(100_000, Init::Uniform(0.5)), 7);
        let largest = bounded.iter().fold(0.0f32, |a, &b| a.max(b.abs()));
        assert!(largest <= 0.5 && largest > 0.499);
    }

    #[test]
    fn the_values_do_not_depend_on_how_the_work_is_split() {
        let parameter = parameter(CHUNK * 5 + 3, Init::Normal(1.0));
        let whole = initial_values(&parameter, 3);
        let mut tail = vec![0.0; CHUNK + 3];
        fill_part(&mut tail, CHUNK * 4, parameter.init, generator(&parameter.name, 3));
        assert_eq!(whole[CHUNK * 4..], tail);
        fill(&mut tail, CHUNK * 4, &parameter, 3);
        assert_eq!(whole[CHUNK * 4..], tail);
    }

    #[test]
    fn seed_and_name_choose_the_values() {
        let first = parameter(16, Init::Normal(1.0));
        let other = Parameter { name: "another".to_owned(), ..first.clone() };
        assert_ne!(initial_values(&first, 1), initial_values(&first, 2));
        assert_ne!(initial_values(&first, 1), initial_values(&other, 1));
        assert_eq!(initial_values(&first, 1), initial_values(&first, 1));
    }
}
