//! The ancestor relation of operations, one bit per pair.

/// The ancestors of every operation, in a graph whose edges go from lower to higher numbers.
#[derive(Clone, Debug)]
pub(crate) struct Ancestors {
    words: usize,
    bits: Vec<u64>,
}

impl Ancestors {
    /// Returns the relation of `operations` operations without ancestors.
    pub(super) fn new(operations: usize) -> Self {
        let words = operations.div_ceil(64);
        Self { words, bits: vec![0; words * operations] }
    }

    /// Makes `parent` and its ancestors ancestors of `child`, which must have the higher number.
    pub(super) fn add(&mut self, parent: usize, child: usize) {
        let (before, from_child) = self.bits.split_at_mut(child * self.words);
        let parents = &before[parent * self.words..(parent + 1) * self.words];
        let target = &mut from_child[..self.words];
        for (target, parents) in target.iter_mut().zip(parents).take(parent / 64 + 1) {
            *target |= parents;
        }
        target[parent / 64] |= 1 << (parent % 64);
    }

    /// Whether `earlier` is an ancestor of `later`.
    pub(crate) fn contains(&self, later: usize, earlier: usize) -> bool {
        self.row(later)[earlier / 64] >> (earlier % 64) & 1 == 1
    }

    /// The ancestors of `operation`, as a bit set.
    pub(super) fn row(&self, operation: usize) -> &[u64] {
        &self.bits[operation * self.words..(operation + 1) * self.words]
    }
}
