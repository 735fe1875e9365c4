//! A linear layer resolved from the model: its weights, and the dtypes that it reads and writes.

use retrograph_kernels::DType;
use retrograph_kernels::ops::GemmShape;
use retrograph_runtime::Slice;

use super::super::activation::Dtypes;
use super::super::gemv::GemvCall;
use super::super::lora::{Lora, Method};
use super::super::{Builder, PassConfig};
use super::dora::Dora;
use super::products::Products;
use crate::config::{LoraModule, Projection};
use crate::model::builder::{F32Weight, Weight};
use crate::parameters::layer_name;
use crate::spec::LayerSpec;

/// A linear layer: its weights, and how its products are computed.
#[derive(Clone, Copy, Debug)]
pub(in crate::model::layers) struct Linear {
    pub(in crate::model::layers) weight: Weight,
    pub(super) bias: Option<F32Weight>,
    pub(in crate::model::layers) lora: Option<Lora>,
    pub(super) dora: Option<Dora>,
    /// The dtypes in which the layer reads its input: bf16 for large products in bf16, terms for
    /// large products in f32, f32 for everything else.
    pub(in crate::model::layers) dtypes: Dtypes,
    /// The dtypes in which the layer reads the gradient of its output.
    pub(in crate::model::layers) grad_dtypes: Dtypes,
    pub(super) products: Products,
}

impl Linear {
    /// Resolves the projection of a layer of the model. Gate and up of the MLP depend on the same
    /// values, so they can run concurrently.
    pub(in crate::model::layers) fn new(
        builder: &Builder,
        config: &PassConfig,
        spec: &LayerSpec,
        number: usize,
        projection: Projection,
    ) -> Self {
        let [inputs, outputs] = spec.projection(projection);
        let shape = GemmShape { rows: config.rows(), inputs, outputs };
        let name = |kind| layer_name(number, &format!("{}.{kind}", projection.path()));
        let weight = builder.weight(&name("weight"));
        let module = LoraModule { layer: number, projection, fused: spec.fused };
        let options = config.lora.and_then(|lora| lora.of(module));
        let lora = options.map(|lora| {
            let names = [name("lora_A.weight"), name("lora_B.weight")];
            let [a, b] = names.each_ref().map(|name| builder.f32_weight(name));
            let dropout = builder.dropout(&names[0], lora.dropout);
            let matrices = names.each_ref().map(|name| builder.weight(name).value);
            let in_bf16 = Products::reads_bf16(&weight.value, shape, config) && dropout.is_none();
            let weights = in_bf16.then(|| Products::weights(&weight, shape, config));
            let method = Method::new([lora.rank, shape.rows], matrices, weights);
            let (rank, scale, compute) = (lora.rank, lora.scale(), config.compute);
            Lora { a, b, rank, scale, dropout, shape, compute, method }
        });
        let bias = spec.has_bias(projection).then(|| builder.f32_weight(&name("bias")));
        let siblings = u32::from(matches!(projection, Projection::Gate | Projection::Up));
        let added = bias.map(|bias: F32Weight| bias.value);
        let magnitudes = options.filter(|lora| lora.dora);
        let magnitudes = magnitudes.map(|_| builder.f32_weight(&name("lora_magnitude_vector")));
        let dora = lora.zip(magnitudes).map(|(lora, magnitudes)| {
            let (w, bias) = (weight.value, added);
            Dora { magnitudes, lora, w, bias }
        });
        // DoRA adds the bias after the scales.
        let added = added.filter(|_| dora.is_none());
        let products = Products::new(weight, added, shape, config, siblings);
        let fused = lora.is_some_and(|lora| lora.fused().is_some());
        let products = if fused { products.without_splits() } else { products };
        let layer = Self::resolve(weight, bias, lora, products);
        // The scales of DoRA read the gradient of the output in f32.
        let terms = layer.grad_dtypes.terms && dora.is_none();
        Self { dora, grad_dtypes: Dtypes { terms, ..layer.grad_dtypes }, ..layer }
    }

    /// Resolves the output projection, which has neither bias nor LoRA.
    pub(in crate::model::layers) fn head(
        weight: Weight,
        shape: GemmShape,
        config: &PassConfig,
    ) -> Self {
        Self::resolve(weight, None, None, Products::new(weight, None, shape, config, 0))
    }

    /// Returns the layer with a limit of the rows that its products compute: the number in
    /// `row_limit`. Weight gradients are sums over all rows.
    pub(in crate::model::layers) fn with_row_limit(
        mut self,
        row_limit: Option<Slice<u32>>,
    ) -> Self {
        self.products.row_limit = row_limit;
        self
    }

    fn resolve(
        weight: Weight,
        bias: Option<F32Weight>,
        lora: Option<Lora>,
        mut products: Products,
    ) -> Self {
        products.is_skinny &= lora.is_none();
        let bf16 = products.bf16_operand || products.is_skinny;
        let lora_f32 = lora.is_some_and(|lora| lora.dtype() == DType::F32);
        let terms = products.is_split();
        let product_f32 = !bf16 && (!terms || weight.grad.is_some());
        let dtypes = Dtypes { f32: product_f32 || lora_f32, bf16, terms };
        // The gradient of a bias is added in f32.
        let trained_bias = bias.is_some_and(|bias| bias.grad.is_some());
        let grad_dtypes = Dtypes { f32: dtypes.f32 || trained_bias, ..dtypes };
        Self { weight, bias, lora, dora: None, dtypes, grad_dtypes, products }
    }

    /// Whether the output can be written as bf16: a large product, to which nothing is added.
    pub(in crate::model::layers) fn can_round_output(&self) -> bool {
        let Products { bf16_operand, forward_splits, .. } = self.products;
        bf16_operand && self.is_one_product() && forward_splits == 1
    }

    /// Whether the gradient of the input can be written as bf16.
    pub(in crate::model::layers) fn can_round_grad_input(&self) -> bool {
        let Products { bf16_operand, backward_splits, .. } = self.products;
        bf16_operand && self.is_one_product() && backward_splits == 1
    }

    /// Whether `GluFprop` can compute the layer.
    pub(in crate::model::layers) fn has_glu(&self) -> bool {
        self.products.has_glu() && self.lora.is_none()
    }

    /// Whether `QkvRopeFprop` can compute the layer. `outputs` is the number of columns of queries,
    /// keys and values together.
    pub(in crate::model::layers) fn joins_qkv_rope(&self, outputs: usize) -> bool {
        let plain = self.dora.is_none() && self.is_one_product();
        plain && self.products.joins_qkv_rope(outputs)
    }

    /// The width of the output.
    pub(in crate::model::layers) fn outputs(&self) -> usize {
        self.products.shape.outputs
    }

    /// Whether `GluDgrad` can compute the gradient of the input.
    pub(in crate::model::layers) fn has_grad_glu(&self) -> bool {
        self.products.joinable() && self.is_one_product()
    }

    /// Whether nothing is added to the product with the weight after it.
    fn is_one_product(&self) -> bool {
        self.lora.is_none_or(|lora| lora.fused().is_some())
    }

    /// The dtype of an output that is read in `dtypes`: bf16 if nothing reads f32 and the product
    /// can write bf16.
    pub(in crate::model::layers) fn output_dtype(&self, dtypes: Dtypes) -> DType {
        if self.can_round_output() && !dtypes.f32 { DType::Bf16 } else { DType::F32 }
    }

    /// The dtype of the gradient of an input that is read in `dtypes`.
    pub(in crate::model::layers) fn grad_input_dtype(&self, dtypes: Dtypes) -> DType {
        if self.can_round_grad_input() && !dtypes.f32 { DType::Bf16 } else { DType::F32 }
    }

    /// Whether the layer is computed for one row, by GEMV.
    pub(in crate::model::layers) fn is_one_row(&self) -> bool {
        self.products.shape.rows == 1
    }

    /// Whether a decode step of several sequences computes the layer by skinny products.
    pub(in crate::model::layers) fn is_skinny(&self) -> bool {
        self.products.is_skinny
    }

    /// Describes the layer of a decode step, without the scales and the bias of DoRA.
    pub(in crate::model::layers) fn gemv(&self, y: Slice<f32>) -> GemvCall<'_> {
        let bias = self.bias.filter(|_| self.dora.is_none()).map(|bias| bias.value);
        GemvCall { weight: self.weight.value, lora: self.lora.as_ref(), bias, y }
    }

    /// Returns the bias.
    pub(in crate::model::layers) fn bias(&self) -> Option<Slice<f32>> {
        self.bias.map(|bias| bias.value)
    }

    /// Whether outputs have the scales of DoRA.
    pub(in crate::model::layers) fn has_dora_scales(&self) -> bool {
        self.dora.is_some()
    }

    /// Declares the output of a decode step.
    pub(in crate::model::layers) fn decode_output(&self, builder: &mut Builder) -> Slice<f32> {
        let GemmShape { rows, outputs, .. } = self.products.shape;
        builder.transient("out", rows * outputs)
    }

    /// Returns the number of rows.
    pub(in crate::model::layers) fn rows(&self) -> usize {
        self.products.shape.rows
    }
}
