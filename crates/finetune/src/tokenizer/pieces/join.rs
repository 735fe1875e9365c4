//! Finds where two overlapping pieces can be joined.

use super::{AGREE, Encoder, Piece, Token};

impl Encoder<'_> {
    /// Returns a token boundary at or before `position` at which a piece can start; between two
    /// words if possible.
    pub(super) fn start(&self, piece: &Piece, position: usize) -> Option<usize> {
        let tokens = &piece.tokens;
        let from = tokens.partition_point(|token| token.start <= position);
        let boundary = |index: &usize| {
            let start = tokens[*index].start;
            start > self.joined && tokens[index - 1].end <= start && start < tokens[*index].end
        };
        let near = || (1..from.min(tokens.len())).rev().take(16 * AGREE).filter(boundary);
        let between = near().find(|index| tokens[*index].word != tokens[index - 1].word);
        let inside = || near().next().filter(|_| self.tokenizer.joins_inside_words());
        between.or_else(inside).map(|index| tokens[index].start)
    }

    /// Returns a token boundary inside a run of equal tokens: its index in each piece.
    pub(super) fn position(&self, left: &Piece, right: &Piece) -> Option<[usize; 2]> {
        let (mut positions, mut run) = ([0, 0], 0);
        let mut best: Option<[usize; 2]> = None;
        while let (Some(one), Some(other)) =
            (left.tokens.get(positions[0]), right.tokens.get(positions[1]))
        {
            if one.equals(other) {
                run += 1;
                positions = [positions[0] + 1, positions[1] + 1];
                if run >= 2 * AGREE {
                    let middle = positions.map(|position| position - AGREE);
                    match self.rank(left, right, middle) {
                        2 => return Some(middle),
                        1 if best.is_none() => best = Some(middle),
                        _ => (),
                    }
                }
                continue;
            }
            run = 0;
            let order = (one.start, one.end).cmp(&(other.start, other.end));
            positions[0] += usize::from(order.is_le());
            positions[1] += usize::from(order.is_ge());
        }
        best
    }

    /// Ranks a common token boundary: 2 between two words, 1 inside a word, 0 if the pieces cannot
    /// be joined there.
    fn rank(&self, left: &Piece, right: &Piece, position: [usize; 2]) -> u8 {
        let [one, other] = [(&left.tokens, position[0]), (&right.tokens, position[1])];
        let boundary = |(tokens, position): (&Vec<Token>, usize)| {
            let (before, token) = (tokens[position - 1], tokens[position]);
            before.start < token.start && before.end <= token.start && token.start < token.end
        };
        let between = |(tokens, position): (&Vec<Token>, usize)| {
            tokens[position - 1].word != tokens[position].word
        };
        if !boundary(one) || !boundary(other) || one.0[one.1].start <= self.joined {
            return 0;
        }
        // A special token with `lstrip` takes all whitespace before it.
        let seen = &self.text[one.0[one.1].start..left.tokens[position[0] + AGREE - 1].end];
        if self.tokenizer.takes_whitespace() && seen.iter().all(u8::is_ascii_whitespace) {
            return 0;
        }
        match between(one) && between(other) {
            true => 2,
            false => u8::from(self.tokenizer.joins_inside_words()),
        }
    }
}
