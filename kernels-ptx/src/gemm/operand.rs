//! The way of an operand from global memory over registers into shared memory.

use retrograph_ptx::build::{Kernel, Shared, Value, Var};

use super::cargo::{Cargo, Stored};
use super::sizes::{Source, over};
use super::walk::Carry;

/// The direction in which neighbours of an operand are neighbours in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contiguous {
    /// Along the contraction.
    Contraction,
    /// Along the rows or columns of c.
    Extent,
}

/// The part of an operand that a block holds at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Panel {
    /// Rows or columns of the tile.
    pub(super) extent: u32,
    /// Length of the contraction in one stage.
    pub(super) depth: u32,
    /// Threads of the block.
    pub(super) threads: u32,
}

impl Panel {
    /// Elements between one step of the contraction and the next in shared memory. The padding of 4
    /// keeps quads aligned and puts the two quads that a pair of threads stores into different
    /// banks.
    pub(super) fn pitch(self) -> u32 {
        self.extent + 4
    }

    /// Elements in shared memory.
    pub(super) fn len(self) -> u32 {
        self.pitch() * self.depth
    }

    /// Quads that each thread carries.
    fn quads(self) -> u32 {
        let quads = self.extent * self.depth / 4;
        assert!(quads.is_multiple_of(self.threads), "every thread carries as many quads");
        quads / self.threads
    }
}

/// One thread's share in carrying an operand.
pub(super) struct Carrier<'k> {
    kernel: Kernel<'k>,
    panel: Panel,
    contiguous: Contiguous,
    source: Source<'k>,
    /// Address of the plane of the current summand.
    base: Var<'k, u64>,
    /// Rows or columns of the operand.
    extent: Value<'k, u32>,
    /// Length of the contraction.
    depth: Value<'k, u32>,
    /// The row or column of this thread's quads, or of the first element of each. It may lie
    /// outside.
    position: Value<'k, u32>,
    /// Index of the row, or the column of the quads, moved inside.
    line: Value<'k, u32>,
    /// The first step of the contraction of this thread's first quad, within the stage.
    step: Value<'k, u32>,
    /// Where this thread's first quad goes, within a stage.
    slot: Value<'k, u32>,
    /// Steps of the contraction between one quad of this thread and the next.
    stride: u32,
    /// What is on its way, four elements each.
    quads: Vec<Cargo<'k>>,
}

impl<'k> Carrier<'k> {
    /// The share of this thread in the panel that starts at row or column `origin`.
    pub(super) fn new(
        k: &Kernel<'k>,
        (panel, contiguous): (Panel, Contiguous),
        source: Source<'k>,
        (origin, limits): (Value<'k, u32>, [Value<'k, u32>; 2]),
    ) -> Self {
        let tid = k.tid_x();
        // Threads in pairs take 32 consecutive bytes of a row, or a line of quads across.
        let (local, step, stride) = match contiguous {
            Contiguous::Contraction => {
                assert!(panel.threads.is_multiple_of(2 * panel.extent), "a thread keeps its row");
                let pair = tid >> 1;
                let local = pair & (panel.extent - 1);
                let step = (over(pair, panel.extent) * 2 + (tid & 1)) * 4;
                (local, step, panel.threads / panel.extent * 4)
            }
            Contiguous::Extent => {
                let across = panel.extent / 4;
                assert!(panel.threads.is_multiple_of(across), "a thread keeps its column");
                ((tid & (across - 1)) * 4, over(tid, across), panel.threads / across)
            }
        };
        let [extent, depth] = limits;
        let position = origin + local;
        let line = match contiguous {
            Contiguous::Contraction => position.min(extent - 1) * source.leading,
            Contiguous::Extent => position.min(extent - 4),
        };
        let (base, first) = source.start(k);
        let line = line + first;
        Self {
            kernel: *k,
            panel,
            contiguous,
            source,
            base: k.var(base),
            extent,
            depth,
            position,
            line,
            step,
            slot: step * panel.pitch() + local,
            stride,
            quads: (0..panel.quads()).map(|_| Cargo::new(k, source.stored, 4)).collect(),
        }
    }

    fn each(&self, mut work: impl FnMut(u32, &Cargo<'k>)) {
        for (index, quad) in (0..).zip(&self.quads) {
            work(index, quad);
        }
    }

    /// Four elements at once. The contiguous side is a multiple of 4 long, so that a quad lies
    /// inside or outside as a whole.
    fn fetch_quad(&self, step: Value<'k, u32>, quad: &Cargo<'k>) {
        quad.fetch_vectors(self.base.get(), |_| match self.contiguous {
            Contiguous::Contraction => self.line + step.min(self.depth - 4),
            Contiguous::Extent => step.min(self.depth - 1).mul_add(self.source.leading, self.line),
        });
    }

    /// Four elements one by one.
    fn fetch_four(&self, step: Value<'k, u32>, quad: &Cargo<'k>) {
        let (last, end) = (self.depth - 1, self.extent - 1);
        quad.fetch_each(self.base.get(), |j| match self.contiguous {
            Contiguous::Contraction => self.line + (step + j).min(last),
            Contiguous::Extent => {
                step.min(last).mul_add(self.source.leading, (self.position + j).min(end))
            }
        });
    }
}

impl<'k> Carry<'k, f32> for Carrier<'k> {
    fn next_summand(&self) {
        self.source.advance(self.base);
    }

    fn fetch(&self, start: Value<'k, u32>) {
        let first = start + self.step;
        let quads = || self.each(|i, quad| self.fetch_quad(first + i * self.stride, quad));
        if let Stored::Nf4(_) = self.source.stored {
            return quads();
        }
        let fours = || self.each(|i, quad| self.fetch_four(first + i * self.stride, quad));
        self.kernel.when_else(self.source.vectors, quads, fours);
    }

    /// What lies past the end of the contraction becomes zero. What lies past the last row or
    /// column stays a copy of something inside, since it ends in elements of c that are not
    /// written.
    fn put(&self, start: Value<'k, u32>, stage: Shared<'k, f32>) {
        let first = start + self.step;
        let crosses = (start + self.panel.depth).gt(self.depth);
        let values: Vec<Vec<Var<'k, f32>>> = (self.quads.iter())
            .map(|quad| quad.floats().into_iter().map(|value| self.kernel.var(value)).collect())
            .collect();
        self.kernel.when(crosses, || {
            for (index, quad) in (0..).zip(&values) {
                for (j, var) in (0..).zip(quad) {
                    let ahead = if self.contiguous == Contiguous::Contraction { j } else { 0 };
                    let inside = (first + (index * self.stride + ahead)).lt(self.depth);
                    var.update(|value| inside.select(value, 0.0));
                }
            }
        });
        let slot = stage.at(self.slot);
        let pitch = i64::from(self.panel.pitch());
        for (index, quad) in (0u32..).zip(&values) {
            let place = slot.offset(i64::from(index * self.stride) * pitch);
            let values = [quad[0], quad[1], quad[2], quad[3]].map(Var::get);
            match self.contiguous {
                Contiguous::Extent => place.store_vec4(0, values),
                Contiguous::Contraction => {
                    for (j, value) in (0..).zip(values) {
                        place.offset(j * pitch).store(0, value);
                    }
                }
            }
        }
    }
}
