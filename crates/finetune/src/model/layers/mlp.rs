//! The gated MLP: `down(activation(gate(x)) · up(x))`.

use retrograph_kernels::DType;
use retrograph_kernels::ops::{Glu, GluBackward, TensorView};
use retrograph_runtime::{BufferId, Slice};

use super::activation::{Activation, Dtypes, Input, OutputGradient};
use super::block_output::{self, BlockOutput};
use super::linear::{self, Backward, Forward, Forwarded, Linear, Output};
use super::norm::Norm;
use super::residual::Residual;
use super::{Builder, PassConfig, gemv, skinny};
use crate::config::{GatedActivation, Projection};
use crate::error::Result;
use crate::parameters::{POST_MLP_NORM, layer_name};
use crate::spec::LayerSpec;

/// The MLP of a layer.
#[derive(Debug)]
pub(super) struct Mlp {
    /// The scope of the layer, for example `layer 3`.
    scope: String,
    gate: Linear,
    up: Linear,
    down: BlockOutput,
    activation: GatedActivation,
    /// The dtype of the activations between the projections, which are the largest of a layer.
    inner: DType,
    /// Whether one launch computes gate, up and their gated product.
    fused: bool,
    /// Whether the pass has a backward pass.
    has_backward: bool,
    /// Whether one launch computes the gradients of gate and up from the gradient of down.
    fused_backward: bool,
    /// Whether SwiGLU splits its result into f16 terms.
    splits: bool,
    /// Whether the backward pass of SwiGLU splits the gradients of gate and up.
    splits_backward: bool,
}

/// Tensors saved for the backward pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saved {
    /// Gate and up; `None` if the pass has no backward pass.
    gate_up: Option<[Forwarded; 2]>,
    down: block_output::Saved,
}

impl Mlp {
    pub(super) fn new(
        builder: &Builder,
        config: &PassConfig,
        spec: &LayerSpec,
        number: usize,
    ) -> Self {
        let linear = |projection| Linear::new(builder, config, spec, number, projection);
        let (gate, up, down) =
            (linear(Projection::Gate), linear(Projection::Up), linear(Projection::Down));
        let rounded = gate.can_round_output() && up.can_round_output();
        let rounded = rounded && down.can_round_grad_input();
        let inner = if rounded { DType::Bf16 } else { DType::F32 };
        let bf16 = Dtypes::from(DType::Bf16);
        let activation = spec.mlp.activation;
        let swiglu = activation == GatedActivation::Silu;
        let fused = gate.has_glu() && up.has_glu() && down.dtypes == bf16;
        let read_bf16 = [gate.grad_dtypes, up.grad_dtypes] == [bf16; 2];
        let fused_backward = down.has_grad_glu() && read_bf16 && inner == DType::Bf16;
        let splits = swiglu && down.dtypes.terms;
        let splits_backward = swiglu && gate.grad_dtypes.terms && up.grad_dtypes.terms;
        let norm =
            spec.post_norm.map(|it| Norm::new(builder, &layer_name(number, POST_MLP_NORM), it));
        let scopes = ["down", "post-mlp norm"].map(|part| format!("layer {number}/{part}"));
        let down = BlockOutput::new(config, down, norm, scopes);
        let scope = format!("layer {number}");
        Self {
            scope,
            gate,
            up,
            down,
            activation,
            inner,
            fused,
            has_backward: config.has_backward,
            fused_backward,
            splits,
            splits_backward,
        }
    }

    /// The dtypes in which the MLP reads its input.
    pub(super) fn dtypes(&self) -> Dtypes {
        self.gate.dtypes.and(self.up.dtypes)
    }

    /// The layer that reads the gradient of the output of the MLP; `None` if it is a norm.
    pub(super) fn grad_reader(&self) -> Option<&Linear> {
        self.down.grad_reader()
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
        input: Input,
        residual: Slice<f32>,
    ) -> Result<(Residual, Saved)> {
        let (gate_up, inner) = self.gated(builder, input)?;
        let (out, down) = self.down.forward(builder, inner, residual)?;
        Ok((out, Saved { gate_up, down }))
    }

    fn activation_name(&self) -> &'static str {
        match self.activation {
            GatedActivation::Silu => "swiglu",
            GatedActivation::GeluTanh => "geglu",
        }
    }

    /// Appends gate, up and `activation(gate) · up` over all rows.
    fn gated(
        &self,
        builder: &mut Builder,
        input: Input,
    ) -> Result<(Option<[Forwarded; 2]>, Input)> {
        let scopes = ["gate", "up"].map(|part| self.scope(part));
        let layers = [&self.gate, &self.up];
        let calls = std::array::from_fn(|at| Forward {
            scope: Some(&scopes[at]),
            output: Output::Transient(self.inner),
            ..layers[at].call()
        });
        if self.fused {
            builder.scope(self.scope("gate and up"));
            let saves = self.has_backward;
            let (gate_up, inner) =
                linear::forward_glu(builder, self.activation, input, calls, saves)?;
            return Ok((gate_up, inner.into()));
        }
        let [gate, up] = linear::forward(builder, input, calls)?;
        builder.scope(self.scope(self.activation_name()));
        if self.splits {
            let inputs = [gate.y.f32()?, up.y.f32()?];
            let inner = linear::split_swiglu(builder, &self.down.projection, inputs)?;
            return Ok((Some([gate, up]), inner));
        }
        let (activation, gate_out, up_out) =
            (self.activation, gate.y.narrowest(), up.y.narrowest());
        let dtypes = self.down.projection.dtypes;
        let inner = Activation::transient(builder, "out", gate_out.len(), dtypes);
        let out = inner.written();
        builder.launch(Glu { activation, gate: gate_out, up: up_out, out }.launch())?;
        Ok((Some([gate, up]), inner.into()))
    }

    /// Appends the MLP over one token of each sequence and adds it to `residual`. `next` is the
    /// weight that is read after the MLP.
    pub(super) fn decode(
        &self,
        builder: &mut Builder,
        input: Input,
        residual: Slice<f32>,
        next: TensorView<BufferId>,
    ) -> Result<Residual> {
        let input = Input { prefetch: Some(self.down.projection.weight.value), ..input };
        let layers = [&self.gate, &self.up];
        let is_swiglu = self.activation == GatedActivation::Silu;
        let weights = self.first_weights();
        let has_updates = layers.map(|layer| layer.lora.is_some());
        let inner = match input.norm {
            Some(norm) if is_swiglu && gemv::can_be_gated(weights, has_updates) => {
                builder.scope(self.scope("gate and up"));
                let inner = self.gate.decode_output(builder);
                gemv::gated(builder, input, norm, layers.map(|layer| layer.gemv(inner)))?;
                inner.into()
            }
            None if is_swiglu && layers.iter().all(|layer| layer.is_skinny()) => {
                builder.scope(self.scope("gate and up"));
                skinny::swiglu(builder, input, layers)?
            }
            _ => return Ok(self.forward(builder, input, residual)?.0),
        };
        let inner = Input { prefetch: Some(next), ..Input::from(inner) };
        Ok(self.down.forward(builder, inner, residual)?.0)
    }

    /// Appends the gradients of the weights and of the input. Returns gradients of the input whose
    /// sum is the gradient.
    pub(super) fn backward(
        &self,
        builder: &mut Builder,
        Saved { gate_up, down }: Saved,
        grad_out: OutputGradient,
    ) -> Result<Vec<Activation>> {
        let [gate, up] = gate_up.expect("a pass with a backward pass saves gate and up");
        let [grad_gate, grad_up] =
            self.backward_to_gate_and_up(builder, [gate.y, up.y], down, grad_out)?;
        let scopes = ["gate", "up"].map(|part| self.scope(&format!("{part} backward")));
        let layers = [(&self.gate, gate.saved, grad_gate), (&self.up, up.saved, grad_up)];
        let calls: [_; 2] = std::array::from_fn(|at| {
            let (layer, saved, grad_out) = layers[at];
            let (scope, dtype) = (Some(&*scopes[at]), DType::Bf16);
            Backward { layer, scope, saved, grad_out, dtype }
        });
        linear::backward(builder, &calls)
    }

    /// Appends the gradients of the weights of down, and of gate and up. Returns the last two.
    fn backward_to_gate_and_up(
        &self,
        builder: &mut Builder,
        [gate, up]: [Activation; 2],
        saved: block_output::Saved,
        grad_out: OutputGradient,
    ) -> Result<[OutputGradient; 2]> {
        let grad_out = self.down.backward(builder, saved, grad_out)?;
        builder.scope(self.scope("down backward"));
        let (layer, saved) = (&self.down.projection, saved.projection);
        let (scope, dtype) = (None, self.inner);
        let call = Backward { layer, scope, saved, grad_out, dtype };
        if self.fused_backward {
            let inputs = [gate.bf16()?, up.bf16()?];
            let grads = linear::backward_through_glu(builder, self.activation, call, inputs)?;
            return Ok(grads.map(Into::into));
        }
        let grad_inner = linear::backward(builder, &[call])?[0];
        builder.scope(self.scope(&format!("{} backward", self.activation_name())));
        if self.splits_backward {
            let (layers, inputs) = ([&self.gate, &self.up], [gate.f32()?, up.f32()?]);
            return linear::split_swiglu_backward(builder, layers, inputs, grad_inner.f32()?);
        }
        let grad_inner = grad_inner.narrowest();
        let len = grad_inner.len();
        let grad_gate = Activation::transient(builder, "grad_gate", len, self.gate.grad_dtypes);
        let grad_up = Activation::transient(builder, "grad_up", len, self.up.grad_dtypes);
        let glu = GluBackward {
            activation: self.activation,
            gate: gate.narrowest(),
            up: up.narrowest(),
            grad_out: grad_inner,
            grad_gate: grad_gate.written(),
            grad_up: grad_up.written(),
        };
        builder.launch(glu.launch())?;
        Ok([grad_gate, grad_up].map(Into::into))
    }
}
