//! GEMV: `y = α·W·x (+ bias) (+ y)` for up to three matrices W of shape `outputs × inputs`, in f32,
//! bf16 or NF4. The f32 and bf16 images also take up to three more matrices in f32 (LoRA A).
//!
//! A matrix-vector product reads every weight once, so the bytes of W bound the time. A warp
//! computes four outputs: it reads four rows by 16-byte vectors, two in flight per row, past the L1
//! cache (codes and scales of NF4 go through it), and x from the cache. Products are f32; weights
//! are converted or decoded without rounding.
//!
//! Entries named `norm` fuse the preceding RMSNorm: they multiply by `x ⊙ gamma`, add up x² along
//! with the products, and scale the sums by `1 / sqrt(mean(x²) + eps)` at the end. Entries named
//! `gated` also fuse SwiGLU: `silu(W0·x + bias0) · (W1·x + bias1)`.
//!
//! **Prefetch.** With PDL, a kernel loads the first vectors of its weights before it waits for its
//! predecessor; the launch declares these reads. Nothing else is read before the wait. Once all of
//! its own weights are in flight, a block prefetches part of the next launch's weights into L2.
//!
//! **Grid.** Blocks of 8 warps. In `split<S>`, S warps share four rows, and each takes every S-th
//! group of 32 vectors along K. Launches with few outputs use a larger S to fill the device. With S
//! = 1 a warp loops over tiles of four rows, and loads the first vectors of its next tile before it
//! reduces the current one.
//!
//! **Determinism.** A lane adds its vectors in ascending order, a butterfly of fixed shape adds the
//! lanes, and the S warps are added in ascending order. Unaligned operands, and lengths that are
//! not a multiple of the vector length, are read element by element in the same order.

mod lane_dots;
mod matrices;
mod norm;

use retrograph_kernel_abi::DType;
use retrograph_kernel_abi::gemv::{
    BLOCK_WARPS as WARPS, GEMV, GEMV_BF16, GEMV_NF4, GemvFlags, GemvForm, GemvKernel,
    MIN_BLOCKS_PER_SM, SPLITS, WARP_ROWS,
};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::{Entry, Module};
use retrograph_ptx::build::{Kernel, ModuleBuilder, Pred, Value, Var};

use crate::primitives::pdl;
use crate::primitives::sigmoid::silu;
use lane_dots::LaneDots;
use matrices::Matrices;
use norm::Norm;

/// Rows of a tile, which one warp (or S warps) handles.
const ROWS: usize = WARP_ROWS as usize;

/// The image for W in f32.
pub(crate) fn f32(target: SmTarget) -> Module {
    module(target, &GEMV)
}

/// The image for W in bf16.
pub(crate) fn bf16(target: SmTarget) -> Module {
    module(target, &GEMV_BF16)
}

/// The image for W in NF4.
pub(crate) fn nf4(target: SmTarget) -> Module {
    module(target, &GEMV_NF4)
}

fn module(target: SmTarget, kernel: &GemvKernel) -> Module {
    let mut module = ModuleBuilder::new(target);
    for &variant in GemvForm::ALL {
        for (index, split) in SPLITS.iter().copied().enumerate() {
            let config = Config { target, dtype: kernel.dtype, variant, split };
            module = module.entry(entry(kernel.entry(variant, index), config));
        }
    }
    module.build()
}

/// The parameters of an entry.
#[derive(Clone, Copy)]
struct Config {
    target: SmTarget,
    dtype: DType,
    variant: GemvForm,
    split: u32,
}

fn entry(name: &str, config: Config) -> Entry {
    Kernel::build(name, |k| {
        k.max_threads(32 * WARPS);
        k.min_blocks(MIN_BLOCKS_PER_SM);
        let matrices = Matrices::declare(k, config);
        pdl::launch_dependents(k, config.target);
        matrices.fill_tables();
        let dots = LaneDots::new(k, config, &matrices);
        let vectorized = matrices.flags.has(GemvFlags::VECTORIZED);
        let tile_index = k.ctaid_x() * (WARPS / config.split) + k.warp() / config.split;
        k.when(vectorized, || dots.prefetch_first(&matrices.tile(tile_index)));
        // Blocks with one tile, all of whose weights are in flight.
        let all_in_flight = matrices.inputs.le(LaneDots::elements_in_flight(config));
        if config.split > 1 {
            matrices.prefetch_next(all_in_flight);
        }
        pdl::wait(k, config.target);
        let warp_loop = WarpLoop { k: *k, config, matrices, dots, vectorized };
        if config.split > 1 {
            warp_loop.tile(tile_index);
            return;
        }
        let (at, stride) = (k.var(tile_index), k.nctaid_x() * WARPS);
        k.while_loop(
            || at.get().lt(warp_loop.matrices.tiles),
            || {
                warp_loop.tile(at.get());
                at.add_assign(stride);
            },
        );
    })
}

/// The loop of a warp over its tiles.
struct WarpLoop<'k> {
    k: Kernel<'k>,
    config: Config,
    matrices: Matrices<'k>,
    dots: LaneDots<'k>,
    vectorized: Pred<'k>,
}

impl<'k> WarpLoop<'k> {
    /// Computes the outputs of a tile whose first vectors are in flight.
    fn tile(&self, tile_index: Value<'k, u32>) {
        let Self { k, config, matrices, dots, vectorized } = self;
        let tile = matrices.tile(tile_index);
        let lane = k.lane();
        let output = tile.first + lane;
        let writes = (k.warp() & (config.split - 1)).eq(0) & lane.lt(config.variant.tile_outputs());
        let writes = writes & output.lt(tile.outputs) & tile_index.lt(matrices.tiles);
        // Loads bias and previous y during the products.
        let addends = [(); 3].map(|()| k.var(0.0f32));
        k.when(writes, || {
            for (bias, addend) in tile.biases.iter().zip(addends) {
                k.when(!bias.is_null(), || addend.set(bias.load(output)));
            }
            k.when(matrices.flags.has(GemvFlags::ACCUMULATE), || {
                addends[2].set(tile.y.load(output))
            });
        });
        dots.reset();
        k.when_else(
            *vectorized,
            || dots.accumulate_vectorized(&tile),
            || dots.accumulate_scalar(&tile),
        );
        if config.split == 1 {
            let next = tile_index + k.nctaid_x() * WARPS;
            k.when(*vectorized & next.lt(matrices.tiles), || {
                dots.prefetch_first(&matrices.tile(next))
            });
            matrices.prefetch_next(next.ge(matrices.tiles));
        } else {
            matrices.prefetch_next(matrices.inputs.gt(LaneDots::elements_in_flight(*config)));
        }
        let sums = self.reduce();
        k.when(writes, || {
            let [first, second, before] = addends.map(Var::get);
            let [sum, gated, squares] = sums(lane);
            let norm = (config.variant != GemvForm::Plain).then(|| Norm::of(&self.matrices));
            let alpha = norm.map_or(matrices.alpha, |norm| matrices.alpha * norm.rstd(squares));
            let result = k.var(sum * alpha + first);
            if config.variant == GemvForm::Gated {
                result.update(|gate| silu(gate) * (gated * alpha + second));
            }
            k.when(matrices.flags.has(GemvFlags::ACCUMULATE), || result.add_assign(before));
            tile.y.store(output, result.get());
        });
    }

    /// Reduces over lanes and warps. The result maps an output index within the tile to the sum of
    /// its row, the sum of its second row (gated), and the sum of x².
    fn reduce(&self) -> impl Fn(Value<'k, u32>) -> [Value<'k, f32>; 3] + use<'_, 'k> {
        let Self { k, config, .. } = self;
        let width = ROWS as u32 + 1;
        let sums = self.dots.sums().map(|sum| k.warp_sum(sum));
        let squares = (config.variant != GemvForm::Plain).then(|| k.warp_sum(self.dots.squares()));
        let warp_sums = (config.split > 1).then(|| {
            let warp_sums = k.shared::<f32>("sums", (WARPS * width) as usize);
            let slot = k.warp() * width;
            k.when(k.lane().eq(0), || {
                for (row, sum) in (0..).zip(sums.into_iter().chain(squares)) {
                    warp_sums.store(slot + row, sum);
                }
            });
            k.barrier();
            warp_sums
        });
        move |output| {
            let Some(warp_sums) = warp_sums else {
                let select = |first: usize| {
                    let rows = (first as u32..).zip(&sums[first..]);
                    rows.fold(sums[first], |found, (row, sum)| {
                        (output + first as u32).eq(row).select(*sum, found)
                    })
                };
                return [select(0), select(ROWS / 2), squares.unwrap_or(k.constant(0.0))];
            };
            let tile = k.warp() * width;
            let total = |row: Value<'k, u32>| {
                let parts = (0..config.split).map(|part| warp_sums.load(tile + row + part * width));
                parts.reduce(|sum, part| sum + part).expect("there is a part")
            };
            let row = k.constant(ROWS as u32);
            let squares = squares.map_or(k.constant(0.0), |_| total(row));
            let gated = matches!(config.variant, GemvForm::Gated);
            let second = if gated { total(output + 2) } else { k.constant(0.0) };
            [total(output), second, squares]
        }
    }
}
