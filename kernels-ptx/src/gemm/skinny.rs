//! Skinny GEMM: `y = x·wᵀ + bias (+ y)` for up to 8 rows of x and up to three w in bf16.
//!
//! The kernel is bound by reading w. A tile of 16 rows of w is the operand a of `mma.m16n8k16`, and
//! the rows of x, rounded to bf16, are the 8 columns of b. Within 32 steps, any order of K is valid
//! if it is the same for both operands. So a lane holds 8 consecutive elements of two rows of w and
//! of one row of x, loaded from global memory to registers by 16-byte vectors. Loads of w bypass
//! the L1 cache, which keeps x.
//!
//! **SwiGLU.** In entries named `swiglu`, a tile has 8 rows of each of two w, and the result is
//! `silu(gate) · up` in bf16.
//!
//! **Pipeline.** A warp has several chunks of 32 steps in flight. It loads the vectors of the next
//! chunks, or the first ones of its next tile, as soon as it has multiplied the last ones, so loads
//! do not drain between tiles. With PDL, it loads its first vectors of w before it waits for its
//! predecessor. The launch declares these reads. The kernel reads nothing else before the wait.
//! While a block multiplies its last chunks, it prefetches part of the next launch's weights into
//! L2.
//!
//! **Grid.** A block of 8 or 16 warps loops over tiles. Each warp multiplies every eighth or
//! sixteenth chunk.
//!
//! **Determinism.** Each warp accumulates tensor-core products in ascending order, and the warps
//! are added in ascending order. An element of y depends on one row of x, and not on the number of
//! rows. Before sm_80, a lane uses fused multiply-adds, and a butterfly adds four lanes.

mod output;
mod products;
mod weights;

use retrograph_kernel_abi::gemm::{SKINNY_WARPS as WARPS, SkinnyForm};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::{Entry, Module};
use retrograph_ptx::build::{Kernel, ModuleBuilder, Value};

use crate::primitives::pdl;
use output::Output;
use products::LaneProducts;
use weights::{WeightLoader, Weights};

/// Steps of K per chunk: 8 for each of the four lanes that share a row.
const CHUNK: u32 = 32;
/// Elements per vector.
const VECTOR: u32 = 8;
/// The most warps of a block.
const MAX_WARPS: u32 = WARPS[1];

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    let entries = SkinnyForm::ALL.iter().map(|&form| entry(Config { target, form }));
    entries.into_iter().fold(ModuleBuilder::new(target), ModuleBuilder::entry).build()
}

/// The parameters of an entry.
#[derive(Clone, Copy)]
struct Config {
    target: SmTarget,
    form: SkinnyForm,
}

impl Config {
    /// Chunks in flight per warp, as many as fit in the registers.
    fn in_flight(self) -> u32 {
        match (self.form, self.target.features().bf16_mma) {
            (_, false) => 2,
            (SkinnyForm::F32, true) => 4,
            (SkinnyForm::Bf16 | SkinnyForm::SwiGlu, true) => 6,
        }
    }

    /// Steps of K that a block has in flight.
    fn group<'k>(self, k: &Kernel<'k>) -> Value<'k, u32> {
        chunk_stride(k) * self.in_flight()
    }
}

fn entry(config: Config) -> Entry {
    Kernel::build(config.form.entry(), |k| {
        let target = config.target;
        k.max_threads(32 * MAX_WARPS);
        k.min_blocks(1);
        let weights = Weights::declare(k, config);
        pdl::launch_dependents(k, target);
        // The tile, and the first step of the chunks that are multiplied next.
        let (tile, step) = (k.var(k.ctaid_x()), k.var(0u32));
        let loader = WeightLoader::new(k, &weights);
        loader.fetch();
        pdl::wait(k, target);
        let products = LaneProducts::new(k, &weights);
        products.fetch_x(step.get());
        let output = Output::new(k, &weights);
        k.while_loop(
            || tile.get().lt(weights.tiles),
            || {
                let (next_tile, next) = (tile.get() + k.nctaid_x(), step.get() + config.group(k));
                let ends_tile = next.ge(weights.inputs);
                let is_last = ends_tile & next_tile.ge(weights.tiles);
                k.when(step.get().eq(0), || output.load_addends(tile.get()));
                weights.next_weights.prefetch(k, target, is_last);
                products.add(&loader, step.get());
                loader.fetch();
                step.set(ends_tile.select(0, next));
                products.fetch_x(step.get());
                k.when(ends_tile, || {
                    output.write(&products);
                    products.reset();
                    tile.set(next_tile);
                });
            },
        );
    })
}

/// Steps of K between chunks of a warp: one chunk for each warp.
fn chunk_stride<'k>(k: &Kernel<'k>) -> Value<'k, u32> {
    k.ntid_x() * (CHUNK / 32)
}

/// Steps of K before the first vector of this lane.
fn first_step<'k>(k: &Kernel<'k>) -> Value<'k, u32> {
    k.warp() * CHUNK + (k.lane() & 3) * VECTOR
}
