//! The inputs of a pass that describe targets: the target of each token, and the order that puts
//! rows with a target first.

use std::ops::Range;

use retrograph_kernels::ops::IGNORED_TARGET;
use retrograph_runtime::{Controls, Pass, Slice};

use crate::error::Result;

/// Controls: the targets of tokens, and the order of the rows of logits.
#[derive(Clone, Copy, Debug)]
pub struct Targets {
    /// The token that follows each token, or [`IGNORED_TARGET`].
    pub(super) targets: Slice<u32>,
    /// The number of targets of all ranks that are not ignored. Loss and gradients are means over
    /// these targets.
    pub(super) counted: Slice<u32>,
    pub(super) rows: TargetRows,
}

/// The order of the rows of a micro-batch in which logits are computed: rows with a target, and
/// then the others.
#[derive(Clone, Copy, Debug)]
pub(super) struct TargetRows {
    /// The rows of a micro-batch, counted from its start. A permutation.
    pub(super) order: Slice<u32>,
    /// The number of rows with a target; one number per micro-batch.
    pub(super) count: Slice<u32>,
}

impl TargetRows {
    /// Returns the order of the micro-batch that is the rows `rows`.
    pub(super) fn rows(self, rows: Range<usize>) -> Self {
        let number = rows.start / rows.len().max(1);
        Self { order: self.order.slice(rows), count: self.count.slice(number..number + 1) }
    }
}

impl Targets {
    /// Declares the controls of `rows` tokens in `micro_batches`.
    pub(super) fn declare(pass: &mut Pass, rows: usize, micro_batches: usize) -> Self {
        let targets = pass.control_array("targets", rows);
        let counted = pass.control("counted");
        let order = pass.control_array("target_order", rows);
        let count = pass.control_array("target_counts", micro_batches);
        Self { targets, counted, rows: TargetRows { order, count } }
    }

    /// Returns the targets of the micro-batch that is the rows `rows`.
    pub(super) fn rows(self, rows: Range<usize>) -> Self {
        let targets = self.targets.slice(rows.clone());
        Self { targets, rows: self.rows.rows(rows), ..self }
    }

    /// Sets the controls. `counted` is the number of targets of all ranks that are not ignored, or
    /// the number of pairs with preferences.
    ///
    /// # Errors
    /// If there is not one target per token.
    pub fn set(&self, controls: &mut Controls, targets: &[u32], counted: u32) -> Result<()> {
        controls.set_array(self.targets, targets)?;
        controls.set(self.counted, counted)?;
        let TargetRows { order, count } = self.rows;
        let (rows, counts) = target_rows(targets, order.len() / count.len());
        controls.set_array(order, &rows)?;
        Ok(controls.set_array(count, &counts)?)
    }
}

/// Returns the order of the rows of micro-batches with `len` targets each, and the number of rows
/// of each that have a target.
fn target_rows(targets: &[u32], len: usize) -> (Vec<u32>, Vec<u32>) {
    let (mut rows, mut counts) = (Vec::with_capacity(targets.len()), Vec::new());
    for targets in targets.chunks(len) {
        let has_target = |row: &u32| targets[*row as usize] != IGNORED_TARGET;
        let (first, others): (Vec<_>, Vec<_>) = (0..targets.len() as u32).partition(has_target);
        counts.push(first.len() as u32);
        rows.extend([first, others].concat());
    }
    (rows, counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_with_a_target_come_first_in_each_micro_batch() {
        let none = IGNORED_TARGET;
        let targets = [none, 5, none, 7, 0, none, none, none];
        assert_eq!(target_rows(&targets, 4), (vec![1, 3, 0, 2, 0, 1, 2, 3], vec![2, 1]));
        assert_eq!(target_rows(&targets, 8), (vec![1, 3, 4, 0, 2, 5, 6, 7], vec![3]));
        assert_eq!(target_rows(&[none; 3], 3), (vec![0, 1, 2], vec![0]));
    }

    #[test]
    fn a_micro_batch_has_its_own_rows_and_number() {
        let mut pass = Pass::new("targets");
        let all = Targets::declare(&mut pass, 8, 2);
        let second = all.rows(4..8);
        let same = |found: Slice<u32>, all: Slice<u32>, rows: Range<usize>| {
            let expected = all.slice(rows);
            assert_eq!((found.buffer(), found.byte_range()), (all.buffer(), expected.byte_range()));
        };
        same(second.targets, all.targets, 4..8);
        same(second.rows.order, all.rows.order, 4..8);
        same(second.rows.count, all.rows.count, 1..2);
        assert!(all.set(&mut pass.controls(), &[0; 7], 7).is_err());
    }
}
