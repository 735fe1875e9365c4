//! Loss functions.

pub(crate) mod cross_entropy;
pub(crate) mod mean;

use retrograph_kernel_abi::loss::{CROSS_ENTROPY, CROSS_ENTROPY_BF16};
use retrograph_ptx::SmTarget;

/// The entries that may use dynamic shared memory, with the most bytes.
pub(crate) fn dynamic_shared(target: SmTarget) -> [(&'static str, u32); 2] {
    let bytes = cross_entropy::smem_bytes(target);
    [&CROSS_ENTROPY, &CROSS_ENTROPY_BF16].map(|kernel| (kernel.block_per_row(), bytes))
}
