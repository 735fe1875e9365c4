//! The products of a linear layer with its weight, in the forward and the backward pass.

use half::{bf16, f16};
use retrograph_kernels::ops::{
    DType, Dequantize, Dgrad, DgradOperands, DgradSplitK, DgradSum, Fprop, FpropSplitK, FpropSum,
    GatedActivation, GemmConfig, GemmShape, GluDgrad, GluFprop, SkinnyFprop, SkinnyLayer, Split,
    SplitKSum, SplitMatrix, TensorView, Wgrad, WgradSquares,
};
use retrograph_kernels::{KernelError, Launch};
use retrograph_runtime::{BufferId, Slice};

use super::super::activation::{Activation, OutputGradient, missing};
use super::super::{Builder, PassConfig};
use crate::config::{MIN_COPIED_ROWS, MIN_SPLIT_ROWS};
use crate::error::Result;
use crate::model::builder::Weight;
use crate::model::converted::Converted;
use crate::model::gradient::Gradient;
use crate::model::passes::MIN_DECODED_ROWS;

/// Terms of a split matrix.
const TERMS: usize = SplitMatrix::<BufferId>::MAX_TERMS;

/// How the products with a weight are computed, decided once from shape and dtypes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Products {
    w: TensorView<BufferId>,
    /// The f16 copy of w, if there is one.
    f16: Option<SplitMatrix<BufferId>>,
    /// The dtype in which products read w. If w is NF4 and this is bf16, each use decodes it first;
    /// if w is f32 without a copy and this is f16, each use splits it.
    weights: DType,
    pub(super) bias: Option<Slice<f32>>,
    pub(super) shape: GemmShape,
    compute: DType,
    /// Whether inputs and gradients of outputs are read as bf16.
    pub(super) bf16_operand: bool,
    /// Split-K of the forward product; 1 for none.
    pub(super) forward_splits: usize,
    /// Split-K of the gradient of the input; 1 for none.
    pub(super) backward_splits: usize,
    /// Whether the product is one of a decode step of several sequences: it reads x in bf16, and
    /// adds the residual.
    pub(super) is_skinny: bool,
    /// Launches of the same sizes that run concurrently with each product, and with one launch of
    /// all layers that have the same input and sizes.
    concurrent: [u32; 2],
    min_fused_elements: usize,
    /// The number of rows that products compute, if not all.
    pub(super) row_limit: Option<Slice<u32>>,
}

/// Divisor of the minimum elements for fusing queries, keys and values: this also saves the
/// launch of RoPE.
const QKV_FILL: usize = 4;

/// A second product that is added to the same result.
#[derive(Clone, Copy, Debug)]
pub(super) struct SecondProduct {
    /// An activation or its gradient, and a matrix of the update.
    pub(super) operands: [Slice<bf16>; 2],
    /// The length of the contraction.
    pub(super) k: usize,
}

impl SecondProduct {
    /// Returns the operands and the length in the form that kernels take.
    pub(super) fn operand(self) -> ([Slice<bf16>; 2], usize) {
        (self.operands, self.k)
    }
}

impl Products {
    /// Plans the products with `w`. `siblings` layers of the same micro-batch and shape run
    /// concurrently.
    pub(super) fn new(
        weight: Weight,
        bias: Option<Slice<f32>>,
        shape: GemmShape,
        config: &PassConfig,
        siblings: u32,
    ) -> Self {
        let compute = config.compute;
        let Weight { value: w, f16, .. } = weight;
        let bf16_operand = Self::reads_bf16(&w, shape, config);
        let activations = if bf16_operand { DType::Bf16 } else { DType::F32 };
        let concurrent = [siblings + 1, 1].map(|each| each * config.concurrent_micro_batches - 1);
        let min_fused_elements = config.min_fused_elements;
        let weights = Self::weights(&weight, shape, config);
        let decodes = config.decodes && shape.rows > 1;
        let config = GemmConfig { compute, activations, weights, concurrent: concurrent[0] };
        // Only a product without split-K adds a bias.
        let supports_skinny = Self::supports_skinny(config, shape);
        let whole = bias.is_some() || supports_skinny;
        let forward_splits = if whole { 1 } else { shape.fprop_splits(config) };
        let backward_splits = shape.dgrad_splits(config);
        Self {
            w,
            f16,
            weights,
            bias,
            shape,
            compute,
            bf16_operand,
            forward_splits,
            backward_splits,
            is_skinny: supports_skinny && decodes,
            concurrent,
            min_fused_elements,
            row_limit: None,
        }
    }

    /// Whether [`SkinnyFprop`] computes the forward product.
    fn supports_skinny(config: GemmConfig, shape: GemmShape) -> bool {
        let dtypes = (config.compute, config.activations, config.weights);
        dtypes == (DType::Bf16, DType::F32, DType::Bf16) && SkinnyFprop::<BufferId>::supports(shape)
    }

    /// The dtype in which products of `shape` read a weight.
    pub(super) fn weights(
        Weight { value: w, f16, .. }: &Weight,
        shape: GemmShape,
        config: &PassConfig,
    ) -> DType {
        let GemmShape { rows, inputs, outputs } = shape;
        match w.dtype() {
            DType::Nf4 if rows >= MIN_DECODED_ROWS && Self::reads_bf16(w, shape, config) => {
                DType::Bf16
            }
            DType::F32
                if rows >= f16.map_or(MIN_SPLIT_ROWS, |_| MIN_COPIED_ROWS)
                    && config.splits(rows * inputs * outputs)
                    && inputs % 8 == 0
                    && outputs % 8 == 0 =>
            {
                DType::F16
            }
            dtype => dtype,
        }
    }

    /// Returns the weight in the form that products read. Decodes an NF4 weight that is read in
    /// bf16, and splits an f32 weight without a copy that is read in f16, once for all tiles of a
    /// product.
    pub(super) fn weight(&self, builder: &mut Builder) -> Result<TensorView<BufferId>> {
        if let (DType::F16, Some(copy)) = (self.weights, self.f16) {
            return Ok(copy.into());
        }
        let GemmShape { inputs, outputs, .. } = self.shape;
        let (rows, columns, len) = (outputs, inputs, self.w.len());
        let converted = match (self.w, self.weights) {
            (TensorView::Nf4(_), DType::Bf16) => {
                builder.converted(self.w, [rows, columns], |pass, name| {
                    TensorView::Bf16(pass.transient(name, len))
                })
            }
            (TensorView::F32(_), DType::F16) => {
                builder.converted(self.w, [rows, columns], |pass, name| {
                    let terms = pass.transient(format!("{name}/terms"), TERMS * len);
                    let scales = pass.transient(format!("{name}/scales"), rows);
                    TensorView::Split(SplitMatrix { terms, term_count: TERMS, scales })
                })
            }
            (w, _) => Converted::Found(w),
        };
        let view = match converted {
            Converted::Found(view) => return Ok(view),
            Converted::Unwritten(view) => view,
        };
        builder.launch(match (self.w, view) {
            (TensorView::Nf4(w), TensorView::Bf16(out)) => Dequantize { w, out }.launch(),
            (TensorView::F32(x), TensorView::Split(out)) => {
                Split { x, column_scales: None, out, rows, columns }.launch()
            }
            (w, _) => Err(missing(w.dtype())),
        })?;
        Ok(view)
    }

    /// Returns an input of the layer in the form that its product reads. `split` is the input in
    /// terms, if another layer has already split it.
    pub(super) fn input(
        &self,
        builder: &mut Builder,
        x: Activation,
        terms: &mut Option<SplitMatrix<BufferId>>,
    ) -> Result<TensorView<BufferId>> {
        if !self.is_split() {
            return self.operand(x);
        }
        let GemmShape { rows, inputs, .. } = self.shape;
        let found = match *terms {
            Some(found) => found,
            None => split(builder, "in", x.f32()?, [rows, inputs], None)?,
        };
        *terms = Some(found);
        Ok(found.into())
    }

    /// Returns [`Products::weight`] if it is bf16.
    ///
    /// # Errors
    /// `KernelError::UnsupportedDType` if products read it in another dtype.
    pub(super) fn bf16_weight(&self, builder: &mut Builder) -> Result<Slice<bf16>> {
        match self.weight(builder)? {
            TensorView::Bf16(w) => Ok(w),
            _ => Err(missing(DType::Bf16).into()),
        }
    }

    /// Returns [`Products::weight`] if it is split.
    ///
    /// # Errors
    /// `KernelError::UnsupportedDType` if products read it in another dtype.
    pub(super) fn split_weight(&self, builder: &mut Builder) -> Result<SplitMatrix<BufferId>> {
        match self.weight(builder)? {
            TensorView::Split(w) => Ok(w),
            _ => Err(missing(DType::F16).into()),
        }
    }

    /// Whether products read both operands as f16 terms.
    pub(super) fn is_split(&self) -> bool {
        self.weights == DType::F16
    }

    /// Whether the layer reads its input and the gradient of its output as bf16.
    pub(super) fn reads_bf16(
        w: &TensorView<BufferId>,
        shape: GemmShape,
        config: &PassConfig,
    ) -> bool {
        shape.prefers_bf16_activations(w.dtype()) && config.compute == DType::Bf16
    }

    /// The same products without split-K, so that a second product can be added.
    pub(super) fn without_splits(self) -> Self {
        Self { forward_splits: 1, backward_splits: 1, ..self }
    }

    /// Whether one launch can compute the gradient of the input through this layer and through
    /// others: a bf16 product that fills a device alone.
    pub(super) fn joinable(&self) -> bool {
        self.reads_bf16_weight() && self.joins() && self.backward_splits == 1
    }

    /// Whether the gradient of the input is large enough to be computed together with the gradients
    /// through other layers.
    pub(super) fn joins(&self) -> bool {
        self.fills_device([self.shape.rows, self.shape.inputs])
    }

    /// Whether [`GluFprop`] can compute the product: it is bf16, has no bias and fills a device
    /// alone.
    pub(super) fn has_glu(&self) -> bool {
        let fills = self.fills_device([self.shape.rows, self.shape.outputs]);
        let plain = self.forward_splits == 1 && self.bias.is_none();
        self.reads_bf16_weight() && fills && plain
    }

    /// Whether [`QkvRopeFprop`](retrograph_kernels::ops::QkvRopeFprop) can compute the product.
    /// `outputs` is the number of columns of queries, keys and values together.
    pub(super) fn joins_qkv_rope(&self, outputs: usize) -> bool {
        self.reads_bf16_weight() && self.fills_device([QKV_FILL * self.shape.rows, outputs])
    }

    /// Whether products read both operands in bf16.
    fn reads_bf16_weight(&self) -> bool {
        self.weights == DType::Bf16 && self.bf16_operand
    }

    /// Whether a result fills a device alone. Smaller products of several layers run
    /// concurrently instead.
    fn fills_device(&self, [rows, columns]: [usize; 2]) -> bool {
        rows * columns >= self.min_fused_elements
    }

    /// Appends `activation(gate) · up` of `x`, with weights in bf16. Also writes gate and up, if
    /// given.
    pub(super) fn fprop_glu(
        &self,
        builder: &mut Builder,
        activation: GatedActivation,
        x: Activation,
        w: [Slice<bf16>; 2],
        gate_up: Option<[Slice<bf16>; 2]>,
        out: Slice<bf16>,
    ) -> Result<()> {
        let product =
            GluFprop { activation, x: x.bf16()?, w, products: gate_up, out, shape: self.shape };
        self.launch_for_all(builder, product.launch())
    }

    /// Appends a launch of all layers that have the input of this one.
    pub(super) fn launch_for_all(
        &self,
        builder: &mut Builder,
        product: std::result::Result<Launch<BufferId>, KernelError>,
    ) -> Result<()> {
        let [_, concurrent] = self.concurrent;
        builder.launch(product.map(|launch| launch.concurrent(concurrent)))
    }

    /// Appends the gradients of gate and up. The input of this layer is `activation(gate) · up`,
    /// and its gradient `dy·W (+ dy₁·w₁)`. The weight `w` is bf16. Gate and up come first, and then
    /// their gradients.
    pub(super) fn dgrad_glu(
        &self,
        builder: &mut Builder,
        activation: GatedActivation,
        grad_out: Activation,
        w: Slice<bf16>,
        second: Option<SecondProduct>,
        [[gate, up], [grad_gate, grad_up]]: [[Slice<bf16>; 2]; 2],
    ) -> Result<()> {
        let (grad_out, shape) = (grad_out.bf16()?, self.shape);
        let second = second.map(SecondProduct::operand);
        let product =
            GluDgrad { activation, grad_out, w, second, gate, up, grad_gate, grad_up, shape };
        self.launch(builder, product.launch())
    }

    /// Appends `y = x·Wᵀ + x₁·w₁ᵀ + b`, with a weight `w` in bf16.
    pub(super) fn fprop_sum(
        &self,
        builder: &mut Builder,
        x: Activation,
        w: Slice<bf16>,
        second: SecondProduct,
        y: TensorView<BufferId>,
    ) -> Result<()> {
        let SecondProduct { operands: [x1, w1], k } = second;
        let GemmShape { rows, inputs, outputs } = self.shape;
        let (x, w, inputs, bias) = ([x.bf16()?, x1], [w, w1], [inputs, k], self.bias);
        let product = FpropSum { x, w, bias, y, rows, inputs, outputs };
        self.launch(builder, product.launch())
    }

    /// Appends `dx = dy₀·w₀ + dy₁·w₁ + …`, of layers with the rows and inputs of this one.
    pub(super) fn dgrad_sum(
        &self,
        builder: &mut Builder,
        first: DgradOperands<BufferId>,
        added: &[DgradOperands<BufferId>],
        grad_input: TensorView<BufferId>,
    ) -> Result<()> {
        let GemmShape { rows, inputs, .. } = self.shape;
        let products = (first, added);
        self.launch(builder, DgradSum { products, grad_input, rows, inputs }.launch())
    }

    /// Appends `y = x·Wᵀ + b`, where x is as [`Products::input`] returns it.
    pub(super) fn fprop(
        &self,
        builder: &mut Builder,
        x: TensorView<BufferId>,
        y: TensorView<BufferId>,
    ) -> Result<()> {
        let Self { bias, shape, compute, forward_splits: splits, .. } = *self;
        let w = self.weight(builder)?;
        if let (TensorView::F32(out), true) = (y, splits > 1) {
            let partials = builder.transient("partials", splits * out.len());
            let split = FpropSplitK { x, w, partials, shape, splits };
            self.launch(builder, split.launch_in(compute))?;
            return builder.launch(SplitKSum { partials, out, splits }.launch());
        }
        if let (TensorView::F32(x), TensorView::Bf16(w), TensorView::F32(y)) = (x, w, y)
            && compute == DType::Bf16
            && SkinnyFprop::<BufferId>::supports(shape)
        {
            let (x, prefetch, accumulate, rows) = (x.into(), None, false, shape.rows);
            let layers = &[SkinnyLayer { w, bias, y }];
            let product = SkinnyFprop { x, layers, accumulate, prefetch, rows };
            return builder.launch(product.launch());
        }
        let product = Fprop { x, w, bias, y, shape, alpha: 1.0, accumulate: false };
        self.launch(builder, product.launch_in(compute))
    }

    /// Appends `dx = dy·W`.
    pub(super) fn dgrad(
        &self,
        builder: &mut Builder,
        OutputGradient { x: grad_out, terms }: OutputGradient,
        grad_input: TensorView<BufferId>,
    ) -> Result<()> {
        let Self { shape, compute, backward_splits: splits, .. } = *self;
        let w = self.weight(builder)?;
        let grad_out = match (w, terms) {
            (TensorView::Split(_), Some(terms)) => terms.into(),
            (TensorView::Split(w), None) => {
                let sizes = [shape.rows, shape.outputs];
                split(builder, "grad_out", grad_out.f32()?, sizes, Some(w.scales))?.into()
            }
            _ => self.operand(grad_out)?,
        };
        if let (TensorView::F32(out), true) = (grad_input, splits > 1) {
            let partials = builder.transient("grad_input_partials", splits * out.len());
            let split = DgradSplitK { grad_out, w, partials, shape, splits };
            self.launch(builder, split.launch_in(compute))?;
            return builder.launch(SplitKSum { partials, out, splits }.launch());
        }
        let product = Dgrad { grad_out, w, grad_input, shape, alpha: 1.0, accumulate: false };
        self.launch(builder, product.launch_in(compute))
    }

    /// Appends `dW = dyᵀ·x`, added to the gradients of earlier micro-batches.
    pub(super) fn wgrad(
        &self,
        builder: &mut Builder,
        grad_out: Activation,
        x: Activation,
        grad_weight: Gradient,
    ) -> Result<()> {
        let (x, grad_out, shape) = (self.operand(x)?, self.operand(grad_out)?, self.shape);
        if let (TensorView::Bf16(grad_out), TensorView::Bf16(x)) = (grad_out, x)
            && let Some(squares) = &mut builder.squares
            && let Some(squares) = squares.of_product(grad_weight, shape)
        {
            let wgrad = WgradSquares { grad_out, x, grad_weight, squares, shape };
            return builder.launch(wgrad.launch());
        }
        let (alpha, accumulate) = (1.0, builder.accumulates());
        let wgrad = Wgrad { grad_out, x, grad_weight, shape, alpha, accumulate };
        builder.launch(wgrad.launch_in(self.compute))
    }

    fn launch(
        &self,
        builder: &mut Builder,
        product: std::result::Result<Launch<BufferId>, KernelError>,
    ) -> Result<()> {
        let product = product.map(|launch| launch.concurrent(self.concurrent[0]));
        builder.launch(match self.row_limit {
            Some(limit) => product.and_then(|launch| launch.row_limit(limit)),
            None => product,
        })
    }

    /// Returns an input or gradient in the dtype that products read.
    fn operand(&self, x: Activation) -> Result<TensorView<BufferId>> {
        if self.bf16_operand { Ok(x.narrowest()) } else { Ok(x.f32()?.into()) }
    }
}

/// Declares a matrix in two terms with these rows and columns, which the next launch writes.
pub(in crate::model::layers) fn declare_terms(
    builder: &mut Builder,
    name: &str,
    [rows, columns]: [usize; 2],
) -> SplitMatrix<BufferId> {
    let terms = builder.transient_of::<f16>(&format!("{name}_terms"), TERMS * rows * columns);
    let scales = builder.transient(&format!("{name}_scales"), rows);
    SplitMatrix { terms, term_count: TERMS, scales }
}

/// Splits the rows of a matrix.
pub(in crate::model::layers) fn split(
    builder: &mut Builder,
    name: &str,
    x: Slice<f32>,
    [rows, columns]: [usize; 2],
    column_scales: Option<Slice<f32>>,
) -> Result<SplitMatrix<BufferId>> {
    let out = declare_terms(builder, name, [rows, columns]);
    builder.launch(Split { x, column_scales, out, rows, columns }.launch())?;
    Ok(out)
}
