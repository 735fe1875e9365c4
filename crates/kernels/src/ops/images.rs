//! The images of products, with the tiles of each.

use super::tiles::{Image, Tile};

/// A tile: rows × columns, threads, stage, blocks together, clocks.
macro_rules! tile {
    ($rows:literal x $columns:literal, $threads:literal, $stage:literal, $together:literal,
     $clocks:expr) => {
        Tile {
            rows: $rows,
            columns: $columns,
            threads: $threads,
            stage: $stage,
            together: $together,
            clocks: $clocks,
        }
    };
}

/// The tiles of products in f32, those without a split first. In split ones, groups of threads
/// share the contraction: they fill a device with fewer blocks, and several of them find room on a
/// multiprocessor.
pub(super) static SINGLE: [Tile; 9] = [
    tile!(128 x 128, 256, 8, 2, [390, 394]),
    tile!(64 x 64, 128, 16, 4, [90, 246]),
    tile!(32 x 32, 64, 16, 8, [80, 178]),
    tile!(128 x 128, 256, 16, 1, [193, 193]),
    tile!(64 x 64, 128, 32, 2, [61, 116]),
    tile!(64 x 32, 128, 32, 3, [55, 98]),
    tile!(32 x 32, 256, 128, 2, [25, 42]),
    tile!(32 x 16, 256, 128, 2, [19, 27]),
    tile!(16 x 16, 256, 256, 2, [12, 18]),
];

/// The tiles of products in bf16. The clocks are estimates: what a stage waits for memory where a
/// block is alone, and what a multiprocessor loads and multiplies where it is full.
pub(super) static TENSOR: [Tile; 7] = [
    tile!(128 x 128, 256, 32, 1, [36, 36]),
    tile!(64 x 64, 128, 32, 3, [24, 36]),
    tile!(32 x 32, 64, 32, 6, [24, 36]),
    tile!(32 x 64, 128, 64, 3, [12, 20]),
    tile!(32 x 32, 128, 128, 3, [7, 13]),
    tile!(32 x 16, 256, 128, 2, [6, 8]),
    tile!(16 x 16, 256, 128, 2, [5, 7]),
];

/// An image with the tiles of products in f32.
macro_rules! single {
    ($name:literal) => {
        Image {
            name: $name,
            tiles: &SINGLE,
            entries: &[
                concat!($name, "_128x128"),
                concat!($name, "_64x64"),
                concat!($name, "_32x32"),
                concat!($name, "_128x128_split2"),
                concat!($name, "_64x64_split4"),
                concat!($name, "_64x32_split4"),
                concat!($name, "_32x32_split8"),
                concat!($name, "_32x16_split16"),
                concat!($name, "_16x16_split16"),
            ],
        }
    };
}

/// An image with the tiles of products in bf16.
macro_rules! tensor {
    ($name:literal) => {
        Image {
            name: $name,
            tiles: &TENSOR,
            entries: &[
                concat!($name, "_128x128"),
                concat!($name, "_64x64"),
                concat!($name, "_32x32"),
                concat!($name, "_32x64_split2"),
                concat!($name, "_32x32_split4"),
                concat!($name, "_32x16_split8"),
                concat!($name, "_16x16_split8"),
            ],
        }
    };
}

pub(super) const NT: Image = single!("gemm_nt");
pub(super) const NN: Image = single!("gemm_nn");
pub(super) const TN: Image = single!("gemm_tn");
pub(super) const NT_NF4: Image = single!("gemm_nt_nf4");
pub(super) const NN_NF4: Image = single!("gemm_nn_nf4");
pub(super) const BF16_NT: Image = tensor!("gemm_bf16_nt");
pub(super) const BF16_NN: Image = tensor!("gemm_bf16_nn");
pub(super) const BF16_TN: Image = tensor!("gemm_bf16_tn");
pub(super) const BF16_NT_BF16: Image = tensor!("gemm_bf16_nt_bf16");
pub(super) const BF16_NN_BF16: Image = tensor!("gemm_bf16_nn_bf16");
pub(super) const BF16_NT_NF4: Image = tensor!("gemm_bf16_nt_nf4");
pub(super) const BF16_NN_NF4: Image = tensor!("gemm_bf16_nn_nf4");

/// Kernels that are products: constants with their names, images and lists of parameters.
macro_rules! product_kernels {
    ($($(#[$doc:meta])* $constant:ident = $name:literal in $image:ident;)*) => { $(
        $(#[$doc])*
        pub static $constant: $crate::Kernel = $crate::Kernel {
            name: $name,
            image: $crate::ops::images::$image.name,
            parameters: $crate::ops::product::parameters(&$crate::ops::images::$image),
            entries: $crate::ops::images::$image.entries,
            dispatch: |problem, _| {
                $crate::ops::tiles::dispatch(problem, &$crate::ops::images::$image)
            },
        };
    )* };
}

pub(super) use product_kernels;
