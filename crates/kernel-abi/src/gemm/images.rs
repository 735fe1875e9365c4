//! GEMM images: one per layout, element types, arithmetic and epilogue.

use super::tile::{
    GLU, GLU_BACKWARD, MMA_SYNC, MULTISTAGE_BF16, MULTISTAGE_BF16_WGRAD, MULTISTAGE_NF4, QKV_ROPE,
    SIMT, SIMT_NF4, SPLIT_F16, TileConfig,
};
use crate::elementwise::GatedActivation;
use crate::{DType, Parameter};

/// Which index of the operands is contiguous in memory, as in BLAS: n for rows, t for transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Rows of a times rows of b: `y = x·wᵀ`.
    Nt,
    /// Rows of a times columns of b: `dx = dy·w`.
    Nn,
    /// Columns of a times columns of b: `dw = dyᵀ·x`.
    Tn,
}

/// The epilogue of a GEMM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epilogue {
    /// Writes the product.
    Linear,
    /// Writes queries, keys and values: three products with the same a. RoPE rotates queries and
    /// keys; see [`GemmQkvRopeParameters`](super::GemmQkvRopeParameters).
    QkvRope,
    /// Writes gate and up, two products with the same a, and `activation(gate) · up`; see
    /// [`GemmGluParameters`](super::GemmGluParameters).
    Glu(GatedActivation),
    /// Writes the gradients of gate and up; the product is the gradient of
    /// `activation(gate) · up`. See
    /// [`GemmGluBackwardParameters`](super::GemmGluBackwardParameters).
    GluBackward(GatedActivation),
}

/// An image of GEMM entry points, one per tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemmImage {
    /// The name of the image.
    pub name: &'static str,
    /// The layout of the operands.
    pub layout: Layout,
    /// The type in which operands are multiplied. Accumulators are f32.
    pub compute: DType,
    /// The type of a in memory. f16 means that a and b are split matrices.
    pub a: DType,
    /// The type of b in memory.
    pub b: DType,
    /// The epilogue.
    pub epilogue: Epilogue,
    /// The tiles.
    pub tiles: &'static [TileConfig],
    /// The parameters of every entry point.
    pub parameters: &'static [Parameter],
    /// The entry point of each tile. Entries that need `wgmma` exist only on targets that have it.
    pub entries: &'static [&'static str],
}

/// Defines an image with one entry per tile of a table.
macro_rules! image {
    ($constant:ident = $name:literal, $layout:ident, $compute:ident($a:ident, $b:ident),
     $tiles:expr, [$($suffix:literal),* $(,)?] $(, $epilogue:expr)?) => {
        #[doc = concat!("The image `", $name, "`.")]
        pub const $constant: GemmImage = {
            const WITHOUT_PARAMETERS: GemmImage = {
                let entries = &[$(concat!($name, "_", $suffix)),*];
                let tiles: &[TileConfig] = $tiles;
                assert!(entries.len() == tiles.len(), "one entry per tile");
                let (compute, a, b) = (DType::$compute, DType::$a, DType::$b);
                let (layout, epilogue) = (Layout::$layout, image!(@epilogue $($epilogue)?));
                let (name, parameters) = ($name, &[]);
                GemmImage { name, layout, compute, a, b, epilogue, tiles, parameters, entries }
            };
            const LEN: usize = WITHOUT_PARAMETERS.parameter_count();
            const PARAMETERS: [Parameter; LEN] = WITHOUT_PARAMETERS.parameter_list();
            GemmImage { parameters: &PARAMETERS, ..WITHOUT_PARAMETERS }
        };
    };
    (@epilogue) => { Epilogue::Linear };
    (@epilogue $epilogue:expr) => { $epilogue };
}

/// Defines an image of f32 products; `more` are the names of multistage tiles.
macro_rules! simt {
    ($constant:ident = $name:literal, $layout:ident, $b:ident, $tiles:expr $(, $more:literal)*) => {
        image! { $constant = $name, $layout, F32(F32, $b), $tiles, [
            "128x128", "64x64", "32x32", "128x128_sliced2", "64x64_sliced4", "64x32_sliced4",
            "32x32_sliced8", "32x16_sliced16", "16x16_sliced16", $($more),*
        ] }
    };
}

/// Defines an image of products that round their operands to bf16.
macro_rules! mma_sync {
    ($constant:ident = $name:literal, $layout:ident, $b:ident) => {
        image! { $constant = $name, $layout, Bf16(F32, $b), MMA_SYNC, [
            "128x128", "64x64", "32x32", "32x64_sliced2", "32x32_sliced4", "32x16_sliced8",
            "16x16_sliced8",
        ] }
    };
}

/// Defines an image of products whose a is bf16.
macro_rules! multistage {
    ($constant:ident = $name:literal, $layout:ident, $b:ident, $tiles:expr,
     $($first:literal),*) => {
        image! { $constant = $name, $layout, Bf16(Bf16, $b), $tiles, [
            $($first,)* "256x128", "128x128", "64x64",
        ] }
    };
}

simt! { NT = "gemm_f32_nt", Nt, F32, SIMT, "multistage_128x128", "multistage_64x64" }
simt! { NN = "gemm_f32_nn", Nn, F32, SIMT, "multistage_128x128", "multistage_64x64" }
simt! { TN = "gemm_f32_tn", Tn, F32, SIMT, "multistage_128x128", "multistage_64x64" }
simt! { NT_NF4 = "gemm_f32_nt_nf4", Nt, Nf4, SIMT_NF4 }
simt! { NN_NF4 = "gemm_f32_nn_nf4", Nn, Nf4, SIMT_NF4 }
mma_sync! { BF16_NT = "gemm_bf16_nt", Nt, F32 }
mma_sync! { BF16_NN = "gemm_bf16_nn", Nn, F32 }
mma_sync! { BF16_TN = "gemm_bf16_tn", Tn, F32 }
mma_sync! { BF16_NT_BF16 = "gemm_bf16_nt_bf16", Nt, Bf16 }
mma_sync! { BF16_NN_BF16 = "gemm_bf16_nn_bf16", Nn, Bf16 }
mma_sync! { BF16_NT_NF4 = "gemm_bf16_nt_nf4", Nt, Nf4 }
mma_sync! { BF16_NN_NF4 = "gemm_bf16_nn_nf4", Nn, Nf4 }
multistage! {
    MULTISTAGE_NT = "gemm_bf16_nt_multistage", Nt, Bf16, MULTISTAGE_BF16,
    "tma_64x64_cluster_k2", "tma_64x64_cluster_k4", "tma_128x64_cluster_k4",
    "tma_128x256_cluster2", "tma_128x224_cluster2", "tma_192x192", "tma_192x128", "tma_128x192",
    "tma_128x128", "tma_64x128", "tma_64x64"
}
multistage! {
    MULTISTAGE_NN = "gemm_bf16_nn_multistage", Nn, Bf16, MULTISTAGE_BF16,
    "tma_64x64_cluster_k2", "tma_64x64_cluster_k4", "tma_128x64_cluster_k4",
    "tma_128x256_cluster2", "tma_128x224_cluster2", "tma_192x192", "tma_192x128", "tma_128x192",
    "tma_128x128", "tma_64x128", "tma_64x64"
}
multistage! {
    MULTISTAGE_TN = "gemm_bf16_tn_multistage", Tn, Bf16, MULTISTAGE_BF16_WGRAD,
    "tma_128x256_cluster2", "tma_128x224_cluster2", "tma_192x192", "tma_192x128", "tma_128x192",
    "tma_128x128", "tma_64x128", "tma_64x64"
}
multistage! {
    MULTISTAGE_NT_NF4 = "gemm_bf16_nt_multistage_nf4", Nt, Nf4, MULTISTAGE_NF4, "192x128"
}
multistage! {
    MULTISTAGE_NN_NF4 = "gemm_bf16_nn_multistage_nf4", Nn, Nf4, MULTISTAGE_NF4, "192x128"
}

image! {
    NT_SPLIT = "gemm_split_f16_nt", Nt, F32(F16, F16), SPLIT_F16,
    [
        "tma_128x128_cluster2", "tma_128x128", "tma_128x96", "tma_128x64", "tma_64x64", "64x64",
    ]
}
image! {
    NN_SPLIT = "gemm_split_f16_nn", Nn, F32(F16, F16), SPLIT_F16,
    [
        "tma_128x128_cluster2", "tma_128x128", "tma_128x96", "tma_128x64", "tma_64x64", "64x64",
    ]
}

image! {
    QKV_ROPE_NT = "gemm_bf16_nt_qkv_rope", Nt, Bf16(Bf16, Bf16), QKV_ROPE,
    ["tma_128x256_cluster2", "tma_192x128", "tma_128x128", "tma_64x128", "128x128"],
    Epilogue::QkvRope
}
image! {
    SWIGLU_NT = "gemm_bf16_nt_swiglu", Nt, Bf16(Bf16, Bf16), GLU,
    ["tma_128x128_cluster2", "tma_128x64", "tma_64x64_two_per_sm", "128x128"],
    Epilogue::Glu(GatedActivation::Silu)
}
image! {
    GEGLU_NT = "gemm_bf16_nt_geglu", Nt, Bf16(Bf16, Bf16), GLU,
    ["tma_128x128_cluster2", "tma_128x64", "tma_64x64_two_per_sm", "128x128"],
    Epilogue::Glu(GatedActivation::GeluTanh)
}
image! {
    SWIGLU_BACKWARD_NN = "gemm_bf16_nn_swiglu_backward", Nn, Bf16(Bf16, Bf16), GLU_BACKWARD,
    ["tma_128x256_cluster2", "tma_128x192", "tma_128x128", "128x128"],
    Epilogue::GluBackward(GatedActivation::Silu)
}
image! {
    GEGLU_BACKWARD_NN = "gemm_bf16_nn_geglu_backward", Nn, Bf16(Bf16, Bf16), GLU_BACKWARD,
    ["tma_128x256_cluster2", "tma_128x192", "tma_128x128", "128x128"],
    Epilogue::GluBackward(GatedActivation::GeluTanh)
}

/// Every GEMM image.
pub const IMAGES: &[&GemmImage] = &[
    &NT,
    &NN,
    &TN,
    &NT_NF4,
    &NN_NF4,
    &BF16_NT,
    &BF16_NN,
    &BF16_TN,
    &BF16_NT_BF16,
    &BF16_NN_BF16,
    &BF16_NT_NF4,
    &BF16_NN_NF4,
    &MULTISTAGE_NT,
    &MULTISTAGE_NN,
    &MULTISTAGE_TN,
    &MULTISTAGE_NT_NF4,
    &MULTISTAGE_NN_NF4,
    &NT_SPLIT,
    &NN_SPLIT,
    &QKV_ROPE_NT,
    &SWIGLU_NT,
    &GEGLU_NT,
    &SWIGLU_BACKWARD_NN,
    &GEGLU_BACKWARD_NN,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::Mainloop;

    /// The name of the entry of `tile` in `image`.
    fn entry(image: &GemmImage, tile: &TileConfig) -> String {
        let prefix = match tile.mainloop {
            Mainloop::WarpSpecialized { .. } => "tma_",
            Mainloop::Multistage { .. } if image.compute == DType::F32 => "multistage_",
            _ => "",
        };
        let suffix = match tile.mainloop {
            Mainloop::Simt { slices, .. } | Mainloop::MmaSync { slices, .. } if slices > 1 => {
                format!("_sliced{slices}")
            }
            Mainloop::WarpSpecialized { cluster, .. } if cluster.k > 1 => {
                format!("_cluster_k{}", cluster.k)
            }
            Mainloop::WarpSpecialized { cluster, .. } if cluster.m > 1 => {
                format!("_cluster{}", cluster.m)
            }
            Mainloop::WarpSpecialized { .. } if tile.min_blocks_per_sm == 2 => {
                "_two_per_sm".to_owned()
            }
            _ => String::new(),
        };
        let [rows, columns] = tile.shape;
        format!("{}_{prefix}{rows}x{columns}{suffix}", image.name)
    }

    #[test]
    fn entries_are_named_for_their_tiles() {
        for image in IMAGES.iter().copied() {
            let expected = image.tiles.iter().map(|tile| entry(image, tile));
            assert_eq!(image.entries, expected.collect::<Vec<_>>(), "{}", image.name);
        }
    }
}
