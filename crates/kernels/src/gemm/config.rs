//! The images of products, with the tiles of each.

use crate::gemm::heuristic::{Image, Tile};

/// A tile: rows × columns, threads, stage, blocks together, clocks, ends, whether operands stream,
/// and whether only warpgroups have it. Without the last three its ends take as long as a stage.
macro_rules! tile {
    ($rows:literal x $columns:literal, $threads:literal, $stage:literal, $together:literal,
     $clocks:expr) => {
        tile!($rows x $columns, $threads, $stage, $together, $clocks, $stage, false, false)
    };
    ($rows:literal x $columns:literal, $threads:literal, $stage:literal, $together:literal,
     $clocks:expr, $ends:expr, $streams:literal, $by_warpgroups:literal) => {
        Tile {
            rows: $rows,
            columns: $columns,
            threads: $threads,
            loaders: 0,
            stage: $stage,
            together: $together,
            clocks: $clocks,
            ends: $ends,
            streams: $streams,
            by_warpgroups: $by_warpgroups,
        }
    };
}

/// The tiles of products in f32, those without a split first. In split ones, groups of threads
/// share the contraction: they fill a device with fewer blocks, and several of them find room on a
/// multiprocessor. The last two multiply on tensor cores; their clocks were measured on an H200,
/// where warpgroups multiply (docs/hardware/2026-11-22-loading-apart).
pub(crate) static SINGLE: [Tile; 11] = [
    tile!(128 x 128, 256, 8, 2, [390, 394]),
    tile!(64 x 64, 128, 16, 4, [90, 246]),
    tile!(32 x 32, 64, 16, 8, [80, 178]),
    tile!(128 x 128, 256, 16, 1, [193, 193]),
    tile!(64 x 64, 128, 32, 2, [61, 116]),
    tile!(64 x 32, 128, 32, 3, [55, 98]),
    tile!(32 x 32, 256, 128, 2, [25, 42]),
    tile!(32 x 16, 256, 128, 2, [19, 27]),
    tile!(16 x 16, 256, 256, 2, [12, 18]),
    Tile { loaders: 128, ..tile!(128 x 128, 256, 32, 1, [65, 65], 32, true, false) },
    Tile { loaders: 128, ..tile!(64 x 64, 128, 32, 2, [32, 42], 32, true, false) },
];

/// Those of products in f32 whose b is in NF4.
const SINGLE_NF4: &[Tile] = SINGLE.split_at(9).0;

/// The tiles of large products in bf16, with clocks that were measured on an H200, where warpgroups
/// multiply (docs/hardware/2026-11-22-decoding-between-products).
pub(crate) static STREAM: [Tile; 5] = [
    tile!(192 x 256, 384, 64, 1, [27, 27], 530, true, true),
    tile!(128 x 192, 256, 64, 1, [14, 14], 860, true, true),
    tile!(256 x 128, 256, 64, 1, [18, 18], 760, true, false),
    tile!(128 x 128, 256, 64, 1, [11, 11], 770, true, false),
    tile!(64 x 64, 128, 64, 2, [6, 8], 430, true, false),
];

/// Those of products whose b is in NF4, decoded into the stages. The clocks were measured, too, but
/// for those of 64 × 64 alone, which are as much less than those of two as they were.
pub(crate) static STREAM_NF4: [Tile; 4] = [
    tile!(192 x 128, 384, 64, 1, [23, 23], 400, true, true),
    tile!(256 x 128, 256, 64, 1, [22, 22], 700, true, false),
    tile!(128 x 128, 256, 64, 1, [17, 17], 590, true, false),
    tile!(64 x 64, 128, 64, 2, [9, 15], 300, true, false),
];

/// The tiles of products in bf16. The clocks are estimates: what a stage waits for memory where a
/// block is alone, and what a multiprocessor loads and multiplies where it is full.
pub(crate) static TENSOR: [Tile; 7] = [
    tile!(128 x 128, 256, 32, 1, [36, 36]),
    tile!(64 x 64, 128, 32, 3, [24, 36]),
    tile!(32 x 32, 64, 32, 6, [24, 36]),
    tile!(32 x 64, 128, 64, 3, [12, 20]),
    tile!(32 x 32, 128, 128, 3, [7, 13]),
    tile!(32 x 16, 256, 128, 2, [6, 8]),
    tile!(16 x 16, 256, 128, 2, [5, 7]),
];

/// The entries of an image of products in f32, and further ones.
macro_rules! single {
    ($name:literal, $tiles:expr $(, $further:literal)*) => {
        Image {
            name: $name,
            tiles: $tiles,
            entries: &[
                concat!($name, "_128x128"),
                concat!($name, "_64x64"),
                concat!($name, "_32x32"),
                concat!($name, "_128x128_sliced2"),
                concat!($name, "_64x64_sliced4"),
                concat!($name, "_64x32_sliced4"),
                concat!($name, "_32x32_sliced8"),
                concat!($name, "_32x16_sliced16"),
                concat!($name, "_16x16_sliced16"),
                $(concat!($name, $further),)*
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
                concat!($name, "_32x64_sliced2"),
                concat!($name, "_32x32_sliced4"),
                concat!($name, "_32x16_sliced8"),
                concat!($name, "_16x16_sliced8"),
            ],
        }
    };
}

/// An image with tiles of large products in bf16: further ones, and those of all.
macro_rules! stream {
    ($name:literal, $tiles:expr $(, $further:literal)*) => {
        Image {
            name: $name,
            tiles: $tiles,
            entries: &[
                $(concat!($name, $further),)*
                concat!($name, "_256x128"),
                concat!($name, "_128x128"),
                concat!($name, "_64x64"),
            ],
        }
    };
}

pub(crate) const NT: Image =
    single!("gemm_f32_nt", &SINGLE, "_multistage_128x128", "_multistage_64x64");
pub(crate) const NN: Image =
    single!("gemm_f32_nn", &SINGLE, "_multistage_128x128", "_multistage_64x64");
pub(crate) const TN: Image =
    single!("gemm_f32_tn", &SINGLE, "_multistage_128x128", "_multistage_64x64");
pub(crate) const NT_NF4: Image = single!("gemm_f32_nt_nf4", SINGLE_NF4);
pub(crate) const NN_NF4: Image = single!("gemm_f32_nn_nf4", SINGLE_NF4);
pub(crate) const BF16_NT: Image = tensor!("gemm_bf16_nt");
pub(crate) const BF16_NN: Image = tensor!("gemm_bf16_nn");
pub(crate) const BF16_TN: Image = tensor!("gemm_bf16_tn");
pub(crate) const BF16_NT_BF16: Image = tensor!("gemm_bf16_nt_bf16");
pub(crate) const BF16_NN_BF16: Image = tensor!("gemm_bf16_nn_bf16");
pub(crate) const BF16_NT_NF4: Image = tensor!("gemm_bf16_nt_nf4");
pub(crate) const BF16_NN_NF4: Image = tensor!("gemm_bf16_nn_nf4");
pub(crate) const STREAM_NT: Image =
    stream!("gemm_bf16_nt_multistage", &STREAM, "_192x256", "_128x192");
pub(crate) const STREAM_NN: Image =
    stream!("gemm_bf16_nn_multistage", &STREAM, "_192x256", "_128x192");
pub(crate) const STREAM_TN: Image =
    stream!("gemm_bf16_tn_multistage", &STREAM, "_192x256", "_128x192");
pub(crate) const STREAM_NT_NF4: Image =
    stream!("gemm_bf16_nt_multistage_nf4", &STREAM_NF4, "_192x128");
pub(crate) const STREAM_NN_NF4: Image =
    stream!("gemm_bf16_nn_multistage_nf4", &STREAM_NF4, "_192x128");

/// Kernels that are products: constants with their names, images and lists of parameters.
macro_rules! product_kernels {
    ($($(#[$doc:meta])* $constant:ident = $name:literal in $image:ident;)*) => { $(
        $(#[$doc])*
        pub static $constant: $crate::Kernel = $crate::Kernel {
            name: $name,
            image: $crate::gemm::config::$image.name,
            parameters: $crate::gemm::launch::parameters(&$crate::gemm::config::$image),
            entries: $crate::gemm::config::$image.entries,
            dispatch: |problem, target| {
                $crate::gemm::heuristic::dispatch(problem, target, &$crate::gemm::config::$image)
            },
        };
    )* };
}

pub(crate) use product_kernels;
