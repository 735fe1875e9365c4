//! Cross-entropy loss and its gradient in one kernel.

use super::geometry::{MOST_BLOCKS, linear};
use super::{f32, pointer, u32};
use crate::checks::Check;
use crate::{Argument, Dispatch, Kernel, KernelError, Launch, Problem, View};

/// Kernel of [`CrossEntropy`].
pub static CROSS_ENTROPY: Kernel = Kernel {
    name: "cross_entropy",
    image: "cross_entropy",
    parameters: &[
        pointer("logits"),
        pointer("targets"),
        pointer("losses"),
        u32("rows"),
        u32("vocab"),
        f32("grad_scale"),
    ],
    entries: &["cross_entropy_by_warps", "cross_entropy_by_blocks"],
    dispatch: |problem, _| by_vocab(problem),
};

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

/// For each row: `loss = ln Σ exp(logits) − logits[target]`, and the logits become
/// `(softmax(logits) − onehot(target)) · grad_scale`.
///
/// A target that is not below `vocab` gives a NaN loss and a row of NaN, and nothing outside of the
/// row is touched. So does a row with a NaN or a positive infinity, or with nothing but negative
/// infinities. A target whose logit is a negative infinity has an infinite loss.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropy<B> {
    /// `[rows, vocab]`, read, and overwritten by the gradient.
    pub logits: View<B, f32>,
    /// `[rows]`, read: the token that each row should predict.
    pub targets: View<B, u32>,
    /// `[rows]`, written.
    pub losses: View<B, f32>,
    /// Number of rows.
    pub rows: usize,
    /// Size of the vocabulary, not 0.
    pub vocab: usize,
    /// The factor of the gradient, 1 ÷ rows for the mean over rows; finite.
    pub grad_scale: f32,
}

impl<B: Copy> CrossEntropy<B> {
    /// Checks the operands and describes the launch.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { logits, targets, losses, rows, vocab, grad_scale } = self;
        let check = Check(CROSS_ENTROPY.name);
        check.rule(vocab > 0 || rows == 0, "a row needs at least one logit", (rows, vocab))?;
        check.length("logits", logits, check.product("rows × vocab", &[rows, vocab])?)?;
        check.length("targets", targets, rows)?;
        check.length("losses", losses, rows)?;
        check.constant("grad_scale", grad_scale, (grad_scale.is_finite(), "finite"))?;
        let rows = check.at_most("rows", rows, MOST_BLOCKS)?;
        let vocab = check.at_most("vocab", vocab, MOST_BLOCKS)?;
        let arguments = vec![
            Argument::update(logits),
            Argument::read(targets),
            Argument::write(losses),
            Argument::U32(rows),
            Argument::U32(vocab),
            Argument::f32(grad_scale),
        ];
        Ok(Launch { kernel: &CROSS_ENTROPY, problem: Problem::from([rows, vocab]), arguments })
    }
}
