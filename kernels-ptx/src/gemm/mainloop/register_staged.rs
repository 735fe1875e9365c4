//! Register-staged mainloop.
//!
//! While one stage in shared memory is multiplied, the next one is in flight from global memory to
//! registers. The loop also covers the outer reduction.

use retrograph_ptx::build::{Kernel, Scalar, Shared, Value, Var};

use crate::gemm::params::GemmParams;
use crate::primitives::arith::div_const;

/// Loads an operand into shared memory, stage by stage.
pub(in crate::gemm) trait LoadStage<'k, T> {
    /// Advances to the next index of the outer reduction.
    fn advance_reduction(&self);

    /// Starts loading the stage at `k_start`, which is within K, into registers. Addresses are
    /// clamped to the bounds. Does not use loaded values, so it does not wait for them.
    fn load(&self, k_start: Value<'k, u32>);

    /// Stores the loaded stage at `k_start` to shared memory.
    fn store(&self, k_start: Value<'k, u32>, stage: Shared<'k, T>);
}

/// The loop over K.
pub(in crate::gemm) struct RegisterStaged<'k, T, L> {
    pub(in crate::gemm) kernel: Kernel<'k>,
    /// Stages in shared memory, one or two.
    pub(in crate::gemm) stages: u32,
    /// Elements of a stage along K.
    pub(in crate::gemm) tile_k: u32,
    /// Elements of `smem` per operand in a stage.
    pub(in crate::gemm) tile_lens: [u32; 2],
    pub(in crate::gemm) loaders: [L; 2],
    pub(in crate::gemm) smem: Shared<'k, T>,
}

impl<'k, T: Scalar, L: LoadStage<'k, T>> RegisterStaged<'k, T, L> {
    /// Runs `multiply` on each stage, in order.
    pub(in crate::gemm) fn run(
        &self,
        params: &GemmParams<'k>,
        multiply: impl FnOnce(Shared<'k, T>),
    ) {
        let nonempty = params.k.ne(0) & params.reduce.ne(0);
        self.kernel.when(nonempty, || self.run_stages(params.k, params.reduce, multiply));
    }

    fn run_stages(
        &self,
        k_len: Value<'k, u32>,
        reduce: Value<'k, u32>,
        multiply: impl FnOnce(Shared<'k, T>),
    ) {
        let k = self.kernel;
        let stages = div_const(k_len + (self.tile_k - 1), self.tile_k) * reduce;
        let stage_len = self.tile_lens[0] + self.tile_lens[1];
        let k_start = k.var(0u32);
        let current = k.var(0u32);
        // One more iteration than stages: iteration s loads stage s and multiplies stage s − 1.
        k.range(0, stages + 1, 1, |iteration| {
            let more = iteration.lt(stages);
            k.when(more, || self.load(k_start.get()));
            k.when(iteration.ne(0), || multiply(self.smem.at(current.get())));
            if self.stages == 2 {
                current.update(|offset| stage_len - offset);
            } else {
                // All threads must have read the only stage before it is overwritten.
                k.barrier();
            }
            k.when(more, || {
                self.store(k_start.get(), self.smem.at(current.get()));
                self.advance(k_start, k_len);
            });
            k.barrier();
        });
    }

    /// Advances by one stage; past the end of K, to the next index of the outer reduction.
    fn advance(&self, k_start: Var<'k, u32>, k_len: Value<'k, u32>) {
        k_start.add_assign(self.tile_k);
        self.kernel.when(k_start.get().ge(k_len), || {
            k_start.set(0);
            self.loaders.iter().for_each(L::advance_reduction);
        });
    }

    fn load(&self, k_start: Value<'k, u32>) {
        self.loaders.iter().for_each(|loader| loader.load(k_start));
    }

    fn store(&self, k_start: Value<'k, u32>, stage: Shared<'k, T>) {
        self.loaders[0].store(k_start, stage);
        self.loaders[1].store(k_start, stage.offset(i64::from(self.tile_lens[0])));
    }
}
