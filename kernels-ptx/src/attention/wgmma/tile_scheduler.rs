//! A static tile scheduler. A persistent block computes several tiles of queries, one after the
//! other, so that the first copies of the next tile overlap the end of this one.

use retrograph_ptx::build::{Kernel, Value};

use super::Config;
use super::smem::Smem;

/// The tiles of queries of a launch, in descending order of their keys: all heads of all sequences
/// at the last position come first.
#[derive(Clone, Copy)]
pub(super) struct TileScheduler<'k> {
    pub(super) kernel: Kernel<'k>,
    /// Heads of a sequence.
    pub(super) heads: Value<'k, u32>,
    pub(super) sequences: Value<'k, u32>,
    /// Tiles of a head.
    pub(super) tiles: Value<'k, u32>,
    /// Whether a block computes several tiles. Otherwise the grid has a block for each tile.
    pub(super) is_persistent: bool,
}

/// A tile of queries.
#[derive(Clone, Copy)]
pub(super) struct Tile<'k> {
    pub(super) sequence: Value<'k, u32>,
    pub(super) head: Value<'k, u32>,
    /// The tile within its head.
    pub(super) index: Value<'k, u32>,
}

/// What a block does for a tile of queries. It has the operands and results of the tile.
pub(super) trait TileWork<'k> {
    /// Copies the resident tiles and the first streamed ones. The producer does it.
    fn prefetch(&self, k: &Kernel<'k>, config: Config, smem: &[Smem<'k>]);

    /// Computes the tile, whose resident tiles arrive in a phase of parity `parity`. If blocks are
    /// persistent, it calls `next` once: when this warp no longer reads the resident tiles, and all
    /// stages that it still reads are full.
    fn compute(
        &self,
        k: &Kernel<'k>,
        config: Config,
        smem: &[Smem<'k>],
        parity: Value<'k, u32>,
        next: impl FnOnce(),
    );
}

impl<'k> TileScheduler<'k> {
    /// Computes the tiles of this block in shared memory that `declare` declares. The resident
    /// tiles are in the first part of it.
    pub(super) fn run<W: TileWork<'k>>(
        &self,
        config: Config,
        declare: impl FnOnce() -> Vec<Smem<'k>>,
        work: impl Fn(Tile<'k>) -> W,
    ) {
        let (k, count) = (&self.kernel, self.count());
        // Before the barrier that ends the initialization, because the first copies wait for it.
        let first = work(self.tile(k.ctaid_x()));
        let smem = declare();
        let resident = smem[0];
        let has_first = k.ctaid_x().lt(count);
        k.when(resident.copies & has_first, || first.prefetch(k, config, &smem));
        if !self.is_persistent {
            k.when(has_first, || first.compute(k, config, &smem, k.constant(0), || {}));
            return;
        }
        let rounds = (count + (k.nctaid_x() - 1)) / k.nctaid_x();
        k.range(0, rounds, 1, |round| {
            let [number, next] = [self.number(round), self.number(round + 1)];
            let (parity, has_next) = (round & 1, next.lt(count));
            // The branch also keeps ptxas from moving a later wait before it.
            let prefetch_next = || {
                resident.release_resident();
                k.when(resident.copies & has_next, || {
                    resident.wait_resident_empty(parity);
                    work(self.tile(next)).prefetch(k, config, &smem);
                });
            };
            k.when(number.lt(count), || {
                work(self.tile(number)).compute(k, config, &smem, parity, prefetch_next);
            });
        });
    }

    fn count(&self) -> Value<'k, u32> {
        self.heads * self.sequences * self.tiles
    }

    /// The number of this block's tile in a round. Every other round is in reverse order, so that
    /// the blocks with the longest tiles of one round have the shortest of the next.
    fn number(&self, round: Value<'k, u32>) -> Value<'k, u32> {
        let (block, blocks) = (self.kernel.ctaid_x(), self.kernel.nctaid_x());
        let reversed = (round & 1).ne(0);
        round * blocks + reversed.select(blocks - 1 - block, block)
    }

    /// Two divisions that depend on each other; the first copy of a block waits for them.
    fn tile(&self, number: Value<'k, u32>) -> Tile<'k> {
        let of_heads = number / self.heads;
        let rank = of_heads / self.sequences;
        Tile {
            sequence: of_heads - rank * self.sequences,
            head: number - of_heads * self.heads,
            index: self.tiles - 1 - rank,
        }
    }
}
