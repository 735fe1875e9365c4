//! The producer warp.

use retrograph_ptx::build::{Pred, Shared, TensorMapParam, Value};

use super::WarpSpecializedKernel;
use crate::gemm::mainloop::wgmma;
use crate::gemm::operand_tile::OperandTile;
use crate::gemm::params::{EpilogueParams, GemmParams};
use crate::primitives::smem_tile::Major;
use crate::primitives::tma_pipeline::{
    BOX, BOX_WORDS, PipelineState, Stage, TmaPipeline, TmaSource, copy_tile,
};

/// The sources of a stage.
#[derive(Clone, Copy)]
struct Sources<'k> {
    /// The maps of a and b.
    maps: [TensorMapParam<'k>; 2],
    /// The map of the second half of b, if it has its own.
    up_map: Option<TensorMapParam<'k>>,
    /// Whether b has a lo term, for split operands.
    b_has_lo: Option<Pred<'k>>,
}

impl WarpSpecializedKernel {
    /// Fills the stages of all tiles of the block.
    pub(super) fn produce<'k>(self, pipeline: &TmaPipeline<'k>, params: &GemmParams<'k>) {
        let k = &params.m.kernel();
        let state = PipelineState::new(k);
        let up_map = match params.epilogue {
            EpilogueParams::Glu(glu) => Some(glu.up_b_map),
            _ => None,
        };
        let b_has_lo = params.split.map(|split| split.b_has_lo);
        let bytes = self.copied_bytes(params);
        // With split-K, the contraction of a plane of split operands starts here.
        let first_k = (self.terms() > 1).then(|| k.ctaid_z() * params.k);
        self.for_each_tile(k, params, |tile| {
            let maps = tile.product.maps.expect("operands have maps");
            let first = ([maps.a, maps.b], params.k);
            let added = tile.product.added.into_iter().flatten();
            let added = added.map(|product| (product.maps, product.k));
            let mut share = self.share_of_k(&tile.product);
            for (maps, k_len) in [first].into_iter().chain(added) {
                let (start, end) = match (first_k, &mut share) {
                    (Some(first), _) => (first, first + k_len),
                    (None, Some(share)) => share.of_next_product(k_len),
                    (None, None) => (k.constant(0), k_len),
                };
                k.range(start, end, wgmma::TILE_K, |k_start| {
                    pipeline.fill(state, bytes, |stage, full| {
                        let sources = Sources { maps, up_map, b_has_lo };
                        self.fill_stage(stage, sources, full, tile.origin, k_start);
                    });
                });
            }
            if share.is_some() {
                self.wait_for_sum(k);
            }
            match params.epilogue {
                EpilogueParams::Linear | EpilogueParams::QkvRope(_) => {}
                EpilogueParams::Glu(_) => {
                    for _ in 0..self.result_stages() {
                        pipeline.fill(state, 0, |_, _| ());
                    }
                }
                EpilogueParams::GluBackward(glu) => {
                    self.fill_inputs(pipeline, state, glu.input_maps, tile.origin);
                }
            }
        });
    }

    /// Bytes that TMA copies to a stage of a and b. Boxes of a end with its last row, and the lo
    /// term of b may be missing.
    fn copied_bytes<'k>(self, params: &GemmParams<'k>) -> Value<'k, u32> {
        let k = params.m.kernel();
        let [a, b] = self.tiles().map(|tile| tile.smem.bytes());
        let a = match self.majors[0] {
            Major::K => params.m.min(BOX) * (self.terms() * a / BOX),
            Major::Mn => k.constant(self.terms() * a),
        };
        match params.split {
            Some(split) => a + split.b_has_lo.select(k.constant(2 * b), b),
            None => a + self.terms() * b,
        }
    }

    /// Copies a stage of a and b. The lo term of b is copied only if there is one.
    fn fill_stage<'k>(
        self,
        stage: Stage<'k>,
        Sources { maps: [a_map, b_map], up_map, b_has_lo }: Sources<'k>,
        full: Shared<'k, u64>,
        [row, column]: [Value<'k, u32>; 2],
        k_start: Value<'k, u32>,
    ) {
        let ([a, b], k) = (self.operands(stage), k_start.kernel());
        let [rows, columns] = self.tile.shape;
        let copy = |tile: OperandTile,
                    operand: usize,
                    to: Shared<'k, u32>,
                    map,
                    blocks,
                    start: Value<'k, u32>| {
            for term in 0..self.terms() {
                let to = to.offset(i64::from(term * self.tiles()[operand].smem.words()));
                // Planes are the products of a batch, or the terms of a split operand.
                let plane = if self.terms() == 1 { k.ctaid_z() } else { k.constant(term) };
                let source = TmaSource { map, plane, blocks };
                let copy = || {
                    copy_tile(tile.smem, source, to, full, |[x, y]| match tile.major {
                        Major::K => [k_start + x, start + y],
                        Major::Mn => [start + x, k_start + y],
                    });
                };
                match b_has_lo {
                    Some(b_has_lo) if (operand, term) == (1, 1) => k.when(b_has_lo, copy),
                    _ => copy(),
                }
            }
        };
        let tile = |extent, operand: usize| {
            OperandTile::swizzled([extent, wgmma::TILE_K], 1, self.majors[operand])
        };
        copy(tile(rows, 0), 0, a, a_map, None, row);
        let boxes = columns.div_ceil(BOX);
        assert!(boxes.is_multiple_of(self.cluster.m), "blocks of a cluster copy equal shares of b");
        let copy_b = |b: Shared<'k, u32>, map| {
            // Each block multicasts its share of the boxes.
            let share = boxes / self.cluster.m;
            let (first, blocks) = match self.cluster.m {
                1 => (k.constant(0), None),
                blocks => (k.cluster_ctarank() * share, Some((1u16 << blocks) - 1)),
            };
            let to = b.at(first * BOX_WORDS);
            copy(tile(share * BOX, 1), 1, to, map, blocks, column + first * BOX);
        };
        copy_b(b, b_map);
        if let Some(up_map) = up_map {
            copy_b(b.offset(i64::from(boxes * BOX_WORDS)), up_map);
        }
    }

    /// Fills input stages with gate and up of a tile, 64 columns at a time.
    fn fill_inputs<'k>(
        self,
        pipeline: &TmaPipeline<'k>,
        state: PipelineState<'k>,
        maps: [TensorMapParam<'k>; 2],
        [row, column]: [Value<'k, u32>; 2],
    ) {
        let plane = row.kernel().constant(0);
        let tile = self.input_tile();
        for first in (0..self.tile.shape[1]).step_by(BOX as usize) {
            pipeline.fill(state, 2 * tile.bytes(), |stage, full| {
                for (map, to) in maps.into_iter().zip(self.inputs(stage)) {
                    let source = TmaSource { map, plane, blocks: None };
                    copy_tile(tile, source, to, full, |[x, y]| [column + first + x, row + y]);
                }
            });
        }
    }
}
