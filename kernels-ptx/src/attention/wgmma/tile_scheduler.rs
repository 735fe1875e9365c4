//! A static, persistent tile scheduler: each block of the grid computes several tiles of queries,
//! one after the other, so that the copies for the next tile overlap the end of this one.

use retrograph_ptx::build::{Kernel, Pred, Value};

/// The tiles of queries of a launch, in descending order of their keys: all heads of all sequences
/// at the last position come first.
#[derive(Clone, Copy)]
pub(super) struct TileScheduler<'k> {
    kernel: Kernel<'k>,
    /// Heads of a sequence.
    heads: Value<'k, u32>,
    sequences: Value<'k, u32>,
    /// Tiles of a head.
    tiles: Value<'k, u32>,
}

/// A tile of queries.
#[derive(Clone, Copy)]
pub(super) struct QueryTile<'k> {
    pub(super) sequence: Value<'k, u32>,
    pub(super) head: Value<'k, u32>,
    /// The tile within its sequence.
    pub(super) index: Value<'k, u32>,
}

/// One of the tiles of a block.
#[derive(Clone, Copy)]
pub(super) struct Turn<'k> {
    /// Number of earlier tiles of the block.
    pub(super) round: Value<'k, u32>,
    pub(super) tile: QueryTile<'k>,
    /// The next tile of the block, if [`Self::has_next`].
    pub(super) next: QueryTile<'k>,
    pub(super) has_next: Pred<'k>,
}

impl<'k> TileScheduler<'k> {
    /// The scheduler of `tiles` tiles of each of `heads` heads in `sequences` sequences.
    pub(super) fn new([heads, sequences]: [Value<'k, u32>; 2], tiles: Value<'k, u32>) -> Self {
        Self { kernel: heads.kernel(), heads, sequences, tiles }
    }

    /// Runs `body` for each tile of this block.
    pub(super) fn for_each(&self, body: impl FnOnce(Turn<'k>)) {
        let (k, count) = (&self.kernel, self.count());
        let rounds = (count + (k.nctaid_x() - 1)) / k.nctaid_x();
        k.range(0, rounds, 1, |round| {
            let [number, next] = [self.number(round), self.number(round + 1)];
            k.when(number.lt(count), || {
                let [tile, next_tile] = [number, next].map(|number| self.tile(number));
                body(Turn { round, tile, next: next_tile, has_next: next.lt(count) });
            });
        });
    }

    /// The first tile of this block, and whether there is one.
    pub(super) fn first(&self) -> (QueryTile<'k>, Pred<'k>) {
        let number = self.kernel.ctaid_x();
        (self.tile(number), number.lt(self.count()))
    }

    fn count(&self) -> Value<'k, u32> {
        self.heads * self.sequences * self.tiles
    }

    /// The number of this block's tile in a round. Every other round is in reverse order, so that
    /// the blocks with the longest tiles of one round have the shortest of the next.
    fn number(&self, round: Value<'k, u32>) -> Value<'k, u32> {
        let (k, blocks) = (&self.kernel, self.kernel.nctaid_x());
        let reversed = (round & 1).ne(0);
        round * blocks + reversed.select(blocks - 1 - k.ctaid_x(), k.ctaid_x())
    }

    /// Two divisions that depend on each other; the first copy of a block waits for them.
    fn tile(&self, number: Value<'k, u32>) -> QueryTile<'k> {
        let of_heads = number / self.heads;
        let rank = of_heads / self.sequences;
        QueryTile {
            sequence: of_heads - rank * self.sequences,
            head: number - of_heads * self.heads,
            index: self.tiles - 1 - rank,
        }
    }
}
