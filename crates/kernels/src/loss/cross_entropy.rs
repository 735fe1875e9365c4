//! Cross-entropy loss and its gradient in one kernel.

use crate::checks::Check;
use crate::geometry::{MOST_BLOCKS, linear};
use crate::params::{pointer, u32};
use crate::tensor::Written;
use crate::{Argument, Dispatch, Kernel, KernelError, Launch, Problem, View};

/// Kernel of [`CrossEntropy`].
pub static CROSS_ENTROPY: Kernel = Kernel {
    name: "cross_entropy",
    image: "cross_entropy",
    parameters: &[
        pointer("logits"),
        pointer("targets"),
        pointer("losses"),
        pointer("grad_logits"),
        pointer("grad_logits_bf16"),
        u32("in_place"),
        pointer("counted"),
        u32("rows"),
        u32("vocab"),
    ],
    entries: &["cross_entropy_warp_per_row", "cross_entropy_block_per_row"],
    dispatch: |problem, _| by_vocab(problem),
};

/// The target of a row that does not count, as −100 is to PyTorch: padding, or a part of a text
/// that is not to be learned.
pub const IGNORED_TARGET: u32 = u32::MAX;

/// Rows that one block of the entry `…_by_warps` covers: one for each warp.
const ROWS_PER_BLOCK: u32 = 4;
/// The largest vocabulary that one warp covers.
const LARGEST_FOR_A_WARP: u32 = 1024;
/// Threads of a block of the entry `…_by_blocks`, which covers one row.
const BLOCK_THREADS: u32 = 1024;

/// One warp for each row of a small vocabulary, one block for each row of a large one.
fn by_vocab(problem: &Problem) -> Dispatch {
    let [rows, vocab, ..] = problem.sizes;
    let entries = CROSS_ENTROPY.entries;
    if vocab <= LARGEST_FOR_A_WARP {
        linear(entries[0], rows.div_ceil(ROWS_PER_BLOCK), ROWS_PER_BLOCK * 32)
    } else {
        linear(entries[1], rows, BLOCK_THREADS)
    }
}

/// For each row: `loss = ln Σ exp(logits) − logits[target]`, and the gradient of the mean of the
/// losses, `(softmax(logits) − onehot(target)) ÷ max(counted, 1)`.
///
/// A row with the target [`IGNORED_TARGET`] has the loss 0 and a gradient of zeros. Any other
/// target that is not below `vocab` gives a NaN loss and a row of NaN, and nothing outside of the
/// row is touched. So does a row with a NaN or a positive infinity, or with nothing but negative
/// infinities; where such a row is ignored, its loss is 0, and its gradient NaN as in PyTorch, so
/// that a broken model does not go unnoticed. A target whose logit is a negative infinity has an
/// infinite loss.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropy<B> {
    /// `[rows, vocab]`, read; overwritten by the gradient where that is in place.
    pub logits: View<B, f32>,
    /// `[rows]`, read: the token that each row should predict, or [`IGNORED_TARGET`].
    pub targets: View<B, u32>,
    /// `[rows]`, written.
    pub losses: View<B, f32>,
    /// Where the gradient goes, if it is wanted.
    pub grad_logits: GradLogits<B>,
    /// `[1]`, read: how many targets count in the mean, in this launch and in others whose
    /// gradients are added to its own.
    pub counted: View<B, u32>,
    /// Number of rows.
    pub rows: usize,
    /// Size of the vocabulary, not 0.
    pub vocab: usize,
}

/// Where the gradient of the logits goes.
#[derive(Clone, Copy, Debug)]
pub enum GradLogits<B> {
    /// Nowhere: only the losses are computed.
    None,
    /// It overwrites the logits.
    InPlace,
    /// `[rows, vocab]`, not the logits: as f32, as bf16, or both.
    Apart(Written<B>),
}

impl<B: Copy> CrossEntropy<B> {
    /// Checks the operands and describes the launch.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { logits, targets, losses, grad_logits, counted, rows, vocab } = self;
        let check = Check(CROSS_ENTROPY.name);
        check.rule(vocab > 0 || rows == 0, "a row needs at least one logit", (rows, vocab))?;
        let elements = check.product("rows × vocab", &[rows, vocab])?;
        check.length("logits", logits, elements)?;
        check.length("targets", targets, rows)?;
        check.length("losses", losses, rows)?;
        check.length("counted", counted, 1)?;
        let rows = check.at_most("rows", rows, MOST_BLOCKS)?;
        let vocab = check.at_most("vocab", vocab, MOST_BLOCKS)?;
        let in_place = matches!(grad_logits, GradLogits::InPlace);
        let [grad_f32, grad_bf16] = match grad_logits {
            GradLogits::None | GradLogits::InPlace => [Argument::Null, Argument::Null],
            GradLogits::Apart(written) => {
                written.check(check, "grad_logits", elements)?;
                written.arguments()
            }
        };
        let arguments = vec![
            if in_place { Argument::update(logits) } else { Argument::read(logits) },
            Argument::read(targets),
            Argument::write(losses),
            grad_f32,
            grad_bf16,
            Argument::U32(in_place.into()),
            Argument::read(counted),
            Argument::U32(rows),
            Argument::U32(vocab),
        ];
        Ok(Launch { kernel: &CROSS_ENTROPY, problem: Problem::from([rows, vocab]), arguments })
    }
}
