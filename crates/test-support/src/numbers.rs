//! Random data, comparisons and finite differences. Compiled with optimization, unlike tests.

use std::time::{SystemTime, UNIX_EPOCH};

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// Fresh random data. The seed is printed, so that `RETROGRAPH_TEST_SEED` can repeat a failure.
#[derive(Debug)]
pub struct Data(ChaCha8Rng);

impl Data {
    /// Data of the test `test`.
    ///
    /// # Panics
    /// If `RETROGRAPH_TEST_SEED` is not a number.
    #[expect(clippy::print_stdout, reason = "a failure is repeated by the seed that was printed")]
    pub fn new(test: &str) -> Self {
        let given = std::env::var("RETROGRAPH_TEST_SEED").ok();
        let seed = given.map_or_else(fresh_seed, |seed| seed.parse().expect("a number"));
        println!("{test}: RETROGRAPH_TEST_SEED={seed}");
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Numbers from −`scale` to `scale`.
    pub fn uniform(&mut self, len: usize, scale: f32) -> Vec<f32> {
        (0..len).map(|_| self.0.random_range(-1.0..1.0_f32) * scale).collect()
    }

    /// A scale from 1e-30 to 1e30.
    pub fn scale(&mut self) -> f32 {
        10_f32.powi(self.0.random_range(-30..=30))
    }

    /// Numbers of every scale from 1e-30 to 1e30 and of either sign.
    pub fn spread(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.scale() * self.0.random_range(-1.0..1.0_f32)).collect()
    }

    /// Tokens of a vocabulary.
    pub fn tokens(&mut self, len: usize, vocab: usize) -> Vec<u32> {
        (0..len).map(|_| self.0.random_range(0..vocab as u32)).collect()
    }
}

fn fresh_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    now.as_nanos() as u64
}

/// Converts to f64.
pub fn doubles(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| value.into()).collect()
}

/// `len` times `value`.
pub fn filled(value: f32, len: usize) -> Vec<f32> {
    vec![value; len]
}

/// Whether all values are NaN.
pub fn all_nan(values: &[f32]) -> bool {
    values.iter().all(|value| value.is_nan())
}

/// The allowed difference of a result from its reference: the larger of a relative and an absolute
/// bound, and at least the smallest normal f32.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    relative: f64,
    absolute: f64,
}

impl Tolerance {
    /// A bound relative to the reference.
    pub fn relative(relative: f64) -> Self {
        Self { relative, absolute: f32::MIN_POSITIVE.into() }
    }

    /// The same with an absolute bound.
    pub fn absolute(self, absolute: f64) -> Self {
        Self { absolute: absolute.max(self.absolute), ..self }
    }

    /// Fails with the worst element. NaN must match NaN, and references beyond f32 must match
    /// infinity.
    #[track_caller]
    pub fn check(&self, actual: &[f32], expected: &[f64], what: &str) {
        assert_eq!(actual.len(), expected.len(), "{what}");
        for (index, (&actual, &expected)) in actual.iter().zip(expected).enumerate() {
            let near = (f64::from(actual) - expected).abs()
                <= (self.relative * expected.abs()).max(self.absolute);
            let fits = match expected {
                _ if expected.is_nan() => actual.is_nan(),
                _ if expected.abs() > f64::from(f32::MAX) => {
                    f64::from(actual) == expected.signum() * f64::INFINITY || near
                }
                _ => near,
            };
            assert!(fits, "{what}: element {index} is {actual:e}, expected {expected:e}");
        }
    }
}

/// Fails unless every bit is the same.
#[track_caller]
pub fn same_bits(left: &[f32], right: &[f32], what: &str) {
    assert_eq!(left.len(), right.len(), "{what}");
    let differs = |index: &usize| left[*index].to_bits() != right[*index].to_bits();
    if let Some(index) = (0..left.len()).find(differs) {
        let (left, right) = (left[index], right[index]);
        panic!("{what}: element {index} is {left:e} here and {right:e} there");
    }
}

/// The gradient of `loss` at `x` by central differences.
pub fn differences(x: &[f64], step: f64, loss: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let moved = |index: usize, by: f64| {
        let mut x = x.to_vec();
        x[index] += by;
        loss(&x)
    };
    (0..x.len()).map(|i| (moved(i, step) - moved(i, -step)) / (2.0 * step)).collect()
}
