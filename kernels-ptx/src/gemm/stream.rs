//! Large products: operands stream into shared memory as they are, several stages ahead, and tensor
//! cores multiply them.
//!
//! A stage is copied by `cp.async`, without a register, while those before it are multiplied; one
//! barrier for each stage says both that it has landed and that the one that is filled next is no
//! longer read. Shared memory is that of the launch, since it is more than an entry may declare.
//!
//! **bf16.** Both operands lie in memory as bf16 and are multiplied as such, 16 steps of the
//! contraction at a time, in one chain: the bits are those of the tiles of `gemm/brain.rs` without
//! a split. On sm_90a a warpgroup multiplies, straight from shared memory and at twice the rate of
//! a warp (`gemm/stream/warpgroup.rs`); elsewhere its four warps do.
//!
//! **NF4.** What b has in NF4 is decoded into the stage, where it lies as bf16 and is multiplied as
//! such (`gemm/stream/decoder.rs`).
//!
//! **f32.** See `gemm/stream/split.rs`, and `gemm/stream/exact.rs` for warpgroups on sm_90a.
//!
//! **Before sm_80**, which has none of these instructions, threads copy by themselves and make the
//! products with fused multiply-adds, in f32 without splitting anything.
//!
//! **Limits.** Rows of operands start at multiples of 16 bytes and are multiples of that long.

mod copier;
mod decoder;
mod exact;
mod halves;
mod panel;
mod ring;
mod split;
mod tiles;
mod warpgroup;

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, Shared, Value};

use super::Operands;
use super::brain::{self, Patch, Place, patches};
use super::cargo::Stored;
use super::operand::Contiguous;
use super::sizes::{Parameters, Storage};
use super::write::{Groups, Writer};
use copier::Copier;
use decoder::Decoder;
use panel::{Lies, Panel, Section};
use ring::Ring;
use split::Split;
use tiles::Tile;

/// What is multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Factor {
    /// Operands in f32.
    Single,
    /// Operands in bf16.
    Brain,
}

impl Factor {
    /// Bytes of an element.
    fn bytes(self) -> u32 {
        match self {
            Self::Single => 4,
            Self::Brain => 2,
        }
    }

    fn storage(self) -> Storage {
        match self {
            Self::Single => Storage::F32,
            Self::Brain => Storage::Bf16,
        }
    }
}

/// The entries of the image `name`, one for each tile.
pub(super) fn entries(
    (target, name): (SmTarget, &str),
    operands: Operands,
) -> impl Iterator<Item = Entry> {
    shapes(target, operands).map(move |shape| shape.entry(&shape.tile.named(name)))
}

/// The same entries by name, with the bytes of shared memory that a launch must provide.
pub(super) fn shared_bytes(
    (target, name): (SmTarget, &str),
    operands: Operands,
) -> impl Iterator<Item = (String, u32)> {
    shapes(target, operands).map(move |shape| (shape.tile.named(name), shape.shared_bytes()))
}

/// Every tile that the target has. The launch geometry of `retrograph-kernels` names the same ones.
fn shapes(target: SmTarget, (layout, storage): Operands) -> impl Iterator<Item = Shape> {
    let shapes = tiles::of(storage).iter().map(move |tile| Shape { target, tile, layout, storage });
    shapes.filter(|shape| shape.stages()[1] > 0)
}

/// One entry of an image.
#[derive(Clone, Copy)]
struct Shape {
    target: SmTarget,
    tile: &'static Tile,
    layout: [Contiguous; 2],
    /// How b is stored.
    storage: Storage,
}

/// Bytes to a multiple of which the lines of swizzled panels start.
const ALIGNED: u32 = 1024;

/// The first place in `memory`, of which so many bytes more are there, where such lines may start.
fn aligned<'k>(k: &Kernel<'k>, memory: Shared<'k, u32>) -> Shared<'k, u32> {
    memory.at(((k.constant(0u32) - memory.address()) & (ALIGNED - 1)) >> 2)
}

impl Shape {
    /// What is multiplied.
    fn factor(self) -> Factor {
        match self.storage {
            Storage::F32 => Factor::Single,
            Storage::Bf16 | Storage::Nf4 => Factor::Brain,
        }
    }

    /// Length of the contraction in a stage, and number of stages.
    fn stages(self) -> [u32; 2] {
        if self.is_exact() {
            return exact::STAGES;
        }
        if self.has_warpgroups() {
            return [64, self.tile.behind];
        }
        let smem_kib = self.target.features().smem_bytes_per_block >> 10;
        self.tile.stages[match smem_kib {
            160.. => 0,
            99.. => 1,
            _ => 2,
        }]
    }

    /// Whether warpgroups multiply, and not warps.
    fn has_warpgroups(self) -> bool {
        self.target.features().wgmma
    }

    /// Whether warpgroups multiply f32.
    fn is_exact(self) -> bool {
        self.has_warpgroups() && self.factor() == Factor::Single
    }

    fn threads(self) -> u32 {
        32 * self.tile.warps[0] * self.tile.warps[1]
    }

    fn panels(self) -> [Panel; 2] {
        [0, 1].map(|operand| Panel {
            extent: self.tile.extent[operand],
            depth: self.stages()[0],
            threads: if self.is_exact() { exact::TEAM } else { self.threads() },
            contiguous: self.layout[operand],
            factor: self.factor(),
            lies: match self.has_warpgroups() && !self.is_exact() {
                true => Lies::Swizzled,
                false => Lies::Padded,
            },
        })
    }

    /// The place of a thread, and its sums.
    fn sums<'k>(self, k: &Kernel<'k>) -> (Place<'k>, Vec<Vec<Patch<'k>>>) {
        let Tile { extent: [rows, columns], warps, .. } = *self.tile;
        if self.has_warpgroups() {
            let rows = rows / (self.threads() / warpgroup::THREADS);
            (Place::of_warpgroups(k, rows), patches(k, [rows / 4, columns]))
        } else {
            let warp = [rows / warps[0], columns / warps[1]];
            (Place::of(k, warps, warp), patches(k, warp))
        }
    }

    /// What a block whose tile begins at `origin` takes of the operands.
    fn sections<'k>(self, given: &Parameters<'k>, origin: [Value<'k, u32>; 2]) -> [Section<'k>; 2] {
        let [a, b] = self.panels();
        let [rows, columns] = origin;
        [
            Section { panel: a, source: given.a, origin: rows, sizes: [given.m, given.k] },
            Section { panel: b, source: given.b, origin: columns, sizes: [given.n, given.k] },
        ]
    }

    /// What brings the operands into stages: b in NF4 is decoded, everything else copied.
    fn feeds<'k>(
        self,
        k: &Kernel<'k>,
        [a, b]: [Section<'k>; 2],
    ) -> (Vec<Copier<'k>>, Option<Decoder<'k>>) {
        let copier = |section| Copier::new((k, self.target), k.tid_x(), section);
        let a = copier(a);
        let Stored::Nf4(of) = b.source.stored else {
            return (vec![a, copier(b)], None);
        };
        of.fill_tables();
        (vec![a], Some(Decoder::new(k, self.target, (b, of))))
    }

    /// Words that the operands take in a stage, and codes behind them.
    fn lengths(self) -> [u32; 3] {
        let [a, b] = self.panels();
        let coded = self.storage == Storage::Nf4;
        [a.words(), b.words(), if coded { decoder::words(self.target, b) } else { 0 }]
    }

    /// Bytes of shared memory that the launch must provide.
    fn shared_bytes(self) -> u32 {
        if self.is_exact() {
            return exact::words(self) * 4 + ALIGNED;
        }
        let aligned = if self.has_warpgroups() { ALIGNED } else { 0 };
        self.lengths().iter().sum::<u32>() * self.stages()[1] * 4 + aligned
    }

    /// The entry.
    fn entry(self, name: &str) -> Entry {
        let Self { target, tile, .. } = self;
        if self.is_exact() {
            return exact::entry(self, name);
        }
        let [depth, stages] = self.stages();
        Kernel::build(name, |k| {
            k.max_threads(self.threads());
            k.min_blocks(tile.together);
            let given = Parameters::declare(k, [self.factor().storage(), self.storage]);
            let origin = given.origin(k, tile.extent);
            let panels = self.panels();
            let sections = self.sections(&given, origin);
            let (copiers, decoder) = self.feeds(k, sections);
            let (place, sums) = self.sums(k);
            let lengths = self.lengths();
            let behind = self.has_warpgroups();
            let memory = k.dynamic_shared();
            let memory = if behind { aligned(k, memory) } else { memory };
            let ring = Ring {
                kernel: *k,
                target,
                stages,
                depth,
                lengths,
                copiers,
                decoder,
                memory,
                behind,
            };
            match self.factor() {
                Factor::Brain if behind => {
                    let first = warpgroup::first(k, &sums);
                    ring.run(&given, |stages, meanwhile| {
                        warpgroup::multiply(k, panels, (stages, meanwhile), (first, &sums));
                    });
                    k.wait_products(0);
                    // Stages behind the last one were filled with zeros, where the sums go now.
                    k.wait_copies(0);
                }
                Factor::Brain => {
                    let start = k.constant(0);
                    let operands = [0, 1].map(|i| {
                        let lies = (panels[i].contiguous, panels[i].pitch());
                        brain::Operand::new(k, lies, (place.origin[i], start), i == 0)
                    });
                    ring.run(&given, |stages, _| {
                        brain::multiply((k, target), depth, (&operands, stages), &sums);
                    });
                }
                Factor::Single => {
                    let operands = [0, 1].map(|i| Split::new(k, panels[i], place.origin[i], i));
                    ring.run(&given, |stages, _| {
                        split::multiply((k, target), depth, (&operands, stages), &sums);
                    });
                }
            }
            let rounds = (self.factor() == Factor::Brain).then_some(target);
            let writer = Writer { kernel: *k, rounds, given, origin };
            if behind {
                self.write_lines(&writer, memory.reinterpret(), (&place, &sums));
                return;
            }
            brain::each_pair(k, &place, &sums, |row, column, pair| {
                writer.write(row, column, &pair);
            });
        })
    }

    /// Writes the sums by way of shared memory, so that neighbouring threads write neighbouring
    /// elements: a warp fills whole lines, where its own sums are a quarter of eight.
    fn write_lines<'k>(
        self,
        writer: &Writer<'k>,
        memory: Shared<'k, f32>,
        (place, sums): (&Place<'k>, &[Vec<Patch<'k>>]),
    ) {
        let k = &writer.kernel;
        let [rows, columns] = self.tile.extent;
        // Four rows of pairs that lanes store at once are in different banks.
        let pitch = columns + 8;
        assert!(rows * pitch * 4 <= self.shared_bytes() - ALIGNED, "the sums fit into the stages");
        // Every warpgroup has waited for its products, and now all have.
        k.barrier();
        brain::store_pairs(k, (memory, pitch), place, sums);
        k.barrier();
        let (count, first_row, extent) = (1, 0, [rows, columns]);
        let threads = self.threads();
        writer.write_groups(&Groups { memory, count, first_row, extent, pitch, threads });
    }
}
