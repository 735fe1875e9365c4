//! Sets of byte ranges.

use std::ops::Range;

/// A set of bytes, as sorted ranges that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeSet {
    ranges: Vec<Range<usize>>,
}

impl RangeSet {
    /// Adds every byte of `range`.
    pub(crate) fn insert(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let first = self.ranges.partition_point(|held| held.end < range.start);
        let last = self.ranges.partition_point(|held| held.start <= range.end);
        let mut joined = range;
        if first < last {
            joined.start = joined.start.min(self.ranges[first].start);
            joined.end = joined.end.max(self.ranges[last - 1].end);
        }
        self.ranges.splice(first..last, [joined]);
    }

    /// The first part of `range` that is not in the set.
    pub(crate) fn first_gap(&self, range: &Range<usize>) -> Option<Range<usize>> {
        let mut start = range.start;
        let first = self.ranges.partition_point(|held| held.end <= start);
        for held in &self.ranges[first..] {
            if held.start > start {
                return (start < range.end).then(|| start..held.start.min(range.end));
            }
            start = held.end;
        }
        (start < range.end).then_some(start..range.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_set_of_single_bytes(
            inserts in prop::collection::vec((0usize..60, 0usize..12), 0..12),
            start in 0usize..60,
            len in 0usize..20,
        ) {
            let mut set = RangeSet::default();
            let mut bytes = [false; 100];
            for (at, len) in inserts {
                set.insert(at..at + len);
                bytes[at..at + len].fill(true);
            }
            let expected = (start..start + len).find(|&at| !bytes[at]);
            let gap = set.first_gap(&(start..start + len));
            prop_assert_eq!(gap.as_ref().map(|gap| gap.start), expected);
            if let Some(gap) = gap {
                prop_assert!(gap.clone().all(|at| !bytes[at]));
                prop_assert!(gap.end == start + len || bytes[gap.end]);
            }
        }
    }
}
