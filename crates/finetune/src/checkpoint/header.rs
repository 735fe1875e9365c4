//! The header of a checkpoint: what it says about its run.

use serde::{Deserialize, Serialize};

use super::difference;
use crate::config::{OptimizerConfig, TrainingConfig};
use crate::error::{Error, Result};
use crate::hub::ModelDirectory;
use crate::model::StepOptions;

/// The key of the JSON header in the safetensors metadata.
pub(super) const METADATA_KEY: &str = "retrograph";
/// The version of the format that is written, and the only one that is read.
pub(super) const FORMAT_VERSION: u32 = 1;
/// What stands in place of the digest while the digest is computed.
pub(super) const DIGEST_PLACEHOLDER: &str =
    "0000000000000000000000000000000000000000000000000000000000000000";

/// What a checkpoint says about the run that it belongs to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the format.
    pub format: u32,
    /// Version of the generator of initial weights.
    pub init: u32,
    /// The configuration of the run.
    pub config: TrainingConfig,
    /// The step that comes next, counted from 0: the number of steps done.
    pub next_step: u32,
    /// [`ModelDirectory::digest`](crate::hub::ModelDirectory::digest) of the model whose frozen
    /// weights the run uses; `None` where the seed gives them.
    #[serde(default)]
    pub base: Option<String>,
    /// Sequences that are computed together, where that is not the whole batch.
    #[serde(default)]
    pub micro_batch: Option<usize>,
    /// Micro-batches that were computed side by side, asked for or not; 1 where none were.
    #[serde(default = "whole")]
    pub interleave: usize,
    /// The fingerprint of the data.
    pub text: String,
    /// The loss of each step done.
    pub losses: Vec<f32>,
    /// What was measured on held-out data.
    #[serde(default)]
    pub held_out: Vec<HeldOutLoss>,
    /// SHA-256 of the file with 64 zeros in place of this.
    pub digest: String,
}

impl Header {
    /// The header of a run after `losses.len()` steps.
    pub fn new(config: TrainingConfig, text: &str, losses: Vec<f32>) -> Self {
        Self {
            format: FORMAT_VERSION,
            init: crate::init::INIT_VERSION,
            config,
            base: None,
            micro_batch: None,
            interleave: whole(),
            next_step: losses.len() as u32,
            text: text.to_owned(),
            losses,
            held_out: Vec::new(),
            digest: DIGEST_PLACEHOLDER.to_owned(),
        }
    }

    /// Whether both headers are of one run: same configuration and data, and equal losses as far as
    /// both have them.
    pub(super) fn is_of_run_of(&self, other: &Self) -> bool {
        let fixed = |header: &Self| Self {
            next_step: 0,
            losses: Vec::new(),
            held_out: Vec::new(),
            digest: String::new(),
            ..header.clone()
        };
        let losses = self.losses.iter().zip(&other.losses);
        let equal = |(left, right): (&f32, &f32)| left.to_bits() == right.to_bits();
        fixed(self) == fixed(other) && losses.into_iter().all(equal)
    }

    /// Checks that the checkpoint belongs to a run of `config` over data with the fingerprint
    /// `text`.
    ///
    /// The optimizer is not compared: a resumed run continues with that of the checkpoint.
    ///
    /// # Errors
    /// [`Error::CheckpointMismatch`] with the first thing that differs.
    pub fn require(&self, config: &TrainingConfig, text: &str) -> Result<()> {
        let here = &self.config;
        compare("generator of initial weights", &self.init, &crate::init::INIT_VERSION)?;
        compare("model", &here.model, &config.model)?;
        compare("mode", &here.mode, &config.mode)?;
        compare("precision", &here.precision, &config.precision)?;
        compare("seed", &here.seed, &config.seed)?;
        compare("batch", &here.batch, &config.batch)?;
        compare("seq", &here.seq, &config.seq)?;
        compare("data (SHA-256)", &self.text.as_str(), &text)
    }

    /// Checks that the frozen weights are those of the run: of `base`, or of the seed.
    ///
    /// # Errors
    /// [`Error::CheckpointMismatch`] when they are not.
    pub fn require_base(&self, base: Option<&ModelDirectory>) -> Result<()> {
        let digest = base.map(ModelDirectory::digest).transpose()?.map(str::to_owned);
        compare("base model (SHA-256)", &self.base, &digest)
    }

    /// Checks that a step of `config` that is described as `asked` divides batches as those of the
    /// run were: otherwise the bits would differ.
    ///
    /// # Errors
    /// [`Error::CheckpointMismatch`] when it does not, [`Error::InvalidConfig`] when it cannot
    /// divide them so.
    pub fn require_division(&self, asked: &StepOptions, config: &TrainingConfig) -> Result<()> {
        compare("micro-batch", &self.micro_batch, &asked.micro_batch)?;
        compare("interleave", &self.interleave, &asked.division(config)?.interleaved())
    }

    /// Checks that the optimizer of the checkpoint is `asked`.
    ///
    /// # Errors
    /// [`Error::CheckpointMismatch`] when it is not.
    pub fn require_optimizer(&self, asked: &OptimizerConfig) -> Result<()> {
        compare("optimizer", &self.config.optimizer, asked)
    }
}

/// The parts of a batch that is not divided.
fn whole() -> usize {
    1
}

fn compare<T: PartialEq + Serialize>(what: &'static str, saved: &T, asked: &T) -> Result<()> {
    if saved == asked {
        return Ok(());
    }
    let (saved, asked) = difference::of(saved, asked);
    Err(Error::CheckpointMismatch { what, saved, asked })
}

/// The loss on held-out data during a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldOutLoss {
    /// Steps that were done.
    pub steps: u32,
    /// The mean cross-entropy of the tokens that were predicted, in nats. JSON has no NaN and no
    /// infinity; both are written as `null`, and `null` is read as NaN.
    #[serde(deserialize_with = "nan_of_null")]
    pub loss: f32,
    /// How many tokens were predicted.
    pub tokens: usize,
}

fn nan_of_null<'de, D: serde::Deserializer<'de>>(value: D) -> Result<f32, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or(f32::NAN))
}

/// Where `digest` stands in the head of a file, behind its key.
pub(super) fn find_digest(head: &[u8], digest: &str) -> Option<usize> {
    // The header is JSON inside a JSON string, so its quotes are escaped.
    let key = format!(r#"\"digest\":\"{digest}"#);
    let found = head.windows(key.len()).position(|window| window == key.as_bytes())?;
    Some(found + key.len() - digest.len())
}
