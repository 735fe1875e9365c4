//! Cross-entropy loss and its gradient, fused with the split into f16 terms.

use retrograph_kernel_abi::loss as abi;

use super::cross_entropy::dispatch;
use crate::gemm::{SplitMatrix, SplitSizes};
use crate::launch::{ArgumentTypes, Pointer};
use crate::{Kernel, KernelError, Launch, View};

/// Kernel of [`SplitCrossEntropy`].
pub static SPLIT_CROSS_ENTROPY: Kernel =
    Kernel::new("split_f16_cross_entropy", &abi::SPLIT_CROSS_ENTROPY.signature, |problem, _| {
        dispatch(problem, &abi::SPLIT_CROSS_ENTROPY)
    });

/// Computes the losses and the gradient of [`CrossEntropy`](super::CrossEntropy), and splits the
/// rows of the gradient, with the bits of two launches, the second of which is
/// [`Split`](crate::gemm::Split). The logits have no cap.
///
/// With a [row limit](Launch::row_limit), rows from the limit on have loss 0, and neither their
/// terms nor their scales are written.
#[derive(Clone, Copy, Debug)]
pub struct SplitCrossEntropy<B> {
    /// `[rows, vocab]`, read.
    pub logits: View<B, f32>,
    /// `[rows]`, read: the token to predict, or [`IGNORED_TARGET`](super::IGNORED_TARGET).
    pub targets: View<B, u32>,
    /// `[rows]`, written.
    pub losses: View<B, f32>,
    /// `[rows]`, a permutation, read: the index of the target and of the loss of each row of
    /// logits. A row of logits whose index is not below `rows` is skipped.
    pub order: Option<View<B, u32>>,
    /// `[vocab]`, read: powers of two by which the columns of the gradient are multiplied before
    /// the split.
    pub column_scales: Option<View<B, f32>>,
    /// Two terms and scales of the gradient, written.
    pub split: SplitMatrix<B>,
    /// `[1]`, read: the number of targets that are not ignored, in this launch and all others whose
    /// gradients are accumulated with it.
    pub counted: View<B, u32>,
    /// Number of rows.
    pub rows: usize,
    /// Size of the vocabulary, a multiple of 8, not 0.
    pub vocab: usize,
}

impl<B: Copy> SplitCrossEntropy<B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a row has no logit, a length does not match, the vocabulary is not a multiple of 8,
    /// `split` has one term, or logits, column scales or terms are not aligned to 16 bytes.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let Self { logits, targets, losses, order, column_scales, .. } = *self;
        let Self { split, counted, rows, vocab, .. } = *self;
        let sizes = SplitSizes::new(&SPLIT_CROSS_ENTROPY, [rows, vocab])?;
        let check = sizes.check;
        check.rule(vocab > 0 || rows == 0, "a row must have at least one logit", vocab)?;
        sizes.require(&[("logits", Some(logits))])?;
        sizes.require_columns("column_scales", column_scales)?;
        let names = ["the terms of the gradient", "the scales of the gradient"];
        sizes.require_terms(split, names)?;
        check.length("targets", targets, rows)?;
        check.length("losses", losses, rows)?;
        order.map_or(Ok(()), |order| check.length("order", order, rows))?;
        check.length("counted", counted, 1)?;
        let (problem, [rows, vocab]) = sizes.problem()?;
        let parameters = abi::SplitCrossEntropyParameters::<ArgumentTypes<B>> {
            logits: Pointer::read(logits),
            targets: Pointer::read(targets),
            losses: Pointer::write(losses),
            order: Pointer::read_optional(order),
            row_limit: Pointer::null(),
            column_scales: Pointer::read_optional(column_scales),
            terms: Pointer::write(split.terms),
            scales: Pointer::write(split.scales),
            counted: Pointer::read(counted),
            rows,
            vocab,
        };
        let arguments = parameters.into_arguments();
        Ok(Launch { kernel: &SPLIT_CROSS_ENTROPY, problem, arguments })
    }
}
