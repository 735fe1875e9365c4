//! SwiGLU fused with the split into f16 terms that the next f32 product reads.

use retrograph_kernels::ops::{SplitGradient, SplitMatrix, SplitSwiGlu, SplitSwiGluBackward};
use retrograph_runtime::{BufferId, Slice};

use super::super::Builder;
use super::super::activation::{Activation, Dtypes, Input};
use super::layer::Linear;
use super::products::declare_terms;
use crate::error::Result;

/// A gradient of the output of a layer, and its terms.
type Gradient = (Activation, SplitMatrix<BufferId>);

impl Linear {
    /// Whether products read the input and the gradient of the output as f16 terms.
    pub(in crate::model::layers) fn reads_split_f16(&self) -> bool {
        self.products.is_split()
    }

    /// Whether anything other than the products with the weight reads the input and the gradient of
    /// the output, in f32.
    fn reads_f32(&self) -> bool {
        let trained_bias = self.bias.is_some_and(|bias| bias.grad.is_some());
        self.weight.grad.is_some() || self.lora.is_some() || trained_bias
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
    let out = if layer.reads_f32() { Some(x.f32()?) } else { None };
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
) -> Result<[Gradient; 2]> {
    let shape = layers[0].products.shape;
    let (rows, columns) = (shape.rows, shape.outputs);
    let [(of_gate, grad_gate), (of_up, grad_up)] = [
        gradient(builder, layers[0], "grad_gate", [rows, columns])?,
        gradient(builder, layers[1], "grad_up", [rows, columns])?,
    ];
    builder.launch(
        SplitSwiGluBackward { gate, up, grad_out, grad_gate, grad_up, rows, columns }.launch(),
    )?;
    Ok([(of_gate, grad_gate.split), (of_up, grad_up.split)])
}

/// Declares the gradient of the output of `layer`.
fn gradient(
    builder: &mut Builder,
    layer: &Linear,
    name: &str,
    sizes: [usize; 2],
) -> Result<(Activation, SplitGradient<BufferId>)> {
    let column_scales = Some(layer.products.split_weight(builder)?.scales);
    let whole = Activation::transient(builder, name, sizes[0] * sizes[1], Dtypes::F32);
    let out = if layer.reads_f32() { Some(whole.f32()?) } else { None };
    Ok((whole, SplitGradient { column_scales, out, split: declare_terms(builder, name, sizes) }))
}
