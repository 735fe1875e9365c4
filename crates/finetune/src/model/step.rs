//! The whole training step as one pass.

use retrograph_runtime::{Pass, Slice};

use super::attention::Rotary;
use super::builder::{Builder, ParameterBuffers};
use super::head::{self, Objective};
use super::layer;
use super::optimizer::{self, Scalars};
use crate::config::TrainingConfig;
use crate::error::Result;

/// Elements of the metrics buffer: the loss and the norm of the gradients before clipping.
pub const METRICS: usize = 2;

/// Who keeps the gradients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GradientHome {
    /// The program, within the step, so that their memory is shared.
    #[default]
    Transient,
    /// The caller, who can read them after the step.
    External,
}

/// The training step and the buffers through which it is bound and fed.
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
}

impl StepPass {
    /// Describes the step of `config`.
    ///
    /// # Errors
    /// When `config` is not valid, or a kernel cannot handle its sizes.
    pub fn new(config: &TrainingConfig, gradients: GradientHome) -> Result<Self> {
        config.validate()?;
        let mut builder = Builder::new("training step", config, Some(gradients));
        let pass = &mut builder.pass;
        let step = pass.control::<u32>("step");
        let tokens = pass.control_array::<u32>("tokens", config.rows());
        let targets = pass.control_array::<u32>("targets", config.rows());
        let counted = pass.control::<u32>("counted");
        let metrics = pass.external::<f32>("metrics", METRICS);
        let halt = pass.external::<u32>("halt", 1);
        let rotary = Rotary::declare(&mut builder);
        let (loss, norm) = (metrics.slice(0..1), metrics.slice(1..2));
        let objective = Objective { targets, counted, loss };
        forward_and_backward(&mut builder, (tokens, objective), rotary)?;
        optimizer::update(&mut builder, Scalars { step, loss, norm, halt })?;
        let Builder { pass, parameters, .. } = builder;
        let Rotary { cos, sin } = rotary;
        Ok(Self { pass, parameters, step, tokens, targets, counted, cos, sin, metrics, halt })
    }

    /// The parameters that are trained, in order.
    pub fn trained(&self) -> impl Iterator<Item = &ParameterBuffers> {
        self.parameters.iter().filter(|held| held.trained.is_some())
    }
}

fn forward_and_backward(
    builder: &mut Builder,
    (tokens, objective): (Slice<u32>, Objective),
    rotary: Rotary,
) -> Result<()> {
    let mut x = head::embed(builder, tokens)?;
    let mut saved = Vec::new();
    for number in 0..builder.config.model.layers {
        let (next, layer) = layer::forward(builder, number, x, rotary)?;
        saved.push(layer);
        x = next;
    }
    let (logits, head_saved) = head::logits(builder, x)?;
    head::loss(builder, logits, objective)?;
    let grad = head::logits_backward(builder, head_saved)?;
    for (number, layer) in saved.into_iter().enumerate().rev() {
        layer::backward(builder, number, (layer, rotary), grad)?;
    }
    head::embed_backward(builder, tokens, grad)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{LoraConfig, Mode, OptimizerConfig, Preset};

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
        StepPass::new(&config(mode), GradientHome::Transient).unwrap()
    }

    fn names(step: &StepPass, part: &str) -> usize {
        step.pass.operations().iter().filter(|op| op.name().contains(part)).count()
    }

    #[test]
    fn the_full_step_has_a_weight_gradient_for_each_matrix() {
        let step = step(Mode::Full);
        // Seven projections in each of two layers, and the logits.
        assert_eq!(names(&step, "gemm_wgrad"), 2 * 7 + 1);
        assert_eq!(names(&step, "column_sum"), 2 * 3);
        assert_eq!(names(&step, "embedding_backward"), 1);
        assert!(step.parameters.iter().all(|held| held.trained.is_some()));
    }

    #[test]
    fn the_lora_step_computes_no_gradient_that_nobody_needs() {
        let step = step(Mode::Lora(LoraConfig { norms: true, ..LoraConfig::new(8, 32.0) }));
        // A and B of q and v in each of two layers.
        assert_eq!(names(&step, "gemm_wgrad"), 2 * 4);
        assert_eq!(names(&step, "column_sum"), 0);
        assert_eq!(names(&step, "embedding_backward"), 0);
        assert_eq!(names(&step, "rms_norm_gamma_reduce"), 2 * 2);
    }

    #[test]
    fn long_contractions_are_cut_into_parts() {
        let mut config = config(Mode::Full);
        config.model.intermediate = 8192;
        let step = StepPass::new(&config, GradientHome::Transient).unwrap();
        // Down in the forward pass, gate and up in the backward pass, in each of two layers.
        assert_eq!(names(&step, "parts_sum"), 2 * 3);
    }

    #[test]
    fn every_operation_says_to_which_part_it_belongs() {
        let step = step(Mode::Full);
        let named = |op: &retrograph_runtime::Operation| op.name().contains('/');
        assert!(step.pass.operations().iter().all(named));
        assert!(step.pass.explain().to_string().contains("layer 1/q backward/"));
    }

    #[test]
    fn independent_work_is_not_ordered() {
        let step = step(Mode::Full);
        let (operations, depth) = (step.pass.operations().len(), step.pass.depth());
        assert!(depth * 4 < operations * 3, "{depth} of {operations} operations in a row");
    }
}
