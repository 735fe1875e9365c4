//! The end of the model: final norm, logits, and their loss.

use std::ops::Range;

use retrograph_kernels::DType;
use retrograph_kernels::ops::{
    CrossEntropy, GemmShape, GradLogits, ScaleRows, Softcap, SplitCrossEntropy,
};
use retrograph_runtime::Slice;

use super::activation::{Activation, Dtypes, GradTerms, OutputGradient};
use super::layer::Layer;
use super::linear::{self, Backward, Forward, Linear, Output};
use super::norm::{self, GradInput, Norm};
use super::residual::Residual;
use super::self_attention::softcap;
use super::{Builder, PassConfig};
use crate::error::Result;
use crate::model::builder::Weight;
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
}

/// The targets of a step and the buffers of its loss.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) struct Objective {
    pub(in crate::model) targets: Slice<u32>,
    /// Control: the number of targets of the step that are not ignored.
    pub(in crate::model) counted: Slice<u32>,
    /// The cross-entropy of each row.
    pub(in crate::model) losses: Slice<f32>,
}

impl Objective {
    /// Returns the objective of some rows.
    pub(in crate::model) fn rows(self, rows: Range<usize>) -> Self {
        let (targets, losses) = (self.targets.slice(rows.clone()), self.losses.slice(rows));
        Self { targets, losses, ..self }
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

    /// Appends the final norm and the logits of every row without their cap, in `dtype`.
    pub(in crate::model) fn forward(
        &self,
        builder: &mut Builder,
        x: Residual,
        dtype: DType,
    ) -> Result<Saved> {
        builder.scope("final norm");
        let (normed, norm) = self.norm.forward(builder, x, self.projection.dtypes)?;
        builder.scope("logits");
        let call = Forward { output: Output::Transient(dtype), ..self.projection.call() };
        let [out] = linear::forward(builder, normed, [call])?;
        Ok(Saved { logits: out.y, norm, projection: out.saved })
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

    /// Appends the cross-entropy of each row. The gradient of their mean overwrites the logits,
    /// unless the product that reads it takes another dtype or terms alone.
    pub(in crate::model) fn loss(
        &self,
        builder: &mut Builder,
        logits: Activation,
        objective: Objective,
    ) -> Result<OutputGradient> {
        builder.scope("loss");
        let (Self { rows, vocab, softcap, .. }, dtypes) = (*self, self.projection.grad_dtypes);
        let Objective { targets, counted, losses } = objective;
        let in_terms = !dtypes.f32 && softcap.is_none();
        let terms = match in_terms {
            true => self.projection.declare_grad_terms(builder, "grad_logits")?,
            false => None,
        };
        if let Some(GradTerms { column_scales, split }) = terms {
            let (logits, column_scales) = (logits.f32()?, Some(column_scales));
            let loss = SplitCrossEntropy {
                logits,
                targets,
                losses,
                column_scales,
                split,
                counted,
                rows,
                vocab,
            };
            builder.launch(loss.launch())?;
            let x = Activation::transient(builder, "grad_logits", logits.len(), dtypes);
            return Ok(OutputGradient { x, terms: Some(split) });
        }
        let written = logits.narrowest();
        let (grad, grad_logits) = if dtypes.without_terms() == Dtypes::from(written.dtype()) {
            (logits, GradLogits::InPlace)
        } else {
            let grad = Activation::transient(builder, "grad_logits", written.len(), dtypes);
            (grad, GradLogits::Separate(grad.written()))
        };
        let logits = written;
        let loss =
            CrossEntropy { logits, targets, losses, grad_logits, counted, rows, vocab, softcap };
        builder.launch(loss.launch())?;
        Ok(grad.into())
    }

    /// Appends the cross-entropy of each row, without a gradient.
    pub(in crate::model) fn loss_alone(
        &self,
        builder: &mut Builder,
        logits: Activation,
        objective: Objective,
    ) -> Result<()> {
        builder.scope("loss");
        let (Self { rows, vocab, softcap, .. }, grad_logits) = (*self, GradLogits::None);
        let (Objective { targets, counted, losses }, logits) = (objective, logits.narrowest());
        let loss =
            CrossEntropy { logits, targets, losses, grad_logits, counted, rows, vocab, softcap };
        builder.launch(loss.launch())
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
        let (layer, scope, dtype) = (&self.projection, None, DType::F32);
        let (saved, of_norm) = (saved.projection, saved.norm);
        let call = Backward { layer, scope, saved, grad_out, dtype };
        let grad_normed = linear::backward(builder, &[call])?[0];
        builder.scope("final norm backward");
        let mut grad_normed = grad_normed.f32()?;
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
