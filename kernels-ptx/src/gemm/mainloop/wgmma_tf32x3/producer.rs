//! The producer groups, which fill the stages in turn.
//!
//! `cp.async` copies a. b is loaded into registers, split, and stored as hi and lo tiles. Both
//! loads are in flight at the same time, so a stage waits for memory once. The two groups
//! alternate, so each has the time of two stages. No load of b may be in flight when a stage is
//! passed to the consumers, because the fence would wait for it.

use retrograph_ptx::build::{Pred, Value, Var};

use super::{
    CpAsyncLoader, PRODUCER_GROUPS, PRODUCER_THREADS, STAGES, Stages, TILE_K, Tf32SplitLoader,
};
use crate::primitives::arith::div_const;

/// The position of one operand along K, clamped to the last stage.
struct LoadState<'k> {
    k_start: Var<'k, u32>,
    remaining: Var<'k, u32>,
    /// Length of K.
    k_len: Value<'k, u32>,
}

impl<'k> LoadState<'k> {
    fn new(stages: Stages<'k>, k_len: Value<'k, u32>) -> Self {
        let k = stages.kernel;
        Self { k_start: k.var(0u32), remaining: k.var(stages.filled), k_len }
    }

    /// Advances by a stage, if there is one. Returns whether the outer reduction also advances.
    fn advance(&self) -> Pred<'k> {
        let more = self.remaining.get().gt(1);
        let next = self.k_start.get() + TILE_K;
        let wraps = next.ge(self.k_len) & more;
        self.k_start.set(wraps.select(0, more.select(next, self.k_start.get())));
        self.remaining.update(|remaining| more.select(remaining - 1, remaining));
        wraps
    }
}

/// A producer thread.
pub(super) struct Producer<'k> {
    stages: Stages<'k>,
    /// Index of this thread's group.
    group: Value<'k, u32>,
    a: CpAsyncLoader<'k>,
    b: Tf32SplitLoader<'k>,
    a_state: LoadState<'k>,
    b_state: LoadState<'k>,
}

impl<'k> Producer<'k> {
    /// The producer that loads `a` and `b`, whose length along K is `k_len`.
    pub(super) fn new(
        stages: Stages<'k>,
        a: CpAsyncLoader<'k>,
        b: Tf32SplitLoader<'k>,
        k_len: Value<'k, u32>,
    ) -> Self {
        let k = stages.kernel;
        let thread = k.tid_x() & (PRODUCER_THREADS * PRODUCER_GROUPS - 1);
        // The broadcast tells the compiler that the value is warp-uniform.
        let group = k.shfl_idx(div_const(thread, PRODUCER_THREADS), 0);
        let [a_state, b_state] = [(); 2].map(|()| LoadState::new(stages, k_len));
        Self { stages: stages.skip(group), group, a, b, a_state, b_state }
    }

    /// Fills every stage of this group, as soon as it is empty.
    pub(super) fn run(&self) {
        let Stages { kernel: k, count, filled, .. } = self.stages;
        k.when(count.gt(0), || {
            k.when(self.group.gt(0), || {
                self.skip_a();
                self.skip_b();
            });
            self.b.load(self.b_state.k_start.get());
            k.range(0, count, STAGES, |round| {
                let not_first = round.gt(0);
                for first in (0..STAGES).step_by(PRODUCER_GROUPS as usize) {
                    let stage = self.group + first;
                    k.bar_sync(self.stages.empty(stage), Some(not_first));
                    self.fill(first, (round + stage).lt(filled));
                    for warpgroup in 0..self.stages.warpgroups {
                        k.bar_arrive(self.stages.full(stage, k.constant(warpgroup)), None);
                    }
                    (0..PRODUCER_GROUPS).for_each(|_| self.skip_b());
                    self.b.load(self.b_state.k_start.get());
                }
            });
        });
    }

    /// Fills the stage `first` stages after this group's first one. a becomes zero if the stage has
    /// no elements.
    fn fill(&self, first: u32, has_elements: Pred<'k>) {
        let k = self.stages.kernel;
        self.a.copy(self.a_state.k_start.get(), self.stages.a(first), Some(has_elements));
        k.cp_async_commit_group();
        (0..PRODUCER_GROUPS).for_each(|_| self.skip_a());
        self.b.store(self.stages.b(first));
        k.cp_async_wait_group(0);
        k.fence_proxy_async();
    }

    /// Advances a by one stage.
    fn skip_a(&self) {
        self.a.advance_reduction(self.a_state.advance());
    }

    /// Advances b by one stage.
    fn skip_b(&self) {
        self.b.advance_reduction(self.b_state.advance());
    }
}
