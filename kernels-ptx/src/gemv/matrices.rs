//! The parameters of a launch, and the mapping of row tiles to its matrices.

use std::array;

use retrograph_kernel_abi::DType;
use retrograph_kernel_abi::gemv::{
    GemvFlags, GemvForm, GemvLayer, GemvLora, GemvParameters, MAX_LAYERS,
};
use retrograph_ptx::build::{Kernel, Pred, Ptr, Value};

use super::{Config, ROWS};
use crate::primitives::nf4::Nf4;
use crate::primitives::parameters::{Declarations, FlagSet};
use crate::primitives::prefetch::NextWeights;

/// One matrix with its bias and output.
#[derive(Clone, Copy)]
struct Matrix<'k> {
    w: Value<'k, u64>,
    bias: Value<'k, u64>,
    y: Value<'k, u64>,
    outputs: Value<'k, u32>,
}

impl<'k> Matrix<'k> {
    fn select(self, condition: Pred<'k>, other: Self) -> Self {
        Self {
            w: condition.select(self.w, other.w),
            bias: condition.select(self.bias, other.bias),
            y: condition.select(self.y, other.y),
            outputs: condition.select(self.outputs, other.outputs),
        }
    }
}

/// The parameters of a launch.
#[derive(Clone)]
pub(super) struct Matrices<'k> {
    pub(super) k: Kernel<'k>,
    config: Config,
    pub(super) x: Ptr<'k, f32>,
    pub(super) gamma: Ptr<'k, f32>,
    all: Vec<Matrix<'k>>,
    /// The first tile of each matrix.
    starts: Vec<Value<'k, u32>>,
    scales: Vec<Nf4<'k>>,
    pub(super) inputs: Value<'k, u32>,
    pub(super) eps: Value<'k, f32>,
    pub(super) alpha: Value<'k, f32>,
    pub(super) flags: FlagSet<'k, GemvFlags>,
    /// Number of tiles.
    pub(super) tiles: Value<'k, u32>,
    next_weights: NextWeights<'k>,
}

/// A row of a matrix.
#[derive(Clone, Copy)]
pub(super) struct Row<'k> {
    pub(super) address: Value<'k, u64>,
    /// Index of its first element in the whole matrix, for NF4 scales.
    pub(super) start: Value<'k, u32>,
    pub(super) scales: Option<Nf4<'k>>,
}

/// The rows that one warp (or S warps) handles.
#[derive(Clone, Copy)]
pub(super) struct RowTile<'k> {
    /// Rows past the end repeat the last row; their results are not written.
    pub(super) rows: [Row<'k>; ROWS],
    /// The first output.
    pub(super) first: Value<'k, u32>,
    pub(super) outputs: Value<'k, u32>,
    /// Bias of the output, and of the gated row; may be null.
    pub(super) biases: [Ptr<'k, f32>; 2],
    pub(super) y: Ptr<'k, f32>,
    /// Elements to add per row: all, or 0 for a tile past the end.
    pub(super) length: Value<'k, u32>,
    /// Whether the matrix is one of the additional f32 matrices.
    pub(super) is_f32: Option<Pred<'k>>,
}

impl<'k> Matrices<'k> {
    /// Declares the parameters.
    pub(super) fn declare(k: &Kernel<'k>, config: Config) -> Self {
        let GemvParameters {
            x,
            gamma,
            layers,
            lora,
            prefetch,
            prefetch_bytes,
            inputs,
            eps,
            alpha,
            flags,
        } = GemvParameters::declare(&mut Declarations(*k), config.dtype);
        let tables = (config.dtype == DType::Nf4).then(|| Nf4::tables(k, MAX_LAYERS as u32));
        let (mut all, mut scales) = (Vec::new(), Vec::new());
        for GemvLayer { w, scales: scales_of_w, bias, y, outputs } in layers {
            let index = all.len() as u32;
            scales.extend(
                tables.zip(scales_of_w).map(|(tables, scales)| Nf4::new(k, scales, index, tables)),
            );
            let [w, bias, y] = [w.address(), bias.address(), y.address()];
            all.push(Matrix { w, bias, y, outputs });
        }
        for GemvLora { a, t, rank } in lora {
            let (w, bias, y) = (a.address(), k.constant(0u64), t.address());
            all.push(Matrix { w, bias, y, outputs: rank });
        }
        // A gated launch has one pair of matrices. The NF4 image takes no f32 matrices.
        let used = match (config.variant, config.dtype) {
            (GemvForm::Gated, _) => 1,
            (_, DType::Nf4) => MAX_LAYERS,
            _ => all.len(),
        };
        let (mut starts, mut tiles) = (Vec::new(), k.constant(0u32));
        for matrix in &all[..used] {
            starts.push(tiles);
            let outputs = config.variant.tile_outputs();
            tiles = tiles + ((matrix.outputs + (outputs - 1)) >> outputs.ilog2());
        }
        Self {
            k: *k,
            config,
            x,
            gamma,
            all,
            starts,
            scales,
            inputs,
            eps,
            alpha,
            flags,
            tiles,
            next_weights: NextWeights { start: prefetch, bytes: prefetch_bytes },
        }
    }

    /// Prefetches weights of the next launch if `condition` holds.
    pub(super) fn prefetch_next(&self, condition: Pred<'k>) {
        self.next_weights.prefetch(&self.k, self.config.target, condition);
    }

    /// Fills the NF4 tables, if there are any.
    pub(super) fn fill_tables(&self) {
        if !self.scales.is_empty() {
            Nf4::fill_all_tables(&self.scales);
        }
    }

    /// Tile `tile_index`; it has length 0 past the end.
    pub(super) fn tile(&self, tile_index: Value<'k, u32>) -> RowTile<'k> {
        let Self { config, all, starts, .. } = self;
        let (mut matrix, mut start) = (all[0], starts[0]);
        let mut scales = self.scales.first().copied();
        for at in 1..starts.len() {
            let reached = tile_index.ge(starts[at]);
            matrix = all[at].select(reached, matrix);
            start = reached.select(starts[at], start);
            let of_matrix = self.scales.get(at).zip(scales);
            let selected = of_matrix.map(|(nf4, before)| nf4.select(reached, before));
            scales = selected.or(scales);
        }
        let first = (tile_index - start) << config.variant.tile_outputs().ilog2();
        let is_f32 = starts.get(MAX_LAYERS).map(|start| tile_index.ge(*start));
        let is_f32 = is_f32.filter(|_| config.dtype != DType::F32);
        let gated = config.variant == GemvForm::Gated;
        let up_matrix = if gated { all[1] } else { matrix };
        let rows = array::from_fn(|row| {
            let (pair_half, row) = (row / 2, row as u32);
            let (matrix, scales, output) = match (gated, pair_half) {
                (true, 1) => (up_matrix, self.scales.get(1).copied(), first + (row - 2)),
                _ => (matrix, scales, first + row),
            };
            self.row(matrix, scales, output, is_f32)
        });
        let null = self.k.constant(0u64);
        let biases = [matrix.bias, if gated { up_matrix.bias } else { null }];
        RowTile {
            rows,
            first,
            outputs: matrix.outputs,
            biases: biases.map(Ptr::from_address),
            y: Ptr::from_address(matrix.y),
            length: tile_index.lt(self.tiles).select(self.inputs, 0),
            is_f32,
        }
    }

    fn row(
        &self,
        matrix: Matrix<'k>,
        scales: Option<Nf4<'k>>,
        output: Value<'k, u32>,
        is_f32: Option<Pred<'k>>,
    ) -> Row<'k> {
        let k = self.k;
        let element = output.min(matrix.outputs - 1).mul_wide(self.inputs);
        let (bytes, start) = match self.config.dtype {
            DType::F32 => (element << 2, k.constant(0)),
            DType::Bf16 => (element << 1, k.constant(0)),
            // Codes and scales are addressed by the index in the whole matrix.
            DType::Nf4 => (k.constant(0u64), element.cast()),
            other => unreachable!("no GEMV reads a matrix in {other}"),
        };
        let bytes = is_f32.map_or(bytes, |is_f32| is_f32.select(element << 2, bytes));
        Row { address: matrix.w + bytes, start, scales }
    }
}
