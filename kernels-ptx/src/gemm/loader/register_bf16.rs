//! Register-staged loader for bf16 tiles. Loads eight consecutive elements from global memory to
//! registers, converts them to bf16 and stores them to shared memory.

use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Shared, Value, Var};

use super::vector::{LoadedVector, OperandFormat};
use crate::gemm::mainloop::register_staged::LoadStage;
use crate::gemm::operand_tile::{BlockOperand, OperandTile};
use crate::primitives::arith::div_const;
use crate::primitives::smem_tile::{Major, SmemTile};

/// Elements of a vector: 16 bytes in shared memory.
const VECTOR_LEN: u32 = 8;

/// A thread's share of loading an operand: the vectors at the same index of several runs.
pub(in crate::gemm) struct RegisterLoader<'k> {
    kernel: Kernel<'k>,
    target: SmTarget,
    source: BlockOperand<'k>,
    /// Address of the current plane, and the index of its first element.
    base: Var<'k, u64>,
    first: Value<'k, u32>,
    /// The first run of this thread, and its first element in every run.
    run: Value<'k, u32>,
    along: Value<'k, u32>,
    /// Distance in runs between vectors of this thread.
    run_stride: u32,
    /// Vectors in flight.
    vectors: Vec<LoadedVector<'k>>,
}

impl<'k> RegisterLoader<'k> {
    /// This thread's share of `source`, whose tiles are padded bf16.
    pub(in crate::gemm) fn new(k: &Kernel<'k>, target: SmTarget, source: BlockOperand<'k>) -> Self {
        let OperandTile { threads, smem: SmemTile { runs, length, .. }, .. } = source.tile;
        let across = length / VECTOR_LEN;
        let run_stride = threads / across;
        assert!(threads.is_multiple_of(across), "a thread keeps its elements of a run");
        assert!(runs.is_multiple_of(run_stride), "every thread loads the same number of vectors");
        let operand = source.operand;
        let (base, first) = operand.start(k);
        let vector = |_| LoadedVector::new(k, operand.format, VECTOR_LEN);
        Self {
            kernel: *k,
            target,
            source,
            base: k.var(base),
            first,
            run: div_const(k.tid_x(), across),
            along: (k.tid_x() & (across - 1)) * VECTOR_LEN,
            run_stride,
            vectors: (0..runs / run_stride).map(vector).collect(),
        }
    }

    /// The index of element `j` of the vector in run `run` of the tile at `k_start`, clamped so
    /// that a load of `width` elements is in bounds.
    fn index(
        &self,
        k_start: Value<'k, u32>,
        run: Value<'k, u32>,
        j: u32,
        width: u32,
    ) -> Value<'k, u32> {
        let BlockOperand { tile, operand, origin, bounds: [extent, k_len] } = self.source;
        let (line, element, end) = match tile.major {
            Major::K => ((origin + run).min(extent - 1), k_start + self.along, k_len),
            Major::Mn => ((k_start + run).min(k_len - 1), origin + self.along, extent),
        };
        line.mad_lo(operand.leading_dim, self.first) + (element + j).min(end - width)
    }

    /// Runs `body` for each vector with its run.
    fn for_each(&self, body: impl Fn(Value<'k, u32>, &LoadedVector<'k>)) {
        for (index, vector) in (0..).zip(&self.vectors) {
            body(self.run + index * self.run_stride, vector);
        }
    }

    /// Zeroes the elements past the end of K.
    fn zero_past_k(&self, k_start: Value<'k, u32>, run: Value<'k, u32>, words: &[Var<'k, u32>]) {
        let BlockOperand { tile, bounds: [_, k_len], .. } = self.source;
        for (j, word) in (0..).zip(words) {
            match tile.major {
                Major::K => {
                    let k_index = k_start + self.along + 2 * j;
                    let (low, both) = (k_index.lt(k_len), (k_index + 1).lt(k_len));
                    word.update(|word| both.select(word, low.select(word & 0xffff, 0)));
                }
                Major::Mn => {
                    let inside = (k_start + run).lt(k_len);
                    word.update(|word| inside.select(word, 0));
                }
            }
        }
    }
}

impl<'k> LoadStage<'k, u32> for RegisterLoader<'k> {
    fn advance_reduction(&self) {
        self.source.operand.advance_reduction(self.base);
    }

    fn load(&self, k_start: Value<'k, u32>) {
        let operand = self.source.operand;
        let (base, width) = (self.base.get(), operand.format.elements_per_load(VECTOR_LEN));
        let vectors = || {
            self.for_each(|run, vector| {
                vector.load_vectors(base, |j| self.index(k_start, run, j, width));
            });
        };
        if let OperandFormat::Nf4(_) = operand.format {
            return vectors();
        }
        self.kernel.when_else(operand.vectorized, vectors, || {
            self.for_each(|run, vector| {
                vector.load_scalars(base, |j| self.index(k_start, run, j, 1));
            });
        });
    }

    fn store(&self, k_start: Value<'k, u32>, stage: Shared<'k, u32>) {
        let (k, tile) = (self.kernel, self.source.tile);
        let crosses = (k_start + tile.tile_k).gt(self.source.bounds[1]);
        let pitch = tile.smem.pitch();
        let to = stage.at(self.run * pitch + (self.along >> 1));
        for (index, vector) in (0..).zip(&self.vectors) {
            let words: Vec<_> =
                vector.to_bf16(self.target).into_iter().map(|word| k.var(word)).collect();
            let run = self.run + index * self.run_stride;
            k.when(crosses, || self.zero_past_k(k_start, run, &words));
            let words = [words[0], words[1], words[2], words[3]].map(Var::get);
            to.offset(i64::from(index * self.run_stride * pitch)).store_vec4(0, words);
        }
    }
}
