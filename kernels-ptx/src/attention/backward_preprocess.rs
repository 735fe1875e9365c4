//! Backward preprocess: interleaves the logsumexp of each query with delta = grad_out·out.
//!
//! One warp per row, which it reads in vec4s; a butterfly adds the lanes.

use retrograph_kernel_abi::DType;
use retrograph_kernel_abi::attention::{FlashPreprocessParameters, PREPROCESS_WARPS};
use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::Kernel;

use super::config::Config;
use crate::primitives::bf16::{pack, unpack};
use crate::primitives::parameters::Declarations;
use crate::primitives::thread_group::ThreadGroup;

/// The entry, for heads of any dimension.
pub(super) fn entry(config: Config) -> Entry {
    let Config { target, dtype, .. } = config;
    Kernel::build(config.family().preprocess.entry(), |k| {
        let group = ThreadGroup::Warp { per_block: PREPROCESS_WARPS };
        k.max_threads(group.block_threads());
        let parameters = FlashPreprocessParameters::declare(&mut Declarations(*k));
        let FlashPreprocessParameters { out, grad_out, lse, lse_delta, .. } = parameters;
        let FlashPreprocessParameters { count, seq, heads, head_dim, .. } = parameters;

        let row = group.row(k);
        k.return_if(row.ge(count));
        let start = row.mul_wide(head_dim);
        let (out, grad_out) = (out.at(start), grad_out.at(start));
        let sum = k.var(0.0f32);
        k.range(k.lane() * 4, head_dim, 128, |i| {
            let (out, mut grad) = (out.load_vec4(i), grad_out.load_vec4(i));
            // Rounded like the operand of the product from which delta is subtracted.
            if dtype == DType::Bf16 {
                let [a, b, c, d] = grad;
                let pairs = [[a, b], [c, d]].map(|pair| unpack(pack(target, pair)));
                grad = [0, 1, 2, 3].map(|i: usize| pairs[i / 2][i % 2]);
            }
            sum.update(|sum| (0..4).fold(sum, |sum, i| out[i].fma(grad[i], sum)));
        });
        let delta = k.warp_sum(sum.get());
        // From [batch, seq, heads] to [batch, heads, seq].
        let (token, head) = (row / heads, row % heads);
        let index = (token / seq * heads + head) * seq + token % seq;
        k.when(k.lane().eq(0), || {
            let pair = lse_delta.reinterpret::<u64>().at(index).reinterpret::<f32>();
            pair.store_vec2(0, [lse.load(index), delta]);
        });
    })
}
