//! The free gaps between the used parts of an allocation.

use std::collections::BTreeMap;
use std::ops::Range;

/// The free gaps of an allocation, by start. Adjacent gaps are merged.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Gaps {
    by_start: BTreeMap<usize, usize>,
}

impl Gaps {
    /// A single gap of `bytes` bytes.
    pub(super) fn all(bytes: usize) -> Self {
        let whole = (bytes > 0).then_some((0, bytes));
        Self { by_start: whole.into_iter().collect() }
    }

    /// Takes `bytes` bytes from the start of the smallest gap that fits (best fit); of several, the
    /// first.
    pub(super) fn take(&mut self, bytes: usize) -> Option<Range<usize>> {
        let fits = self.by_start.iter().filter(|&(start, end)| end - start >= bytes);
        let (start, end) =
            fits.min_by_key(|&(start, end)| end - start).map(|(&start, &end)| (start, end))?;
        self.by_start.remove(&start);
        if start + bytes < end {
            self.by_start.insert(start + bytes, end);
        }
        Some(start..start + bytes)
    }

    /// Returns `range`, and merges it with adjacent gaps.
    pub(super) fn give_back(&mut self, range: Range<usize>) {
        let (mut start, mut end) = (range.start, range.end);
        if let Some((&before, &stop)) = self.by_start.range(..start).next_back()
            && stop == start
        {
            self.by_start.remove(&before);
            start = before;
        }
        if let Some(stop) = self.by_start.remove(&end) {
            end = stop;
        }
        self.by_start.insert(start, end);
    }

    /// Free bytes in total and in the largest gap.
    pub(super) fn free(&self) -> (usize, usize) {
        let sizes = self.by_start.iter().map(|(start, end)| end - start);
        (sizes.clone().sum(), sizes.max().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_smallest_gap_that_fits_is_taken() {
        let mut gaps = Gaps::all(100);
        let [one, two, three] = [30, 10, 20].map(|bytes| gaps.take(bytes).unwrap());
        assert_eq!([&one, &two, &three], [&(0..30), &(30..40), &(40..60)]);
        gaps.give_back(one);
        gaps.give_back(three);
        assert_eq!(gaps.free(), (90, 60), "the third gap joins the rest");
        assert_eq!(gaps.take(30), Some(0..30));
        assert_eq!(gaps.take(61), None);
        gaps.give_back(0..30);
        gaps.give_back(two);
        assert_eq!(gaps, Gaps::all(100));
    }

    proptest! {
        #[test]
        fn ranges_that_are_out_never_overlap_and_all_come_back(
            wishes in prop::collection::vec((1usize..40, any::<prop::sample::Index>()), 1..60),
        ) {
            let (mut gaps, mut out) = (Gaps::all(256), Vec::<Range<usize>>::new());
            for (bytes, which) in wishes {
                match gaps.take(bytes) {
                    Some(range) => {
                        prop_assert!(range.end <= 256 && range.len() == bytes);
                        let apart = |held: &Range<usize>| {
                            held.end <= range.start || range.end <= held.start
                        };
                        prop_assert!(out.iter().all(apart));
                        out.push(range);
                    }
                    None => {
                        prop_assert!(gaps.free().1 < bytes);
                        gaps.give_back(out.swap_remove(which.index(out.len())));
                    }
                }
                let used: usize = out.iter().map(Range::len).sum();
                prop_assert_eq!(gaps.free().0, 256 - used);
            }
            out.into_iter().for_each(|range| gaps.give_back(range));
            prop_assert_eq!(gaps, Gaps::all(256));
        }
    }
}
