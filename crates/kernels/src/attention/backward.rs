//! The gradients of fused causal attention (FlashAttention-2).
//!
//! [`AttentionBackwardPreprocess`] computes `delta`; then [`FusedAttentionGradQ`] and
//! [`FusedAttentionGradKv`] recompute the probabilities `p` from log-sum-exp, and are independent
//! of each other.

use retrograph_kernel_abi::attention as abi;

use super::bounds::AttentionBounds;
use super::fused::{
    by_dtype, check_alignment, check_dtypes, check_softcap, dispatch, optional, term_pointers,
};
use super::shape::{AttentionShape, TensorLayout};
use crate::checks::Check;
use crate::gemm::SplitMatrix;
use crate::geometry::{MAX_GRID_X, linear};
use crate::launch::{ArgumentTypes, Pointer};
use crate::problem::AttentionProblem;
use crate::{DType, Kernel, KernelError, Launch, Output, Problem, TensorView, View};

macro_rules! preprocess {
    ($($(#[$doc:meta])* $constant:ident = $name:literal in $family:ident;)*) => { $(
        $(#[$doc])*
        pub static $constant: Kernel =
            Kernel::new($name, &abi::$family.preprocess, |problem, _| {
                let warps = abi::PREPROCESS_WARPS;
                let entry = abi::$family.preprocess.entry();
                let per_block = warps * abi::PREPROCESS_ROWS;
                problem.items().map(|rows| linear(entry, rows.div_ceil(per_block), 32 * warps))
            });
    )* };
}

preprocess! {
    /// Kernel of [`AttentionBackwardPreprocess`] with bf16 operands.
    FUSED_ATTENTION_BF16_PREPROCESS = "flash_attention_bf16_preprocess" in FLASH_ATTENTION_BF16;
    /// Kernel of [`AttentionBackwardPreprocess`] with f32 operands.
    FUSED_ATTENTION_F32_PREPROCESS = "flash_attention_f32_preprocess" in FLASH_ATTENTION_F32;
}

macro_rules! gradients {
    ($($(#[$doc:meta])* $constant:ident = $name:literal in $family:ident, $kernel:ident;)*) => { $(
        $(#[$doc])*
        pub static $constant: Kernel =
            Kernel::new($name, &abi::$family.$kernel, |problem, target| {
                dispatch(problem, target, &abi::$family, &abi::$family.$kernel)
            });
    )* };
}

gradients! {
    /// Kernel of [`FusedAttentionGradQ`] with bf16 operands.
    FUSED_ATTENTION_BF16_GRAD_Q = "flash_attention_bf16_grad_q" in FLASH_ATTENTION_BF16, grad_q;
    /// Kernel of [`FusedAttentionGradKv`] with bf16 operands.
    FUSED_ATTENTION_BF16_GRAD_KV = "flash_attention_bf16_grad_kv" in FLASH_ATTENTION_BF16, grad_kv;
    /// Kernel of [`FusedAttentionGradQ`] with f32 operands.
    FUSED_ATTENTION_F32_GRAD_Q = "flash_attention_f32_grad_q" in FLASH_ATTENTION_F32, grad_q;
    /// Kernel of [`FusedAttentionGradKv`] with f32 operands.
    FUSED_ATTENTION_F32_GRAD_KV = "flash_attention_f32_grad_kv" in FLASH_ATTENTION_F32, grad_kv;
}

/// `lse_delta = (lse, grad_out·out)` for each query: the log-sum-exp and delta, which both
/// gradients read. Padding tokens get (∞, 0).
#[derive(Clone, Copy, Debug)]
pub struct AttentionBackwardPreprocess<B> {
    /// `[batch, seq, heads, head_dim]`, read: the output of the forward pass, f32 or bf16.
    pub out: TensorView<B>,
    /// `[batch, seq, heads, head_dim]`, read: f32 or bf16.
    pub grad_out: TensorView<B>,
    /// `[batch, heads, seq]`, read: the log-sum-exp of the forward pass.
    pub lse: View<B, f32>,
    /// `[batch, heads, padded seq, 2]`, written; see [`AttentionShape::lse_delta_len`].
    pub lse_delta: View<B, f32>,
    /// The sizes.
    pub shape: AttentionShape,
}

impl<B: Copy> AttentionBackwardPreprocess<B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If an operand is neither f32 nor bf16, a length does not match the shape, a view is not
    /// aligned to 16 bytes, or head_dim is not supported.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { out, grad_out, lse, lse_delta, shape } = self;
        let kernels = [&FUSED_ATTENTION_F32_PREPROCESS, &FUSED_ATTENTION_BF16_PREPROCESS];
        let kernel = by_dtype(grad_out.dtype(), kernels)?;
        let check = Check(kernel.name);
        let query = TensorLayout::Query;
        shape.check_tensors(check, [("out", out, query), ("grad_out", grad_out, query)])?;
        check_alignment(check, &[Some(out), Some(grad_out), Some(lse_delta.into())])?;
        let [_, seq, heads, _, head_dim] = shape.fused_sizes(check, grad_out.dtype())?;
        check.length("lse", lse, shape.lse_len(check)?)?;
        check.length("lse_delta", lse_delta, shape.lse_delta_len())?;
        let rows = shape.padded_rows(check)?;
        let (out, out_bf16) = match out {
            TensorView::F32(out) => (Pointer::read(out), Pointer::null()),
            TensorView::Bf16(out) => (Pointer::null(), Pointer::read(out)),
            TensorView::Nf4(_) | TensorView::Split(_) => {
                by_dtype(out.dtype(), kernels)?;
                (Pointer::null(), Pointer::null())
            }
        };
        let parameters = abi::FlashPreprocessParameters::<ArgumentTypes<B>> {
            out,
            out_bf16,
            grad_out: grad_out.pointer(),
            lse: Pointer::read(lse),
            lse_delta: Pointer::write(lse_delta),
            count: rows,
            seq,
            heads,
            head_dim,
        };
        let arguments = parameters.into_arguments();
        Ok(Launch { kernel, problem: Problem::Items(rows), arguments })
    }
}

/// The inputs of both gradients of fused attention. q, k, v and `grad_out` are all f32 or all bf16,
/// and are multiplied in that type.
#[derive(Clone, Copy, Debug)]
pub struct AttentionBackwardInputs<B> {
    /// `[batch, seq, heads, head_dim]`, read.
    pub q: TensorView<B>,
    /// `[batch, seq, kv_heads, head_dim]`, read.
    pub k: TensorView<B>,
    /// `[batch, seq, kv_heads, head_dim]`, read.
    pub v: TensorView<B>,
    /// `[batch, seq, heads, head_dim]`, read.
    pub grad_out: TensorView<B>,
    /// `[batch, heads, padded seq, 2]`, read: the result of [`AttentionBackwardPreprocess`].
    pub lse_delta: View<B, f32>,
    /// Split q, k, v and `grad_out`, as
    /// [`FusedAttention::split_f16`](super::FusedAttention::split_f16).
    pub split_f16: Option<[SplitMatrix<B>; 4]>,
    /// The bounds of the forward pass.
    pub bounds: Option<AttentionBounds<B>>,
    /// The sizes.
    pub shape: AttentionShape,
    /// The softmax scale of the forward pass.
    pub scale: f32,
    /// The cap of the scores of the forward pass; only for operands in bf16.
    pub softcap: Option<f32>,
}

/// RoPE of queries and keys in bf16. [`QkvRopeFprop`](crate::ops::QkvRopeFprop) applies it. The
/// gradient kernels of attention return the gradients of queries and keys before RoPE.
#[derive(Clone, Copy, Debug)]
pub struct AttentionRope<B> {
    /// `[positions, head_dim ÷ 2]`, read; see [`rope_tables`](crate::rope::rope_tables).
    pub cos: View<B, f32>,
    /// `[positions, head_dim ÷ 2]`, read.
    pub sin: View<B, f32>,
    /// Rows of the tables. Positions past them take the last one.
    pub positions: usize,
    /// `[batch, seq]`, read: the position of each token. If `None`, positions count from 0 in each
    /// sequence.
    pub token_positions: Option<View<B, u32>>,
}

impl<B: Copy> AttentionRope<B> {
    pub(crate) fn check(
        self,
        check: Check,
        shape: AttentionShape,
        dtype: DType,
    ) -> Result<(), KernelError> {
        let Self { cos, sin, positions, token_positions } = self;
        if dtype != DType::Bf16 {
            let help = "give operands in bf16, or apply the inverse of Rope in a launch of its own";
            let (kernel, compute) = (check.0, DType::Bf16);
            return Err(KernelError::UnsupportedDType { kernel, compute, dtype, help });
        }
        let rule = "the tables must have a row for each position";
        let least = token_positions.map_or(shape.seq, |_| 1);
        check.rule(positions >= least, rule, [positions, least])?;
        let angles = check.product("positions × pairs", &[positions, shape.head_dim / 2])?;
        check.length("cos", cos, angles)?;
        check.length("sin", sin, angles)?;
        check_alignment(check, &[Some(cos.into()), Some(sin.into())])?;
        token_positions.map_or(Ok(()), |tokens| {
            let count = check.product("tokens", &[shape.batch, shape.seq])?;
            check.length("token_positions", tokens, count)
        })
    }
}

/// The result of a gradient kernel.
struct Gradient<'a, B> {
    output: Output<B>,
    rope: Option<AttentionRope<B>>,
    /// The bounds of its rows.
    row_bounds: Option<View<B, u32>>,
    dimensions: &'a [usize],
    /// Batch × heads, or batch × key heads × splits.
    planes: usize,
    splits: usize,
}

impl<B: Copy> AttentionBackwardInputs<B> {
    /// Checks the operands and the result. Returns batch, seq, heads, kv_heads and head_dim.
    fn check(self, check: Check, gradient: &Gradient<'_, B>) -> Result<[u32; 5], KernelError> {
        let Self { q, k, v, grad_out, lse_delta, split_f16: terms, bounds, shape, .. } = self;
        let Gradient { output, rope, dimensions, splits, .. } = *gradient;
        check_dtypes(check, [q, k, v, grad_out])?;
        let (query, key_value) = (TensorLayout::Query, TensorLayout::KeyValue);
        let queries = [("q", q, query), ("grad_out", grad_out, query)];
        shape.check_tensors(check, queries)?;
        shape.check_tensors(check, [("k", k, key_value), ("v", v, key_value)])?;
        output.check(check, "grads", check.product("elements of gradients", dimensions)?)?;
        check_alignment(check, &[Some(q), Some(k), Some(v), Some(grad_out)])?;
        let results = [output.f32().map(TensorView::F32), output.bf16().map(TensorView::Bf16)];
        check_alignment(check, &results)?;
        check_alignment(check, &[Some(lse_delta.into())])?;
        rope.map_or(Ok(()), |rope| rope.check(check, shape, q.dtype()))?;
        check.positive("scale", self.scale)?;
        let sizes = shape.fused_sizes(check, q.dtype())?;
        check.length("lse_delta", lse_delta, shape.lse_delta_len())?;
        bounds.map_or(Ok(()), |bounds| bounds.check(check, shape))?;
        let rows = check.product("rows of partial sums", &[2 * splits, shape.batch, shape.seq])?;
        check.size("rows of partial sums", rows)?;
        shape.check_terms(check, q.dtype(), terms.iter().flatten())?;
        Ok(sizes)
    }

    /// The launch of `kernel` that writes `gradient`.
    fn launch(
        self,
        kernel: &'static Kernel,
        gradient: Gradient<'_, B>,
    ) -> Result<Launch<B>, KernelError> {
        let Self { q, k, v, grad_out, lse_delta, split_f16: terms, .. } = self;
        let Self { shape, scale, softcap, .. } = self;
        let check = Check(kernel.name);
        let [batch, seq, heads, kv_heads, head_dim] = self.check(check, &gradient)?;
        let Gradient { output, rope, row_bounds, planes, splits, .. } = gradient;
        let planes = check.at_most("the number of planes", planes, MAX_GRID_X)?;
        let [q_terms, k_terms, v_terms, grad_out_terms] = optional(terms);
        let tensors = [
            (q, q_terms, heads),
            (k, k_terms, kv_heads),
            (v, v_terms, kv_heads),
            (grad_out, grad_out_terms, heads),
        ];
        let [q_map, k_map, v_map, grad_out_map] =
            tensors.map(|(tensor, terms, heads)| shape.tensor_map(tensor, terms, heads));
        let tensor_maps = q_map.is_some();
        let (grads, grads_bf16) = output.pointers();
        let positions = rope.map_or(1, |rope| rope.positions);
        let [(q_terms, q_scales), (k_terms, k_scales), (v_terms, v_scales)] =
            [q_terms, k_terms, v_terms].map(term_pointers);
        let (grad_out_terms, grad_out_scales) = term_pointers(grad_out_terms);
        let parameters = abi::FlashBackwardParameters::<ArgumentTypes<B>> {
            q: q.pointer(),
            keys: k.pointer(),
            values: v.pointer(),
            grad_out: grad_out.pointer(),
            lse_delta: Pointer::read(lse_delta),
            grads,
            grads_bf16,
            cos: Pointer::read_optional(rope.map(|rope| rope.cos)),
            sin: Pointer::read_optional(rope.map(|rope| rope.sin)),
            token_positions: Pointer::read_optional(rope.and_then(|rope| rope.token_positions)),
            positions: check.size("the number of positions", positions)?,
            row_bounds: Pointer::read_optional(row_bounds),
            batch,
            seq,
            heads,
            kv_heads,
            head_dim,
            splits: check.size("splits", splits)?,
            scale,
            softcap: check_softcap(check, softcap, q.dtype())?,
            q_terms,
            k_terms,
            v_terms,
            grad_out_terms,
            q_scales,
            k_scales,
            v_scales,
            grad_out_scales,
            q_map,
            k_map,
            v_map,
            grad_out_map,
        };
        let arguments = parameters.into_arguments();
        let problem = AttentionProblem {
            planes,
            seq,
            head_dim,
            tensor_maps,
            starts_in_tile: false,
            softcap: softcap.is_some(),
        };
        Ok(Launch { kernel, problem: Problem::Attention(problem), arguments })
    }
}

/// The gradient of q: `grad_q_i = scale · Σ_j ds_ij · k_j`, with
/// `ds_ij = p_ij · (grad_out_i·v_j − delta_i)`, times the derivative of the cap if there is one.
///
/// In bf16, `ds` is rounded. With RoPE the gradient is rotated back before it is rounded.
#[derive(Clone, Copy, Debug)]
pub struct FusedAttentionGradQ<B> {
    /// The inputs.
    pub inputs: AttentionBackwardInputs<B>,
    /// `[batch, seq, heads, head_dim]`, written: f32, bf16, or both.
    pub grad_q: Output<B>,
    /// The rotation of the queries.
    pub rope: Option<AttentionRope<B>>,
}

impl<B: Copy> FusedAttentionGradQ<B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If the inputs are not of one type, a length does not match the shape, a size is too large, a
    /// view is not aligned to 16 bytes, head_dim is not supported, `split_f16` is given for bf16
    /// inputs or does not have two terms each, `scale` or `softcap` is not positive and finite, or
    /// `softcap` or `rope` is given for f32 inputs.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let AttentionShape { batch, seq, heads, head_dim, .. } = self.inputs.shape;
        let dimensions = &[batch, seq, heads, head_dim];
        let kernels = [&FUSED_ATTENTION_F32_GRAD_Q, &FUSED_ATTENTION_BF16_GRAD_Q];
        let kernel = by_dtype(self.inputs.q.dtype(), kernels)?;
        let Self { inputs, grad_q: output, rope } = self;
        let check = Check(kernel.name);
        let (planes, splits) = (check.product("batch × heads", &[batch, heads])?, 1);
        let row_bounds = inputs.bounds.map(|bounds| bounds.first_keys);
        inputs.launch(kernel, Gradient { output, rope, row_bounds, dimensions, planes, splits })
    }
}

/// The gradients of k and v: `grad_k_j = scale · Σ_i ds_ij · q_i` and
/// `grad_v_j = Σ_i p_ij · grad_out_i`, over the heads of a group in ascending order.
///
/// In bf16, `ds` and `p` are rounded. The heads of a group may be split equally; each split has
/// gradients of its own, which [`SplitKSum`](crate::gemm::SplitKSum) adds.
/// [`AttentionShape::grad_kv_splits`] chooses the number of splits.
#[derive(Clone, Copy, Debug)]
pub struct FusedAttentionGradKv<B> {
    /// The inputs.
    pub inputs: AttentionBackwardInputs<B>,
    /// `[splits, 2, batch, seq, kv_heads, head_dim]`, written: for each split the gradient of k,
    /// then the gradient of v, in f32, bf16, or both.
    pub grads: Output<B>,
    /// Number of splits, a divisor of the heads of a group.
    pub splits: usize,
    /// The rotation of the keys.
    pub rope: Option<AttentionRope<B>>,
}

impl<B: Copy> FusedAttentionGradKv<B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If `splits` does not divide the heads of a group, the inputs are not of one type, a length
    /// does not match the shape, a size is too large, a view is not aligned to 16 bytes, head_dim
    /// is not supported, `split_f16` is given for bf16 inputs or does not have two terms each,
    /// `scale` or `softcap` is not positive and finite, or `softcap` or `rope` is given for f32
    /// inputs.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { inputs, grads: output, splits, rope } = self;
        let AttentionShape { batch, seq, kv_heads, head_dim, .. } = inputs.shape;
        let kernels = [&FUSED_ATTENTION_F32_GRAD_KV, &FUSED_ATTENTION_BF16_GRAD_KV];
        let kernel = by_dtype(inputs.q.dtype(), kernels)?;
        let (check, group) = (Check(kernel.name), inputs.shape.group());
        let divides = splits > 0 && group.is_multiple_of(splits);
        check.rule(divides, "splits must divide the heads of a group", [splits, group])?;
        let dimensions = &[splits, 2, batch, seq, kv_heads, head_dim];
        let what = "batch × kv_heads × splits";
        let planes = check.product(what, &[batch, kv_heads, splits])?;
        let row_bounds = inputs.bounds.map(|bounds| bounds.query_ends);
        inputs.launch(kernel, Gradient { output, rope, row_bounds, dimensions, planes, splits })
    }
}
