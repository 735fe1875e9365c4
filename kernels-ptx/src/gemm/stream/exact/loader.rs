//! The teams that bring operands into stages, in turns.
//!
//! a is copied by `cp.async`, as it is. b is loaded into registers, split, and stored in halves. A
//! stage waits for memory once, since both operands are under way at the same time, and a team has
//! the time of two stages for it. Of b nothing may be under way while a stage is handed over: the
//! fence would wait for it.

use retrograph_ptx::build::{Pred, Value, Var};

use super::{Copier, DEPTH, Halves, ROUND, Stages, TEAM, TEAMS};
use crate::gemm::sizes::over;

/// Where an operand is on its way along the contraction, which ends at its last stage.
struct Way<'k> {
    start: Var<'k, u32>,
    left: Var<'k, u32>,
    /// Length of a summand.
    end: Value<'k, u32>,
}

impl<'k> Way<'k> {
    fn new(stages: Stages<'k>, end: Value<'k, u32>) -> Self {
        let k = stages.kernel;
        Self { start: k.var(0u32), left: k.var(stages.filled), end }
    }

    /// Moves on by a stage, if there is one; whether it belongs to the next summand.
    fn next(&self) -> Pred<'k> {
        let more = self.left.get().gt(1);
        let next = self.start.get() + DEPTH;
        let wraps = next.ge(self.end) & more;
        self.start.set(wraps.select(0, more.select(next, self.start.get())));
        self.left.update(|left| more.select(left - 1, left));
        wraps
    }
}

/// What the threads load with.
pub(super) struct Loader<'k> {
    stages: Stages<'k>,
    /// The team of this thread.
    team: Value<'k, u32>,
    a: Copier<'k>,
    b: Halves<'k>,
    ways: [Way<'k>; 2],
}

impl<'k> Loader<'k> {
    /// Loads `a` and `b`, whose contraction has summands of length `end`.
    pub(super) fn new(
        stages: Stages<'k>,
        (a, b): (Copier<'k>, Halves<'k>),
        end: Value<'k, u32>,
    ) -> Self {
        let k = stages.kernel;
        // Known to be the same for all of a warp.
        let team = k.shuffle_index(over(k.tid_x() & (TEAM * TEAMS - 1), TEAM), 0);
        let ways = [(); 2].map(|()| Way::new(stages, end));
        Self { stages: stages.skip(team), team, a, b, ways }
    }

    /// Fills every stage that is this team's turn, as soon as it is empty.
    pub(super) fn run(&self) {
        let Stages { kernel: k, count, filled, .. } = self.stages;
        k.when(count.gt(0), || {
            k.when(self.team.gt(0), || {
                self.skip_a();
                self.skip_b();
            });
            self.b.load(self.ways[1].start.get());
            k.range(0, count, ROUND, |round| {
                let emptied = round.gt(0);
                for first in (0..ROUND).step_by(TEAMS as usize) {
                    let nth = self.team + first;
                    k.wait_at(self.stages.empty(nth), Some(emptied));
                    self.fill(first, (round + nth).lt(filled));
                    for warpgroup in 0..self.stages.warpgroups {
                        k.arrive_at(self.stages.full(nth, k.constant(warpgroup)), None);
                    }
                    (0..TEAMS).for_each(|_| self.skip_b());
                    self.b.load(self.ways[1].start.get());
                }
            });
        });
    }

    /// Fills the stage that is `first` stages behind this team's first one: with zeros, if there
    /// are no `more` elements.
    fn fill(&self, first: u32, more: Pred<'k>) {
        let k = self.stages.kernel;
        self.a.copy(self.ways[0].start.get(), self.stages.a(first), Some(more));
        k.commit_copies();
        (0..TEAMS).for_each(|_| self.skip_a());
        self.b.store(self.stages.halves(first));
        k.wait_copies(0);
        k.fence_async();
    }

    /// Leaves a stage of a to the other team.
    fn skip_a(&self) {
        self.a.advance(self.ways[0].next());
    }

    /// Leaves a stage of b to the other team.
    fn skip_b(&self) {
        self.b.advance(self.ways[1].next());
    }
}
