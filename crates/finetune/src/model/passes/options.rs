//! Options of a training step, and its micro-batches.

use std::fmt;

use retrograph_runtime::Ranks;

use crate::config::{PreferenceConfig, TrainingConfig, require_rank};
use crate::error::{Error, Result};

/// The owner of the gradients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GradientHome {
    /// The program: gradients exist within a step, and their memory is shared.
    #[default]
    Transient,
    /// The caller, which can read them after the step.
    External,
}

/// Options of a training step. Only `preference` changes the loss or the gradients beyond rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepOptions {
    /// Who keeps the gradients.
    pub gradients: GradientHome,
    /// Sequences of a micro-batch, a divisor of the batch. Micro-batches run one after another, so
    /// that the step takes less memory; their gradients are added.
    pub micro_batch: Option<usize>,
    /// Micro-batches that a graph runs concurrently, a divisor of the batch; `None` or 1 for none.
    /// See [`MicroBatching`].
    pub interleave: Option<usize>,
    /// Whether the backward pass recomputes each layer, so that the forward pass keeps only its
    /// input. The result has the same bits.
    pub recompute: bool,
    /// Elements of a result from which its product in bf16 also computes what follows: SwiGLU and
    /// its gradient, and the sum of two gradients of an input. Smaller products run concurrently.
    /// `None` for the size that benchmarks showed.
    pub fuse_from: Option<usize>,
    /// Multiplications of a product in f32, of at least 256 rows, from which it splits its
    /// operands before; so does attention with as many multiplications of queries and keys.
    /// `None` for the number from which that is estimated to pay.
    pub split_from: Option<usize>,
    /// Whether batches may be packed: the step then reads positions and bounds of attention.
    pub packed: bool,
    /// The objective of pairs of sequences instead of the cross-entropy of tokens.
    pub preference: Option<PreferenceConfig>,
    /// The position among the devices that share each step. Each computes an equal part of the
    /// batch.
    pub ranks: Ranks,
    /// Bytes of gradients that ranks exchange together; `None` for
    /// [`StepOptions::GROUP_BYTES`].
    pub group_bytes: Option<usize>,
    /// Elements of a parameter from which each rank updates a block of it; `None` for
    /// [`Sharding::LARGE`](crate::parameters::Sharding::LARGE).
    pub shard_from: Option<usize>,
}

impl From<GradientHome> for StepOptions {
    fn from(gradients: GradientHome) -> Self {
        Self { gradients, ..Self::default() }
    }
}

impl StepOptions {
    /// Bytes of gradients that ranks exchange together, unless the options say otherwise: large
    /// enough for the full bandwidth of NVLink, and small enough that little is left to exchange
    /// when the backward pass ends (docs/hardware/2026-11-25-bf16-gradients).
    pub const GROUP_BYTES: usize = 512 << 20;

    /// The most micro-batches of a step. Each is described with operations of its own.
    pub const MAX_MICRO_BATCHES: usize = 1024;

    /// Returns whether the step takes less memory at the cost of time.
    pub fn saves_memory(&self) -> bool {
        self.micro_batch.is_some() || self.recompute
    }

    /// Returns `config` with the part of the batch that one rank computes.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] if the batch has no equal parts, or there is no such rank.
    pub fn of_rank(&self, config: &TrainingConfig) -> Result<TrainingConfig> {
        require_rank(self.ranks)?;
        let count = self.ranks.count;
        if config.batch.is_multiple_of(count) {
            return Ok(TrainingConfig { batch: config.batch / count, ..*config });
        }
        let (field, value) = ("batch", config.batch.to_string());
        let rule = format!("a multiple of the number of devices, {count}");
        Err(Error::InvalidConfig { field, value, rule })
    }

    /// Returns the micro-batches of one rank in a step of `config`.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] if they do not divide the rank's part of the batch, or both options
    /// divide it.
    pub fn micro_batching(&self, config: &TrainingConfig) -> Result<MicroBatching> {
        let config = &self.of_rank(config)?;
        let batch = config.batch;
        let invalid = |field, value: usize, rule| {
            Err(Error::InvalidConfig { field, value: value.to_string(), rule })
        };
        let divides = |value: usize| value > 0 && batch.is_multiple_of(value);
        let rule = || format!("a divisor of the batch, {batch}");
        let few =
            || format!("such that a step has at most {} micro-batches", Self::MAX_MICRO_BATCHES);
        match (self.micro_batch, self.interleave) {
            (Some(_), Some(count)) if count != 1 => {
                let rule = "1 where micro-batches save memory: they follow each other".to_owned();
                invalid("interleave", count, rule)
            }
            (Some(size), _) if !divides(size) => invalid("micro-batch", size, rule()),
            (_, Some(count)) if !divides(count) => invalid("interleave", count, rule()),
            (Some(size), _) if batch / size > Self::MAX_MICRO_BATCHES => {
                invalid("micro-batch", size, few())
            }
            (_, Some(count)) if count > Self::MAX_MICRO_BATCHES => {
                invalid("interleave", count, few())
            }
            (Some(size), _) => {
                Ok(MicroBatching { batch, micro_batches: batch / size, concurrent: false })
            }
            (None, asked) => {
                let micro_batches = asked.unwrap_or(1);
                Ok(MicroBatching { batch, micro_batches, concurrent: micro_batches > 1 })
            }
        }
    }
}

/// Rows of a micro-batch from which a weight in NF4 is decoded to bf16 before its product.
/// Products of fewer rows decode it for each of their few row tiles. Measured for a model of 1.5
/// billion weights (docs/hardware/2026-11-25-split-f16).
pub(in crate::model) const MIN_DECODED_ROWS: usize = 256;

/// The micro-batches of a step. Loss and gradients are means over all targets of the step, as
/// without micro-batches, except for rounding: additions come in another order.
///
/// **Concurrent micro-batches.** Many operations on the longest path through a step leave most of a
/// GPU idle: norms and SwiGLU wait for memory, and the last tiles of a product leave
/// multiprocessors idle. Two micro-batches depend on each other only through the sums of
/// their gradients, so one runs while the other waits. Products of fewer rows
/// are less efficient, which outweighs the gain since products are as fast as they are now
/// (docs/hardware/2026-11-25-split-f16). A model whose products are small may still gain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MicroBatching {
    /// Sequences of the step.
    pub batch: usize,
    /// Number of micro-batches, all of one size.
    pub micro_batches: usize,
    /// Whether they may run concurrently, each with memory of its own.
    pub concurrent: bool,
}

impl MicroBatching {
    /// Sequences of a micro-batch.
    pub fn size(self) -> usize {
        self.batch / self.micro_batches
    }

    /// Micro-batches that run concurrently; 1 for none.
    pub fn interleaved(self) -> usize {
        if self.concurrent { self.micro_batches } else { 1 }
    }
}

impl fmt::Display for MicroBatching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { micro_batches, concurrent, .. } = *self;
        let order = if concurrent { "concurrent" } else { "sequential" };
        match micro_batches {
            1 => write!(f, "no micro-batches"),
            count => write!(f, "{count} micro-batches of {}, {order}", self.size()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{LoraConfig, Mode, OptimizerConfig, Precision, Preset};

    fn config(precision: Precision, [batch, seq]: [usize; 2]) -> TrainingConfig {
        TrainingConfig {
            model: Preset::Qwen25OneAndHalf.model(),
            mode: Mode::Lora(LoraConfig::new(16, 32.0)),
            precision,
            batch,
            seq,
            optimizer: OptimizerConfig::new(1e-3, 10),
            seed: 0,
        }
    }

    fn micro_batches(options: StepOptions, config: &TrainingConfig) -> (usize, bool) {
        let micro_batching = options.micro_batching(config).unwrap();
        (micro_batching.micro_batches, micro_batching.concurrent)
    }

    #[test]
    fn requested_micro_batches_are_made() {
        let large = config(Precision::F32, [4, 512]);
        let asked = |interleave| StepOptions { interleave, ..StepOptions::default() };
        assert_eq!(micro_batches(asked(Some(1)), &large), (1, false));
        assert_eq!(micro_batches(asked(Some(4)), &large), (4, true));
        let interleaved =
            |options: StepOptions| options.micro_batching(&large).unwrap().interleaved();
        assert_eq!((interleaved(asked(Some(4))), interleaved(asked(None))), (4, 1));
        let saving = StepOptions { micro_batch: Some(1), ..StepOptions::default() };
        assert_eq!((micro_batches(saving, &large), interleaved(saving)), ((4, false), 1));
        assert_eq!(
            micro_batches(StepOptions { interleave: Some(1), ..saving }, &large),
            (4, false)
        );
    }

    #[test]
    fn impossible_micro_batches_are_refused() {
        let large = config(Precision::F32, [4, 512]);
        let error = |micro_batch, interleave| {
            let options = StepOptions { micro_batch, interleave, ..StepOptions::default() };
            options.micro_batching(&large).unwrap_err().to_string()
        };
        for count in [0, 3, 8] {
            let text = error(None, Some(count));
            assert!(text.contains(&format!("interleave is {count}")), "{text}");
            assert!(text.contains("a divisor of the batch, 4"), "{text}");
        }
        let many = TrainingConfig { batch: 2048, ..large };
        for options in [
            StepOptions { interleave: Some(2048), ..StepOptions::default() },
            StepOptions { micro_batch: Some(1), ..StepOptions::default() },
        ] {
            let text = options.micro_batching(&many).unwrap_err().to_string();
            assert!(text.contains("at most 1024 micro-batches"), "{text}");
        }
        assert!(error(Some(3), None).contains("micro-batch is 3"));
        assert!(error(Some(2), Some(2)).contains("interleave is 2"));
    }

    #[test]
    fn micro_batches_are_printed_in_words() {
        let large = config(Precision::F32, [4, 512]);
        let words = |options: StepOptions| options.micro_batching(&large).unwrap().to_string();
        let halves = StepOptions { interleave: Some(2), ..StepOptions::default() };
        assert_eq!(words(halves), "2 micro-batches of 2, concurrent");
        let saving = StepOptions { micro_batch: Some(1), ..StepOptions::default() };
        assert_eq!(words(saving), "4 micro-batches of 1, sequential");
        assert_eq!(
            words(StepOptions { recompute: true, ..Default::default() }),
            "no micro-batches"
        );
    }
}
