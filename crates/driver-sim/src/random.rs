//! Random numbers for every order that CUDA leaves open.

/// The splitmix64 generator: small, seedable, and good enough to choose orders.
///
/// Source: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", 2014.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// A generator whose numbers follow from `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which must not be 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// An order of `0..dependencies.len()` in which each index comes after those it depends on,
    /// chosen among all of them by chance; `None` when there is a cycle.
    pub(crate) fn order(&mut self, dependencies: &[Vec<usize>]) -> Option<Vec<usize>> {
        let mut waiting: Vec<usize> = dependencies.iter().map(Vec::len).collect();
        let mut dependents = vec![Vec::new(); dependencies.len()];
        for (index, list) in dependencies.iter().enumerate() {
            list.iter().for_each(|&dependency| dependents[dependency].push(index));
        }
        let mut ready: Vec<_> = (0..waiting.len()).filter(|&index| waiting[index] == 0).collect();
        let mut order = Vec::with_capacity(waiting.len());
        while !ready.is_empty() {
            let index = ready.swap_remove(self.below(ready.len()));
            order.push(index);
            for &dependent in &dependents[index] {
                waiting[dependent] -= 1;
                if waiting[dependent] == 0 {
                    ready.push(dependent);
                }
            }
        }
        (order.len() == waiting.len()).then_some(order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

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
