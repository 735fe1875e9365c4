//! `--metrics`: one line of JSON for each step, written when the step ends, and for each held-out
//! loss.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use retrograph_finetune::{HeldOutLoss, StepMetrics, TrainingConfig};
use serde::Serialize;
use serde_json::Value;

use crate::error::CliError;

/// A metrics file, locked so that no other run writes to it.
pub(crate) struct MetricsFile {
    file: File,
    path: PathBuf,
    /// The configuration, and whether the device is simulated.
    run: Option<(TrainingConfig, bool)>,
    /// Whether the run trains on pairs.
    pairs: bool,
    failed: bool,
}

impl MetricsFile {
    /// Opens and locks `path`. Its content is kept until [`MetricsFile::start`].
    pub(crate) fn open(path: &Path) -> Result<Self, CliError> {
        let failed = |error: std::io::Error| CliError::write("the metrics", path, error);
        // A pipe cannot be read back.
        let regular = std::fs::metadata(path).map_or(true, |found| found.is_file());
        let mut options = OpenOptions::new();
        let open = options.read(regular).write(true).create(true).truncate(false).open(path);
        let file = open.map_err(failed)?;
        if regular && matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            let reason = "another run writes to it; wait until it ends, or give another file";
            return Err(CliError::write("the metrics", path, reason));
        }
        Ok(Self { file, path: path.to_owned(), run: None, pairs: false, failed: false })
    }

    /// Starts with step `from`. Keeps the lines of earlier steps, for a resumed run; removes later
    /// lines, which are of steps after the last checkpoint.
    pub(crate) fn start(
        &mut self,
        from: u32,
        config: &TrainingConfig,
        simulated: bool,
    ) -> Result<(), CliError> {
        self.run = Some((*config, simulated));
        let kept = match self.file.metadata() {
            Ok(found) if found.is_file() => keep_before(&mut self.file, from),
            other => other.map(|_| ()),
        };
        self.checked(kept)
    }

    /// Writes the line of a step.
    pub(crate) fn write(&mut self, metrics: &StepMetrics) -> Result<(), CliError> {
        let Some((config, simulated)) = self.run else { return Ok(()) };
        self.pairs = metrics.preference.is_some();
        self.put(&line(metrics, &config, simulated))
    }

    /// Writes the line of a held-out loss.
    pub(crate) fn held_out(&mut self, found: &HeldOutLoss) -> Result<(), CliError> {
        let HeldOutLoss { steps, loss, tokens } = *found;
        let (tokens, pairs) = if self.pairs { (None, Some(tokens)) } else { (Some(tokens), None) };
        let step = steps.saturating_sub(1);
        self.put(&HeldOutLine { step, held_out_loss: loss, tokens, pairs })
    }

    /// Writes a line. Writes nothing more after a failure, so that the file has no gap.
    fn put(&mut self, line: &impl Serialize) -> Result<(), CliError> {
        if self.failed {
            return Ok(());
        }
        let text = serde_json::to_string(line).map_err(std::io::Error::from);
        let written = text.and_then(|text| writeln!(self.file, "{text}"));
        self.checked(written)
    }

    fn checked(&mut self, done: std::io::Result<()>) -> Result<(), CliError> {
        self.failed |= done.is_err();
        done.map_err(|error| CliError::write("the metrics", &self.path, error))
    }
}

/// Truncates the file after the last line of a step before `from`.
fn keep_before(file: &mut File, from: u32) -> std::io::Result<()> {
    use std::io::{Read, Seek, SeekFrom};
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let earlier = |line: &&str| {
        let parsed: Result<Value, _> = serde_json::from_str(line);
        // A killed run can leave an incomplete line. It and everything after it are removed.
        let step = parsed.ok().and_then(|line| line["step"].as_u64());
        line.ends_with('\n') && step.is_some_and(|step| step < u64::from(from))
    };
    let kept: usize = text.split_inclusive('\n').take_while(earlier).map(str::len).sum();
    file.set_len(kept as u64)?;
    file.seek(SeekFrom::Start(kept as u64))?;
    Ok(())
}

/// The metrics of a step. Times of the simulated driver are meaningless and are left out.
#[derive(Serialize)]
struct Line {
    step: u32,
    loss: f32,
    grad_norm: f32,
    lr: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    clock: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_ms: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens_per_s: Option<f64>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    preference: Option<Rewards>,
}

/// The rewards of a step with preferences.
#[derive(Serialize)]
struct Rewards {
    reward_chosen: f32,
    reward_rejected: f32,
    reward_margin: f32,
    reward_accuracy: f32,
}

/// A held-out loss.
#[derive(Serialize)]
struct HeldOutLine {
    step: u32,
    held_out_loss: f32,
    /// Predicted tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<usize>,
    /// Pairs, if the run trains on pairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pairs: Option<usize>,
}

fn line(metrics: &StepMetrics, config: &TrainingConfig, simulated: bool) -> Line {
    let StepMetrics { step, loss, grad_norm, tokens, device_ms, preference } = *metrics;
    let device_ms = (!simulated && device_ms > 0.0).then_some(device_ms);
    Line {
        step,
        loss,
        grad_norm,
        lr: config.optimizer.learning_rate(step),
        clock: simulated.then_some("SIMULATED"),
        device_ms,
        tokens_per_s: device_ms.map(|ms| tokens as f64 * 1e3 / f64::from(ms)),
        preference: preference.map(|found| Rewards {
            reward_chosen: found.chosen,
            reward_rejected: found.rejected,
            reward_margin: found.margin(),
            reward_accuracy: found.accuracy,
        }),
    }
}

#[cfg(test)]
mod tests {
    use retrograph_finetune::{DpoMetrics, Mode, OptimizerConfig, Precision, Preset};

    use super::*;

    fn config() -> TrainingConfig {
        let (model, optimizer) = (Preset::Tiny.model(), OptimizerConfig::new(1e-2, 10));
        let (mode, precision) = (Mode::Full, Precision::F32);
        TrainingConfig { model, mode, precision, batch: 2, seq: 8, optimizer, seed: 0 }
    }

    fn metrics(step: u32) -> StepMetrics {
        let (loss, grad_norm, tokens, device_ms) = (1.5, 0.25, 16, 4.0);
        StepMetrics { step, loss, grad_norm, tokens, device_ms, preference: None }
    }

    #[test]
    fn only_a_real_clock_gives_tokens_per_second() {
        let real = line(&metrics(3), &config(), false);
        assert_eq!(
            (real.tokens_per_s, real.device_ms, real.clock),
            (Some(4000.0), Some(4.0), None)
        );
        assert_eq!((real.step, real.loss, real.grad_norm), (3, 1.5, 0.25));
        assert_eq!(real.lr, config().optimizer.learning_rate(3));
        let simulated = serde_json::to_value(line(&metrics(3), &config(), true)).unwrap();
        assert!(simulated["tokens_per_s"].is_null() && simulated["device_ms"].is_null());
        assert_eq!(simulated["clock"], "SIMULATED");
    }

    #[test]
    fn a_resumed_run_continues_after_its_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let write = |from: u32, until: u32| {
            let mut file = MetricsFile::open(&path).unwrap();
            file.start(from, &config(), true).unwrap();
            (from..until).for_each(|step| file.write(&metrics(step)).unwrap());
        };
        let steps = || -> Vec<u64> {
            let text = std::fs::read_to_string(&path).unwrap();
            let step = |line| serde_json::from_str::<Value>(line).unwrap()["step"].as_u64();
            text.lines().map(|line| step(line).unwrap()).collect()
        };
        write(0, 5);
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.push_str("{\"step\": 5, \"lo");
        std::fs::write(&path, text).unwrap();
        write(3, 6);
        assert_eq!(steps(), [0, 1, 2, 3, 4, 5]);
        write(0, 1);
        assert_eq!(steps(), [0]);
    }

    #[test]
    fn held_out_pairs_are_not_called_tokens() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let found = HeldOutLoss { steps: 4, loss: 0.5, tokens: 7 };
        for (preference, expected) in [
            (None, r#"{"step":3,"held_out_loss":0.5,"tokens":7}"#),
            (
                Some(DpoMetrics { chosen: 1.0, rejected: 0.0, accuracy: 1.0 }),
                r#"{"step":3,"held_out_loss":0.5,"pairs":7}"#,
            ),
        ] {
            let mut file = MetricsFile::open(&path).unwrap();
            file.start(0, &config(), true).unwrap();
            file.write(&StepMetrics { preference, ..metrics(3) }).unwrap();
            file.held_out(&found).unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            assert_eq!(text.lines().last(), Some(expected));
        }
    }

    #[test]
    fn a_file_has_one_writer_and_keeps_its_lines_until_training_starts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        std::fs::write(&path, "{\"step\":0}\n").unwrap();
        let first = MetricsFile::open(&path).unwrap();
        let error = MetricsFile::open(&path).err().unwrap().to_string();
        assert!(error.contains("another run"), "{error}");
        drop(first);
        drop(MetricsFile::open(&path).unwrap());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"step\":0}\n");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_reported_once() {
        let mut file = MetricsFile::open(Path::new("/dev/full")).unwrap();
        file.start(0, &config(), true).unwrap();
        let error = file.write(&metrics(0)).unwrap_err().to_string();
        assert!(error.contains("the metrics cannot be written to `/dev/full`"), "{error}");
        file.write(&metrics(1)).unwrap();
    }
}
