//! Combine: rescales the splits of a head to a common maximum and adds them. Each lane computes the
//! weight of one split and broadcasts it.

use retrograph_kernel_abi::attention::{
    DECODE_ATTENTION_COMBINE, DECODE_COMBINE_THREADS as THREADS, DecodeCombineParameters,
};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, Pred, Ptr, Value, Var};

use crate::primitives::bf16::pack;
use crate::primitives::parameters::Declarations;
use crate::primitives::pdl;

/// Splits in flight.
const SPLITS_IN_FLIGHT: u32 = 16;

/// The entry.
pub(super) fn entry(target: SmTarget) -> Entry {
    Kernel::build(DECODE_ATTENTION_COMBINE.entry(), |k| {
        k.max_threads(THREADS);
        k.min_blocks(6);
        let parameters = DecodeCombineParameters::declare(&mut Declarations(*k));
        let DecodeCombineParameters { partials, stats, position, capacity, .. } = parameters;
        let DecodeCombineParameters { out, out_bf16, .. } = parameters;
        let DecodeCombineParameters { heads, head_dim, split_len, window, splits, .. } = parameters;
        pdl::launch_dependents(k, target);
        pdl::wait(k, target);

        // The index among the heads of all sequences.
        let head = k.ctaid_x();
        let position = position.load(head / heads.max(1));
        let stats = stats.at(head * splits * 2);
        let partials = partials.at((head * splits).mul_wide(head_dim));
        let splits = Splits { stats, partials, head_dim, last: splits - 1 };
        // The first splits are in flight before their number is known.
        let first_splits = splits.load(k.constant(0), k.tid_x());
        let max_of_lane = stats.load(k.lane().min(splits.last) * 2);
        let length = (position + 1).min(capacity);
        let end = ((length + (split_len - 1)) / split_len).min(splits.last + 1);
        let seen = position + 1;
        let used = [(seen - seen.min(window)) / split_len, end];
        let max = k.var(is_in(k.lane(), used).select(max_of_lane, f32::NEG_INFINITY));
        k.range(k.lane() + 32, end, 32, |split| {
            k.when(is_in(split, used), || max.update(|max| max.max(stats.load(split * 2))));
        });
        let max = k.warp_max(max.get());
        k.range(0u32, head_dim, THREADS, |first_column| {
            let (i, start) = (first_column + k.tid_x(), k.var(0u32));
            let sums = Sums { k: *k, used, max, sum: k.var(0.0f32), total: k.var(0.0f32) };
            k.when(first_column.eq(0), || {
                sums.add(k.constant(0), &first_splits);
                start.set(SPLITS_IN_FLIGHT);
            });
            k.range(start.get(), end, SPLITS_IN_FLIGHT, |first| {
                sums.add(first, &splits.load(first, i))
            });
            let result = sums.total.get() / sums.sum.get();
            let index = head * head_dim + i;
            k.when(i.lt(head_dim) & !out.is_null(), || out.store(index, result));
            k.when(i.lt(head_dim) & !out_bf16.is_null(), || {
                let word = pack(target, [result, k.constant(0.0)]);
                out_bf16.reinterpret::<u32>().store_u16(index, word);
            });
        });
    })
}

/// Whether `split` is at least the first of `range` and less than the second.
fn is_in<'k>(split: Value<'k, u32>, range: [Value<'k, u32>; 2]) -> Pred<'k> {
    split.ge(range[0]) & split.lt(range[1])
}

/// The splits of a head.
struct Splits<'k> {
    stats: Ptr<'k, f32>,
    partials: Ptr<'k, f32>,
    head_dim: Value<'k, u32>,
    last: Value<'k, u32>,
}

/// A thread's values of consecutive splits.
struct Loaded<'k> {
    /// Maximum and sum of the split of this lane.
    stats: [Value<'k, f32>; 2],
    /// One output element of each split.
    values: Vec<Value<'k, f32>>,
}

impl<'k> Splits<'k> {
    /// Element `i` of the splits from `first` on. Splits past the end repeat the last one.
    fn load(&self, first: Value<'k, u32>, i: Value<'k, u32>) -> Loaded<'k> {
        let i = i.min(self.head_dim - 1).cast::<u64>();
        let lane = i.kernel().lane();
        let stats = self.stats.load_vec2((first + lane).min(self.last) * 2);
        let value = |step: u32| {
            let split = (first + step).min(self.last);
            self.partials.load(split.mul_wide(self.head_dim) + i)
        };
        Loaded { stats, values: (0..SPLITS_IN_FLIGHT).map(value).collect() }
    }
}

/// The running sums of one output element.
struct Sums<'k> {
    k: Kernel<'k>,
    /// First and end of the splits that have positions; the others were not written.
    used: [Value<'k, u32>; 2],
    max: Value<'k, f32>,
    sum: Var<'k, f32>,
    total: Var<'k, f32>,
}

impl<'k> Sums<'k> {
    /// Adds the splits from `first` on. All lanes must participate.
    fn add(&self, first: Value<'k, u32>, loaded: &Loaded<'k>) {
        let Self { k, used, max, sum, total } = self;
        let [max_of_split, sum_of_split] = loaded.stats;
        let weight = (max_of_split - *max).exp();
        for (step, value) in (0..SPLITS_IN_FLIGHT).zip(&loaded.values) {
            let split = first + step;
            k.when(is_in(split, *used), || {
                let [weight, split_sum] = [weight, sum_of_split].map(|it| k.shfl_idx(it, step));
                sum.update(|sum| weight.fma(split_sum, sum));
                total.update(|total| weight.fma(*value, total));
            });
        }
    }
}
