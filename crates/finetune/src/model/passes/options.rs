//! Options of a training step, and its micro-batches.

use std::fmt;

use retrograph_runtime::Ranks;

use crate::config::{DpoConfig, TrainingConfig, require_rank};
use crate::error::{Error, Result};

/// The owner of the gradients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GradientOwner {
    /// The program keeps gradients only within a step and reuses their memory.
    #[default]
    Transient,
    /// The caller keeps gradients and can read them after the step.
    External,
}

/// Options of a training step. Only `preference` changes the loss or the gradients beyond rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct StepOptions {
    /// Who keeps the gradients.
    pub gradients: GradientOwner,
    /// Sequences per micro-batch, a divisor of the batch. Micro-batches run one after another, so
    /// the step takes less memory; their gradients are accumulated.
    pub micro_batch: Option<usize>,
    /// Number of micro-batches that a graph runs concurrently, a divisor of the batch; `None` or 1
    /// for none.
    /// See [`MicroBatching`].
    pub interleave: Option<usize>,
    /// Whether the backward pass recomputes each layer, so that the forward pass keeps only its
    /// input. The result has the same bits.
    pub recompute: bool,
    /// Minimum elements of a result for which its bf16 product fuses the next operation: SwiGLU and
    /// its gradient, and the sum of two gradients of an input. Smaller products run concurrently.
    /// `None` for the size from benchmarks.
    pub fuse_from: Option<usize>,
    /// Minimum multiplications of an f32 product of at least 256 rows for which its operands are
    /// split before the product. The same minimum applies to the products of queries and keys in
    /// attention. `None` for the estimated break-even. Without effect if the precision uses
    /// [`F32Products::Tf32x3`](crate::F32Products::Tf32x3).
    pub split_from: Option<usize>,
    /// Whether batches may be packed: the step then reads positions and bounds of attention.
    pub packed: bool,
    /// The objective of pairs of sequences instead of the cross-entropy of tokens.
    pub preference: Option<DpoConfig>,
    /// The rank among the devices that share each step. Each computes an equal part of the
    /// batch.
    pub ranks: Ranks,
    /// Bytes of gradients that ranks exchange together; `None` for
    /// [`StepOptions::BUCKET_BYTES`].
    pub bucket_bytes: Option<usize>,
    /// Minimum elements of a parameter for which each rank updates only a block; `None` for
    /// [`Sharding::LARGE`](crate::parameters::Sharding::LARGE).
    pub shard_from: Option<usize>,
}

impl From<GradientOwner> for StepOptions {
    fn from(gradients: GradientOwner) -> Self {
        Self { gradients, ..Self::default() }
    }
}

impl StepOptions {
    /// Default bytes of gradients that ranks exchange together: enough for the full bandwidth of
    /// NVLink, but small enough that little remains to exchange when the backward pass ends
    /// (docs/hardware/2026-11-25-bf16-gradients).
    pub const BUCKET_BYTES: usize = 512 << 20;

    /// Maximum micro-batches of a step. Each has its own operations in the pass.
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
        let count = self.ranks.world_size;
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
                let rule = "1 with gradient accumulation, which is sequential".to_owned();
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

/// Minimum rows of a micro-batch for which an NF4 weight is decoded to bf16 before its product.
/// Products of fewer rows decode it for each of their few row tiles. Measured for a model of 1.5
/// billion weights (docs/hardware/2026-11-25-split-f16).
pub(in crate::model) const MIN_DECODED_ROWS: usize = 256;

/// The micro-batches of a step. Loss and gradients are means over all targets of the step. They
/// equal the results without micro-batches up to rounding, since sums have another order.
///
/// **Concurrent micro-batches.** Many operations on the critical path of a step leave most of a GPU
/// idle: norms and SwiGLU wait for memory, and the last tiles of a product leave multiprocessors
/// idle. Two micro-batches depend on each other only through the sums of their gradients, so one
/// runs while the other waits. But products of fewer rows are less efficient, which outweighs the
/// gain for large products (docs/hardware/2026-11-25-split-f16). A model with small products may
/// still gain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MicroBatching {
    /// Sequences of the step.
    pub batch: usize,
    /// Number of micro-batches, all of the same size.
    pub micro_batches: usize,
    /// Whether they may run concurrently, each with its own memory.
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
