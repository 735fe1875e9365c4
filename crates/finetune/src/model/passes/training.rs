//! The whole training step as one pass.

use retrograph_runtime::{ControlError, Controls, Pass, Slice};

use super::optimizer::{self, Scalars};
use super::options::{Division, StepOptions};
use crate::config::{Mode, TrainingConfig};
use crate::data::Batch;
use crate::error::{Error, Result};
use crate::model::builder::{Builder, ParameterBuffers};
use crate::model::layers::{
    Layer, LayerSaved, Model, Objective, PassConfig, Residual, RopeTables, mean,
};
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
    pub division: Division,
}

/// The controls of a step.
#[derive(Clone, Copy, Debug)]
pub struct StepControls {
    step: Slice<u32>,
    tokens: Slice<u32>,
    targets: Slice<u32>,
    counted: Slice<u32>,
}

impl StepControls {
    /// Sets step number and batch in the controls of the pass.
    ///
    /// # Errors
    /// If the batch has another size than the pass.
    pub fn set(
        &self,
        controls: &mut Controls,
        step: u32,
        batch: &Batch,
    ) -> Result<(), ControlError> {
        controls.set(self.step, step)?;
        controls.set_array(self.tokens, &batch.tokens)?;
        controls.set_array(self.targets, &batch.targets)?;
        controls.set(self.counted, batch.counted())
    }
}

impl StepPass {
    /// Returns the controls of the step.
    pub fn controls(&self) -> StepControls {
        let Self { step, tokens, targets, counted, .. } = *self;
        StepControls { step, tokens, targets, counted }
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
        let division = options.division(config)?;
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
        let micro_batch = PassConfig::training(config, division);
        let spec = ModelSpec::from(&config.model);
        let model = Model::new(&builder, &spec, &micro_batch, tables);
        builder.scope("loss");
        let losses = builder.transient("per_token", config.rows());
        let objective = Objective { targets, counted, losses };
        for (number, start) in (0..config.rows()).step_by(micro_batch.rows()).enumerate() {
            if division.micro_batches > 1 {
                builder.prefix(format!("micro-batch {number}/"));
            }
            let rows = start..start + micro_batch.rows();
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
            cos,
            sin,
            metrics,
            halt,
            options,
            division,
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
    let head = model.head.forward(builder, x)?;
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
mod tests {
    use retrograph_kernels::{Kernel, Problem, ops};
    use retrograph_runtime::OperationKind;

    use super::super::count;
    use super::*;
    use crate::config::{LoraConfig, OptimizerConfig, Preset};

    fn config(mode: Mode) -> TrainingConfig {
        TrainingConfig {
            model: Preset::Tiny.model(),
            mode,
            precision: crate::config::Precision::F32,
            batch: 2,
            seq: 8,
            optimizer: OptimizerConfig::new(1e-3, 10),
            seed: 0,
        }
    }

    fn step(mode: Mode) -> StepPass {
        StepPass::new(&config(mode), StepOptions::default()).unwrap()
    }

    /// Products whose operands are bf16 and copied asynchronously.
    const MULTISTAGE: [&Kernel; 3] =
        [&ops::FPROP_MULTISTAGE, &ops::DGRAD_MULTISTAGE, &ops::WGRAD_MULTISTAGE];

    #[test]
    fn kernels_of_a_large_step_round_their_outputs_to_bf16() {
        let step = |seq| {
            let precision = crate::config::Precision::BF16;
            let mode = Mode::Lora(LoraConfig::new(4, 8.0));
            let config = TrainingConfig { precision, batch: 1, seq, ..config(mode) };
            StepPass::new(&config, StepOptions::default()).unwrap()
        };
        let (large, small) = (step(16), step(15));
        let layers = Preset::Tiny.model().layers;
        // Forward and backward, and the logits.
        assert_eq!(count(&large.pass, &MULTISTAGE), 2 * (7 * layers + 1));
        assert_eq!(count(&small.pass, &MULTISTAGE), 0);
        // Only the LoRA update of v is cast by a launch of its own; with small products, the
        // gradient of attention is, too.
        assert_eq!(count(&large.pass, &[&ops::CAST]), layers);
        assert_eq!(count(&small.pass, &[&ops::CAST]), 2 * layers);
        let inner: Vec<_> = (large.pass.buffers().map(|(_, it)| it.name()))
            .filter(|name| name.contains("swiglu/out"))
            .collect();
        assert_eq!(inner.len(), layers);
        assert!(inner.iter().all(|name| name.ends_with("_bf16")), "{inner:?}");
    }

    #[test]
    fn a_large_full_step_in_bf16_computes_every_product_from_bf16_operands() {
        let precision = crate::config::Precision::BF16;
        let config = TrainingConfig { precision, batch: 1, seq: 16, ..config(Mode::Full) };
        let step = StepPass::new(&config, StepOptions::default()).unwrap();
        let layers = Preset::Tiny.model().layers;
        // Forward, gradient of the input, gradient of the weight.
        assert_eq!(count(&step.pass, &MULTISTAGE), 3 * (7 * layers + 1));
        let is_product = |operation: &&retrograph_runtime::Operation| {
            let OperationKind::Launch(launch) = operation.kind() else { return false };
            matches!(launch.problem, Problem::Gemm(_))
        };
        let products = step.pass.operations().iter().filter(is_product).count();
        assert_eq!(products, count(&step.pass, &MULTISTAGE));
        assert_eq!(count(&step.pass, &[&ops::CAST]), 0);
    }

    #[test]
    fn the_full_step_has_a_weight_gradient_for_each_matrix() {
        let step = step(Mode::Full);
        // Seven projections in each of two layers, and the logits.
        assert_eq!(count(&step.pass, &[&ops::WGRAD]), 2 * 7 + 1);
        assert_eq!(count(&step.pass, &[&ops::COLUMN_SUM]), 2 * 3);
        assert_eq!(count(&step.pass, &[&ops::EMBEDDING_BACKWARD]), 1);
        assert!(step.parameters.iter().all(|held| held.trained.is_some()));
    }

    #[test]
    fn the_lora_step_computes_no_unused_gradient() {
        let step = step(Mode::Lora(LoraConfig { norms: true, ..LoraConfig::new(8, 32.0) }));
        // B of q, B of v, and A of both in each of two layers.
        assert_eq!(
            (count(&step.pass, &[&ops::WGRAD]), count(&step.pass, &[&ops::LORA_GRAD])),
            (0, 2 * 3)
        );
        assert_eq!(count(&step.pass, &[&ops::COLUMN_SUM]), 0);
        assert_eq!(count(&step.pass, &[&ops::EMBEDDING_BACKWARD]), 0);
        assert_eq!(count(&step.pass, &[&ops::RMS_NORM_GAMMA_REDUCE]), 2 * 2);
    }

    #[test]
    fn norms_fuse_the_residual_adds() {
        let options = StepOptions { recompute: true, ..StepOptions::default() };
        for options in [StepOptions::default(), options] {
            let step = StepPass::new(&config(Mode::Full), options).unwrap();
            assert_eq!(count(&step.pass, &[&ops::ADD]), 0);
            // Two in each of two layers, and the one before the logits.
            assert_eq!(count(&step.pass, &[&ops::RMS_NORM_BACKWARD]), 2 * 2 + 1);
        }
    }

    #[test]
    fn adapters_of_one_input_share_launches() {
        let count = |lora: LoraConfig| {
            let step = step(Mode::Lora(lora));
            [&ops::LORA_SHRINK, &ops::LORA_EXPAND, &ops::LORA_GRAD]
                .map(|kernel| count(&step.pass, &[kernel]))
        };
        // One launch for q and v: x·Aᵀ, its gradient, both outputs, and the input gradient.
        assert_eq!(count(LoraConfig::new(8, 32.0)), [2 * 3, 2 * 3, 2 * 3]);
        // With dropout, each has an input of its own.
        let dropout = LoraConfig { dropout: 0.1, ..LoraConfig::new(8, 32.0) };
        assert_eq!(count(dropout), [2 * 4, 2 * 4, 2 * 4]);
        // Larger ranks are computed by GEMM.
        assert_eq!(count(LoraConfig::new(65, 32.0)), [0; 3]);
    }

    #[test]
    fn long_contractions_are_split() {
        let mut config = config(Mode::Full);
        config.model.intermediate = 8192;
        let step = StepPass::new(&config, StepOptions::default()).unwrap();
        // In each of two layers: down in the forward pass; gate, up and the sum over the heads
        // that share a key in the backward pass.
        assert_eq!(count(&step.pass, &[&ops::SPLIT_K_SUM]), 2 * 4);
    }

    #[test]
    fn every_operation_is_named_after_its_part_of_the_model() {
        let step = step(Mode::Full);
        let named = |op: &retrograph_runtime::Operation| op.name().contains('/');
        assert!(step.pass.operations().iter().all(named));
        assert!(step.pass.explain().to_string().contains("layer 1/q backward/"));
    }

    #[test]
    fn independent_operations_have_no_edges() {
        let step = step(Mode::Full);
        let (operations, depth) = (step.pass.operations().len(), step.pass.depth());
        assert!(depth * 4 < operations * 3, "{depth} of {operations} operations in a row");
    }
}
