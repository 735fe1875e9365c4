//! Rotary position embedding, both ways.

use super::geometry::linear;
use super::{pointer, u32};
use crate::checks::Check;
use crate::{Argument, Kernel, KernelError, Launch, Problem, View};

/// Kernel of [`Rope`].
pub static ROPE: Kernel = Kernel {
    name: "rope",
    image: "rope",
    parameters: &[
        pointer("x"),
        pointer("cos"),
        pointer("sin"),
        pointer("out"),
        pointer("start"),
        u32("pairs"),
        u32("half"),
        u32("heads"),
        u32("seq"),
        u32("positions"),
        u32("inverse"),
    ],
    entries: &["rope"],
    dispatch: |problem, _| linear("rope", problem.sizes[0].div_ceil(BLOCK_THREADS), BLOCK_THREADS),
};

/// Threads of a block, one for each pair of elements.
const BLOCK_THREADS: u32 = 128;

/// Turns element i and element i + head_dim ÷ 2 of every head by the angle of its position:
/// `out[i] = x[i]·cos − x[i + half]·sin`, `out[i + half] = x[i + half]·cos + x[i]·sin`, with the
/// halves split as Qwen2 does it.
///
/// The inverse turns by the negated angle. It is the gradient, since a rotation is orthogonal.
/// There are at most 2³² − 1 pairs.
#[derive(Clone, Copy, Debug)]
pub struct Rope<B> {
    /// `[batch, seq, heads, head_dim]`, read.
    pub x: View<B, f32>,
    /// `[positions, head_dim ÷ 2]`, read; see [`rope_tables`].
    pub cos: View<B, f32>,
    /// `[positions, head_dim ÷ 2]`, read.
    pub sin: View<B, f32>,
    /// `[batch, seq, heads, head_dim]`, written.
    pub out: View<B, f32>,
    /// The position of the first token of each sequence, one element, read; 0 without it. Positions
    /// that the tables lack take their last row.
    pub start: Option<View<B, u32>>,
    /// Positions that the tables have.
    pub positions: usize,
    /// Sequences.
    pub batch: usize,
    /// Tokens per sequence.
    pub seq: usize,
    /// Heads of x.
    pub heads: usize,
    /// Elements per head, even.
    pub head_dim: usize,
    /// Whether to turn back.
    pub inverse: bool,
}

impl<B: Copy> Rope<B> {
    /// Checks the operands and describes the launch.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { x, cos, sin, out, start, positions, .. } = self;
        let Self { batch, seq, heads, head_dim, inverse, .. } = self;
        let check = Check(ROPE.name);
        let half = head_dim / 2;
        check.rule(head_dim % 2 == 0, "head_dim must be even", (head_dim, half))?;
        let elements = check.product("elements", &[batch, seq, heads, head_dim])?;
        check.length("x", x, elements)?;
        check.length("out", out, elements)?;
        let enough = positions >= if start.is_none() { seq } else { 1 };
        check.rule(enough, "the tables have a row for each position", (positions, seq))?;
        let angles = check.product("positions × pairs", &[positions, half])?;
        check.length("cos", cos, angles)?;
        check.length("sin", sin, angles)?;
        check.size("positions × pairs", angles)?;
        if let Some(start) = start {
            check.length("start", start, 1)?;
        }
        let pairs = check.size("the number of pairs", elements / 2)?;
        let mut arguments =
            vec![Argument::read(x), Argument::read(cos), Argument::read(sin), Argument::write(out)];
        arguments.push(start.map_or(Argument::Null, Argument::read));
        arguments.push(Argument::U32(pairs));
        for (what, size) in [
            ("head_dim ÷ 2", half),
            ("heads", heads),
            ("seq", seq),
            ("the number of positions", positions),
        ] {
            arguments.push(Argument::U32(check.size(what, size)?));
        }
        arguments.push(Argument::U32(u32::from(inverse)));
        Ok(Launch { kernel: &ROPE, problem: Problem::from([pairs]), arguments })
    }
}

/// Cosines and sines of `position · theta^(−2i ÷ head_dim)`, each `[seq, head_dim ÷ 2]`, computed
/// in f64 and rounded once.
pub fn rope_tables(seq: usize, head_dim: usize, theta: f64) -> (Vec<f32>, Vec<f32>) {
    rope_tables_of(seq, &rope_frequencies(head_dim, theta))
}

/// The frequencies `theta^(−2i ÷ head_dim)`, in radians per position, of the `head_dim ÷ 2` pairs.
pub fn rope_frequencies(head_dim: usize, theta: f64) -> Vec<f64> {
    let frequency = |pair: usize| theta.powf(-2.0 * pair as f64 / head_dim as f64);
    (0..head_dim / 2).map(frequency).collect()
}

/// As [`rope_tables`], for frequencies that are given, one for each pair.
pub fn rope_tables_of(seq: usize, frequencies: &[f64]) -> (Vec<f32>, Vec<f32>) {
    let half = frequencies.len();
    let angle = |index: usize| (index / half) as f64 * frequencies[index % half];
    let angles = (0..seq * half).map(angle);
    angles.map(|angle| (angle.cos() as f32, angle.sin() as f32)).unzip()
}
