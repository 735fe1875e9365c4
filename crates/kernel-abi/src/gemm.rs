//! Matrix products: parameters, flags, tile configurations, images and entry points.
//!
//! `c[z][i][j] (+)= alpha · Σ_r Σ_l a[z][r](i, l) · b[z][r](l, j) + bias[j]`, with plane
//! z = (batch, head) and b shared by `b_group` consecutive heads.

mod added_products;
mod groups;
mod images;
mod skinny;
mod split;
mod tile;

pub use added_products::{AddedProductParameters, MAX_ADDED_PRODUCTS};
pub use images::{
    BF16_NN, BF16_NN_BF16, BF16_NN_NF4, BF16_NT, BF16_NT_BF16, BF16_NT_NF4, BF16_TN, Epilogue,
    GEGLU_BACKWARD_NN, GEGLU_NT, GemmImage, IMAGES, Layout, MULTISTAGE_NN, MULTISTAGE_NN_NF4,
    MULTISTAGE_NT, MULTISTAGE_NT_NF4, MULTISTAGE_TN, NN, NN_NF4, NN_SPLIT, NT, NT_NF4, NT_SPLIT,
    QKV_ROPE_NT, SWIGLU_BACKWARD_NN, SWIGLU_NT, TN,
};
pub use skinny::{
    SKINNY, SKINNY_MAX_LAYERS, SKINNY_MAX_ROWS, SKINNY_TILE_ROWS, SKINNY_WARPS, SkinnyForm,
    SkinnyParameters,
};
pub use split::{
    SPLIT, SPLIT_ENTRIES, SPLIT_LOG2_MAX, SPLIT_MAX_TERMS, SPLIT_SWIGLU, SPLIT_SWIGLU_BACKWARD,
    SPLIT_SWIGLU_BACKWARD_ENTRIES, SPLIT_SWIGLU_ENTRIES, SplitEntries, SplitParameters,
    SplitScaleParameters, SplitSwiGluBackwardParameters, SplitSwiGluParameters,
};
pub use tile::{
    CLUSTER_SPLIT_K_TILES, CONSUMER_ROWS, Cluster, GLU, GLU_BACKWARD, MMA_SYNC, MULTISTAGE_BF16,
    MULTISTAGE_BF16_WGRAD, MULTISTAGE_NF4, Mainloop, QKV_ROPE, SIMT, SIMT_NF4, SPLIT_F16,
    TileConfig, WGMMA_BLOCK_K, WGMMA_TF32X3_BLOCK_K,
};

use crate::parameters::{flags, parameters};
use crate::{Any, Bf16, BoxSizes, Signature};

parameters! {
    /// The parameters of every GEMM entry. Strides are in elements.
    pub struct GemmParameters {
        /// The first operand, read.
        a: pointer<Any>,
        /// The second operand, read: elements or NF4 codes.
        b: pointer<Any>,
        /// The result.
        c: pointer<Any>,
        /// `n` elements added to each row of c, or null.
        bias: pointer<f32>,
        /// Rows of c.
        m: u32,
        /// Columns of c.
        n: u32,
        /// Length of the contraction.
        k: u32,
        /// Length of the outer reduction: products that are summed into each c, in order.
        reduce: u32,
        /// Inner batch size.
        heads: u32,
        /// Number of consecutive heads that share one b.
        b_group: u32,
        /// Leading dimension of a.
        lda: u32,
        /// Leading dimension of b.
        ldb: u32,
        /// Leading dimension of c.
        ldc: u32,
        /// Stride of a along the batches.
        a_batch: u32,
        /// Stride of a along the heads.
        a_head: u32,
        /// Stride of a along the outer reduction.
        a_reduce: u32,
        /// Stride of b along the batches.
        b_batch: u32,
        /// Stride of b along the heads.
        b_head: u32,
        /// Stride of b along the outer reduction.
        b_reduce: u32,
        /// Stride of c along the batches.
        c_batch: u32,
        /// Stride of c along the heads.
        c_head: u32,
        /// The scale of the product.
        alpha: f32,
        /// Alignment of the operands, and whether the product is added to c.
        flags: flags<GemmFlags>,
    }
}

parameters! {
    /// The scales of b in NF4; they follow [`GemmParameters`] in entries whose b is NF4.
    pub struct Nf4ScaleParameters {
        /// One scale per block of 64 elements: f32, or u8 if scales are quantized.
        b_absmax: pointer<Any>,
        /// One f32 scale per 256 quantized scales, or null.
        b_nested: pointer<f32>,
        /// The 256 values of the quantized scales, or null.
        b_map: pointer<f32>,
        /// One f32 that is added to each quantized scale, or null.
        b_offset: pointer<f32>,
    }
}

parameters! {
    /// The tensor maps of the operands, with the dimensions (elements of a row, rows, planes) from
    /// the innermost one. They follow [`GemmParameters`] in entries whose a and b are bf16 or split
    /// f16. Only tiles with the mainloop [`Mainloop::WarpSpecialized`] read them.
    pub struct GemmTensorMaps {
        /// The map of a. If its rows are rows of c, a box has at most `m` rows: rows past the end
        /// would take longer to fill with zeros than to copy.
        a_map: tensor_map,
        /// The map of b.
        b_map: tensor_map,
        /// The map of c, if [`GemmFlags::C_MAPPED`] is set.
        c_map: tensor_map,
    }
}

parameters! {
    /// Partial sums of squares of c; they follow [`GemmTensorMaps`] in the entries of images that
    /// [sum squares](GemmImage::sums_squares).
    pub struct GemmSquaresParameters {
        /// `⌈m / 64⌉ × ⌈n / 64⌉` partial sums of the squares of c before rounding, written, or
        /// null. They require an `alpha` of 1, a single plane, no bias and no accumulation.
        squares: pointer<f64>,
    }
}

parameters! {
    /// The limit of the rows of c; it follows the other parameters in entries of images that
    /// [limit rows](GemmImage::limits_rows).
    pub struct GemmRowLimitParameters {
        /// The number of rows of c that are computed, read, or null for all. Rows from it on are
        /// unspecified: a tile that starts before the limit is computed whole, others are skipped.
        row_limit: pointer<u32>,
    }
}

/// Rows and columns of c per partial sum of [`GemmSquaresParameters`].
pub const SQUARES_BLOCK: u32 = 64;

parameters! {
    /// The operands of the key and value projections. All three projections read a; the query
    /// projection reads b and writes c. Added products 0, 1 and 2 belong to queries, keys and
    /// values. All operands are bf16 and contiguous, in the layouts of b and c; `alpha` is 1. They
    /// follow [`AddedProductParameters`] in entries of [`Epilogue::QkvRope`].
    pub struct GemmQkvRopeParameters {
        /// `kv_columns × k` elements, read.
        keys_b: pointer<Bf16>,
        /// `kv_columns × k` elements, read.
        values_b: pointer<Bf16>,
        /// `m × kv_columns` elements, written.
        keys: pointer<Bf16>,
        /// `m × kv_columns` elements, written.
        values: pointer<Bf16>,
        /// `kv_columns` elements added to each row of keys, or null.
        keys_bias: pointer<f32>,
        /// `kv_columns` elements added to each row of values, or null.
        values_bias: pointer<f32>,
        /// Columns of keys and of values.
        kv_columns: u32,
        /// `positions × head_dim / 2` cosines, read, or null for no rotation.
        cos: pointer<f32>,
        /// `positions × head_dim / 2` sines, read, or null.
        sin: pointer<f32>,
        /// The position of each row, read; null if positions count from 0 in each sequence.
        token_positions: pointer<u32>,
        /// Rows of the tables.
        positions: u32,
        /// Tokens of a sequence.
        seq: u32,
        /// 64 or 128.
        head_dim: u32,
        /// The map of `keys_b`.
        keys_b_map: tensor_map,
        /// The map of `values_b`.
        values_b_map: tensor_map,
        /// The map of `keys`.
        keys_map: tensor_map,
        /// The map of `values`.
        values_map: tensor_map,
    }
}

/// Head dimensions that [`Epilogue::QkvRope`] supports: its tiles hold whole heads.
pub const QKV_ROPE_HEAD_DIMS: &[u32] = &[64, 128];

parameters! {
    /// Further operands of a gated linear unit; c is `activation(gate) · up`. All are bf16 and
    /// contiguous, in the layouts of b and c; `alpha` is 1, and there is no bias. They follow
    /// [`GemmTensorMaps`] in entries of [`Epilogue::Glu`].
    pub struct GemmGluParameters {
        /// The second b, of up: `n × k` elements, read.
        up_b: pointer<Bf16>,
        /// `m × n` elements, written; null to keep neither gate nor up.
        gate: pointer<Bf16>,
        /// `m × n` elements, written, or null as `gate`.
        up: pointer<Bf16>,
        /// The map of `up_b`.
        up_b_map: tensor_map,
        /// The map of `gate`.
        gate_map: tensor_map,
        /// The map of `up`.
        up_map: tensor_map,
    }
}

parameters! {
    /// Further operands of the gradients of gate and up; c is the gradient of gate. All are bf16
    /// and contiguous, in the layout of c; `alpha` is 1, and there is no bias. They follow
    /// [`AddedProductParameters`] in entries of [`Epilogue::GluBackward`].
    pub struct GemmGluBackwardParameters {
        /// `m × n` elements, read.
        gate: pointer<Bf16>,
        /// `m × n` elements, read.
        up: pointer<Bf16>,
        /// `m × n` elements, written.
        grad_up: pointer<Bf16>,
        /// The map of `gate`.
        gate_map: tensor_map,
        /// The map of `up`.
        up_map: tensor_map,
        /// The map of `grad_up`.
        grad_up_map: tensor_map,
    }
}

/// The box of 16-bit tensor maps of [`GemmTensorMaps`]: elements per row, and rows. It is the same
/// for every operand and tile, except that a may have fewer rows, so a map does not depend on the
/// tile. A row is 128 bytes, as the 128-byte swizzle requires.
pub const TENSOR_MAP_BOX: BoxSizes = [64, 64];
/// The box of the tensor map of c in f32.
pub const TENSOR_MAP_BOX_F32: BoxSizes = [32, 64];

parameters! {
    /// The parameters of [`SPLIT_K_SUM`].
    pub struct SplitKSumParameters {
        /// `splits × n` partial sums, read.
        partials: pointer<f32>,
        /// `n` sums in f32, written, or null.
        out: pointer<f32>,
        /// `n` sums in bf16, written, or null.
        out_bf16: pointer<Bf16>,
        /// Number of splits.
        splits: u32,
        /// Number of sums.
        n: u32,
    }
}

/// Sums the partial results of split-K.
pub const SPLIT_K_SUM: Signature = Signature {
    image: "split_k_sum",
    parameters: SplitKSumParameters::<()>::LIST,
    entries: &["split_k_sum"],
};

flags! {
    /// The flags of [`GemmParameters`].
    pub struct GemmFlags {
        /// The product is added to c instead of overwriting it.
        ACCUMULATE = 1;
        /// a is read in aligned vectors of 16 bytes.
        A_VECTORIZED = 2;
        /// b is read in aligned vectors of 16 bytes, or of 8 codes.
        B_VECTORIZED = 4;
        /// c is written in aligned vectors of 4 elements.
        C_VECTORIZED = 8;
        /// c is bf16.
        C_BF16 = 16;
        /// c can be written through its tensor map.
        C_MAPPED = 32;
    }
}
