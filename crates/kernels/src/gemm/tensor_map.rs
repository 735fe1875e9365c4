//! Tensor maps of the operands of a matrix product.

use half::bf16;
use retrograph_kernel_abi::gemm::{TENSOR_MAP_BOX, TENSOR_MAP_BOX_F32};
use retrograph_ptx::{TensorMapLayout, TensorMapSwizzle, TensorMapType};

use super::operand::{GemmSizes, Operand};
use crate::checks::Check;
use crate::launch::TensorMapArgument;
use crate::{KernelError, TensorView, View};

/// Returns the tensor maps of contiguous matrices with these rows and columns. Fails if one has no
/// map, unless the result is empty.
pub(super) fn matrix_maps<B: Copy, const N: usize>(
    check: Check,
    is_empty: bool,
    matrices: [(View<B, bf16>, [usize; 2]); N],
) -> Result<[Option<TensorMapArgument<B>>; N], KernelError> {
    let rule = "matrices must start at a multiple of 16 bytes, and their rows must have a multiple \
                of 8 elements";
    let maps = matrices.map(|(view, sizes)| matrix_map(view, sizes));
    match maps.iter().position(Option::is_none).filter(|_| !is_empty) {
        Some(at) => {
            let (view, [_, columns]) = matrices[at];
            check.rule(columns > 0, "the contraction must not be empty", columns)?;
            check.rule(false, rule, [view.byte_range().start, columns]).map(|()| maps)
        }
        None => Ok(maps),
    }
}

/// The tensor map of a contiguous matrix; `None` if it is empty or its rows are not vectorizable.
fn matrix_map<B: Copy>(
    view: View<B, bf16>,
    [rows, columns]: [usize; 2],
) -> Option<TensorMapArgument<B>> {
    let operand = Operand::contiguous(view.into(), columns);
    let row_sizes = operand.strides.with_row(columns);
    let box_rows = TENSOR_MAP_BOX[1];
    tensor_map(GemmSizes::single([rows, columns, 0]), operand, rows, row_sizes, box_rows)
}

/// The tensor map of an operand with boxes of `box_rows` rows; `None` if it is empty, its rows are
/// not vectorizable, or its planes are not a single stride apart.
pub(super) fn tensor_map<B: Copy>(
    sizes: GemmSizes,
    Operand { view, strides }: Operand<B>,
    rows: usize,
    row_sizes: [usize; 5],
    box_rows: u32,
) -> Option<TensorMapArgument<B>> {
    let (buffer, range, dtype) = match view {
        TensorView::Bf16(view) => (view.buffer(), view.byte_range(), TensorMapType::Bf16),
        TensorView::F32(view) => (view.buffer(), view.byte_range(), TensorMapType::F32),
        TensorView::Nf4(_) => return None,
        TensorView::Split(matrix) => {
            (matrix.terms.buffer(), matrix.terms.byte_range(), TensorMapType::F16)
        }
    };
    let [width, _] = if dtype == TensorMapType::F32 { TENSOR_MAP_BOX_F32 } else { TENSOR_MAP_BOX };
    let GemmSizes { batches, heads, b_group, reduce, .. } = sizes;
    let one_stride = b_group == 1 && reduce == 1 && (batches == 1 || heads == 1);
    let terms = view.split().map_or(1, |matrix| matrix.term_count);
    let extents = [row_sizes[0], rows, batches * heads * terms];
    if !one_stride || !view.is_vectorizable(&row_sizes) || extents.contains(&0) {
        return None;
    }
    let plane = match (batches, heads) {
        (1, 1) => rows * strides.leading,
        (_, 1) => strides.batch,
        _ => strides.head,
    };
    Some(TensorMapArgument {
        buffer,
        bytes: range,
        layout: TensorMapLayout {
            dtype,
            sizes: extents.map(|size| size as u64).to_vec(),
            strides: [strides.leading, plane].map(|step| step as u64 * dtype.bytes()).to_vec(),
            box_sizes: vec![width, box_rows, 1],
            swizzle: TensorMapSwizzle::Bytes128,
        },
    })
}
