//! Random numbers for every order that CUDA leaves open.

use std::collections::BTreeSet;

use crate::config::{Config, Order};

/// The splitmix64 generator: small, seedable, and good enough to choose orders.
///
/// Source: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", 2014.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
    /// Whether orders are ascending and seeds 0 instead of random.
    is_prompt: bool,
}

impl Random {
    /// Creates a generator from a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed, is_prompt: false }
    }

    /// Creates the generator of a machine.
    pub(crate) fn of(config: &Config) -> Self {
        Self { state: config.seed, is_prompt: config.order == Order::Prompt }
    }

    /// Returns the seed of a kernel; with 0, blocks and warps run in ascending order.
    pub(crate) fn seed(&mut self) -> u64 {
        if self.is_prompt { 0 } else { self.next() }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`, which must not be 0.
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Returns a topological order of `0..dependencies.len()`: a random one, or the one with the
    /// lowest ready index first. `None` if there is a cycle.
    pub(crate) fn order(&mut self, dependencies: &[Vec<usize>]) -> Option<Vec<usize>> {
        let mut waiting: Vec<usize> = dependencies.iter().map(Vec::len).collect();
        let mut dependents = vec![Vec::new(); dependencies.len()];
        for (index, list) in dependencies.iter().enumerate() {
            list.iter().for_each(|&dependency| dependents[dependency].push(index));
        }
        let mut ready = Ready::new(self.is_prompt);
        (0..waiting.len()).filter(|&index| waiting[index] == 0).for_each(|index| ready.add(index));
        let mut order = Vec::with_capacity(waiting.len());
        while let Some(index) = ready.take(self) {
            order.push(index);
            for &dependent in &dependents[index] {
                waiting[dependent] -= 1;
                if waiting[dependent] == 0 {
                    ready.add(dependent);
                }
            }
        }
        (order.len() == waiting.len()).then_some(order)
    }
}

/// The indices that may come next.
enum Ready {
    Ascending(BTreeSet<usize>),
    Shuffled(Vec<usize>),
}

impl Ready {
    fn new(is_prompt: bool) -> Self {
        if is_prompt { Self::Ascending(BTreeSet::new()) } else { Self::Shuffled(Vec::new()) }
    }

    fn add(&mut self, index: usize) {
        match self {
            Self::Ascending(indices) => drop(indices.insert(index)),
            Self::Shuffled(indices) => indices.push(index),
        }
    }

    fn take(&mut self, random: &mut Random) -> Option<usize> {
        match self {
            Self::Ascending(indices) => indices.pop_first(),
            Self::Shuffled(indices) if indices.is_empty() => None,
            Self::Shuffled(indices) => Some(indices.swap_remove(random.below(indices.len()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_legal_order_of_a_diamond_occurs_and_no_other() {
        let diamond = [vec![], vec![0], vec![0], vec![1, 2]];
        let mut seen = BTreeSet::new();
        for seed in 0..64 {
            seen.insert(Random::new(seed).order(&diamond).unwrap());
        }
        assert_eq!(seen, BTreeSet::from([vec![0, 1, 2, 3], vec![0, 2, 1, 3]]));
    }

    #[test]
    fn the_prompt_order_is_the_first_by_index() {
        let config = |seed| Config { order: Order::Prompt, seed, ..Config::default() };
        for seed in 0..8 {
            let mut random = Random::of(&config(seed));
            let order = random.order(&[vec![2], vec![], vec![1], vec![]]);
            assert_eq!((order, random.seed()), (Some(vec![1, 2, 0, 3]), 0));
        }
    }

    #[test]
    fn a_cycle_has_no_order() {
        assert_eq!(Random::new(1).order(&[vec![1], vec![0], vec![]]), None);
    }

    #[test]
    fn the_seed_decides() {
        let free = vec![Vec::new(); 20];
        let order = |seed| Random::new(seed).order(&free).unwrap();
        assert_eq!(order(7), order(7));
        assert_ne!(order(7), order(8));
    }
}
