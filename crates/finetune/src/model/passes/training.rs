//! The whole training step as one pass.

use std::ops::Range;

use retrograph_runtime::{Controls, Pass, Slice};

use super::optimizer::{self, Scalars};
use super::options::{MicroBatching, StepOptions};
use super::preference::{PREFERENCE_METRICS, Preferences};
use crate::config::{Mode, TrainingConfig};
use crate::data::Batch;
use crate::error::{Error, Result};
use crate::model::builder::{Builder, ParameterBuffers};
use crate::model::layers::{
    Layer, LayerSaved, Model, Objective, PassConfig, Residual, RopeTables, mean,
};
use crate::model::sequences::Sequences;
use crate::spec::ModelSpec;

/// Elements of the metrics buffer: the loss and the norm of the gradients before clipping.
pub const METRICS: usize = 2;

/// The training step, and the buffers that a caller binds and sets.
#[derive(Debug)]
pub struct StepPass {
    /// The operations.
    pub pass: Pass,
    /// Every parameter, in the order of the inventory.
    pub parameters: Vec<ParameterBuffers>,
    /// Control: the step, counted from 0.
    pub step: Slice<u32>,
    /// Control: `batch × seq` tokens.
    pub tokens: Slice<u32>,
    /// Control: the tokens that follow, or
    /// [`IGNORED_TARGET`](retrograph_kernels::ops::IGNORED_TARGET).
    pub targets: Slice<u32>,
    /// Control: how many targets are not ignored. Loss and gradients are means over them.
    pub counted: Slice<u32>,
    /// Controls: positions and bounds of attention.
    pub sequences: Sequences,
    /// External: cosines of the rotary positions.
    pub cos: Slice<f32>,
    /// External: sines of the rotary positions.
    pub sin: Slice<f32>,
    /// External, written: loss and gradient norm; with preferences, also [`PREFERENCE_METRICS`].
    pub metrics: Slice<f32>,
    /// External: 0, or one more than the step at which loss or norm was not finite.
    pub halt: Slice<u32>,
    /// The options it was described with.
    pub options: StepOptions,
    /// The micro-batches.
    pub micro_batching: MicroBatching,
}

/// The controls of a step.
#[derive(Clone, Debug)]
pub struct StepControls {
    step: Slice<u32>,
    tokens: Slice<u32>,
    targets: Slice<u32>,
    counted: Slice<u32>,
    sequences: Sequences,
    /// The number of pairs, of which the loss is a mean, if the step has any.
    pairs: Option<u32>,
}

impl StepControls {
    /// Sets step number and batch in the controls of the pass.
    ///
    /// # Errors
    /// If the batch has another size than the pass, or is packed and the pass is not described for
    /// that.
    pub fn set(&self, controls: &mut Controls, step: u32, batch: &Batch) -> Result<()> {
        controls.set(self.step, step)?;
        controls.set_array(self.tokens, &batch.tokens)?;
        controls.set_array(self.targets, &batch.targets)?;
        controls.set(self.counted, self.pairs.unwrap_or_else(|| batch.counted()))?;
        self.sequences.set(controls, batch.positions.as_deref())
    }
}

impl StepPass {
    /// Returns the controls of the step.
    pub fn controls(&self) -> StepControls {
        let Self { step, tokens, targets, counted, .. } = *self;
        let sequences = self.micro_batching.batch as u32;
        let pairs = self.options.preference.map(|_| sequences / 2);
        StepControls { step, tokens, targets, counted, sequences: self.sequences.clone(), pairs }
    }

    /// Describes the step of `config`.
    ///
    /// # Errors
    /// If `config` is not valid, the batch cannot be divided as `options` say, or a kernel does not
    /// support the sizes.
    pub fn new(config: &TrainingConfig, options: StepOptions) -> Result<Self> {
        config.validate()?;
        if config.mode == Mode::Frozen {
            let (field, value) = ("mode", "frozen".to_owned());
            let rule = "full or lora: there is nothing to train".to_owned();
            return Err(Error::InvalidConfig { field, value, rule });
        }
        let micro_batching = options.micro_batching(config)?;
        if let Some(preference) = options.preference {
            preference.validate(config, micro_batching.size())?;
        }
        let parameters = config.parameters();
        let mut builder = Builder::new("training step", parameters, Some(options.gradients));
        let pass = &mut builder.pass;
        let step = pass.control::<u32>("step");
        let tokens = pass.control_array::<u32>("tokens", config.rows());
        let targets = pass.control_array::<u32>("targets", config.rows());
        let counted = pass.control::<u32>("counted");
        let further = options.preference.map_or(0, |_| PREFERENCE_METRICS);
        let metrics = pass.external::<f32>("metrics", METRICS + further);
        let halt = pass.external::<u32>("halt", 1);
        builder.train(step, config.seed);
        let tables = RopeTables::declare(&mut builder, config.seq, config.model.head_dim());
        let micro_batch = PassConfig::training(config, (options, micro_batching));
        let spec = ModelSpec::from(&config.model);
        let shape = [config.batch, config.seq];
        let sequences = Sequences::declare(&mut builder.pass, &spec, (shape, options.packed));
        let model = Model::new(&builder, &spec, &micro_batch, tables);
        builder.scope("loss");
        let losses = builder.transient("per_token", config.rows());
        let objective = Objective { targets, counted, losses };
        let preferences = options.preference.map(|preference| {
            let losses = builder.transient("per_pair", config.batch / 2);
            Preferences::new(&mut builder, (&spec, &micro_batch, tables), preference, losses)
        });
        let step_of = StepOf { model: &model, preferences: preferences.as_ref(), options };
        for (number, start) in (0..config.rows()).step_by(micro_batch.rows()).enumerate() {
            if micro_batching.micro_batches > 1 {
                builder.prefix(format!("micro-batch {number}/"));
            }
            let rows = start..start + micro_batch.rows();
            builder.sequences = sequences.rows(rows.clone());
            let inputs = (tokens.slice(rows.clone()), objective.rows(rows.clone()), rows);
            step_of.forward_and_backward(&mut builder, inputs)?;
            builder.next_micro_batch();
        }
        builder.prefix(String::new());
        let (loss, norm) = (metrics.slice(0..1), metrics.slice(1..2));
        match &preferences {
            None => mean(&mut builder, objective, loss)?,
            Some(preferences) => {
                let losses = preferences.losses;
                mean(&mut builder, Objective { losses, ..objective }, loss)?;
                let rest = metrics.slice(METRICS..METRICS + PREFERENCE_METRICS);
                preferences.means(&mut builder, counted, rest)?;
            }
        }
        let scalars = Scalars { step, loss, norm, halt };
        optimizer::update(&mut builder, &config.optimizer, scalars)?;
        let Builder { pass, parameters, .. } = builder;
        let RopeTables { cos, sin } = tables;
        Ok(Self {
            pass,
            parameters,
            step,
            tokens,
            targets,
            counted,
            sequences,
            cos,
            sin,
            metrics,
            halt,
            options,
            micro_batching,
        })
    }

    /// The parameters that are trained, in order.
    pub fn trained(&self) -> impl Iterator<Item = &ParameterBuffers> {
        self.parameters.iter().filter(|held| held.trained.is_some())
    }
}

/// What a step computes of each micro-batch.
struct StepOf<'a> {
    model: &'a Model,
    preferences: Option<&'a Preferences>,
    options: StepOptions,
}

impl StepOf<'_> {
    /// Appends the passes over a micro-batch, which is the rows `rows` of the step.
    fn forward_and_backward(
        &self,
        builder: &mut Builder,
        (tokens, objective, rows): (Slice<u32>, Objective, Range<usize>),
    ) -> Result<()> {
        let Self { model, preferences, options } = self;
        // Before the trained model, whose activations stay until its backward pass.
        let reference = preferences.map(|one| one.reference(builder, tokens, objective));
        let reference = reference.transpose()?;
        let mut x = Residual::from(model.embedding.forward(builder, tokens)?);
        let mut saved = Vec::with_capacity(model.layers.len());
        for layer in &model.layers {
            let (next, all) = layer.forward(builder, x)?;
            saved.push(if options.recompute {
                Saved::Input(all.input())
            } else {
                Saved::All(Box::new(all))
            });
            x = next;
        }
        let head = model.head.forward(builder, x, model.head.logits_dtype())?;
        let grad_logits = model.head.loss(builder, head.logits, objective)?;
        let weights = preferences.zip(reference).map(|(preferences, reference)| {
            preferences.pairs(builder, [objective.losses, reference], rows)
        });
        let mut grad = model.head.backward(builder, head, (grad_logits, weights.transpose()?))?;
        for (layer, saved) in model.layers.iter().zip(saved).rev() {
            let saved = match saved {
                Saved::All(saved) => *saved,
                Saved::Input(x) => recomputed(builder, layer, x)?,
            };
            grad = layer.backward(builder, saved, grad)?;
        }
        model.embedding.backward(builder, tokens, grad.f32()?)
    }
}

/// Tensors of a layer saved for the backward pass.
enum Saved {
    All(Box<LayerSaved>),
    /// The input, from which the layer is recomputed.
    Input(Slice<f32>),
}

/// Appends the forward pass of a layer once more. Its last product has no reader: the output is
/// known already.
fn recomputed(builder: &mut Builder, layer: &Layer, x: Slice<f32>) -> Result<LayerSaved> {
    let before = builder.prefix(String::new());
    builder.prefix(format!("{before}again/"));
    let (_, saved) = layer.forward(builder, x.into())?;
    builder.prefix(before);
    Ok(saved)
}

#[cfg(test)]
mod tests;
