//! The launch geometry of skinny products.

use retrograph_kernel_abi::gemm::{self as abi, SkinnyForm};

use super::problem::SkinnyProblem;
use crate::Dispatch;
use crate::geometry::linear;

/// The most blocks of a launch: two on each of 132 SMs.
const MAX_BLOCKS: u32 = 264;

/// Each block loops over equally many tiles. The choice depends only on the sizes.
pub(super) fn dispatch(problem: &SkinnyProblem) -> Dispatch {
    let SkinnyProblem { outputs, form } = *problem;
    let layers = if form == SkinnyForm::SwiGlu { 1 } else { outputs.len() };
    let tiles = outputs[..layers].iter().map(|outputs| outputs.div_ceil(form.tile_outputs()));
    let tiles = tiles.fold(0, u32::saturating_add);
    let rounds = tiles.div_ceil(MAX_BLOCKS).max(1);
    linear(form.entry(), tiles.div_ceil(rounds), abi::SKINNY_WARPS * 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_loop_over_equally_many_tiles() {
        let blocks = |form, outputs| dispatch(&SkinnyProblem { outputs, form }).grid[0];
        assert_eq!(blocks(SkinnyForm::F32, [0; 3]), 0);
        assert_eq!(blocks(SkinnyForm::Bf16, [1, 16, 17]), 4);
        // Qwen2.5 1.5B: gate and up in five rounds, logits in 36.
        assert_eq!(blocks(SkinnyForm::SwiGlu, [8960, 8960, 0]), 224);
        assert_eq!(blocks(SkinnyForm::Bf16, [151_936, 0, 0]), 264);
    }
}
