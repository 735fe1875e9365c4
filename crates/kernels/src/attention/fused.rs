//! Causal attention without stored probabilities, with factors in f32 or bf16.
//!
//! [`FusedAttention`] is scores, softmax and values in one kernel; of the probabilities it leaves
//! one number for each row, from which the gradients compute them again
//! ([`FusedAttentionGradQ`](crate::ops::FusedAttentionGradQ),
//! [`FusedAttentionGradKv`](crate::ops::FusedAttentionGradKv)). Layouts are those of
//! [`AttentionScores`](crate::ops::AttentionScores).
//!
//! A NaN or infinity of a token reaches what depends on it, and may reach all tokens of its aligned
//! run of 64, where it is multiplied by zeros. In f32, an infinite factor gives NaN.

use super::unfused::{AttentionShape, Role};
use crate::checks::Check;
use crate::geometry::{MOST_BLOCKS, linear};
use crate::images::dynamic_shared;
use crate::params::{f32, pointer, u32};
use crate::tensor::{Compute, Written};
use crate::{Argument, Dispatch, Kernel, KernelError, Launch, Problem, SmTarget, View};

macro_rules! forward {
    ($($(#[$doc:meta])* $constant:ident = $name:literal in $compute:ident;)*) => { $(
        $(#[$doc])*
        pub static $constant: Kernel = Kernel {
            name: $name,
            image: $name,
            parameters: &[
                pointer("q"),
                pointer("keys"),
                pointer("values"),
                pointer("out"),
                pointer("out_bf16"),
                pointer("lse"),
                u32("seq"),
                u32("heads"),
                u32("kv_heads"),
                u32("head_dim"),
                f32("scale"),
            ],
            entries: &[concat!($name, "_hd64"), concat!($name, "_hd128")],
            dispatch: |problem, target| {
                by_head(problem, target, ($constant.entries, Compute::$compute))
            },
        };
    )* };
}

forward! {
    /// Kernel of [`FusedAttention`] with factors in bf16.
    FUSED_ATTENTION = "flash_attention_bf16" in Bf16;
    /// Kernel of [`FusedAttention`] with factors in f32.
    FUSED_ATTENTION_F32 = "flash_attention_f32" in F32;
}

/// The widest head of the first entries, and of all.
const WIDTHS: [usize; 2] = [64, 128];
/// Blocks that keep a device of 132 multiprocessors busy, which each have room for two.
const ENOUGH_BLOCKS: usize = 264;
/// The largest y extent of a grid.
const MOST_TILES: usize = 65_535;

/// The sizes of a problem are planes of heads, tokens and elements of a head. A block has a warp
/// for each 16 of its rows, and in f32 half as many where shared memory is scarce.
pub(crate) fn by_head(
    problem: &Problem,
    target: SmTarget,
    (entries, compute): (&[&'static str], Compute),
) -> Dispatch {
    let scarce = compute == Compute::F32 && target.number < 80;
    let rows = if scarce { 32 } else { 64 };
    let [planes, seq, head_dim, ..] = problem.sizes;
    let entry = entries[usize::from(head_dim as usize > WIDTHS[0])];
    let tiles = if head_dim == 0 { 0 } else { seq.div_ceil(rows) };
    let shared_bytes = dynamic_shared(entry, target);
    Dispatch { grid: [planes, tiles, 1], shared_bytes, ..linear(entry, 1, rows * 2) }
}

impl AttentionShape {
    /// Whether there is fused attention for heads of this width: multiples of 4 up to 128.
    pub fn can_be_fused(self) -> bool {
        self.head_dim.is_multiple_of(4) && self.head_dim <= WIDTHS[1]
    }

    /// Parts into which the heads of a group are best cut in
    /// [`FusedAttentionGradKv`](crate::ops::FusedAttentionGradKv), a divisor of their number: the fewest
    /// that fill a device with blocks.
    pub fn fused_parts(self) -> usize {
        let group = self.group().max(1);
        let blocks = self.batch * self.kv_heads * self.seq.div_ceil(64);
        let divisors = (1..=group).filter(|parts| group.is_multiple_of(*parts));
        divisors.clone().find(|parts| blocks * parts >= ENOUGH_BLOCKS).unwrap_or(group)
    }

    /// The sizes that kernels count, checked: batch, seq, heads, kv_heads, head_dim.
    pub(crate) fn fused_sizes(self, check: Check) -> Result<[u32; 5], KernelError> {
        let Self { batch, seq, heads, kv_heads, head_dim } = self;
        let rule = "head_dim must be a multiple of 4 and at most 128";
        check.rule(self.can_be_fused(), rule, (head_dim, WIDTHS[1]))?;
        check.at_most("tiles of 32 tokens", seq.div_ceil(32), MOST_TILES)?;
        check.at_most("batch × heads", batch * heads, MOST_BLOCKS)?;
        let sequence = check.product("elements of a sequence", &[seq, heads, head_dim])?;
        check.size("elements of a sequence", sequence)?;
        check.size("tokens × heads", check.product("tokens × heads", &[batch, seq, heads])?)?;
        let sizes = [batch, seq, heads, kv_heads, head_dim];
        let [batch, seq, heads, kv_heads, head_dim] = sizes.map(|size| check.size("a size", size));
        Ok([batch?, seq?, heads?, kv_heads?, head_dim?])
    }
}

/// Factors of scores are applied to their maximum, too.
pub(crate) fn check_scale(check: Check, scale: f32) -> Result<(), KernelError> {
    check.constant("scale", scale, (scale.is_finite() && scale > 0.0, "finite and more than 0"))
}

/// Operands are read and written 16 bytes at a time.
pub(crate) fn check_alignment<B: Copy>(
    check: Check,
    views: &[View<B, f32>],
) -> Result<(), KernelError> {
    let rule = "operands must begin at multiples of 16 bytes in their buffers";
    views.iter().try_for_each(|view| {
        let start = view.byte_range().start;
        check.rule(start.is_multiple_of(16), rule, (start, 16))
    })
}

/// `out = softmax(scale · q·kᵀ)·v` for every sequence and head, with the causal mask.
///
/// In bf16, q, k, v and the weights `exp(score − max)` are rounded, the weights' sum is not. A row
/// whose scores have a NaN or a positive infinity, or nothing but negative infinities, becomes NaN.
#[derive(Clone, Copy, Debug)]
pub struct FusedAttention<B, O = View<B, f32>> {
    /// `[batch, seq, heads, head_dim]`, read.
    pub q: View<B, f32>,
    /// `[batch, seq, kv_heads, head_dim]`, read.
    pub k: View<B, f32>,
    /// `[batch, seq, kv_heads, head_dim]`, read.
    pub v: View<B, f32>,
    /// `[batch, seq, heads, head_dim]`, written: as f32, and as bf16 beside that where asked.
    pub out: O,
    /// `[batch, heads, seq]`, written: the logarithm to base 2 of the sum of `exp(score)`.
    pub lse: View<B, f32>,
    /// The sizes.
    pub shape: AttentionShape,
    /// The factor, by custom 1/√head_dim; finite and more than 0.
    pub scale: f32,
}

impl<B: Copy, O: Into<Written<B>>> FusedAttention<B, O> {
    /// Checks the operands and describes the launch of products in f32.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        self.launch_in(Compute::F32)
    }

    /// Checks the operands and describes the launch of products in `compute`.
    pub fn launch_in(self, compute: Compute) -> Result<Launch<B>, KernelError> {
        let Self { q, k, v, out, lse, shape, scale } = self;
        let kernel = match compute {
            Compute::F32 => &FUSED_ATTENTION_F32,
            Compute::Bf16 => &FUSED_ATTENTION,
        };
        let check = Check(kernel.name);
        shape.check(check, [("q", q, Role::Query), ("k", k, Role::Key), ("v", v, Role::Key)])?;
        let out = out.into();
        out.check(check, "out", q.len())?;
        let plain = out.floats(check, "out is f32, which bf16 may be written beside")?;
        check_alignment(check, &[q, k, v, plain])?;
        if let Written::Both(_, rounded) = out {
            let start = rounded.byte_range().start;
            check.rule(
                start.is_multiple_of(8),
                "out starts at a multiple of 8 bytes",
                (start, 8),
            )?;
        }
        check_scale(check, scale)?;
        let [batch, seq, heads, kv_heads, head_dim] = shape.fused_sizes(check)?;
        check.length("lse", lse, shape.batch * shape.heads * shape.seq)?;
        let mut arguments = [q, k, v].map(Argument::read).to_vec();
        arguments.extend(out.arguments());
        arguments.push(Argument::write(lse));
        arguments.extend([seq, heads, kv_heads, head_dim].map(Argument::U32));
        arguments.push(Argument::f32(scale));
        let problem = Problem::from([batch * heads, seq, head_dim]);
        Ok(Launch { kernel, problem, arguments })
    }
}
