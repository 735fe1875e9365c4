//! The whole training step as one pass.

use std::ops::Range;

use retrograph_kernels::DType;
use retrograph_runtime::{Controls, Pass, Ranks, Slice};

use super::metrics::{MetricsLayout, Results};
use super::optimizer::{self, Scalars};
use super::options::{GradientOwner, MicroBatching, StepOptions};
use super::preference::Preferences;
use crate::config::{Mode, TrainingConfig};
use crate::data::Batch;
use crate::error::{Error, Result};
use crate::model::builder::{Builder, ParameterBuffers};
use crate::model::exchange::GradientOptions;
use crate::model::layers::{Layer, LayerSaved, Model, Objective, PassConfig, Residual, RopeTables};
use crate::model::sequences::Sequences;
use crate::model::targets::Targets;
use crate::parameters::{ATTENTION_NORM, FINAL_NORM, MLP_NORM, Sharding, layer_name};
use crate::spec::ModelSpec;

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
    /// Controls: the tokens that follow. Only tokens with a target have logits.
    pub targets: Targets,
    /// Control, with several ranks: 1 if this rank wants to stop, otherwise 0.
    pub stop: Option<Slice<f32>>,
    /// Controls: positions and bounds of attention.
    pub sequences: Sequences,
    /// External: cosines of the rotary positions.
    pub cos: Slice<f32>,
    /// External: sines of the rotary positions.
    pub sin: Slice<f32>,
    /// External, written: loss, gradient norm and more: see [`MetricsLayout`].
    pub metrics: Slice<f32>,
    /// External, written: the gradients, if the caller keeps them.
    pub gradients: Vec<Slice<f32>>,
    /// External, the halt flag: 0, or one more than the step at which loss or norm was not finite.
    pub halt: Slice<u32>,
    /// The options of the step.
    pub options: StepOptions,
    /// The micro-batches.
    pub micro_batching: MicroBatching,
}

/// The controls of a step.
#[derive(Clone, Debug)]
pub struct StepControls {
    step: Slice<u32>,
    tokens: Slice<u32>,
    targets: Targets,
    stop: Option<Slice<f32>>,
    sequences: Sequences,
    /// The number of pairs of all ranks, over which the loss is a mean, if the step has pairs.
    pairs: Option<u32>,
    ranks: Ranks,
}

/// The values of the controls of a step.
#[derive(Clone, Copy, Debug)]
pub struct StepInput<'a> {
    /// The step, counted from 0.
    pub number: u32,
    /// The batch of all ranks.
    pub batch: &'a Batch,
    /// Whether this rank wants to stop. Ignored if it is the only one.
    pub stop: bool,
}

impl StepControls {
    /// Sets the input of a step in the controls of the pass, which takes the rows of its rank.
    ///
    /// # Errors
    /// If the batch has another size than the pass, or is packed and the pass is not described for
    /// that.
    pub fn set(&self, controls: &mut Controls, input: StepInput<'_>) -> Result<()> {
        let StepInput { number, batch, stop } = input;
        controls.set(self.step, number)?;
        // Checks each list separately, so that any wrong length is an error.
        let rows = |all: &'_ [u32]| self.ranks.block(all.len());
        controls.set_array(self.tokens, &batch.tokens[rows(&batch.tokens)])?;
        let counted = self.pairs.unwrap_or_else(|| batch.counted());
        self.targets.set(controls, &batch.targets[rows(&batch.targets)], counted)?;
        if let Some(place) = self.stop {
            controls.set(place, f32::from(u8::from(stop)))?;
        }
        self.sequences.set(controls, batch.positions.as_deref().map(|all| &all[rows(all)]))
    }
}

impl StepPass {
    /// Returns the controls of the step.
    pub fn controls(&self) -> StepControls {
        let Self { step, tokens, targets, stop, .. } = *self;
        let (sequences, ranks) = (self.sequences.clone(), self.options.ranks);
        let all = (self.micro_batching.batch * ranks.world_size) as u32;
        let pairs = self.options.preference.map(|_| all / 2);
        StepControls { step, tokens, targets, stop, sequences, pairs, ranks }
    }

    /// Describes the step of `config`; with several ranks, the part of one rank.
    ///
    /// # Errors
    /// If `config` is not valid, the batch cannot be divided as `options` say, or a kernel does not
    /// support the sizes.
    pub fn new(config: &TrainingConfig, options: StepOptions) -> Result<Self> {
        Self::describe(config, options, End::Update)
    }

    /// Describes a step that only computes the loss and the gradient norm of this rank, without
    /// collectives. It is used to find the rank whose gradients are not finite.
    ///
    /// # Errors
    /// As [`StepPass::new`].
    pub(crate) fn of_one_rank(config: &TrainingConfig, options: StepOptions) -> Result<Self> {
        Self::describe(config, options, End::Norm)
    }

    fn describe(config: &TrainingConfig, options: StepOptions, end: End) -> Result<Self> {
        config.validate()?;
        require_trainable(config)?;
        let micro_batching = options.micro_batching(config)?;
        let config = &options.of_rank(config)?;
        if let Some(preference) = options.preference {
            preference.validate(config, micro_batching.size())?;
        }
        let ranks = if end == End::Update { options.ranks } else { Ranks::ONE };
        let gradients = gradient_options(config, options, ranks, micro_batching);
        let mut builder = Builder::new("training step", config.parameters(), Some(gradients));
        if ranks.world_size == 1 && micro_batching.micro_batches == 1 {
            builder.sum_squares();
        }
        let pass = &mut builder.pass;
        let step = pass.control::<u32>("step");
        let tokens = pass.control_array::<u32>("tokens", config.rows());
        let targets = Targets::declare(pass, config.rows(), micro_batching.micro_batches);
        let stop = (ranks.world_size > 1).then(|| pass.control::<f32>("stop"));
        let layout = MetricsLayout::new(&StepOptions { ranks, ..options });
        let metrics = pass.external::<f32>("metrics", layout.len());
        let halt = pass.external::<u32>("halt", 1);
        let earlier = options.ranks.rank * micro_batching.micro_batches;
        builder.train(step, config.seed, earlier);
        let tables = RopeTables::declare(&mut builder, config.seq, &config.model);
        let micro_batch = PassConfig::training(config, options, micro_batching);
        let spec = ModelSpec::from(&config.model);
        let shape = [config.batch, config.seq];
        let sequences = Sequences::declare(&mut builder.pass, &spec, shape, options.packed);
        let model = Model::new(&builder, &spec, &micro_batch, tables);
        // Weights are read sooner than gradients are complete, so their groups are smaller.
        optimizer::gather(&mut builder, gradients.sharding, gradients.bucket_bytes / 8)?;
        builder.scope("loss");
        let losses = builder.transient("per_token", config.rows());
        let objective = Objective { targets, losses };
        let preferences = options.preference.map(|preference| {
            let losses = builder.transient("per_pair", config.batch / 2);
            Preferences::new(&mut builder, &spec, &micro_batch, tables, preference, losses)
        });
        let step_of = StepOf { model: &model, preferences: preferences.as_ref(), options };
        step_of.micro_batches(&mut builder, &sequences, tokens, objective, micro_batching)?;
        let (loss, norm) = (metrics.slice(0..1), metrics.slice(1..2));
        let values = match &preferences {
            None => vec![losses],
            Some(preferences) => preferences.results().to_vec(),
        };
        let results = Results { values: &values, counted: targets.counted, layout, metrics };
        match stop {
            None => results.of_one_rank(&mut builder)?,
            Some(stop) => results.of_all_ranks(&mut builder, stop)?,
        }
        let scalars = Scalars { step, loss, norm, halt };
        match end {
            End::Update => {
                optimizer::update(&mut builder, &config.optimizer, scalars, gradients.sharding)?;
            }
            End::Norm => optimizer::norm(&mut builder, scalars)?,
        }
        let Builder { pass, parameters, .. } = builder;
        let RopeTables { cos, sin, .. } = tables;
        let gradients = match options.gradients {
            GradientOwner::Transient => Vec::new(),
            GradientOwner::External => whole_gradients(&pass, &parameters),
        };
        Ok(Self {
            pass,
            parameters,
            step,
            tokens,
            targets,
            stop,
            sequences,
            cos,
            sin,
            metrics,
            gradients,
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

/// Fails for a valid configuration that cannot be trained.
fn require_trainable(config: &TrainingConfig) -> Result<()> {
    let invalid = |field, value: &str, rule: &str| {
        let (value, rule) = (value.to_owned(), rule.to_owned());
        Err(Error::InvalidConfig { field, value, rule })
    };
    match config.mode {
        Mode::Frozen => invalid("mode", "frozen", "full or lora: there is nothing to train"),
        Mode::Lora(lora) if lora.dora && lora.dropout > 0.0 => invalid(
            "lora_dropout",
            &lora.dropout.to_string(),
            "0 with DoRA, which is trained without dropout here",
        ),
        Mode::Full | Mode::Lora(_) => Ok(()),
    }
}

fn gradient_options(
    config: &TrainingConfig,
    options: StepOptions,
    ranks: Ranks,
    micro_batching: MicroBatching,
) -> GradientOptions {
    let in_bf16 = options.gradients == GradientOwner::Transient
        && config.precision.gradients == DType::Bf16
        && config.mode == Mode::Full
        && micro_batching.micro_batches == 1;
    GradientOptions {
        home: options.gradients,
        sharding: Sharding::new(config.mode, ranks, options.shard_from),
        bucket_bytes: options.bucket_bytes.unwrap_or(StepOptions::BUCKET_BYTES),
        bf16_rows: in_bf16.then_some(config.rows()),
    }
}

/// The end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Ranks exchange gradients, and the optimizer updates the parameters.
    Update,
    /// Only the gradient norm of this rank.
    Norm,
}

/// The buffers of all gradients, each once.
fn whole_gradients(pass: &Pass, parameters: &[ParameterBuffers]) -> Vec<Slice<f32>> {
    let mut whole: Vec<Slice<f32>> = Vec::new();
    for trained in parameters.iter().filter_map(|held| held.trained.as_ref()) {
        let id = trained.grad.f32().buffer();
        if whole.iter().all(|known| known.buffer() != id) {
            let len = pass.buffer(id).map_or(0, |buffer| buffer.len());
            whole.push(Slice::new(id, len));
        }
    }
    whole
}

/// The results of a step for each micro-batch.
struct StepOf<'a> {
    model: &'a Model,
    preferences: Option<&'a Preferences>,
    options: StepOptions,
}

impl StepOf<'_> {
    /// Appends the passes over all micro-batches.
    fn micro_batches(
        &self,
        builder: &mut Builder,
        sequences: &Sequences,
        tokens: Slice<u32>,
        objective: Objective,
        MicroBatching { micro_batches, .. }: MicroBatching,
    ) -> Result<()> {
        let len = tokens.len() / micro_batches;
        for number in 0..micro_batches {
            if micro_batches > 1 {
                builder.prefix(format!("micro-batch {number}/"));
            }
            let rows = number * len..(number + 1) * len;
            builder.sequences = sequences.rows(rows.clone());
            let (tokens, objective) = (tokens.slice(rows.clone()), objective.rows(rows.clone()));
            let last = number + 1 == micro_batches;
            self.forward_and_backward(builder, tokens, objective, rows, last)?;
            builder.next_micro_batch();
        }
        builder.prefix(String::new());
        Ok(())
    }

    /// Appends the passes over a micro-batch, which is the rows `rows` of the step. The `last` one
    /// completes the gradients, which ranks then exchange.
    fn forward_and_backward(
        &self,
        builder: &mut Builder,
        tokens: Slice<u32>,
        objective: Objective,
        rows: Range<usize>,
        last: bool,
    ) -> Result<()> {
        let Self { model, preferences, options } = self;
        // Before the trained model, since its activations are kept until its backward pass.
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
        let (dtype, rows_of_targets) = (model.head.logits_dtype(), objective.targets.rows);
        let head = model.head.forward(builder, x, dtype, Some(rows_of_targets))?;
        let grad_logits = model.head.loss(builder, head.logits, objective)?;
        let weights = preferences.zip(reference).map(|(preferences, reference)| {
            preferences.pairs(builder, [objective.losses, reference], rows)
        });
        let mut grad = model.head.backward(builder, head, grad_logits, weights.transpose()?)?;
        if last {
            builder.exchange_from(FINAL_NORM, &[])?;
        }
        for (number, (layer, saved)) in model.layers.iter().zip(saved).enumerate().rev() {
            let saved = match saved {
                Saved::All(saved) => *saved,
                Saved::Input(x) => recomputed(builder, layer, x)?,
            };
            grad = layer.backward(builder, saved, grad)?;
            if last {
                // The rows of embedded tokens are exchanged before the last gradients.
                let first = if number == 0 { MLP_NORM } else { ATTENTION_NORM };
                builder.exchange_from(&layer_name(number, first), &[])?;
            }
        }
        model.embedding.backward(builder, tokens, grad.x.f32()?)
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
