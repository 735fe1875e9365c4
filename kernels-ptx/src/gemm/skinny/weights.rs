//! The weights of a launch, and the vectors of them that a warp has in flight.

use retrograph_kernel_abi::Any;
use retrograph_kernel_abi::gemm::{SKINNY_MAX_LAYERS, SkinnyForm, SkinnyParameters};
use retrograph_ptx::build::{Kernel, Pred, Ptr, Value, Var};

use super::{Config, chunk_stride, first_step};
use crate::primitives::mma::fragment_row;
use crate::primitives::parameters::Declarations;
use crate::primitives::prefetch::NextWeights;
use crate::primitives::registers::{Registers, registers, set};

/// A weight with its bias and output.
#[derive(Clone, Copy)]
pub(super) struct Layer<'k> {
    w: Value<'k, u64>,
    pub(super) bias: Value<'k, u64>,
    pub(super) y: Value<'k, u64>,
    pub(super) outputs: Value<'k, u32>,
    /// The first tile.
    first_tile: Value<'k, u32>,
}

impl<'k> Layer<'k> {
    fn select(self, condition: Pred<'k>, other: Self) -> Self {
        Self {
            w: condition.select(self.w, other.w),
            bias: condition.select(self.bias, other.bias),
            y: condition.select(self.y, other.y),
            outputs: condition.select(self.outputs, other.outputs),
            first_tile: condition.select(self.first_tile, other.first_tile),
        }
    }
}

/// The parameters of a launch.
pub(super) struct Weights<'k> {
    pub(super) config: Config,
    layers: [Layer<'k>; SKINNY_MAX_LAYERS],
    /// Number of tiles.
    pub(super) tiles: Value<'k, u32>,
    pub(super) x: Ptr<'k, Any>,
    pub(super) rows: Value<'k, u32>,
    pub(super) inputs: Value<'k, u32>,
    /// Whether y is added to.
    pub(super) accumulate: Pred<'k>,
    pub(super) next_weights: NextWeights<'k>,
}

impl<'k> Weights<'k> {
    /// Declares the parameters.
    pub(super) fn declare(k: &Kernel<'k>, config: Config) -> Self {
        let parameters = SkinnyParameters::declare(&mut Declarations(*k));
        let SkinnyParameters { x, prefetch, prefetch_bytes, accumulate, .. } = parameters;
        let SkinnyParameters { w0, bias0, y0, w1, bias1, y1, w2, bias2, y2, .. } = parameters;
        let SkinnyParameters { rows, inputs, outputs0, outputs1, outputs2, .. } = parameters;
        let mut tiles = k.constant(0u32);
        let layers =
            [(w0, bias0, y0, outputs0), (w1, bias1, y1, outputs1), (w2, bias2, y2, outputs2)];
        let layers = layers.map(|(w, bias, y, outputs)| {
            let [w, bias, y] = [w.address(), bias.address(), y.address()];
            let first_tile = tiles;
            let tile_outputs = config.form.tile_outputs();
            tiles = tiles + ((outputs + (tile_outputs - 1)) >> tile_outputs.ilog2());
            Layer { w, bias, y, outputs, first_tile }
        });
        // With SwiGLU, a tile has rows of the first two weights.
        let tiles = if config.form == SkinnyForm::SwiGlu { layers[1].first_tile } else { tiles };
        Self {
            config,
            layers,
            tiles,
            x,
            rows,
            inputs,
            accumulate: accumulate.ne(0),
            next_weights: NextWeights { start: prefetch, bytes: prefetch_bytes },
        }
    }

    /// The layers of the two halves of a tile, and the first output of each half. The halves are
    /// in one layer without SwiGLU.
    pub(super) fn halves(&self, tile: Value<'k, u32>) -> [(Layer<'k>, Value<'k, u32>); 2] {
        let [first, second, third] = self.layers;
        let tile_outputs = self.config.form.tile_outputs();
        if self.config.form == SkinnyForm::SwiGlu {
            return [first, second].map(|layer| (layer, tile * tile_outputs));
        }
        let layer = second.select(tile.ge(second.first_tile), first);
        let layer = third.select(tile.ge(third.first_tile), layer);
        let output = (tile - layer.first_tile) * tile_outputs;
        [(layer, output), (layer, output + 8)]
    }
}

/// Loads the vectors of a warp: of all its chunks of a tile, then of its next tile.
pub(super) struct WeightLoader<'k, 'a> {
    k: Kernel<'k>,
    weights: &'a Weights<'k>,
    /// The tile and the first step of the chunks that are loaded next.
    tile: Var<'k, u32>,
    step: Var<'k, u32>,
    /// Two rows of the tile.
    rows: [Var<'k, u64>; 2],
    /// The vectors of both rows, for each chunk in flight.
    in_flight: Vec<[Registers<'k, 4, u32>; 2]>,
}

impl<'k, 'a> WeightLoader<'k, 'a> {
    /// Starts at the first tile of the block.
    pub(super) fn new(k: &Kernel<'k>, weights: &'a Weights<'k>) -> Self {
        let in_flight =
            (0..weights.config.in_flight()).map(|_| [(); 2].map(|()| registers(k, 0u32))).collect();
        let rows = [(); 2].map(|()| k.var(0u64));
        let (tile, step) = (k.var(k.ctaid_x()), k.var(0u32));
        let loader = Self { k: *k, weights, tile, step, rows, in_flight };
        loader.find_rows();
        loader
    }

    /// The loaded vectors of each chunk.
    pub(super) fn chunks(&self) -> impl Iterator<Item = [[Value<'k, u32>; 4]; 2]> {
        self.in_flight.iter().map(|vectors| vectors.map(|words| words.map(Var::get)))
    }

    /// Sets the rows of the lane in the current tile. Rows past the end repeat the last one, whose
    /// results are not written.
    fn find_rows(&self) {
        let row = fragment_row(&self.k);
        let halves = self.weights.halves(self.tile.get());
        for (to, (layer, first)) in self.rows.iter().zip(halves) {
            let row = (first + row).min(layer.outputs - 1);
            to.set(layer.w + (row.mul_wide(self.weights.inputs) << 1));
        }
    }

    /// Starts loading the next group of chunks. Vectors past the end of K or of the tiles are 0.
    pub(super) fn fetch(&self) {
        let Self { k, weights: Weights { config, inputs, tiles, .. }, tile, step, .. } = self;
        let first = step.get() + first_step(k);
        let stride = chunk_stride(k);
        let end = tile.get().lt(*tiles).select(*inputs, 0);
        for (chunk, vectors) in (0..).zip(&self.in_flight) {
            let at = first + stride * chunk;
            let load = || {
                for (words, row) in vectors.iter().zip(self.rows) {
                    let row = Ptr::<u32>::from_address(row.get());
                    set(words, row.load_vec4_streaming(at >> 1));
                }
            };
            let zero = || vectors.iter().flatten().for_each(|word| word.set(0));
            k.when_else(at.lt(end), load, zero);
        }
        step.add_assign(config.group(k));
        k.when(step.get().ge(*inputs), || {
            step.set(0);
            tile.add_assign(k.nctaid_x());
            self.find_rows();
        });
    }
}
