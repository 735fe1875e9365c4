//! The loss of each token, for measuring a model on a text that it was not trained on.

use retrograph_kernels::ops::{CrossEntropy, GradLogits};
use retrograph_runtime::{Pass, Slice};

use super::attention::Rotary;
use super::builder::{Builder, ParameterBuffers};
use super::residual::Residual;
use super::{head, layer};
use crate::config::TrainingConfig;
use crate::error::Result;

/// The forward pass over a batch, up to the loss of each token.
#[derive(Debug)]
pub struct LossPass {
    /// The operations.
    pub pass: Pass,
    /// Every parameter, in the order of the inventory.
    pub parameters: Vec<ParameterBuffers>,
    /// Control: `batch × seq` tokens.
    pub tokens: Slice<u32>,
    /// Control: the tokens that follow, or
    /// [`IGNORED_TARGET`](retrograph_kernels::ops::IGNORED_TARGET).
    pub targets: Slice<u32>,
    /// Control: how many targets are not ignored.
    pub counted: Slice<u32>,
    /// External: cosines of the rotary positions.
    pub cos: Slice<f32>,
    /// External: sines of the rotary positions.
    pub sin: Slice<f32>,
    /// External, written: the cross-entropy of each of `batch × seq` targets, in nats; 0 where
    /// it is ignored.
    pub losses: Slice<f32>,
}

impl LossPass {
    /// Describes the pass for the model, batch and sequence of `config`.
    ///
    /// # Errors
    /// When `config` is not valid, or a kernel cannot handle its sizes.
    pub fn new(config: &TrainingConfig) -> Result<Self> {
        config.validate()?;
        let mut builder = Builder::new("loss", config, None);
        let rows = config.rows();
        let tokens = builder.pass.control_array::<u32>("tokens", rows);
        let targets = builder.pass.control_array::<u32>("targets", rows);
        let counted = builder.pass.control::<u32>("counted");
        let losses = builder.pass.external::<f32>("losses", rows);
        let rotary = Rotary::declare(&mut builder);
        let mut x = Residual::from(head::embed(&mut builder, tokens)?);
        for number in 0..config.model.layers {
            x = layer::forward(&mut builder, number, x, rotary)?.0;
        }
        let (logits, _) = head::logits(&mut builder, x)?;
        builder.scope("loss");
        let vocab = config.model.vocab;
        let grad_logits = GradLogits::None;
        let loss = CrossEntropy { logits, targets, losses, grad_logits, counted, rows, vocab };
        builder.launch(loss.launch())?;
        let Builder { pass, parameters, .. } = builder;
        let Rotary { cos, sin } = rotary;
        Ok(Self { pass, parameters, tokens, targets, counted, cos, sin, losses })
    }
}
