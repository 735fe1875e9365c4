//! The arguments for optimizer, schedule and batches.

use clap::{Args, ValueEnum};
use retrograph_finetune::{Error, LrSchedule, OptimizerConfig};

use crate::error::CliError;

#[derive(Debug, Args)]
pub(crate) struct TrainingArguments {
    /// Total number of training steps, including the steps before --resume [default: 3 epochs with
    /// --model, else 250; or the end of the resumed schedule].
    #[arg(long)]
    pub(crate) steps: Option<u32>,
    /// Train for this many epochs instead of --steps, above 0; may be a fraction such as 0.5. Each
    /// epoch has its own order.
    #[arg(long, value_name = "N", conflicts_with = "steps", value_parser = parse_epochs)]
    pub(crate) epochs: Option<f64>,
    /// Learning rate after the warm-up [default: cosine].
    #[arg(long, value_enum)]
    schedule: Option<ScheduleArgument>,
    /// Step at which the learning-rate schedule ends, at least 1 [default: the last step].
    #[arg(long, value_name = "STEPS")]
    pub(crate) schedule_steps: Option<u32>,
    /// Steps of linear learning-rate warm-up [default: a tenth of --schedule-steps].
    #[arg(long, value_name = "STEPS")]
    pub(crate) warmup: Option<u32>,
    /// Steps of the decay of --schedule wsd [default: a fifth of --schedule-steps, or the
    /// steps after the warm-up if these are fewer].
    #[arg(long, value_name = "STEPS")]
    decay_steps: Option<u32>,
    /// Sequences per forward and backward pass, at least 1; a step has --grad-accumulation times as
    /// many.
    #[arg(long, default_value_t = 4)]
    pub(crate) batch: usize,
    /// Tokens per sequence, at least 1 [default: with --model, the model's context, at most 4096,
    /// halved until the run fits in memory; else 64].
    #[arg(long)]
    pub(crate) seq: Option<usize>,
    /// Peak learning rate, at least 0 [default: 1e-2 for --preset tiny, else 1e-4].
    #[arg(long)]
    pub(crate) lr: Option<f64>,
    /// Learning rate at the end of the schedule, 0 to --lr [default: a tenth of --lr].
    #[arg(long)]
    pub(crate) min_lr: Option<f64>,
    /// AdamW's decoupled weight decay of matrices, at least 0 [default: 0.01].
    #[arg(long)]
    pub(crate) weight_decay: Option<f32>,
    /// AdamW's beta1, at least 0 and below 1 [default: 0.9].
    #[arg(long, value_name = "DECAY")]
    pub(crate) beta1: Option<f64>,
    /// AdamW's beta2, at least 0 and below 1 [default: 0.999].
    #[arg(long, value_name = "DECAY")]
    pub(crate) beta2: Option<f64>,
    /// AdamW's epsilon, above 0 [default: 1e-8].
    #[arg(long, value_name = "EPSILON")]
    pub(crate) eps: Option<f32>,
    /// Maximum global gradient norm, above 0; larger gradients are scaled down [default: 1].
    #[arg(long)]
    pub(crate) clip: Option<f32>,
    /// Seed of initial weights, batches, dropout and sample text.
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: u64,
}

/// The learning rate after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ScheduleArgument {
    /// Decays to --min-lr along a cosine.
    Cosine,
    /// Decays linearly to --min-lr.
    Linear,
    /// Stays at --lr.
    Constant,
    /// Stays at --lr, then decays to --min-lr along a cosine in --decay-steps.
    Wsd,
}

/// By default, the last 1 / `DECAY` of a `wsd` schedule decays.
const DECAY: u32 = 5;

impl TrainingArguments {
    /// Returns the optimizer of the command line, with `defaults` for the rest.
    pub(crate) fn given(&self, defaults: &OptimizerConfig) -> OptimizerConfig {
        let total_steps = self.schedule_steps.unwrap_or(defaults.total_steps);
        let warmup_steps = self.warmup.unwrap_or(defaults.warmup_steps);
        OptimizerConfig {
            peak_lr: self.lr.unwrap_or(defaults.peak_lr),
            min_lr: self.min_lr.unwrap_or(defaults.min_lr),
            warmup_steps,
            total_steps,
            schedule: self.schedule(defaults.schedule, warmup_steps, total_steps),
            beta1: self.beta1.unwrap_or(defaults.beta1),
            beta2: self.beta2.unwrap_or(defaults.beta2),
            eps: self.eps.unwrap_or(defaults.eps),
            weight_decay: self.weight_decay.unwrap_or(defaults.weight_decay),
            max_norm: self.clip.unwrap_or(defaults.max_norm),
        }
    }

    fn schedule(&self, default: LrSchedule, warmup_steps: u32, total_steps: u32) -> LrSchedule {
        let decay_steps = match default {
            LrSchedule::Wsd { decay_steps } => decay_steps,
            _ => (total_steps / DECAY).min(total_steps.saturating_sub(warmup_steps)),
        };
        let decay_steps = self.decay_steps.unwrap_or(decay_steps);
        match (self.schedule, default) {
            (Some(ScheduleArgument::Cosine), _) => LrSchedule::Cosine,
            (Some(ScheduleArgument::Linear), _) => LrSchedule::Linear,
            (Some(ScheduleArgument::Constant), _) => LrSchedule::Constant,
            (Some(ScheduleArgument::Wsd), _) | (None, LrSchedule::Wsd { .. }) => {
                LrSchedule::Wsd { decay_steps }
            }
            (None, other) => other,
        }
    }

    /// Fails if an option is given that the schedule ignores.
    pub(crate) fn require_schedule(&self) -> Result<(), CliError> {
        let ignored = match self.schedule {
            Some(ScheduleArgument::Wsd) => None,
            Some(ScheduleArgument::Constant) if self.min_lr.is_some() => {
                Some(("--min-lr", "a schedule that decays, such as --schedule linear"))
            }
            _ if self.decay_steps.is_some() => Some(("--decay-steps", "--schedule wsd")),
            _ => None,
        };
        match ignored {
            None => Ok(()),
            Some((option, needed)) => Err(CliError::Ignored { option, needed }),
        }
    }

    /// Returns the number of steps of `batch` sequences, if an epoch has `sequences`. `None` if
    /// neither steps nor epochs are given and there is no `default` number of epochs.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] if the epochs have more steps than can be counted.
    pub(crate) fn steps(
        &self,
        sequences: usize,
        batch: usize,
        default: Option<f64>,
    ) -> Result<Option<u32>, Error> {
        let epochs = |epochs: f64| {
            let per_epoch = sequences as f64 / batch as f64;
            // A rounding error must not add a step.
            let steps = (epochs * per_epoch * (1.0 - f64::EPSILON)).ceil().max(1.0);
            if steps <= f64::from(u32::MAX) {
                return Ok(steps as u32);
            }
            let (value, most) = (format!("{epochs:e}"), f64::from(u32::MAX) / per_epoch);
            let rule = format!("at most {most:.0} for this data, which is {} steps", u32::MAX);
            Err(Error::InvalidConfig { field: "epochs", value, rule })
        };
        match self.steps {
            Some(steps) => Ok(Some(steps)),
            None => self.epochs.or(default).map(epochs).transpose(),
        }
    }
}

/// Default of `--epochs` with a model directory, as in `transformers`.
pub(crate) const DEFAULT_EPOCHS: f64 = 3.0;

fn parse_epochs(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok();
    let number = number.filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "give a number above 0, such as 3 or 0.5".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        training: TrainingArguments,
    }

    fn parsed(line: &[&str]) -> TrainingArguments {
        let line = std::iter::once("program").chain(line.iter().copied());
        Line::parse_from(line).training
    }

    #[test]
    fn epochs_are_rounded_up_to_steps() {
        let steps = |epochs: &str, sequences, batch| {
            parsed(&["--epochs", epochs]).steps(sequences, batch, None).unwrap().unwrap()
        };
        assert_eq!([steps("1", 10, 5), steps("1", 11, 5), steps("0.5", 11, 5)], [2, 3, 2]);
        assert_eq!([steps("3", 7, 7), steps("1e-9", 10, 5)], [3, 1]);
        let many = parsed(&["--epochs", "1e300"]).steps(10, 5, None).unwrap_err().to_string();
        assert!(many.starts_with("epochs is 1e300, but it must be at most 2147483648"), "{many}");
        assert_eq!([steps("0.1", 1000, 10), steps("0.7", 100, 10)], [10, 7]);
        assert_eq!(parsed(&["--steps", "4"]).steps(10, 5, Some(3.0)).unwrap(), Some(4));
        assert_eq!(parsed(&[]).steps(10, 5, None).unwrap(), None);
        assert_eq!(parsed(&[]).steps(10, 5, Some(3.0)).unwrap(), Some(6));
        for wrong in ["0", "-1", "nan", "inf", "many"] {
            assert!(Line::try_parse_from(["program", "--epochs", wrong]).is_err(), "{wrong}");
        }
        assert!(Line::try_parse_from(["program", "--epochs", "1", "--steps", "2"]).is_err());
    }

    #[test]
    fn a_schedule_has_defaults_and_a_resumed_run_keeps_its_own() {
        let new = OptimizerConfig::new(1e-3, 100);
        let schedule = |line: &[&str], defaults| parsed(line).given(defaults).schedule;
        assert_eq!(schedule(&[], &new), LrSchedule::Cosine);
        let wsd = LrSchedule::Wsd { decay_steps: 20 };
        assert_eq!(schedule(&["--schedule", "wsd"], &new), wsd);
        let given = ["--schedule", "wsd", "--decay-steps", "7"];
        assert_eq!(schedule(&given, &new), LrSchedule::Wsd { decay_steps: 7 });
        let saved = OptimizerConfig { schedule: LrSchedule::Wsd { decay_steps: 9 }, ..new };
        for line in [&[][..], &["--schedule", "wsd"]] {
            assert_eq!(schedule(line, &saved), saved.schedule);
        }
        assert_eq!(schedule(&["--schedule", "linear"], &saved), LrSchedule::Linear);
        let late = ["--schedule", "wsd", "--warmup", "95"];
        assert_eq!(schedule(&late, &new), LrSchedule::Wsd { decay_steps: 5 });
    }

    #[test]
    fn options_that_a_schedule_ignores_are_refused() {
        let refused = |line: &[&str]| parsed(line).require_schedule().is_err();
        assert!(refused(&["--decay-steps", "3"]));
        assert!(refused(&["--schedule", "linear", "--decay-steps", "3"]));
        assert!(refused(&["--schedule", "constant", "--min-lr", "0"]));
        assert!(!refused(&["--schedule", "wsd", "--decay-steps", "3", "--min-lr", "0"]));
        assert!(!refused(&["--min-lr", "0"]));
    }
}
