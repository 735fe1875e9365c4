//! The forward pass alone: the logits of every position of a sequence, without a cache.

use retrograph_runtime::{Pass, Slice};

use super::attention::Rotary;
use super::builder::{Builder, ParameterBuffers};
use super::residual::Residual;
use super::{head, layer};
use crate::config::TrainingConfig;
use crate::error::Result;

/// The forward pass over one window of tokens.
#[derive(Debug)]
pub struct ForwardPass {
    /// The operations.
    pub pass: Pass,
    /// Every parameter, in the order of the inventory.
    pub parameters: Vec<ParameterBuffers>,
    /// Control: `seq` tokens. Later ones do not influence earlier positions.
    pub tokens: Slice<u32>,
    /// External: cosines of the rotary positions.
    pub cos: Slice<f32>,
    /// External: sines of the rotary positions.
    pub sin: Slice<f32>,
    /// External, written: `seq × vocab` logits.
    pub logits: Slice<f32>,
}

impl ForwardPass {
    /// Describes the forward pass of the model of `config` over one sequence of its length.
    ///
    /// # Errors
    /// When `config` is not valid, or a kernel cannot handle its sizes.
    pub fn new(config: &TrainingConfig) -> Result<Self> {
        let config = TrainingConfig { batch: 1, ..*config };
        config.validate()?;
        let mut builder = Builder::new("forward", &config, None);
        let tokens = builder.pass.control_array::<u32>("tokens", config.rows());
        let kept = builder.pass.external::<f32>("logits", config.rows() * config.model.vocab);
        let rotary = Rotary::declare(&mut builder);
        let mut x = Residual::from(head::embed(&mut builder, tokens)?);
        for number in 0..config.model.layers {
            x = layer::forward(&mut builder, number, x, rotary)?.0;
        }
        let (logits, _) = head::logits(&mut builder, x)?;
        builder.pass.copy(logits, kept)?;
        let Builder { pass, parameters, .. } = builder;
        let Rotary { cos, sin } = rotary;
        Ok(Self { pass, parameters, tokens, cos, sin, logits: kept })
    }
}
