//! The output of attention over a cache from its runs.

use super::cache::CacheShape;
use super::decode::by_runs;
use crate::checks::Check;
use crate::geometry::linear;
use crate::params::{pointer, u32};
use crate::{Argument, Kernel, KernelError, Launch, Problem, View};

/// Kernel of [`CacheAttentionSum`].
pub static CACHE_ATTENTION_SUM: Kernel = Kernel {
    name: "decode_attention_combine",
    image: "decode_attention",
    parameters: &[
        pointer("partials"),
        pointer("stats"),
        pointer("out"),
        pointer("position"),
        u32("capacity"),
        u32("head_dim"),
        u32("run"),
        u32("runs"),
    ],
    entries: &["decode_attention_combine"],
    dispatch: |problem, _| linear("decode_attention_combine", problem.sizes[0], 128),
};

/// The output of attention from the runs of [`CacheAttention`](crate::ops::CacheAttention), which are
/// added in order.
#[derive(Clone, Copy, Debug)]
pub struct CacheAttentionSum<B> {
    /// `[heads, runs, head_dim]`, read.
    pub partials: View<B, f32>,
    /// `[heads, runs, 2]`, read.
    pub stats: View<B, f32>,
    /// `[heads, head_dim]`, written.
    pub out: View<B, f32>,
    /// The position of the token, one element, read.
    pub position: View<B, u32>,
    /// The sizes.
    pub shape: CacheShape,
}

impl<B: Copy> CacheAttentionSum<B> {
    /// Checks the operands and describes the launch.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { partials, stats, out, position, shape } = self;
        let check = Check(CACHE_ATTENTION_SUM.name);
        check.length("out", out, check.product("out", &[shape.heads, shape.head_dim])?)?;
        let [heads, runs] = by_runs(check, shape, (partials, stats, position))?;
        let mut arguments = vec![
            Argument::read(partials),
            Argument::read(stats),
            Argument::write(out),
            Argument::read(position),
        ];
        for (what, size) in [
            ("the length", shape.length),
            ("head_dim", shape.head_dim),
            ("the positions of a run", shape.run()),
        ] {
            arguments.push(Argument::U32(check.size(what, size)?));
        }
        arguments.push(Argument::U32(runs));
        Ok(Launch { kernel: &CACHE_ATTENTION_SUM, problem: Problem::from([heads]), arguments })
    }
}
