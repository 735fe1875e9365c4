//! Multistage mainloop, with stages in shared memory that `cp.async` prefetches.
//!
//! One barrier per iteration ensures that the current stage has arrived and that the stage to be
//! filled next is no longer read. The loop also covers the outer reduction.
//!
//! With `wgmma`, multiplication is asynchronous: tensor cores still read the previous stage after
//! the barrier, so one fewer stage is prefetched. Loading and dequantizing run between the `wgmma`
//! instructions of a stage, in [`OVERLAP_SLOTS`] slots. After the last instruction they would
//! hardly overlap (docs/hardware/2026-11-22-decoding-between-products).

use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Pred, Shared, Value, Var};

use crate::gemm::loader::cp_async::CpAsyncLoader;
use crate::gemm::loader::nf4::{Dequantize, Nf4Loader};
use crate::gemm::params::GemmParams;
use crate::primitives::arith::div_const;

/// Slots between `wgmma` instructions in which threads do other work.
pub(in crate::gemm) const OVERLAP_SLOTS: u32 = 4;

/// The loop over K.
pub(in crate::gemm) struct Multistage<'k> {
    pub(in crate::gemm) kernel: Kernel<'k>,
    pub(in crate::gemm) target: SmTarget,
    /// Stages in shared memory: at least two, or three if multiplication is asynchronous.
    pub(in crate::gemm) stages: u32,
    /// Elements of a stage along K.
    pub(in crate::gemm) tile_k: u32,
    /// Words of a stage: the tile of a, the tile of b, and NF4 codes.
    pub(in crate::gemm) stage_words: [u32; 3],
    /// Loaders of the operands that are copied.
    pub(in crate::gemm) loaders: Vec<CpAsyncLoader<'k>>,
    /// Loader of b if it is NF4.
    pub(in crate::gemm) nf4_loader: Option<Nf4Loader<'k>>,
    pub(in crate::gemm) smem: Shared<'k, u32>,
    /// Whether multiplication is asynchronous (`wgmma`).
    pub(in crate::gemm) async_mma: bool,
}

/// The position of the loaders along K.
struct LoadState<'k> {
    k_len: Value<'k, u32>,
    /// Stages over K and the outer reduction.
    total: Value<'k, u32>,
    /// The index along K of the next stage to load, and its offset in shared memory.
    k_start: Var<'k, u32>,
    write_slot: Var<'k, u32>,
}

impl<'k> Multistage<'k> {
    /// Runs `multiply` on the tiles of each stage, in order.
    ///
    /// Asynchronous multiplication must wait for the previous stage before it returns, and must
    /// call its second argument with each slot from 0 to [`OVERLAP_SLOTS`].
    pub(in crate::gemm) fn run(
        &self,
        params: &GemmParams<'k>,
        multiply: impl FnOnce([Shared<'k, u32>; 2], &mut dyn FnMut(u32)),
    ) {
        let k = self.kernel;
        let total = div_const(params.k + (self.tile_k - 1), self.tile_k) * params.reduce;
        let [k_start, write_slot, read_slot] = [(); 3].map(|()| k.var(0u32));
        let state = LoadState { k_len: params.k, total, k_start, write_slot };
        // After the barrier of an iteration, the previous stage is no longer read and its slot is
        // filled next. If multiplication is asynchronous, this holds for the stage before it.
        let prefetched = self.stages - if self.async_mma { 2 } else { 1 };
        k.when(total.gt(0), || self.copy_codes(k.constant(0), None, write_slot));
        for stage in 0..prefetched {
            self.load(&state, k.constant(stage));
        }
        self.dequantize_first(total, prefetched, read_slot);
        k.range(0, total, 1, |iteration| {
            if self.target.features().cp_async {
                k.cp_async_wait_group(prefetched - 1);
            }
            if self.async_mma {
                k.fence_proxy_async();
            }
            // The fence waits for loads in flight, and loads cannot move past the barrier, so the
            // scale is loaded between them.
            let scale = self.next_scale(iteration + 2);
            k.barrier();
            let tiles = self.tiles(read_slot);
            if self.async_mma {
                self.advance_slot(read_slot);
                let mut dequantize = None;
                multiply(tiles, &mut |slot| match slot {
                    0 => self.load_predicated(&state, iteration + prefetched),
                    1 => dequantize = self.dequantize(iteration + 1, scale, read_slot),
                    _ => dequantize.iter().for_each(|dequantize| dequantize.store_half(slot - 2)),
                });
            } else {
                self.load(&state, iteration + prefetched);
                multiply(tiles, &mut |_| ());
                self.advance_slot(read_slot);
                k.when((iteration + 1).lt(total), || {
                    self.dequantize_all(iteration + 1, scale, read_slot);
                });
            }
        });
    }

    /// Starts loading stage `stage`, if there is one.
    fn load(&self, state: &LoadState<'k>, stage: Value<'k, u32>) {
        let k = self.kernel;
        k.when(stage.lt(state.total), || {
            self.copy_tiles(state, None);
            k.when((stage + 1).lt(state.total), || {
                self.copy_codes(stage + 1, None, state.write_slot);
            });
        });
        self.commit_group();
    }

    /// [`Self::load`] with predicated copies instead of a branch, for use between `wgmma`
    /// instructions.
    fn load_predicated(&self, state: &LoadState<'k>, stage: Value<'k, u32>) {
        self.copy_tiles(state, Some(stage.lt(state.total)));
        self.copy_codes(stage + 1, Some((stage + 1).lt(state.total)), state.write_slot);
        self.commit_group();
    }

    fn commit_group(&self) {
        if self.target.features().cp_async {
            self.kernel.cp_async_commit_group();
        }
    }

    fn tiles(&self, slot: Var<'k, u32>) -> [Shared<'k, u32>; 2] {
        let a = self.smem.at(slot.get());
        [a, a.offset(i64::from(self.stage_words[0]))]
    }

    /// The tile of b, and the NF4 codes.
    fn b_and_codes(&self, slot: Var<'k, u32>) -> (Shared<'k, u32>, Shared<'k, u32>) {
        let [_, b] = self.tiles(slot);
        (b, b.offset(i64::from(self.stage_words[1])))
    }

    /// Starts copying the tiles of the next stage and advances by a stage; past the end of K, to
    /// the next index of the outer reduction.
    fn copy_tiles(&self, state: &LoadState<'k>, enabled: Option<Pred<'k>>) {
        let tiles = self.tiles(state.write_slot);
        for (loader, tile) in self.loaders.iter().zip(tiles) {
            loader.copy(state.k_start.get(), tile, enabled);
        }
        let next = state.k_start.get() + self.tile_k;
        let wraps = next.ge(state.k_len);
        state.k_start.set(wraps.select(0, next));
        self.loaders.iter().for_each(|loader| loader.advance_reduction(wraps));
        self.advance_slot(state.write_slot);
    }

    /// Starts copying the NF4 codes of a stage. The next commit includes them.
    fn copy_codes(&self, stage: Value<'k, u32>, enabled: Option<Pred<'k>>, slot: Var<'k, u32>) {
        self.nf4_loader
            .iter()
            .for_each(|loader| loader.copy_codes(stage, enabled, self.b_and_codes(slot).1));
    }

    /// Returns the loaded scale and starts loading the scale of stage `stage`.
    fn next_scale(&self, stage: Value<'k, u32>) -> [Value<'k, f32>; 2] {
        let Some(loader) = &self.nf4_loader else { return [self.kernel.constant(0.0); 2] };
        let scale = loader.loaded_scale();
        loader.load_scale(stage);
        scale
    }

    /// Prepares to dequantize a stage with its scale, if b is NF4.
    fn dequantize(
        &self,
        stage: Value<'k, u32>,
        scale: [Value<'k, f32>; 2],
        slot: Var<'k, u32>,
    ) -> Option<Dequantize<'k, '_>> {
        self.nf4_loader.as_ref().map(|loader| {
            let (tile, codes) = self.b_and_codes(slot);
            loader.dequantize(stage, scale, tile, codes)
        })
    }

    fn dequantize_all(
        &self,
        stage: Value<'k, u32>,
        scale: [Value<'k, f32>; 2],
        slot: Var<'k, u32>,
    ) {
        let dequantize = self.dequantize(stage, scale, slot);
        dequantize
            .iter()
            .for_each(|dequantize| (0..2).for_each(|half| dequantize.store_half(half)));
    }

    /// Dequantizes stage 0 before the loop. Each later stage is dequantized one iteration ahead:
    /// the barrier of that iteration ensures that its codes have arrived and that its slot is no
    /// longer read, not even by `wgmma`.
    fn dequantize_first(&self, total: Value<'k, u32>, prefetched: u32, slot: Var<'k, u32>) {
        let (k, first) = (self.kernel, self.kernel.constant(0));
        let Some(loader) = &self.nf4_loader else { return };
        k.when(total.ne(0), || {
            loader.load_scale(first);
            if self.target.features().cp_async {
                k.cp_async_wait_group(prefetched - 1);
            }
            k.barrier();
            let scale = self.next_scale(first + 1);
            self.dequantize_all(first, scale, slot);
        });
    }

    fn advance_slot(&self, slot: Var<'k, u32>) {
        let words: u32 = self.stage_words.iter().sum();
        slot.update(|slot| {
            let next = slot + words;
            next.eq(words * self.stages).select(0, next)
        });
    }
}
