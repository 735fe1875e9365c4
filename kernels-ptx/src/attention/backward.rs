//! The gradients: a block has queries and walks over the keys up to the last of them, or it has
//! keys and walks over the queries from the first of them on, of one head after the other.
//!
//! Both compute `p` and `ds` again, one with queries as rows, the other one with keys as rows, so
//! that what follows has them where the next product wants its factors. Gradients of probabilities
//! come first: while they are computed, what scores are made of is on its way, and afterwards what
//! they were made of can be replaced.

use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, Pred, Ptr, Value, Var};

use super::config::Shape;
use super::epilogue::Writer;
use super::loader::{Carrier, Load, Panel, Source};
use super::mma::{Lanes, hold};
use super::score_grads::Weights;
use super::{COLUMNS, hide, patches};

/// What the rows of a block are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// Queries: the gradient of q.
    Queries,
    /// Keys: the gradients of k and v.
    Keys,
}

/// The name of the entry.
pub(super) fn name(shape: Shape, side: Side) -> String {
    let part = match side {
        Side::Queries => "grad_q",
        Side::Keys => "grad_kv",
    };
    shape.named(&format!("_{part}_{}", shape.width))
}

/// Panels of what a block has and of what it walks over, those of scores first, and their words.
pub(super) fn panels(shape: Shape) -> ([Panel; 4], u32) {
    Panel::list([shape.rows(), shape.rows(), COLUMNS, COLUMNS], shape)
}

/// The entry whose rows are `side`.
pub(super) fn entry(shape: Shape, side: Side) -> Entry {
    Kernel::build(&name(shape, side), |k| {
        k.max_threads(shape.threads());
        k.min_blocks(2);
        let given = Given::declare(k, (shape, side));
        let ([own, own_other, walked, walked_other], words) = panels(shape);
        let memory = shape.memory(k, words);
        let carrier = Carrier::new((k, shape), memory, given.head_dim);
        for (panel, source) in [own, own_other].into_iter().zip(given.own) {
            k.range(0, shape.rows(), COLUMNS, |row| {
                let first = row * shape.row_words() + panel.first;
                carrier.load(Load { source, start: given.start + row, first });
            });
        }
        let walk = Walk::new(k, &given);
        let load = |panel: Panel, source| {
            let (start, first) = (walk.start.get(), k.constant(panel.first));
            Load { source, start, first }
        };
        carrier.load(load(walked_other, given.walked[1]));
        k.barrier();

        let lanes = Lanes::new((k, shape), memory, given.head_dim);
        let sums = patches(k, shape.width);
        let others = if side == Side::Keys { patches(k, shape.width) } else { Vec::new() };
        let weights = Weights::new(k, &given);
        k.range(0, walk.count, 1, |index| {
            let start = walk.start.get();
            weights.fetch((start, walk.head.get()));
            let this = load(walked, walk.sources(&given)[0]);
            carrier.fetch(this);
            let (scores, grads) = (patches(k, COLUMNS), patches(k, COLUMNS));
            lanes.multiply([own_other, walked_other], &grads);
            carrier.put(this);
            k.barrier();
            walk.advance();
            let next = load(walked_other, walk.sources(&given)[1]);
            let more = (index + 1).lt(walk.count);
            // The gradient of v is the last to read what is replaced.
            let late = side == Side::Keys && carrier.is_direct();
            if !late {
                k.when(more, || carrier.fetch(next));
            }
            lanes.multiply([own, walked], &scores);
            weights.turn(&scores, &grads);
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
            let [probs, grads] = [scores, grads].map(|patches| hold(shape, &patches));
            if side == Side::Keys {
                lanes.accumulate(&probs, walked_other, &others);
                k.barrier();
            }
            if late {
                k.when(more, || carrier.fetch(next));
            }
            lanes.accumulate(&grads, walked, &sums);
            k.when(more, || carrier.put(next));
            k.barrier();
        });
        let Given { start, head_dim, scale, grads: [first, second], .. } = given;
        let memory = memory.reinterpret();
        let writer = Writer { kernel: *k, shape, memory, head_dim, start, rounded: None };
        writer.write(first, &sums, scale);
        if side == Side::Keys {
            writer.write(second, &others, None);
        }
    })
}

/// The parameters, and where this block is.
pub(super) struct Given<'k> {
    shape: Shape,
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
    fn declare(k: &Kernel<'k>, (shape, side): (Shape, Side)) -> Self {
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
            Side::Queries => ((k.nctaid_y() - 1 - y) * shape.rows(), k.constant(1)),
            Side::Keys => (y * shape.rows(), group / parts),
        };
        Self { shape, side, own, walked, pairs, grads, seq, head_dim, scale, start, heads }
    }

    /// Where the walk over one head begins and ends.
    fn range(&self) -> [Value<'k, u32>; 2] {
        let end = self.start + self.shape.rows();
        match self.side {
            Side::Queries => [self.start.kernel().constant(0), end.min(self.seq)],
            Side::Keys => [self.start, self.seq],
        }
    }

    /// Whether keys are hidden from queries in the tile that begins at `start`.
    fn crosses(&self, start: Value<'k, u32>) -> Pred<'k> {
        match self.side {
            Side::Queries => (start + (COLUMNS - 1)).gt(self.start),
            Side::Keys => start.lt(self.start + (self.shape.rows() - 1)),
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
