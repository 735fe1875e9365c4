//! One layer of the transformer: attention and MLP, each after a norm and added to the residual
//! stream.

use retrograph_kernels::ops::TensorView;
use retrograph_runtime::{BufferId, Slice};

use super::activation::{Activation, Input, OutputGradient};
use super::attention::{self, Attention, Prefetch};
use super::kv_cache::LayerKv;
use super::linear::Linear;
use super::mlp::{self, Mlp};
use super::norm::{self, GradInput, Norm};
use super::residual::Residual;
use super::rope::RopeTables;
use super::{Builder, PassConfig};
use crate::error::Result;
use crate::parameters::{ATTENTION_NORM, layer_name, mlp_norm};
use crate::spec::LayerSpec;

/// A layer whose weights are buffers of a pass.
#[derive(Debug)]
pub(in crate::model) struct Layer {
    /// The scope, for example `layer 3`.
    scope: String,
    attention_norm: Norm,
    attention: Attention,
    mlp_norm: Norm,
    mlp: Mlp,
    /// The projection of the previous layer that reads the gradient of its output; `None` if a norm
    /// or the embedding reads it.
    previous: Option<Linear>,
}

/// Tensors saved for the backward pass.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) struct Saved {
    attention_norm: norm::Saved,
    attention: attention::Saved,
    mlp_norm: norm::Saved,
    mlp: mlp::Saved,
}

/// The last token of a prompt, for which prefill computes the end of the last layer.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) struct LastToken<'a> {
    /// Control: the row of the token.
    pub(in crate::model) index: Slice<u32>,
    /// The last layer in a pass of one row.
    pub(in crate::model) one_row: &'a Layer,
    /// The weight that is read after the layer.
    pub(in crate::model) next: TensorView<BufferId>,
}

impl Saved {
    /// The input of the layer.
    pub(in crate::model) fn input(&self) -> Slice<f32> {
        self.attention_norm.x
    }
}

impl Layer {
    /// Resolves the layer after `before`.
    pub(in crate::model) fn new(
        builder: &Builder,
        config: &PassConfig,
        tables: RopeTables,
        spec: &LayerSpec,
        before: &[Self],
    ) -> Self {
        let number = before.len();
        let norm = |name, spec| Norm::new(builder, &layer_name(number, name), spec);
        Self {
            scope: format!("layer {number}"),
            attention_norm: norm(ATTENTION_NORM, spec.attention_norm),
            attention: Attention::new(builder, config, tables, spec, number),
            mlp_norm: norm(mlp_norm(spec), spec.mlp_norm),
            mlp: Mlp::new(builder, config, spec, number),
            previous: before.last().and_then(Self::grad_reader).copied(),
        }
    }

    /// The projection that reads the gradient of the output of the layer; `None` if it is a norm.
    pub(super) fn grad_reader(&self) -> Option<&Linear> {
        self.mlp.grad_reader()
    }

    /// The weight that the layer reads first.
    pub(in crate::model) fn first_weight(&self) -> TensorView<BufferId> {
        self.attention.first_weight()
    }

    fn enter(&self, builder: &mut Builder, part: &str) {
        builder.scope(format!("{}/{part}", self.scope));
    }

    /// Appends the layer over whole sequences.
    pub(in crate::model) fn forward(
        &self,
        builder: &mut Builder,
        x: Residual,
    ) -> Result<(Residual, Saved)> {
        self.enter(builder, "input norm");
        let (normed, attention_norm) =
            self.attention_norm.forward(builder, x, self.attention.dtypes())?;
        let (x, attention) = self.attention.forward(builder, normed, attention_norm.x)?;
        let (x, mlp_norm, mlp) = self.forward_mlp(builder, x)?;
        Ok((x, Saved { attention_norm, attention, mlp_norm, mlp }))
    }

    /// Appends the layer over the tokens of a prompt. The control `count` is the number of rows
    /// that are tokens; without it, all rows are tokens.
    pub(in crate::model) fn prefill(
        &self,
        builder: &mut Builder,
        x: Residual,
        cache: &LayerKv,
        count: Option<Slice<u32>>,
    ) -> Result<Residual> {
        let (mixed, x) = self.prefill_attention(builder, x, cache, count)?;
        let x = self.attention.project_output(builder, mixed.into(), x)?;
        Ok(self.forward_mlp(builder, x)?.0)
    }

    /// As [`Layer::prefill`], for the last layer: only the row of the last token is needed.
    pub(in crate::model) fn prefill_last(
        &self,
        builder: &mut Builder,
        x: Residual,
        cache: &LayerKv,
        count: Slice<u32>,
        last: LastToken<'_>,
    ) -> Result<Residual> {
        let LastToken { index, one_row, next } = last;
        let (mixed, x) = self.prefill_attention(builder, x, cache, Some(count))?;
        self.enter(builder, "last token");
        let rows = self.attention.rows();
        let mixed = mixed.row(builder, index, rows)?;
        let x = Activation::from(x).row(builder, index, rows)?;
        let [gate, _] = one_row.mlp.first_weights();
        let mixed = Input { prefetch: Some(gate), ..Activation::from(mixed).into() };
        let x = one_row.attention.project_output(builder, mixed, x)?;
        one_row.decode_mlp(builder, x, next)
    }

    /// Appends the norm and the attention of the tokens of a prompt, up to the output projection.
    /// Also returns the input of the layer.
    fn prefill_attention(
        &self,
        builder: &mut Builder,
        x: Residual,
        cache: &LayerKv,
        count: Option<Slice<u32>>,
    ) -> Result<(Activation, Slice<f32>)> {
        self.enter(builder, "input norm");
        let (normed, saved) = self.attention_norm.forward(builder, x, self.attention.dtypes())?;
        Ok((self.attention.prefill(builder, normed, cache, count)?, saved.x))
    }

    /// Appends the layer over one token of each sequence. `next` is the weight that is read after
    /// the layer.
    pub(in crate::model) fn decode(
        &self,
        builder: &mut Builder,
        x: Residual,
        cache: &LayerKv,
        next: TensorView<BufferId>,
    ) -> Result<Residual> {
        self.enter(builder, "input norm");
        let (input, residual) = self.attention_norm.decode(builder, x, self.attention.dtypes())?;
        let [gate, up] = self.mlp.first_weights();
        let prefetch = Prefetch { during_attention: up, during_output: gate };
        let x = self.attention.decode(builder, input, residual, cache, prefetch)?;
        self.decode_mlp(builder, x, next)
    }

    /// Appends the MLP and its norm over one token of each sequence.
    fn decode_mlp(
        &self,
        builder: &mut Builder,
        x: Residual,
        next: TensorView<BufferId>,
    ) -> Result<Residual> {
        self.enter(builder, "mlp norm");
        let (input, residual) = self.mlp_norm.decode(builder, x, self.mlp.dtypes())?;
        self.mlp.decode(builder, input, residual, next)
    }

    fn forward_mlp(
        &self,
        builder: &mut Builder,
        x: Residual,
    ) -> Result<(Residual, norm::Saved, mlp::Saved)> {
        self.enter(builder, "mlp norm");
        let (normed, norm) = self.mlp_norm.forward(builder, x, self.mlp.dtypes())?;
        let (x, mlp) = self.mlp.forward(builder, normed, norm.x)?;
        Ok((x, norm, mlp))
    }

    /// Adds the gradient through both branches to `grad`, the gradient of the layer's output, which
    /// becomes the gradient of its input.
    ///
    /// The residual connection passes `grad` on, so each branch adds in place. The backward kernel
    /// of a norm adds the gradients through the projections after it, and rounds or splits the sum
    /// for the projection before it.
    pub(in crate::model) fn backward(
        &self,
        builder: &mut Builder,
        saved: Saved,
        grad: OutputGradient,
    ) -> Result<OutputGradient> {
        let stream = grad.x.f32()?;
        let branch = self.mlp.backward(builder, saved.mlp, grad)?;
        self.enter(builder, "mlp norm backward");
        let grad_input = GradInput::residual(builder, stream, self.attention.grad_reader())?;
        let grad = self.mlp_norm.backward(builder, saved.mlp_norm, &branch, grad_input)?;
        let branch = self.attention.backward(builder, saved.attention, grad)?;
        self.enter(builder, "input norm backward");
        let grad_input = GradInput::residual(builder, stream, self.previous.as_ref())?;
        self.attention_norm.backward(builder, saved.attention_norm, &branch, grad_input)
    }
}
