//! The kernels of matrix-vector products: parameters, entry points and geometry.

use crate::geometry::linear;
use crate::params::{f32, pointer, u32};
use crate::{Dispatch, Kernel, Parameter};

/// A kernel and its image of the same name, with parameters for the scales of each matrix.
macro_rules! gemv {
    ($(#[$doc:meta])* $constant:ident = $name:literal, $vector:literal, [$($scales:literal),*]) => {
        $(#[$doc])*
        pub static $constant: Kernel = Kernel {
            name: $name,
            image: $name,
            parameters: {
                static PARAMETERS: &[Parameter] = &[
                    pointer("x"),
                    pointer("gamma"),
                    pointer("w0"),
                    pointer("bias0"),
                    pointer("y0"),
                    $(pointer(concat!("w0", $scales)),)*
                    pointer("w1"),
                    pointer("bias1"),
                    pointer("y1"),
                    $(pointer(concat!("w1", $scales)),)*
                    pointer("w2"),
                    pointer("bias2"),
                    pointer("y2"),
                    $(pointer(concat!("w2", $scales)),)*
                    pointer("a0"),
                    pointer("low0"),
                    pointer("a1"),
                    pointer("low1"),
                    pointer("a2"),
                    pointer("low2"),
                    pointer("next"),
                    u32("inputs"),
                    u32("outputs0"),
                    u32("outputs1"),
                    u32("outputs2"),
                    u32("lows0"),
                    u32("lows1"),
                    u32("lows2"),
                    f32("eps"),
                    f32("alpha"),
                    u32("flags"),
                    u32("next_bytes"),
                ];
                PARAMETERS
            },
            entries: &[
                concat!($name, "_split1"),
                concat!($name, "_split2"),
                concat!($name, "_split4"),
                concat!($name, "_split8"),
                concat!($name, "_norm_split1"),
                concat!($name, "_norm_split2"),
                concat!($name, "_norm_split4"),
                concat!($name, "_norm_split8"),
                concat!($name, "_gated_split1"),
                concat!($name, "_gated_split2"),
                concat!($name, "_gated_split4"),
                concat!($name, "_gated_split8"),
            ],
            dispatch: |problem, _| Some(dispatch(problem.gemv()?, $constant.entries, $vector)),
        };
    };
}

gemv! {
    /// Kernel of [`Gemv`](crate::gemv::Gemv), [`GroupedGemv`](crate::gemv::GroupedGemv) and
    /// [`GatedGemv`](crate::gemv::GatedGemv) with w in f32.
    GEMV = "gemv", 4, []
}
gemv! {
    /// [`GEMV`] with w in bf16.
    GEMV_BF16 = "gemv_bf16", 8, []
}
gemv! {
    /// [`GEMV`] with w in NF4.
    GEMV_NF4 = "gemv_nf4", 8, ["_absmax", "_nested", "_map", "_offset"]
}

/// What the kernel does before and after the products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GemvForm {
    /// Nothing.
    Plain,
    /// RMSNorm of x.
    Norm,
    /// RMSNorm of x, and SwiGLU of two products.
    Gated,
}

impl GemvForm {
    /// In the order of the entries of a kernel.
    pub const ALL: [Self; 3] = [Self::Plain, Self::Norm, Self::Gated];
}

/// The sizes from which entry point and grid of matrix-vector products follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GemvProblem {
    /// Elements of x.
    pub inputs: u32,
    /// Outputs of each layer; 0 for no layer.
    pub outputs: [u32; 3],
    /// Rank of each LoRA matrix A; 0 for none.
    pub lora_ranks: [u32; 3],
    /// The form.
    pub form: GemvForm,
}

/// Rows of a warp.
const WARP_ROWS: u32 = 4;
/// Warps of a block.
const BLOCK_WARPS: u32 = 8;
/// Warps that saturate the memory of 132 SMs, about 16 on each.
const MIN_WARPS: u32 = 2048;
/// The most blocks of rows that are not split: three on each of 132 SMs.
const MAX_BLOCKS: u32 = 396;

/// The rows of a group of warps are split among them, as few as saturate the memory. Without a
/// split, each block loops over equally many groups. The choice depends on the sizes alone.
fn dispatch(problem: &GemvProblem, entries: &[&'static str], vector: u32) -> Dispatch {
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
    let thin = |split: u32| inputs.div_ceil(32 * vector) <= split;
    let index = [1, 2, 4].iter().take_while(|&&split| !busy(split) && !thin(split)).count();
    let blocks = groups.div_ceil(BLOCK_WARPS >> index);
    let rounds = if index == 0 { blocks.div_ceil(MAX_BLOCKS).max(1) } else { 1 };
    linear(entries[form as usize * 4 + index], blocks.div_ceil(rounds), BLOCK_WARPS * 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of a launch, and the number of warps that share rows.
    fn geometry(problem: GemvProblem) -> (u32, u32) {
        let entries = GEMV.entries;
        let dispatch = dispatch(&problem, entries, 4);
        let index = entries.iter().position(|entry| *entry == dispatch.entry).unwrap();
        assert_eq!(index / 4, problem.form as usize);
        (dispatch.grid[0], 1 << (index % 4))
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
