//! Embedding lookup and the gradient of the table.

pub mod reference;

use crate::checks::Check;
use crate::geometry::{MAX_GRID_X, MAX_GRID_YZ, linear, row_threads};
use crate::params::{pointer, u32};
use crate::{
    Argument, DType, Dispatch, Kernel, KernelError, Launch, Parameter, Problem, TensorView, View,
};

static PARAMETERS: &[Parameter] = &[
    pointer("tokens"),
    pointer("source"),
    pointer("target"),
    u32("positions"),
    u32("hidden"),
    u32("vocab"),
];

/// Kernel of [`Embedding`].
pub static EMBEDDING: Kernel = Kernel {
    name: "embedding",
    image: "embedding",
    parameters: PARAMETERS,
    entries: &["embedding"],
    dispatch: |problem, _| dispatch("embedding", problem),
};

/// Kernel of [`Embedding`] with a table in bf16.
pub static EMBEDDING_BF16: Kernel = Kernel {
    name: "embedding_bf16",
    image: "embedding",
    parameters: PARAMETERS,
    entries: &["embedding_bf16"],
    dispatch: |problem, _| dispatch("embedding_bf16", problem),
};

/// Kernel of [`EmbeddingBackward`].
pub static EMBEDDING_BACKWARD: Kernel = Kernel {
    name: "embedding_backward",
    image: "embedding_backward",
    parameters: PARAMETERS,
    entries: &["embedding_backward"],
    dispatch: |problem, _| dispatch("embedding_backward", problem),
};

/// One block per position and run of columns, four columns per thread.
fn dispatch(entry: &'static str, problem: &Problem) -> Option<Dispatch> {
    let Problem::Embedding { positions, hidden } = *problem else { return None };
    let threads = row_threads(hidden);
    let columns = hidden.div_ceil(4).div_ceil(threads);
    Some(Dispatch { grid: [positions, columns, 1], ..linear(entry, positions, threads) })
}

/// The widest rows: the y extent of a grid times the columns of a block.
const MAX_HIDDEN: usize = MAX_GRID_YZ * 1024;

/// `out[t] = table[tokens[t]]`. A token that is not in the table gives a row of NaN.
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
}

impl<B: Copy, W: Copy + Into<TensorView<B>>> Embedding<B, W> {
    /// Checks the operands and describes the launch.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let check = Check(EMBEDDING.name);
        let [positions, hidden, vocab] =
            sizes(check, [self.tokens.len(), self.hidden, self.vocab])?;
        let out = check.product("positions × hidden", &[self.tokens.len(), self.hidden])?;
        let elements = check.product("vocab × hidden", &[self.vocab, self.hidden])?;
        let table = self.table.into();
        check.elements("table", table.len(), elements)?;
        check.length("out", self.out, out)?;
        let (kernel, table) = match table {
            TensorView::F32(table) => (&EMBEDDING, Argument::read(table)),
            TensorView::Bf16(table) => (&EMBEDDING_BF16, Argument::read(table)),
            TensorView::Nf4(_) => {
                let (kernel, compute, dtype) = (EMBEDDING.name, DType::F32, DType::Nf4);
                let help = "store the table as f32 or bf16";
                return Err(KernelError::UnsupportedDType { kernel, compute, dtype, help });
            }
        };
        let arguments = vec![
            Argument::read(self.tokens),
            table,
            Argument::write(self.out),
            Argument::U32(positions),
            Argument::U32(hidden),
            Argument::U32(vocab),
        ];
        let problem = Problem::Embedding { positions, hidden };
        Ok(Launch { kernel, problem, arguments })
    }
}

/// `grad_table[v] += Σ_{t: tokens[t] = v} grad_out[t]`, positions in order.
///
/// The first position of a token sums for all positions of that token, so that the cost depends on
/// the number of positions and not on the vocabulary. Rows without a position are not accessed.
/// Tokens that are not in the table are left out. Deterministic: one thread writes each element.
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
}

impl<B: Copy> EmbeddingBackward<B> {
    /// Checks the operands and describes the launch.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let check = Check(EMBEDDING_BACKWARD.name);
        let [positions, hidden, vocab] =
            sizes(check, [self.tokens.len(), self.hidden, self.vocab])?;
        let out = check.product("positions × hidden", &[self.tokens.len(), self.hidden])?;
        let table = check.product("vocab × hidden", &[self.vocab, self.hidden])?;
        check.length("grad_out", self.grad_out, out)?;
        check.length("grad_table", self.grad_table, table)?;
        let arguments = vec![
            Argument::read(self.tokens),
            Argument::read(self.grad_out),
            Argument::update(self.grad_table),
            Argument::U32(positions),
            Argument::U32(hidden),
            Argument::U32(vocab),
        ];
        let problem = Problem::Embedding { positions, hidden };
        Ok(Launch { kernel: &EMBEDDING_BACKWARD, problem, arguments })
    }
}

/// Positions, hidden and vocabulary as kernel parameters.
fn sizes(check: Check, [positions, hidden, vocab]: [usize; 3]) -> Result<[u32; 3], KernelError> {
    Ok([
        check.at_most("the number of positions", positions, MAX_GRID_X)?,
        check.at_most("hidden", hidden, MAX_HIDDEN)?,
        check.size("vocab", vocab)?,
    ])
}

/// The kernels of this family.
pub(crate) static KERNELS: &[&Kernel] = &[&EMBEDDING, &EMBEDDING_BACKWARD, &EMBEDDING_BF16];
