//! The results of a run: first the trained weights, then all other outputs.
//!
//! If an output cannot be written, the others still are written. All failures are reported at the
//! end.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use retrograph_finetune::checkpoint::Checkpoint;
use retrograph_finetune::{
    AdapterOutput, CheckpointError, Device, Ending, Error, Event, HeldOutLoss, ModelOutput, Run,
    RunReport, Trainer,
};

use crate::error::CliError;
use crate::failures::{Failures, warn};
use crate::file::{write, write_json};
use crate::metrics::MetricsFile;
use crate::plot::{self, Curves};
use crate::run_config::{DEFAULT_OUTPUT, RunConfig};
use crate::screen::{self, Steps, fact};
use crate::tensorboard::EventFile;
use crate::trained::{Trained, Weights};
use crate::{Outcome, data, export, interrupt};

/// The outputs of a run.
pub(crate) struct Results<'a> {
    pub(crate) config: &'a RunConfig,
    pub(crate) device: &'a Device,
    pub(crate) metrics: Option<MetricsFile>,
    pub(crate) events: Option<EventFile>,
    pub(crate) failures: Failures,
}

impl Results<'_> {
    /// Profiles and draws the step if requested. Training then starts from an unchanged state.
    pub(crate) fn profile_and_draw(&mut self, trainer: &mut Trainer) -> Result<(), CliError> {
        let output = &self.config.output;
        let mut profile = None;
        if output.profiles() {
            let config = *trainer.config();
            let shape = [config.batch, config.seq];
            let batch = self.config.data.training.batch(shape, config.seed, trainer.next_step())?;
            let measured = trainer.profile(&batch, output.profile_replays)?;
            screen::line(&measured);
            profile = Some(measured);
        }
        if !self.config.writes() {
            return Ok(());
        }
        if let (Some(path), Some(measured)) = (&output.profile, &profile) {
            let written = write_json("the profile", path, measured);
            self.failures.warn(written.inspect(|()| fact("profile", path.display())));
        }
        if let (Some(path), Some(measured)) = (&output.trace, &profile) {
            let written = write("the trace", path, &trainer.step_pass().pass.to_trace(measured));
            self.failures.warn(written.inspect(|()| fact("trace", path.display())));
        }
        if let Some(path) = &output.graph {
            let picture = trainer.step_pass().pass.to_svg(profile.as_ref());
            let written = write("the graph", path, &picture);
            self.failures.warn(written.inspect(|()| fact("graph", path.display())));
        }
        Ok(())
    }

    /// Trains and writes all results.
    pub(crate) fn train_and_write(
        mut self,
        mut run: Run<'_>,
        stop: &AtomicBool,
    ) -> Result<Outcome, CliError> {
        let (ending, times) = self.train(&mut run, stop);
        let ending = match ending {
            Ok(ending) => Some(ending),
            // The trained weights are still there.
            Err(
                error @ (Error::Checkpoint(CheckpointError::Write { .. })
                | Error::StateNotFinite { .. }),
            ) => {
                self.failures.note::<()>(Err(error));
                None
            }
            Err(error) => {
                if let Error::NotBitEqual { .. } = error {
                    // The report says that verification failed.
                    let mut report = RunReport::new(self.device, &run.trainer, &times);
                    report.verified_bitwise = Some(false);
                    self.write_report(&report);
                }
                return Err(self.failures.ended_by(error.into()));
            }
        };
        self.write_weights(&run, ending);
        self.write_figures(&run, &times);
        let complete = matches!(ending, Some(Ending::Done | Ending::EarlyStopped));
        if let (true, Some(sample)) = (complete, &self.config.sample) {
            interrupt::at_once();
            let shown = sample.show(&run.trainer.into_model(), &self.config.tokenizer);
            self.failures.note(shown);
        }
        self.failures.finish()?;
        Ok(if ending == Some(Ending::Stopped) { Outcome::Interrupted } else { Outcome::Done })
    }

    /// Trains. Returns how training ended, and the device time of each step.
    fn train(&mut self, run: &mut Run<'_>, stop: &AtomicBool) -> (Result<Ending, Error>, Vec<f32>) {
        let Self {
            config: RunConfig { training: config, until, .. },
            device,
            metrics,
            events,
            failures,
        } = self;
        let (from, until) = (run.trainer.next_step(), *until);
        let mut times = Vec::new();
        let mut steps = Steps::new(config, from, until, device.simulated);
        if let Some(file) = metrics {
            failures.warn(file.start(from, config, device.simulated));
        }
        let ending = run.train(until, stop, &mut |event| {
            let done = match event {
                Event::Step(found) => {
                    times.push(found.device_ms);
                    let done = metrics.as_mut().map_or(Ok(()), |file| file.write(&found));
                    let simulated = device.simulated;
                    let shown =
                        events.as_mut().map_or(Ok(()), |file| file.step(&found, config, simulated));
                    steps.show(&found);
                    done.and(shown)
                }
                Event::HeldOut(found) => {
                    steps.held_out(&found);
                    let done = metrics.as_mut().map_or(Ok(()), |file| file.held_out(&found));
                    done.and(events.as_mut().map_or(Ok(()), |file| file.held_out(&found)))
                }
                Event::NotSaved(error) => return steps.suspend(|| warn(error)),
                _ => return,
            };
            steps.suspend(|| failures.warn(done));
        });
        steps.finish();
        (ending, times)
    }

    /// Writes adapter and model, and prints their paths.
    fn write_weights(&mut self, run: &Run<'_>, ending: Option<Ending>) {
        if ending == Some(Ending::EarlyStopped) {
            let steps = run.trainer.losses().len();
            fact("stopped", format!("after step {steps}: the held-out loss has no new minimum"));
        }
        let (adapter, model) = (self.config.adapter_output(), export::output(&self.config.output));
        match self.best(run) {
            Err(error) => self.failures.note::<()>(Err(error)).unwrap_or_default(),
            Ok(None) => self.write_last(run, adapter, model),
            Ok(Some(best)) => self.write_best(best, adapter, model),
        }
        if let Some(directory) = &run.checkpoints {
            if let Some(Some(path)) = self.failures.note(directory.latest()) {
                fact("checkpoint", path.display());
            }
        } else if ending == Some(Ending::Stopped) && adapter.is_none() && model.is_none() {
            fact("stopped", "nothing was saved; --checkpoint sets a directory for checkpoints");
        }
    }

    /// Writes adapter and model of the last step.
    fn write_last(
        &mut self,
        run: &Run<'_>,
        adapter: Option<AdapterOutput<'_>>,
        model: Option<ModelOutput<'_>>,
    ) {
        let checkpoint = run.checkpoints.as_ref().and_then(|all| all.latest().ok().flatten());
        let is_saved = checkpoint.is_some();
        if let Some(output) = adapter {
            let write = |folder: &Path| {
                let written = run.trainer.export_adapter(AdapterOutput { folder, ..output });
                written.inspect(|()| fact("adapter", folder.display()))
            };
            self.failures.note(written(output.folder, is_saved, &write));
        }
        let facts = [self.config.fact(run.trainer.losses().len())];
        if let Some(output) = model {
            let output = ModelOutput { facts: &facts, ..output };
            let write =
                |folder: &Path| export::trained(&run.trainer, ModelOutput { folder, ..output });
            self.failures.note(written(output.folder, is_saved, &write));
        }
    }

    /// Opens the best checkpoint, if the run keeps one.
    fn best(&self, run: &Run<'_>) -> Result<Option<Checkpoint>, CliError> {
        let keeps = self.config.held_out.save_best && self.config.writes();
        let (Some(directory), true) = (&run.checkpoints, keeps) else {
            return Ok(None);
        };
        // A run that was interrupted may have measured nothing.
        if directory.best()?.is_none() {
            fact("best", "no checkpoint was kept; the weights are those of the last step");
            return Ok(None);
        }
        let checkpoint = directory.open_best()?;
        let header = checkpoint.header();
        if let Some(HeldOutLoss { loss, steps, .. }) = header.held_out_loss() {
            fact("best", format!("loss {loss:.4} on held-out data after {steps} steps"));
        }
        Ok(Some(checkpoint))
    }

    /// Writes adapter and model of the best checkpoint.
    fn write_best(
        &mut self,
        checkpoint: Checkpoint,
        adapter: Option<AdapterOutput<'_>>,
        model: Option<ModelOutput<'_>>,
    ) {
        let config = &self.config.training;
        let facts = [self.config.fact(checkpoint.header().next_step as usize)];
        let trained = Trained::Checkpoint(Box::new(checkpoint));
        let base = self.config.base.as_ref();
        let mut weights = Weights { trained, base: base.cloned(), seed: config.seed };
        if let Some(output) = adapter {
            let written = export::adapter(output, config, &mut weights);
            self.failures.note(written.inspect(|_| fact("adapter", output.folder.display())));
        }
        if let Some(output) = model {
            let output = ModelOutput { base, facts: &facts, ..output };
            self.failures.note(export::weights(output, config, &mut weights));
        }
    }

    /// Prints and writes losses, memory and the report.
    fn write_figures(&mut self, run: &Run<'_>, times: &[f32]) {
        let Run { trainer, data, .. } = run;
        let losses = trainer.losses();
        if let (Some(first), Some(last)) = (losses.first(), losses.last()) {
            let steps = losses.len();
            fact("loss", format!("{first:.4} at the first step, {last:.4} at step {steps}"));
        }
        if trainer.verified_steps() > 0 {
            let steps = trainer.verified_steps();
            fact("verified", format!("{steps} steps equal the eager step bit for bit"));
        }
        let mut report = RunReport::new(self.device, trainer, times);
        report.data = data::tally(data);
        if let Some(found) = &report.memory {
            screen::memory_use(found, self.device.simulated);
        }
        self.write_report(&report);
        if let Some(path) = &self.config.output.plot {
            let title = &format!("loss on {}", report.device);
            let (unit, held_out) = (data::unit(&self.config.tokenizer), trainer.held_out());
            let drawn = plot::loss_curve(path, &Curves { title, unit, losses, held_out });
            self.failures.note(drawn.inspect(|()| fact("plot", path.display())));
        }
    }

    fn write_report(&mut self, report: &RunReport) {
        let Some(path) = &self.config.output.report else { return };
        let written = write_json("the report", path, report);
        self.failures.note(written.inspect(|()| fact("report", path.display())));
    }
}

/// Writes weights to `folder`. If that fails and no checkpoint has saved them, writes them to
/// another directory, which the error names.
fn written(
    folder: &Path,
    is_saved: bool,
    write: &dyn Fn(&Path) -> Result<(), Error>,
) -> Result<(), CliError> {
    let Err(error) = write(folder) else { return Ok(()) };
    let others = [folder, DEFAULT_OUTPUT.as_ref()].map(free_beside);
    match others.into_iter().find(|path| !is_saved && write(path).is_ok()) {
        Some(path) => Err(CliError::WrittenBeside { error: Box::new(error), path }),
        None => Err(error.into()),
    }
}

/// Returns a path next to `folder` at which there is nothing.
fn free_beside(folder: &Path) -> PathBuf {
    // `.` and `..` have no name.
    let folder = match folder.file_name() {
        Some(_) => folder.to_owned(),
        None => folder.canonicalize().unwrap_or_else(|_| folder.join(DEFAULT_OUTPUT)),
    };
    let name = |number: u32| {
        let mut name = folder.file_name().unwrap_or_default().to_owned();
        name.push(format!("-{number}"));
        folder.with_file_name(name)
    };
    let is_free = |path: &PathBuf| std::fs::symlink_metadata(path).is_err();
    (2..).map(name).find(is_free).expect("some number is free")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_path_is_beside_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        ["a", "a-2"].into_iter().for_each(|name| std::fs::create_dir(at(name)).unwrap());
        for path in [at("a"), at("a/"), at("a/.")] {
            assert_eq!(free_beside(&path), at("a-3"));
        }
        let beside = free_beside(&at("a/..")).to_string_lossy().into_owned();
        assert!(beside.ends_with("-2") && !beside.contains(".."), "{beside}");
    }
}
