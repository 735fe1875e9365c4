//! LoRA: `y += s·(x·Aᵀ)·Bᵀ` with low-rank factors A (`rank × width`) and B (`width × rank`).
//!
//! | Entries | Formula | Used for |
//! |---|---|---|
//! | `lora_shrink*` | `t = α·x·Aᵀ` or `α·dy·B` | forward pass; gradient of t |
//! | `lora_expand*` | `y (+)= α·Σ t·Bᵀ` or `α·Σ dt·A` | forward pass; gradient of x |
//! | `lora_grad*` | `dB = α·dyᵀ·t` or `dA = α·dtᵀ·x` | gradients of the factors |
//!
//! Names end in `_a` or `_b`, the factor that the entry reads or computes. A launch handles up to
//! three adapters of the same rank that share the wide operand (`rows × width`). Each kernel reads
//! that operand once; its bytes are the lower bound of the time.
//!
//! All arithmetic is f32 by fused multiply-adds. With ranks around 16 the kernels are memory-bound,
//! so tensor cores would cost accuracy and gain nothing.
//!
//! **Determinism.** Split-K depends only on the sizes of the problem. Threads add in ascending
//! order, and splits are added in ascending order.

pub(crate) mod dora;
mod expand;
mod grad;
mod shrink;

use retrograph_kernel_abi::lora::{self as abi, LoraMatrix, MAX_ADAPTERS};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{ModuleBuilder, Pred, Ptr, Scalar, Value};

/// Ranks that a block processes at a time in `expand` and `grad`.
const RANK_TILE: u32 = abi::grad::RANKS;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    let mut module = ModuleBuilder::new(target);
    for &factor in LoraMatrix::ALL {
        for wide in [false, true] {
            module = module.entry(shrink::entry(factor, wide));
        }
        module = module.entry(expand::entry(factor)).entry(grad::entry(factor));
    }
    module.build()
}

/// One rank of one adapter, from its index among the ranks of all adapters.
#[derive(Clone, Copy)]
struct Rank<'k> {
    /// Whether it belongs to the second or a later adapter, and whether to the third.
    later: [Pred<'k>; MAX_ADAPTERS - 1],
    /// Its index within the adapter.
    number: Value<'k, u32>,
}

impl<'k> Rank<'k> {
    /// Rank `number` of all adapters, if each adapter has `each` ranks.
    fn of(number: Value<'k, u32>, each: Value<'k, u32>) -> Self {
        let later = [number.ge(each), number.ge(each * 2)];
        let before = later[1].select(each * 2, later[0].select(each, 0));
        Self { later, number: number - before }
    }

    /// The pointer of its adapter.
    fn select_ptr(self, pointers: [Ptr<'k, f32>; MAX_ADAPTERS]) -> Ptr<'k, f32> {
        Ptr::from_address(self.select(pointers.map(|pointer| pointer.address())))
    }

    /// The value of its adapter.
    fn select<T: Scalar>(
        self,
        [first, second, third]: [Value<'k, T>; MAX_ADAPTERS],
    ) -> Value<'k, T> {
        self.later[1].select(third, self.later[0].select(second, first))
    }
}

/// Whether all rows of `array`, `width` elements long, are 16-byte aligned.
fn rows_aligned<'k>(array: Ptr<'k, f32>, width: Value<'k, u32>) -> Pred<'k> {
    crate::primitives::vec4::aligned(&[array]) & (width & 3).eq(0)
}
