//! The way of an operand from global memory over registers, where it is rounded, into shared
//! memory, eight neighbours at a time.

use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Shared, Value, Var};

use crate::gemm::cargo::{Cargo, Stored};
use crate::gemm::operand::Contiguous;
use crate::gemm::sizes::{Source, over};
use crate::gemm::walk::Carry;

/// Elements that are carried together: 16 bytes in shared memory.
const OCTET: u32 = 8;

/// The part of an operand that a block holds at a time, in the orientation of global memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Panel {
    /// Rows or columns of the tile.
    pub(super) extent: u32,
    /// Length of the contraction in one stage.
    pub(super) depth: u32,
    /// Threads of the block.
    pub(super) threads: u32,
    /// The direction of neighbours.
    pub(super) contiguous: Contiguous,
}

impl Panel {
    /// Number of runs of neighbours, and elements of a run.
    fn runs(self) -> [u32; 2] {
        match self.contiguous {
            Contiguous::Contraction => [self.extent, self.depth],
            Contiguous::Extent => [self.depth, self.extent],
        }
    }

    /// Words from one run to the next in shared memory, with 16 bytes of padding.
    pub(super) fn pitch(self) -> u32 {
        self.runs()[1] / 2 + 4
    }

    /// Words in shared memory.
    pub(super) fn len(self) -> u32 {
        self.runs()[0] * self.pitch()
    }
}

/// One thread's share in carrying an operand: octets at the same place of several runs.
pub(super) struct Carrier<'k> {
    kernel: Kernel<'k>,
    target: SmTarget,
    panel: Panel,
    source: Source<'k>,
    /// Address of the plane of the current summand.
    base: Var<'k, u64>,
    /// The element at that address.
    first: Value<'k, u32>,
    /// First row or column of the tile.
    origin: Value<'k, u32>,
    /// Rows or columns of the operand.
    extent: Value<'k, u32>,
    /// Length of the contraction.
    depth: Value<'k, u32>,
    /// The first run of this thread, and its place in every run.
    run: Value<'k, u32>,
    along: Value<'k, u32>,
    /// Runs from one octet of this thread to the next.
    stride: u32,
    /// What is on its way.
    octets: Vec<Cargo<'k>>,
}

impl<'k> Carrier<'k> {
    /// The share of this thread in the panel that starts at row or column `origin`.
    pub(super) fn new(
        (k, target): (&Kernel<'k>, SmTarget),
        panel: Panel,
        source: Source<'k>,
        (origin, [extent, depth]): (Value<'k, u32>, [Value<'k, u32>; 2]),
    ) -> Self {
        let [runs, length] = panel.runs();
        let across = length / OCTET;
        let stride = panel.threads / across;
        assert!(panel.threads.is_multiple_of(across), "a thread keeps its place in a run");
        assert!(runs.is_multiple_of(stride), "every thread carries as many octets");
        let (base, first) = source.start(k);
        Self {
            kernel: *k,
            target,
            panel,
            source,
            base: k.var(base),
            first,
            origin,
            extent,
            depth,
            run: over(k.tid_x(), across),
            along: (k.tid_x() & (across - 1)) * OCTET,
            stride,
            octets: (0..runs / stride).map(|_| Cargo::new(k, source.stored, OCTET)).collect(),
        }
    }

    /// The place of element `j` of the octet in run `run` of the stage that begins at `start`, for
    /// loads of `width` elements that lie inside as a whole. What lies outside is moved inside.
    fn index(
        &self,
        (start, run): (Value<'k, u32>, Value<'k, u32>),
        (j, width): (u32, u32),
    ) -> Value<'k, u32> {
        let (line, place, last) = match self.panel.contiguous {
            Contiguous::Contraction => {
                let line = (self.origin + run).min(self.extent - 1);
                (line, start + self.along, self.depth)
            }
            Contiguous::Extent => {
                let line = (start + run).min(self.depth - 1);
                (line, self.origin + self.along, self.extent)
            }
        };
        line.mul_add(self.source.leading, self.first) + (place + j).min(last - width)
    }

    /// Runs `work` for each octet with its run.
    fn each(&self, mut work: impl FnMut(Value<'k, u32>, &Cargo<'k>)) {
        for (index, octet) in (0..).zip(&self.octets) {
            work(self.run + index * self.stride, octet);
        }
    }

    /// Makes zero of the elements past the end of the contraction.
    fn pad(&self, (start, run): (Value<'k, u32>, Value<'k, u32>), words: &[Var<'k, u32>]) {
        for (j, word) in (0..).zip(words) {
            match self.panel.contiguous {
                Contiguous::Contraction => {
                    let place = start + self.along + 2 * j;
                    let (one, two) = (place.lt(self.depth), (place + 1).lt(self.depth));
                    word.update(|word| two.select(word, one.select(word & 0xffff, 0)));
                }
                Contiguous::Extent => {
                    let inside = (start + run).lt(self.depth);
                    word.update(|word| inside.select(word, 0));
                }
            }
        }
    }
}

impl<'k> Carry<'k, u32> for Carrier<'k> {
    fn next_summand(&self) {
        self.source.advance(self.base);
    }

    fn fetch(&self, start: Value<'k, u32>) {
        let (base, width) = (self.base.get(), self.source.stored.vector(OCTET));
        let vectors = || {
            self.each(|run, octet| {
                octet.fetch_vectors(base, |j| self.index((start, run), (j, width)));
            });
        };
        if let Stored::Nf4(_) = self.source.stored {
            return vectors();
        }
        self.kernel.when_else(self.source.vectors, vectors, || {
            self.each(|run, octet| octet.fetch_each(base, |j| self.index((start, run), (j, 1))));
        });
    }

    fn put(&self, start: Value<'k, u32>, stage: Shared<'k, u32>) {
        let k = self.kernel;
        let crosses = (start + self.panel.depth).gt(self.depth);
        let pitch = self.panel.pitch();
        let slot = stage.at(self.run * pitch + (self.along >> 1));
        for (index, octet) in (0..).zip(&self.octets) {
            let words: Vec<_> = octet.words(self.target).into_iter().map(|w| k.var(w)).collect();
            let run = self.run + index * self.stride;
            k.when(crosses, || self.pad((start, run), &words));
            let words = [words[0], words[1], words[2], words[3]].map(Var::get);
            slot.offset(i64::from(index * self.stride * pitch)).store_vec4(0, words);
        }
    }
}
