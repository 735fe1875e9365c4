//! The gradients of attention without stored probabilities.

use super::fused::{by_head, check_alignment, check_scale};
use super::unfused::{AttentionShape, Role};
use crate::checks::Check;
use crate::geometry::{MOST_BLOCKS, linear};
use crate::params::{f32, pointer, u32};
use crate::tensor::Compute;
use crate::{Argument, Kernel, KernelError, Launch, Problem, View};

macro_rules! rows {
    ($($(#[$doc:meta])* $constant:ident = $name:literal in $image:literal;)*) => { $(
        $(#[$doc])*
        pub static $constant: Kernel = Kernel {
            name: $name,
            image: $image,
            parameters: &[
                pointer("out"),
                pointer("grad_out"),
                pointer("lse"),
                pointer("rows"),
                u32("count"),
                u32("seq"),
                u32("heads"),
                u32("head_dim"),
            ],
            entries: &[$name],
            dispatch: |problem, _| linear($name, problem.sizes[0].div_ceil(4), 128),
        };
    )* };
}

rows! {
    /// Kernel of [`FusedAttentionRows`] with factors in bf16.
    FUSED_ATTENTION_ROWS = "flash_attention_bf16_preprocess" in "flash_attention_bf16_backward";
    /// Kernel of [`FusedAttentionRows`] with factors in f32.
    FUSED_ATTENTION_F32_ROWS = "flash_attention_f32_preprocess" in "flash_attention_f32_backward";
}

macro_rules! gradients {
    ($(
        $(#[$doc:meta])*
        $constant:ident = $name:literal in $image:literal, $compute:ident;
    )*) => { $(
        $(#[$doc])*
        pub static $constant: Kernel = Kernel {
            name: $name,
            image: $image,
            parameters: &[
                pointer("q"),
                pointer("keys"),
                pointer("values"),
                pointer("grad_out"),
                pointer("rows"),
                pointer("grads"),
                u32("batch"),
                u32("seq"),
                u32("heads"),
                u32("kv_heads"),
                u32("head_dim"),
                u32("parts"),
                f32("scale"),
            ],
            entries: &[concat!($name, "_hd64"), concat!($name, "_hd128")],
            dispatch: |problem, target| {
                by_head(problem, target, ($constant.entries, Compute::$compute))
            },
        };
    )* };
}

gradients! {
    /// Kernel of [`FusedAttentionGradQ`] with factors in bf16.
    FUSED_ATTENTION_GRAD_Q = "flash_attention_bf16_grad_q" in "flash_attention_bf16_backward", Bf16;
    /// Kernel of [`FusedAttentionGradKv`] with factors in bf16.
    FUSED_ATTENTION_GRAD_KV = "flash_attention_bf16_grad_kv" in "flash_attention_bf16_backward", Bf16;
    /// Kernel of [`FusedAttentionGradQ`] with factors in f32.
    FUSED_ATTENTION_F32_GRAD_Q = "flash_attention_f32_grad_q"
        in "flash_attention_f32_backward", F32;
    /// Kernel of [`FusedAttentionGradKv`] with factors in f32.
    FUSED_ATTENTION_F32_GRAD_KV = "flash_attention_f32_grad_kv"
        in "flash_attention_f32_backward", F32;
}

/// For each query its logsumexp and `delta = grad_out·out`, which both gradients read.
#[derive(Clone, Copy, Debug)]
pub struct FusedAttentionRows<B> {
    /// `[batch, seq, heads, head_dim]`, read: the output of the forward pass.
    pub out: View<B, f32>,
    /// `[batch, seq, heads, head_dim]`, read.
    pub grad_out: View<B, f32>,
    /// `[batch, heads, seq]`, read: of the forward pass.
    pub lse: View<B, f32>,
    /// `[batch, heads, seq, 2]`, written.
    pub rows: View<B, f32>,
    /// The sizes.
    pub shape: AttentionShape,
}

impl<B: Copy> FusedAttentionRows<B> {
    /// Checks the operands and describes the launch of products in f32.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        self.launch_in(Compute::F32)
    }

    /// Checks the operands and describes the launch of products in `compute`.
    pub fn launch_in(self, compute: Compute) -> Result<Launch<B>, KernelError> {
        let Self { out, grad_out, lse, rows, shape } = self;
        let kernel = match compute {
            Compute::F32 => &FUSED_ATTENTION_F32_ROWS,
            Compute::Bf16 => &FUSED_ATTENTION_ROWS,
        };
        let check = Check(kernel.name);
        let operands = [
            ("out", out, Role::Query),
            ("grad_out", grad_out, Role::Query),
            ("out", out, Role::Query),
        ];
        shape.check(check, operands)?;
        check_alignment(check, &[out, grad_out, rows])?;
        let [batch, seq, heads, _, head_dim] = shape.fused_sizes(check)?;
        let count = batch * seq * heads;
        check.length("lse", lse, count as usize)?;
        check.length("rows", rows, 2 * count as usize)?;
        let mut arguments = [out, grad_out, lse].map(Argument::read).to_vec();
        arguments.push(Argument::write(rows));
        arguments.extend([count, seq, heads, head_dim].map(Argument::U32));
        let problem = Problem::from([count]);
        Ok(Launch { kernel, problem, arguments })
    }
}

/// What both gradients of fused attention read.
#[derive(Clone, Copy, Debug)]
pub struct FusedAttentionGrads<B> {
    /// `[batch, seq, heads, head_dim]`, read.
    pub q: View<B, f32>,
    /// `[batch, seq, kv_heads, head_dim]`, read.
    pub k: View<B, f32>,
    /// `[batch, seq, kv_heads, head_dim]`, read.
    pub v: View<B, f32>,
    /// `[batch, seq, heads, head_dim]`, read.
    pub grad_out: View<B, f32>,
    /// `[batch, heads, seq, 2]`, read: what [`FusedAttentionRows`] wrote.
    pub rows: View<B, f32>,
    /// The sizes.
    pub shape: AttentionShape,
    /// The factor of the forward pass.
    pub scale: f32,
}

impl<B: Copy> FusedAttentionGrads<B> {
    /// The launch of `kernel` that writes `grads`, and as many planes of heads as `planes` says.
    fn launch(
        self,
        kernel: &'static Kernel,
        (grads, expected): (View<B, f32>, &[usize]),
        (planes, parts): (usize, usize),
    ) -> Result<Launch<B>, KernelError> {
        let Self { q, k, v, grad_out, rows, shape, scale } = self;
        let check = Check(kernel.name);
        shape.check(check, [("q", q, Role::Query), ("k", k, Role::Key), ("v", v, Role::Key)])?;
        check.length("grad_out", grad_out, q.len())?;
        check.length("grads", grads, check.product("elements of gradients", expected)?)?;
        check_alignment(check, &[q, k, v, grad_out, rows, grads])?;
        check_scale(check, scale)?;
        let sizes = shape.fused_sizes(check)?;
        check.length("rows", rows, 2 * shape.batch * shape.heads * shape.seq)?;
        let planes = check.at_most("batch × heads", planes, MOST_BLOCKS)?;
        // Planes of partial sums are counted in rows.
        let keys = check.product("rows of partial sums", &[2 * parts, shape.batch, shape.seq])?;
        check.size("rows of partial sums", keys)?;
        let mut arguments = [q, k, v, grad_out, rows].map(Argument::read).to_vec();
        arguments.push(Argument::write(grads));
        arguments.extend(sizes.map(Argument::U32));
        arguments.push(Argument::U32(check.size("parts", parts)?));
        arguments.push(Argument::f32(scale));
        let [_, seq, .., head_dim] = sizes;
        Ok(Launch { kernel, problem: Problem::from([planes, seq, head_dim]), arguments })
    }
}

/// The gradient of q: `grad_q_i = scale · Σ_j ds_ij · k_j`, with
/// `ds_ij = p_ij · (grad_out_i·v_j − delta_i)`, which is a factor.
#[derive(Clone, Copy, Debug)]
pub struct FusedAttentionGradQ<B> {
    /// What is read.
    pub from: FusedAttentionGrads<B>,
    /// `[batch, seq, heads, head_dim]`, written.
    pub grad_q: View<B, f32>,
}

impl<B: Copy> FusedAttentionGradQ<B> {
    /// Checks the operands and describes the launch of products in f32.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        self.launch_in(Compute::F32)
    }

    /// Checks the operands and describes the launch of products in `compute`.
    pub fn launch_in(self, compute: Compute) -> Result<Launch<B>, KernelError> {
        let AttentionShape { batch, seq, heads, head_dim, .. } = self.from.shape;
        let grads = (self.grad_q, &[batch, seq, heads, head_dim][..]);
        let kernel = match compute {
            Compute::F32 => &FUSED_ATTENTION_F32_GRAD_Q,
            Compute::Bf16 => &FUSED_ATTENTION_GRAD_Q,
        };
        self.from.launch(kernel, grads, (batch * heads, 1))
    }
}

/// The gradients of k and v: `grad_k_j = scale · Σ_i ds_ij · q_i` and
/// `grad_v_j = Σ_i p_ij · grad_out_i`, over the heads of a group in ascending order. `ds` and `p`
/// are factors.
///
/// The heads of a group may be cut into equal parts, each with gradients of its own, which
/// [`PartsSum`](crate::ops::PartsSum) adds; [`AttentionShape::fused_parts`] says when it is worth it.
#[derive(Clone, Copy, Debug)]
pub struct FusedAttentionGradKv<B> {
    /// What is read.
    pub from: FusedAttentionGrads<B>,
    /// `[parts, 2, batch, seq, kv_heads, head_dim]`, written: for each part the gradient of k,
    /// then that of v.
    pub grads: View<B, f32>,
    /// Number of parts, a divisor of the heads of a group.
    pub parts: usize,
}

impl<B: Copy> FusedAttentionGradKv<B> {
    /// Checks the operands and describes the launch of products in f32.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        self.launch_in(Compute::F32)
    }

    /// Checks the operands and describes the launch of products in `compute`.
    pub fn launch_in(self, compute: Compute) -> Result<Launch<B>, KernelError> {
        let Self { from, grads, parts } = self;
        let AttentionShape { batch, seq, kv_heads, head_dim, .. } = from.shape;
        let kernel = match compute {
            Compute::F32 => &FUSED_ATTENTION_F32_GRAD_KV,
            Compute::Bf16 => &FUSED_ATTENTION_GRAD_KV,
        };
        let (check, group) = (Check(kernel.name), from.shape.group());
        let divides = parts > 0 && group.is_multiple_of(parts);
        check.rule(divides, "parts must divide the heads of a group", (parts, group))?;
        let grads = (grads, &[parts, 2, batch, seq, kv_heads, head_dim][..]);
        from.launch(kernel, grads, (batch * kv_heads * parts, parts))
    }
}
