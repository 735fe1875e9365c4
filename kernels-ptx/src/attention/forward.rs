//! The forward pass: a block has queries and walks over the keys up to the last of them.

use std::f32::consts::LOG2_E;

use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, Ptr, Value, Var};

use super::config::{Factors, Shape};
use super::epilogue::Writer;
use super::loader::{Carrier, Load, Panel, Source};
use super::mma::{Held, Lanes, hold};
use super::{COLUMNS, Patch, hide, own_row, patches};
use crate::primitives::vec4::Output;

/// The name of the entry.
pub(super) fn name(shape: Shape) -> String {
    shape.named(&format!("_{}", shape.width))
}

/// Panels of queries, keys and values, and their words.
pub(super) fn panels(shape: Shape) -> ([Panel; 3], u32) {
    Panel::list([shape.rows(), COLUMNS, COLUMNS], shape)
}

/// The entry.
pub(super) fn entry(shape: Shape) -> Entry {
    Kernel::build(&name(shape), |k| {
        k.max_threads(shape.threads());
        k.min_blocks(if shape.factors == Factors::Single { 2 } else { 3 });
        let given = Given::declare(k, shape);
        let Given { q, keys, values, start: own, head_dim, .. } = given;
        let ([of_q, of_keys, of_values], words) = panels(shape);
        let memory = shape.memory(k, words);
        let carriers = [(); 2].map(|()| Carrier::new((k, shape), memory, head_dim));
        let load = |source, start, panel: Panel| {
            let first = k.constant(panel.first);
            Load { source, start, first }
        };
        // Keys are on their way while queries are stored.
        let first = load(keys, k.constant(0), of_keys);
        carriers[1].fetch(first);
        k.range(0, shape.rows(), COLUMNS, |row| {
            let first = row * shape.row_words() + of_q.first;
            carriers[0].load(Load { source: q, start: own + row, first });
        });
        carriers[1].put(first);
        k.barrier();

        let lanes = Lanes::new((k, shape), memory, given.head_dim);
        let (sums, softmax) = (patches(k, shape.width), Softmax::new(k, given.scale));
        let end = (own + shape.rows()).min(q.rows);
        let carrier = &carriers[0];
        k.range(0, end, COLUMNS, |start| {
            let next = load(values, start, of_values);
            carrier.fetch(next);
            let scores = patches(k, COLUMNS);
            lanes.multiply([of_q, of_keys], &scores);
            let crosses = (start + (COLUMNS - 1)).gt(own);
            k.when(crosses, || hide(k, ([own, start], true), &scores, f32::NEG_INFINITY));
            let probs = softmax.take(shape, &scores, &sums);
            carrier.put(next);
            k.barrier();
            let next = load(keys, start + COLUMNS, of_keys);
            let more = next.start.lt(end);
            k.when(more, || carrier.fetch(next));
            lanes.accumulate(&probs, of_values, &sums);
            k.when(more, || carrier.put(next));
            k.barrier();
        });
        softmax.finish(&given, &sums);
        let memory = memory.reinterpret();
        let writer = Writer {
            kernel: *k,
            shape,
            memory,
            head_dim,
            start: own,
            rounded: Some(given.rounded),
        };
        writer.write(given.out, &sums, None);
    })
}

/// The parameters, and where this block is.
#[derive(Clone, Copy)]
struct Given<'k> {
    q: Source<'k>,
    keys: Source<'k>,
    values: Source<'k>,
    out: Source<'k>,
    /// The sequence of `out` in bf16, null where that is not wanted.
    rounded: Ptr<'k, u32>,
    lse: Ptr<'k, f32>,
    head_dim: Value<'k, u32>,
    scale: Value<'k, f32>,
    /// The first query.
    start: Value<'k, u32>,
}

impl<'k> Given<'k> {
    fn declare(k: &Kernel<'k>, shape: Shape) -> Self {
        let [q, keys, values] = ["q", "keys", "values"].map(|name| k.pointer::<f32>(name));
        let (out, lse) = (Output::declare(k, "out"), k.pointer::<f32>("lse"));
        let [seq, heads, kv_heads, head_dim] =
            ["seq", "heads", "kv_heads", "head_dim"].map(|name| k.param::<u32>(name));
        let scale = k.param::<f32>("scale");
        let (sequence, head) = (k.ctaid_x() / heads, k.ctaid_x() % heads);
        let kv_head = head / (heads / kv_heads);
        let rows = |tensor: Ptr<'k, f32>, (heads, head): (Value<'k, u32>, Value<'k, u32>)| {
            let stride = heads * head_dim;
            let base = tensor.at((sequence * seq).mul_wide(stride));
            Source { base, stride, offset: head * head_dim, rows: seq }
        };
        Self {
            q: rows(q, (heads, head)),
            keys: rows(keys, (kv_heads, kv_head)),
            values: rows(values, (kv_heads, kv_head)),
            out: rows(out.f32, (heads, head)),
            rounded: out.at((sequence * seq).mul_wide(heads * head_dim)).bf16,
            lse: lse.at(k.ctaid_x().mul_wide(seq)),
            head_dim,
            scale,
            // Blocks with the most keys come first.
            start: (k.nctaid_y() - 1 - k.ctaid_y()) * shape.rows(),
        }
    }
}

/// The softmax of two rows, upper and lower, over tiles of columns.
struct Softmax<'k> {
    kernel: Kernel<'k>,
    /// What scores are multiplied by to be powers of 2.
    factor: Value<'k, f32>,
    /// The greatest score so far, without the factor.
    max: [Var<'k, f32>; 2],
    /// The lane's share of the sum.
    sum: [Var<'k, f32>; 2],
}

impl<'k> Softmax<'k> {
    fn new(k: &Kernel<'k>, scale: Value<'k, f32>) -> Self {
        let max = [(); 2].map(|()| k.var(f32::NEG_INFINITY));
        Self { kernel: *k, factor: scale * LOG2_E, max, sum: [(); 2].map(|()| k.var(0.0f32)) }
    }

    /// Takes a tile of scores: gives their weights, and brings `sums` and what was summed before
    /// to the new maximum.
    fn take(&self, shape: Shape, scores: &[Patch<'k>], sums: &[Patch<'k>]) -> Held<'k> {
        for half in 0..2 {
            let before = self.max[half].get();
            let max = row(scores, half).fold(before, |max, score| max.max(score));
            let max = self.of_four(max, |a, b| a.max(b));
            self.max[half].set(max);
            // Where nothing is above −∞ yet, the weights are 0.
            let base = max.eq(f32::NEG_INFINITY).select(0.0, max) * self.factor;
            let change = before.fma(self.factor, -base).exp2();
            self.sum[half].mul_assign(change);
            row(sums, half).for_each(|sum| sum.mul_assign(change));
            for score in row(scores, half) {
                score.update(|score| score.fma(self.factor, -base).exp2());
                self.sum[half].add_assign(score.get());
            }
        }
        hold(shape, scores)
    }

    /// Combines the four lanes that have the same rows.
    fn of_four(
        &self,
        value: Value<'k, f32>,
        combine: impl Fn(Value<'k, f32>, Value<'k, f32>) -> Value<'k, f32>,
    ) -> Value<'k, f32> {
        [2, 1].into_iter().fold(value, |value, mask| {
            let other = self.kernel.shuffle_xor(value, mask);
            combine(value, other)
        })
    }

    /// Divides `sums` by the sums of the weights, and writes the logsumexp of the rows.
    fn finish(&self, given: &Given<'k>, sums: &[Patch<'k>]) {
        let k = &self.kernel;
        for half in 0..2 {
            let sum = self.of_four(self.sum[half].get(), |a, b| a + b);
            let token = given.start + own_row(k) + half as u32 * 8;
            let writes = token.lt(given.q.rows) & (k.lane() & 3).eq(0);
            k.when(writes, || {
                let lse = self.max[half].get() * self.factor + sum.ln() * LOG2_E;
                given.lse.store(token, lse);
            });
            let factor = sum.rcp();
            row(sums, half).for_each(|sum| sum.mul_assign(factor));
        }
    }
}

/// The elements of the lane's upper or lower row.
fn row<'k>(patches: &[Patch<'k>], half: usize) -> impl Iterator<Item = Var<'k, f32>> {
    patches.iter().flat_map(move |patch| [patch[half * 2], patch[half * 2 + 1]])
}
