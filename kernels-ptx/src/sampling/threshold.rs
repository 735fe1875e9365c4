//! Finds the smallest value that top-k and top-p keep.
//!
//! Both reduce to one search: the largest key such that the tokens with that key or a larger one
//! have at least a given total weight. For top-k each token weighs 1; for top-p a token weighs its
//! probability. The key is found by radix select: for each 8-bit digit, a histogram of the weights
//! of the tokens that match the digits before.
//!
//! A first pass over the vocabulary collects the candidates in shared memory. For top-k, it uses
//! the top_k-th largest chunk maximum as a lower bound. For top-p, it drops tokens so small that
//! all of them together weigh less than 1 − top_p. If the candidates don't fit, every pass reads
//! the whole vocabulary.

use retrograph_kernel_abi::sampling::{
    SAMPLE_THRESHOLD, SampleThresholdParameters, THRESHOLD_THREADS as THREADS,
};
use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, Pred, Ptr, Shared, Value, Var};

use super::weights::{key, value, warp_scan, warp_sum, weight};
use super::{Sampling, of_sequence};
use crate::primitives::parameters::Declarations;
use crate::primitives::vec4::{Vec4, aligned};

/// Keys that the list of candidates can hold.
const LIST_CAPACITY: u32 = 4096;
/// Vec4s of a thread in flight.
const VEC4S_IN_FLIGHT: u32 = 4;
/// Bins of a histogram, one per value of a digit.
const BINS: u32 = 256;

/// The entry `sample_threshold`.
pub(super) fn entry() -> Entry {
    Kernel::build(SAMPLE_THRESHOLD.entry(), |k| {
        k.max_threads(THREADS);
        let SampleThresholdParameters { adjusted, maxima, sampling, selection, vocab, chunks } =
            SampleThresholdParameters::declare(&mut Declarations(*k));
        let adjusted = of_sequence(adjusted, vocab);
        let maxima = of_sequence(maxima, chunks);
        let selection = of_sequence(selection, 2);

        let sampling_params = Sampling::load(sampling);
        let max = k.var(f32::NEG_INFINITY);
        k.range(k.tid_x(), chunks, THREADS, |chunk| {
            max.update(|max| max.max(maxima.load(chunk)));
        });
        let max = k.block_max(max.get());
        let by_count = sampling_params.top_k.ne(0) & sampling_params.top_k.lt(vocab);
        let by_weight = sampling_params.top_p.lt(1.0);
        let threshold = k.var(0u32);
        let wanted = sampling_params.temperature.gt(0.0) & (by_count | by_weight);
        k.when(wanted & max.is_finite(), || {
            let floor = floor(maxima, vocab, chunks, &sampling_params, max, by_count);
            let candidates = Candidates::new(k, adjusted, vocab);
            let temperature = sampling_params.temperature;
            let total = k.var(candidates.gather(floor, by_count, max, temperature));
            let weight = |key| weight(value(key), max, temperature);
            k.when(by_count, || {
                let least = candidates.select(sampling_params.top_k.cast(), |_| k.constant(1));
                threshold.set(least);
                total.set(candidates.sum(|key| key.ge(least).select(weight(key), 0)));
            });
            k.when(by_weight, || {
                let target =
                    (sampling_params.top_p.cast::<f64>() * total.get().cast::<f64>()).cast::<u64>();
                let kept = threshold.get();
                let least =
                    candidates.select(target.max(1), |key| key.ge(kept).select(weight(key), 0));
                threshold.set(least.max(kept));
            });
        });
        k.when(k.tid_x().eq(0), || {
            selection.store(0, max.bits());
            selection.store(1, threshold);
        });
    })
}

/// A lower bound: smaller values cannot be kept.
fn floor<'k>(
    maxima: Ptr<'k, f32>,
    vocab: Value<'k, u32>,
    chunks: Value<'k, u32>,
    sampling_params: &Sampling<'k>,
    max: Value<'k, f32>,
    by_count: Pred<'k>,
) -> Value<'k, f32> {
    let k = &max.kernel();
    let result = k.shared::<f32>("floor", 1);
    let rest = 1.0 - sampling_params.top_p;
    // If the tail is tiny, the rounding of the weights would matter.
    let tail = ((vocab.cast::<f32>() / rest).ln() + 1.0) * sampling_params.temperature;
    let by_tail = !by_count & rest.gt(1e-4);
    let start = by_tail.select(max - tail, f32::NEG_INFINITY);
    k.when(k.tid_x().eq(0), || result.store(0, start));
    k.barrier();
    k.when(by_count & sampling_params.top_k.le(chunks), || {
        k.range(k.tid_x(), chunks, THREADS, |chunk| {
            let this_max = maxima.load(chunk);
            let above = k.var(0u32);
            k.range(0u32, chunks, 1, |other| {
                let other_max = maxima.load(other);
                let before = other_max.gt(this_max) | (other_max.eq(this_max) & other.lt(chunk));
                above.add_assign(before.select(1, 0));
            });
            k.when((above.get() + 1).eq(sampling_params.top_k), || result.store(0, this_max));
        });
    });
    k.barrier();
    result.load(0)
}

/// The tokens that may be kept, as keys.
struct Candidates<'k> {
    k: Kernel<'k>,
    adjusted: Ptr<'k, f32>,
    vocab: Value<'k, u32>,
    list: Shared<'k, u32>,
    count: Shared<'k, u32>,
    sums: Shared<'k, u64>,
    histogram: Shared<'k, u64>,
    /// The digit that was found, and the weight still to be reached within it.
    result: [Shared<'k, u64>; 2],
}

impl<'k> Candidates<'k> {
    fn new(k: &Kernel<'k>, adjusted: Ptr<'k, f32>, vocab: Value<'k, u32>) -> Self {
        Self {
            k: *k,
            adjusted,
            vocab,
            list: k.shared("list", LIST_CAPACITY as usize),
            count: k.shared("count", 1),
            sums: k.shared("weights", 32),
            histogram: k.shared("histogram", BINS as usize),
            result: [k.shared("digit", 1), k.shared("left", 1)],
        }
    }

    /// Lists the tokens that are not below `floor`. Returns the total weight of all tokens, or 0 if
    /// `by_count`.
    fn gather(
        &self,
        floor: Value<'k, f32>,
        by_count: Pred<'k>,
        max: Value<'k, f32>,
        temperature: Value<'k, f32>,
    ) -> Value<'k, u64> {
        let k = self.k;
        k.when(k.tid_x().eq(0), || self.count.store(0, 0));
        k.barrier();
        let sum = k.var(0u64);
        let vectors = aligned(&[self.adjusted]);
        k.range(k.tid_x() * 4, self.vocab, 4 * THREADS * VEC4S_IN_FLIGHT, |first| {
            let starts: Vec<_> = (0..VEC4S_IN_FLIGHT).map(|i| first + i * 4 * THREADS).collect();
            let load =
                |start: &Value<'k, u32>| Vec4::new(*start, self.vocab, vectors).load(self.adjusted);
            let vec4s: Vec<_> = starts.iter().map(load).collect();
            for (start, vec4) in starts.into_iter().zip(vec4s) {
                for (lane, z) in vec4.into_iter().enumerate() {
                    k.when((start + lane as u32).lt(self.vocab), || {
                        k.when(!by_count, || sum.add_assign(weight(z, max, temperature)));
                        k.when(z.ge(floor), || {
                            let slot = self.count.atom_add(0, k.constant(1));
                            k.when(slot.lt(LIST_CAPACITY), || self.list.store(slot, key(z)));
                        });
                    });
                }
            }
        });
        self.block_sum(sum)
    }

    /// Runs `body` for each candidate of this thread.
    fn for_each_candidate(&self, body: impl Fn(Value<'k, u32>)) {
        let k = self.k;
        let count = self.count.load(0);
        let listed = || k.range(k.tid_x(), count, THREADS, |i| body(self.list.load(i)));
        let all = || {
            k.range(k.tid_x(), self.vocab, THREADS, |i| body(key(self.adjusted.load(i))));
        };
        k.when_else(count.le(LIST_CAPACITY), listed, all);
    }

    /// The sum of `weigh(key)` over the candidates.
    fn sum(&self, weigh: impl Fn(Value<'k, u32>) -> Value<'k, u64>) -> Value<'k, u64> {
        let sum = self.k.var(0u64);
        self.for_each_candidate(|key| sum.add_assign(weigh(key)));
        self.block_sum(sum)
    }

    fn block_sum(&self, sum: Var<'k, u64>) -> Value<'k, u64> {
        let k = self.k;
        let sum = warp_sum(&k, sum.get());
        k.when(k.lane().eq(0), || self.sums.store(k.warp(), sum));
        k.barrier();
        let total = warp_sum(&k, self.sums.load(k.lane()));
        k.barrier();
        total
    }

    /// The largest key such that the candidates with it or a larger one weigh at least `target`,
    /// which is positive. If all candidates weigh less, the smallest key.
    fn select(
        &self,
        target: Value<'k, u64>,
        weigh: impl Fn(Value<'k, u32>) -> Value<'k, u64>,
    ) -> Value<'k, u32> {
        let k = self.k;
        let (prefix, left) = (k.var(0u32), k.var(target));
        k.range(0u32, 4, 1, |digit| {
            let shift = 24 - digit * 8;
            // For the first digit this shifts by 32, which gives an empty mask.
            let before = k.constant(u32::MAX) << (shift + 8);
            k.when(k.tid_x().lt(BINS), || self.histogram.store(k.tid_x(), 0));
            k.barrier();
            let found_prefix = prefix.get();
            self.for_each_candidate(|key| {
                k.when((key & before).eq(found_prefix), || {
                    let bin = (key >> shift) & (BINS - 1);
                    self.histogram.atom_add(bin, weigh(key));
                });
            });
            k.barrier();
            k.when(k.tid_x().lt(32), || self.find(left.get()));
            k.barrier();
            let digit = self.result[0].load(0).cast::<u32>();
            prefix.set(found_prefix | (digit << shift));
            left.set(self.result[1].load(0));
            k.barrier();
        });
        prefix.get()
    }

    /// Finds the digit at which the weights, added from the largest digit down, reach `target`. Run
    /// by one warp; each lane has eight digits.
    fn find(&self, target: Value<'k, u64>) {
        let k = self.k;
        let top = (31 - k.lane()) * 8 + 7;
        let bins: Vec<_> = (0..8).map(|i| self.histogram.load(top - i)).collect();
        let sum = bins.iter().copied().reduce(|sum, bin| sum + bin).expect("there are bins");
        let through = warp_scan(&k, sum);
        let above = through - sum;
        let reached = through.ge(target) | k.lane().eq(31);
        k.when(reached & above.lt(target), || {
            let (digit, before, open) = (k.var(top), k.var(above), k.var(1u32));
            for bin in bins.into_iter().take(7) {
                let next = before.get() + bin;
                let passed = next.lt(target) & open.get().ne(0);
                before.set(passed.select(next, before));
                digit.sub_assign(passed.select(1, 0));
                open.set(passed.select(1, 0));
            }
            self.result[0].store(0, digit.get().cast::<u64>());
            self.result[1].store(0, target - before.get());
        });
    }
}
