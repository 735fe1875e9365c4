//! The kernels of matrix-vector products, and their launch geometry.

use retrograph_kernel_abi::gemv::{
    self as abi, BLOCK_WARPS, GemvForm, GemvKernel, SPLITS, WARP_ROWS, vector_len,
};

use super::problem::GemvProblem;
use crate::geometry::linear;
use crate::{Dispatch, Kernel};

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

/// Warps that saturate memory bandwidth: about 16 on each of 132 SMs.
const MIN_WARPS: u32 = 2048;
/// The most blocks of a launch without a split: three on each of 132 SMs.
const MAX_BLOCKS: u32 = 396;

/// Splits each row among the fewest warps that saturate memory bandwidth. Without a split, each
/// block loops over equally many groups. The choice depends only on the sizes.
fn dispatch(problem: &GemvProblem, kernel: &GemvKernel) -> Dispatch {
    let GemvProblem { inputs, outputs, lora_ranks, form } = *problem;
    // The two layers of the gated form interleave their rows.
    let (layers, rows) = match form {
        GemvForm::Gated => (1, WARP_ROWS / 2),
        _ => (outputs.len(), WARP_ROWS),
    };
    let ranks = if form == GemvForm::Gated { &[][..] } else { &lora_ranks[..] };
    let groups = outputs[..layers].iter().chain(ranks).map(|outputs| outputs.div_ceil(rows));
    let groups = groups.fold(0, u32::saturating_add);
    let busy = |split: u32| groups.saturating_mul(split) >= MIN_WARPS;
    // Each lane should have at least one vector.
    let thin = |split: u32| inputs.div_ceil(32 * vector_len(kernel.dtype)) <= split;
    let enough = |split: u32| busy(split) || thin(split);
    let index = SPLITS.into_iter().position(enough).unwrap_or(SPLITS.len() - 1);
    let blocks = groups.div_ceil(BLOCK_WARPS / SPLITS[index]);
    let rounds = if index == 0 { blocks.div_ceil(MAX_BLOCKS).max(1) } else { 1 };
    linear(kernel.entry(form, index), blocks.div_ceil(rounds), BLOCK_WARPS * 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of a launch, and the number of warps that share rows.
    fn geometry(problem: GemvProblem) -> (u32, u32) {
        let dispatch = dispatch(&problem, &abi::GEMV);
        let is_entry = |index: &usize| abi::GEMV.entry(problem.form, *index) == dispatch.entry;
        let index = (0..SPLITS.len()).find(is_entry).unwrap();
        (dispatch.grid[0], SPLITS[index])
    }

    fn plain(inputs: u32, outputs: u32) -> GemvProblem {
        let (outputs, lora_ranks) = ([outputs, 0, 0], [0; 3]);
        GemvProblem { inputs, outputs, lora_ranks, form: GemvForm::Plain }
    }

    #[test]
    fn few_outputs_are_split_among_warps() {
        // The output projection of Qwen2.5 1.5B.
        let (blocks, split) = geometry(plain(1536, 1536));
        assert!(split > 1 && blocks * BLOCK_WARPS >= MIN_WARPS, "{blocks} blocks of {split}");
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
            assert!(blocks * BLOCK_WARPS / split * WARP_ROWS >= 256 + 32);
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
