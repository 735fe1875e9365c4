//! Loader that copies an operand into a stage by `cp.async`, 16 bytes at a time.
//!
//! While tensor cores run, a warp has few issue slots left for address arithmetic. So everything
//! that does not depend on the stage is computed once. If possible, each copy costs only one
//! addition and one comparison ([`FirstCopy`]).

use retrograph_kernel_abi::DType;
use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Pred, Ptr, Shared, Value, Var};

use crate::gemm::operand_tile::BlockOperand;
use crate::primitives::arith::div_const;
use crate::primitives::smem_tile::{CHUNK_BYTES, Major, SmemLayout};

/// A thread's share of copying an operand: the same chunk of several lines.
pub(in crate::gemm) struct CpAsyncLoader<'k> {
    target: SmTarget,
    source: BlockOperand<'k>,
    /// Address of the current plane.
    base: Var<'k, u64>,
    /// The first line of this thread, and its chunk of every line.
    line: Value<'k, u32>,
    chunk: Value<'k, u32>,
    /// Distance in lines between copies.
    line_stride: u32,
    first_copy: Option<FirstCopy<'k>>,
}

/// The global position of the thread's first `cp.async`. Later copies are at constant offsets from
/// it, and out-of-bounds copies read nothing.
struct FirstCopy<'k> {
    /// Bytes from the start of the plane.
    bytes: Value<'k, u64>,
    /// Rows or columns of the operand from this position on.
    remaining: Value<'k, u32>,
    /// Index along K within a tile, and the last valid index along K in the operand.
    k_offset: Value<'k, u32>,
    last_k: Value<'k, u32>,
}

impl<'k> FirstCopy<'k> {
    fn new(source: &BlockOperand<'k>, line: Value<'k, u32>, chunk: Value<'k, u32>) -> Self {
        let BlockOperand { tile, operand, origin, bounds: [extent, k_len] } = *source;
        let size = tile.smem.dtype.bytes();
        let (unit, along) = (CHUNK_BYTES / size, chunk * (CHUNK_BYTES / size));
        let (position, k_offset, last_k) = match tile.major {
            Major::K => (origin + line, along, k_len - unit),
            Major::Mn => (origin + along, line, k_len - 1),
        };
        let [run, element] = match tile.major {
            Major::K => [position, k_offset],
            Major::Mn => [k_offset, position],
        };
        let bytes = (run.mul_wide(operand.leading_dim) << size.ilog2()) + element.mul_wide(size);
        Self { bytes, remaining: extent.max(position) - position, k_offset, last_k }
    }
}

impl<'k> CpAsyncLoader<'k> {
    /// The share of `thread`, one of `source.tile.threads`, in copying `source`.
    pub(in crate::gemm) fn new(
        k: &Kernel<'k>,
        target: SmTarget,
        thread: Value<'k, u32>,
        source: BlockOperand<'k>,
    ) -> Self {
        let tile = source.tile;
        let chunks = tile.smem.chunks_per_line();
        let line_stride = tile.threads / chunks;
        assert!(tile.threads.is_multiple_of(chunks), "a thread keeps its chunk of a line");
        let keeps_swizzle =
            matches!(tile.smem.layout, SmemLayout::Padded(_)) || line_stride.is_multiple_of(8);
        assert!(keeps_swizzle, "a thread keeps its position among eight lines");
        let (base, _) = source.operand.start(k);
        let (line, chunk) = (div_const(thread, chunks), thread & (chunks - 1));
        // If a run spans several lines, a thread must have the same lines in each part of it.
        let constant_offsets =
            tile.smem.runs.is_multiple_of(line_stride) || tile.smem.run_of_line(line).is_none();
        let direct =
            constant_offsets && tile.smem.dtype == DType::Bf16 && target.features().cp_async;
        let first_copy = direct.then(|| FirstCopy::new(&source, line, chunk));
        Self { target, source, base: k.var(base), line, chunk, line_stride, first_copy }
    }

    /// Advances to the next index of the outer reduction, if `wraps`.
    pub(in crate::gemm) fn advance_reduction(&self, wraps: Pred<'k>) {
        self.source.advance_reduction(self.base, wraps);
    }

    /// Starts copying the tile at `k_start` to `stage`. Out-of-bounds chunks are zero-filled
    /// without a read; if `enabled` is false, all chunks are.
    pub(in crate::gemm) fn copy(
        &self,
        k_start: Value<'k, u32>,
        stage: Shared<'k, u32>,
        enabled: Option<Pred<'k>>,
    ) {
        let tile = self.source.tile;
        let smem = stage.at(tile.smem.chunk_word(self.line, self.chunk));
        let direct = self.first_copy.as_ref().map(|copy| (copy, self.locate(copy, k_start)));
        for first in (0..tile.smem.lines()).step_by(self.line_stride as usize) {
            let to = smem.offset(i64::from(first * tile.smem.pitch()));
            let copy = || match direct {
                Some((copy, (from, k_index))) => {
                    self.copy_at_offset(copy, from, k_index, first, enabled, to)
                }
                None => self.copy_chunk(k_start, self.line + first, enabled, to),
            };
            if first + self.line_stride <= tile.smem.lines() {
                copy();
            } else {
                let k = k_start.kernel();
                k.when((self.line + first).lt(tile.smem.lines()), copy);
            }
        }
    }

    /// The address and the index along K of this thread's first copy in the tile at `k_start`.
    fn locate(
        &self,
        copy: &FirstCopy<'k>,
        k_start: Value<'k, u32>,
    ) -> (Value<'k, u64>, Value<'k, u32>) {
        let BlockOperand { tile, operand, .. } = self.source;
        let size = tile.smem.dtype.bytes();
        let k_bytes = match tile.major {
            Major::K => k_start.mul_wide(size),
            Major::Mn => k_start.mul_wide(operand.leading_dim) << size.ilog2(),
        };
        (self.base.get() + copy.bytes + k_bytes, k_start + copy.k_offset)
    }

    /// Copies this thread's chunk `lines` lines after its first one, which is at address `from`.
    fn copy_at_offset(
        &self,
        copy: &FirstCopy<'k>,
        from: Value<'k, u64>,
        k_index: Value<'k, u32>,
        lines: u32,
        enabled: Option<Pred<'k>>,
        to: Shared<'k, u32>,
    ) {
        let BlockOperand { tile, operand, .. } = self.source;
        let (size, runs) = (tile.smem.dtype.bytes(), tile.smem.runs);
        // Offsets in rows or columns, and along K.
        let (across, along_k, from) = match tile.major {
            Major::K => (lines, 0, from + operand.leading_dim.mul_wide(lines * size)),
            Major::Mn => {
                let (across, along_k) = (lines / runs * tile.smem.line_len(), lines % runs);
                let from = from + operand.leading_dim.mul_wide(along_k * size);
                (across, along_k, from + u64::from(across * size))
            }
        };
        let inside = (k_index + along_k).le(copy.last_k);
        let inside = enabled.map_or(inside, |enabled| inside & enabled) & copy.remaining.gt(across);
        to.cp_async(Ptr::<u32>::from_address(from), inside.select(CHUNK_BYTES, 0));
    }

    /// Copies this thread's chunk of `line`.
    fn copy_chunk(
        &self,
        k_start: Value<'k, u32>,
        line: Value<'k, u32>,
        enabled: Option<Pred<'k>>,
        to: Shared<'k, u32>,
    ) {
        let tile = self.source.tile;
        let size = tile.smem.dtype.bytes();
        let unit = CHUNK_BYTES / size;
        let along = self.chunk * unit;
        let (run, along) = match tile.smem.run_of_line(line) {
            Some([run, first]) => (run, first + along),
            None => (line, along),
        };
        let (index, inside) = self.source.index(k_start, run, along, unit);
        let inside = enabled.map_or(inside, |enabled| inside & enabled);
        let from = Ptr::<u32>::from_address(self.base.get() + index.mul_wide(size));
        if self.target.features().cp_async {
            to.cp_async(from, inside.select(CHUNK_BYTES, 0));
        } else {
            to.store_vec4(0, from.load_vec4(0).map(|word| inside.select(word, 0)));
        }
    }
}
