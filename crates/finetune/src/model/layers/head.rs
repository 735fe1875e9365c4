//! The end of the model: final norm, logits, and their loss.

use std::ops::Range;

use retrograph_kernels::ops::{
    CrossEntropy, GemmShape, GradLogits, ReorderRows, ScaleRows, Softcap,
};
use retrograph_kernels::{DType, TensorView};
use retrograph_runtime::{BufferId, Slice};

use super::activation::{Activation, Dtypes, GradTerms, OutputGradient};
use super::layer::Layer;
use super::linear::{self, Backward, Forward, Linear, Output};
use super::norm::{self, GradInput, Norm};
use super::residual::Residual;
use super::self_attention::softcap;
use super::{Builder, PassConfig};
use crate::error::Result;
use crate::model::builder::Weight;
use crate::model::targets::{TargetRows, Targets};
use crate::parameters::{EMBEDDING, FINAL_NORM, HEAD};
use crate::spec::ModelSpec;

/// The final norm and the output projection.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) struct Head {
    norm: Norm,
    projection: Linear,
    rows: usize,
    vocab: usize,
    /// The cap of the logits.
    softcap: Option<f32>,
    /// The projection of the last layer that reads the gradient of its output; `None` if it is a
    /// norm.
    last: Option<Linear>,
}

/// The logits, and tensors saved for the backward pass.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) struct Saved {
    pub(in crate::model) logits: Activation,
    norm: norm::Saved,
    projection: linear::Saved,
    rows: Option<TargetRows>,
}

/// The targets of a step and the losses of its rows.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) struct Objective {
    pub(in crate::model) targets: Targets,
    /// The cross-entropy of each row.
    pub(in crate::model) losses: Slice<f32>,
}

impl Objective {
    /// Returns the objective of the micro-batch that is the rows `rows`.
    pub(in crate::model) fn rows(self, rows: Range<usize>) -> Self {
        Self { targets: self.targets.rows(rows.clone()), losses: self.losses.slice(rows) }
    }
}

impl Head {
    /// Resolves the head after the layer `last`.
    pub(super) fn new(
        builder: &Builder,
        config: &PassConfig,
        spec: &ModelSpec,
        last: Option<&Layer>,
    ) -> Self {
        let rows = config.logit_rows;
        let shape = GemmShape { rows, inputs: spec.hidden, outputs: spec.vocab };
        let weight: Weight =
            builder.weight(if spec.tie_word_embeddings { EMBEDDING } else { HEAD });
        Self {
            norm: Norm::new(builder, FINAL_NORM, spec.final_norm),
            projection: Linear::head(weight, shape, config),
            rows,
            vocab: spec.vocab,
            softcap: spec.logit_softcap,
            last: last.and_then(Layer::grad_reader).copied(),
        }
    }

    /// The output projection.
    pub(in crate::model) fn weight(&self) -> Weight {
        self.projection.weight
    }

    /// Returns the dtype of logits that only the loss reads: the dtype that their product writes,
    /// so bf16 logits take half the memory.
    pub(in crate::model) fn logits_dtype(&self) -> DType {
        self.projection.output_dtype(self.projection.dtypes)
    }

    /// Appends the final norm and the logits without their cap, in `dtype`. With `rows`, logits are
    /// in their order, and only rows with a target have any. Without, every row has logits.
    pub(in crate::model) fn forward(
        &self,
        builder: &mut Builder,
        x: Residual,
        dtype: DType,
        rows: Option<TargetRows>,
    ) -> Result<Saved> {
        builder.scope("final norm");
        // Rows are gathered before they are split.
        let dtypes = self.projection.dtypes;
        let dtypes = if rows.is_some() { dtypes.without_terms() } else { dtypes };
        let (mut normed, norm) = self.norm.forward(builder, x, dtypes)?;
        builder.scope("logits");
        let projection = self.projection.with_row_limit(rows.map(|rows| rows.count));
        if let Some(rows) = rows {
            normed = normed.x.gathered(builder, rows)?.into();
        }
        let call = Forward { output: Output::Transient(dtype), ..projection.call() };
        let [out] = linear::forward(builder, normed, [call])?;
        Ok(Saved { logits: out.y, norm, projection: out.saved, rows })
    }

    /// Appends the cap of the logits, if there is one.
    pub(in crate::model) fn cap(
        &self,
        builder: &mut Builder,
        logits: Slice<f32>,
    ) -> Result<Slice<f32>> {
        Ok(softcap(builder, self.softcap, logits)?.0)
    }

    /// Appends the final norm and the logits of every row, into the given buffer.
    pub(in crate::model) fn next_tokens(
        &self,
        builder: &mut Builder,
        x: Residual,
        logits: Slice<f32>,
    ) -> Result<()> {
        builder.scope("final norm");
        let (input, _) = self.norm.decode(builder, x, self.projection.dtypes)?;
        builder.scope("logits");
        let Some(cap) = self.softcap else {
            let call = Forward { output: Output::Into(logits), ..self.projection.call() };
            linear::forward(builder, input, [call])?;
            return Ok(());
        };
        let [out] = linear::forward(builder, input, [self.projection.call()])?;
        builder.launch(Softcap { x: out.y.f32()?, y: logits, cap }.launch())
    }

    /// Appends the cross-entropy of each row, in the order of tokens. The gradient of their mean
    /// overwrites the logits, unless the product that reads it takes another dtype or terms alone.
    /// It has the order of the logits.
    ///
    /// The product with a frozen weight reads the gradient only up to the last row with a target;
    /// the gradient of a trained weight is a sum over all rows, so the others are zeros.
    pub(in crate::model) fn loss(
        &self,
        builder: &mut Builder,
        logits: Activation,
        objective: Objective,
    ) -> Result<OutputGradient> {
        builder.scope("loss");
        let dtypes = self.projection.grad_dtypes;
        let (name, len) = ("grad_logits", logits.narrowest().len());
        let terms = if dtypes.f32 || self.softcap.is_some() {
            None
        } else {
            self.projection.declare_grad_terms(builder, name)?
        };
        let transient = |builder: &mut Builder| Activation::transient(builder, name, len, dtypes);
        let (x, grad_logits) = match terms {
            Some(GradTerms { column_scales, split }) => {
                let column_scales = Some(column_scales);
                (transient(builder), GradLogits::Split { column_scales, split })
            }
            None if dtypes.without_terms() == Dtypes::from(logits.narrowest().dtype()) => {
                (logits, GradLogits::InPlace)
            }
            None => {
                let x = transient(builder);
                (x, GradLogits::Separate(x.written()))
            }
        };
        let launch = self.cross_entropy(logits, objective, grad_logits).launch();
        let is_frozen = self.projection.weight.grad.is_none();
        let row_limit = objective.targets.rows.count;
        builder.launch(match is_frozen {
            true => launch.and_then(|launch| launch.row_limit(row_limit)),
            false => launch,
        })?;
        Ok(OutputGradient { x, terms: terms.map(|terms| terms.split) })
    }

    /// Appends the cross-entropy of each row, in the order of tokens, without a gradient.
    pub(in crate::model) fn loss_alone(
        &self,
        builder: &mut Builder,
        logits: Activation,
        objective: Objective,
    ) -> Result<()> {
        builder.scope("loss");
        builder.launch(self.cross_entropy(logits, objective, GradLogits::None).launch())
    }

    fn cross_entropy(
        &self,
        logits: Activation,
        Objective { targets: Targets { targets, counted, rows: of_targets }, losses }: Objective,
        grad_logits: GradLogits<BufferId>,
    ) -> CrossEntropy<BufferId, TensorView<BufferId>> {
        let Self { rows, vocab, softcap, .. } = *self;
        let (logits, order) = (logits.narrowest(), Some(of_targets.order));
        CrossEntropy { logits, targets, losses, order, grad_logits, counted, rows, vocab, softcap }
    }

    /// Appends the gradient of the residual stream before the final norm, in f32, and in bf16 or
    /// terms if the last layer reads those. `factors` multiply the gradients of each sequence; the
    /// weights of the head must then be frozen.
    pub(in crate::model) fn backward(
        &self,
        builder: &mut Builder,
        saved: Saved,
        grad_out: OutputGradient,
        factors: Option<Slice<f32>>,
    ) -> Result<OutputGradient> {
        builder.scope("logits backward");
        let Saved { rows, norm: of_norm, projection: saved, .. } = saved;
        let layer = &self.projection.with_row_limit(rows.map(|rows| rows.count));
        let (scope, dtype) = (None, DType::F32);
        let call = Backward { layer, scope, saved, grad_out, dtype };
        let grad_normed = linear::backward(builder, &[call])?[0];
        builder.scope("final norm backward");
        let mut grad_normed = grad_normed.f32()?;
        if let Some(TargetRows { order, count: row_limit }) = rows {
            let (x, width) = (grad_normed, grad_normed.len() / self.rows);
            let out = builder.transient("grad_normed", x.len());
            builder.launch(ReorderRows { x, order, row_limit, out, width }.scatter())?;
            grad_normed = out;
        }
        if let Some(factors) = factors {
            // The rows of a product and of its input have the same factors.
            let (x, rows) = (grad_normed, self.rows);
            let out = builder.transient("grad_scaled", x.len());
            builder.launch(ScaleRows { x, scales: factors, out, rows }.launch())?;
            grad_normed = out;
        }
        let stream = builder.transient("grad_residual", grad_normed.len());
        let grad_input = GradInput::residual(builder, stream, self.last.as_ref())?;
        let grad_input = GradInput { accumulate: false, ..grad_input };
        self.norm.backward(builder, of_norm, &[grad_normed.into()], grad_input)
    }
}
