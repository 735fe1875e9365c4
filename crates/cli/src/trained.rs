//! The trained weights of a model, from a checkpoint or an adapter.

use std::path::{Path, PathBuf};

use retrograph_finetune::checkpoint::{
    Checkpoint, CheckpointDirectory, CheckpointError, StatePart,
};
use retrograph_finetune::parameters::{Parameter, inventory};
use retrograph_finetune::state::frozen_values;
use retrograph_finetune::{
    Adapter, Error, LoraConfig, Mode, ModelDirectory, OptimizerConfig, Precision, Preset, Source,
    TrainingConfig,
};

use crate::error::CliError;
use crate::screen::{self, fact};

/// A source of trained weights.
pub(crate) enum Trained {
    Nothing,
    Checkpoint(Box<Checkpoint>),
    Adapter(Box<Adapter>),
}

/// A checkpoint directory, and which of its checkpoints to use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chosen<'a> {
    pub(crate) directory: &'a Path,
    /// Whether to use the checkpoint with the lowest held-out loss, instead of the newest.
    pub(crate) best: bool,
}

impl<'a> Chosen<'a> {
    /// Returns the choice of the arguments, if they name a directory.
    pub(crate) fn of(directory: Option<&'a PathBuf>, best: bool) -> Option<Self> {
        directory.map(|directory| Self { directory, best })
    }

    /// Opens and verifies the checkpoint.
    pub(crate) fn open(self) -> Result<Checkpoint, CliError> {
        let directory = CheckpointDirectory::at(self.directory);
        let opened = if self.best { directory.open_best() } else { directory.open_latest() };
        opened.map_err(|error| match error {
            Error::Checkpoint(CheckpointError::Missing { path }) => CliError::NoCheckpoint(path),
            error => error.into(),
        })
    }
}

/// Returns the configuration to use if no checkpoint provides one: without training.
pub(crate) fn untrained(base: Option<&ModelDirectory>, precision: Precision) -> TrainingConfig {
    TrainingConfig {
        model: base.map_or_else(|| Preset::Tiny.model(), |base| *base.config()),
        mode: Mode::Frozen,
        precision,
        batch: 1,
        seq: 1,
        optimizer: OptimizerConfig::new(0.0, 1),
        seed: 0,
    }
}

/// Describes training in `mode` for a model card; `steps` if they are known.
pub(crate) fn training_fact(mode: Mode, steps: Option<usize>) -> String {
    let mode = match mode.lora() {
        Some(LoraConfig { rank, .. }) => format!("LoRA of rank {rank}, merged"),
        None => "all weights".to_owned(),
    };
    match steps {
        Some(steps) => format!("trained: {mode}, {steps} steps"),
        None => format!("trained: {mode}"),
    }
}

impl Trained {
    /// Opens a checkpoint or an adapter. Also returns the configuration of its model: a checkpoint
    /// has its own and must be from a run with the same `base`; an adapter must fit the model of
    /// `config`.
    pub(crate) fn open(
        config: TrainingConfig,
        base: Option<&ModelDirectory>,
        checkpoint: Option<Chosen<'_>>,
        adapter: Option<&Path>,
    ) -> Result<(TrainingConfig, Self), CliError> {
        if let Some(chosen) = checkpoint {
            let checkpoint = chosen.open()?;
            checkpoint.header().require_base(base)?;
            let config = checkpoint.header().config;
            let parameters = inventory(&config.model, config.mode);
            let trained: Vec<&Parameter> = parameters.iter().filter(|one| one.trainable).collect();
            checkpoint.require(&trained)?;
            return Ok((config, Self::Checkpoint(Box::new(checkpoint))));
        }
        let Some(path) = adapter else { return Ok((config, Self::Nothing)) };
        let adapter = Adapter::open(path).map_err(Error::from)?;
        let config = TrainingConfig { mode: Mode::Lora(adapter.lora()), ..config };
        config.validate_sizes()?;
        adapter.require(&inventory(&config.model, config.mode)).map_err(Error::from)?;
        Ok((config, Self::Adapter(Box::new(adapter))))
    }

    /// Describes the training for a model card.
    pub(crate) fn fact(&self) -> Option<String> {
        match self {
            Self::Nothing => None,
            Self::Checkpoint(checkpoint) => {
                let header = checkpoint.header();
                Some(training_fact(header.config.mode, Some(header.next_step as usize)))
            }
            Self::Adapter(adapter) => Some(training_fact(Mode::Lora(adapter.lora()), None)),
        }
    }

    /// Returns the number of steps of the run that are done.
    pub(crate) fn steps(&self) -> u32 {
        match self {
            Self::Checkpoint(checkpoint) => checkpoint.header().next_step,
            Self::Nothing | Self::Adapter(_) => 0,
        }
    }

    /// Prints the checkpoint or the adapter.
    pub(crate) fn show(&self) {
        match self {
            Self::Nothing => {}
            Self::Checkpoint(checkpoint) => fact("checkpoint", checkpoint.path().display()),
            Self::Adapter(adapter) => screen::adapter(adapter),
        }
    }

    /// Returns the source of the weights.
    pub(crate) fn source(&mut self) -> Source<'_> {
        match self {
            Self::Nothing => Source::Seed,
            Self::Checkpoint(checkpoint) => Source::Checkpoint(checkpoint),
            Self::Adapter(adapter) => Source::Adapter(adapter),
        }
    }
}

/// The sources of all weights: trained weights, then the model directory, then the seed.
pub(crate) struct Weights {
    pub(crate) trained: Trained,
    pub(crate) base: Option<ModelDirectory>,
    pub(crate) seed: u64,
}

impl Weights {
    /// Returns the values of a parameter.
    pub(crate) fn of(&mut self, parameter: &Parameter) -> Result<Vec<f32>, Error> {
        match &mut self.trained {
            Trained::Checkpoint(checkpoint) if parameter.trainable => {
                checkpoint.tensor(&StatePart::Parameter.tensor_name(&parameter.name))
            }
            Trained::Adapter(adapter) if parameter.trainable => Ok(adapter.values(parameter)?),
            _ => frozen_values(self.base.as_ref(), self.seed, parameter),
        }
    }
}
