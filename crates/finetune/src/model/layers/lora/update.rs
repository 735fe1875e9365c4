//! An update: its matrices, and the tensors saved for its backward pass.

use half::bf16;
use retrograph_kernels::Element;
use retrograph_kernels::ops::{DType, GemmShape, LORA_MAX_RANK, LoraMatrix, LoraShape, TensorView};
use retrograph_runtime::{BufferId, Slice};

use crate::error::Result;
use crate::model::builder::{Builder, DropoutSite, F32Weight};
use crate::model::layers::activation::{Activation, missing};

/// The update of a layer.
#[derive(Clone, Copy, Debug)]
pub(in crate::model::layers) struct Lora {
    pub(in crate::model::layers) a: F32Weight,
    pub(in crate::model::layers) b: F32Weight,
    pub(in crate::model::layers) rank: usize,
    pub(in crate::model::layers) scale: f32,
    pub(in crate::model::layers) dropout: Option<DropoutSite>,
    /// The shape of the layer.
    pub(in crate::model::layers) shape: GemmShape,
    /// The type of the operands of products.
    pub(in crate::model::layers) compute: DType,
    pub(in crate::model::layers) method: Method,
}

/// How an update is computed. This depends only on sizes and options, so the result has the same
/// bits on every device.
#[derive(Clone, Copy, Debug)]
pub(in crate::model::layers) enum Method {
    /// By the kernels for low ranks, in f32.
    LowRank,
    /// By products of f32 operands.
    F32Products,
    /// By products of bf16 operands.
    Bf16Products(Bf16Matrices),
}

/// The matrices of an update in bf16.
#[derive(Clone, Copy, Debug)]
pub(in crate::model::layers) struct Bf16Matrices {
    pub(in crate::model::layers) a: Slice<bf16>,
    pub(in crate::model::layers) b: Slice<bf16>,
    /// Whether the products with the weight of the layer also compute `t·Bᵀ` and `dt·A`.
    fused: bool,
}

/// Minimum rows for which bf16 products are faster than the low-rank kernels, which divide their
/// contraction among more blocks.
const BF16_MIN_ROWS: usize = 256;

impl Method {
    /// Chooses the method for an update of `rank`. `matrices` are A and B in the form that products
    /// read. `weights` is the dtype in which products read the weight of the layer; `None` if the
    /// layer reads f32.
    pub(in crate::model::layers) fn new(
        [rank, rows]: [usize; 2],
        matrices: [TensorView<BufferId>; 2],
        weights: Option<DType>,
    ) -> Self {
        let suits = rank.is_multiple_of(8) && rows >= BF16_MIN_ROWS;
        match (matrices, weights) {
            ([TensorView::Bf16(a), TensorView::Bf16(b)], Some(weights)) if suits => {
                Self::Bf16Products(Bf16Matrices { a, b, fused: weights == DType::Bf16 })
            }
            _ if rank <= LORA_MAX_RANK => Self::LowRank,
            _ => Self::F32Products,
        }
    }
}

/// Tensors saved for the backward pass: the input after dropout, and t.
#[derive(Clone, Copy, Debug)]
pub(in crate::model::layers) struct SavedIn<T: Element> {
    pub(in crate::model::layers) x: Slice<T>,
    /// `x·Aᵀ`, in bf16 with the factor s.
    pub(in crate::model::layers) t: Slice<T>,
}

/// The same in the dtype of the method.
#[derive(Clone, Copy, Debug)]
pub(in crate::model::layers) enum Saved {
    F32(SavedIn<f32>),
    Bf16(SavedIn<bf16>),
}

/// A call of the backward pass of an update.
#[derive(Clone, Copy, Debug)]
pub(in crate::model::layers) struct LoraBackward<'a> {
    pub(in crate::model::layers) lora: Lora,
    /// The scope of the layer, if several share the input.
    pub(in crate::model::layers) scope: Option<&'a str>,
    pub(in crate::model::layers) saved: Saved,
    pub(in crate::model::layers) grad_out: Activation,
    /// dt, if it is already computed.
    pub(in crate::model::layers) grad_t: Option<Slice<bf16>>,
    /// The gradient of the input through the layer, to which the update adds; `None` if the product
    /// with the weight has added it.
    pub(in crate::model::layers) grad_input: Option<Activation>,
}

impl LoraBackward<'_> {
    /// Returns the gradient of the input in f32.
    ///
    /// # Errors
    /// `KernelError::UnsupportedDType` if there is none in f32.
    pub(super) fn grad_input(&self) -> Result<Slice<f32>> {
        self.grad_input.ok_or_else(|| missing(DType::F32).into()).and_then(Activation::f32)
    }
}

impl Lora {
    /// The dtype in which the update reads x and dy.
    pub(in crate::model::layers) fn dtype(&self) -> DType {
        match self.method {
            Method::Bf16Products(_) => DType::Bf16,
            Method::LowRank | Method::F32Products => DType::F32,
        }
    }

    /// The matrices, if the products with the weight compute the update.
    pub(in crate::model::layers) fn fused(&self) -> Option<Bf16Matrices> {
        match self.method {
            Method::Bf16Products(matrices) if matrices.fused => Some(matrices),
            _ => None,
        }
    }

    /// Returns the input of the update: `x`, or a new transient with dropout.
    pub(in crate::model::layers) fn drop_out(
        &self,
        builder: &mut Builder,
        x: Slice<f32>,
    ) -> Result<Slice<f32>> {
        let Some(site) = self.dropout else { return Ok(x) };
        let out = builder.transient("dropped", x.len());
        builder.drop_out(site, [x, out], false)?;
        Ok(out)
    }

    /// Returns the sizes on one side of the update.
    pub(super) fn low_rank_shape(&self, matrix: LoraMatrix) -> LoraShape {
        let width = match matrix {
            LoraMatrix::A => self.shape.inputs,
            LoraMatrix::B => self.shape.outputs,
        };
        LoraShape { rows: self.shape.rows, width, rank: self.rank }
    }
}

/// Declares the sum of the splits of t, if there are several. Returns it, and the buffer of t.
pub(super) fn total(
    builder: &mut Builder,
    t: Slice<f32>,
    shape: LoraShape,
    splits: usize,
) -> (Option<Slice<f32>>, Slice<f32>) {
    let total = (splits > 1).then(|| builder.transient("low_rank_sum", shape.rows * shape.rank));
    (total, total.unwrap_or(t))
}
