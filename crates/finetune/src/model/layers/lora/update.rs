//! An update: its matrices, and the tensors saved for its backward pass.

use retrograph_kernels::ops::{DType, GemmShape, LORA_MAX_RANK, LoraMatrix, LoraShape};
use retrograph_runtime::Slice;

use crate::error::Result;
use crate::model::builder::{Builder, DropoutSite, F32Weight};

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
    /// The type of the factors of products of large ranks.
    pub(in crate::model::layers) compute: DType,
}

/// Tensors saved for the backward pass: the input after dropout, and `t = x·Aᵀ`.
#[derive(Clone, Copy, Debug)]
pub(in crate::model::layers) struct Saved {
    pub(in crate::model::layers) x: Slice<f32>,
    pub(in crate::model::layers) t: Slice<f32>,
}

/// A call of the backward pass of an update.
#[derive(Clone, Copy, Debug)]
pub(in crate::model::layers) struct LoraBackward<'a> {
    pub(in crate::model::layers) lora: Lora,
    /// The scope of the layer, if several share the input.
    pub(in crate::model::layers) scope: Option<&'a str>,
    pub(in crate::model::layers) saved: Saved,
    pub(in crate::model::layers) grad_out: Slice<f32>,
    /// The gradient of the input through the layer, to which the update adds.
    pub(in crate::model::layers) grad_input: Slice<f32>,
}

impl Lora {
    /// Whether the kernels for low ranks compute it. That depends on the rank alone, so that the
    /// result has the same bits on every device.
    pub(super) fn is_low(&self) -> bool {
        self.rank <= LORA_MAX_RANK
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
    (shape, splits): (LoraShape, usize),
) -> (Option<Slice<f32>>, Slice<f32>) {
    let total = (splits > 1).then(|| builder.transient("low_rank_sum", shape.rows * shape.rank));
    (total, total.unwrap_or(t))
}
