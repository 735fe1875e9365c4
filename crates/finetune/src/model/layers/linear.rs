//! A linear layer, with a bias and a LoRA update if it has them.
//!
//! ```text
//! y  = x·Wᵀ + b      dW = dyᵀ·x      db = Σ rows of dy      dx = dy·W
//! ```

use retrograph_kernels::ops::{
    ColumnSum, DType, Dgrad, DgradSplitK, Fprop, FpropSplitK, GemmConfig, GemmShape, SplitKSum,
    TensorView, Wgrad,
};
use retrograph_kernels::{KernelError, Launch};
use retrograph_runtime::{BufferId, Slice};

use super::activation::{Activation, Dtypes, Input};
use super::gemv::{self, GemvCall};
use super::lora::{self, Lora, LoraBackward};
use super::residual::Residual;
use super::{Builder, PassConfig};
use crate::config::{Dtype, Projection};
use crate::error::Result;
use crate::model::builder::{F32Weight, Weight};
use crate::parameters::layer_name;
use crate::spec::LayerSpec;

/// A linear layer: its weights, and how its products are computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Linear {
    pub(super) weight: Weight,
    bias: Option<F32Weight>,
    pub(super) lora: Option<Lora>,
    shape: GemmShape,
    /// The dtypes in which the layer reads its input: bf16 for large products in bf16, f32 for
    /// everything else.
    pub(super) dtypes: Dtypes,
    /// The dtypes in which the layer reads the gradient of its output.
    pub(super) grad_dtypes: Dtypes,
    gemm: GemmPlan,
}

/// How the products with a weight are computed, decided once from shape and dtypes.
#[derive(Clone, Copy, Debug)]
struct GemmPlan {
    compute: DType,
    /// Whether inputs and gradients of outputs are read as bf16.
    bf16_operand: bool,
    /// Split-K of the forward product; 1 for none.
    forward_splits: usize,
    /// Split-K of the gradient of the input; 1 for none.
    backward_splits: usize,
    /// Launches of the same sizes that run concurrently with each product.
    concurrent: u32,
}

/// Where a layer writes its output.
#[derive(Clone, Copy, Debug)]
pub(super) enum Output {
    /// A new transient; bf16 requires [`Linear::can_round_output`].
    Transient(Dtype),
    /// The given buffer.
    Into(Slice<f32>),
}

/// A call of `y = linear(x)`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forward<'a> {
    pub(super) layer: &'a Linear,
    /// The scope of the layer if several share the input; `None` for the current scope.
    pub(super) scope: Option<&'a str>,
    pub(super) output: Output,
    /// The residual stream to which y is added.
    pub(super) residual: Option<Slice<f32>>,
}

/// What a layer computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forwarded {
    pub(super) y: Activation,
    /// What is still to be added to y.
    residual: Option<Slice<f32>>,
    pub(super) saved: Saved,
}

impl Forwarded {
    /// Returns the residual stream with y added.
    pub(super) fn residual(&self) -> Result<Residual> {
        let y = self.y.f32()?;
        Ok(self.residual.map_or(y.into(), |x| Residual { x, addend: Some(y) }))
    }
}

/// What the backward pass needs from the forward pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saved {
    x: Activation,
    lora: Option<lora::Saved>,
}

/// A call of the backward pass of a layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backward<'a> {
    pub(super) layer: &'a Linear,
    pub(super) scope: Option<&'a str>,
    pub(super) saved: Saved,
    pub(super) grad_out: Activation,
    /// The dtype of the gradient of the input; bf16 requires [`Linear::can_round_grad_input`].
    pub(super) dtype: Dtype,
}

/// Appends `y = linear(x)` of layers that share x. Layers of one row are one launch.
pub(super) fn forward<const N: usize>(
    builder: &mut Builder,
    input: Input,
    calls: [Forward<'_>; N],
) -> Result<[Forwarded; N]> {
    let outputs = calls.map(|call| {
        builder.enter(call.scope);
        call.output(builder)
    });
    let updates = if calls.iter().all(|call| call.layer.shape.rows == 1) {
        let mut gemvs = Vec::with_capacity(N);
        for (call, y) in calls.iter().zip(outputs) {
            gemvs.push(call.gemv(y.f32()?));
        }
        gemv::forward(builder, input, &gemvs)?
    } else {
        let loras = calls.each_ref().map(|call| (call.layer.lora.as_ref(), call.scope));
        let downs = lora::down(builder, input.x, &loras)?;
        let mut updates = Vec::with_capacity(N);
        for ((call, y), down) in calls.iter().zip(outputs).zip(downs) {
            builder.enter(call.scope);
            updates.push(call.layer.project_and_update(builder, (input.x, down), y)?);
        }
        updates
    };
    Ok(std::array::from_fn(|at| Forwarded {
        y: outputs[at],
        residual: calls[at].residual.filter(|_| !calls[at].layer.adds_residual()),
        saved: Saved { x: input.x, lora: updates[at] },
    }))
}

/// Appends the gradients of layers that share an input. Returns the gradient of the input through
/// each layer; their sum is the gradient of the input.
///
/// Each has its own buffer. Adding into one buffer would order the products, and at small sizes
/// none of them fills a GPU.
pub(super) fn backward<const N: usize>(
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

impl Linear {
    /// Resolves the projection of a layer of the model. Gate and up of the MLP depend on the same
    /// values, so that each runs concurrently with the other.
    pub(super) fn new(
        (builder, config): (&Builder, &PassConfig),
        (spec, number): (&LayerSpec, usize),
        projection: Projection,
    ) -> Self {
        let [inputs, outputs] = spec.projection(projection);
        let shape = GemmShape { rows: config.rows(), inputs, outputs };
        let name = |kind| layer_name(number, &format!("{}.{kind}", projection.path()));
        let lora = config.lora.filter(|lora| lora.targets.has(projection)).map(|lora| {
            let [a, b] = [name("lora_A.weight"), name("lora_B.weight")];
            Lora {
                a: builder.f32_weight(&a),
                b: builder.f32_weight(&b),
                rank: lora.rank,
                scale: lora.scale(),
                dropout: builder.dropout(&a, lora.dropout),
                shape,
                compute: config.compute,
            }
        });
        let bias = spec.has_bias(projection).then(|| builder.f32_weight(&name("bias")));
        let weight = builder.weight(&name("weight"));
        let siblings = u32::from(matches!(projection, Projection::Gate | Projection::Up));
        Self::resolve((weight, bias, lora), shape, (config, siblings))
    }

    /// Resolves the output projection, which has neither bias nor LoRA.
    pub(super) fn head(weight: Weight, shape: GemmShape, config: &PassConfig) -> Self {
        Self::resolve((weight, None, None), shape, (config, 0))
    }

    /// Resolves a layer that runs concurrently with `siblings` of its own micro-batch.
    fn resolve(
        (weight, bias, lora): (Weight, Option<F32Weight>, Option<Lora>),
        shape: GemmShape,
        (config, siblings): (&PassConfig, u32),
    ) -> Self {
        let compute = config.compute;
        let bf16 = shape.prefers_bf16_activations(&weight.value) && compute == DType::Bf16;
        let dtypes = Dtypes { f32: !bf16 || lora.is_some(), bf16 };
        // The gradient of a bias is added in f32.
        let trained_bias = bias.is_some_and(|bias| bias.grad.is_some());
        let grad_dtypes = Dtypes { f32: dtypes.f32 || trained_bias, bf16 };
        let concurrent = (siblings + 1) * config.concurrent_micro_batches - 1;
        let activations = if bf16 { DType::Bf16 } else { DType::F32 };
        let weights = weight.value.dtype();
        let config = GemmConfig { compute, activations, weights, concurrent };
        let gemm = GemmPlan {
            compute,
            bf16_operand: bf16,
            // Only a whole product adds a bias.
            forward_splits: if bias.is_some() { 1 } else { shape.fprop_splits(config) },
            backward_splits: shape.dgrad_splits(config),
            concurrent,
        };
        Self { weight, bias, lora, shape, dtypes, grad_dtypes, gemm }
    }

    /// Returns a call with f32 output in the current scope.
    pub(super) fn call(&self) -> Forward<'_> {
        let (scope, residual) = (None, None);
        Forward { layer: self, scope, output: Output::Transient(Dtype::F32), residual }
    }

    /// Whether the output can be written as bf16: a large product, to which nothing is added.
    pub(super) fn can_round_output(&self) -> bool {
        self.dtypes.bf16 && self.lora.is_none() && self.gemm.forward_splits == 1
    }

    /// Whether the gradient of the input can be written as bf16.
    pub(super) fn can_round_grad_input(&self) -> bool {
        self.dtypes.bf16 && self.lora.is_none() && self.gemm.backward_splits == 1
    }

    /// The dtype in which to write an output that is read in `dtypes`: bf16 if that is all that is
    /// read and the product can round it.
    pub(super) fn output_dtype(&self, dtypes: Dtypes) -> Dtype {
        if self.can_round_output() && !dtypes.f32 { Dtype::Bf16 } else { Dtype::F32 }
    }

    /// The same for the gradient of the input.
    pub(super) fn grad_input_dtype(&self, dtypes: Dtypes) -> Dtype {
        if self.can_round_grad_input() && !dtypes.f32 { Dtype::Bf16 } else { Dtype::F32 }
    }

    /// Whether the product adds the residual as it adds a bias, which it does for one row.
    /// Otherwise the next norm adds it.
    fn adds_residual(&self) -> bool {
        self.shape.rows == 1 && self.bias.is_none()
    }

    /// Describes the layer of one row.
    pub(super) fn gemv(&self, y: Slice<f32>) -> GemvCall<'_> {
        let bias = self.bias.map(|bias| bias.value);
        GemvCall { weight: self.weight.value, lora: self.lora.as_ref(), bias, y }
    }

    /// Declares an output of one row.
    pub(super) fn gemv_output(&self, builder: &mut Builder) -> Slice<f32> {
        builder.transient("out", self.shape.outputs)
    }

    /// Appends `y = x·Wᵀ + b`, and adds the LoRA update.
    fn project_and_update(
        &self,
        builder: &mut Builder,
        (x, down): (Activation, Option<lora::Down>),
        y: Activation,
    ) -> Result<Option<lora::Saved>> {
        self.project(builder, x, y.narrowest())?;
        let Some((lora, down)) = self.lora.zip(down) else { return Ok(None) };
        lora::up(builder, &lora, down, y.f32()?).map(Some)
    }

    /// Appends `y = x·Wᵀ + b`.
    fn project(&self, builder: &mut Builder, x: Activation, y: TensorView<BufferId>) -> Result<()> {
        let Self { shape, gemm: GemmPlan { compute, forward_splits: splits, .. }, .. } = *self;
        let (w, bias) = (self.weight.value, self.bias.map(|bias| bias.value));
        let x = self.operand(x)?;
        if let (TensorView::F32(out), true) = (y, splits > 1) {
            let partials = builder.transient("parts", splits * out.len());
            let split = FpropSplitK { x, w, partials, shape, splits };
            self.launch(builder, split.launch_in(compute))?;
            return builder.launch(SplitKSum { partials, out, splits }.launch());
        }
        let product = Fprop { x, w, bias, y, shape, alpha: 1.0, accumulate: false };
        self.launch(builder, product.launch_in(compute))
    }

    /// Appends `dx = dy·W`.
    fn project_back(
        &self,
        builder: &mut Builder,
        grad_out: Activation,
        grad_input: TensorView<BufferId>,
    ) -> Result<()> {
        let Self { shape, gemm: GemmPlan { compute, backward_splits: splits, .. }, .. } = *self;
        let (w, grad_out) = (self.weight.value, self.operand(grad_out)?);
        if let (TensorView::F32(out), true) = (grad_input, splits > 1) {
            let partials = builder.transient("grad_input_parts", splits * out.len());
            let split = DgradSplitK { grad_out, w, partials, shape, splits };
            self.launch(builder, split.launch_in(compute))?;
            return builder.launch(SplitKSum { partials, out, splits }.launch());
        }
        let product = Dgrad { grad_out, w, grad_input, shape, alpha: 1.0, accumulate: false };
        self.launch(builder, product.launch_in(compute))
    }

    /// Appends a product with the weight.
    fn launch(
        &self,
        builder: &mut Builder,
        product: std::result::Result<Launch<BufferId>, KernelError>,
    ) -> Result<()> {
        builder.launch(product.map(|launch| launch.concurrent(self.gemm.concurrent)))
    }

    /// Returns an input or gradient in the dtype that products read.
    fn operand(&self, x: Activation) -> Result<TensorView<BufferId>> {
        if self.gemm.bf16_operand { Ok(x.narrowest()) } else { Ok(x.f32()?.into()) }
    }
}

impl Forward<'_> {
    fn output(&self, builder: &mut Builder) -> Activation {
        let GemmShape { rows, outputs, .. } = self.layer.shape;
        match self.output {
            Output::Transient(dtype) => {
                Activation::transient(builder, ("out", rows * outputs), dtype.into())
            }
            Output::Into(y) => y.into(),
        }
    }

    /// Describes the call for one row. A layer without a bias adds the residual.
    fn gemv(&self, y: Slice<f32>) -> GemvCall<'_> {
        let call = self.layer.gemv(y);
        GemvCall { bias: call.bias.or(self.residual), ..call }
    }
}

impl Backward<'_> {
    /// Appends the gradients of input, weight and bias, without the LoRA update.
    fn append(&self, builder: &mut Builder) -> Result<Activation> {
        let Self { layer, saved, grad_out, dtype, .. } = *self;
        let (shape, compute) = (layer.shape, layer.gemm.compute);
        let len = shape.rows * shape.inputs;
        let grad_input = Activation::transient(builder, ("grad_input", len), dtype.into());
        layer.project_back(builder, grad_out, grad_input.narrowest())?;
        if let Some(grad_weight) = layer.weight.grad {
            let (x, grad_out) = (layer.operand(saved.x)?, layer.operand(grad_out)?);
            let (alpha, accumulate) = (1.0, builder.accumulates());
            let wgrad = Wgrad { grad_out, x, grad_weight, shape, alpha, accumulate };
            builder.launch(wgrad.launch_in(compute))?;
        }
        if let Some(out) = layer.bias.and_then(|bias| bias.grad) {
            let (rows, columns) = (shape.rows, shape.outputs);
            let (x, accumulate) = (grad_out.f32()?, builder.accumulates());
            builder.launch(ColumnSum { x, out, rows, columns, accumulate }.launch())?;
        }
        Ok(grad_input)
    }
}
