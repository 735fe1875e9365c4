//! Reductions over a warp and over a block, in a fixed order.

use super::kernel::Kernel;
use super::scalar::{Scalar, Word};
use super::shared::Shared;
use super::value::Value;

/// The most warps that a block may have.
const WARPS: usize = 32;

impl<'k> Kernel<'k> {
    /// The sum over the 32 lanes of the warp, the same bits in every lane. Every lane must execute
    /// it.
    ///
    /// The order is a butterfly: lanes 16 apart first, then 8, 4, 2 and 1.
    #[track_caller]
    pub fn warp_sum<T: Word + PartialEq>(&self, value: Value<'k, T>) -> Value<'k, T> {
        self.warp_reduce(value, |a, b| a + b)
    }

    /// The maximum over the 32 lanes of the warp; NaN is ignored. Every lane must execute it.
    #[track_caller]
    pub fn warp_max<T: Word>(&self, value: Value<'k, T>) -> Value<'k, T> {
        self.warp_reduce(value, |a, b| a.max(b))
    }

    /// The sum over the threads of the block, the same bits in every thread. Every thread of the
    /// block must execute it. Blocks are one-dimensional and consist of whole warps.
    ///
    /// The order is fixed: a butterfly in each warp, then a butterfly over the warps.
    #[track_caller]
    pub fn block_sum<T: Word + PartialEq>(&self, value: Value<'k, T>) -> Value<'k, T> {
        self.block_reduce(value, T::from_bits(T::ZERO), |a, b| a + b)
    }

    /// The maximum over the threads of the block; NaN is ignored. Every thread of the block must
    /// execute it. Blocks are one-dimensional and consist of whole warps.
    #[track_caller]
    pub fn block_max(&self, value: Value<'k, f32>) -> Value<'k, f32> {
        self.block_reduce(value, f32::NEG_INFINITY, |a, b| a.max(b))
    }

    #[track_caller]
    fn warp_reduce<T: Word>(
        &self,
        value: Value<'k, T>,
        combine: impl Fn(Value<'k, T>, Value<'k, T>) -> Value<'k, T>,
    ) -> Value<'k, T> {
        [16, 8, 4, 2, 1].into_iter().fold(value, |value, mask| {
            let other = self.shfl_bfly(value, mask);
            combine(value, other)
        })
    }

    /// Each warp stores its result in shared memory. Then every warp combines all results, so no
    /// broadcast is needed.
    #[track_caller]
    fn block_reduce<T: Word>(
        &self,
        value: Value<'k, T>,
        neutral: T,
        combine: impl Fn(Value<'k, T>, Value<'k, T>) -> Value<'k, T>,
    ) -> Value<'k, T> {
        let scratch = self.scratch::<T>();
        let (lane, warp) = (self.lane(), self.warp());
        let of_warp = self.warp_reduce(value, &combine);
        self.when(lane.eq(0), || scratch.store(warp, of_warp));
        self.barrier();
        let warps = (self.ntid_x() + 31) >> 5;
        let of_lane = self.var(neutral);
        self.when(lane.lt(warps), || of_lane.set(scratch.load(lane)));
        // The next reduction writes the scratch memory again.
        self.barrier();
        self.warp_reduce(of_lane.get(), &combine)
    }

    /// One scratch array serves all reductions of the kernel.
    fn scratch<T: Scalar>(&self) -> Shared<'k, T> {
        const NAME: &str = "reduction_scratch";
        match self.declared(NAME) {
            Some(symbol) => Shared::of(*self, symbol),
            None => self.shared(NAME, WARPS),
        }
    }
}
