//! The tile of an operand in a stage, and its layouts in global and shared memory.

use retrograph_kernel_abi::DType;
use retrograph_kernel_abi::gemm::Layout;
use retrograph_ptx::build::{Pred, Value, Var};

use super::params::GlobalOperand;
use crate::primitives::smem_tile::{Major, SmemLayout, SmemTile};

/// The dimensions of a and b along which elements are contiguous in `layout`.
pub(super) const fn majors(layout: Layout) -> [Major; 2] {
    match layout {
        Layout::Nt => [Major::K, Major::K],
        Layout::Nn => [Major::K, Major::Mn],
        Layout::Tn => [Major::Mn, Major::Mn],
    }
}

/// The tile of one operand in a stage.
#[derive(Clone, Copy, Debug)]
pub(super) struct OperandTile {
    /// Rows of a, or columns of b.
    pub(super) extent: u32,
    /// Elements along K.
    pub(super) tile_k: u32,
    /// Threads that load the tile.
    pub(super) threads: u32,
    /// The orientation in global memory.
    pub(super) major: Major,
    pub(super) smem: SmemTile,
}

impl OperandTile {
    /// A tile of `extent` × `tile_k` elements in the orientation of global memory, padded for
    /// `ldmatrix` and scalar loads.
    ///
    /// 16 bytes of padding map the eight rows of an `ldmatrix` matrix to different banks. 32 bytes
    /// do so for the four runs from which the lanes of a warp read single f32 elements.
    pub(super) fn padded(
        [extent, tile_k]: [u32; 2],
        threads: u32,
        major: Major,
        dtype: DType,
    ) -> Self {
        let by_element = dtype == DType::F32 && major == Major::Mn;
        let layout = SmemLayout::Padded(if by_element { 8 } else { 4 });
        let [runs, length] = runs([extent, tile_k], major);
        let smem = SmemTile { runs, length, dtype, layout };
        Self { extent, tile_k, threads, major, smem }
    }

    /// A swizzled tile of 16-bit elements for `wgmma`, in the orientation of global memory.
    pub(super) fn swizzled([extent, tile_k]: [u32; 2], threads: u32, major: Major) -> Self {
        let smem = SmemTile::swizzled_16_bit(runs([extent, tile_k], major));
        Self { extent, tile_k, threads, major, smem }
    }

    /// An f32 tile with K outermost in shared memory. The padding of 4 elements keeps vec4s aligned
    /// and maps the two vec4s that a pair of threads stores to different banks.
    pub(super) fn k_outer([extent, tile_k]: [u32; 2], threads: u32, major: Major) -> Self {
        Self { extent, tile_k, threads, major, smem: SmemTile::f32([tile_k, extent], 4) }
    }
}

/// The number of contiguous runs of an operand tile, and the elements of a run.
fn runs([extent, tile_k]: [u32; 2], major: Major) -> [u32; 2] {
    match major {
        Major::K => [extent, tile_k],
        Major::Mn => [tile_k, extent],
    }
}

/// The rows of a (or columns of b) that a block reads, tile by tile along K.
#[derive(Clone, Copy)]
pub(super) struct BlockOperand<'k> {
    pub(super) tile: OperandTile,
    pub(super) operand: GlobalOperand<'k>,
    /// First row or column of the block.
    pub(super) origin: Value<'k, u32>,
    /// Rows or columns of the operand, and length of K.
    pub(super) bounds: [Value<'k, u32>; 2],
}

impl<'k> BlockOperand<'k> {
    /// The index of `unit` consecutive elements in the tile at `k_start`, starting at element
    /// `along` of run `run`, and whether they are in bounds.
    pub(super) fn index(
        &self,
        k_start: Value<'k, u32>,
        run: Value<'k, u32>,
        along: Value<'k, u32>,
        unit: u32,
    ) -> (Value<'k, u32>, Pred<'k>) {
        self.coord(run, along, unit).index(k_start)
    }

    /// The coordinates of `unit` consecutive elements, starting at element `along` of run `run`,
    /// clamped to the bounds.
    ///
    /// Reading a clamped row or column is harmless, because its results are not written, but many
    /// threads would read the same address. bf16 tiles therefore report it as out of bounds. f32
    /// tiles do not, because the check would cost more time than it saves.
    pub(super) fn coord(
        &self,
        run: Value<'k, u32>,
        along: Value<'k, u32>,
        unit: u32,
    ) -> TileCoord<'k> {
        let ([extent, k_len], major) = (self.bounds, self.tile.major);
        let checks_extent = self.tile.smem.dtype == DType::Bf16;
        let (position, k_offset, units) = match major {
            Major::K => (self.origin + run, along, [1, unit]),
            Major::Mn => (self.origin + along, run, [unit, 1]),
        };
        let clamped = position.min(extent - units[0]);
        let last_k = k_len - units[1];
        let in_extent = checks_extent.then(|| position.lt(extent));
        let leading_dim = self.operand.leading_dim;
        TileCoord { major, leading_dim, position: clamped, k_offset, last_k, in_extent }
    }

    /// Advances the address of a plane to the next index of the outer reduction, if `wraps`.
    pub(super) fn advance_reduction(&self, base: Var<'k, u64>, wraps: Pred<'k>) {
        let stride = wraps.select(self.operand.reduce_stride, 0);
        base.add_assign(stride.mul_wide(self.tile.smem.dtype.bytes()));
    }
}

/// The coordinates of a few consecutive elements, the same in every tile of an operand.
pub(super) struct TileCoord<'k> {
    major: Major,
    leading_dim: Value<'k, u32>,
    /// Row or column of the operand.
    position: Value<'k, u32>,
    /// Index along K from the start of a tile, and the last valid index in the operand.
    k_offset: Value<'k, u32>,
    last_k: Value<'k, u32>,
    /// Whether the row or column is in bounds, if that is checked.
    in_extent: Option<Pred<'k>>,
}

impl<'k> TileCoord<'k> {
    /// The index in the tile that starts at `k_start`, and whether it is in bounds.
    pub(super) fn index(&self, k_start: Value<'k, u32>) -> (Value<'k, u32>, Pred<'k>) {
        let k_index = k_start + self.k_offset;
        let (inside, k_index) = (k_index.le(self.last_k), k_index.min(self.last_k));
        let index = match self.major {
            Major::K => self.position.mad_lo(self.leading_dim, k_index),
            Major::Mn => k_index.mad_lo(self.leading_dim, self.position),
        };
        (index, self.in_extent.map_or(inside, |in_extent| inside & in_extent))
    }
}
