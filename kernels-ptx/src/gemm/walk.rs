//! One tile of c: the walk along the contraction.

use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, Shared, Value, Var};

use super::operand::{Carrier, Contiguous, Panel};
use super::sizes::{Parameters, over};
use super::tile::{Accumulators, Place, Tile};
use super::write;

/// The entry for one tile and layout.
pub(super) fn entry(name: &str, tile: &Tile, layout: [Contiguous; 2]) -> Entry {
    Kernel::build(name, |k| {
        k.max_threads(tile.threads());
        k.min_blocks(tile.together);
        let given = Parameters::declare(k);
        let down = over(given.m + (tile.rows - 1), tile.rows);
        let column = k.ctaid_x() / down;
        let origin = [(k.ctaid_x() - column * down) * tile.rows, column * tile.columns];
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

        let walk = Walk { kernel: *k, tile, panels, carriers, memory };
        k.when((given.k.ne(0)) & given.reduce.ne(0), || {
            walk.run(given.k, given.reduce, |stage| {
                multiply(tile, panels, (stage, &place), &sums);
            })
        });
        write::finish(k, tile, (given, origin), (memory, &place, &sums));
    })
}

/// The walk of a block along the contraction.
struct Walk<'k, 't> {
    kernel: Kernel<'k>,
    tile: &'t Tile,
    panels: [Panel; 2],
    carriers: [Carrier<'k>; 2],
    memory: Shared<'k, f32>,
}

impl<'k> Walk<'k, '_> {
    /// Runs `work` on every stage in order.
    fn run(
        &self,
        depth: Value<'k, u32>,
        summands: Value<'k, u32>,
        work: impl FnOnce(Shared<'k, f32>),
    ) {
        let k = self.kernel;
        let stage_depth = self.panels[0].depth;
        let stages = over(depth + (stage_depth - 1), stage_depth) * summands;
        let stage_len = self.panels[0].len() + self.panels[1].len();
        let start = k.var(0u32);
        let current = k.var(0u32);
        // One more round than stages: round s fetches stage s and works on stage s − 1.
        k.range(0, stages + 1, 1, |round| {
            let more = round.lt(stages);
            k.when(more, || self.fetch(start.get()));
            k.when(round.ne(0), || work(self.memory.at(current.get())));
            if self.tile.stages == 2 {
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
        start.add_assign(self.panels[0].depth);
        self.kernel.when(start.get().ge(depth), || {
            start.set(0);
            self.carriers.iter().for_each(Carrier::next_summand);
        });
    }

    fn fetch(&self, start: Value<'k, u32>) {
        self.carriers.iter().for_each(|carrier| carrier.fetch(start));
    }

    fn put(&self, start: Value<'k, u32>, stage: Shared<'k, f32>) {
        self.carriers[0].put(start, stage);
        self.carriers[1].put(start, stage.offset(i64::from(self.panels[0].len())));
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
