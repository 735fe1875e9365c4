//! Launches that also split what they compute into the f16 terms that the next f32 product reads.

use retrograph_kernels::ops::{GemmShape, SplitGradient, SplitSwiGlu, SplitSwiGluBackward};
use retrograph_runtime::{BufferId, Slice};

use super::super::Builder;
use super::super::activation::{Activation, Dtypes, GradTerms, Input, OutputGradient};
use super::layer::Linear;
use super::products::declare_terms;
use crate::error::Result;

impl Linear {
    /// Declares the terms of the gradient of the output, if products read it in terms.
    pub(in crate::model::layers) fn declare_grad_terms(
        &self,
        builder: &mut Builder,
        name: &str,
    ) -> Result<Option<GradTerms>> {
        if !self.grad_dtypes.terms {
            return Ok(None);
        }
        self.grad_terms(builder, name).map(Some)
    }

    fn grad_terms(&self, builder: &mut Builder, name: &str) -> Result<GradTerms> {
        let GemmShape { rows, outputs, .. } = self.products.shape;
        let column_scales = self.products.split_weight(builder)?.scales;
        Ok(GradTerms { column_scales, split: declare_terms(builder, name, [rows, outputs]) })
    }
}

/// Appends `silu(gate) · up`, the input of `layer`.
pub(in crate::model::layers) fn split_swiglu(
    builder: &mut Builder,
    layer: &Linear,
    [gate, up]: [Slice<f32>; 2],
) -> Result<Input> {
    let (rows, columns) = (layer.products.shape.rows, layer.products.shape.inputs);
    let x = Activation::transient(builder, "out", gate.len(), Dtypes::F32);
    let out = if layer.dtypes.f32 { Some(x.f32()?) } else { None };
    let split = declare_terms(builder, "out", [rows, columns]);
    builder.launch(SplitSwiGlu { gate, up, out, split, rows, columns }.launch())?;
    Ok(Input { terms: Some(split), ..x.into() })
}

/// Appends the backward pass of `silu(gate) · up`, whose gradient is `grad_out`. Returns the
/// gradients of gate and up, the outputs of `layers`.
pub(in crate::model::layers) fn split_swiglu_backward(
    builder: &mut Builder,
    layers: [&Linear; 2],
    [gate, up]: [Slice<f32>; 2],
    grad_out: Slice<f32>,
) -> Result<[OutputGradient; 2]> {
    let shape = layers[0].products.shape;
    let (rows, columns) = (shape.rows, shape.outputs);
    let [(of_gate, grad_gate), (of_up, grad_up)] = [
        gradient(builder, layers[0], "grad_gate", gate.len())?,
        gradient(builder, layers[1], "grad_up", up.len())?,
    ];
    builder.launch(
        SplitSwiGluBackward { gate, up, grad_out, grad_gate, grad_up, rows, columns }.launch(),
    )?;
    Ok([of_gate, of_up])
}

/// Declares the gradient of the output of `layer`, which the next launch writes.
fn gradient(
    builder: &mut Builder,
    layer: &Linear,
    name: &str,
    len: usize,
) -> Result<(OutputGradient, SplitGradient<BufferId>)> {
    let GradTerms { column_scales, split } = layer.grad_terms(builder, name)?;
    let x = Activation::transient(builder, name, len, Dtypes::F32);
    let out = if layer.grad_dtypes.f32 { Some(x.f32()?) } else { None };
    let written = SplitGradient { column_scales: Some(column_scales), out, split };
    Ok((OutputGradient { x, terms: Some(split) }, written))
}
