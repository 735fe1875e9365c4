//! The least value that top-k and top-p keep.
//!
//! Both are the same question: which is the greatest key such that the tokens from it upwards
//! weigh at least so much. For top-k each token weighs 1, for top-p as much as its probability. The
//! key is found digit by digit, from histograms of the weights of those tokens that agree in the
//! digits before.
//!
//! A first look at all tokens puts those that can matter into a list: for top-k, at least the
//! top_k-th largest maximum of the chunks; for top-p, too much to be among the tail that weighs
//! less than 1 − top_p together. If they do not fit the list, all tokens are looked at each time.

use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, Pred, Ptr, Shared, Value, Var};

use super::Sampling;
use super::weights::{key, value, warp_scan, warp_sum, weight};
use crate::primitives::vec4::{Vec4, aligned};

const THREADS: u32 = 1024;
/// Keys that the list holds.
const LIST: u32 = 4096;
/// Quads that a thread has under way at once.
const UNDER_WAY: u32 = 4;
/// Digits of eight bits.
const DIGITS: u32 = 256;

/// The entry.
pub(super) fn entry() -> Entry {
    Kernel::build("sample_threshold", |k| {
        k.max_threads(THREADS);
        let adjusted = k.pointer::<f32>("adjusted");
        let maxima = k.pointer::<f32>("maxima");
        let sampling = k.pointer::<u32>("sampling");
        let selection = k.pointer::<u32>("selection");
        let vocab = k.param::<u32>("vocab");
        let chunks = k.param::<u32>("chunks");

        let given = Sampling::load(sampling);
        let max = k.var(f32::NEG_INFINITY);
        k.range(k.tid_x(), chunks, THREADS, |chunk| {
            max.update(|max| max.max(maxima.load(chunk)));
        });
        let max = k.block_max(max.get());
        let by_count = given.top_k.ne(0) & given.top_k.lt(vocab);
        let by_weight = given.top_p.lt(1.0);
        let threshold = k.var(0u32);
        let asked = given.temperature.gt(0.0) & (by_count | by_weight);
        k.when(asked & max.is_finite(), || {
            let floor = floor(k, maxima, (vocab, chunks), (&given, max, by_count));
            let candidates = Candidates::new(k, adjusted, vocab);
            let scale = (max, given.temperature);
            let total = k.var(candidates.gather(floor, by_count, scale));
            k.when(by_count, || {
                let least = candidates.select(given.top_k.cast(), |_| k.constant(1));
                threshold.set(least);
                total.set(candidates.sum(|key| key.ge(least).select(weight(value(key), scale), 0)));
            });
            k.when(by_weight, || {
                let target = (given.top_p.cast::<f64>() * total.get().cast::<f64>()).cast::<u64>();
                let kept = threshold.get();
                let least = candidates
                    .select(target.max(1), |key| key.ge(kept).select(weight(value(key), scale), 0));
                threshold.set(least.max(kept));
            });
        });
        k.when(k.tid_x().eq(0), || {
            selection.store(0, max.bits());
            selection.store(1, threshold);
        });
    })
}

/// A value below which no token matters.
fn floor<'k>(
    k: &Kernel<'k>,
    maxima: Ptr<'k, f32>,
    (vocab, chunks): (Value<'k, u32>, Value<'k, u32>),
    (given, max, by_count): (&Sampling<'k>, Value<'k, f32>, Pred<'k>),
) -> Value<'k, f32> {
    let found = k.shared::<f32>("floor", 1);
    let rest = 1.0 - given.top_p;
    // Where the rest is tiny, what rounding takes from the weights would matter.
    let tail = ((vocab.cast::<f32>() / rest).ln() + 1.0) * given.temperature;
    let by_tail = !by_count & rest.gt(1e-4);
    let start = by_tail.select(max - tail, f32::NEG_INFINITY);
    k.when(k.tid_x().eq(0), || found.store(0, start));
    k.barrier();
    k.when(by_count & given.top_k.le(chunks), || {
        k.range(k.tid_x(), chunks, THREADS, |chunk| {
            let mine = maxima.load(chunk);
            let above = k.var(0u32);
            k.range(0u32, chunks, 1, |other| {
                let theirs = maxima.load(other);
                let before = theirs.gt(mine) | (theirs.eq(mine) & other.lt(chunk));
                above.add_assign(before.select(1, 0));
            });
            k.when((above.get() + 1).eq(given.top_k), || found.store(0, mine));
        });
    });
    k.barrier();
    found.load(0)
}

/// The tokens that can be kept, as keys.
struct Candidates<'k> {
    k: Kernel<'k>,
    adjusted: Ptr<'k, f32>,
    vocab: Value<'k, u32>,
    list: Shared<'k, u32>,
    count: Shared<'k, u32>,
    sums: Shared<'k, u64>,
    histogram: Shared<'k, u64>,
    /// The digit that was found, and what is still to be found in it.
    found: [Shared<'k, u64>; 2],
}

impl<'k> Candidates<'k> {
    fn new(k: &Kernel<'k>, adjusted: Ptr<'k, f32>, vocab: Value<'k, u32>) -> Self {
        Self {
            k: *k,
            adjusted,
            vocab,
            list: k.shared("list", LIST as usize),
            count: k.shared("count", 1),
            sums: k.shared("weights", 32),
            histogram: k.shared("histogram", DIGITS as usize),
            found: [k.shared("digit", 1), k.shared("left", 1)],
        }
    }

    /// Lists what is not below `floor`. Gives the weight of all tokens, unless `by_count`, where it
    /// is not needed.
    fn gather(
        &self,
        floor: Value<'k, f32>,
        by_count: Pred<'k>,
        scale: (Value<'k, f32>, Value<'k, f32>),
    ) -> Value<'k, u64> {
        let k = self.k;
        k.when(k.tid_x().eq(0), || self.count.store(0, 0));
        k.barrier();
        let sum = k.var(0u64);
        let vectors = aligned(&[self.adjusted]);
        k.range(k.tid_x() * 4, self.vocab, 4 * THREADS * UNDER_WAY, |first| {
            let starts: Vec<_> = (0..UNDER_WAY).map(|i| first + i * 4 * THREADS).collect();
            let load =
                |start: &Value<'k, u32>| Vec4::new(*start, self.vocab, vectors).load(self.adjusted);
            let vec4s: Vec<_> = starts.iter().map(load).collect();
            for (start, vec4) in starts.into_iter().zip(vec4s) {
                for (lane, z) in vec4.into_iter().enumerate() {
                    k.when((start + lane as u32).lt(self.vocab), || {
                        k.when(!by_count, || sum.add_assign(weight(z, scale)));
                        k.when(z.ge(floor), || {
                            let slot = self.count.atomic_add(0, k.constant(1));
                            k.when(slot.lt(LIST), || self.list.store(slot, key(z)));
                        });
                    });
                }
            }
        });
        self.block_sum(sum)
    }

    /// Runs `body` for each candidate that belongs to this thread.
    fn visit(&self, body: impl Fn(Value<'k, u32>)) {
        let k = self.k;
        let count = self.count.load(0);
        let listed = || k.range(k.tid_x(), count, THREADS, |i| body(self.list.load(i)));
        let all = || {
            k.range(k.tid_x(), self.vocab, THREADS, |i| body(key(self.adjusted.load(i))));
        };
        k.when_else(count.le(LIST), listed, all);
    }

    /// The sum of what `weigh` gives for the keys of the candidates.
    fn sum(&self, weigh: impl Fn(Value<'k, u32>) -> Value<'k, u64>) -> Value<'k, u64> {
        let sum = self.k.var(0u64);
        self.visit(|key| sum.add_assign(weigh(key)));
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

    /// The greatest key such that the candidates from it upwards weigh at least `target`, which is
    /// above 0; the least key of all where they weigh less together.
    fn select(
        &self,
        target: Value<'k, u64>,
        weigh: impl Fn(Value<'k, u32>) -> Value<'k, u64>,
    ) -> Value<'k, u32> {
        let k = self.k;
        let (prefix, left) = (k.var(0u32), k.var(target));
        k.range(0u32, 4, 1, |digit| {
            let shift = 24 - digit * 8;
            // Shifting by 32 leaves nothing: the first digit has none before it.
            let before = k.constant(u32::MAX) << (shift + 8);
            k.when(k.tid_x().lt(DIGITS), || self.histogram.store(k.tid_x(), 0));
            k.barrier();
            let held = prefix.get();
            self.visit(|key| {
                k.when((key & before).eq(held), || {
                    let place = (key >> shift) & (DIGITS - 1);
                    self.histogram.atomic_add(place, weigh(key));
                });
            });
            k.barrier();
            k.when(k.tid_x().lt(32), || self.find(left.get()));
            k.barrier();
            let digit = self.found[0].load(0).cast::<u32>();
            prefix.set(held | (digit << shift));
            left.set(self.found[1].load(0));
            k.barrier();
        });
        prefix.get()
    }

    /// Finds the digit at which the weights from the greatest digit downwards reach `target`; run
    /// by one warp, whose lanes have eight digits each.
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
            self.found[0].store(0, digit.get().cast::<u64>());
            self.found[1].store(0, target - before.get());
        });
    }
}
