//! `--metrics`: one line of JSON for each step, written as the step ends, and one for each time
//! that what is held out is measured.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use retrograph_finetune::{HeldOutLoss, StepMetrics, TrainingConfig};
use serde::Serialize;
use serde_json::Value;

use crate::error::CliError;

/// A file of metrics.
pub(crate) struct MetricsFile {
    file: File,
    path: PathBuf,
    config: TrainingConfig,
    simulated: bool,
    failed: Option<std::io::Error>,
}

impl MetricsFile {
    /// Opens `path` for the steps from `from`. The lines of earlier steps stay, as a resumed run
    /// continues them; later ones are of steps that no checkpoint kept.
    pub(crate) fn open(
        path: &Path,
        from: u32,
        (config, simulated): (&TrainingConfig, bool),
    ) -> Result<Self, CliError> {
        let failed = |error: std::io::Error| CliError::write("the metrics", path, error);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(from == 0)
            .open(path)
            .map_err(failed)?;
        if from > 0 {
            keep_before(&mut file, from).map_err(failed)?;
        }
        let (path, config) = (path.to_owned(), *config);
        Ok(Self { file, path, config, simulated, failed: None })
    }

    /// Writes the line of a step.
    pub(crate) fn write(&mut self, metrics: &StepMetrics) {
        let line = line(metrics, &self.config, self.simulated);
        self.put(&line);
    }

    /// Writes the line of what is held out, as of the last step that was done.
    pub(crate) fn held_out(&mut self, found: &HeldOutLoss) {
        let HeldOutLoss { steps, loss, tokens } = *found;
        let line = HeldOutLine { step: steps.saturating_sub(1), held_out_loss: loss, tokens };
        self.put(&line);
    }

    /// What fails is told in the end, for a full disk is no reason to stop training.
    fn put(&mut self, line: &impl Serialize) {
        if self.failed.is_none() {
            let text = serde_json::to_string(line).map_err(std::io::Error::from);
            let written = text.and_then(|text| writeln!(self.file, "{text}"));
            self.failed = written.err();
        }
    }

    /// Says whether all lines were written.
    pub(crate) fn finish(self) -> Result<(), CliError> {
        match self.failed {
            None => Ok(()),
            Some(error) => Err(CliError::write("the metrics", &self.path, error)),
        }
    }
}

/// Cuts the file behind the last line of a step before `from`, and goes there.
fn keep_before(file: &mut File, from: u32) -> std::io::Result<()> {
    use std::io::{Read, Seek, SeekFrom};
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let earlier = |line: &&str| {
        let parsed: Result<Value, _> = serde_json::from_str(line);
        // A line that a kill cut short does not count, and neither does what follows it.
        let step = parsed.ok().and_then(|line| line["step"].as_u64());
        line.ends_with('\n') && step.is_some_and(|step| step < u64::from(from))
    };
    let kept: usize = text.split_inclusive('\n').take_while(earlier).map(str::len).sum();
    file.set_len(kept as u64)?;
    file.seek(SeekFrom::Start(kept as u64))?;
    Ok(())
}

/// What a step computed. Times of the simulated driver say nothing about hardware, so that they are
/// not written.
#[derive(Serialize)]
struct Line {
    step: u32,
    loss: f32,
    norm: f32,
    lr: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    clock: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_ms: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens_per_s: Option<f64>,
}

/// What is held out, measured after a step.
#[derive(Serialize)]
struct HeldOutLine {
    step: u32,
    held_out_loss: f32,
    tokens: usize,
}

fn line(metrics: &StepMetrics, config: &TrainingConfig, simulated: bool) -> Line {
    let StepMetrics { step, loss, norm, tokens, device_ms } = *metrics;
    let device_ms = (!simulated && device_ms > 0.0).then_some(device_ms);
    Line {
        step,
        loss,
        norm,
        lr: config.optimizer.learning_rate(step),
        clock: simulated.then_some("SIMULATED"),
        device_ms,
        tokens_per_s: device_ms.map(|ms| tokens as f64 * 1e3 / f64::from(ms)),
    }
}

#[cfg(test)]
mod tests {
    use retrograph_finetune::{Mode, OptimizerConfig, Precision, Preset};

    use super::*;

    fn config() -> TrainingConfig {
        let (model, optimizer) = (Preset::Tiny.model(), OptimizerConfig::new(1e-2, 10));
        let (mode, precision) = (Mode::Full, Precision::F32);
        TrainingConfig { model, mode, precision, batch: 2, seq: 8, optimizer, seed: 0 }
    }

    fn metrics(step: u32) -> StepMetrics {
        StepMetrics { step, loss: 1.5, norm: 0.25, tokens: 16, device_ms: 4.0 }
    }

    #[test]
    fn only_a_real_clock_gives_tokens_per_second() {
        let real = line(&metrics(3), &config(), false);
        assert_eq!(
            (real.tokens_per_s, real.device_ms, real.clock),
            (Some(4000.0), Some(4.0), None)
        );
        assert_eq!((real.step, real.loss, real.norm), (3, 1.5, 0.25));
        assert_eq!(real.lr, config().optimizer.learning_rate(3));
        let simulated = serde_json::to_value(line(&metrics(3), &config(), true)).unwrap();
        assert!(simulated["tokens_per_s"].is_null() && simulated["device_ms"].is_null());
        assert_eq!(simulated["clock"], "SIMULATED");
    }

    #[test]
    fn a_resumed_run_continues_behind_its_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let write = |from: u32, until: u32| {
            let mut file = MetricsFile::open(&path, from, (&config(), true)).unwrap();
            (from..until).for_each(|step| file.write(&metrics(step)));
            file.finish().unwrap();
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
}
