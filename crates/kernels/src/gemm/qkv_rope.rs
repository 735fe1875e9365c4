//! The query, key and value projections in one launch, with RoPE in the epilogue.

use half::bf16;
use retrograph_kernel_abi::gemm::{GemmQkvRopeParameters, QKV_ROPE, QKV_ROPE_HEAD_DIMS};

use super::kernels::QKV_ROPE_FPROP_KERNELS;
use super::launch::{AddedProduct, Gemm};
use super::operand::{GemmSizes, Operand, Strides};
use super::problem::GemmProblem;
use super::tensor_map::matrix_maps;
use crate::attention::{AttentionRope, AttentionShape};
use crate::checks::Check;
use crate::launch::{ArgumentTypes, Pointer};
use crate::{DType, KernelError, Launch, Problem, View};

/// A projection of [`QkvRopeFprop`]: `y = x·wᵀ (+ x₁·w₁ᵀ) (+ bias)`.
#[derive(Clone, Copy, Debug)]
pub struct QkvRopeProjection<B> {
    /// `[outputs, inputs]`, read.
    pub w: View<B, bf16>,
    /// The low-rank update of LoRA: x₁ `[rows, k]` and w₁ `[outputs, k]`, read, and k, a multiple
    /// of 8.
    pub second: Option<([View<B, bf16>; 2], usize)>,
    /// `[outputs]`, added to every row.
    pub bias: Option<View<B, f32>>,
    /// `[rows, outputs]`, written.
    pub y: View<B, bf16>,
}

/// The query, key and value projections of the same tokens, in bf16. Queries and keys are rotated
/// as by [`Rope`](crate::ops::Rope).
///
/// Deterministic: each element accumulates the contraction of the first product in ascending order,
/// then the contraction of the second. It is rounded once, after bias and rotation.
#[derive(Clone, Copy, Debug)]
pub struct QkvRopeFprop<B> {
    /// `[batch · seq, inputs]`, read.
    pub x: View<B, bf16>,
    /// The projections to queries, keys and values. Queries have `heads · head_dim` outputs, keys
    /// and values `kv_heads · head_dim`.
    pub projections: [QkvRopeProjection<B>; 3],
    /// The rotation; `None` leaves queries and keys unrotated.
    pub rope: Option<AttentionRope<B>>,
    /// The sizes of the results. `head_dim` is one of [`QkvRopeFprop::HEAD_DIMS`].
    pub shape: AttentionShape,
    /// Columns of x and w, a nonzero multiple of 8.
    pub inputs: usize,
}

impl QkvRopeFprop<()> {
    /// The supported head dimensions.
    pub const HEAD_DIMS: &[usize] =
        &[QKV_ROPE_HEAD_DIMS[0] as usize, QKV_ROPE_HEAD_DIMS[1] as usize];
}

impl<B: Copy> QkvRopeFprop<B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a length does not match, the head dimension is not supported, the tables have too few
    /// rows, the contraction is empty, or rows cannot be copied in vectors of 16 bytes.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { x, projections: [queries, keys, values], rope, shape, inputs } = self;
        let AttentionShape { batch, seq, heads, kv_heads, head_dim } = shape;
        let (check, kernels) = (Check(QKV_ROPE_FPROP_KERNELS.name()), QKV_ROPE_FPROP_KERNELS);
        shape.check_heads(check)?;
        let is_supported = QkvRopeFprop::HEAD_DIMS.contains(&head_dim);
        check.rule(is_supported, "head_dim must be 64 or 128", head_dim)?;
        let rows = check.product("batch × seq", &[batch, seq])?;
        let outputs = |heads| check.product("heads × head_dim", &[heads, head_dim]);
        let (columns, kv_columns) = (outputs(heads)?, outputs(kv_heads)?);
        check.length("x", x, check.product("rows × inputs", &[rows, inputs])?)?;
        let all = [(queries, columns), (keys, kv_columns), (values, kv_columns)];
        let mut added = Vec::with_capacity(all.len());
        for (projection, outputs) in all {
            added.push(projection.check(check, [rows, inputs, outputs])?);
        }
        rope.map_or(Ok(()), |rope| rope.check(check, shape, DType::Bf16))?;
        let [a, c] = [inputs, columns].map(Strides::contiguous);
        let gemm = Gemm {
            kernels,
            compute: DType::Bf16,
            a: Operand { view: x.into(), strides: a },
            b: Operand { view: queries.w.into(), strides: a },
            c: Operand { view: queries.y.into(), strides: c },
            bias: queries.bias,
            sizes: GemmSizes::single([rows, columns, inputs]),
            alpha: 1.0,
            accumulate: false,
        };
        let matrices = [
            (x, [rows, inputs]),
            (queries.w, [columns, inputs]),
            (queries.y, [rows, columns]),
            (keys.w, [kv_columns, inputs]),
            (values.w, [kv_columns, inputs]),
            (keys.y, [rows, kv_columns]),
            (values.y, [rows, kv_columns]),
        ];
        let [_, _, _, keys_b_map, values_b_map, keys_map, values_map] =
            matrix_maps(check, rows == 0, matrices)?;
        let (tables, tokens) =
            (rope.map(|it| [it.cos, it.sin]), rope.and_then(|rope| rope.token_positions));
        let further = GemmQkvRopeParameters::<ArgumentTypes<B>> {
            keys_b: Pointer::read(keys.w),
            values_b: Pointer::read(values.w),
            keys: Pointer::write(keys.y),
            values: Pointer::write(values.y),
            keys_bias: Pointer::read_optional(keys.bias),
            values_bias: Pointer::read_optional(values.bias),
            kv_columns: check.size("columns of keys", kv_columns)?,
            cos: Pointer::read_optional(tables.map(|[cos, _]| cos)),
            sin: Pointer::read_optional(tables.map(|[_, sin]| sin)),
            token_positions: Pointer::read_optional(tokens),
            positions: check.size("positions", rope.map_or(1, |rope| rope.positions))?,
            // The kernel divides by it. Without tokens nothing is computed.
            seq: check.size("seq", seq.max(1))?,
            head_dim: head_dim as u32,
            keys_b_map,
            values_b_map,
            keys_map,
            values_map,
        };
        let launch = gemm.launch_with(&added, further.into_arguments())?;
        let Problem::Gemm(problem) = launch.problem else { return Ok(launch) };
        // Each result starts at a tile boundary. The narrowest tile gives the largest grid; blocks
        // of wider tiles are persistent.
        let tile = QKV_ROPE.iter().map(|tile| tile.shape[1]).min().unwrap_or(1) as usize;
        let padded = [columns, kv_columns, kv_columns].map(|it| it.next_multiple_of(tile));
        let n = check.size("columns", padded.iter().sum())?;
        Ok(Launch { problem: Problem::Gemm(GemmProblem { n, ..problem }), ..launch })
    }
}

impl<B: Copy> QkvRopeProjection<B> {
    /// Checks the operands and returns the second product.
    fn check(
        self,
        check: Check,
        [rows, inputs, outputs]: [usize; 3],
    ) -> Result<Option<AddedProduct<B>>, KernelError> {
        let Self { w, second, bias, y } = self;
        check.length("w", w, check.product("outputs × inputs", &[outputs, inputs])?)?;
        check.length("y", y, check.product("rows × outputs", &[rows, outputs])?)?;
        bias.map_or(Ok(()), |bias| check.length("bias", bias, outputs))?;
        let Some(([x, w], k)) = second else { return Ok(None) };
        check.length("x₁", x, check.product("rows × k", &[rows, k])?)?;
        check.length("w₁", w, check.product("outputs × k", &[outputs, k])?)?;
        Ok(Some(AddedProduct { a: (x, k), b: (w, k), k, n: outputs }))
    }
}
