//! Progress of the steps of a run.

use std::time::Instant;

use indicatif::ProgressBar;
use retrograph_finetune::{HeldOutLoss, StepMetrics, TrainingConfig};

use super::{bars, fact, milliseconds, style};

/// Steps between printed lines if there is no progress bar.
const LINES: u32 = 10;

/// Shows the steps.
pub(crate) struct Steps {
    bar: ProgressBar,
    config: TrainingConfig,
    until: u32,
    simulated: bool,
    last: Instant,
}

impl Steps {
    pub(crate) fn new(config: &TrainingConfig, from: u32, until: u32, simulated: bool) -> Self {
        let bar = ProgressBar::with_draw_target(Some(u64::from(until)), bars());
        bar.set_style(style("{prefix:<11} {bar:30} {pos}/{len} {msg} {eta}"));
        bar.set_prefix("train");
        bar.set_position(u64::from(from));
        Self { bar, config: *config, until, simulated, last: Instant::now() }
    }

    pub(crate) fn show(&mut self, metrics: &StepMetrics) {
        let wall = self.last.elapsed();
        self.last = Instant::now();
        // Simulated device times are meaningless, so this shows wall time.
        let time = if self.simulated {
            format!("{} simulated", milliseconds(wall))
        } else {
            format!("{:.2} ms", metrics.device_ms)
        };
        let lr = self.config.optimizer.learning_rate(metrics.step);
        let done = metrics.step + 1;
        let rewards = metrics.preference.map(|found| {
            let percent = 100.0 * found.accuracy;
            format!("  margin {:.4}, {percent:.0} % correct", found.margin())
        });
        let rewards = rewards.unwrap_or_default();
        let text = format!("loss {:.4}{rewards}  lr {lr:.2e}  {time}", metrics.loss);
        self.bar.set_position(u64::from(done));
        let every = self.until.div_ceil(LINES).max(1);
        if self.bar.is_hidden() && (done.is_multiple_of(every) || done == 1 || done == self.until) {
            fact("train", format!("step {done:>5} of {}  {text}", self.until));
        }
        self.bar.set_message(text);
    }

    /// Shows the held-out loss.
    pub(crate) fn held_out(&self, found: &HeldOutLoss) {
        let HeldOutLoss { steps, loss, .. } = found;
        self.bar.suspend(|| fact("held out", format!("loss {loss:.4} after {steps} steps")));
    }

    /// Hides the progress bar while `print` runs.
    pub(crate) fn suspend(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
