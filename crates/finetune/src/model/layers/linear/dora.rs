//! DoRA: a linear layer whose outputs are scaled by row.
//!
//! ```text
//! z  = x·Wᵀ + s·t·Bᵀ             n = ‖W + s·B·A‖ of each row
//! y  = z ⊙ m / n + b
//! dz = dy ⊙ m / n                dm = Σ rows of dy ⊙ z / n
//! ```
//!
//! The backward pass treats n as a constant. A, B and x have the same gradients as in LoRA,
//! computed from dz.

use half::bf16;
use retrograph_kernels::ops::{
    ColumnSum, Dequantize, DoraNorms, DoraScale, DoraScaleBackward, DoraScaleShape, GemmShape,
    TensorView,
};
use retrograph_runtime::{BufferId, Slice};

use super::super::Builder;
use super::super::activation::{Activation, Dtypes};
use super::super::lora::Lora;
use super::products::Products;
use crate::error::Result;
use crate::model::builder::F32Weight;
use crate::model::dora::RowNorms;

/// The trained norms of a layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dora {
    pub(super) magnitudes: F32Weight,
    pub(super) lora: Lora,
    pub(super) w: TensorView<BufferId>,
    pub(super) bias: Option<Slice<f32>>,
}

impl Dora {
    /// Appends `y = z ⊙ m / n + b`.
    pub(super) fn forward(
        &self,
        builder: &mut Builder,
        products: &Products,
        [z, y]: [Activation; 2],
    ) -> Result<()> {
        let RowNorms { mag_norm_scales, .. } = self.norms(builder, products)?;
        let (x, y, shape) = (z.narrowest(), y.written(), scale_shape(products.shape));
        builder.launch(DoraScale { x, mag_norm_scales, bias: self.bias, y, shape }.launch())
    }

    /// Appends the gradient of the magnitudes, and returns the gradient of z in `dtypes`.
    pub(super) fn backward(
        &self,
        builder: &mut Builder,
        products: &Products,
        dtypes: Dtypes,
        [z, grad_out]: [Activation; 2],
    ) -> Result<Activation> {
        let RowNorms { norms, mag_norm_scales } = self.norms(builder, products)?;
        let (x, shape) = (z.narrowest(), scale_shape(products.shape));
        let grad_z = Activation::transient(builder, "grad_unscaled", x.len(), dtypes);
        let (rows, columns) = (shape.runs(), shape.columns);
        let grad_magnitudes = builder.transient("grad_magnitude_partials", rows * columns);
        let (grad_out, grad_input) = (grad_out.narrowest(), grad_z.written());
        builder.launch(
            DoraScaleBackward {
                grad_out,
                x,
                mag_norm_scales,
                norms,
                grad_input,
                grad_magnitudes,
                shape,
            }
            .launch(),
        )?;
        if let Some(out) = self.magnitudes.grad {
            let (x, accumulate) = (grad_magnitudes, builder.accumulates());
            builder.launch(ColumnSum { x, out, rows, columns, accumulate }.launch())?;
        }
        Ok(grad_z)
    }

    /// Returns the norms of the rows, which the first layer of the pass that asks for them
    /// computes.
    fn norms(&self, builder: &mut Builder, products: &Products) -> Result<RowNorms> {
        let Self { magnitudes: F32Weight { value: magnitudes, .. }, lora, .. } = *self;
        if let Some(found) = builder.dora_norms.get(magnitudes) {
            return Ok(found);
        }
        let w = match self.w {
            TensorView::Nf4(_) => self.decoded(builder, products)?,
            w => w,
        };
        let row_norms = builder.dora_norms.kept(magnitudes).unwrap_or_else(|| {
            let names = ["row_norms", "output_factors"];
            let [norms, mag_norm_scales] =
                names.map(|name| builder.transient(name, magnitudes.len()));
            RowNorms { norms, mag_norm_scales }
        });
        builder.dora_norms.insert(magnitudes, row_norms);
        let RowNorms { norms, mag_norm_scales } = row_norms;
        let (a, b, rank, scale) = (lora.a.value, lora.b.value, lora.rank, lora.scale);
        let inputs = products.shape.inputs;
        let launch = DoraNorms { w, a, b, magnitudes, norms, mag_norm_scales, inputs, rank, scale };
        builder.launch(launch.launch())?;
        Ok(row_norms)
    }

    /// Returns the bf16 weight that products of many rows read.
    fn decoded(&self, builder: &mut Builder, products: &Products) -> Result<TensorView<BufferId>> {
        match products.weight(builder)? {
            TensorView::Nf4(w) => {
                let out = builder.transient_of::<bf16>("decoded", w.len);
                builder.launch(Dequantize { w, out }.launch())?;
                Ok(out.into())
            }
            w => Ok(w),
        }
    }
}

fn scale_shape(GemmShape { rows, outputs: columns, .. }: GemmShape) -> DoraScaleShape {
    DoraScaleShape { rows, columns }
}
