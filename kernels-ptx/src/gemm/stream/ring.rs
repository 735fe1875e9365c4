//! Stages in shared memory that are filled ahead of where they are read.

use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Pred, Shared, Value, Var};

use super::copier::Copier;
use super::decoder::{Decoder, Decoding};
use crate::gemm::sizes::{Parameters, over};

/// Pieces of what threads do while products run behind their back.
pub(super) const PIECES: u32 = 4;

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

/// Where a block is on its way along the contraction.
struct Way<'k> {
    /// Length of a summand, and stages of all of them.
    depth: Value<'k, u32>,
    total: Value<'k, u32>,
    /// Where the stage begins that is filled next, and its place in the ring.
    start: Var<'k, u32>,
    filled: Var<'k, u32>,
}

impl<'k> Ring<'k> {
    /// Runs `work` on every stage of every summand in order, given its two panels. Work that runs
    /// behind the back of the threads must have waited for that of the stage before; it is given
    /// what threads have to do meanwhile, in [`PIECES`] pieces, by number, to be done between the
    /// starts of products. Behind the last start it would cost nearly as much time as if nothing
    /// ran meanwhile (docs/hardware/2026-11-22-decoding-between-products).
    pub(super) fn run(
        &self,
        given: &Parameters<'k>,
        work: impl FnOnce([Shared<'k, u32>; 2], &mut dyn FnMut(u32)),
    ) {
        let k = self.kernel;
        let total = over(given.k + (self.depth - 1), self.depth) * given.reduce;
        let [start, filled, read] = [(); 3].map(|()| k.var(0u32));
        let way = Way { depth: given.k, total, start, filled };
        // Whoever is behind the barrier of a round has read the stage before, and behind their
        // back the one before that: its place is filled next.
        let ahead = self.stages - if self.behind { 2 } else { 1 };
        k.when(total.gt(0), || self.copy_codes((k.constant(0), None), filled));
        for stage in 0..ahead {
            self.fill(&way, k.constant(stage));
        }
        self.decode_first((total, ahead), read);
        k.range(0, total, 1, |round| {
            if self.target.features().cp_async {
                k.wait_copies(ahead - 1);
            }
            if self.behind {
                k.fence_async();
            }
            // Behind a fence, which waits for what is loaded, and before the barrier, past which no
            // load is put off.
            let fetched = self.fetch(round + 2);
            k.barrier();
            let panels = self.panels(read);
            if self.behind {
                self.next(read);
                let mut decoded = None;
                work(panels, &mut |piece| match piece {
                    0 => self.fill_behind(&way, round + ahead),
                    1 => decoded = self.decoding((round + 1, fetched), read),
                    _ => decoded.iter().for_each(|decoding| decoding.store(piece - 2)),
                });
            } else {
                self.fill(&way, round + ahead);
                work(panels, &mut |_| ());
                self.next(read);
                k.when((round + 1).lt(total), || self.decode((round + 1, fetched), read));
            }
        });
    }

    /// Starts to fill the stage after next, or as many ahead as there are, if there is one.
    fn fill(&self, way: &Way<'k>, stage: Value<'k, u32>) {
        let k = self.kernel;
        k.when(stage.lt(way.total), || {
            self.copy(way, None);
            k.when((stage + 1).lt(way.total), || self.copy_codes((stage + 1, None), way.filled));
        });
        self.commit();
    }

    /// The same without a branch, between products.
    fn fill_behind(&self, way: &Way<'k>, stage: Value<'k, u32>) {
        self.copy(way, Some(stage.lt(way.total)));
        self.copy_codes((stage + 1, Some((stage + 1).lt(way.total))), way.filled);
        self.commit();
    }

    fn commit(&self) {
        if self.target.features().cp_async {
            self.kernel.commit_copies();
        }
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

    /// Starts to copy what is copied of the next stage, and moves on by a stage, past the end of a
    /// summand to the next one.
    fn copy(&self, way: &Way<'k>, more: Option<Pred<'k>>) {
        let panels = self.panels(way.filled);
        for (copier, panel) in self.copiers.iter().zip(panels) {
            copier.copy(way.start.get(), panel, more);
        }
        let next = way.start.get() + self.depth;
        let wraps = next.ge(way.depth);
        way.start.set(wraps.select(0, next));
        self.copiers.iter().for_each(|copier| copier.advance(wraps));
        self.next(way.filled);
    }

    /// Starts to copy the codes of a stage with what is copied next; if there is no such stage,
    /// nothing is read.
    fn copy_codes(&self, stage: (Value<'k, u32>, Option<Pred<'k>>), slot: Var<'k, u32>) {
        self.decoder.iter().for_each(|decoder| decoder.copy(stage, self.coded(slot).1));
    }

    /// What was fetched of the scale for the stage before `stage`, for which it is fetched next.
    fn fetch(&self, stage: Value<'k, u32>) -> [Value<'k, f32>; 2] {
        let Some(decoder) = &self.decoder else { return [self.kernel.constant(0.0); 2] };
        let fetched = decoder.fetched();
        decoder.fetch(stage);
        fetched
    }

    /// What it takes to decode a stage with the scale that was fetched for it, if there is
    /// anything to decode.
    fn decoding(
        &self,
        stage: (Value<'k, u32>, [Value<'k, f32>; 2]),
        slot: Var<'k, u32>,
    ) -> Option<Decoding<'k, '_>> {
        self.decoder.as_ref().map(|decoder| decoder.start(stage, self.coded(slot)))
    }

    fn decode(&self, stage: (Value<'k, u32>, [Value<'k, f32>; 2]), slot: Var<'k, u32>) {
        let decoding = self.decoding(stage, slot);
        decoding.iter().for_each(|decoding| (0..2).for_each(|half| decoding.store(half)));
    }

    /// Decodes stage 0, which nobody does while working on the one before. Everybody decodes the
    /// others in the round before theirs, whose barrier says that their codes have landed, all of
    /// them, and that nobody reads their place any more, not even behind the back of threads.
    fn decode_first(&self, (total, ahead): (Value<'k, u32>, u32), slot: Var<'k, u32>) {
        let (k, first) = (self.kernel, self.kernel.constant(0));
        let Some(decoder) = &self.decoder else { return };
        k.when(total.ne(0), || {
            decoder.fetch(first);
            if self.target.features().cp_async {
                k.wait_copies(ahead - 1);
            }
            k.barrier();
            let fetched = self.fetch(first + 1);
            self.decode((first, fetched), slot);
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
