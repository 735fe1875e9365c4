//! Register-staged loader for f32 tiles: from global memory through registers to shared memory,
//! transposed so that K is the outermost dimension.

use retrograph_ptx::build::{Kernel, Shared, Value, Var};

use super::vector::{LoadedVector, OperandFormat};
use crate::gemm::mainloop::register_staged::LoadStage;
use crate::gemm::operand_tile::BlockOperand;
use crate::primitives::arith::div_const;
use crate::primitives::smem_tile::Major;

/// A thread's share of loading an operand.
pub(in crate::gemm) struct RegisterLoader<'k> {
    kernel: Kernel<'k>,
    source: BlockOperand<'k>,
    /// Address of the current plane.
    base: Var<'k, u64>,
    /// Row or column of this thread's elements (K-major), or of the first element of each vec4
    /// (MN-major). May be out of bounds.
    position: Value<'k, u32>,
    /// Index of the first element of the row (K-major), or the position (MN-major), clamped to the
    /// bounds.
    line: Value<'k, u32>,
    /// Index along K of this thread's first vec4, within the stage.
    k_offset: Value<'k, u32>,
    /// Index of this thread's first element within a stage in shared memory.
    smem_offset: Value<'k, u32>,
    /// Distance along K between vec4s of this thread.
    k_stride: u32,
    /// Vec4s in flight.
    vec4s: Vec<LoadedVector<'k>>,
}

impl<'k> RegisterLoader<'k> {
    /// This thread's share of `source`, whose tiles have K outermost.
    pub(in crate::gemm) fn new(k: &Kernel<'k>, source: BlockOperand<'k>) -> Self {
        let BlockOperand { tile, operand, origin, bounds: [extent, _] } = source;
        let tid = k.tid_x();
        // A pair of threads reads 32 consecutive bytes of a row (K-major), or threads read
        // consecutive vec4s (MN-major).
        let (local, k_offset, k_stride) = match tile.major {
            Major::K => {
                assert!(tile.threads.is_multiple_of(2 * tile.extent), "a thread keeps its row");
                let pair = tid >> 1;
                let local = pair & (tile.extent - 1);
                let k_offset = (div_const(pair, tile.extent) * 2 + (tid & 1)) * 4;
                (local, k_offset, tile.threads / tile.extent * 4)
            }
            Major::Mn => {
                let across = tile.extent / 4;
                assert!(tile.threads.is_multiple_of(across), "a thread keeps its column");
                ((tid & (across - 1)) * 4, div_const(tid, across), tile.threads / across)
            }
        };
        let position = origin + local;
        let line = match tile.major {
            Major::K => position.min(extent - 1) * operand.leading_dim,
            Major::Mn => position.min(extent - 4),
        };
        let (base, first) = operand.start(k);
        let line = line + first;
        let vec4s = tile.extent * tile.tile_k / 4;
        assert!(vec4s.is_multiple_of(tile.threads), "every thread loads the same number of vec4s");
        let vec4 = |_| LoadedVector::new(k, operand.format, 4);
        Self {
            kernel: *k,
            source,
            base: k.var(base),
            position,
            line,
            k_offset,
            smem_offset: k_offset * tile.smem.pitch() + local,
            k_stride,
            vec4s: (0..vec4s / tile.threads).map(vec4).collect(),
        }
    }

    /// Runs `body` for each vec4 with its index along K; the first vec4 is at `first`.
    fn for_each(&self, first: Value<'k, u32>, body: impl Fn(Value<'k, u32>, &LoadedVector<'k>)) {
        for (index, vec4) in (0..).zip(&self.vec4s) {
            body(first + index * self.k_stride, vec4);
        }
    }

    /// Loads a vec4 by one instruction. The contiguous dimension is a multiple of 4, so a vec4 is
    /// entirely in or out of bounds.
    fn load_vector(&self, k_index: Value<'k, u32>, vec4: &LoadedVector<'k>) {
        let BlockOperand { tile, operand, bounds: [_, k_len], .. } = self.source;
        vec4.load_vectors(self.base.get(), |_| match tile.major {
            Major::K => self.line + k_index.min(k_len - 4),
            Major::Mn => k_index.min(k_len - 1).mad_lo(operand.leading_dim, self.line),
        });
    }

    /// Loads a vec4 element by element.
    fn load_scalars(&self, k_index: Value<'k, u32>, vec4: &LoadedVector<'k>) {
        let BlockOperand { tile, operand, bounds: [extent, k_len], .. } = self.source;
        let (last, end) = (k_len - 1, extent - 1);
        vec4.load_scalars(self.base.get(), |j| match tile.major {
            Major::K => self.line + (k_index + j).min(last),
            Major::Mn => {
                k_index.min(last).mad_lo(operand.leading_dim, (self.position + j).min(end))
            }
        });
    }
}

impl<'k> LoadStage<'k, f32> for RegisterLoader<'k> {
    fn advance_reduction(&self) {
        self.source.operand.advance_reduction(self.base);
    }

    fn load(&self, k_start: Value<'k, u32>) {
        let first = k_start + self.k_offset;
        let vectors = || self.for_each(first, |k_index, vec4| self.load_vector(k_index, vec4));
        if let OperandFormat::Nf4(_) | OperandFormat::SplitF16 { .. } = self.source.operand.format {
            return vectors();
        }
        let scalars = || self.for_each(first, |k_index, vec4| self.load_scalars(k_index, vec4));
        self.kernel.when_else(self.source.operand.vectorized, vectors, scalars);
    }

    /// Stores zeros past the end of K. Rows and columns past the end hold copies of others, because
    /// they only contribute to elements of c that are not written.
    fn store(&self, k_start: Value<'k, u32>, stage: Shared<'k, f32>) {
        let first = k_start + self.k_offset;
        let BlockOperand { tile, bounds: [_, k_len], .. } = self.source;
        let crosses = (k_start + tile.tile_k).gt(k_len);
        let values: Vec<Vec<Var<'k, f32>>> = (self.vec4s.iter())
            .map(|vec4| vec4.to_f32().into_iter().map(|value| self.kernel.var(value)).collect())
            .collect();
        self.kernel.when(crosses, || {
            for (index, vec4) in (0..).zip(&values) {
                for (j, var) in (0..).zip(vec4) {
                    let step = if tile.major == Major::K { j } else { 0 };
                    let inside = (first + (index * self.k_stride + step)).lt(k_len);
                    var.update(|value| inside.select(value, 0.0));
                }
            }
        });
        let to = stage.at(self.smem_offset);
        let pitch = i64::from(tile.smem.pitch());
        for (index, vec4) in (0u32..).zip(&values) {
            let to = to.offset(i64::from(index * self.k_stride) * pitch);
            let values = [vec4[0], vec4[1], vec4[2], vec4[3]].map(Var::get);
            match tile.major {
                Major::Mn => to.store_vec4(0, values),
                Major::K => {
                    for (j, value) in (0..).zip(values) {
                        to.offset(j * pitch).store(0, value);
                    }
                }
            }
        }
    }
}
