//! The walk of a block along the contraction, and what it does on the way in f32.

use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, Scalar, Shared, Value, Var};

use super::cargo::Stored;
use super::operand::{Carrier, Contiguous, Panel};
use super::sizes::{Parameters, Storage, over};
use super::tile::{Accumulators, Place, Tile};
use super::write;

/// The entry for one tile, layout and storage of b.
pub(super) fn entry(
    name: &str,
    tile: &Tile,
    (layout, storage): ([Contiguous; 2], Storage),
) -> Entry {
    Kernel::build(name, |k| {
        k.max_threads(tile.threads());
        k.min_blocks(tile.together(storage));
        let given = Parameters::declare(k, [Storage::F32, storage]);
        let origin = given.origin(k, [tile.rows, tile.columns]);
        let panels = [tile.panel(tile.rows), tile.panel(tile.columns)];
        let a = (origin[0], [given.m, given.k]);
        let b = (origin[1], [given.n, given.k]);
        let carriers = [
            Carrier::new(k, (panels[0], layout[0]), given.a, a),
            Carrier::new(k, (panels[1], layout[1]), given.b, b),
        ];
        let stages = (panels[0].len() + panels[1].len()) * tile.stages;
        let memory = k.shared::<f32>("panels", stages.max(tile.gathered()) as usize);
        let place = Place::of(k, tile);
        let row = || (0..tile.thread_columns).map(|_| k.var(0.0f32)).collect();
        let sums: Accumulators<'_> = (0..tile.thread_rows).map(|_| row()).collect();

        if let Stored::Nf4(scales) = given.b.stored {
            scales.fill_tables();
        }
        let lengths = panels.map(Panel::len);
        let (depth, stages) = (panels[0].depth, tile.stages);
        let walk = Walk { kernel: *k, stages, depth, lengths, carriers, memory };
        walk.run(&given, |stage| multiply(tile, panels, (stage, &place), &sums));
        write::finish(k, tile, (given, origin), (memory, &place, &sums));
    })
}

/// How an operand is carried into shared memory, stage by stage.
pub(super) trait Carry<'k, T> {
    /// Moves on to the next summand.
    fn next_summand(&self);

    /// Starts loading the stage whose contraction begins at `start`, which lies inside. Nothing
    /// here looks at what is loaded, so that nothing waits for it. Addresses outside are moved
    /// inside.
    fn fetch(&self, start: Value<'k, u32>);

    /// Stores what was fetched, the stage that begins at `start`, into shared memory.
    fn put(&self, start: Value<'k, u32>, stage: Shared<'k, T>);
}

/// The walk of a block along the contraction.
pub(super) struct Walk<'k, T, C> {
    pub(super) kernel: Kernel<'k>,
    /// Stages in shared memory, one or two.
    pub(super) stages: u32,
    /// Length of the contraction in a stage.
    pub(super) depth: u32,
    /// Elements of `memory` that each operand takes in a stage.
    pub(super) lengths: [u32; 2],
    pub(super) carriers: [C; 2],
    pub(super) memory: Shared<'k, T>,
}

impl<'k, T: Scalar, C: Carry<'k, T>> Walk<'k, T, C> {
    /// Runs `work` on every stage of every summand in order.
    pub(super) fn run(&self, given: &Parameters<'k>, work: impl FnOnce(Shared<'k, T>)) {
        let some = given.k.ne(0) & given.reduce.ne(0);
        self.kernel.when(some, || self.stages(given.k, given.reduce, work));
    }

    fn stages(
        &self,
        depth: Value<'k, u32>,
        summands: Value<'k, u32>,
        work: impl FnOnce(Shared<'k, T>),
    ) {
        let k = self.kernel;
        let stages = over(depth + (self.depth - 1), self.depth) * summands;
        let stage_len = self.lengths[0] + self.lengths[1];
        let start = k.var(0u32);
        let current = k.var(0u32);
        // One more round than stages: round s fetches stage s and works on stage s − 1.
        k.range(0, stages + 1, 1, |round| {
            let more = round.lt(stages);
            k.when(more, || self.fetch(start.get()));
            k.when(round.ne(0), || work(self.memory.at(current.get())));
            if self.stages == 2 {
                current.update(|offset| stage_len - offset);
            } else {
                // Nobody may overwrite the stage while another thread reads it.
                k.barrier();
            }
            k.when(more, || {
                self.put(start.get(), self.memory.at(current.get()));
                self.advance(start, depth);
            });
            k.barrier();
        });
    }

    /// Moves on by one stage, past the end of a summand to the next one.
    fn advance(&self, start: Var<'k, u32>, depth: Value<'k, u32>) {
        start.add_assign(self.depth);
        self.kernel.when(start.get().ge(depth), || {
            start.set(0);
            self.carriers.iter().for_each(C::next_summand);
        });
    }

    fn fetch(&self, start: Value<'k, u32>) {
        self.carriers.iter().for_each(|carrier| carrier.fetch(start));
    }

    fn put(&self, start: Value<'k, u32>, stage: Shared<'k, T>) {
        self.carriers[0].put(start, stage);
        self.carriers[1].put(start, stage.offset(i64::from(self.lengths[0])));
    }
}

/// Multiplies what this thread's group takes of a stage.
fn multiply<'k>(
    tile: &Tile,
    panels: [Panel; 2],
    (stage, place): (Shared<'k, f32>, &Place<'k>),
    sums: &Accumulators<'k>,
) {
    let [a, b] = panels.map(Panel::pitch);
    let first = place.group * tile.depth;
    let rows = stage.at(first * a + place.row * 4);
    let columns = stage.offset(i64::from(panels[0].len())).at(first * b + place.column * 4);
    for step in 0..tile.depth {
        let x = quads(rows.offset(i64::from(step * a)), (tile.rows, tile.thread_rows));
        let y = quads(columns.offset(i64::from(step * b)), (tile.columns, tile.thread_columns));
        for (row, x) in sums.iter().zip(&x) {
            for (sum, y) in row.iter().zip(&y) {
                sum.update(|sum| x.fma(*y, sum));
            }
        }
    }
}

/// This thread's elements of one step: quads that are spread evenly over the tile, so that
/// neighbouring threads read neighbouring quads.
fn quads<'k>(step: Shared<'k, f32>, (extent, held): (u32, u32)) -> Vec<Value<'k, f32>> {
    let apart = extent / (held / 4);
    (0..held / 4).flat_map(|quad| step.offset(i64::from(quad * apart)).load_vec4(0)).collect()
}
