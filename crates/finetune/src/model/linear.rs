//! A linear layer, with bias and with a low-rank update ([`low_rank`]) where it has them.
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

use super::activation::{Activation, Forms};
use super::builder::{Builder, Weight};
pub(super) use super::low_rank::LowRank;
use super::low_rank::{self, Given, Lora};
use super::residual::Residual;
use super::vector;
use crate::error::Result;

/// A projection and its weights.
#[derive(Clone, Copy, Debug)]
pub(super) struct Linear {
    pub(super) weight: Weight,
    pub(super) bias: Option<Weight>,
    pub(super) lora: Option<Lora>,
    pub(super) shape: GemmShape,
    /// How many layers of the same sizes are computed at the same time, of one micro-batch.
    pub(super) beside: u32,
}

/// What the backward pass needs from the forward pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saved {
    x: Activation,
    low_rank: Option<LowRank>,
}

/// Appends `y = linear(x)` of several layers of one input, each in the scope that is given. For one
/// row that is one launch, in the scope of all.
pub(super) fn forward_each<const N: usize>(
    builder: &mut Builder,
    layers: [(&Linear, &str); N],
    x: Activation,
) -> Result<[(Slice<f32>, Saved); N]> {
    let mut outputs = Vec::with_capacity(N);
    for (layer, scope) in layers {
        builder.scope(scope);
        outputs.push(builder.transient("out", layer.shape.rows * layer.shape.outputs));
    }
    let mut low_ranks = Vec::with_capacity(N);
    if layers[0].0.shape.rows == 1 {
        let parts = layers.iter().zip(&outputs).map(|((layer, _), y)| layer.vector_into(*y));
        low_ranks = vector::forward(builder, x, &parts.collect::<Vec<_>>())?;
    } else {
        let scoped = layers.map(|(layer, scope)| (layer, Some(scope)));
        let downs = low_rank::down(builder, &scoped, x)?;
        for (((layer, scope), y), down) in layers.into_iter().zip(&outputs).zip(downs) {
            builder.scope(scope);
            low_ranks.push(layer.project_and_update(builder, (x, down), *y)?);
        }
    }
    Ok(std::array::from_fn(|at| (outputs[at], Saved { x, low_rank: low_ranks[at] })))
}

/// Appends the gradients of several layers of one input, each in the scope that is given, and gives
/// those of the input, whose sum is its gradient.
pub(super) fn backward_each<const N: usize>(
    builder: &mut Builder,
    layers: [((Linear, Saved), Activation, &str); N],
) -> Result<[Slice<f32>; N]> {
    let mut grads = Vec::with_capacity(N);
    for ((layer, saved), given, scope) in &layers {
        builder.scope(*scope);
        grads.push(layer.backward_whole(builder, *saved, (*given, Forms::F32))?.floats());
    }
    let given = layers.iter().zip(&grads).filter_map(|(((layer, saved), given, scope), grad)| {
        layer.given(*saved, *given, *grad).map(|it| Given { scope: Some(scope), ..it })
    });
    low_rank::backward(builder, &given.collect::<Vec<_>>())?;
    Ok(std::array::from_fn(|at| grads[at]))
}

impl Linear {
    /// The projection whose weights are named `<prefix>.weight` and so on.
    pub(super) fn new(builder: &Builder, prefix: &str, [inputs, outputs]: [usize; 2]) -> Self {
        let named = |kind: &str| builder.weight_if_any(&format!("{prefix}.{kind}"));
        let pair = named("lora_A.weight").zip(named("lora_B.weight"));
        let lora = builder.config.mode.lora().zip(pair);
        let random = builder.randomness(&format!("{prefix}.lora_A.weight"));
        let lora = lora.map(|(lora, (a, b))| {
            let dropout = random.filter(|_| lora.dropout > 0.0).map(|it| (lora.dropout, it));
            Lora { a, b, rank: lora.rank, scale: lora.scale(), dropout }
        });
        Self {
            weight: builder.weight(&format!("{prefix}.weight")),
            bias: named("bias"),
            lora,
            shape: GemmShape { rows: builder.rows(), inputs, outputs },
            beside: 0,
        }
    }

    /// A projection by a weight that is given.
    pub(super) fn of(weight: Weight, shape: GemmShape) -> Self {
        Self { weight, bias: None, lora: None, shape, beside: 0 }
    }

    /// In which forms the layer reads its input, and the gradient of its output: as bf16 where
    /// a large product takes them so, and as f32 for everything else.
    pub(super) fn forms(&self, builder: &Builder) -> Forms {
        let large = self.shape.prefers_bf16_activations(&self.weight.value.stored());
        let bf16 = large && builder.compute() == DType::Bf16;
        let trained = self.weight.grad.is_some() || self.bias.is_some_and(|it| it.grad.is_some());
        Forms { f32: !bf16 || trained || self.lora.is_some(), bf16 }
    }

    /// Appends `y = linear(x)`; `name` names `y`.
    pub(super) fn forward(
        &self,
        builder: &mut Builder,
        x: Activation,
        name: &str,
    ) -> Result<(Slice<f32>, Saved)> {
        let y = builder.transient(name, self.shape.rows * self.shape.outputs);
        let low_rank = self.forward_into(builder, x, y)?;
        Ok((y, Saved { x, low_rank }))
    }

    /// The same in bf16, where [`Self::rounds_output`] says that it can.
    pub(super) fn forward_rounded(
        &self,
        builder: &mut Builder,
        x: Activation,
        name: &str,
    ) -> Result<(Activation, Saved)> {
        let len = self.shape.rows * self.shape.outputs;
        let y = Activation::transient(builder, (name, len), Forms::BF16);
        self.project(builder, x, y.stored())?;
        Ok((y, Saved { x, low_rank: None }))
    }

    /// Whether `y` can be written in bf16: by a large product, and nothing is added to it.
    pub(super) fn rounds_output(&self, builder: &Builder) -> bool {
        let whole = || self.shape.fprop_splits(self.gemm_config(builder)) == 1;
        self.forms(builder).bf16 && self.lora.is_none() && whole()
    }

    /// Whether the gradient of the input can be.
    pub(super) fn rounds_grad_input(&self, builder: &Builder) -> bool {
        let whole = || self.shape.dgrad_splits(self.gemm_config(builder)) == 1;
        self.forms(builder).bf16 && self.lora.is_none() && whole()
    }

    /// Appends `linear(x)`, which is to be added to the residual. Where the product has one row, it
    /// adds the residual as it would a bias; elsewhere that is left to what reads the sum.
    pub(super) fn forward_onto(
        &self,
        builder: &mut Builder,
        x: Activation,
        residual: Slice<f32>,
    ) -> Result<(Residual, Saved)> {
        if self.shape.rows > 1 || self.bias.is_some() {
            let (y, saved) = self.forward(builder, x, "out")?;
            return Ok((Residual { x: residual, addend: Some(y) }, saved));
        }
        let part = vector::Part { bias: Some(residual), ..self.vector(builder, "out") };
        let low_rank = vector::forward(builder, x, &[part])?[0];
        Ok((part.y.into(), Saved { x, low_rank }))
    }

    /// The layer of one row, into a buffer of its own.
    pub(super) fn vector(&self, builder: &mut Builder, name: &str) -> vector::Part<'_> {
        let y = builder.transient(name, self.shape.outputs);
        self.vector_into(y)
    }

    fn vector_into(&self, y: Slice<f32>) -> vector::Part<'_> {
        vector::Part { layer: self, bias: self.bias.map(|bias| bias.floats()), y }
    }

    /// The second matrix of the low-rank update, and its factor.
    pub(super) fn low_rank_up(&self) -> Option<(Slice<f32>, f32)> {
        self.lora.map(|lora| (lora.b.floats(), lora.scale))
    }

    /// Appends `y = linear(x)` into a buffer that is given. What the gradients of a low-rank update
    /// need comes back.
    pub(super) fn forward_into(
        &self,
        builder: &mut Builder,
        x: Activation,
        y: Slice<f32>,
    ) -> Result<Option<LowRank>> {
        if self.shape.rows == 1 {
            return Ok(vector::forward(builder, x, &[self.vector_into(y)])?[0]);
        }
        let down = low_rank::down(builder, &[(self, None)], x)?[0];
        self.project_and_update(builder, (x, down), y)
    }

    /// Appends `y = x·Wᵀ + b`, and adds the update, if there is one.
    fn project_and_update(
        &self,
        builder: &mut Builder,
        (x, down): (Activation, Option<low_rank::Parts>),
        y: Slice<f32>,
    ) -> Result<Option<LowRank>> {
        self.project(builder, x, y.into())?;
        let Some((lora, down)) = self.lora.zip(down) else { return Ok(None) };
        low_rank::up(builder, (self, &lora), down, y).map(Some)
    }

    /// Appends `y = x·Wᵀ + b`.
    fn project(&self, builder: &mut Builder, x: Activation, y: TensorView<BufferId>) -> Result<()> {
        let bias = self.bias.map(|bias| bias.floats());
        let (w, shape, compute) = (self.weight.value.stored(), self.shape, builder.compute());
        let x = self.operand(builder, x);
        let splits = shape.fprop_splits(self.gemm_config(builder));
        if let (TensorView::F32(out), true) = (y, splits > 1 && bias.is_none()) {
            let partials = builder.transient("parts", splits * out.len());
            let cut = FpropSplitK { x, w, partials, shape, splits };
            self.launch(builder, cut.launch_in(compute))?;
            return builder.launch(SplitKSum { partials, out, splits }.launch());
        }
        let product = Fprop { x, w, bias, y, shape, alpha: 1.0, accumulate: false };
        self.launch(builder, product.launch_in(compute))
    }

    /// The element types of products with the weight, and how many run concurrently.
    fn gemm_config(&self, builder: &Builder) -> GemmConfig {
        let activations = if self.forms(builder).bf16 { DType::Bf16 } else { DType::F32 };
        let weights = self.weight.value.stored().dtype();
        let (compute, concurrent) = (builder.compute(), builder.beside(self.beside));
        GemmConfig { compute, activations, weights, concurrent }
    }

    /// Appends a product by the weight.
    fn launch(
        &self,
        builder: &mut Builder,
        product: std::result::Result<Launch<BufferId>, KernelError>,
    ) -> Result<()> {
        let concurrent = builder.beside(self.beside);
        builder.launch(product.map(|launch| launch.concurrent(concurrent)))
    }

    /// The form of an input or gradient that the product with the weight takes.
    fn operand(&self, builder: &Builder, x: Activation) -> TensorView<BufferId> {
        if self.forms(builder).bf16 { x.stored() } else { x.floats().into() }
    }

    /// Appends the gradients of the weights that are trained and that of the input, which it
    /// returns. The latter has a buffer of its own: projections of one input that were added into
    /// one buffer would have to wait for each other, and at small sizes none of them fills a GPU.
    pub(super) fn backward(
        &self,
        builder: &mut Builder,
        saved: Saved,
        given: Activation,
    ) -> Result<Slice<f32>> {
        self.backward_as(builder, saved, (given, Forms::F32)).map(Activation::floats)
    }

    /// The same with the gradient of the input in one of two forms; in bf16 only where
    /// [`Self::rounds_grad_input`] says so.
    pub(super) fn backward_as(
        &self,
        builder: &mut Builder,
        saved: Saved,
        (given, forms): (Activation, Forms),
    ) -> Result<Activation> {
        let grad_input = self.backward_whole(builder, saved, (given, forms))?;
        if self.lora.is_some() {
            let given = self.given(saved, given, grad_input.floats());
            low_rank::backward(builder, given.as_slice())?;
        }
        Ok(grad_input)
    }

    /// What the gradients of the update need, if there is one.
    fn given(&self, saved: Saved, given: Activation, grad_input: Slice<f32>) -> Option<Given<'_>> {
        let low_rank = saved.low_rank.filter(|_| self.lora.is_some())?;
        let grad_out = given.floats();
        Some(Given { layer: self, scope: None, low_rank, grad_out, grad_input })
    }

    /// The same without the update.
    fn backward_whole(
        &self,
        builder: &mut Builder,
        saved: Saved,
        (given, forms): (Activation, Forms),
    ) -> Result<Activation> {
        let (shape, compute) = (self.shape, builder.compute());
        let len = shape.rows * shape.inputs;
        let grad_input = Activation::transient(builder, ("grad_input", len), forms);
        self.project_back(builder, given, grad_input.stored())?;
        if let Some(grad_weight) = self.weight.grad {
            let (x, grad_out) = (saved.x.floats(), given.floats());
            let (alpha, accumulate) = (1.0, builder.accumulates());
            let wgrad = Wgrad { grad_out, x, grad_weight, shape, alpha, accumulate };
            builder.launch(wgrad.launch_in(compute))?;
        }
        if let Some(out) = self.bias.and_then(|bias| bias.grad) {
            let (rows, columns) = (shape.rows, shape.outputs);
            let (x, accumulate) = (given.floats(), builder.accumulates());
            builder.launch(ColumnSum { x, out, rows, columns, accumulate }.launch())?;
        }
        Ok(grad_input)
    }

    /// Appends `dx = dy·W`.
    fn project_back(
        &self,
        builder: &mut Builder,
        given: Activation,
        grad_input: TensorView<BufferId>,
    ) -> Result<()> {
        let (w, shape, compute) = (self.weight.value.stored(), self.shape, builder.compute());
        let grad_out = self.operand(builder, given);
        let splits = shape.dgrad_splits(self.gemm_config(builder));
        if let (TensorView::F32(out), true) = (grad_input, splits > 1) {
            let partials = builder.transient("grad_input_parts", splits * out.len());
            let cut = DgradSplitK { grad_out, w, partials, shape, splits };
            self.launch(builder, cut.launch_in(compute))?;
            return builder.launch(SplitKSum { partials, out, splits }.launch());
        }
        let whole = Dgrad { grad_out, w, grad_input, shape, alpha: 1.0, accumulate: false };
        self.launch(builder, whole.launch_in(compute))
    }
}
