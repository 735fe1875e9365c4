//! Bounds of causal attention as data: packed documents and sliding windows.

use super::shape::AttentionShape;
use crate::checks::Check;
use crate::{KernelError, View};

/// The range of earlier tokens that each token attends to, as data of a launch.
///
/// Query i of a sequence attends to the keys `first_keys[i] ..= i`, and key j is attended to by the
/// queries `j .. query_ends[j]`. Both describe the same pairs. The forward pass and the gradient of
/// q read `first_keys`; the gradients of k and v read `query_ends`. [`first_keys`] and
/// [`query_ends`] compute them.
///
/// Both must not decrease within a sequence. Other bounds, and bounds out of range, give wrong
/// results but never access memory outside of the operands.
#[derive(Clone, Copy, Debug)]
pub struct AttentionBounds<B> {
    /// `[batch, seq]`, read: the first key of each query, at most the query itself.
    pub first_keys: View<B, u32>,
    /// `[batch, seq]`, read: the end of the queries of each key, at most `seq`.
    pub query_ends: View<B, u32>,
}

impl<B: Copy> AttentionBounds<B> {
    /// Checks the lengths.
    pub(super) fn check(self, check: Check, shape: AttentionShape) -> Result<(), KernelError> {
        let tokens = check.product("tokens", &[shape.batch, shape.seq])?;
        check.length("first_keys", self.first_keys, tokens)?;
        check.length("query_ends", self.query_ends, tokens)
    }
}

/// Returns the first key of each query of a sequence, from the position of each token in its
/// document. With a `window`, a query attends to at most that many tokens, itself included.
///
/// Positions are clamped to the index of the token in the sequence.
pub fn first_keys(positions: &[u32], window: Option<u32>) -> Vec<u32> {
    let reach = window.map_or(u32::MAX, |window| window.saturating_sub(1));
    let first = |(row, position): (u32, &u32)| row.saturating_sub(reach.min(*position));
    (0..).zip(positions).map(first).collect()
}

/// Returns the end of the queries of each key of a sequence, from the first key of each query.
pub fn query_ends(first_keys: &[u32]) -> Vec<u32> {
    let mut end = 0;
    let ends = (0..first_keys.len()).map(|key| {
        while first_keys.get(end).is_some_and(|first| *first as usize <= key) {
            end += 1;
        }
        end as u32
    });
    ends.collect()
}
