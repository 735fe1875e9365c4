//! Rotary position embedding (RoPE) and its inverse, of one tensor or of two at once.
//!
//! Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021, with
//! the pairing of Hugging Face Transformers (`rotate_half`).
//!
//! Tensors are `[batch, seq, heads, head_dim]` in f32; results are f32, bf16 or both. Tables of
//! cosines and sines are `[positions, head_dim ÷ 2]` in f32, made by [`rope_tables`].
//!
//! **Errors.** A launch fails if a length does not match, if head_dim is odd, if there is not one
//! tensor or two, or if the tables have too few rows.
//!
//! **Determinism.** One thread computes each pair of elements from the same pair of the input.

pub mod reference;

use retrograph_kernel_abi::rope as abi;

use crate::checks::Check;
use crate::geometry::linear;
use crate::launch::{ArgumentTypes, Pointer};
use crate::{Kernel, KernelError, Launch, Output, Problem, View};

/// Kernel of [`Rope`].
pub static ROPE: Kernel = Kernel::new("rope", &abi::ROPE, |problem, _| {
    let blocks = problem.items()?.div_ceil(abi::THREADS);
    Some(linear(abi::ROPE.entry(), blocks, abi::THREADS))
});

/// Rotates elements i and i + half of every head by the angle of its position, with
/// half = head_dim ÷ 2: `out[i] = x[i]·cos − x[i + half]·sin` and
/// `out[i + half] = x[i + half]·cos + x[i]·sin`.
///
/// The inverse rotates by the negated angle. It is the gradient, since a rotation is orthogonal.
/// The tensors have fewer than 2³² pairs in total.
#[derive(Clone, Copy, Debug)]
pub struct Rope<'a, B> {
    /// One tensor or two.
    pub tensors: &'a [RopeTensor<B>],
    /// `[positions, head_dim ÷ 2]`, read; see [`rope_tables`].
    pub cos: View<B, f32>,
    /// `[positions, head_dim ÷ 2]`, read.
    pub sin: View<B, f32>,
    /// The positions of the tokens. Positions past the tables take the last row.
    pub token_positions: TokenPositions<B>,
    /// Rows of the tables.
    pub positions: usize,
    /// Sequences.
    pub batch: usize,
    /// Tokens per sequence.
    pub seq: usize,
    /// Elements per head, even.
    pub head_dim: usize,
    /// Whether to rotate back, which is the gradient.
    pub inverse: bool,
}

/// The positions of the tokens of [`Rope`].
#[derive(Clone, Copy, Debug)]
pub enum TokenPositions<B> {
    /// All 0: the first row of the tables for every token.
    Zero,
    /// Consecutive from 0 in each sequence.
    FromZero,
    /// Consecutive in each sequence, from a start position: `[1]`, read.
    From(View<B, u32>),
    /// `[batch, seq]`, read: the position of each token.
    Each(View<B, u32>),
}

/// A tensor that [`Rope`] rotates.
#[derive(Clone, Copy, Debug)]
pub struct RopeTensor<B> {
    /// `[batch, seq, heads, head_dim]`, read.
    pub x: View<B, f32>,
    /// `[batch, seq, heads, head_dim]`, written: f32, bf16, or both.
    pub out: Output<B>,
    /// Heads of x.
    pub heads: usize,
}

impl<B: Copy> Rope<'_, B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If `head_dim` is odd, there is not one tensor or two, a length does not match, or the tables
    /// have fewer rows than positions.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { tensors, cos, sin, token_positions, positions, seq, head_dim, .. } = self;
        let check = Check(ROPE.name);
        let (half, given) = (head_dim / 2, tensors.len());
        check.rule(head_dim % 2 == 0, "head_dim must be even", head_dim)?;
        check.rule((1..=2).contains(&given), "rope takes one or two tensors", given)?;
        for tensor in tensors {
            self.check_tensor(check, tensor)?;
        }
        let tokens = check.product("batch × seq", &[self.batch, seq])?;
        let (start, token_positions, needed) = match token_positions {
            TokenPositions::Zero => (None, None, 1),
            TokenPositions::FromZero => (None, None, seq),
            TokenPositions::From(start) => (Some(start), None, 1),
            TokenPositions::Each(positions) => (None, Some(positions), 1),
        };
        let enough = positions >= needed;
        check.rule(enough, "the tables must have a row for each position", [positions, needed])?;
        let angles = check.product("positions × pairs", &[positions, half])?;
        check.length("cos", cos, angles)?;
        check.length("sin", sin, angles)?;
        if let Some(start) = start {
            check.length("start", start, 1)?;
        }
        if let Some(token_positions) = token_positions {
            check.length("token_positions", token_positions, tokens)?;
        }
        // Positions past the end of the tables use the last row.
        let zero = matches!(self.token_positions, TokenPositions::Zero);
        let rows = if zero { 1 } else { positions };
        // A vector has at least one pair, so the number of vectors fits as well.
        let heads = tensors.iter().map(|tensor| tensor.heads).fold(0, usize::saturating_add);
        check.size("the number of pairs", check.product("pairs", &[tokens, heads, half])?)?;
        let vec4s = |heads: usize| (tokens * heads * half.div_ceil(4)) as u32;
        let (first, second) = (tensors[0], tensors.get(1));
        let (out, out_bf16) = first.out.pointers();
        let out_2 = second.map(|tensor| tensor.out.pointers());
        let (out_2, out_2_bf16) = out_2.unwrap_or((Pointer::null(), Pointer::null()));
        let parameters = abi::RopeParameters::<ArgumentTypes<B>> {
            x: Pointer::read(first.x),
            out,
            out_bf16,
            heads: check.size("heads", first.heads)?,
            x_2: Pointer::read_optional(second.map(|tensor| tensor.x)),
            out_2,
            out_2_bf16,
            heads_2: check.size("heads", second.map_or(0, |tensor| tensor.heads))?,
            cos: Pointer::read(cos),
            sin: Pointer::read(sin),
            start: Pointer::read_optional(start),
            token_positions: Pointer::read_optional(token_positions),
            vec4s_of_first: vec4s(first.heads),
            vec4s: vec4s(heads),
            half: check.size("head_dim ÷ 2", half)?,
            seq: check.size("seq", seq)?,
            positions: check.size("the number of positions", rows)?,
            inverse: self.inverse,
        };
        let arguments = parameters.into_arguments();
        Ok(Launch { kernel: &ROPE, problem: Problem::Items(vec4s(heads)), arguments })
    }

    /// Checks the lengths of one tensor.
    fn check_tensor(&self, check: Check, tensor: &RopeTensor<B>) -> Result<(), KernelError> {
        let RopeTensor { x, out, heads } = *tensor;
        let sizes = [self.batch, self.seq, heads, self.head_dim];
        let elements = check.product("elements", &sizes)?;
        check.length("x", x, elements)?;
        out.check(check, "out", elements)
    }
}

/// Returns the cosines and sines of `position · theta^(−2i ÷ head_dim)`, each
/// `[seq, head_dim ÷ 2]`, computed in f64 and rounded once.
pub fn rope_tables(seq: usize, head_dim: usize, theta: f64) -> (Vec<f32>, Vec<f32>) {
    rope_tables_from(seq, &rope_frequencies(head_dim, theta))
}

/// Returns the frequencies `theta^(−2i ÷ head_dim)` of the `head_dim ÷ 2` pairs, in radians per
/// position.
pub fn rope_frequencies(head_dim: usize, theta: f64) -> Vec<f64> {
    let frequency = |pair: usize| theta.powf(-2.0 * pair as f64 / head_dim as f64);
    (0..head_dim / 2).map(frequency).collect()
}

/// [`rope_tables`] for given frequencies, one per pair.
pub fn rope_tables_from(seq: usize, frequencies: &[f64]) -> (Vec<f32>, Vec<f32>) {
    rope_tables_scaled(seq, frequencies, 1.0)
}

/// [`rope_tables_from`] with all values multiplied by `amplitude`, which scales queries and keys.
pub fn rope_tables_scaled(seq: usize, frequencies: &[f64], amplitude: f64) -> (Vec<f32>, Vec<f32>) {
    let half = frequencies.len();
    let angle = |index: usize| (index / half) as f64 * frequencies[index % half];
    let angles = (0..seq * half).map(angle);
    let value = |angle: f64| ((amplitude * angle.cos()) as f32, (amplitude * angle.sin()) as f32);
    angles.map(value).unzip()
}

/// The kernels of this family.
pub(crate) static KERNELS: &[&Kernel] = &[&ROPE];
