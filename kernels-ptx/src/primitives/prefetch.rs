//! Prefetch of the weights of the next launch to the L2 cache, so that memory stays busy across the
//! kernel boundary.

use retrograph_kernel_abi::Any;
use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Pred, Ptr, Value};

/// Maximum bytes that a block prefetches.
const MAX_BLOCK_BYTES: u32 = 32 << 10;
/// Bytes of a cache line.
const CACHE_LINE: u32 = 128;

/// The weights of the next launch.
#[derive(Clone, Copy)]
pub(crate) struct NextWeights<'k> {
    /// The first element.
    pub(crate) start: Ptr<'k, Any>,
    /// Their bytes; 0 for none.
    pub(crate) bytes: Value<'k, u32>,
}

impl<'k> NextWeights<'k> {
    /// Prefetches if `condition` holds and the target has PDL. Each block prefetches a part, spaced
    /// like the parts that the next launch's blocks read first.
    pub(crate) fn prefetch(self, k: &Kernel<'k>, target: SmTarget, condition: Pred<'k>) {
        if !target.features().pdl {
            return;
        }
        let Self { start, bytes } = self;
        k.when(condition & k.tid_x().eq(0), || {
            let stride_bytes = (bytes / k.nctaid_x()) & !(CACHE_LINE - 1);
            k.when(stride_bytes.ne(0), || {
                let from = start.reinterpret::<u32>().at((stride_bytes * k.ctaid_x()) >> 2);
                from.cp_async_bulk_prefetch_l2(stride_bytes.min(MAX_BLOCK_BYTES));
            });
        });
    }
}
