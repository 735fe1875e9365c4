//! The producer thread.

use retrograph_ptx::build::{Shared, TensorMapParam, Value};

use super::WarpSpecializedKernel;
use crate::gemm::mainloop::wgmma;
use crate::gemm::operand_tile::OperandTile;
use crate::gemm::params::{EpilogueParams, GemmParams};
use crate::primitives::smem_tile::Major;
use crate::primitives::tma_pipeline::{BOX, PipelineState, Stage, TmaPipeline, copy_tile};

impl WarpSpecializedKernel {
    /// Fills the stages of all tiles of the block.
    pub(super) fn produce<'k>(self, pipeline: &TmaPipeline<'k>, params: &GemmParams<'k>) {
        let k = &params.m.kernel();
        let maps = params.maps.expect("operands have maps");
        let state = PipelineState::new(k);
        let up_map = match params.epilogue {
            EpilogueParams::SwiGlu(swiglu) => Some(swiglu.up_b_map),
            _ => None,
        };
        let first = ([maps.a, maps.b], params.k);
        let added = params.added.into_iter().flatten().map(|product| (product.maps, product.k));
        let products: Vec<_> = [first].into_iter().chain(added).collect();
        self.for_each_tile(k, params, |tile| {
            for (maps, k_len) in products {
                k.range(0, k_len, wgmma::TILE_K, |k_start| {
                    pipeline.fill(state, self.stage_words() * 4, |stage, full| {
                        self.fill_stage(stage, (maps, up_map), full, (tile.origin, k_start));
                    });
                });
            }
            match params.epilogue {
                EpilogueParams::Linear => {}
                EpilogueParams::SwiGlu(_) => {
                    for _ in 0..self.result_stages() {
                        pipeline.fill(state, 0, |_, _| ());
                    }
                }
                EpilogueParams::SwiGluBackward(swiglu) => {
                    self.fill_inputs(pipeline, state, (swiglu.input_maps, tile.origin));
                }
            }
        });
    }

    /// Copies a stage of a and b. With `up_map`, the second half of b is copied from there.
    fn fill_stage<'k>(
        self,
        stage: Stage<'k>,
        ([a_map, b_map], up_map): ([TensorMapParam<'k>; 2], Option<TensorMapParam<'k>>),
        full: Shared<'k, u64>,
        ([row, column], k_start): ([Value<'k, u32>; 2], Value<'k, u32>),
    ) {
        let ([a, b], k) = (self.operands(stage), k_start.kernel());
        let [rows, columns] = self.tile.shape;
        let copy = |(tile, operand): (OperandTile, usize),
                    to: Shared<'k, u32>,
                    (map, blocks),
                    start: Value<'k, u32>| {
            for part in 0..self.parts() {
                let to = to.offset(i64::from(part * self.tiles()[operand].smem.words()));
                // Planes are products of a batch, or the parts of a split operand.
                let plane = if self.parts() == 1 { k.ctaid_z() } else { k.constant(part) };
                let source = (map, plane, blocks);
                copy_tile((tile.smem, to), source, full, |[x, y]| match tile.major {
                    Major::K => [k_start + x, start + y],
                    Major::Mn => [start + x, k_start + y],
                });
            }
        };
        let tile = |extent, operand: usize| {
            OperandTile::swizzled([extent, wgmma::TILE_K], 1, self.majors[operand])
        };
        copy((tile(rows, 0), 0), a, (a_map, None), row);
        // Each block copies a share of b to all blocks.
        let (share, blocks) = (tile(columns / self.cluster, 1), 1u16 << self.cluster);
        let (column, words, blocks) = match self.cluster {
            1 => (column, k.constant(0), None),
            _ => {
                let rank = k.cluster_ctarank();
                (column + rank * share.extent, rank * share.smem.words(), Some(blocks - 1))
            }
        };
        copy((share, 1), b.at(words), (b_map, blocks), column);
        if let Some(up_map) = up_map {
            let up = b.offset(i64::from(tile(columns, 1).smem.words()));
            copy((share, 1), up.at(words), (up_map, blocks), column);
        }
    }

    /// Fills stages with gate and up of a tile, 64 columns at a time.
    fn fill_inputs<'k>(
        self,
        pipeline: &TmaPipeline<'k>,
        state: PipelineState<'k>,
        (maps, [row, column]): ([TensorMapParam<'k>; 2], [Value<'k, u32>; 2]),
    ) {
        let plane = row.kernel().constant(0);
        let tile = self.input_tile();
        for first in (0..self.tile.shape[1]).step_by(BOX as usize) {
            pipeline.fill(state, 2 * tile.bytes(), |stage, full| {
                for (map, to) in maps.into_iter().zip(self.inputs(stage)) {
                    copy_tile((tile, to), (map, plane, None), full, |[x, y]| {
                        [column + first + x, row + y]
                    });
                }
            });
        }
    }
}
