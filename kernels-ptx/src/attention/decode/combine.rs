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
use crate::primitives::registers::{Registers, registers, set, values};

/// Splits that are loaded before their number is known.
const FIRST: usize = 16;
/// Splits of a later chunk, one per lane. Their values are in flight together.
const CHUNK: usize = 32;

/// The entry.
pub(super) fn entry(target: SmTarget) -> Entry {
    Kernel::build(DECODE_ATTENTION_COMBINE.entry(), |k| {
        k.max_threads(THREADS);
        k.min_blocks(4);
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
        let first_stats = splits.stats(k.lane());
        let first_values: Registers<'_, FIRST> = registers(k, 0.0);
        set(&first_values, splits.values::<FIRST>(k.constant(0), k.tid_x()));
        let length = (position + 1).min(capacity);
        let end = ((length + (split_len - 1)) / split_len).min(splits.last + 1);
        let seen = position + 1;
        let used = [(seen - seen.min(window)) / split_len, end];
        let max = k.var(is_in(k.lane(), used).select(first_stats[0], f32::NEG_INFINITY));
        k.range(k.lane() + 32, end, 32, |split| {
            k.when(is_in(split, used), || max.update(|max| max.max(stats.load(split * 2))));
        });
        let max = k.warp_max(max.get());
        k.range(0u32, head_dim, THREADS, |first_column| {
            let i = first_column + k.tid_x();
            k.when(first_column.gt(0), || {
                set(&first_values, splits.values::<FIRST>(k.constant(0), i));
            });
            let sums = Sums { k: *k, used, max, sum: k.var(0.0f32), total: k.var(0.0f32) };
            sums.add(k.constant(0), first_stats, values(&first_values));
            k.range(FIRST as u32, end, CHUNK as u32, |first| {
                let stats = splits.stats(first + k.lane());
                sums.add(first, stats, splits.values::<CHUNK>(first, i));
            });
            let result = sums.total.get() / k.warp_sum(sums.sum.get());
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

impl<'k> Splits<'k> {
    /// Maximum and sum of a split, or of the last one.
    fn stats(&self, split: Value<'k, u32>) -> [Value<'k, f32>; 2] {
        self.stats.load_vec2(split.min(self.last) * 2)
    }

    /// Element `i` of the splits from `first` on. Splits past the end repeat the last one.
    fn values<const N: usize>(
        &self,
        first: Value<'k, u32>,
        i: Value<'k, u32>,
    ) -> [Value<'k, f32>; N] {
        let i = i.min(self.head_dim - 1).cast::<u64>();
        std::array::from_fn(|step| {
            let split = (first + step as u32).min(self.last);
            self.partials.load(split.mul_wide(self.head_dim) + i)
        })
    }
}

/// The running sums of one output element.
struct Sums<'k> {
    k: Kernel<'k>,
    /// First and end of the splits that have positions; the others were not written.
    used: [Value<'k, u32>; 2],
    max: Value<'k, f32>,
    /// The weighted sums of the splits of this lane.
    sum: Var<'k, f32>,
    total: Var<'k, f32>,
}

impl<'k> Sums<'k> {
    /// Adds `N` splits from `first` on, of which a lane has one. All lanes must participate.
    fn add<const N: usize>(
        &self,
        first: Value<'k, u32>,
        [max_of_split, sum_of_split]: [Value<'k, f32>; 2],
        values: [Value<'k, f32>; N],
    ) {
        let Self { k, used, max, sum, total } = self;
        let counts = is_in(first + k.lane(), *used) & k.lane().lt(N as u32);
        let weight = counts.select((max_of_split - *max).exp(), 0.0);
        k.when(counts, || sum.update(|sum| weight.fma(sum_of_split, sum)));
        for (step, value) in (0u32..).zip(values) {
            let weight = k.shfl_idx(weight, step);
            k.when(is_in(first + step, *used), || total.update(|total| weight.fma(value, total)));
        }
    }
}
