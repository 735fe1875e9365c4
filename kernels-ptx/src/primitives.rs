//! Building blocks that kernels of several families share.

pub(crate) mod arith;
pub(crate) mod bf16;
pub(crate) mod eight;
pub(crate) mod f16;
pub(crate) mod gated;
pub(crate) mod gelu;
pub(crate) mod input;
pub(crate) mod mma;
pub(crate) mod nf4;
pub(crate) mod output;
/// Parameter lists, declared in a kernel.
pub(crate) mod parameters {
    pub(crate) use retrograph_kernel_abi::{Declarations, FlagSet};
}
pub(crate) mod pdl;
pub(crate) mod philox;
pub(crate) mod prefetch;
pub(crate) mod reduce;
pub(crate) mod registers;
pub(crate) mod rope;
pub(crate) mod row_registers;
pub(crate) mod sigmoid;
pub(crate) mod smem_tile;
pub(crate) mod softcap;
pub(crate) mod split_row;
pub(crate) mod swizzle;
pub(crate) mod tensor_list;
pub(crate) mod tf32;
pub(crate) mod thread_group;
pub(crate) mod tma_pipeline;
pub(crate) mod vec4;
pub(crate) mod wgmma;
