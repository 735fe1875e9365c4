//! The lengths to which sequences are padded.

/// Lengths in equal steps. The last is the full sequence length.
///
/// ```
/// use retrograph_finetune::data::Lengths;
///
/// let lengths = Lengths::new(100, 3);
/// assert!(lengths.all().eq([34, 68, 100]));
/// assert_eq!([1, 34, 35, 100].map(|tokens| lengths.fit(tokens)), [34, 34, 68, 100]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    seq: usize,
    step: usize,
}

impl Lengths {
    /// Returns at most `count` lengths; 0 counts as 1.
    pub fn new(seq: usize, count: usize) -> Self {
        Self { seq, step: seq.div_ceil(count.max(1)).max(1) }
    }

    /// Returns the full sequence length.
    pub fn seq(self) -> usize {
        self.seq
    }

    /// Returns all lengths, ascending.
    pub fn all(self) -> impl Iterator<Item = usize> {
        let count = self.seq.div_ceil(self.step);
        (1..=count).map(move |number| number.saturating_mul(self.step).min(self.seq))
    }

    /// Returns the shortest length that fits `tokens` tokens, or else the longest.
    pub fn fit(self, tokens: usize) -> usize {
        tokens.max(1).checked_next_multiple_of(self.step).map_or(self.seq, |fit| fit.min(self.seq))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_length_is_a_whole_sequence() {
        let all = |seq, count| Lengths::new(seq, count).all().collect::<Vec<_>>();
        assert_eq!(all(64, 4), [16, 32, 48, 64]);
        assert_eq!((all(64, 1), all(64, 0)), (vec![64], vec![64]));
        assert_eq!((all(10, 4), all(2, 4)), (vec![3, 6, 9, 10], vec![1, 2]));
        for tokens in 1..=10 {
            let fit = Lengths::new(10, 4).fit(tokens);
            assert_eq!(Some(fit), all(10, 4).into_iter().find(|length| *length >= tokens));
        }
        let (most, half) = (usize::MAX, 1 << 63);
        assert_eq!((Lengths::new(10, 4).fit(most), all(most, 2)), (10, vec![half, most]));
        assert_eq!(
            [1, half, half + 1, most].map(|t| Lengths::new(most, 2).fit(t)),
            [half, half, most, most]
        );
    }
}
