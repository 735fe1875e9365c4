//! Register-staged loader for f32 tiles: global memory to registers to shared memory, transposed
//! so that K is the outermost dimension.

use retrograph_ptx::build::{Kernel, Shared, Value, Var};

use super::vector::{LoadedVector, OperandFormat};
use crate::gemm::arith::div_const;
use crate::gemm::layout::Major;
use crate::gemm::mainloop::register_staged::LoadStage;
use crate::gemm::params::GlobalOperand;

/// One operand of a stage in shared memory, K outermost.
#[derive(Clone, Copy, Debug)]
pub(in crate::gemm) struct KOuterTile {
    /// Rows of a, or columns of b.
    pub(in crate::gemm) extent: u32,
    /// Elements along K.
    pub(in crate::gemm) tile_k: u32,
    /// Threads of the block.
    pub(in crate::gemm) threads: u32,
}

impl KOuterTile {
    /// Elements from one index of K to the next. The padding of 4 keeps vec4s aligned and puts the
    /// two vec4s that a pair of threads stores into different banks.
    pub(in crate::gemm) fn pitch(self) -> u32 {
        self.extent + 4
    }

    /// Elements in shared memory.
    pub(in crate::gemm) fn len(self) -> u32 {
        self.pitch() * self.tile_k
    }

    /// Vec4s that each thread loads.
    fn vec4s_per_thread(self) -> u32 {
        let vec4s = self.extent * self.tile_k / 4;
        assert!(vec4s.is_multiple_of(self.threads), "every thread loads the same number of vec4s");
        vec4s / self.threads
    }
}

/// One thread's share of loading an operand.
pub(in crate::gemm) struct RegisterLoader<'k> {
    kernel: Kernel<'k>,
    tile: KOuterTile,
    major: Major,
    operand: GlobalOperand<'k>,
    /// Address of the current plane.
    base: Var<'k, u64>,
    /// Rows or columns of the operand.
    extent: Value<'k, u32>,
    /// Length of K.
    k_len: Value<'k, u32>,
    /// Row or column of this thread's elements (K-major), or of the first element of each vec4
    /// (MN-major). May be out of bounds.
    position: Value<'k, u32>,
    /// Index of the row (K-major), or the position (MN-major), clamped to the bounds.
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
    /// The share of this thread in the tile that starts at row or column `origin`.
    pub(in crate::gemm) fn new(
        k: &Kernel<'k>,
        (tile, major): (KOuterTile, Major),
        operand: GlobalOperand<'k>,
        (origin, bounds): (Value<'k, u32>, [Value<'k, u32>; 2]),
    ) -> Self {
        let tid = k.tid_x();
        // A pair of threads reads 32 consecutive bytes of a row (K-major), or threads read
        // consecutive vec4s (MN-major).
        let (local, k_offset, k_stride) = match major {
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
        let [extent, k_len] = bounds;
        let position = origin + local;
        let line = match major {
            Major::K => position.min(extent - 1) * operand.leading_dim,
            Major::Mn => position.min(extent - 4),
        };
        let (base, first) = operand.start(k);
        let line = line + first;
        let vec4s = tile.vec4s_per_thread();
        Self {
            kernel: *k,
            tile,
            major,
            operand,
            base: k.var(base),
            extent,
            k_len,
            position,
            line,
            k_offset,
            smem_offset: k_offset * tile.pitch() + local,
            k_stride,
            vec4s: (0..vec4s).map(|_| LoadedVector::new(k, operand.format, 4)).collect(),
        }
    }

    /// Runs `body` for each vec4 with its index along K, from `first` on.
    fn for_each(&self, first: Value<'k, u32>, body: impl Fn(Value<'k, u32>, &LoadedVector<'k>)) {
        for (index, vec4) in (0..).zip(&self.vec4s) {
            body(first + index * self.k_stride, vec4);
        }
    }

    /// Loads a vec4 by one vector. The contiguous dimension is a multiple of 4, so a vec4 is
    /// entirely inside or outside.
    fn load_vector(&self, k_index: Value<'k, u32>, vec4: &LoadedVector<'k>) {
        vec4.load_vectors(self.base.get(), |_| match self.major {
            Major::K => self.line + k_index.min(self.k_len - 4),
            Major::Mn => k_index.min(self.k_len - 1).mad_lo(self.operand.leading_dim, self.line),
        });
    }

    /// Loads a vec4 element by element.
    fn load_scalars(&self, k_index: Value<'k, u32>, vec4: &LoadedVector<'k>) {
        let (last, end) = (self.k_len - 1, self.extent - 1);
        vec4.load_scalars(self.base.get(), |j| match self.major {
            Major::K => self.line + (k_index + j).min(last),
            Major::Mn => {
                k_index.min(last).mad_lo(self.operand.leading_dim, (self.position + j).min(end))
            }
        });
    }
}

impl<'k> LoadStage<'k, f32> for RegisterLoader<'k> {
    fn advance_reduction(&self) {
        self.operand.advance_reduction(self.base);
    }

    fn load(&self, k_start: Value<'k, u32>) {
        let first = k_start + self.k_offset;
        let vectors = || self.for_each(first, |k_index, vec4| self.load_vector(k_index, vec4));
        if let OperandFormat::Nf4(_) = self.operand.format {
            return vectors();
        }
        let scalars = || self.for_each(first, |k_index, vec4| self.load_scalars(k_index, vec4));
        self.kernel.when_else(self.operand.vectorized, vectors, scalars);
    }

    /// Stores zeros past the end of K. Rows and columns past the end keep a copy of another one,
    /// because they only contribute to elements of c that are not written.
    fn store(&self, k_start: Value<'k, u32>, stage: Shared<'k, f32>) {
        let first = k_start + self.k_offset;
        let crosses = (k_start + self.tile.tile_k).gt(self.k_len);
        let values: Vec<Vec<Var<'k, f32>>> = (self.vec4s.iter())
            .map(|vec4| vec4.to_f32().into_iter().map(|value| self.kernel.var(value)).collect())
            .collect();
        self.kernel.when(crosses, || {
            for (index, vec4) in (0..).zip(&values) {
                for (j, var) in (0..).zip(vec4) {
                    let step = if self.major == Major::K { j } else { 0 };
                    let inside = (first + (index * self.k_stride + step)).lt(self.k_len);
                    var.update(|value| inside.select(value, 0.0));
                }
            }
        });
        let to = stage.at(self.smem_offset);
        let pitch = i64::from(self.tile.pitch());
        for (index, vec4) in (0u32..).zip(&values) {
            let to = to.offset(i64::from(index * self.k_stride) * pitch);
            let values = [vec4[0], vec4[1], vec4[2], vec4[3]].map(Var::get);
            match self.major {
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
