//! Embedding lookup and the gradient of the table.
//!
//! Definition: `torch.nn.functional.embedding` of PyTorch times a scale,
//! `out[t] = scale · table[tokens[t]]`. Its gradient adds row t of `grad_out`, times the scale, to
//! row `tokens[t]` of `grad_table`.
//!
//! Tokens are `[positions]` in u32, the table is `[vocab, hidden]` in f32 or bf16, and outputs and
//! gradients are `[positions, hidden]` in f32. Rows may have any width and alignment.
//!
//! **Errors.** A launch fails if a length does not match, if there are 2³¹ positions or more, or if
//! a row has more than 65 535 · 1024 elements. Tokens are checked on the device: a token that is
//! not in the table gives NaN in the lookup, and adds nothing to the gradient.
//!
//! **Determinism.** One thread writes each element, and adds positions in ascending order.

pub mod reference;

use retrograph_kernel_abi::embedding as abi;

use crate::checks::Check;
use crate::geometry::{MAX_GRID_X, MAX_GRID_YZ, linear, row_threads};
use crate::launch::{ArgumentTypes, Pointer};
use crate::{DType, Dispatch, Kernel, KernelError, Launch, Problem, TensorView, View};

/// Kernel of [`Embedding`].
pub static EMBEDDING: Kernel = Kernel::new("embedding", &abi::EMBEDDING, |problem, _| {
    dispatch(abi::EMBEDDING.entry(), problem)
});

/// Kernel of [`Embedding`] with a table in bf16.
pub static EMBEDDING_BF16: Kernel =
    Kernel::new("embedding_bf16", &abi::EMBEDDING_BF16, |problem, _| {
        dispatch(abi::EMBEDDING_BF16.entry(), problem)
    });

/// Kernel of [`EmbeddingBackward`].
pub static EMBEDDING_BACKWARD: Kernel =
    Kernel::new("embedding_backward", &abi::EMBEDDING_BACKWARD, |problem, _| {
        dispatch(abi::EMBEDDING_BACKWARD.entry(), problem)
    });

/// One block per position and column tile, four columns per thread.
fn dispatch(entry: &'static str, problem: &Problem) -> Option<Dispatch> {
    let Problem::Embedding { positions, hidden } = *problem else { return None };
    let threads = row_threads(hidden);
    let columns = hidden.div_ceil(4).div_ceil(threads);
    Some(Dispatch { grid: [positions, columns, 1], ..linear(entry, positions, threads) })
}

/// The widest rows: the y extent of a grid times the columns of a block.
const MAX_HIDDEN: usize = MAX_GRID_YZ * 1024;

/// `out[t] = scale · table[tokens[t]]`. A token that is not in the table gives a row of NaN.
#[derive(Clone, Copy, Debug)]
pub struct Embedding<B, W = View<B, f32>> {
    /// `[positions]`, read.
    pub tokens: View<B, u32>,
    /// `[vocab, hidden]`, read: f32 or bf16.
    pub table: W,
    /// `[positions, hidden]`, written.
    pub out: View<B, f32>,
    /// Elements in a row.
    pub hidden: usize,
    /// Rows of the table.
    pub vocab: usize,
    /// Scale of the rows; 1 for none.
    pub scale: f32,
}

impl<B: Copy, W: Copy + Into<TensorView<B>>> Embedding<B, W> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If the table is NF4, a length does not match, or a size exceeds the limit of the kernel.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let check = Check(EMBEDDING.name);
        let [positions, hidden, vocab] =
            sizes(check, [self.tokens.len(), self.hidden, self.vocab])?;
        let out = check.product("positions × hidden", &[self.tokens.len(), self.hidden])?;
        let elements = check.product("vocab × hidden", &[self.vocab, self.hidden])?;
        let table = self.table.into();
        check.elements("table", table.len(), elements)?;
        check.length("out", self.out, out)?;
        check_scale(check, self.scale)?;
        let kernel = match table {
            TensorView::F32(_) => &EMBEDDING,
            TensorView::Bf16(_) => &EMBEDDING_BF16,
            TensorView::Nf4(_) | TensorView::Split(_) => {
                let (kernel, compute, dtype) = (EMBEDDING.name, DType::F32, table.dtype());
                let help = "store the table as f32 or bf16";
                return Err(KernelError::UnsupportedDType { kernel, compute, dtype, help });
            }
        };
        let parameters = abi::EmbeddingParameters::<ArgumentTypes<B>> {
            tokens: Pointer::read(self.tokens),
            table: table.pointer(),
            out: Pointer::write(self.out),
            positions,
            hidden,
            vocab,
            scale: self.scale,
        };
        let problem = Problem::Embedding { positions, hidden };
        Ok(Launch { kernel, problem, arguments: parameters.into_arguments() })
    }
}

/// `grad_table[v] += scale · Σ_{t: tokens[t] = v} grad_out[t]`, positions in order.
///
/// The block of a token's first position sums all its positions, so the cost depends on the number
/// of positions and not on the vocabulary. Rows without a position are not accessed. Tokens that
/// are not in the table are skipped. Deterministic: one thread writes each element.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddingBackward<B> {
    /// `[positions]`, read.
    pub tokens: View<B, u32>,
    /// `[positions, hidden]`, read.
    pub grad_out: View<B, f32>,
    /// `[vocab, hidden]`, added to.
    pub grad_table: View<B, f32>,
    /// Elements in a row.
    pub hidden: usize,
    /// Rows of the table.
    pub vocab: usize,
    /// Scale of the rows; 1 for none.
    pub scale: f32,
}

impl<B: Copy> EmbeddingBackward<B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a length does not match, or a size exceeds the limit of the kernel.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let check = Check(EMBEDDING_BACKWARD.name);
        let [positions, hidden, vocab] =
            sizes(check, [self.tokens.len(), self.hidden, self.vocab])?;
        let out = check.product("positions × hidden", &[self.tokens.len(), self.hidden])?;
        let table = check.product("vocab × hidden", &[self.vocab, self.hidden])?;
        check.length("grad_out", self.grad_out, out)?;
        check.length("grad_table", self.grad_table, table)?;
        check_scale(check, self.scale)?;
        let parameters = abi::EmbeddingBackwardParameters::<ArgumentTypes<B>> {
            tokens: Pointer::read(self.tokens),
            grad_out: Pointer::read(self.grad_out),
            grad_table: Pointer::update(self.grad_table),
            positions,
            hidden,
            vocab,
            scale: self.scale,
        };
        let arguments = parameters.into_arguments();
        let problem = Problem::Embedding { positions, hidden };
        Ok(Launch { kernel: &EMBEDDING_BACKWARD, problem, arguments })
    }
}

fn check_scale(check: Check, scale: f32) -> Result<(), KernelError> {
    check.constant("scale", scale, scale.is_finite(), "finite")
}

/// Returns positions, hidden and vocabulary as kernel parameters.
fn sizes(check: Check, [positions, hidden, vocab]: [usize; 3]) -> Result<[u32; 3], KernelError> {
    Ok([
        check.at_most("the number of positions", positions, MAX_GRID_X)?,
        check.at_most("hidden", hidden, MAX_HIDDEN)?,
        check.size("vocab", vocab)?,
    ])
}

/// The kernels of this family.
pub(crate) static KERNELS: &[&Kernel] = &[&EMBEDDING, &EMBEDDING_BACKWARD, &EMBEDDING_BF16];
