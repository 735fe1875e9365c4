//! The forward pass of linear layers that share an input.

use retrograph_kernels::DType;
use retrograph_kernels::ops::{
    AttentionRope, AttentionShape, GatedActivation, GemmShape, QkvRopeFprop, QkvRopeProjection,
    SplitMatrix,
};
use retrograph_runtime::{BufferId, Slice};

use super::super::Builder;
use super::super::activation::{Activation, Input};
use super::super::gemv::{self, GemvCall};
use super::super::lora::{self, Down};
use super::super::residual::Residual;
use super::super::skinny;
use super::layer::Linear;
use super::products::SecondProduct;
use crate::error::{Error, Result};

/// The output of a layer.
#[derive(Clone, Copy, Debug)]
pub(in crate::model::layers) enum Output {
    /// A new transient; bf16 requires [`Linear::can_round_output`].
    Transient(DType),
    /// The given buffer.
    Into(Slice<f32>),
}

/// A call of `y = linear(x)`.
#[derive(Clone, Copy, Debug)]
pub(in crate::model::layers) struct Forward<'a> {
    pub(in crate::model::layers) layer: &'a Linear,
    /// The scope of the layer if several share the input; `None` for the current scope.
    pub(in crate::model::layers) scope: Option<&'a str>,
    pub(in crate::model::layers) output: Output,
    /// The residual stream to which y is added, for a layer that does not share its input.
    pub(in crate::model::layers) residual: Option<Slice<f32>>,
}

/// The result of a call.
#[derive(Clone, Copy, Debug)]
pub(in crate::model::layers) struct Forwarded {
    pub(in crate::model::layers) y: Activation,
    /// The residual stream, if y is not added to it yet.
    residual: Option<Slice<f32>>,
    pub(in crate::model::layers) saved: Saved,
}

impl Forwarded {
    /// Returns the residual stream with y added.
    pub(in crate::model::layers) fn residual(&self) -> Result<Residual> {
        match self.residual {
            None => Ok(self.y.f32()?.into()),
            Some(x) => Ok(Residual { x, addend: Some(self.y) }),
        }
    }
}

/// Tensors saved for the backward pass.
#[derive(Clone, Copy, Debug)]
pub(in crate::model::layers) struct Saved {
    pub(super) x: Activation,
    pub(super) lora: Option<lora::Saved>,
    /// The output before the scales of DoRA.
    pub(super) unscaled: Option<Activation>,
}

/// Appends `y = linear(x)` of layers that share x. Layers of one row, and layers of a decode step
/// that use skinny products, are one launch.
pub(in crate::model::layers) fn forward<const N: usize>(
    builder: &mut Builder,
    input: Input,
    calls: [Forward<'_>; N],
) -> Result<[Forwarded; N]> {
    let outputs = calls.map(|call| {
        builder.enter(call.scope);
        call.output(builder)
    });
    let unscaled: [_; N] = std::array::from_fn(|at| calls[at].unscaled(builder, outputs[at]));
    let results: [_; N] = std::array::from_fn(|at| unscaled[at].unwrap_or(outputs[at]));
    let updates = if calls.iter().all(|call| call.layer.is_one_row()) {
        let mut gemvs = Vec::with_capacity(N);
        for (call, y) in calls.iter().zip(results) {
            gemvs.push(call.gemv(y.f32()?));
        }
        let updates = gemv::forward(builder, input, &gemvs)?;
        updates.into_iter().map(|saved| saved.map(lora::Saved::F32)).collect()
    } else if calls.iter().all(|call| call.layer.is_skinny()) {
        let mut layers = Vec::with_capacity(N);
        for (call, y) in calls.iter().zip(results) {
            layers.push(call.layer.gemv(y.f32()?));
        }
        let accumulate = calls.iter().any(|call| call.residual.is_some());
        skinny::forward(builder, input, &layers, calls[0].layer.rows(), accumulate)?;
        vec![None; N]
    } else {
        let loras = calls.each_ref().map(|call| (call.layer.lora.as_ref(), call.scope));
        let downs = lora::down(builder, input.x, &loras)?;
        let (mut updates, mut terms) = (Vec::with_capacity(N), input.terms);
        for ((call, y), down) in calls.iter().zip(results).zip(downs) {
            builder.enter(call.scope);
            updates.push(call.project_and_update(builder, input.x, &mut terms, down, y)?);
        }
        updates
    };
    for ((call, y), z) in calls.iter().zip(outputs).zip(unscaled) {
        if let Some((dora, z)) = call.layer.dora.zip(z) {
            builder.enter(call.scope);
            dora.forward(builder, &call.layer.products, [z, y])?;
        }
    }
    Ok(std::array::from_fn(|at| Forwarded {
        y: outputs[at],
        residual: calls[at].residual.filter(|_| !calls[at].adds_residual()),
        saved: Saved { x: input.x, lora: updates[at], unscaled: unscaled[at] },
    }))
}

/// Appends `out = activation(gate) · up` as one launch, where gate and up are the layers of
/// `calls`. Also returns gate and up if the pass saves them for its backward pass.
pub(in crate::model::layers) fn forward_glu(
    builder: &mut Builder,
    activation: GatedActivation,
    input: Input,
    calls: [Forward<'_>; 2],
    saves: bool,
) -> Result<(Option<[Forwarded; 2]>, Activation)> {
    let [first, second] = calls.map(|call| call.layer.products);
    let w = [first.bf16_weight(builder)?, second.bf16_weight(builder)?];
    let gate_up = saves.then(|| calls.map(|call| call.output(builder)));
    let written = gate_up.map(|[gate, up]| Ok::<_, Error>([gate.bf16()?, up.bf16()?]));
    let len = first.shape.rows * first.shape.outputs;
    let out = Activation::transient(builder, "inner", len, DType::Bf16.into());
    first.fprop_glu(builder, activation, input.x, w, written.transpose()?, out.bf16()?)?;
    let saved = Saved { x: input.x, lora: None, unscaled: None };
    let forwarded = |y| Forwarded { y, residual: None, saved };
    Ok((gate_up.map(|gate_up| gate_up.map(forwarded)), out))
}

/// Appends queries, keys and values, the layers of `calls`, and RoPE as one launch in `scope`.
pub(in crate::model::layers) fn forward_qkv_rope(
    builder: &mut Builder,
    x: Activation,
    scope: &str,
    calls: [Forward<'_>; 3],
    rope: Option<AttentionRope<BufferId>>,
    shape: AttentionShape,
) -> Result<[Forwarded; 3]> {
    let loras = calls.each_ref().map(|call| (call.layer.lora.as_ref(), call.scope));
    let downs = lora::down(builder, x, &loras)?;
    let (mut projections, mut forwarded) = (Vec::with_capacity(3), Vec::with_capacity(3));
    for (call, down) in calls.iter().zip(downs) {
        builder.enter(call.scope);
        let y = call.output(builder);
        let update = call.layer.fused_update(down);
        let (second, lora) =
            (update.map(|(second, _)| second.operand()), update.map(|(_, saved)| saved));
        let w = call.layer.products.bf16_weight(builder)?;
        projections.push(QkvRopeProjection {
            w,
            second,
            bias: call.layer.products.bias,
            y: y.bf16()?,
        });
        forwarded.push(Forwarded { y, residual: None, saved: Saved { x, lora, unscaled: None } });
    }
    builder.scope(scope);
    let inputs = calls[0].layer.products.shape.inputs;
    let projections = std::array::from_fn(|at| projections[at]);
    let product = QkvRopeFprop { x: x.bf16()?, projections, rope, shape, inputs };
    calls[0].layer.products.launch_for_all(builder, product.launch())?;
    Ok(std::array::from_fn(|at| forwarded[at]))
}

impl Linear {
    /// Returns a call with f32 output in the current scope.
    pub(in crate::model::layers) fn call(&self) -> Forward<'_> {
        let (scope, residual) = (None, None);
        Forward { layer: self, scope, output: Output::Transient(DType::F32), residual }
    }

    /// The second product of the update, if the product with the weight adds it, and what it saves.
    fn fused_update(&self, down: Option<Down>) -> Option<(SecondProduct, lora::Saved)> {
        let lora = self.lora.as_ref()?;
        match (down, lora.fused()) {
            (Some(Down::Product(lora::Saved::Bf16(saved))), Some(matrices)) => {
                let second = SecondProduct { operands: [saved.t, matrices.b], k: lora.rank };
                Some((second, lora::Saved::Bf16(saved)))
            }
            _ => None,
        }
    }
}

impl Forward<'_> {
    fn output(&self, builder: &mut Builder) -> Activation {
        let GemmShape { rows, outputs, .. } = self.layer.products.shape;
        if let Some(residual) = self.residual.filter(|_| self.layer.is_skinny()) {
            return residual.into();
        }
        match self.output {
            Output::Transient(dtype) => {
                Activation::transient(builder, "out", rows * outputs, dtype.into())
            }
            Output::Into(y) => y.into(),
        }
    }

    /// Declares the output before the scales of DoRA, in the dtype of `y`.
    fn unscaled(&self, builder: &mut Builder, y: Activation) -> Option<Activation> {
        self.layer.dora?;
        builder.enter(self.scope);
        let y = y.narrowest();
        Some(Activation::transient(builder, "unscaled", y.len(), y.dtype().into()))
    }

    /// Describes the call for one row. A layer without a bias adds the residual.
    fn gemv(&self, y: Slice<f32>) -> GemvCall<'_> {
        let call = self.layer.gemv(y);
        let residual = self.residual.filter(|_| self.adds_residual());
        GemvCall { bias: call.bias.or(residual), ..call }
    }

    /// Whether the product adds the residual: like a bias for one row, in place in a decode step of
    /// several sequences. Otherwise the next norm adds it.
    fn adds_residual(&self) -> bool {
        let layer = self.layer;
        let free_bias = layer.bias.is_none() && layer.dora.is_none();
        layer.is_skinny() || (layer.is_one_row() && free_bias)
    }

    /// Appends `y = x·Wᵀ + b`, and adds the LoRA update. `terms` is x in f16 terms, if it is split.
    fn project_and_update(
        &self,
        builder: &mut Builder,
        x: Activation,
        terms: &mut Option<SplitMatrix<BufferId>>,
        down: Option<Down>,
        y: Activation,
    ) -> Result<Option<lora::Saved>> {
        let Linear { products, lora, .. } = self.layer;
        if let Some((second, saved)) = self.layer.fused_update(down) {
            let w = products.bf16_weight(builder)?;
            products.fprop_sum(builder, x, w, second, y.narrowest())?;
            return Ok(Some(saved));
        }
        let x = products.input(builder, x, terms)?;
        products.fprop(builder, x, y.narrowest())?;
        match lora.as_ref().zip(down) {
            Some((lora, down)) => lora::up(builder, lora, down, y.f32()?).map(Some),
            None => Ok(None),
        }
    }
}
