//! Backward preprocess: interleaves the logsumexp of each query with delta = grad_out·out.
//!
//! One warp per row, which it reads in vec4s; a butterfly adds the lanes. Rows of padding get
//! (∞, 0).

use retrograph_kernel_abi::DType;
use retrograph_kernel_abi::attention::{FlashPreprocessParameters, PREPROCESS_WARPS};
use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, Ptr, Value};

use super::backward::padded_rows;
use super::config::Config;
use crate::primitives::bf16::unpack;
use crate::primitives::parameters::Declarations;
use crate::primitives::thread_group::ThreadGroup;
use crate::primitives::vec4::F32x4;

/// The entry, for heads of any dimension.
pub(super) fn entry(config: Config) -> Entry {
    Kernel::build(config.family().preprocess.entry(), |k| {
        let group = ThreadGroup::Warp { per_block: PREPROCESS_WARPS };
        k.max_threads(group.block_threads());
        let parameters = FlashPreprocessParameters::declare(&mut Declarations(*k));
        let FlashPreprocessParameters { out, out_bf16, grad_out, lse, lse_delta, .. } = parameters;
        let FlashPreprocessParameters { count, seq, heads, head_dim, .. } = parameters;

        // [batch, padded seq, heads], so that consecutive warps read consecutive rows.
        let row = group.row(k);
        k.return_if(row.ge(count));
        let padded = padded_rows(seq);
        let (token, head) = (row / heads, row % heads);
        let (sequence, position) = (token / padded, token % padded);
        let plane = sequence * heads + head;

        let sum = k.var(0.0f32);
        let inside = position.lt(seq);
        k.when(inside, || {
            let first = ((sequence * seq + position) * heads + head).mul_wide(head_dim);
            let outs = [(DType::F32, out.reinterpret()), (DType::Bf16, out_bf16.reinterpret())];
            for (dtype, tensor) in outs {
                let end = (!tensor.is_null()).select(head_dim, 0);
                k.range(k.lane() * 4, end, 128, |i| {
                    let index = first + i.cast::<u64>();
                    let out = load_vec4(dtype, tensor, index);
                    let grad = load_vec4(config.dtype, grad_out.reinterpret(), index);
                    sum.update(|sum| (0..4).fold(sum, |sum, i| out[i].fma(grad[i], sum)));
                });
            }
        });
        let delta = k.warp_sum(sum.get());
        k.when(k.lane().eq(0), || {
            let logsumexp = k.var(f32::INFINITY);
            k.when(inside, || logsumexp.set(lse.load(plane.mul_wide(seq) + position.cast())));
            let index = plane.mul_wide(padded) + position.cast::<u64>();
            lse_delta.at(index << 1).store_vec2(0, [logsumexp.get(), delta]);
        });
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
