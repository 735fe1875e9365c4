//! The launch geometry of skinny products.

use retrograph_kernel_abi::gemm::{self as abi, SkinnyForm};

use super::problem::SkinnyProblem;
use crate::Dispatch;
use crate::geometry::{SMS, linear, persistent};

/// Blocks of 16 warps if each SM has at most one tile, and otherwise two blocks of 8 warps on each
/// SM, which loop over equally many tiles. The choice depends only on the sizes.
pub(super) fn dispatch(problem: &SkinnyProblem) -> Dispatch {
    let SkinnyProblem { outputs, form } = *problem;
    let layers = if form == SkinnyForm::SwiGlu { 1 } else { outputs.len() };
    let tiles = outputs[..layers].iter().map(|outputs| outputs.div_ceil(form.tile_outputs()));
    let tiles = tiles.fold(0, u32::saturating_add);
    let (few_warps, most_warps) = (abi::SKINNY_WARPS[0], abi::SKINNY_WARPS[1]);
    if tiles <= SMS {
        return linear(form.entry(), tiles, most_warps * 32);
    }
    let rounds = tiles.div_ceil(2 * SMS);
    persistent(form.entry(), tiles.div_ceil(rounds), 2 * SMS, few_warps * 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_tiles_have_more_warps_and_blocks_loop_over_equally_many() {
        let blocks_and_warps = |form, outputs| {
            let Dispatch { grid, block, .. } = dispatch(&SkinnyProblem { outputs, form });
            (grid[0], block[0] / 32)
        };
        assert_eq!(blocks_and_warps(SkinnyForm::F32, [0; 3]).0, 0);
        assert_eq!(blocks_and_warps(SkinnyForm::Bf16, [1, 16, 17]), (4, 16));
        // Qwen2.5 1.5B: q, k and v; down; gate and up in five rounds; logits in 36.
        assert_eq!(blocks_and_warps(SkinnyForm::Bf16, [1536, 256, 256]), (128, 16));
        assert_eq!(blocks_and_warps(SkinnyForm::Bf16, [1536, 0, 0]), (96, 16));
        assert_eq!(blocks_and_warps(SkinnyForm::SwiGlu, [8960, 8960, 0]), (224, 8));
        assert_eq!(blocks_and_warps(SkinnyForm::Bf16, [151_936, 0, 0]), (264, 8));
    }
}
