//! Sizes, checks, tensor maps and dispatch that the fused attention launches share.

use retrograph_kernel_abi::attention::{
    self as abi, FlashAttention, LSE_DELTA_ROWS, SPLIT_TENSOR_MAP_BOX, WGMMA_ROWS, WGMMA_THREADS,
};
use retrograph_kernel_abi::gemm::TENSOR_MAP_BOX;
use retrograph_kernel_abi::{F16, Signature};
use retrograph_ptx::{TensorMapLayout, TensorMapSwizzle, TensorMapType};

use super::shape::{AttentionShape, TensorLayout};
use crate::checks::Check;
use crate::gemm::SplitMatrix;
use crate::geometry::{MAX_GRID_X, MAX_GRID_YZ, SMS, linear, persistent};
use crate::images::dynamic_shared;
use crate::launch::{Pointer, TensorMapArgument};
use crate::problem::AttentionProblem;
use crate::{DType, Dispatch, Kernel, KernelError, Output, Problem, SmTarget, TensorView};

/// Two blocks on each SM.
const MIN_BLOCKS: usize = 2 * SMS as usize;

/// One block per plane and tile of tokens, and one more for tokens that may start inside a tile; or
/// one persistent block per SM. Launches with tensor maps use the `wgmma` entry on targets that
/// have it; otherwise each warp of a block has 16 tokens.
pub(super) fn dispatch(
    problem: &Problem,
    target: SmTarget,
    family: &FlashAttention,
    kernel: &Signature,
) -> Option<Dispatch> {
    let problem = problem.attention()?;
    let AttentionProblem { planes, seq, head_dim, tensor_maps, starts_in_tile, softcap } = problem;
    let features = target.features();
    let (by_width, max_head_dim) =
        (0..).zip(family.max_head_dims).find(|(_, max)| head_dim <= **max)?;
    // Whether blocks have keys instead of queries.
    let has_keys = kernel.entries == family.grad_kv.entries;
    let first = if softcap { family.first_capped_entry() } else { 0 };
    let wgmma_width = family.wgmma_head_dims.iter().position(|width| *width == head_dim);
    let wgmma_entry = wgmma_width
        .filter(|_| tensor_maps && features.wgmma && features.tma)
        .and_then(|index| kernel.entries.get(first + family.max_head_dims.len() + index));
    let (entry, rows, threads, extra) = match wgmma_entry {
        // Blocks have aligned positions, so unaligned tokens may reach into one more.
        Some(entry) => {
            let rows = if has_keys { FlashAttention::wgmma_keys(head_dim) } else { WGMMA_ROWS };
            (*entry, rows, WGMMA_THREADS, u32::from(starts_in_tile))
        }
        None => {
            let has_tensor_cores = features.bf16_mma && features.cp_async;
            let rows = family.block_rows(*max_head_dim, has_tensor_cores);
            let threads = family.block_threads(*max_head_dim, has_tensor_cores);
            (*kernel.entries.get(first + by_width)?, rows, threads, 0)
        }
    };
    let separates =
        wgmma_entry.is_none() && has_keys && FlashAttention::separates_grad_kv(*max_head_dim);
    let tiles = if head_dim == 0 || seq == 0 { 0 } else { seq.div_ceil(rows) + extra };
    let blocks = planes.saturating_mul(tiles);
    let dispatch = match wgmma_entry {
        Some(_) if !has_keys && family.has_persistent_queries() => {
            persistent(entry, blocks, SMS, threads)
        }
        Some(_) if !has_keys => linear(entry, blocks, threads),
        _ => {
            let grid = [planes, tiles, if separates { 2 } else { 1 }];
            Dispatch { grid, ..linear(entry, 1, threads) }
        }
    };
    Some(Dispatch { shared_bytes: dynamic_shared(entry, target), ..dispatch })
}

/// Whether fused attention with operands in `dtype` supports a cap of the scores.
pub fn supports_softcap(dtype: DType) -> bool {
    FlashAttention::for_dtype(dtype).has_capped_entries()
}

/// Returns the cap of the scores for a kernel with operands in `dtype`: 0 for none.
pub(super) fn check_softcap(
    check: Check,
    softcap: Option<f32>,
    dtype: DType,
) -> Result<f32, KernelError> {
    if softcap.is_some() && !supports_softcap(dtype) {
        let (kernel, compute) = (check.0, DType::Bf16);
        let help = "capped scores need operands in bf16";
        return Err(KernelError::UnsupportedDType { kernel, compute, dtype, help });
    }
    check.softcap(softcap)
}

impl AttentionShape {
    /// Whether fused attention supports this head_dim for operands in `dtype` (f32 or bf16): whole
    /// vectors of 16 bytes, at most 128 elements in f32 and 256 in bf16. Capped scores need bf16.
    pub fn can_be_fused(self, dtype: DType) -> bool {
        let family = FlashAttention::for_dtype(dtype);
        let vector = if family.dtype == DType::Bf16 { 8 } else { 4 };
        let widest = family.max_head_dims.iter().max().copied().unwrap_or(0) as usize;
        self.head_dim.is_multiple_of(vector) && self.head_dim <= widest
    }

    /// Elements of the `lse_delta` of
    /// [`AttentionBackwardPreprocess`](crate::attention::AttentionBackwardPreprocess): two for each
    /// head and token, with sequences padded to multiples of 128 tokens.
    ///
    /// # Panics
    /// If the number overflows `usize`.
    pub fn lse_delta_len(self) -> usize {
        let sequences = [self.batch, self.heads].into_iter();
        let padded = self.seq.checked_next_multiple_of(LSE_DELTA_ROWS as usize);
        let len = padded.and_then(|seq| sequences.chain([seq]).try_fold(2, usize::checked_mul));
        len.expect("the number of elements of `lse_delta` must not overflow")
    }

    /// Elements of the log-sum-exp: one for each head and token.
    pub(super) fn lse_len(self, check: Check) -> Result<usize, KernelError> {
        check.product("batch × heads × seq", &[self.batch, self.heads, self.seq])
    }

    /// Rows of `lse_delta`: the padded tokens of each head.
    pub(super) fn padded_rows(self, check: Check) -> Result<u32, KernelError> {
        let what = "batch × padded seq × heads";
        check.size(what, check.product(what, &[self.batch, self.padded_seq(), self.heads])?)
    }

    /// Tokens per sequence in `lse_delta`, padding included.
    fn padded_seq(self) -> usize {
        self.seq.next_multiple_of(LSE_DELTA_ROWS as usize)
    }

    /// Number of splits of a group's query heads for
    /// [`FusedAttentionGradKv`](crate::attention::FusedAttentionGradKv): the smallest divisor of
    /// the group size whose blocks fill a device, or the group size.
    pub fn grad_kv_splits(self) -> usize {
        let group = self.group().max(1);
        let tiles = self.seq.div_ceil(64);
        let blocks = self.batch.saturating_mul(self.kv_heads).saturating_mul(tiles);
        let mut divisors = (1..=group).filter(|splits| group.is_multiple_of(*splits));
        divisors.find(|splits| blocks.saturating_mul(*splits) >= MIN_BLOCKS).unwrap_or(group)
    }

    /// Returns batch, seq, heads, kv_heads and head_dim, if fused kernels can index the tensors.
    pub(super) fn fused_sizes(self, check: Check, dtype: DType) -> Result<[u32; 5], KernelError> {
        let Self { batch, seq, heads, kv_heads, head_dim } = self;
        let rule = "head_dim must be a multiple of 4 (8 in bf16) and at most 128 (256 in bf16)";
        check.rule(self.can_be_fused(dtype), rule, head_dim)?;
        check.at_most("the number of tiles of 32 tokens", seq.div_ceil(32), MAX_GRID_YZ)?;
        let planes = check.product("batch × heads", &[batch, heads])?;
        check.at_most("batch × heads", planes, MAX_GRID_X)?;
        let sequence = check.product("elements of a sequence", &[seq, heads, head_dim])?;
        check.size("elements of a sequence", sequence)?;
        self.padded_rows(check)?;
        Ok([
            check.size("batch", batch)?,
            check.size("seq", seq)?,
            check.size("heads", heads)?,
            check.size("kv_heads", kv_heads)?,
            check.size("head_dim", head_dim)?,
        ])
    }

    /// Checks the head counts and the length of every operand, named by the field of the caller.
    pub(super) fn check_tensors<B: Copy, const N: usize>(
        self,
        check: Check,
        operands: [(&'static str, TensorView<B>, TensorLayout); N],
    ) -> Result<(), KernelError> {
        self.check_heads(check)?;
        for (operand, tensor, layout) in operands {
            let elements = check.product("the number of elements", &self.dimensions(layout))?;
            check.elements(operand, tensor.len(), elements)?;
        }
        Ok(())
    }

    /// Returns the tensor map of a bf16 tensor with `heads` heads, or of the terms of a split one,
    /// for the `wgmma` entries: a matrix per sequence and term, with a row per token.
    pub(super) fn tensor_map<B: Copy>(
        self,
        tensor: TensorView<B>,
        terms: Option<SplitMatrix<B>>,
        heads: u32,
    ) -> Option<TensorMapArgument<B>> {
        let (buffer, bytes, [width, height]) = match (tensor, terms) {
            (TensorView::Bf16(view), _) => (view.buffer(), view.byte_range(), TENSOR_MAP_BOX),
            (_, Some(SplitMatrix { terms, .. })) => {
                (terms.buffer(), terms.byte_range(), SPLIT_TENSOR_MAP_BOX)
            }
            _ => return None,
        };
        let dtype = if terms.is_some() { TensorMapType::F16 } else { TensorMapType::Bf16 };
        let row = self.head_dim as u64 * u64::from(heads);
        let planes = self.batch * terms.map_or(1, |terms| terms.term_count);
        let sizes = [row, self.seq as u64, planes as u64];
        let strides = [2 * row, 2 * row * sizes[1]];
        let family =
            if terms.is_some() { &abi::FLASH_ATTENTION_F32 } else { &abi::FLASH_ATTENTION_BF16 };
        let layout = TensorMapLayout {
            dtype,
            sizes: sizes.to_vec(),
            strides: strides.to_vec(),
            box_sizes: vec![width, height, 1],
            swizzle: TensorMapSwizzle::Bytes128,
        };
        (self.has_wgmma(family) && !sizes.contains(&0)).then_some(TensorMapArgument {
            buffer,
            bytes,
            layout,
        })
    }

    /// Whether devices with `wgmma` read split f32 operands: head_dim is 64, 96 or 128.
    pub fn reads_split_f16(self) -> bool {
        self.has_wgmma(&abi::FLASH_ATTENTION_F32)
    }

    /// Whether `family` has a `wgmma` entry for this head_dim.
    fn has_wgmma(self, family: &FlashAttention) -> bool {
        family.wgmma_head_dims.iter().any(|width| self.head_dim == *width as usize)
    }

    /// Checks the split operands that are given, of q, k, v and the gradient of the output.
    pub(super) fn check_terms<'a, B: Copy + 'a>(
        self,
        check: Check,
        dtype: DType,
        terms: impl Iterator<Item = &'a SplitMatrix<B>>,
    ) -> Result<(), KernelError> {
        let Self { batch, seq, heads, kv_heads, head_dim } = self;
        let operands = [
            (["the terms of q", "the scales of q"], heads),
            (["the terms of k", "the scales of k"], kv_heads),
            (["the terms of v", "the scales of v"], kv_heads),
            (["the terms of grad_out", "the scales of grad_out"], heads),
        ];
        for (matrix, (names, heads)) in terms.zip(operands) {
            let rows = check.product("tokens", &[batch, seq])?;
            let columns = check.product("elements of a token", &[heads, head_dim])?;
            matrix.check(check, names, [rows, columns])?;
            check.rule(dtype == DType::F32, "only f32 operands can be split", ())?;
            let complete = matrix.term_count == SplitMatrix::<B>::MAX_TERMS;
            check.rule(complete, "operands must be split into two terms", matrix.term_count)?;
            check_alignment(check, &[Some((*matrix).into())])?;
        }
        Ok(())
    }
}

/// Checks alignment: fused kernels access operands in vectors of 16 bytes.
pub(super) fn check_alignment<B: Copy>(
    check: Check,
    tensors: &[Option<TensorView<B>>],
) -> Result<(), KernelError> {
    let rule = "operands must start at multiples of 16 bytes in their buffers";
    tensors.iter().flatten().try_for_each(|tensor| {
        check.rule(tensor.is_vectorizable(&[]), rule, tensor.byte_range().start)
    })
}

/// Checks the types and the alignment of q, k and v, and the length and the alignment of the output
/// of the forward pass, which has the elements of q.
pub(super) fn check_forward<B: Copy>(
    check: Check,
    [q, k, v]: [TensorView<B>; 3],
    out: Output<B>,
) -> Result<(), KernelError> {
    check_dtypes(check, [q, k, v])?;
    out.check(check, "out", q.len())?;
    check_alignment(check, &[Some(q), Some(k), Some(v), out.f32().map(TensorView::F32)])?;
    let rule = "out in bf16 must start at a multiple of 8 bytes";
    out.bf16().map_or(Ok(()), |out| check.rule(out.is_aligned(8), rule, out.byte_range().start))
}

/// Checks that all operands have one type.
pub(super) fn check_dtypes<B: Copy, const N: usize>(
    check: Check,
    factors: [TensorView<B>; N],
) -> Result<(), KernelError> {
    let compute = factors[0].dtype();
    match factors.into_iter().map(|factor| factor.dtype()).find(|dtype| *dtype != compute) {
        None => Ok(()),
        Some(dtype) => Err(KernelError::UnsupportedDType {
            kernel: check.0,
            compute,
            dtype,
            help: "give q, k, v and grad_out in one type",
        }),
    }
}

/// Selects the kernel for operands in `dtype`, from the f32 and the bf16 kernel.
pub(super) fn by_dtype(
    dtype: DType,
    [in_f32, in_bf16]: [&'static Kernel; 2],
) -> Result<&'static Kernel, KernelError> {
    match dtype {
        DType::F32 => Ok(in_f32),
        DType::Bf16 => Ok(in_bf16),
        _ => Err(KernelError::UnsupportedDType {
            kernel: in_f32.name,
            compute: DType::F32,
            dtype,
            help: "give operands in f32 or bf16",
        }),
    }
}

/// The terms of each of `N` operands.
pub(super) fn optional<B: Copy, const N: usize>(
    terms: Option<[SplitMatrix<B>; N]>,
) -> [Option<SplitMatrix<B>>; N] {
    terms.map_or([None; N], |terms| terms.map(Some))
}

/// Pointers to the terms and the scales of a split operand, or null.
pub(super) fn term_pointers<B: Copy>(
    terms: Option<SplitMatrix<B>>,
) -> (Pointer<B, F16>, Pointer<B, f32>) {
    let scales = Pointer::read_optional(terms.map(|terms| terms.scales));
    (Pointer::read_optional(terms.map(|terms| terms.terms)), scales)
}
