//! Warp-specialized f32 mainloop: `wgmma` with three tf32 products per f32 product.
//!
//! Operands are split as in [`tf32x3`](super::tf32x3), and products are added in the same order.
//! Two groups of producer threads fill the stages (`wgmma_tf32x3/producer.rs`) with a unchanged,
//! and b split into hi and lo tiles, which all consumers read through descriptors. A consumer
//! warpgroup computes 64 rows and all columns of the tile. It loads its rows of a as fragments,
//! splits them in registers and passes them to `wgmma` from there.
//!
//! The products of a stage run asynchronously, one half of the columns at a time, and accumulate
//! from zero; the result is then added to the accumulators in f32. Tensor cores work for one
//! warpgroup while another one adds and splits: the other warpgroups start when the first one has
//! finished its first half.
//!
//! **Synchronization.** Each stage has one full barrier per warpgroup, so that warpgroups do not
//! wait for each other, and one empty barrier. There is no barrier for the whole block. Producers
//! execute `fence.proxy.async`; in consumers it would wait for loads in flight.
//!
//! **Limits.** sm_90a. A block runs a multiple of [`STAGES`] stages, so that each has a fixed slot
//! in shared memory. Past the end of K, a is zero, and b repeats elements of the same column, which
//! are NaN only if the results of the column are NaN anyway.
//!
//! `setmaxnreg` is not used: the driver ignores it when it links for its cache, and the
//! accumulators would spill.

mod producer;

use retrograph_kernel_abi::gemm::WGMMA_TF32X3_BLOCK_K;
use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, NamedBarrier, Pred, Shared, Value, Var};

use super::tf32x3::{FragmentLoader, STEPS};
use crate::gemm::accumulator::{AccFragment, WarpTile, acc_row};
use crate::gemm::epilogue::Epilogue;
use crate::gemm::kernel::multistage::MultistageKernel;
use crate::gemm::loader::cp_async::CpAsyncLoader;
use crate::gemm::loader::tf32_split::Tf32SplitLoader;
use crate::gemm::params::GemmParams;
use crate::primitives::arith::div_const;
use crate::primitives::swizzle::{LINE_WORDS, align_for_swizzle};
use crate::primitives::tf32::{Split, split};
use crate::primitives::wgmma::{ROWS, WARPGROUP_THREADS as WARPGROUP};
use producer::Producer;

/// Elements of a stage along K: a line of shared memory.
pub(in crate::gemm) const TILE_K: u32 = WGMMA_TF32X3_BLOCK_K;
const _: () = assert!(TILE_K == LINE_WORDS, "a stage is a line of shared memory");
/// Stages in shared memory.
pub(in crate::gemm) const STAGES: u32 = 4;
/// Threads per producer group, and number of groups. They follow the consumer threads of the block.
pub(in crate::gemm) const PRODUCER_THREADS: u32 = 64;
const PRODUCER_GROUPS: u32 = 2;
/// Fragments of a that are loaded before the previous products are complete. Only afterwards are
/// there enough free registers for all of them.
const PREFETCHED_FRAGMENTS: u32 = 3;

/// Words of shared memory.
pub(in crate::gemm) fn words(kernel: MultistageKernel) -> u32 {
    (kernel.tiles()[0].smem.words() + Tf32SplitLoader::words(kernel.tile.shape[1])) * STAGES
}

/// Threads of a block.
fn threads(kernel: MultistageKernel) -> u32 {
    let producers = PRODUCER_THREADS * PRODUCER_GROUPS;
    assert_eq!(producers, kernel.tile.wgmma_producers(), "the launch has all producer threads");
    kernel.threads() + producers
}

/// Blocks that fit on an SM, limited by shared memory.
fn min_blocks_per_sm(kernel: MultistageKernel) -> u32 {
    /// Shared memory that the driver reserves per block.
    const RESERVED: u32 = 1024;
    let smem_per_sm = kernel.target.features().smem_bytes_per_block + RESERVED;
    smem_per_sm / (kernel.smem_bytes() + RESERVED)
}

/// The stages in shared memory, and the barriers that guard them.
#[derive(Clone, Copy)]
struct Stages<'k> {
    kernel: Kernel<'k>,
    /// The hi and lo tiles of b, and the tile of a, of the first stage.
    smem: [Shared<'k, u32>; 2],
    words: [u32; 2],
    /// Consumer warpgroups.
    warpgroups: u32,
    /// Number of stages that a block runs, and number of those that hold elements.
    count: Value<'k, u32>,
    filled: Value<'k, u32>,
}

impl<'k> Stages<'k> {
    fn new(k: &Kernel<'k>, kernel: MultistageKernel, params: &GemmParams<'k>) -> Self {
        let words = [Tf32SplitLoader::words(kernel.tile.shape[1]), kernel.tiles()[0].smem.words()];
        let b = align_for_swizzle(k, k.dynamic_shared());
        let a = b.offset(i64::from(words[0] * STAGES));
        let filled = div_const(params.k + (TILE_K - 1), TILE_K) * params.reduce;
        let count = (filled + (STAGES - 1)) & !(STAGES - 1);
        let warpgroups = kernel.threads() / WARPGROUP;
        Self { kernel: *k, smem: [b, a], words, warpgroups, count, filled }
    }

    /// The stages from stage `first` on.
    fn skip(self, first: Value<'k, u32>) -> Self {
        let [b, a] = self.smem;
        let smem = [b.at(first * self.words[0]), a.at(first * self.words[1])];
        Self { smem, ..self }
    }

    /// The hi and lo tiles of b in stage `stage`.
    fn b(&self, stage: u32) -> Shared<'k, u32> {
        self.smem[0].offset(i64::from(stage * self.words[0]))
    }

    /// The tile of a in stage `stage`.
    fn a(&self, stage: u32) -> Shared<'k, u32> {
        self.smem[1].offset(i64::from(stage * self.words[1]))
    }

    /// The full barrier of stage `stage` for `warpgroup`.
    fn full(&self, stage: Value<'k, u32>, warpgroup: Value<'k, u32>) -> NamedBarrier<'k> {
        NamedBarrier { id: warpgroup * STAGES + stage + 1, threads: WARPGROUP + PRODUCER_THREADS }
    }

    /// The empty barrier of stage `stage`.
    fn empty(&self, stage: Value<'k, u32>) -> NamedBarrier<'k> {
        let threads = WARPGROUP * self.warpgroups + PRODUCER_THREADS;
        NamedBarrier { id: stage + (1 + STAGES * self.warpgroups), threads }
    }

    /// The barrier at which the other warpgroups wait for the first one.
    fn stagger(&self) -> NamedBarrier<'k> {
        let id = self.kernel.constant(1 + STAGES * (self.warpgroups + 1));
        NamedBarrier { id, threads: WARPGROUP * self.warpgroups }
    }
}

/// Builds the entry `name`.
pub(in crate::gemm) fn entry(kernel: MultistageKernel, name: &str) -> Entry {
    Kernel::build(name, |k| {
        k.max_threads(threads(kernel));
        k.min_blocks(min_blocks_per_sm(kernel));
        let params = GemmParams::declare(k, &kernel.image);
        let (params, origin) = params.of_block(k, kernel.tile.shape);
        let stages = Stages::new(k, kernel, &params);
        k.when_else(
            k.tid_x().ge(kernel.threads()),
            || {
                let thread = k.tid_x() & (PRODUCER_THREADS - 1);
                let [a, b] = params.block_operands(kernel.tiles(), origin);
                let a = CpAsyncLoader::new(k, kernel.target, thread, a);
                let b = Tf32SplitLoader::new(k, thread, b);
                Producer::new(stages, a, b, params.k).run();
            },
            || {
                let warp_tile = WarpTile::of_warpgroup(k, ROWS);
                let acc = Consumer::new(stages, kernel, &warp_tile).run();
                let epilogue = Epilogue { kernel: *k, bf16_target: None, params, origin };
                let smem = stages.smem[0].reinterpret();
                kernel.write_through_smem(&epilogue, smem, &warp_tile, &[acc]);
            },
        );
    })
}

/// A consumer warpgroup.
struct Consumer<'k> {
    stages: Stages<'k>,
    a_loader: FragmentLoader<'k>,
    columns: u32,
    /// Index of this warpgroup.
    warpgroup: Value<'k, u32>,
    /// Accumulators in f32, and the `wgmma` accumulators of one half of the columns.
    acc: Vec<AccFragment<'k>>,
    stage_acc: Vec<AccFragment<'k>>,
}

impl<'k> Consumer<'k> {
    fn new(stages: Stages<'k>, kernel: MultistageKernel, warp_tile: &WarpTile<'k>) -> Self {
        let [rows, columns] = kernel.tile.shape;
        assert_eq!(rows * 2, kernel.threads(), "a warpgroup has 64 rows");
        let k = &stages.kernel;
        let [acc, stage_acc] = [columns, columns / 2].map(|columns| acc_row(k, columns));
        // The broadcast tells the compiler that the value is warp-uniform.
        let warpgroup = k.shfl_idx(div_const(k.tid_x(), WARPGROUP), 0);
        let a_loader = FragmentLoader::new(k, kernel.tiles()[0], warp_tile.origin[0], true);
        Self { stages, a_loader, columns, warpgroup, acc, stage_acc }
    }

    /// Multiplies all stages and returns the accumulators.
    fn run(self) -> Vec<AccFragment<'k>> {
        let (k, count) = (self.stages.kernel, self.stages.count);
        k.range(0, count, STAGES, |first| {
            let (not_first, not_last) = (first.gt(0), (first + STAGES).lt(count));
            (0..STAGES).for_each(|stage| self.multiply(stage, [not_first, not_last]));
        });
        k.wgmma_wait_group(0);
        self.add_half(1);
        self.acc
    }

    /// Multiplies stage `stage` of a round over all slots, and releases the previous stage.
    /// `not_first` and `not_last` hold if there is a round before and after this one.
    fn multiply(&self, stage: u32, [not_first, not_last]: [Pred<'k>; 2]) {
        let k = self.stages.kernel;
        k.bar_sync(self.stages.full(k.constant(stage), self.warpgroup), None);
        let a = self.stages.a(stage);
        let load =
            |from: u32, to: u32| (from..to).map(|step| self.a_loader.load(a, [0, step * STEPS]));
        let mut a_fragments: Vec<_> = load(0, PREFETCHED_FRAGMENTS).collect();
        k.wgmma_wait_group(0);
        a_fragments.extend(load(PREFETCHED_FRAGMENTS, TILE_K / STEPS));
        let previous = k.constant((stage + STAGES - 1) % STAGES);
        let awaited = if stage == 0 { not_first } else { not_last };
        k.bar_arrive(self.stages.empty(previous), Some(awaited));
        self.add_half(1);
        let a_fragments: Vec<_> = a_fragments.into_iter().map(split).collect();
        let staggered = stage == 0 && self.stages.warpgroups > 1;
        if staggered {
            k.bar_sync(self.stages.stagger(), Some(self.warpgroup.ne(0) & !not_first));
        }
        self.start_half(stage, 0, &a_fragments);
        k.wgmma_wait_group(0);
        if staggered {
            k.bar_arrive(self.stages.stagger(), Some(self.warpgroup.eq(0) & !not_first));
        }
        self.add_half(0);
        self.start_half(stage, 1, &a_fragments);
    }

    /// Starts the products of one half of the columns of stage `stage`.
    fn start_half(&self, stage: u32, half: u32, a_fragments: &[Split<'k, 4>]) {
        let k = self.stages.kernel;
        let stage_acc: Vec<Var<'k, f32>> = self.stage_acc.iter().flatten().copied().collect();
        let b = Tf32SplitLoader::descriptors(self.stages.b(stage), self.columns, half);
        k.wgmma_fence();
        for (step, [hi, lo]) in (0u32..).zip(a_fragments) {
            // Small products come first, so that truncation loses the least.
            for (a_part, b_part, first) in [(lo, 0, true), (hi, 1, false), (hi, 0, false)] {
                let b_step = b[b_part].offset(step * STEPS * 4);
                let from_zero = step == 0 && first;
                k.wgmma_mma_async_tf32(*a_part, b_step, &stage_acc, from_zero);
            }
        }
        k.wgmma_commit_group();
    }

    /// Adds the products of one half of the columns to the accumulators.
    fn add_half(&self, half: usize) {
        let acc = self.acc.iter().flatten().skip(half * self.stage_acc.len() * 4);
        for (sum, stage_sum) in acc.zip(self.stage_acc.iter().flatten()) {
            sum.add_assign(stage_sum.get());
        }
    }
}
