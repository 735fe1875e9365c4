//! Backward preprocess: interleaves the logsumexp of each query with delta = grad_out·out.
//!
//! One warp per [`PREPROCESS_ROWS`] rows, which it reads in vec4s; a butterfly adds the lanes.
//! Padding rows get (∞, 0).

use retrograph_kernel_abi::DType;
use retrograph_kernel_abi::attention::{
    FlashPreprocessParameters, PREPROCESS_ROWS, PREPROCESS_WARPS,
};
use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, Pred, Ptr, Value};

use super::backward::padded_rows;
use super::config::Config;
use crate::primitives::bf16::unpack;
use crate::primitives::parameters::Declarations;
use crate::primitives::thread_group::ThreadGroup;
use crate::primitives::vec4::F32x4;

/// A row of the gradient and of the output.
struct Row<'k> {
    /// The index of its result, if the launch has this row.
    index: Value<'k, u64>,
    exists: Pred<'k>,
    /// Whether it is not padding.
    inside: Pred<'k>,
    /// Its first element; the first element of another row if it is padding.
    first: Value<'k, u64>,
    lse: Value<'k, f32>,
}

/// The entry, for heads of any dimension.
pub(super) fn entry(config: Config) -> Entry {
    Kernel::build(config.family().preprocess.entry(), |k| {
        let group = ThreadGroup::Warp { per_block: PREPROCESS_WARPS };
        k.max_threads(group.block_threads());
        let parameters = FlashPreprocessParameters::declare(&mut Declarations(*k));
        let FlashPreprocessParameters { out, out_bf16, grad_out, lse, lse_delta, .. } = parameters;
        let FlashPreprocessParameters { count, seq, heads, head_dim, .. } = parameters;

        let first = group.row(k) * PREPROCESS_ROWS;
        k.return_if(first.ge(count));
        let padded = padded_rows(seq);
        let rows: [_; PREPROCESS_ROWS as usize] = std::array::from_fn(|next| {
            // [batch, padded seq, heads], so that consecutive warps read consecutive rows.
            let row = first + next as u32;
            let (row, exists) = (row.min(count - 1), row.lt(count));
            let (token, head) = (row / heads, row % heads);
            let (sequence, position) = (token / padded, token % padded);
            let plane = sequence * heads + head;
            let index = plane.mul_wide(padded) + position.cast::<u64>();
            let inside = position.lt(seq);
            let position = position.min(seq - 1);
            let first = ((sequence * seq + position) * heads + head).mul_wide(head_dim);
            let lse = lse.load(plane.mul_wide(seq) + position.cast());
            Row { index, exists, inside, first, lse }
        });
        let sums = rows.each_ref().map(|_| k.var(0.0f32));
        let outs = [(DType::F32, out.reinterpret()), (DType::Bf16, out_bf16.reinterpret())];
        for (dtype, tensor) in outs {
            let end = (!tensor.is_null()).select(head_dim, 0);
            k.range(k.lane() * 4, end, 128, |i| {
                // All loads are in flight at the same time.
                let loaded = rows.each_ref().map(|row| {
                    let index = row.first + i.cast::<u64>();
                    let grad = load_vec4(config.dtype, grad_out.reinterpret(), index);
                    (load_vec4(dtype, tensor, index), grad)
                });
                for (sum, (out, grad)) in sums.iter().zip(loaded) {
                    sum.update(|sum| (0..4).fold(sum, |sum, i| out[i].fma(grad[i], sum)));
                }
            });
        }
        for (row, sum) in rows.iter().zip(sums) {
            let delta = row.inside.select(k.warp_sum(sum.get()), 0.0);
            k.when(k.lane().eq(0) & row.exists, || {
                let logsumexp = row.inside.select(row.lse, f32::INFINITY);
                lse_delta.at(row.index << 1).store_vec2(0, [logsumexp, delta]);
            });
        }
    })
}

/// Four consecutive elements from element `index` on.
fn load_vec4<'k>(dtype: DType, tensor: Ptr<'k, u32>, index: Value<'k, u64>) -> F32x4<'k> {
    match dtype {
        DType::F32 => tensor.reinterpret::<f32>().load_vec4(index),
        _ => {
            let [[a, b], [c, d]] = tensor.load_vec2(index >> 1).map(unpack);
            [a, b, c, d]
        }
    }
}
