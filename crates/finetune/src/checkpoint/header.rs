//! The header of a checkpoint: facts about its run.

use serde::{Deserialize, Serialize};

use super::difference;
use super::error::CheckpointError;
use crate::config::{DpoConfig, OptimizerConfig, TrainingConfig};
use crate::error::Result;
use crate::hub::ModelDirectory;
use crate::model::StepOptions;

/// The key of the JSON header in the safetensors metadata.
pub(super) const METADATA_KEY: &str = "retrograph";
/// The format version that is written, and the only one that can be read.
pub(super) const FORMAT_VERSION: u32 = 1;
/// The placeholder for the digest while the digest is computed.
pub(super) const DIGEST_PLACEHOLDER: &str =
    "0000000000000000000000000000000000000000000000000000000000000000";

/// The run of a checkpoint, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the file format.
    pub format: u32,
    /// Version of the generator of initial weights.
    pub init: u32,
    /// The configuration of the run.
    pub config: TrainingConfig,
    /// The step that comes next, counted from 0: the number of steps done.
    pub next_step: u32,
    /// [`ModelDirectory::digest`](crate::hub::ModelDirectory::digest) of the base model; `None` if
    /// its weights come from the seed.
    #[serde(default)]
    pub base: Option<String>,
    /// Number of devices; a resumed run may have another number.
    #[serde(default = "one")]
    pub ranks: usize,
    /// Sequences of a micro-batch; `None` for the whole batch.
    #[serde(default)]
    pub micro_batch: Option<usize>,
    /// Micro-batches that ran concurrently, by request or by default; 1 for none.
    #[serde(default = "one")]
    pub interleave: usize,
    /// The objective, if the data is pairs.
    #[serde(default)]
    pub preference: Option<DpoConfig>,
    /// The fingerprint of the data.
    pub text: String,
    /// The loss of each step done.
    pub losses: Vec<f32>,
    /// The losses on held-out data.
    #[serde(default)]
    pub held_out: Vec<HeldOutLoss>,
    /// SHA-256 of the file with 64 zeros in place of this digest.
    pub digest: String,
}

impl Header {
    /// Returns the header of a run after `losses.len()` steps.
    pub fn new(config: TrainingConfig, text: &str, losses: Vec<f32>) -> Self {
        Self {
            format: FORMAT_VERSION,
            init: crate::init::INIT_VERSION,
            config: TrainingConfig { precision: config.precision.without_copies(), ..config },
            base: None,
            ranks: one(),
            micro_batch: None,
            interleave: one(),
            preference: None,
            next_step: losses.len() as u32,
            text: text.to_owned(),
            losses,
            held_out: Vec::new(),
            digest: DIGEST_PLACEHOLDER.to_owned(),
        }
    }

    /// Returns the held-out loss of the weights in the checkpoint, if it was measured.
    pub fn held_out_loss(&self) -> Option<HeldOutLoss> {
        self.held_out.iter().copied().rfind(|found| found.steps == self.next_step)
    }

    /// Returns whether both headers belong to one run: same configuration and data, and equal
    /// losses in all steps that both have.
    pub(super) fn is_of_run_of(&self, other: &Self) -> bool {
        // A run may continue on another number of devices, which divide the batch differently.
        let same_ranks = self.ranks == other.ranks;
        let fixed = |header: &Self| Self {
            ranks: one(),
            micro_batch: header.micro_batch.filter(|_| same_ranks),
            interleave: if same_ranks { header.interleave } else { one() },
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

    /// Checks that the checkpoint belongs to a run of `config` on data with the fingerprint `text`.
    ///
    /// The optimizer is not compared: a resumed run continues with the optimizer of the checkpoint.
    ///
    /// # Errors
    /// [`CheckpointError::Mismatch`] with the first field that differs.
    pub fn require(&self, config: &TrainingConfig, text: &str) -> Result<()> {
        let here = &self.config;
        compare("generator of initial weights", &self.init, &crate::init::INIT_VERSION)?;
        compare("model", &here.model, &config.model)?;
        compare("mode", &here.mode, &config.mode)?;
        compare("precision", &here.precision, &config.precision.without_copies())?;
        compare("seed", &here.seed, &config.seed)?;
        compare("batch", &here.batch, &config.batch)?;
        compare("seq", &here.seq, &config.seq)?;
        compare("data (SHA-256)", &self.text.as_str(), &text)
    }

    /// Checks that the frozen weights of the run come from `base`, or from the seed if `base` is
    /// `None`.
    ///
    /// # Errors
    /// [`CheckpointError::Mismatch`] if they do not.
    pub fn require_base(&self, base: Option<&ModelDirectory>) -> Result<()> {
        let digest = base.map(ModelDirectory::digest).transpose()?.map(str::to_owned);
        compare("base model (SHA-256)", &self.base, &digest)
    }

    /// Checks that a step of `config` with the options `asked` has the objective and the
    /// micro-batches of the run. Other micro-batches change the bits of results. So does another
    /// number of devices; the micro-batches are then not compared.
    ///
    /// # Errors
    /// [`CheckpointError::Mismatch`] if they differ,
    /// [`InvalidConfig`](crate::Error::InvalidConfig) if they do not divide the batch.
    pub fn require_micro_batches(
        &self,
        asked: &StepOptions,
        config: &TrainingConfig,
    ) -> Result<()> {
        compare("preference", &self.preference, &asked.preference)?;
        if self.ranks != asked.ranks.world_size {
            return Ok(());
        }
        compare("micro-batch", &self.micro_batch, &asked.micro_batch)?;
        compare("interleave", &self.interleave, &asked.micro_batching(config)?.interleaved())
    }

    /// Checks that the optimizer of the checkpoint is `asked`.
    ///
    /// # Errors
    /// [`CheckpointError::Mismatch`] if it is not.
    pub fn require_optimizer(&self, asked: &OptimizerConfig) -> Result<()> {
        compare("optimizer", &self.config.optimizer, asked)
    }
}

/// The default number of concurrent micro-batches, for headers without that field.
fn one() -> usize {
    1
}

fn compare<T: PartialEq + Serialize>(what: &'static str, saved: &T, asked: &T) -> Result<()> {
    if saved == asked {
        return Ok(());
    }
    let (saved, asked) = difference::of(saved, asked);
    Err(CheckpointError::Mismatch { what, saved, asked }.into())
}

/// The loss on held-out data during a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldOutLoss {
    /// Completed steps.
    pub steps: u32,
    /// The mean cross-entropy of the predicted tokens, in nats. In JSON, NaN and infinity are
    /// written as `null`, which is read as NaN.
    #[serde(deserialize_with = "nan_of_null")]
    pub loss: f32,
    /// Predicted tokens.
    pub tokens: usize,
}

impl HeldOutLoss {
    /// Returns the first of the lowest losses; `None` if there is none, or none is a number.
    pub fn best(losses: &[Self]) -> Option<Self> {
        let numbers = losses.iter().copied().filter(|found| !found.loss.is_nan());
        numbers.min_by(|left, right| left.loss.total_cmp(&right.loss))
    }
}

fn nan_of_null<'de, D: serde::Deserializer<'de>>(value: D) -> Result<f32, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or(f32::NAN))
}

/// Returns the offset of `digest`, after its key, in the head of a file.
pub(super) fn find_digest(head: &[u8], digest: &str) -> Option<usize> {
    // The header is JSON inside a JSON string, so its quotes are escaped.
    let key = format!(r#"\"digest\":\"{digest}"#);
    let found = head.windows(key.len()).position(|window| window == key.as_bytes())?;
    Some(found + key.len() - digest.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{F16Copies, LoraConfig, Mode, Precision, Preset};

    /// A run removes its older checkpoints, which it recognizes by their headers.
    #[test]
    fn f16_copies_do_not_identify_a_run() {
        for f16_copies in [F16Copies::None, F16Copies::OneTerm, F16Copies::TwoTerms] {
            let config = TrainingConfig {
                model: Preset::Tiny.model(),
                mode: Mode::Lora(LoraConfig::new(4, 8.0)),
                precision: Precision { f16_copies, ..Precision::F32 },
                batch: 1,
                seq: 8,
                optimizer: OptimizerConfig::new(1e-3, 10),
                seed: 0,
            };
            let header = Header::new(config, "text", vec![1.0]);
            let json = serde_json::to_string(&header).unwrap();
            let read: Header = serde_json::from_str(&json).unwrap();
            assert!(header.is_of_run_of(&read), "{f16_copies:?}");
            read.require(&config, "text").unwrap();
        }
    }
}
