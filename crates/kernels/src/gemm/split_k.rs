//! Matrix products whose contraction is cut into equal parts, and the sum of the parts.
//!
//! A product with a long contraction and a small result has too few tiles to fill a device. Cut
//! into parts, which are planes of one launch, it has as many times more; a second launch adds the
//! planes in ascending order. The number of parts depends on the sizes alone, and so do the bits of
//! the result: [`GemmShape::fprop_parts`] and [`GemmShape::dgrad_parts`] say when it is worth it.

use super::linear::{DGRAD, FORWARD, FPROP, GemmShape, INPUT_GRADIENT};
use crate::checks::Check;
use crate::gemm::config::{SINGLE, STREAM, STREAM_NF4, TENSOR};
use crate::gemm::heuristic::{self as tiles, Layout, Tile};
use crate::gemm::launch::{Product, Sizes, Strides};
use crate::geometry::streaming;
use crate::params::{pointer, u32};
use crate::tensor::{Compute, NF4_BLOCK, Stored, Written};
use crate::{Argument, Kernel, KernelError, Launch, Problem, View};

/// Kernel of [`PartsSum`].
pub static PARTS_SUM: Kernel = Kernel {
    name: "split_k_sum",
    image: "split_k_sum",
    parameters: &[pointer("partials"), pointer("out"), pointer("out_bf16"), u32("parts"), u32("n")],
    entries: &["split_k_sum"],
    dispatch: |problem, _| streaming("split_k_sum", problem),
};

/// How a product is computed, as far as the number of its parts depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// What factors are rounded to.
    pub compute: Compute,
    /// Whether the operand beside the weights is given in bf16.
    pub rounded: bool,
    /// Whether the weights are in NF4.
    pub nf4: bool,
    /// How many products of the same sizes run at the same time; see [`Launch::beside`].
    pub beside: u32,
}

impl Manner {
    /// What a part is a multiple of: 8 where w can be in bf16 or NF4, which are read in eights, and
    /// whole blocks where codes stream.
    fn unit(self) -> u32 {
        if self.rounded && self.nf4 { NF4_BLOCK as u32 } else { 8 }
    }

    /// The tiles of products.
    fn tiles(self) -> &'static [Tile] {
        match (self.compute, self.rounded, self.nf4) {
            (Compute::F32, ..) => &SINGLE,
            (Compute::Bf16, false, _) => &TENSOR,
            (Compute::Bf16, true, false) => &STREAM,
            (Compute::Bf16, true, true) => &STREAM_NF4,
        }
    }

    /// Parts for a result of so many rows and columns, and a contraction of that length.
    fn parts(self, sizes: [usize; 3]) -> usize {
        tiles::parts((self.tiles(), self.unit()), sizes, self.beside)
    }
}

impl GemmShape {
    /// Parts into which y = x·wᵀ is best cut; 1 where it is best left whole.
    pub fn fprop_parts(self, manner: Manner) -> usize {
        manner.parts([self.rows, self.outputs, self.inputs])
    }

    /// Parts into which dx = dy·w is best cut; 1 where it is best left whole.
    pub fn dgrad_parts(self, manner: Manner) -> usize {
        manner.parts([self.rows, self.inputs, self.outputs])
    }
}

/// The parts of y = x·wᵀ: `partials[p] = x[:, part p] · w[:, part p]ᵀ`, parts × rows × outputs.
#[derive(Clone, Copy, Debug)]
pub struct FpropParts<B, W = View<B, f32>, X = View<B, f32>> {
    /// rows × inputs; in bf16 only where w is in bf16 or NF4.
    pub x: X,
    /// outputs × inputs.
    pub w: W,
    /// parts × rows × outputs, written.
    pub partials: View<B, f32>,
    /// The sizes of the whole product.
    pub shape: GemmShape,
    /// Number of parts, a divisor of `inputs`.
    pub parts: usize,
}

impl<B: Copy, W: Into<Stored<B>>, X: Into<Stored<B>>> FpropParts<B, W, X> {
    /// Checks the operands and describes the launch of products in f32.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        self.launch_in(Compute::F32)
    }

    /// Checks the operands and describes the launch of products in `compute`.
    pub fn launch_in(self, compute: Compute) -> Result<Launch<B>, KernelError> {
        let Self { x, w, partials, shape, parts } = self;
        let (x, w) = (x.into(), w.into());
        let GemmShape { rows, inputs, outputs } = shape;
        let check = Check(FPROP.name);
        let length = part_length(check, inputs, parts)?;
        check.elements("x", x.len(), check.product("rows × inputs", &[rows, inputs])?)?;
        check.elements("w", w.len(), check.product("outputs × inputs", &[outputs, inputs])?)?;
        let elements = check.product("parts × rows × outputs", &[parts, rows, outputs])?;
        check.length("partials", partials, elements)?;
        let along = |leading| Strides { leading, batch: length, ..Strides::default() };
        Product {
            family: FORWARD,
            compute,
            layout: Layout::Nt,
            a: (x, along(inputs)),
            b: (w, along(inputs)),
            c: (partials.into(), planes(rows, outputs)),
            bias: None,
            sizes: batched(parts, [rows, outputs, length]),
            alpha: 1.0,
            accumulate: false,
        }
        .launch()
    }
}

/// The parts of dx = dy·w: `partials[p] = dy[:, part p] · w[part p, :]`, parts × rows × inputs.
#[derive(Clone, Copy, Debug)]
pub struct DgradParts<B, W = View<B, f32>, Y = View<B, f32>> {
    /// dy, rows × outputs; in bf16 only where w is in bf16 or NF4.
    pub grad_out: Y,
    /// outputs × inputs.
    pub w: W,
    /// parts × rows × inputs, written.
    pub partials: View<B, f32>,
    /// The sizes of the whole product.
    pub shape: GemmShape,
    /// Number of parts, a divisor of `outputs`.
    pub parts: usize,
}

impl<B: Copy, W: Into<Stored<B>>, Y: Into<Stored<B>>> DgradParts<B, W, Y> {
    /// Checks the operands and describes the launch of products in f32.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        self.launch_in(Compute::F32)
    }

    /// Checks the operands and describes the launch of products in `compute`.
    pub fn launch_in(self, compute: Compute) -> Result<Launch<B>, KernelError> {
        let Self { grad_out, w, partials, shape, parts } = self;
        let (grad_out, w) = (grad_out.into(), w.into());
        let GemmShape { rows, inputs, outputs } = shape;
        let check = Check(DGRAD.name);
        let length = part_length(check, outputs, parts)?;
        let elements = check.product("rows × outputs", &[rows, outputs])?;
        check.elements("grad_out", grad_out.len(), elements)?;
        check.elements("w", w.len(), check.product("outputs × inputs", &[outputs, inputs])?)?;
        let elements = check.product("parts × rows × inputs", &[parts, rows, inputs])?;
        check.length("partials", partials, elements)?;
        let down = check.product("a part of w", &[length, inputs])?;
        Product {
            family: INPUT_GRADIENT,
            compute,
            layout: Layout::Nn,
            a: (grad_out, Strides { leading: outputs, batch: length, ..Strides::default() }),
            b: (w, Strides { leading: inputs, batch: down, ..Strides::default() }),
            c: (partials.into(), planes(rows, inputs)),
            bias: None,
            sizes: batched(parts, [rows, inputs, length]),
            alpha: 1.0,
            accumulate: false,
        }
        .launch()
    }
}

/// Length of one part of a contraction of `k`.
fn part_length(check: Check, k: usize, parts: usize) -> Result<usize, KernelError> {
    let divides = parts > 0 && k.is_multiple_of(parts);
    check.rule(divides, "the number of parts divides the contraction", (parts, k))?;
    Ok(k / parts)
}

/// Results that follow one another.
fn planes(rows: usize, columns: usize) -> Strides {
    Strides { leading: columns, batch: rows * columns, ..Strides::default() }
}

/// The sizes of `parts` products of the same sizes.
fn batched(parts: usize, [m, n, k]: [usize; 3]) -> Sizes {
    Sizes { m, n, k, batches: parts, heads: 1, b_group: 1, reduce: 1 }
}

/// `out[i] = Σ_p partials[p, i]`, in ascending order of p.
#[derive(Clone, Copy, Debug)]
pub struct PartsSum<B, O = View<B, f32>> {
    /// parts × the length of `out`, read.
    pub partials: View<B, f32>,
    /// Written: as f32, as bf16, or both.
    pub out: O,
    /// Number of parts, at least 1.
    pub parts: usize,
}

impl<B: Copy, O: Into<Written<B>>> PartsSum<B, O> {
    /// Checks the operands and describes the launch.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { partials, out, parts } = self;
        let (check, out) = (Check(PARTS_SUM.name), out.into());
        check.rule(parts > 0, "there is a part", (parts, 1))?;
        let len = partials.len() / parts;
        check.length("partials", partials, check.product("parts × n", &[parts, len])?)?;
        out.check(check, "out", len)?;
        let n = check.size("the number of elements", len)?;
        let [out, rounded] = out.arguments();
        let parts = check.size("the number of parts", parts)?;
        let arguments =
            [Argument::read(partials), out, rounded, Argument::U32(parts), Argument::U32(n)];
        Ok(Launch { kernel: &PARTS_SUM, problem: Problem::from([n]), arguments: arguments.into() })
    }
}
