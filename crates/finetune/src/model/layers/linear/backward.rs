//! The backward pass of linear layers that share an input.

use half::bf16;
use retrograph_kernels::DType;
use retrograph_kernels::ops::{ColumnSum, DgradOperands, DgradSum, GatedActivation, GemmShape};
use retrograph_runtime::{BufferId, Slice};

use super::super::Builder;
use super::super::activation::{Activation, OutputGradient};
use super::super::lora::{self, LoraBackward};
use super::forward::Saved;
use super::layer::Linear;
use super::products::SecondProduct;
use crate::error::Result;

/// A call of the backward pass of a layer.
#[derive(Clone, Copy, Debug)]
pub(in crate::model::layers) struct Backward<'a> {
    pub(in crate::model::layers) layer: &'a Linear,
    pub(in crate::model::layers) scope: Option<&'a str>,
    pub(in crate::model::layers) saved: Saved,
    pub(in crate::model::layers) grad_out: OutputGradient,
    /// The dtype of the gradient of the input. A product that cannot write bf16 writes f32.
    pub(in crate::model::layers) dtype: DType,
}

/// Appends the gradients of layers that share an input. Returns gradients whose sum is the gradient
/// of the input: one per layer, or one for all layers if their products fill a device.
///
/// Smaller products have separate buffers: adding into one buffer would serialize the products, and
/// none of them fills a GPU.
pub(in crate::model::layers) fn backward(
    builder: &mut Builder,
    calls: &[Backward<'_>],
) -> Result<Vec<Activation>> {
    let calls =
        calls.iter().map(|call| call.before_dora_scales(builder)).collect::<Result<Vec<_>>>()?;
    let (mut grads, mut updates) = (Vec::with_capacity(calls.len()), Vec::new());
    let (mut joined, mut operands) = (Vec::new(), Vec::new());
    for call in &calls {
        let Backward { layer, scope, grad_out, .. } = *call;
        builder.enter(scope);
        let grad_t = match &layer.lora {
            Some(lora) => lora::fused_grad_t(builder, lora, grad_out.x)?,
            None => None,
        };
        match call.operands(builder, grad_t, operands.len())? {
            Some(of_layer) => {
                operands.extend(of_layer);
                joined.push(call);
                updates.extend(call.update(grad_t, None));
            }
            _ => {
                let grad_input = call.grad_input(builder, grad_t)?;
                updates.extend(call.update(grad_t, Some(grad_input)));
                grads.push(grad_input);
            }
        }
    }
    if let (Some(call), Some((first, added))) = (joined.first(), operands.split_first()) {
        builder.enter(call.scope);
        let grad_input = call.declare_grad_input(builder);
        let products = &call.layer.products;
        products.dgrad_sum(builder, *first, added, grad_input.narrowest())?;
        grads.push(grad_input);
    }
    for call in &calls {
        builder.enter(call.scope);
        call.grad_weights(builder)?;
    }
    lora::backward(builder, &updates)?;
    Ok(grads)
}

/// Appends the backward pass of a layer whose input is `activation(gate) · up`: the gradients of
/// its weights, and of gate and up. One launch computes the last two.
pub(in crate::model::layers) fn backward_through_glu(
    builder: &mut Builder,
    activation: GatedActivation,
    call: Backward<'_>,
    inputs: [Slice<bf16>; 2],
) -> Result<[Activation; 2]> {
    let call = call.before_dora_scales(builder)?;
    let Backward { layer, scope, grad_out, .. } = call;
    builder.enter(scope);
    let lora = layer.lora.as_ref().and_then(|lora| Some((lora, lora.fused()?)));
    let second = match lora {
        Some((lora, matrices)) => lora::fused_grad_t(builder, lora, grad_out.x)?
            .map(|grad_t| SecondProduct { operands: [grad_t, matrices.a], k: lora.rank }),
        None => None,
    };
    let grads = ["grad_gate", "grad_up"]
        .map(|name| Activation::transient(builder, name, inputs[0].len(), DType::Bf16.into()));
    let results = [grads[0].bf16()?, grads[1].bf16()?];
    let w = layer.products.bf16_weight(builder)?;
    layer.products.dgrad_glu(builder, activation, grad_out.x, w, second, [inputs, results])?;
    call.grad_weights(builder)?;
    let update = call.update(second.map(|second| second.operands[0]), None);
    lora::backward(builder, update.as_slice())?;
    Ok(grads)
}

impl<'a> Backward<'a> {
    /// Returns the call for the output before the DoRA scales, if there are any, and appends the
    /// gradient of the magnitudes.
    fn before_dora_scales(&self, builder: &mut Builder) -> Result<Self> {
        let Self { layer: Linear { dora, products, grad_dtypes, .. }, saved, .. } = *self;
        let Some((dora, z)) = dora.zip(saved.unscaled) else { return Ok(*self) };
        builder.enter(self.scope);
        let grad_out = dora.backward(builder, products, *grad_dtypes, [z, self.grad_out.x])?;
        Ok(Self { grad_out: grad_out.into(), ..*self })
    }

    /// The backward pass of the LoRA update, if there is one.
    fn update(
        &self,
        grad_t: Option<Slice<bf16>>,
        grad_input: Option<Activation>,
    ) -> Option<LoraBackward<'a>> {
        let (lora, saved) = (self.layer.lora?, self.saved.lora?);
        let Self { scope, grad_out: OutputGradient { x: grad_out, .. }, .. } = *self;
        Some(LoraBackward { lora, scope, saved, grad_out, grad_t, grad_input })
    }

    /// The products whose sum is the gradient of the input, including the LoRA update, if one
    /// launch can compute it through this layer and through others, which have `others` products.
    fn operands(
        &self,
        builder: &mut Builder,
        grad_t: Option<Slice<bf16>>,
        others: usize,
    ) -> Result<Option<Vec<DgradOperands<BufferId>>>> {
        let Linear { products, lora, .. } = self.layer;
        let update = match (lora, grad_t) {
            (None, _) if products.joinable() => None,
            (Some(lora), Some(grad_out)) if products.joins() => {
                let Some(matrices) = lora.fused() else { return Ok(None) };
                Some(DgradOperands { grad_out, w: matrices.a, outputs: lora.rank })
            }
            _ => return Ok(None),
        };
        if others + usize::from(update.is_some()) > DgradSum::MAX_ADDED {
            return Ok(None);
        }
        let main = self.main_operands(builder)?;
        Ok(Some(std::iter::once(main).chain(update).collect()))
    }

    /// The product with the weight.
    fn main_operands(&self, builder: &mut Builder) -> Result<DgradOperands<BufferId>> {
        let products = &self.layer.products;
        let (w, outputs) = (products.bf16_weight(builder)?, products.shape.outputs);
        Ok(DgradOperands { grad_out: self.grad_out.x.bf16()?, w, outputs })
    }

    fn declare_grad_input(&self, builder: &mut Builder) -> Activation {
        let GemmShape { rows, inputs, .. } = self.layer.products.shape;
        let dtype = if self.layer.can_round_grad_input() { self.dtype } else { DType::F32 };
        Activation::transient(builder, "grad_input", rows * inputs, dtype.into())
    }

    /// Appends the gradient of the input. With `grad_t` it includes the LoRA update.
    fn grad_input(&self, builder: &mut Builder, grad_t: Option<Slice<bf16>>) -> Result<Activation> {
        let Self { layer: Linear { products, lora, .. }, grad_out, .. } = *self;
        let grad_input = self.declare_grad_input(builder);
        let to = grad_input.narrowest();
        match grad_t.zip(lora.as_ref()).and_then(|(dt, lora)| Some((dt, lora, lora.fused()?))) {
            Some((grad_t, lora, matrices)) => {
                let first = self.main_operands(builder)?;
                let update = DgradOperands { grad_out: grad_t, w: matrices.a, outputs: lora.rank };
                products.dgrad_sum(builder, first, &[update], to)?;
            }
            None => products.dgrad(builder, grad_out, to)?,
        }
        Ok(grad_input)
    }

    /// Appends the gradients of weight and bias.
    fn grad_weights(&self, builder: &mut Builder) -> Result<()> {
        let Self { layer: Linear { weight, bias, products, .. }, saved, grad_out, .. } = *self;
        if let Some(grad_weight) = weight.grad {
            products.wgrad(builder, grad_out.x, saved.x, grad_weight)?;
        }
        if let Some(out) = bias.and_then(|bias| bias.grad) {
            let (rows, columns) = (products.shape.rows, products.shape.outputs);
            let (x, accumulate) = (grad_out.x.f32()?, builder.accumulates());
            builder.launch(ColumnSum { x, out, rows, columns, accumulate }.launch())?;
        }
        Ok(())
    }
}
