//! The gated MLP: `down(silu(gate(x)) · up(x))`.

use half::bf16;
use retrograph_kernels::DType;
use retrograph_kernels::ops::{SwiGlu, SwiGluBackward, TensorView};
use retrograph_runtime::{BufferId, Slice};

use super::activation::{Activation, Dtypes, Input};
use super::linear::{self, Backward, Forward, Forwarded, Linear, Output};
use super::residual::Residual;
use super::{Builder, PassConfig, gemv};
use crate::config::Projection;
use crate::error::Result;
use crate::spec::LayerSpec;

/// The MLP of a layer.
#[derive(Debug)]
pub(super) struct Mlp {
    /// The scope of the layer, for example `layer 3`.
    scope: String,
    gate: Linear,
    up: Linear,
    down: Linear,
    /// The dtype of the activations between the projections, which are the largest of a layer.
    inner: DType,
    /// The weights of gate and up, if one launch computes both and SwiGLU.
    fused: Option<[Slice<bf16>; 2]>,
    /// The weight of down, if one launch computes the backward passes of down and SwiGLU.
    fused_backward: Option<Slice<bf16>>,
}

/// Tensors saved for the backward pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saved {
    gate: Forwarded,
    up: Forwarded,
    down: linear::Saved,
}

impl Mlp {
    pub(super) fn new(pass: (&Builder, &PassConfig), (spec, number): (&LayerSpec, usize)) -> Self {
        let linear = |projection| Linear::new(pass, (spec, number), projection);
        let (gate, up, down) =
            (linear(Projection::Gate), linear(Projection::Up), linear(Projection::Down));
        let rounded = gate.can_round_output() && up.can_round_output();
        let rounded = rounded && down.can_round_grad_input();
        let inner = if rounded { DType::Bf16 } else { DType::F32 };
        let bf16 = Dtypes::from(DType::Bf16);
        let fused = gate.swiglu_weight().zip(up.swiglu_weight());
        let fused = fused.map(<[_; 2]>::from).filter(|_| down.dtypes == bf16);
        let read_bf16 = [gate.grad_dtypes, up.grad_dtypes] == [bf16; 2];
        let fused_backward =
            down.grad_swiglu_weight().filter(|_| read_bf16 && inner == DType::Bf16);
        Self { scope: format!("layer {number}"), gate, up, down, inner, fused, fused_backward }
    }

    /// The dtypes in which the MLP reads its input.
    pub(super) fn dtypes(&self) -> Dtypes {
        self.gate.dtypes.and(self.up.dtypes)
    }

    /// The dtypes in which the MLP reads the gradient of its output.
    pub(super) fn grad_dtypes(&self) -> Dtypes {
        self.down.grad_dtypes
    }

    /// The weights of gate and up.
    pub(super) fn first_weights(&self) -> [TensorView<BufferId>; 2] {
        [self.gate.weight.value, self.up.weight.value]
    }

    fn scope(&self, part: &str) -> String {
        format!("{}/{part}", self.scope)
    }

    /// Appends the MLP over all rows and adds it to `residual`.
    pub(super) fn forward(
        &self,
        builder: &mut Builder,
        (input, residual): (Input, Slice<f32>),
    ) -> Result<(Residual, Saved)> {
        let ([gate, up], inner) = self.gated(builder, input)?;
        let down = self.down(builder, inner.into(), residual)?;
        Ok((down.residual()?, Saved { gate, up, down: down.saved }))
    }

    /// Appends gate, up and `silu(gate) · up` over all rows.
    fn gated(&self, builder: &mut Builder, input: Input) -> Result<([Forwarded; 2], Activation)> {
        let scopes = ["gate", "up"].map(|part| self.scope(part));
        let layers = [&self.gate, &self.up];
        let calls = std::array::from_fn(|at| Forward {
            scope: Some(&scopes[at]),
            output: Output::Transient(self.inner),
            ..layers[at].call()
        });
        if let Some(weights) = self.fused {
            builder.scope(self.scope("gate and up"));
            return linear::forward_swiglu(builder, (input, weights), calls);
        }
        let [gate, up] = linear::forward(builder, input, calls)?;
        builder.scope(self.scope("swiglu"));
        let (gate_out, up_out) = (gate.y.narrowest(), up.y.narrowest());
        let inner = Activation::transient(builder, ("out", gate_out.len()), self.down.dtypes);
        builder.launch(SwiGlu { gate: gate_out, up: up_out, out: inner.written() }.launch())?;
        Ok(([gate, up], inner))
    }

    /// Appends the MLP over one token and adds it to `residual`. `next` is the weight that is read
    /// after the MLP.
    pub(super) fn decode(
        &self,
        builder: &mut Builder,
        (input, residual): (Input, Slice<f32>),
        next: TensorView<BufferId>,
    ) -> Result<Residual> {
        let input = Input { prefetch: Some(self.down.weight.value), ..input };
        let layers = [&self.gate, &self.up];
        let gated =
            gemv::can_be_gated(layers.map(|layer| (layer.weight.value, layer.lora.is_some())));
        let Some(norm) = input.norm.filter(|_| gated) else {
            return Ok(self.forward(builder, (input, residual))?.0);
        };
        builder.scope(self.scope("gate and up"));
        let inner = self.gate.gemv_output(builder);
        gemv::gated(builder, (input, norm), layers.map(|layer| layer.gemv(inner)))?;
        let inner = Input { prefetch: Some(next), ..Activation::from(inner).into() };
        self.down(builder, inner, residual)?.residual()
    }

    /// Appends the projection back to the residual stream.
    fn down(&self, builder: &mut Builder, inner: Input, residual: Slice<f32>) -> Result<Forwarded> {
        builder.scope(self.scope("down"));
        let call = Forward { residual: Some(residual), ..self.down.call() };
        let [down] = linear::forward(builder, inner, [call])?;
        Ok(down)
    }

    /// Appends the gradients of the weights and of the input. Returns gradients of the input whose
    /// sum is the gradient.
    pub(super) fn backward(
        &self,
        builder: &mut Builder,
        Saved { gate, up, down }: Saved,
        grad_out: Activation,
    ) -> Result<Vec<Slice<f32>>> {
        let [grad_gate, grad_up] =
            self.backward_to_gate_and_up(builder, [gate.y, up.y], (down, grad_out))?;
        let scopes = ["gate", "up"].map(|part| self.scope(&format!("{part} backward")));
        let layers = [(&self.gate, gate.saved, grad_gate), (&self.up, up.saved, grad_up)];
        let calls: [_; 2] = std::array::from_fn(|at| {
            let (layer, saved, grad_out) = layers[at];
            Backward { layer, scope: Some(&scopes[at]), saved, grad_out, dtype: DType::F32 }
        });
        linear::backward(builder, &calls)?.into_iter().map(Activation::f32).collect()
    }

    /// Appends the gradients of the weights of down, and of gate and up.
    fn backward_to_gate_and_up(
        &self,
        builder: &mut Builder,
        [gate, up]: [Activation; 2],
        (saved, grad_out): (linear::Saved, Activation),
    ) -> Result<[Activation; 2]> {
        builder.scope(self.scope("down backward"));
        let call = Backward { layer: &self.down, scope: None, saved, grad_out, dtype: self.inner };
        if let Some(weight) = self.fused_backward {
            let inputs = [gate.bf16()?, up.bf16()?];
            return linear::backward_through_swiglu(builder, (call, weight), inputs);
        }
        let grad_inner = linear::backward(builder, &[call])?[0].narrowest();
        builder.scope(self.scope("swiglu backward"));
        let len = grad_inner.len();
        let grad_gate = Activation::transient(builder, ("grad_gate", len), self.gate.grad_dtypes);
        let grad_up = Activation::transient(builder, ("grad_up", len), self.up.grad_dtypes);
        let swiglu = SwiGluBackward {
            gate: gate.narrowest(),
            up: up.narrowest(),
            grad_out: grad_inner,
            grad_gate: grad_gate.written(),
            grad_up: grad_up.written(),
        };
        builder.launch(swiglu.launch())?;
        Ok([grad_gate, grad_up])
    }
}
