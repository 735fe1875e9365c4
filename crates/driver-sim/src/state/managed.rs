//! Advice for managed memory (`cuMemAdvise`).

use std::collections::BTreeSet;
use std::ops::Range;

use retrograph_driver_sys::CUmemLocation;

/// The advice for a range of managed memory. It has no effect except on queries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Advice {
    pub(crate) is_read_mostly: bool,
    pub(crate) preferred: Option<CUmemLocation>,
    /// Ordinals of devices, and -1 for the host.
    pub(crate) accessed_by: BTreeSet<i32>,
    /// The destination of the last prefetch.
    pub(crate) prefetched: Option<CUmemLocation>,
}

/// The advice for each byte of an allocation, as ranges without gaps.
#[derive(Debug)]
pub(crate) struct AdvisedRanges(Vec<(Range<usize>, Advice)>);

impl AdvisedRanges {
    /// Creates empty advice for `bytes` bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        Self(vec![(0..bytes, Advice::default())])
    }

    /// Changes the advice for a range.
    pub(crate) fn change(&mut self, range: &Range<usize>, change: impl Fn(&mut Advice)) {
        let mut ranges = Vec::with_capacity(self.0.len() + 2);
        for (known, advice) in self.0.drain(..) {
            let start = known.start.max(range.start).min(known.end);
            let end = known.end.min(range.end).max(start);
            let mut changed = advice.clone();
            change(&mut changed);
            let parts = [
                (known.start..start, advice.clone()),
                (start..end, changed),
                (end..known.end, advice),
            ];
            ranges.extend(parts.into_iter().filter(|(part, _)| !part.is_empty()));
        }
        self.0 = ranges;
    }

    /// A property of a range, if it is the same for each byte.
    pub(crate) fn common<T: PartialEq>(
        &self,
        range: &Range<usize>,
        of: impl Fn(&Advice) -> T,
    ) -> Option<T> {
        let overlaps = |known: &Range<usize>| known.start < range.end && range.start < known.end;
        let mut values =
            self.0.iter().filter(|(known, _)| overlaps(known)).map(|(_, advice)| of(advice));
        let first = values.next()?;
        values.all(|value| value == first).then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_holds_only_for_its_range() {
        let mut ranges = AdvisedRanges::new(100);
        ranges.change(&(20..60), |advice| advice.is_read_mostly = true);
        ranges.change(&(50..100), |advice| advice.accessed_by.extend([0]));
        let read = |range| ranges.common(&range, |advice| advice.is_read_mostly);
        assert_eq!(read(0..20), Some(false));
        assert_eq!(read(20..60), Some(true));
        assert_eq!(read(19..21), None);
        assert_eq!(read(60..100), Some(false));
        let accessed = |range| ranges.common(&range, |advice| advice.accessed_by.len());
        assert_eq!(accessed(0..50), Some(0));
        assert_eq!(accessed(50..100), Some(1));
        assert_eq!(accessed(49..51), None);
    }
}
