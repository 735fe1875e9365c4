//! The gradients: a block has 64 queries and walks over the keys up to the last of them, or it has
//! 64 keys and walks over the queries from the first of them on, of one head after the other.
//!
//! Both compute `p` and `ds` again, one with queries as rows, the other one with keys as rows, so
//! that what follows has them where the next product wants its factors.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, Pred, Ptr, Value, Var};

use super::panel::{Carrier, Panel, Source};
use super::product::Lanes;
use super::weights::Weights;
use super::write::write;
use super::{COLUMNS, ROWS, THREADS, hide, hold, patches};

/// What the rows of a block are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// Queries: the gradient of q.
    Queries,
    /// Keys: the gradients of k and v.
    Keys,
}

/// The entry for heads of up to `width` elements whose rows are `side`.
pub(super) fn entry(target: SmTarget, width: u32, side: Side) -> Entry {
    let name = match side {
        Side::Queries => "fused_attention_grad_q",
        Side::Keys => "fused_attention_grad_kv",
    };
    Kernel::build(&format!("{name}_{width}"), |k| {
        k.max_threads(THREADS);
        k.min_blocks(2);
        let given = Given::declare(k, side);
        let (panels, words) = Panel::list([ROWS, ROWS, COLUMNS, COLUMNS], width);
        let [own, own_other, walked, walked_other] = panels;
        let memory = k.shared::<u32>("panels", words as usize);
        let carrier = Carrier::new((k, target), memory, (width, given.head_dim));
        for (panel, source) in [own, own_other].into_iter().zip(given.own) {
            k.range(0, ROWS, COLUMNS, |row| {
                carrier.load((source, given.start + row), row * (width / 2) + panel.first);
            });
        }
        let walk = Walk::new(k, &given);
        carrier.load((given.walked[0], walk.start.get()), k.constant(walked.first));
        k.barrier();

        let lanes = Lanes::new((k, target), memory, width);
        let sums = patches(k, width);
        let others = if side == Side::Keys { patches(k, width) } else { Vec::new() };
        let weights = Weights::new(k, &given);
        k.range(0, walk.count, 1, |index| {
            let (start, head) = (walk.start.get(), walk.head.get());
            let [_, other] = walk.sources(&given);
            carrier.fetch(other, start);
            let (scores, grads) = (patches(k, COLUMNS), patches(k, COLUMNS));
            lanes.multiply([own, walked], &scores);
            carrier.put((other, start), k.constant(walked_other.first));
            k.barrier();
            walk.advance();
            let ([next, _], more) = (walk.sources(&given), (index + 1).lt(walk.count));
            k.when(more, || carrier.fetch(next, walk.start.get()));
            lanes.multiply([own_other, walked_other], &grads);
            weights.turn((start, head), &scores, &grads);
            // Afterwards, so that a query that is not finite spoils no keys behind it.
            k.when(given.crosses(start), || {
                let hide = |patches: &_| {
                    hide(k, ([given.start, start], side == Side::Queries), patches, 0.0);
                };
                hide(&grads);
                if side == Side::Keys {
                    hide(&scores);
                }
            });
            let [probs, grads] = [scores, grads].map(|patches| hold(target, &patches));
            if side == Side::Keys {
                lanes.accumulate(&probs, walked_other, &others);
            }
            lanes.accumulate(&grads, walked, &sums);
            k.barrier();
            let load = (next, walk.start.get());
            k.when(more, || carrier.put(load, k.constant(walked.first)));
            k.barrier();
        });
        let head = (width, given.head_dim);
        let memory = (k, memory.reinterpret());
        let [first, second] = given.grads.map(|grads| (grads, given.start));
        write(memory, first, head, (&sums, given.scale));
        if side == Side::Keys {
            k.barrier();
            write(memory, second, head, (&others, k.constant(1.0)));
        }
    })
}

/// The parameters, and where this block is.
pub(super) struct Given<'k> {
    pub(super) side: Side,
    /// What the block has rows of: q and grad_out, or k and v; and what it walks over, of the
    /// first head.
    own: [Source<'k>; 2],
    walked: [Source<'k>; 2],
    /// For each query its logsumexp and delta, in the first head.
    pub(super) pairs: Ptr<'k, u64>,
    /// Where sums go; the second one is for keys only.
    grads: [Source<'k>; 2],
    pub(super) seq: Value<'k, u32>,
    head_dim: Value<'k, u32>,
    pub(super) scale: Value<'k, f32>,
    /// The first row.
    pub(super) start: Value<'k, u32>,
    /// Heads that are walked over.
    heads: Value<'k, u32>,
}

impl<'k> Given<'k> {
    fn declare(k: &Kernel<'k>, side: Side) -> Self {
        let [q, keys, values, grad_out, pairs, grads] =
            ["q", "keys", "values", "grad_out", "rows", "grads"].map(|name| k.pointer::<f32>(name));
        let [batch, seq, heads, kv_heads, head_dim, parts] =
            ["batch", "seq", "heads", "kv_heads", "head_dim", "parts"]
                .map(|name| k.param::<u32>(name));
        let scale = k.param::<f32>("scale");
        let (x, y, group) = (k.ctaid_x(), k.ctaid_y(), heads / kv_heads);
        // The sequence, the first head and the key head of the block, and its part of the group.
        let (sequence, head, kv_head, part) = match side {
            Side::Queries => {
                let head = x % heads;
                (x / heads, head, head / group, k.constant(0))
            }
            Side::Keys => {
                let (part, plane) = (x % parts, x / parts);
                let kv_head = plane % kv_heads;
                (plane / kv_heads, kv_head * group + part * (group / parts), kv_head, part)
            }
        };
        let rows = |tensor: Ptr<'k, f32>, (heads, head, token): (_, Value<'k, u32>, _)| {
            let stride = head_dim * heads;
            let base = tensor.at(stride.mul_wide(token));
            Source { base, stride, offset: head * head_dim, rows: seq }
        };
        let first = sequence * seq;
        let queries = [q, grad_out].map(|tensor| rows(tensor, (heads, head, first)));
        let key_rows = [keys, values].map(|tensor| rows(tensor, (kv_heads, kv_head, first)));
        // Planes of gradients of keys are [part, 2, batch, seq, kv_heads, head_dim].
        let plane = |other: u32| (part * 2 + other) * (batch * seq) + first;
        let (own, walked, grads) = match side {
            Side::Queries => (queries, key_rows, [rows(grads, (heads, head, first)); 2]),
            Side::Keys => {
                let grads = [0, 1].map(|other| rows(grads, (kv_heads, kv_head, plane(other))));
                (key_rows, queries, grads)
            }
        };
        let pairs = pairs.reinterpret().at((sequence * heads + head).mul_wide(seq));
        // Blocks with the longest walks come first.
        let (start, heads) = match side {
            Side::Queries => ((k.nctaid_y() - 1 - y) * ROWS, k.constant(1)),
            Side::Keys => (y * ROWS, group / parts),
        };
        Self { side, own, walked, pairs, grads, seq, head_dim, scale, start, heads }
    }

    /// Where the walk over one head begins and ends.
    fn range(&self) -> [Value<'k, u32>; 2] {
        match self.side {
            Side::Queries => [self.start.kernel().constant(0), (self.start + ROWS).min(self.seq)],
            Side::Keys => [self.start, self.seq],
        }
    }

    /// Whether keys are hidden from queries in the tile that begins at `start`.
    fn crosses(&self, start: Value<'k, u32>) -> Pred<'k> {
        match self.side {
            Side::Queries => (start + (COLUMNS - 1)).gt(self.start),
            Side::Keys => start.lt(self.start + (ROWS - 1)),
        }
    }
}

/// Where the walk over the tiles of all heads is.
struct Walk<'k> {
    range: [Value<'k, u32>; 2],
    /// Tiles of all heads.
    count: Value<'k, u32>,
    /// The first row of the tile, and its head, counted from the first one.
    start: Var<'k, u32>,
    head: Var<'k, u32>,
}

impl<'k> Walk<'k> {
    fn new(k: &Kernel<'k>, given: &Given<'k>) -> Self {
        let range = given.range();
        let tiles = (range[1] - range[0] + (COLUMNS - 1)) / COLUMNS;
        Self { range, count: tiles * given.heads, start: k.var(range[0]), head: k.var(0u32) }
    }

    /// Goes to the next tile. Behind the last one there may be no such head.
    fn advance(&self) {
        let next = self.start.get() + COLUMNS;
        let wraps = next.ge(self.range[1]);
        self.start.set(wraps.select(self.range[0], next));
        self.head.update(|head| wraps.select(head + 1, head));
    }

    /// What is walked over, in the head of the tile.
    fn sources(&self, given: &Given<'k>) -> [Source<'k>; 2] {
        let head = self.head.get();
        given.walked.map(|from| {
            let offset = head.mul_add(given.head_dim, from.offset);
            Source { offset, ..from }
        })
    }
}
