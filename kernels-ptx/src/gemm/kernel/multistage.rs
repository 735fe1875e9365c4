//! Multistage GEMM on tensor cores.
//!
//! `cp.async` copies operands into later stages while tensor cores multiply earlier ones. Shared
//! memory is dynamic, because static shared memory is limited to 48 KiB.
//!
//! | a | b | sm_75 | sm_80 and later | sm_90a |
//! |---|---|---|---|---|
//! | bf16 | bf16 | FMA | `mma.sync` | `wgmma` |
//! | bf16 | NF4, dequantized into the stage | FMA | `mma.sync` | `wgmma` |
//! | f32 | f32 | FMA | `mma.sync`, tf32x3 | warp-specialized `wgmma`, tf32x3 |
//!
//! bf16 products accumulate in a single chain along K, so results have the bits of the
//! register-staged bf16 kernel without sliced-K. Targets before sm_80 copy by plain loads and
//! stores.
//!
//! **Limits.** Rows of operands start at multiples of 16 bytes and are multiples of 16 bytes long.

use retrograph_kernel_abi::DType;
use retrograph_kernel_abi::gemm::{GemmImage, Mainloop, TileConfig};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, NamedBarrier, Shared};

use crate::gemm::accumulator::{AccFragment, WarpTile, accumulators};
use crate::gemm::epilogue::{Epilogue, SliceSums};
use crate::gemm::loader::cp_async::CpAsyncLoader;
use crate::gemm::loader::nf4::{self, Nf4Loader};
use crate::gemm::loader::vector::OperandFormat;
use crate::gemm::mainloop::multistage::Multistage;
use crate::gemm::mainloop::{mma_sync, tf32x3, wgmma, wgmma_tf32x3};
use crate::gemm::operand_tile::{BlockOperand, OperandTile, majors};
use crate::gemm::params::{EpilogueParams, GemmParams};
use crate::gemm::squares::TileWarps;
use crate::primitives::smem_tile::Major;
use crate::primitives::swizzle::{SWIZZLE_ALIGNMENT, align_for_swizzle};
use crate::primitives::wgmma::WARPGROUP_THREADS;

/// The configuration of one entry.
#[derive(Clone, Copy)]
pub(in crate::gemm) struct MultistageKernel {
    pub(in crate::gemm) target: SmTarget,
    pub(in crate::gemm) tile: TileConfig,
    /// Warps along M and N.
    warps: [u32; 2],
    /// Elements of a stage along K and number of stages.
    stages: [u32; 2],
    majors: [Major; 2],
    /// The element type in shared memory.
    smem_dtype: DType,
    pub(in crate::gemm) b_dtype: DType,
    pub(in crate::gemm) image: GemmImage,
}

impl MultistageKernel {
    /// The kernel for `tile` in `image`; `None` if `target` does not support it.
    pub(in crate::gemm) fn new(
        target: SmTarget,
        image: &GemmImage,
        tile: &TileConfig,
    ) -> Option<Self> {
        let Mainloop::Multistage { warps, stages: mma_sync_stages, wgmma_stages, .. } =
            tile.mainloop
        else {
            return None;
        };
        let features = target.features();
        let stages = match image.compute {
            DType::F32 if features.wgmma => [wgmma_tf32x3::TILE_K, wgmma_tf32x3::STAGES],
            _ if features.wgmma => [wgmma::TILE_K, wgmma_stages],
            _ => {
                mma_sync_stages[match features.smem_bytes_per_block >> 10 {
                    160.. => 0,
                    99.. => 1,
                    _ => 2,
                }]
            }
        };
        let (majors, smem_dtype, b_dtype) = (majors(image.layout), image.compute, image.b);
        let (tile, image) = (*tile, *image);
        let kernel = Self { target, tile, warps, stages, majors, smem_dtype, b_dtype, image };
        (stages[1] > 0).then_some(kernel)
    }

    fn has_wgmma(self) -> bool {
        self.target.features().wgmma
    }

    fn is_wgmma_tf32x3(self) -> bool {
        self.has_wgmma() && self.smem_dtype == DType::F32
    }

    /// Threads that multiply.
    pub(in crate::gemm) fn threads(self) -> u32 {
        self.tile.threads()
    }

    /// The tiles of a and b in a stage.
    pub(in crate::gemm) fn tiles(self) -> [OperandTile; 2] {
        let tf32x3 = self.is_wgmma_tf32x3();
        let threads = if tf32x3 { wgmma_tf32x3::PRODUCER_THREADS } else { self.threads() };
        [0, 1].map(|operand| {
            let (shape, major) = ([self.tile.shape[operand], self.stages[0]], self.majors[operand]);
            match self.has_wgmma() && !tf32x3 {
                true => OperandTile::swizzled(shape, threads, major),
                false => OperandTile::padded(shape, threads, major, self.smem_dtype),
            }
        })
    }

    /// The warp's tile of c and its accumulators.
    fn accumulators<'k>(self, k: &Kernel<'k>) -> (WarpTile<'k>, Vec<Vec<AccFragment<'k>>>) {
        let (warps, [rows, columns]) = (self.warps, self.tile.shape);
        if self.has_wgmma() {
            let rows = rows / (self.threads() / WARPGROUP_THREADS);
            (WarpTile::of_warpgroup(k, rows), accumulators(k, [rows / 4, columns]))
        } else {
            let warp = [rows / warps[0], columns / warps[1]];
            (WarpTile::of_warp(k, warps, warp), accumulators(k, warp))
        }
    }

    /// The loaders: `cp.async`, and a dequantizing loader if b is NF4.
    fn loaders<'k>(
        self,
        k: &Kernel<'k>,
        [a, b]: [BlockOperand<'k>; 2],
    ) -> (Vec<CpAsyncLoader<'k>>, Option<Nf4Loader<'k>>) {
        let cp_async = |operand| CpAsyncLoader::new(k, self.target, k.tid_x(), operand);
        let a = cp_async(a);
        let OperandFormat::Nf4(nf4) = b.operand.format else {
            return (vec![a, cp_async(b)], None);
        };
        nf4.fill_tables();
        (vec![a], Some(Nf4Loader::new(k, self.target, b, nf4)))
    }

    /// Words of a stage: the tile of a, the tile of b, and NF4 codes.
    fn stage_words(self) -> [u32; 3] {
        let [a, b] = self.tiles();
        let has_codes = self.b_dtype == DType::Nf4;
        let codes = if has_codes { nf4::code_words(self.target, b) } else { 0 };
        [a.smem.words(), b.smem.words(), codes]
    }

    /// Dynamic shared memory in bytes.
    pub(in crate::gemm) fn smem_bytes(self) -> u32 {
        if self.is_wgmma_tf32x3() {
            return wgmma_tf32x3::words(self) * 4 + SWIZZLE_ALIGNMENT;
        }
        let alignment = if self.has_wgmma() { SWIZZLE_ALIGNMENT } else { 0 };
        self.stage_words().iter().sum::<u32>() * self.stages[1] * 4 + alignment
    }

    /// The entry `name`.
    pub(in crate::gemm) fn entry(self, name: &str) -> Entry {
        let Self { target, tile, .. } = self;
        if self.is_wgmma_tf32x3() {
            return wgmma_tf32x3::entry(self, name);
        }
        Kernel::build(name, |k| {
            k.max_threads(self.threads());
            k.min_blocks(tile.min_blocks_per_sm);
            let params = GemmParams::declare(k, &self.image);
            let (params, origin) = params.of_block(k, tile.shape);
            let (warp_tile, acc) = self.accumulators(k);
            let async_mma = self.has_wgmma();
            let smem = k.dynamic_shared();
            let smem = if async_mma { align_for_swizzle(k, smem) } else { smem };
            let mainloop = self.mainloop(k, smem, params.block_operands(self.tiles(), origin));
            self.run(&mainloop, &params, &warp_tile, &acc);
            params.for_each_added(self.majors, |added| {
                self.wait_for_copies(k);
                let mainloop = self.mainloop(k, smem, added.block_operands(self.tiles(), origin));
                self.run(&mainloop, &added, &warp_tile, &acc);
            });
            if let Some(squares) = params.squares {
                let warps = self.threads() / 32;
                let sums = k.shared("square_sums", warps as usize);
                let warps = TileWarps { count: warps, warp: k.warp(), thread: k.tid_x(), sums };
                squares.write(&params, origin, tile.shape, warps, &acc.concat(), || k.barrier());
            }
            match params.epilogue {
                EpilogueParams::Linear => (),
                EpilogueParams::QkvRope(qkv) => {
                    qkv.write(target, &params, &warp_tile, origin, &acc);
                    return;
                }
                EpilogueParams::Glu(glu) => {
                    self.wait_for_copies(k);
                    let (_, up_acc) = self.accumulators(k);
                    let up = params.with_b(glu.up_b);
                    let mainloop = self.mainloop(k, smem, up.block_operands(self.tiles(), origin));
                    self.run(&mainloop, &up, &warp_tile, &up_acc);
                    glu.write(target, &params, &warp_tile, origin, [&acc, &up_acc]);
                    return;
                }
                EpilogueParams::GluBackward(glu) => {
                    glu.write(target, &params, &warp_tile, origin, &acc);
                    return;
                }
            }
            let bf16_target = (self.smem_dtype == DType::Bf16).then_some(target);
            let epilogue = Epilogue { kernel: *k, bf16_target, params, origin };
            if async_mma {
                self.write_through_smem(&epilogue, smem.reinterpret(), &warp_tile, &acc);
                return;
            }
            warp_tile.for_each_pair(k, &acc, |row, column, pair| {
                epilogue.write(row, column, &pair);
            });
        })
    }

    /// Waits until no thread multiplies or copies any more, so that another mainloop can reuse the
    /// stages.
    fn wait_for_copies(self, k: &Kernel<'_>) {
        if self.target.features().cp_async {
            k.cp_async_wait_group(0);
        }
        k.barrier();
    }

    /// The mainloop over `operands`.
    fn mainloop<'k>(
        self,
        k: &Kernel<'k>,
        smem: Shared<'k, u32>,
        operands: [BlockOperand<'k>; 2],
    ) -> Multistage<'k> {
        let [tile_k, stages] = self.stages;
        let (loaders, nf4_loader) = self.loaders(k, operands);
        Multistage {
            kernel: *k,
            target: self.target,
            stages,
            tile_k,
            stage_words: self.stage_words(),
            loaders,
            nf4_loader,
            smem,
            async_mma: self.has_wgmma(),
        }
    }

    /// Runs the mainloop with the multiplication of this kernel.
    fn run<'k>(
        self,
        mainloop: &Multistage<'k>,
        params: &GemmParams<'k>,
        warp_tile: &WarpTile<'k>,
        acc: &[Vec<AccFragment<'k>>],
    ) {
        let (k, target, tile_k) = (&mainloop.kernel, self.target, mainloop.tile_k);
        let tiles = self.tiles();
        match self.smem_dtype {
            DType::Bf16 if mainloop.async_mma => {
                let warpgroup_offset = wgmma::warpgroup_offset(k, acc);
                mainloop.run(params, |stage, overlap| {
                    wgmma::multiply(tiles, stage, warpgroup_offset, acc, overlap);
                });
                k.wgmma_wait_group(0);
                // Zero-filled stages past the end may still arrive; the epilogue reuses the memory.
                k.cp_async_wait_group(0);
            }
            DType::Bf16 => {
                let first_k = k.constant(0);
                let loaders = [0, 1].map(|i| {
                    let origin = warp_tile.origin[i];
                    mma_sync::FragmentLoader::new(k, tiles[i], origin, first_k, i == 0)
                });
                mainloop.run(params, |stage, _| {
                    mma_sync::multiply(k, target, tile_k, &loaders, stage, acc);
                });
            }
            DType::F32 => {
                let loaders = [0, 1]
                    .map(|i| tf32x3::FragmentLoader::new(k, tiles[i], warp_tile.origin[i], i == 0));
                mainloop.run(params, |stage, _| {
                    tf32x3::multiply(k, target, tile_k, &loaders, stage, acc);
                });
            }
            other => unreachable!("no tensor-core kernel multiplies {other}"),
        }
    }

    /// Writes the accumulators to c through shared memory, so that the stores of a warp are
    /// coalesced.
    pub(in crate::gemm) fn write_through_smem<'k>(
        self,
        epilogue: &Epilogue<'k>,
        smem: Shared<'k, f32>,
        warp_tile: &WarpTile<'k>,
        acc: &[Vec<AccFragment<'k>>],
    ) {
        let k = &epilogue.kernel;
        let [rows, columns] = self.tile.shape;
        // The padding maps the four rows of a store to different banks.
        let pitch = columns + 8;
        let fits = rows * pitch * 4 <= self.smem_bytes() - SWIZZLE_ALIGNMENT;
        assert!(fits, "the accumulators fit into the stages");
        let (count, first_row, extent) = (1, 0, [rows, columns]);
        // Threads that only copy may have exited.
        let threads = self.threads();
        let barrier = NamedBarrier { id: k.constant(0), threads };
        // Every warpgroup has waited for its own products; this waits for all of them.
        k.bar_sync(barrier, None);
        warp_tile.store_pairs(k, smem, pitch, acc);
        k.bar_sync(barrier, None);
        epilogue.write_slices(&SliceSums { smem, count, first_row, extent, pitch, threads });
    }
}
