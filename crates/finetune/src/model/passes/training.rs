//! The whole training step as one pass.

use retrograph_runtime::{Controls, Pass, Slice};

use super::optimizer::{self, Scalars};
use super::options::{MicroBatching, StepOptions};
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
    /// External, written: loss and gradient norm.
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
        controls.set(self.counted, batch.counted())?;
        self.sequences.set(controls, batch.positions.as_deref())
    }
}

impl StepPass {
    /// Returns the controls of the step.
    pub fn controls(&self) -> StepControls {
        let Self { step, tokens, targets, counted, .. } = *self;
        StepControls { step, tokens, targets, counted, sequences: self.sequences.clone() }
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
        let parameters = config.parameters();
        let mut builder = Builder::new("training step", parameters, Some(options.gradients));
        let pass = &mut builder.pass;
        let step = pass.control::<u32>("step");
        let tokens = pass.control_array::<u32>("tokens", config.rows());
        let targets = pass.control_array::<u32>("targets", config.rows());
        let counted = pass.control::<u32>("counted");
        let metrics = pass.external::<f32>("metrics", METRICS);
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
        for (number, start) in (0..config.rows()).step_by(micro_batch.rows()).enumerate() {
            if micro_batching.micro_batches > 1 {
                builder.prefix(format!("micro-batch {number}/"));
            }
            let rows = start..start + micro_batch.rows();
            builder.sequences = sequences.rows(rows.clone());
            let inputs = (tokens.slice(rows.clone()), objective.rows(rows));
            forward_and_backward(&mut builder, (&model, options.recompute), inputs)?;
            builder.next_micro_batch();
        }
        builder.prefix(String::new());
        let (loss, norm) = (metrics.slice(0..1), metrics.slice(1..2));
        mean(&mut builder, objective, loss)?;
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

fn forward_and_backward(
    builder: &mut Builder,
    (model, recompute): (&Model, bool),
    (tokens, objective): (Slice<u32>, Objective),
) -> Result<()> {
    let mut x = Residual::from(model.embedding.forward(builder, tokens)?);
    let mut saved = Vec::with_capacity(model.layers.len());
    for layer in &model.layers {
        let (next, all) = layer.forward(builder, x)?;
        saved.push(if recompute { Saved::Input(all.input()) } else { Saved::All(Box::new(all)) });
        x = next;
    }
    let head = model.head.forward(builder, x, model.head.logits_dtype())?;
    let grad_logits = model.head.loss(builder, head.logits, objective)?;
    let mut grad = model.head.backward(builder, head, grad_logits)?;
    for (layer, saved) in model.layers.iter().zip(saved).rev() {
        let saved = match saved {
            Saved::All(saved) => *saved,
            Saved::Input(x) => recomputed(builder, layer, x)?,
        };
        grad = layer.backward(builder, saved, grad)?;
    }
    model.embedding.backward(builder, tokens, grad.f32()?)
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
