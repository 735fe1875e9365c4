//! The backward pass of linear layers that share an input.

use retrograph_kernels::DType;
use retrograph_kernels::ops::ColumnSum;

use super::super::Builder;
use super::super::activation::Activation;
use super::super::lora::{self, LoraBackward};
use super::forward::Saved;
use super::layer::Linear;
use crate::error::Result;

/// A call of the backward pass of a layer.
#[derive(Clone, Copy, Debug)]
pub(in crate::model::layers) struct Backward<'a> {
    pub(in crate::model::layers) layer: &'a Linear,
    pub(in crate::model::layers) scope: Option<&'a str>,
    pub(in crate::model::layers) saved: Saved,
    pub(in crate::model::layers) grad_out: Activation,
    /// The dtype of the gradient of the input; bf16 requires [`Linear::can_round_grad_input`].
    pub(in crate::model::layers) dtype: DType,
}

/// Appends the gradients of layers that share an input. Returns the gradient of the input through
/// each layer; their sum is the gradient of the input.
///
/// Each has its own buffer. Adding into one buffer would order the products, and at small sizes
/// none of them fills a GPU.
pub(in crate::model::layers) fn backward<const N: usize>(
    builder: &mut Builder,
    calls: [Backward<'_>; N],
) -> Result<[Activation; N]> {
    let mut grads = Vec::with_capacity(N);
    let mut updates = Vec::with_capacity(N);
    for call in calls {
        builder.enter(call.scope);
        let grad_input = call.append(builder)?;
        if let (Some(lora), Some(saved)) = (call.layer.lora, call.saved.lora) {
            let (grad_out, grad_input) = (call.grad_out.f32()?, grad_input.f32()?);
            updates.push(LoraBackward { lora, scope: call.scope, saved, grad_out, grad_input });
        }
        grads.push(grad_input);
    }
    lora::backward(builder, &updates)?;
    Ok(std::array::from_fn(|at| grads[at]))
}

impl Backward<'_> {
    /// Appends the gradients of input, weight and bias, without the LoRA update.
    fn append(&self, builder: &mut Builder) -> Result<Activation> {
        let Self { layer, saved, grad_out, dtype, .. } = *self;
        let Linear { weight, bias, products, .. } = layer;
        let len = products.shape.rows * products.shape.inputs;
        let grad_input = Activation::transient(builder, ("grad_input", len), dtype.into());
        products.dgrad(builder, grad_out, grad_input.narrowest())?;
        if let Some(grad_weight) = weight.grad {
            products.wgrad(builder, (grad_out, saved.x), grad_weight)?;
        }
        if let Some(out) = bias.and_then(|bias| bias.grad) {
            let (rows, columns) = (products.shape.rows, products.shape.outputs);
            let (x, accumulate) = (grad_out.f32()?, builder.accumulates());
            builder.launch(ColumnSum { x, out, rows, columns, accumulate }.launch())?;
        }
        Ok(grad_input)
    }
}
