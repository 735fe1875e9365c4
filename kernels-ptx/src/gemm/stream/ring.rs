//! Stages in shared memory that are filled ahead of where they are read.

use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Pred, Ptr, Shared, Value, Var};

use super::Factor;
use super::decoder::Decoder;
use crate::gemm::operand::Contiguous;
use crate::gemm::sizes::{Parameters, Source, over};

/// Bytes of a copy.
pub(super) const COPY: u32 = 16;

/// The part of an operand that a stage holds, in the orientation of global memory.
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
    pub(super) factor: Factor,
    pub(super) lies: Lies,
}

/// How runs lie in shared memory, so that those who read there do not wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lies {
    /// One after another, with padding, for warps.
    Padded,
    /// In lines of 128 bytes with their pieces mixed, for warpgroups
    /// ([`Swizzled`](retrograph_ptx::build::Swizzled)). A stage has a depth of 64, so that a line
    /// holds all of a run along the contraction; of longer runs, each 64 elements have lines of
    /// their own, one such panel after another.
    Swizzled,
}

/// Words of a line of a swizzled panel, and of what is copied at once.
pub(super) const LINE: u32 = 32;
const PIECE: u32 = COPY / 4;

impl Panel {
    /// Number of runs of neighbours, and elements of a run.
    pub(super) fn runs(self) -> [u32; 2] {
        match self.contiguous {
            Contiguous::Contraction => [self.extent, self.depth],
            Contiguous::Extent => [self.depth, self.extent],
        }
    }

    /// Words from one run to the next, with padding: 16 bytes put the eight rows of a matrix load
    /// into different banks, and 32 the four runs from which the lanes of a warp read single
    /// elements.
    pub(super) fn pitch(self) -> u32 {
        if self.lies == Lies::Swizzled {
            return LINE;
        }
        let by_element = self.factor == Factor::Single && self.contiguous == Contiguous::Extent;
        self.runs()[1] * self.factor.bytes() / 4 + if by_element { 8 } else { 4 }
    }

    /// Words in a stage.
    pub(super) fn words(self) -> u32 {
        match self.lies {
            Lies::Padded => self.runs()[0] * self.pitch(),
            Lies::Swizzled => self.extent * self.depth * self.factor.bytes() / 4,
        }
    }

    /// The word where what a run has from element `along` goes.
    pub(super) fn word<'k>(self, run: Value<'k, u32>, along: Value<'k, u32>) -> Value<'k, u32> {
        let word = (along * self.factor.bytes()) >> 2;
        if self.lies == Lies::Padded {
            return run * self.pitch() + word;
        }
        // Each line of a run is in a panel of its own.
        let line = over(word, LINE) * self.runs()[0] + run;
        self.piece(line, over(word & (LINE - 1), PIECE))
    }

    /// Pieces that lie together: a line of a swizzled panel, or else a run.
    fn pieces(self) -> u32 {
        match self.lies {
            Lies::Padded => self.runs()[1] * self.factor.bytes() / COPY,
            Lies::Swizzled => LINE / PIECE,
        }
    }

    /// Lines of so many pieces.
    fn lines(self) -> u32 {
        self.extent * self.depth * self.factor.bytes() / COPY / self.pieces()
    }

    /// The word where a piece of a line goes.
    fn piece<'k>(self, line: Value<'k, u32>, piece: Value<'k, u32>) -> Value<'k, u32> {
        let piece = match self.lies {
            Lies::Padded => piece,
            Lies::Swizzled => piece ^ (line & 7),
        };
        line * self.pitch() + piece * PIECE
    }

    /// The run that a line is of, if it has not all of it, and how many elements come before.
    fn part<'k>(self, line: Value<'k, u32>) -> Option<[Value<'k, u32>; 2]> {
        let ([runs, length], held) = (self.runs(), self.pieces() * COPY / self.factor.bytes());
        (held < length).then(|| [line & (runs - 1), over(line, runs) * held])
    }
}

/// The part of an operand that a block takes, panel by panel.
pub(super) struct Section<'k> {
    pub(super) panel: Panel,
    pub(super) source: Source<'k>,
    /// First row or column of the tile.
    pub(super) origin: Value<'k, u32>,
    /// Rows or columns of the operand, and length of the contraction.
    pub(super) sizes: [Value<'k, u32>; 2],
}

impl<'k> Section<'k> {
    /// The place of `unit` neighbours from element `along` of run `run` in the panel that begins at
    /// `start`, and whether they lie in the operand. What lies outside is moved inside. Whoever
    /// reads it nevertheless where only the row or column is outside gets elements of c that are
    /// not written; but many threads that read one place wait for each other. In f32 that is not
    /// asked: tiles of few rows do not stream there, and splitting leaves no time for it.
    pub(super) fn place(
        &self,
        start: Value<'k, u32>,
        (run, along): (Value<'k, u32>, Value<'k, u32>),
        unit: u32,
    ) -> (Value<'k, u32>, Pred<'k>) {
        let [extent, depth] = self.sizes;
        let (line, place, inside) = match self.panel.contiguous {
            Contiguous::Contraction => {
                let (line, place) = (self.origin + run, start + along);
                let last = depth - unit;
                (
                    line.min(extent - 1),
                    place.min(last),
                    self.within(place.le(last), || line.lt(extent)),
                )
            }
            Contiguous::Extent => {
                let (line, place) = (start + run, self.origin + along);
                let last = depth - 1;
                (
                    line.min(last),
                    place.min(extent - unit),
                    self.within(line.le(last), || place.lt(extent)),
                )
            }
        };
        (line.mul_add(self.source.leading, place), inside)
    }

    /// Whether something is before the end of the contraction and, in bf16, in a row or column.
    fn within(&self, contraction: Pred<'k>, extent: impl FnOnce() -> Pred<'k>) -> Pred<'k> {
        match self.panel.factor {
            Factor::Single => contraction,
            Factor::Brain => contraction & extent(),
        }
    }

    /// Moves the address of a plane to that of the next summand, if `wraps`.
    pub(super) fn advance(&self, base: Var<'k, u64>, wraps: Pred<'k>) {
        let apart = wraps.select(self.source.reduce, 0);
        base.add_assign(apart.mul_wide(self.panel.factor.bytes()));
    }
}

/// One thread's share in copying an operand: as many bytes at the same place of several runs.
pub(super) struct Copier<'k> {
    target: SmTarget,
    section: Section<'k>,
    /// Address of the plane of the current summand.
    base: Var<'k, u64>,
    /// The first line of this thread, and its piece of every line.
    line: Value<'k, u32>,
    piece: Value<'k, u32>,
    /// Lines from one copy to the next.
    stride: u32,
}

impl<'k> Copier<'k> {
    /// The share of this thread in copying `section`.
    pub(super) fn new(k: &Kernel<'k>, target: SmTarget, section: Section<'k>) -> Self {
        let panel = section.panel;
        let pieces = panel.pieces();
        let stride = panel.threads / pieces;
        assert!(panel.threads.is_multiple_of(pieces), "a thread keeps its piece of a line");
        let mixed = panel.lies == Lies::Padded || stride.is_multiple_of(8);
        assert!(mixed, "a thread keeps its place among eight lines");
        let (base, _) = section.source.start(k);
        Self {
            target,
            section,
            base: k.var(base),
            line: over(k.tid_x(), pieces),
            piece: k.tid_x() & (pieces - 1),
            stride,
        }
    }

    /// Moves on to the next summand, if `wraps`.
    pub(super) fn advance(&self, wraps: Pred<'k>) {
        self.section.advance(self.base, wraps);
    }

    /// Starts to fill `stage` with what begins at `start`. What lies past the end of the
    /// contraction or of the operand becomes zero, and is not read.
    pub(super) fn copy(&self, start: Value<'k, u32>, stage: Shared<'k, u32>) {
        let panel = self.section.panel;
        let slot = stage.at(panel.piece(self.line, self.piece));
        for first in (0..panel.lines()).step_by(self.stride as usize) {
            let line = self.line + first;
            let to = slot.offset(i64::from(first * panel.pitch()));
            if first + self.stride <= panel.lines() {
                self.copy_piece(start, line, to);
            } else {
                let k = line.kernel();
                k.when(line.lt(panel.lines()), || self.copy_piece(start, line, to));
            }
        }
    }

    /// Copies this thread's piece of `line`.
    fn copy_piece(&self, start: Value<'k, u32>, line: Value<'k, u32>, to: Shared<'k, u32>) {
        let panel = self.section.panel;
        let bytes = panel.factor.bytes();
        let unit = COPY / bytes;
        let along = self.piece * unit;
        let (run, along) = match panel.part(line) {
            Some([run, before]) => (run, before + along),
            None => (line, along),
        };
        let (index, inside) = self.section.place(start, (run, along), unit);
        let from = Ptr::<u32>::from_address(self.base.get() + index.mul_wide(bytes));
        if self.target.number >= 80 {
            to.copy_async(from, inside.select(COPY, 0));
        } else {
            to.store_vec4(0, from.load_vec4(0).map(|word| inside.select(word, 0)));
        }
    }
}

/// The stages, and the walk of a block along the contraction.
pub(super) struct Ring<'k> {
    pub(super) kernel: Kernel<'k>,
    pub(super) target: SmTarget,
    /// How many there are: two or more, and one more where work runs behind.
    pub(super) stages: u32,
    /// Length of the contraction in a stage.
    pub(super) depth: u32,
    /// Words that each operand takes in a stage, and codes behind them.
    pub(super) lengths: [u32; 3],
    /// Of the operands that are copied.
    pub(super) copiers: Vec<Copier<'k>>,
    /// Of the second operand where it is not.
    pub(super) decoder: Option<Decoder<'k>>,
    pub(super) memory: Shared<'k, u32>,
    /// Whether what works on a stage runs behind the back of the threads, until a round later.
    pub(super) behind: bool,
}

impl<'k> Ring<'k> {
    /// Runs `work` on every stage of every summand in order, given its two panels. Work that runs
    /// behind the back of the threads must have waited for that of the stage before.
    pub(super) fn run(&self, given: &Parameters<'k>, work: impl FnOnce([Shared<'k, u32>; 2])) {
        let k = self.kernel;
        let total = over(given.k + (self.depth - 1), self.depth) * given.reduce;
        let start = k.var(0u32);
        let [filled, read] = [(); 2].map(|()| k.var(0u32));
        // Whoever is behind the barrier of a round has read the stage before, and behind their
        // back the one before that: its place is filled next.
        let ahead = self.stages - if self.behind { 2 } else { 1 };
        let fill = |stage: Value<'k, u32>| {
            k.when(stage.lt(total), || {
                self.copy(start.get(), self.panels(filled));
                self.advance(start, given.k);
                self.next(filled);
                self.copy_codes((stage + 1, total), filled);
            });
            if self.target.number >= 80 {
                k.commit_copies();
            }
        };
        self.copy_codes((k.constant(0), total), filled);
        for stage in 0..ahead {
            fill(k.constant(stage));
        }
        self.decode_first((total, ahead), read);
        k.range(0, total, 1, |round| {
            if self.target.number >= 80 {
                k.wait_copies(ahead - 1);
            }
            if self.behind {
                k.fence_async();
            }
            // Behind a fence, which waits for what is loaded, and before the barrier, past which no
            // load is put off.
            let fetched = self.fetch(round + 2);
            k.barrier();
            if self.behind {
                work(self.panels(read));
                fill(round + ahead);
            } else {
                fill(round + ahead);
                work(self.panels(read));
            }
            self.next(read);
            if let (Some(decoder), Some(fetched)) = (&self.decoder, fetched) {
                let next = round + 1;
                k.when(next.lt(total), || decoder.decode((next, fetched), self.coded(read)));
            }
        });
    }

    fn panels(&self, slot: Var<'k, u32>) -> [Shared<'k, u32>; 2] {
        let a = self.memory.at(slot.get());
        [a, a.offset(i64::from(self.lengths[0]))]
    }

    /// Where the second operand goes, and where its codes are.
    fn coded(&self, slot: Var<'k, u32>) -> (Shared<'k, u32>, Shared<'k, u32>) {
        let [_, b] = self.panels(slot);
        (b, b.offset(i64::from(self.lengths[1])))
    }

    fn copy(&self, start: Value<'k, u32>, panels: [Shared<'k, u32>; 2]) {
        self.copiers.iter().zip(panels).for_each(|(copier, panel)| copier.copy(start, panel));
    }

    /// Starts to copy the codes of stage `stage`, if there is one, with what is copied next.
    fn copy_codes(&self, (stage, total): (Value<'k, u32>, Value<'k, u32>), slot: Var<'k, u32>) {
        if let Some(decoder) = &self.decoder {
            self.kernel.when(stage.lt(total), || decoder.copy(stage, self.coded(slot).1));
        }
    }

    /// What was fetched of the scale for the stage before `stage`, for which it is fetched next.
    fn fetch(&self, stage: Value<'k, u32>) -> Option<[Value<'k, f32>; 2]> {
        let decoder = self.decoder.as_ref()?;
        let fetched = decoder.fetched();
        decoder.fetch(stage);
        Some(fetched)
    }

    /// Decodes stage 0, which nobody does while working on the one before. Everybody decodes the
    /// others in the round before theirs, whose barrier says that their codes have landed, all of
    /// them, and that nobody reads their place any more, not even behind the back of threads.
    fn decode_first(&self, (total, ahead): (Value<'k, u32>, u32), slot: Var<'k, u32>) {
        let (k, first) = (self.kernel, self.kernel.constant(0));
        let Some(decoder) = &self.decoder else { return };
        k.when(total.ne(0), || {
            decoder.fetch(first);
            if self.target.number >= 80 {
                k.wait_copies(ahead - 1);
            }
            k.barrier();
            let fetched = decoder.fetched();
            decoder.fetch(first + 1);
            decoder.decode((first, fetched), self.coded(slot));
        });
    }

    /// Moves on by one stage, past the end of a summand to the next one.
    fn advance(&self, start: Var<'k, u32>, depth: Value<'k, u32>) {
        start.add_assign(self.depth);
        self.kernel.when(start.get().ge(depth), || {
            start.set(0);
            self.copiers.iter().for_each(|copier| copier.section.source.advance(copier.base));
        });
    }

    fn next(&self, slot: Var<'k, u32>) {
        let len: u32 = self.lengths.iter().sum();
        slot.update(|slot| {
            let next = slot + len;
            next.eq(len * self.stages).select(0, next)
        });
    }
}
