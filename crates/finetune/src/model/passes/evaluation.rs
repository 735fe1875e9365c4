//! The loss of each token, for evaluation.

use retrograph_runtime::{Pass, Slice};

use super::preference::Preferences;
use crate::config::{DpoConfig, TrainingConfig};
use crate::error::Result;
use crate::model::builder::{Builder, ParameterBuffers};
use crate::model::layers::{Model, Objective, PassConfig, RopeTables};
use crate::model::sequences::Sequences;
use crate::model::targets::Targets;
use crate::spec::ModelSpec;

/// The forward pass over a batch, up to the loss of each token.
#[derive(Debug)]
pub struct LossPass {
    /// The operations.
    pub pass: Pass,
    /// Every parameter, in the order of the inventory.
    pub parameters: Vec<ParameterBuffers>,
    /// Control: `batch × seq` tokens.
    pub tokens: Slice<u32>,
    /// Controls: the tokens that follow. Only tokens with a target have logits.
    pub targets: Targets,
    /// Controls: positions and bounds of attention. Batches may be packed.
    pub sequences: Sequences,
    /// External: cosines of the rotary positions.
    pub cos: Slice<f32>,
    /// External: sines of the rotary positions.
    pub sin: Slice<f32>,
    /// External, written: the cross-entropy of each of `batch × seq` targets, in nats; 0 for
    /// ignored targets. With preferences, the loss of each pair of sequences.
    pub losses: Slice<f32>,
}

impl LossPass {
    /// Describes the pass for the model, batch and sequence of `config`; with a `preference`, for
    /// pairs of sequences.
    ///
    /// # Errors
    /// If `config` is not valid, or a kernel does not support its sizes.
    pub fn new(config: &TrainingConfig, preference: Option<DpoConfig>) -> Result<Self> {
        config.validate()?;
        if let Some(preference) = preference {
            preference.validate(config, config.batch)?;
        }
        let mut builder = Builder::new("loss", config.parameters(), None);
        let rows = config.rows();
        let tokens = builder.pass.control_array::<u32>("tokens", rows);
        let targets = Targets::declare(&mut builder.pass, rows, 1);
        let results = if preference.is_some() { config.batch / 2 } else { rows };
        let losses = builder.pass.external::<f32>("losses", results);
        let tables = RopeTables::declare(&mut builder, config.seq, &config.model);
        let (spec, pass_config) =
            (ModelSpec::from(&config.model), PassConfig::without_micro_batches(config));
        let shape = [config.batch, config.seq];
        let sequences = Sequences::declare(&mut builder.pass, &spec, shape, true);
        builder.sequences = sequences.clone();
        let model = Model::new(&builder, &spec, &pass_config, tables);
        let preferences = preference.map(|preference| {
            Preferences::new(&mut builder, &spec, &pass_config, tables, preference, losses)
        });
        let per_token = match preferences {
            None => losses,
            Some(_) => builder.transient("per_token", rows),
        };
        let objective = Objective { targets, losses: per_token };
        let reference =
            preferences.as_ref().map(|one| one.reference(&mut builder, tokens, objective));
        model.losses(&mut builder, tokens, objective)?;
        if let (Some(preferences), Some(reference)) = (&preferences, reference.transpose()?) {
            preferences.pairs(&mut builder, [per_token, reference], 0..rows)?;
        }
        let Builder { pass, parameters, .. } = builder;
        let RopeTables { cos, sin, .. } = tables;
        Ok(Self { pass, parameters, tokens, targets, sequences, cos, sin, losses })
    }
}
