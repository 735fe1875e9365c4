//! The kernels of matrix-vector products, and their launch geometry.

use retrograph_kernel_abi::gemv::{
    self as abi, BLOCK_WARPS, GemvForm, GemvKernel, MIN_BLOCKS_PER_SM, SPLITS, vector_len,
};

use super::problem::GemvProblem;
use crate::geometry::{SMS, linear, persistent};
use crate::{DType, Dispatch, Kernel};

/// Kernel of [`Gemv`](crate::gemv::Gemv), [`GroupedGemv`](crate::gemv::GroupedGemv) and
/// [`GatedGemv`](crate::gemv::GatedGemv) with w in f32.
pub static GEMV: Kernel = Kernel::new("gemv", &abi::GEMV.signature, |problem, _| {
    problem.gemv().map(|problem| dispatch(problem, &abi::GEMV))
});

/// [`GEMV`] with w in bf16.
pub static GEMV_BF16: Kernel = Kernel::new("gemv_bf16", &abi::GEMV_BF16.signature, |problem, _| {
    problem.gemv().map(|problem| dispatch(problem, &abi::GEMV_BF16))
});

/// [`GEMV`] with w in NF4.
pub static GEMV_NF4: Kernel = Kernel::new("gemv_nf4", &abi::GEMV_NF4.signature, |problem, _| {
    problem.gemv().map(|problem| dispatch(problem, &abi::GEMV_NF4))
});

/// The most vectors of a lane per row, beyond which more warps should share the row, unless warps
/// loop over at least [`MIN_LOOP_TILES`] tiles.
const MAX_LANE_VECTORS: u32 = 12;
/// Tiles per warp in a loop that is long enough to hide its start and end.
const MIN_LOOP_TILES: u32 = 8;
/// The most vectors of a lane per row in a launch that is too short to saturate memory bandwidth.
const SHORT_LANE_VECTORS: u32 = 3;

/// The fewest warps of a launch with short rows, and the fewest that saturate memory bandwidth.
/// With weights in NF4, a warp has a quarter of the bytes in flight, and unsplit launches need four
/// times as many warps.
fn min_warps(dtype: DType, split: u32) -> [u32; 2] {
    match (dtype, split) {
        (DType::Nf4, 1) => [2048, 8192],
        (DType::Nf4, _) => [2048, 2048],
        _ => [800, 2048],
    }
}

/// The most blocks of a launch without a split.
const MAX_BLOCKS: u32 = MIN_BLOCKS_PER_SM * SMS;

/// Splits each row among the fewest warps that keep memory busy. Without a split, each block loops
/// over equally many tiles. The choice depends only on the sizes; its constants were measured on
/// an H200.
fn dispatch(problem: &GemvProblem, kernel: &GemvKernel) -> Dispatch {
    let GemvProblem { inputs, outputs, lora_ranks, form } = *problem;
    // The two layers of the gated form interleave their rows.
    let layers = if form == GemvForm::Gated { 1 } else { outputs.len() };
    let ranks = if form == GemvForm::Gated { &[][..] } else { &lora_ranks[..] };
    let tiles = outputs[..layers].iter().chain(ranks).map(|it| it.div_ceil(form.tile_outputs()));
    let tiles = tiles.fold(0, u32::saturating_add);
    let loops = tiles >= MIN_LOOP_TILES * MAX_BLOCKS * BLOCK_WARPS;
    let enough = |split: u32| {
        let (warps, [few, many]) = (tiles.saturating_mul(split), min_warps(kernel.dtype, split));
        match inputs.div_ceil(32 * vector_len(kernel.dtype) * split) {
            // More warps would have nothing to read.
            0..=1 => true,
            2..=SHORT_LANE_VECTORS => warps >= few,
            vectors => warps >= many && (vectors <= MAX_LANE_VECTORS || loops),
        }
    };
    let index = SPLITS.iter().position(|split| enough(*split)).unwrap_or(SPLITS.len() - 1);
    let blocks = tiles.div_ceil(BLOCK_WARPS / SPLITS[index]);
    let (entry, threads) = (kernel.entry(form, index), BLOCK_WARPS * 32);
    if index > 0 {
        return linear(entry, blocks, threads);
    }
    let rounds = blocks.div_ceil(MAX_BLOCKS).max(1);
    persistent(entry, blocks.div_ceil(rounds), MAX_BLOCKS, threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of a launch, and the number of warps that share rows.
    fn geometry_of(kernel: &GemvKernel, problem: GemvProblem) -> (u32, u32) {
        let dispatch = dispatch(&problem, kernel);
        let is_entry = |index: &usize| kernel.entry(problem.form, *index) == dispatch.entry;
        let index = (0..SPLITS.len()).find(is_entry).unwrap();
        (dispatch.grid[0], SPLITS[index])
    }

    /// The geometry with weights in f32.
    fn geometry(problem: GemvProblem) -> (u32, u32) {
        geometry_of(&abi::GEMV, problem)
    }

    fn plain(inputs: u32, outputs: u32) -> GemvProblem {
        let (outputs, lora_ranks) = ([outputs, 0, 0], [0; 3]);
        GemvProblem { inputs, outputs, lora_ranks, form: GemvForm::Plain }
    }

    #[test]
    fn launches_have_the_measured_splits() {
        let gated = |inputs, outputs| GemvProblem {
            form: GemvForm::Gated,
            outputs: [outputs, outputs, 0],
            ..plain(inputs, 0)
        };
        let (f32, bf16, nf4) = (&abi::GEMV, &abi::GEMV_BF16, &abi::GEMV_NF4);
        // The layers of Qwen2.5 1.5B: q, k and v; output; gate and up; down.
        let layers = [plain(1536, 2048), plain(1536, 1536), gated(1536, 8960), plain(8960, 1536)];
        assert_eq!(layers.map(|layer| geometry_of(f32, layer).1), [4, 4, 1, 8]);
        assert_eq!(layers.map(|layer| geometry_of(bf16, layer).1), [2, 4, 1, 8]);
        assert_eq!(layers.map(|layer| geometry_of(nf4, layer).1), [4, 8, 2, 8]);
        // The same layers of Llama 3.1 8B, and its logits.
        let layers = [plain(4096, 6144), plain(4096, 4096), gated(4096, 14336), plain(14336, 4096)];
        assert_eq!(layers.map(|layer| geometry_of(bf16, layer).1), [2, 2, 2, 8]);
        assert_eq!(layers.map(|layer| geometry_of(nf4, layer).1), [2, 2, 2, 8]);
        assert_eq!(geometry_of(bf16, plain(4096, 128_256)).1, 1);
    }

    #[test]
    fn many_outputs_are_not_split_and_blocks_loop() {
        // Its logits.
        let (blocks, split) = geometry(plain(1536, 151_936));
        assert!(split == 1 && blocks <= MAX_BLOCKS, "{blocks} blocks of {split}");
    }

    #[test]
    fn short_rows_are_not_split() {
        assert_eq!(geometry(plain(16, 1536)).1, 1);
    }

    #[test]
    fn every_row_has_a_warp_unless_blocks_loop() {
        let ranked = GemvProblem { lora_ranks: [16, 16, 0], ..plain(1536, 256) };
        for form in [GemvForm::Plain, GemvForm::Norm] {
            let (blocks, split) = geometry(GemvProblem { form, ..ranked });
            assert!(blocks * BLOCK_WARPS / split * abi::WARP_ROWS >= 256 + 32);
        }
        let gated =
            GemvProblem { form: GemvForm::Gated, outputs: [8960, 8960, 0], ..plain(1536, 0) };
        assert!(geometry(gated).0 > 0);
    }

    #[test]
    fn nothing_is_launched_without_outputs() {
        assert_eq!(geometry(plain(5, 0)).0, 0);
        assert!(geometry(plain(0, 5)).0 > 0);
        assert_eq!(geometry(plain(u32::MAX >> 1, u32::MAX >> 1)).1, 1);
    }
}
