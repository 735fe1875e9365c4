//! Products of f32 by warpgroups: three products of tf32 for each, whose factors are split once.
//!
//! Factors are split as in `gemm/stream/split.rs`, and added in the same order. Two teams of
//! threads bring operands into shared memory (`gemm/stream/exact/loader.rs`): a as it is, b in
//! halves that they split (`gemm/stream/halves.rs`), from which the instruction reads the columns
//! of all warpgroups. The others multiply: a warpgroup has 64 rows of c in all columns, and splits
//! its rows of a where it reads them, in registers, from which the instruction takes them.
//!
//! Products run behind the back of the threads, half of the columns at a time, from zero, and are
//! then added to the sums. Tensor cores work for one warpgroup while another one adds and splits:
//! the second one starts when the first one has its first half.
//!
//! **Stages.** Barriers say that a stage is full, one for each warpgroup, as they would wait for
//! each other at a common one, and that it is empty. So nobody waits for all of the block.
//! `fence.proxy.async` is for those who load: it waits for whatever is being loaded, and products
//! do not have to wait for it.
//!
//! **Limits.** sm_90a. A block walks whole rounds of stages, so that each has its place in shared
//! memory. a is padded with zeros; b with elements of the same columns, which make NaN only in
//! columns that are NaN anyway.
//!
//! Absent on purpose: `setmaxnreg`, which would give registers of those who load to the others. The
//! driver's linker, which makes what is cached, ignores it, and sums would be spilled.

mod loader;

use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Barrier, Kernel, Pred, Shared, Value, Var};

use super::copier::Copier;
use super::halves::Halves;
use super::panel::LINE;
use super::split::{Parts, STEPS, Split, parts};
use super::warpgroup::THREADS as WARPGROUP;
use super::{Shape, aligned};
use crate::gemm::brain::{Patch, Place, patches};
use crate::gemm::sizes::{Parameters, over};
use crate::gemm::write::Writer;
use loader::Loader;

/// Length of the contraction in a stage: what a line of shared memory holds.
pub(super) const DEPTH: u32 = LINE;
/// Stages in shared memory, which are a round.
const ROUND: u32 = 4;
/// Length and number of stages.
pub(super) const STAGES: [u32; 2] = [DEPTH, ROUND];
/// Threads of a team that loads, and teams, behind the threads that multiply.
pub(super) const TEAM: u32 = 64;
const TEAMS: u32 = 2;
/// Products of a stage along the contraction whose rows of a are read ahead.
const EARLY: u32 = 3;
/// Rows of a warpgroup that multiplies.
const ROWS: u32 = 64;

/// Words of shared memory.
pub(super) fn words(shape: Shape) -> u32 {
    (shape.panels()[0].words() + Halves::words(shape.tile.extent[1])) * ROUND
}

/// Threads of a block.
fn threads(shape: Shape) -> u32 {
    shape.threads() + TEAM * TEAMS
}

/// Blocks that find room on a multiprocessor together: as many as its shared memory has room for.
fn together(shape: Shape) -> u32 {
    const MULTIPROCESSOR: u32 = 228 * 1024;
    /// What the driver takes for itself of every block.
    const RESERVED: u32 = 1024;
    MULTIPROCESSOR / (shape.shared_bytes() + RESERVED)
}

/// The stages in shared memory, and the barriers that say what became of them.
#[derive(Clone, Copy)]
struct Stages<'k> {
    kernel: Kernel<'k>,
    /// Where the halves of b are, and a.
    memory: [Shared<'k, u32>; 2],
    words: [u32; 2],
    /// Warpgroups that multiply.
    warpgroups: u32,
    /// How many a block walks, and how many of them have elements.
    count: Value<'k, u32>,
    filled: Value<'k, u32>,
}

impl<'k> Stages<'k> {
    fn new(k: &Kernel<'k>, shape: Shape, given: &Parameters<'k>) -> Self {
        let words = [Halves::words(shape.tile.extent[1]), shape.panels()[0].words()];
        let halves = aligned(k, k.dynamic_shared());
        let landing = halves.offset(i64::from(words[0] * ROUND));
        let filled = over(given.k + (DEPTH - 1), DEPTH) * given.reduce;
        let count = (filled + (ROUND - 1)) & !(ROUND - 1);
        let (kernel, memory) = (*k, [halves, landing]);
        let warpgroups = shape.threads() / WARPGROUP;
        Self { kernel, memory, words, warpgroups, count, filled }
    }

    /// The stages from number `nth` on.
    fn skip(self, nth: Value<'k, u32>) -> Self {
        let [halves, a] = self.memory;
        let memory = [halves.at(nth * self.words[0]), a.at(nth * self.words[1])];
        Self { memory, ..self }
    }

    /// The halves of b, and a, of stage `nth` of a round.
    fn halves(&self, nth: u32) -> Shared<'k, u32> {
        self.memory[0].offset(i64::from(nth * self.words[0]))
    }

    fn a(&self, nth: u32) -> Shared<'k, u32> {
        self.memory[1].offset(i64::from(nth * self.words[1]))
    }

    /// The barrier at which a warpgroup knows stage `nth` to be full.
    fn full(&self, nth: Value<'k, u32>, warpgroup: Value<'k, u32>) -> Barrier<'k> {
        Barrier { id: warpgroup * ROUND + nth + 1, threads: WARPGROUP + TEAM }
    }

    /// The barrier at which stage `nth` is known to be empty.
    fn empty(&self, nth: Value<'k, u32>) -> Barrier<'k> {
        let threads = WARPGROUP * self.warpgroups + TEAM;
        Barrier { id: nth + (1 + ROUND * self.warpgroups), threads }
    }

    /// The one at which the first warpgroup lets the others start.
    fn start(&self) -> Barrier<'k> {
        let id = self.kernel.constant(1 + ROUND * (self.warpgroups + 1));
        Barrier { id, threads: WARPGROUP * self.warpgroups }
    }
}

/// The entry.
pub(super) fn entry(shape: Shape, name: &str) -> Entry {
    Kernel::build(name, |k| {
        k.max_threads(threads(shape));
        k.min_blocks(together(shape));
        let given = Parameters::declare(k, [shape.storage; 2]);
        let origin = given.origin(k, shape.tile.extent);
        let stages = Stages::new(k, shape, &given);
        k.when_else(
            k.tid_x().ge(shape.threads()),
            || {
                let thread = k.tid_x() & (TEAM - 1);
                let [a, b] = shape.sections(&given, origin);
                let a = Copier::new((k, shape.target), thread, a);
                let b = Halves::new(k, thread, b);
                Loader::new(stages, (a, b), given.k).run();
            },
            || {
                let place = Place::of_warpgroups(k, ROWS);
                let sums = Multiplier::new(stages, shape, &place).run();
                let writer = Writer { kernel: *k, rounds: None, given, origin };
                // Whoever loads has ended or will, which counts at a barrier.
                shape.write_lines(&writer, stages.memory[0].reinterpret(), (&place, &[sums]));
            },
        );
    })
}

/// What a warpgroup multiplies with.
struct Multiplier<'k> {
    stages: Stages<'k>,
    rows: Split<'k>,
    columns: u32,
    /// Which warpgroup it is.
    warpgroup: Value<'k, u32>,
    /// What has been added up in f32, and the sums of half of the columns of a stage.
    sums: Vec<Patch<'k>>,
    fresh: Vec<Patch<'k>>,
}

impl<'k> Multiplier<'k> {
    fn new(stages: Stages<'k>, shape: Shape, place: &Place<'k>) -> Self {
        let [rows, columns] = shape.tile.extent;
        assert_eq!(rows * 2, shape.threads(), "a warpgroup has 64 rows");
        let k = &stages.kernel;
        let [sums, fresh] =
            [columns, columns / 2].map(|columns| patches(k, [16, columns]).remove(0));
        // Known to be the same for all of a warp.
        let warpgroup = k.shuffle_index(over(k.tid_x(), WARPGROUP), 0);
        let rows = Split::new(k, shape.panels()[0], place.origin[0], 0);
        Self { stages, rows, columns, warpgroup, sums, fresh }
    }

    /// Multiplies all stages: the sums.
    fn run(self) -> Vec<Patch<'k>> {
        let (k, count) = (self.stages.kernel, self.stages.count);
        k.range(0, count, ROUND, |round| {
            let (earlier, later) = (round.gt(0), (round + ROUND).lt(count));
            (0..ROUND).for_each(|nth| self.stage(nth, [earlier, later]));
        });
        k.wait_products(0);
        self.add(1);
        self.sums
    }

    /// Multiplies stage `nth` of a round, behind `earlier` ones or in front of `later` ones. The
    /// stage before is empty then.
    fn stage(&self, nth: u32, [earlier, later]: [Pred<'k>; 2]) {
        let k = self.stages.kernel;
        k.wait_at(self.stages.full(k.constant(nth), self.warpgroup), None);
        let a = self.stages.a(nth);
        let words =
            |from: u32, to: u32| (from..to).map(|step| self.rows.words(a, [0, step * STEPS]));
        // While products run there are registers for a part of it alone.
        let mut rows: Vec<_> = words(0, EARLY).collect();
        k.wait_products(0);
        rows.extend(words(EARLY, DEPTH / STEPS));
        let before = k.constant((nth + ROUND - 1) % ROUND);
        let wanted = if nth == 0 { earlier } else { later };
        k.arrive_at(self.stages.empty(before), Some(wanted));
        self.add(1);
        let rows: Vec<_> = rows.into_iter().map(parts).collect();
        let staggered = nth == 0 && self.stages.warpgroups > 1;
        if staggered {
            k.wait_at(self.stages.start(), Some(self.warpgroup.ne(0) & !earlier));
        }
        self.start((nth, 0), &rows);
        k.wait_products(0);
        if staggered {
            k.arrive_at(self.stages.start(), Some(self.warpgroup.eq(0) & !earlier));
        }
        self.add(0);
        self.start((nth, 1), &rows);
    }

    /// Starts the products of half of the columns of stage `nth`.
    fn start(&self, (nth, half): (u32, u32), rows: &[Parts<'k>]) {
        let k = self.stages.kernel;
        let fresh: Vec<Var<'k, f32>> = self.fresh.iter().flatten().copied().collect();
        let columns = Halves::columns(self.stages.halves(nth), self.columns, half);
        k.begin_products();
        for (step, [high, low]) in (0u32..).zip(rows) {
            // The smallest products first.
            for (row, part, first) in [(low, 0, true), (high, 1, false), (high, 0, false)] {
                let column = columns[part].offset(step * STEPS * 4);
                let anew = step == 0 && first;
                k.multiply_async_tf32((*row, column), &fresh, anew);
            }
        }
        k.commit_products();
    }

    /// Adds what the products of half of the columns gave.
    fn add(&self, half: usize) {
        let sums = self.sums.iter().flatten().skip(half * self.fresh.len() * 4);
        for (sum, fresh) in sums.zip(self.fresh.iter().flatten()) {
            sum.add_assign(fresh.get());
        }
    }
}
