//! Products of f32 by warpgroups: three products of tf32 for each, whose factors are split once.
//!
//! Factors are split as in `gemm/stream/split.rs`, and added in the same order. A warpgroup has 64
//! rows of c in all columns. It splits its rows of a where it reads them, in registers, from which
//! the instruction takes them; of b it splits its share into shared memory
//! (`gemm/stream/halves.rs`), from which the instruction reads the columns of all warpgroups.
//!
//! Products run behind the back of the threads, as two groups, one for each half of the columns,
//! and each starts from zero. As soon as the first one is done, it is added to the sums and started
//! again with the next stage, behind the second one: tensor cores do not wait for additions.
//! Between the groups of a stage, threads split b of the next one; behind them, rows of a.
//!
//! **Stages.** a lands by `cp.async`, three stages ahead; b is loaded into registers two stages
//! ahead and split one stage ahead. There are three places for its halves: whoever is behind the
//! barrier of a stage has waited for the products of the stage before the last one, whose place is
//! filled next. `fence.proxy.async` stands between the stores that fill it and the next barrier,
//! right behind the products that are started last.
//!
//! **Limits.** sm_90a. The contraction is padded to 64 steps, two stages, so that registers of one
//! stage are not copied to make room for the next. a is padded with zeros; b with elements of the
//! same columns, which make NaN only in columns that are NaN anyway.

use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, Pred, Shared, Value, Var};

use super::copier::Copier;
use super::halves::Halves;
use super::panel::LINE;
use super::split::{Parts, STEPS, Split};
use super::{Shape, aligned};
use crate::gemm::brain::{self, Patch, Place, patches};
use crate::gemm::sizes::{Parameters, over};
use crate::gemm::write::Writer;

/// Length of the contraction in a stage: what a line of shared memory holds.
pub(super) const DEPTH: u32 = LINE;
/// Length and number of stages of a in shared memory, and how many of them are under way.
pub(super) const STAGES: [u32; 2] = [DEPTH, 4];
const AHEAD: u32 = STAGES[1] - 1;
/// Stages of the halves of b.
const SPLIT: u32 = 3;
/// Rows of a warpgroup.
const ROWS: u32 = 64;

/// Words of shared memory.
pub(super) fn words(shape: Shape) -> u32 {
    shape.panels()[0].words() * STAGES[1] + Halves::words(shape.tile.extent[1]) * SPLIT
}

/// The way of an operand along the contraction, which ends at its last stage.
struct Walk<'k> {
    start: Var<'k, u32>,
    left: Var<'k, u32>,
    /// Where a summand ends: its length, padded.
    end: Value<'k, u32>,
}

impl<'k> Walk<'k> {
    fn new(k: &Kernel<'k>, [end, stages]: [Value<'k, u32>; 2]) -> Self {
        Self { start: k.var(0u32), left: k.var(stages), end }
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

/// A place in one of several stages, which goes round.
struct Turn<'k> {
    memory: Shared<'k, u32>,
    words: [u32; 2],
    slot: Var<'k, u32>,
}

impl<'k> Turn<'k> {
    /// `count` stages of `words` each.
    fn new(k: &Kernel<'k>, memory: Shared<'k, u32>, [words, count]: [u32; 2]) -> Self {
        Self { memory, words: [words, words * count], slot: k.var(0u32) }
    }

    /// The stage whose turn it is; the next one follows.
    fn next(&self) -> Shared<'k, u32> {
        let (stage, [words, end]) = (self.memory.at(self.slot.get()), self.words);
        self.slot.update(|slot| (slot + words).eq(end).select(0, slot + words));
        stage
    }
}

/// What a block works with.
struct Block<'k> {
    kernel: Kernel<'k>,
    a: Copier<'k>,
    b: Halves<'k>,
    rows: Split<'k>,
    columns: u32,
    /// Where a lands and is read, and where the halves of b are stored and read.
    turns: [Turn<'k>; 4],
    walks: [Walk<'k>; 2],
    /// What has been added up in f32, and the sums of a stage.
    sums: Vec<Patch<'k>>,
    fresh: Vec<Patch<'k>>,
}

/// Blocks that find room on a multiprocessor together: as many as its shared memory has room for.
fn together(shape: Shape) -> u32 {
    const MULTIPROCESSOR: u32 = 228 * 1024;
    /// What the driver takes for itself of every block.
    const RESERVED: u32 = 1024;
    MULTIPROCESSOR / (shape.shared_bytes() + RESERVED)
}

/// The entry.
pub(super) fn entry(shape: Shape, name: &str) -> Entry {
    Kernel::build(name, |k| {
        k.max_threads(shape.threads());
        k.min_blocks(together(shape));
        let given = Parameters::declare(k, [shape.storage; 2]);
        let origin = given.origin(k, shape.tile.extent);
        let (place, sums) = multiply(k, shape, (&given, origin));
        let writer = Writer { kernel: *k, rounds: None, given, origin };
        brain::each_pair(k, &place, &sums, |row, column, pair| {
            writer.write(row, column, &pair);
        });
    })
}

/// Multiplies: the place of this thread, and its sums.
fn multiply<'k>(
    k: &Kernel<'k>,
    shape: Shape,
    (given, origin): (&Parameters<'k>, [Value<'k, u32>; 2]),
) -> (Place<'k>, Vec<Vec<Patch<'k>>>) {
    let [rows, columns] = shape.tile.extent;
    assert_eq!(rows * 2, shape.threads(), "a warpgroup has 64 rows");
    let (place, [a, b]) = (Place::of_warpgroups(k, ROWS), shape.sections(given, origin));
    let panel = a.panel;
    let [sums, fresh] = [(); 2].map(|()| patches(k, [16, columns]).remove(0));
    let halves = aligned(k, k.dynamic_shared());
    let landing = halves.offset(i64::from(Halves::words(columns) * SPLIT));
    let end = (given.k + (2 * DEPTH - 1)) & !(2 * DEPTH - 1);
    let stages = over(end, DEPTH) * given.reduce;
    let block = Block {
        kernel: *k,
        a: Copier::new(k, shape.target, a),
        b: Halves::new(k, b),
        rows: Split::new(k, panel, place.origin[0], 0),
        columns,
        turns: [
            Turn::new(k, landing, [panel.words(), STAGES[1]]),
            Turn::new(k, landing, [panel.words(), STAGES[1]]),
            Turn::new(k, halves, [Halves::words(columns), SPLIT]),
            Turn::new(k, halves, [Halves::words(columns), SPLIT]),
        ],
        walks: [(); 2].map(|()| Walk::new(k, [end, stages])),
        sums,
        fresh,
    };
    block.run(stages);
    (place, vec![block.sums])
}

impl<'k> Block<'k> {
    fn run(&self, stages: Value<'k, u32>) {
        let k = self.kernel;
        k.when(stages.gt(0), || {
            (0..AHEAD).for_each(|_| self.copy());
            self.fetch();
            self.b.store(self.turns[2].next());
            k.fence_async();
            self.fetch();
            k.wait_copies(AHEAD - 1);
        });
        k.barrier();
        // Two stages in a round, each with registers of its own for a.
        k.range(0, stages, 2, |round| {
            (0..2u32).for_each(|nth| self.stage(nth, (round + nth + 1).lt(stages)));
        });
        k.wait_products(0);
        (0..2).for_each(|half| self.add(half));
    }

    /// Starts stage `nth` of a round behind what still runs, and splits b of the next one, if there
    /// is `more`.
    fn stage(&self, nth: u32, more: Pred<'k>) {
        let k = self.kernel;
        self.copy();
        let stage = self.turns[1].next();
        let rows: Vec<Parts<'k>> =
            (0..DEPTH / STEPS).map(|step| self.rows.load(stage, [0, step * STEPS])).collect();
        k.wait_copies(AHEAD - 1);
        k.barrier();
        let halves = self.turns[3].next();
        for half in 0..2 {
            // What the other half has started last may still run. Not so at the start of a round:
            // where products run on from one round to the next and sums are read meanwhile, the
            // assembler gives up, and makes products wait for each other one by one.
            k.wait_products((nth + half).min(1));
            self.add(half);
            k.begin_products();
            self.start(half, &rows, halves);
            k.commit_products();
            if half == 0 {
                // Behind a branch, where the assembler does not move it between products: it may
                // have to wait for b.
                k.when(more, || {
                    self.b.store(self.turns[2].next());
                    self.fetch();
                });
            }
        }
        // Behind all products: it waits for what is loaded, too, and they run meanwhile.
        k.fence_async();
    }

    /// Starts the products of half of the columns.
    fn start(&self, half: u32, rows: &[Parts<'k>], halves: Shared<'k, u32>) {
        let fresh: Vec<Var<'k, f32>> = self.half(&self.fresh, half).flatten().copied().collect();
        let columns = Halves::columns(halves, self.columns, half);
        for (step, [high, low]) in (0u32..).zip(rows) {
            // The smallest products first.
            for (row, part, first) in [(low, 0, true), (high, 1, false), (high, 0, false)] {
                let column = columns[part].offset(step * STEPS * 4);
                let anew = step == 0 && first;
                self.kernel.multiply_async_tf32((*row, column), &fresh, anew);
            }
        }
    }

    /// Adds what the products of half of the columns gave.
    fn add(&self, half: u32) {
        let fresh = self.half(&self.fresh, half).flatten();
        for (sum, fresh) in self.half(&self.sums, half).flatten().zip(fresh) {
            sum.add_assign(fresh.get());
        }
    }

    fn half<'s>(&self, all: &'s [Patch<'k>], half: u32) -> std::slice::Iter<'s, Patch<'k>> {
        let count = all.len() / 2;
        all[half as usize * count..][..count].iter()
    }

    /// Starts to copy the next stage of a.
    fn copy(&self) {
        self.a.copy(self.walks[0].start.get(), self.turns[0].next(), None);
        self.a.advance(self.walks[0].next());
        self.kernel.commit_copies();
    }

    /// Starts to load the next stage of b.
    fn fetch(&self) {
        self.b.load(self.walks[1].start.get());
        self.b.advance(self.walks[1].next());
    }
}
