//! Embedding: rows of a table by token, and the gradient of the table.

pub mod reference;

use crate::checks::Check;
use crate::geometry::{MOST_BLOCKS, linear, row_threads};
use crate::params::{pointer, u32};
use crate::tensor::Stored;
use crate::{Argument, Dispatch, Kernel, KernelError, Launch, Parameter, Problem, SmTarget, View};

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
    dispatch: |problem, target| dispatch("embedding", problem, target),
};

/// Kernel of [`Embedding`] with a table in bf16.
pub static EMBEDDING_BF16: Kernel = Kernel {
    name: "embedding_bf16",
    image: "embedding",
    parameters: PARAMETERS,
    entries: &["embedding_bf16"],
    dispatch: |problem, target| dispatch("embedding_bf16", problem, target),
};

/// Kernel of [`EmbeddingBackward`].
pub static EMBEDDING_BACKWARD: Kernel = Kernel {
    name: "embedding_backward",
    image: "embedding_backward",
    parameters: PARAMETERS,
    entries: &["embedding_backward"],
    dispatch: |problem, target| dispatch("embedding_backward", problem, target),
};

/// A block for each position and each run of columns that its threads hold, four per thread.
fn dispatch(entry: &'static str, problem: &Problem, _: SmTarget) -> Dispatch {
    let [positions, hidden, ..] = problem.sizes;
    let threads = row_threads(hidden);
    let columns = hidden.div_ceil(4).div_ceil(threads);
    Dispatch { grid: [positions, columns, 1], ..linear(entry, positions, threads) }
}

/// The largest width: the y extent of a grid times the columns of a block.
const MOST_HIDDEN: usize = 65_535 * 1024;

/// `out[t] = table[tokens[t]]`. A token that is not in the table gives a row of NaN and touches
/// nothing outside it. A table in bf16 gives the same numbers as f32.
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

impl<B: Copy, W: Copy + Into<Stored<B>>> Embedding<B, W> {
    /// The launch.
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
            Stored::F32(table) => (&EMBEDDING, Argument::read(table)),
            Stored::Bf16(table) => (&EMBEDDING_BF16, Argument::read(table)),
            Stored::Nf4(_) => {
                let (kernel, compute, stored) = (EMBEDDING.name, "f32", table.name());
                let way_out = "store the table as f32 or bf16";
                return Err(KernelError::Storage { kernel, compute, stored, way_out });
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
        let problem = Problem::from([positions, hidden, vocab]);
        Ok(Launch { kernel, problem, arguments })
    }
}

/// `grad_table[v] += Σ_{t: tokens[t] = v} grad_out[t]`, positions in order.
///
/// The cost depends on the number of positions, not on the vocabulary: the first position of a
/// token owns its row and sums for all of them. Rows without a position are not touched, and
/// tokens that are not in the table are left out. Deterministic: one thread writes each element.
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
    /// The launch.
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
        let problem = Problem::from([positions, hidden, vocab]);
        Ok(Launch { kernel: &EMBEDDING_BACKWARD, problem, arguments })
    }
}

/// Positions, hidden and vocabulary as kernel parameters.
fn sizes(check: Check, [positions, hidden, vocab]: [usize; 3]) -> Result<[u32; 3], KernelError> {
    Ok([
        check.at_most("the number of positions", positions, MOST_BLOCKS)?,
        check.at_most("hidden", hidden, MOST_HIDDEN)?,
        check.size("vocab", vocab)?,
    ])
}

/// The kernels of this family.
pub(crate) static KERNELS: &[&Kernel] = &[&EMBEDDING, &EMBEDDING_BACKWARD, &EMBEDDING_BF16];
