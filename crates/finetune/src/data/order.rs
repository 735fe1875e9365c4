//! Seeded random choices, equal on every machine and in every version.

use std::sync::{Mutex, PoisonError};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// Returns the random generator for a purpose and a stream.
pub(super) fn generator(seed: u64, purpose: u64, stream: u64) -> ChaCha8Rng {
    let mut generator = ChaCha8Rng::seed_from_u64(seed ^ purpose);
    generator.set_stream(stream);
    generator
}

/// Returns a number below `limit`.
pub(super) fn below(generator: &mut ChaCha8Rng, limit: usize) -> usize {
    // Multiplies a uniform 64-bit fraction by the limit and rounds down.
    ((u128::from(generator.next_u64()) * limit as u128) >> 64) as usize
}

/// Returns the numbers below `len` in a random order.
pub(super) fn shuffled(mut generator: ChaCha8Rng, len: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..len).collect();
    for last in (1..len).rev() {
        order.swap(last, below(&mut generator, last + 1));
    }
    order
}

/// The order of an epoch, cached until another epoch is requested.
#[derive(Debug)]
pub(super) struct EpochOrder {
    purpose: u64,
    last: Mutex<Order>,
}

#[derive(Debug, Default)]
struct Order {
    /// Seed, epoch and length.
    of: Option<(u64, u64, usize)>,
    places: Vec<usize>,
}

impl EpochOrder {
    /// Returns a cache of orders from the random numbers of `purpose`.
    pub(super) fn new(purpose: u64) -> Self {
        Self { purpose, last: Mutex::default() }
    }

    /// Returns number `at` of an epoch in which each number below `len` occurs once.
    pub(super) fn place(&self, seed: u64, epoch: u64, at: usize, len: usize) -> usize {
        // An order is replaced as a whole, so it is valid even after a panic.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let of = Some((seed, epoch, len));
        if last.of != of {
            *last = Order { of, places: shuffled(generator(seed, self.purpose, epoch), len) };
        }
        last.places[at]
    }
}

impl Clone for EpochOrder {
    fn clone(&self) -> Self {
        Self::new(self.purpose)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_a_permutation_that_depends_on_the_seed() {
        let order = |seed, stream| shuffled(generator(seed, 7, stream), 100);
        let mut sorted = order(1, 0);
        assert_eq!((&order(1, 0), order(1, 0) == sorted), (&sorted, true));
        assert_ne!(order(1, 0), order(2, 0));
        assert_ne!(order(1, 0), order(1, 1));
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..100));
        assert!(shuffled(generator(0, 0, 0), 0).is_empty());
    }

    /// Checks the six orders of three.
    #[test]
    fn all_orders_are_equally_likely() {
        let mut counts = std::collections::BTreeMap::new();
        for stream in 0..6000 {
            *counts.entry(shuffled(generator(3, 7, stream), 3)).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 6);
        assert!(counts.values().all(|count| (850..1150).contains(count)), "{counts:?}");
    }
}
