//! Fused causal attention (FlashAttention-2), with factors in f32 or bf16.
//!
//! [`FusedAttention`] computes scores, softmax and values in one kernel. Instead of probabilities
//! it stores the log-sum-exp of each row, from which the gradients recompute them. Layouts are
//! those of [`super::unfused`].
//!
//! A NaN or infinity of a token reaches every token that attends to it. It may also reach the other
//! tokens of its aligned run of 64, where it is multiplied by zeros. In f32, an infinite factor
//! gives NaN.
//!
//! Source: Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning",
//! 2023.

use retrograph_kernel_abi::Signature;
use retrograph_kernel_abi::attention::{
    self as abi, FLASH_ATTENTION_BF16, FLASH_ATTENTION_F32, FlashAttention,
};

use super::shape::{AttentionShape, TensorLayout};
use crate::checks::Check;
use crate::geometry::{MAX_GRID_X, MAX_GRID_YZ, linear};
use crate::images::dynamic_shared;
use crate::launch::{ArgumentTypes, Pointer};
use crate::problem::AttentionProblem;
use crate::{DType, Dispatch, Kernel, KernelError, Launch, Output, Problem, SmTarget, View};

/// Kernel of [`FusedAttention`] with factors in bf16.
pub static FUSED_ATTENTION: Kernel =
    Kernel::new("flash_attention_bf16", &FLASH_ATTENTION_BF16.forward, |problem, target| {
        dispatch(problem, target, (&FLASH_ATTENTION_BF16, &FLASH_ATTENTION_BF16.forward))
    });

/// Kernel of [`FusedAttention`] with factors in f32.
pub static FUSED_ATTENTION_F32: Kernel =
    Kernel::new("flash_attention_f32", &FLASH_ATTENTION_F32.forward, |problem, target| {
        dispatch(problem, target, (&FLASH_ATTENTION_F32, &FLASH_ATTENTION_F32.forward))
    });

/// The widest heads of the two entries.
const MAX_HEAD_DIMS: [usize; 2] = [abi::MAX_HEAD_DIMS[0] as usize, abi::MAX_HEAD_DIMS[1] as usize];
/// Two blocks for each of 132 SMs.
const MIN_BLOCKS: usize = 264;

/// One block per plane and tile of tokens, with a warp for each 16 of them.
pub(super) fn dispatch(
    problem: &Problem,
    target: SmTarget,
    (family, kernel): (&FlashAttention, &Signature),
) -> Option<Dispatch> {
    let AttentionProblem { planes, seq, head_dim } = problem.attention()?;
    let features = target.features();
    let rows = family.block_rows(features.bf16_mma && features.cp_async);
    let entry = kernel.entries[usize::from(head_dim > abi::MAX_HEAD_DIMS[0])];
    let tiles = if head_dim == 0 { 0 } else { seq.div_ceil(rows) };
    let shared_bytes = dynamic_shared(entry, target);
    Some(Dispatch { grid: [planes, tiles, 1], shared_bytes, ..linear(entry, 1, rows * 2) })
}

impl AttentionShape {
    /// Whether fused attention supports the head size: a multiple of 4, at most 128.
    pub fn can_be_fused(self) -> bool {
        self.head_dim.is_multiple_of(4) && self.head_dim <= MAX_HEAD_DIMS[1]
    }

    /// Number of splits of a group's heads for
    /// [`FusedAttentionGradKv`](crate::attention::FusedAttentionGradKv): the smallest divisor of
    /// their number with which the blocks fill a device.
    pub fn grad_kv_splits(self) -> usize {
        let group = self.group().max(1);
        let blocks = self.batch * self.kv_heads * self.seq.div_ceil(64);
        let mut divisors = (1..=group).filter(|splits| group.is_multiple_of(*splits));
        divisors.find(|splits| blocks * splits >= MIN_BLOCKS).unwrap_or(group)
    }

    /// Batch, seq, heads, kv_heads and head_dim, if fused kernels can index the tensors.
    pub(super) fn fused_sizes(self, check: Check) -> Result<[u32; 5], KernelError> {
        let Self { batch, seq, heads, kv_heads, head_dim } = self;
        let rule = "head_dim must be a multiple of 4 and at most 128";
        check.rule(self.can_be_fused(), rule, (head_dim, MAX_HEAD_DIMS[1]))?;
        check.at_most("the number of tiles of 32 tokens", seq.div_ceil(32), MAX_GRID_YZ)?;
        check.at_most("batch × heads", batch * heads, MAX_GRID_X)?;
        let sequence = check.product("elements of a sequence", &[seq, heads, head_dim])?;
        check.size("elements of a sequence", sequence)?;
        check.size("tokens × heads", check.product("tokens × heads", &[batch, seq, heads])?)?;
        let sizes = [batch, seq, heads, kv_heads, head_dim];
        let [batch, seq, heads, kv_heads, head_dim] = sizes.map(|size| check.size("a size", size));
        Ok([batch?, seq?, heads?, kv_heads?, head_dim?])
    }
}

/// The softmax scales the maximum of a row, too, so that the factor must be positive.
pub(super) fn check_scale(check: Check, scale: f32) -> Result<(), KernelError> {
    check.constant("scale", scale, (scale.is_finite() && scale > 0.0, "finite and more than 0"))
}

/// Fused kernels access operands in vectors of 16 bytes.
pub(super) fn check_alignment<B: Copy>(
    check: Check,
    views: &[View<B, f32>],
) -> Result<(), KernelError> {
    let rule = "operands must start at multiples of 16 bytes in their buffers";
    views
        .iter()
        .try_for_each(|view| check.rule(view.is_aligned(16), rule, (view.byte_range().start, 16)))
}

/// `out = softmax(scale · q·kᵀ)·v` for every sequence and head, with the causal mask.
///
/// In bf16, q, k, v and the weights `exp(score − max)` are rounded, but not the sum of the weights.
/// A row whose scores have a NaN or a positive infinity, or only negative infinities, becomes NaN.
#[derive(Clone, Copy, Debug)]
pub struct FusedAttention<B, O = View<B, f32>> {
    /// `[batch, seq, heads, head_dim]`, read.
    pub q: View<B, f32>,
    /// `[batch, seq, kv_heads, head_dim]`, read.
    pub k: View<B, f32>,
    /// `[batch, seq, kv_heads, head_dim]`, read.
    pub v: View<B, f32>,
    /// `[batch, seq, heads, head_dim]`, written: f32, or f32 and bf16.
    pub out: O,
    /// `[batch, heads, seq]`, written: the log-sum-exp of the scores, to base 2.
    pub lse: View<B, f32>,
    /// The sizes; see [`AttentionShape::can_be_fused`].
    pub shape: AttentionShape,
    /// The factor, usually 1/√head_dim; finite and more than 0.
    pub scale: f32,
}

impl<B: Copy, O: Into<Output<B>>> FusedAttention<B, O> {
    /// Checks the operands and describes a launch that computes in f32.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        self.launch_in(DType::F32)
    }

    /// Checks the operands and describes a launch that computes in `compute`: f32 or bf16.
    ///
    /// # Errors
    /// If a length does not match the shape, a view is not aligned to 16 bytes, or the head size is
    /// not supported.
    pub fn launch_in(self, compute: DType) -> Result<Launch<B>, KernelError> {
        let Self { q, k, v, out, lse, shape, scale } = self;
        let kernel = by_dtype(compute, [&FUSED_ATTENTION_F32, &FUSED_ATTENTION])?;
        let check = Check(kernel.name);
        let (query, key_value) = (TensorLayout::Query, TensorLayout::KeyValue);
        shape.check(check, [("q", q, query), ("k", k, key_value), ("v", v, key_value)])?;
        let out = out.into();
        out.check(check, "out", q.len())?;
        let out_f32 =
            out.require_f32(check, "out must be written in f32, and may be in bf16, too")?;
        check_alignment(check, &[q, k, v, out_f32])?;
        if let Some(out_bf16) = out.bf16() {
            let rule = "out in bf16 must start at a multiple of 8 bytes";
            check.rule(out_bf16.is_aligned(8), rule, (out_bf16.byte_range().start, 8))?;
        }
        check_scale(check, scale)?;
        let [batch, seq, heads, kv_heads, head_dim] = shape.fused_sizes(check)?;
        check.length("lse", lse, shape.batch * shape.heads * shape.seq)?;
        let (out, out_bf16) = out.pointers();
        let parameters = abi::FlashForwardParameters::<ArgumentTypes<B>> {
            q: Pointer::read(q),
            keys: Pointer::read(k),
            values: Pointer::read(v),
            out,
            out_bf16,
            lse: Pointer::write(lse),
            seq,
            heads,
            kv_heads,
            head_dim,
            scale,
        };
        let arguments = parameters.into_arguments();
        let problem = Problem::Attention(AttentionProblem { planes: batch * heads, seq, head_dim });
        Ok(Launch { kernel, problem, arguments })
    }
}

/// The kernel that computes in `compute`, of one in f32 and one in bf16.
pub(super) fn by_dtype(
    compute: DType,
    [in_f32, in_bf16]: [&'static Kernel; 2],
) -> Result<&'static Kernel, KernelError> {
    match compute {
        DType::F32 => Ok(in_f32),
        DType::Bf16 => Ok(in_bf16),
        _ => Err(KernelError::UnsupportedDType {
            kernel: in_f32.name,
            compute,
            dtype: DType::F32,
            help: "compute in f32 or bf16",
        }),
    }
}
