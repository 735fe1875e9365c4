//! The runs of a head brought to one maximum and added: a lane weighs a run, and tells the others.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, Ptr, Value, Var};

use crate::primitives::pdl;

/// Runs that are loaded side by side.
const RUNS: u32 = 16;
const THREADS: u32 = 128;

/// The entry.
pub(super) fn entry(target: SmTarget) -> Entry {
    Kernel::build("cache_attention_sum", |k| {
        k.max_threads(THREADS);
        k.min_blocks(6);
        let partials = k.pointer::<f32>("partials");
        let stats = k.pointer::<f32>("stats");
        let out = k.pointer::<f32>("out");
        let position = k.pointer::<u32>("position");
        let capacity = k.param::<u32>("capacity");
        let head_dim = k.param::<u32>("head_dim");
        let run = k.param::<u32>("run");
        let runs = k.param::<u32>("runs");
        pdl::launch_dependents(k, target);
        pdl::wait(k, target);

        let head = k.ctaid_x();
        let place = position.load(0);
        let stats = stats.at(head * runs * 2);
        let partials = partials.at((head * runs).mul_wide(head_dim));
        let runs = Runs { stats, partials, head_dim, last: runs - 1 };
        // The first runs are on their way before it is known how many there are.
        let first = runs.load(k.constant(0), k.tid_x());
        let max_of_lane = stats.load(k.lane().min(runs.last) * 2);
        let length = (place + 1).min(capacity);
        let used = ((length + (run - 1)) / run).min(runs.last + 1);
        let max = k.var(k.lane().lt(used).select(max_of_lane, f32::NEG_INFINITY));
        k.range(k.lane() + 32, used, 32, |r| max.update(|max| max.max(stats.load(r * 2))));
        let max = k.warp_max(max.get());
        k.range(0u32, head_dim, THREADS, |slab| {
            let (i, base) = (slab + k.tid_x(), k.var(0u32));
            let sums = Sums { k: *k, used, max, sum: k.var(0.0f32), total: k.var(0.0f32) };
            k.when(slab.eq(0), || {
                sums.add(k.constant(0), &first);
                base.set(RUNS);
            });
            k.range(base.get(), used, RUNS, |base| sums.add(base, &runs.load(base, i)));
            let result = sums.total.get() / sums.sum.get();
            k.when(i.lt(head_dim), || out.store(head * head_dim + i, result));
        });
    })
}

/// The runs of a head.
struct Runs<'k> {
    stats: Ptr<'k, f32>,
    partials: Ptr<'k, f32>,
    head_dim: Value<'k, u32>,
    last: Value<'k, u32>,
}

/// What a thread has of some runs.
struct Loaded<'k> {
    /// Maximum and sum of the run that is this lane's.
    stats: [Value<'k, f32>; 2],
    /// One element of each.
    parts: Vec<Value<'k, f32>>,
}

impl<'k> Runs<'k> {
    /// Element `i` of the runs from `base` on, where those past the last are the last.
    fn load(&self, base: Value<'k, u32>, i: Value<'k, u32>) -> Loaded<'k> {
        let i = i.min(self.head_dim - 1).cast::<u64>();
        let lane = i.kernel().lane();
        let stats = self.stats.load_vec2((base + lane).min(self.last) * 2);
        let part = |ahead: u32| {
            let r = (base + ahead).min(self.last);
            self.partials.load(r.mul_wide(self.head_dim) + i)
        };
        Loaded { stats, parts: (0..RUNS).map(part).collect() }
    }
}

/// What is added up for one element.
struct Sums<'k> {
    k: Kernel<'k>,
    /// Runs that have positions. Of others nothing was written.
    used: Value<'k, u32>,
    max: Value<'k, f32>,
    sum: Var<'k, f32>,
    total: Var<'k, f32>,
}

impl<'k> Sums<'k> {
    /// Adds the runs from `base` on, of which every lane has one. All lanes take part.
    fn add(&self, base: Value<'k, u32>, loaded: &Loaded<'k>) {
        let Self { k, used, max, sum, total } = self;
        let [max_of_run, sum_of_run] = loaded.stats;
        let weight = (max_of_run - *max).exp();
        for (ahead, part) in (0..RUNS).zip(&loaded.parts) {
            k.when((base + ahead).lt(*used), || {
                let [weight, run_sum] = [weight, sum_of_run].map(|it| k.shuffle_index(it, ahead));
                sum.update(|sum| weight.fma(run_sum, sum));
                total.update(|total| weight.fma(*part, total));
            });
        }
    }
}
