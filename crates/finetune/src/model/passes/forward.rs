//! The forward pass: the logits of every position of a sequence, without a KV cache.

use retrograph_runtime::{Pass, Slice};

use crate::config::TrainingConfig;
use crate::error::Result;
use crate::model::builder::{Builder, ParameterBuffers};
use crate::model::layers::{Model, PassConfig, RopeTables};
use crate::model::sequences::Sequences;
use crate::spec::ModelSpec;

/// The forward pass over one window of tokens.
#[derive(Debug)]
pub struct ForwardPass {
    /// The operations.
    pub pass: Pass,
    /// Every parameter, in the order of the inventory.
    pub parameters: Vec<ParameterBuffers>,
    /// Control: `seq` tokens. Later ones do not influence earlier positions.
    pub tokens: Slice<u32>,
    /// Controls: the bounds of sliding windows, to be set if the model has any.
    pub sequences: Sequences,
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
    /// If `config` is not valid, or a kernel does not support its sizes.
    pub fn new(config: &TrainingConfig) -> Result<Self> {
        let config = TrainingConfig { batch: 1, ..*config };
        config.validate()?;
        let mut builder = Builder::new("forward", config.parameters(), None);
        let tokens = builder.pass.control_array::<u32>("tokens", config.rows());
        let output = builder.pass.external::<f32>("logits", config.rows() * config.model.vocab);
        let tables = RopeTables::declare(&mut builder, config.seq, &config.model);
        let (spec, pass_config) =
            (ModelSpec::from(&config.model), PassConfig::without_micro_batches(&config));
        let shape = [1, config.seq];
        let sequences = Sequences::declare(&mut builder.pass, &spec, shape, false);
        builder.sequences = sequences.clone();
        let model = Model::new(&builder, &spec, &pass_config, tables);
        let logits = model.logits(&mut builder, tokens)?;
        let logits = model.head.cap(&mut builder, logits)?;
        builder.pass.copy(logits, output)?;
        let Builder { pass, parameters, .. } = builder;
        let RopeTables { cos, sin, .. } = tables;
        Ok(Self { pass, parameters, tokens, sequences, cos, sin, logits: output })
    }
}
