//! The sizes and dtypes of a pass.

use retrograph_kernels::ops::DType;

use crate::config::{InferenceConfig, LoraConfig, Precision, TrainingConfig};
use crate::model::passes::{MicroBatching, StepOptions};

/// The configuration of a pass: sizes, dtypes and concurrency.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) struct PassConfig {
    /// Sequences of a micro-batch.
    pub(in crate::model) batch: usize,
    /// Tokens of a sequence.
    pub(in crate::model) seq: usize,
    /// Rows for which the pass computes logits.
    pub(in crate::model) logit_rows: usize,
    /// The type of the operands of matrix products.
    pub(in crate::model) compute: DType,
    /// Whether outputs of attention and MLP may be bf16 before they join the residual stream.
    pub(in crate::model) bf16_branches: bool,
    /// The low-rank updates, if there are any.
    pub(in crate::model) lora: Option<LoraConfig>,
    /// Whether the pass has a backward pass, for which it saves tensors.
    pub(in crate::model) has_backward: bool,
    /// Whether the pass decodes one token of each sequence.
    pub(in crate::model) decodes: bool,
    /// Micro-batches that run concurrently.
    pub(in crate::model) concurrent_micro_batches: u32,
    /// Minimum elements of a result for fusing its product with other products and operations.
    pub(in crate::model) min_fused_elements: usize,
    /// Minimum multiplications of a product for splitting its f32 operands into f16 terms before;
    /// `None` if products are never split.
    pub(in crate::model) min_split_multiplications: Option<usize>,
}

/// A tile of 128 × 128 on each of the 132 SMs of an H200.
const MIN_FUSED_ELEMENTS: usize = 132 * 128 * 128;

/// Rows of the tile for gated linear units of few rows.
const FEW_ROWS: usize = 64;

/// 10 µs of an f32 product, since a split is a separate launch. Estimated.
const MIN_SPLIT_MULTIPLICATIONS: usize = 1 << 26;

impl PassConfig {
    /// Returns the micro-batches of a training step.
    pub(in crate::model) fn training(
        config: &TrainingConfig,
        options: StepOptions,
        micro_batching: MicroBatching,
    ) -> Self {
        let concurrent_micro_batches = micro_batching.interleaved() as u32;
        let micro_batch = TrainingConfig { batch: micro_batching.size(), ..*config };
        let whole = Self::without_micro_batches(&micro_batch);
        let min_fused_elements = options.fuse_from.unwrap_or(whole.min_fused_elements);
        let min_split_multiplications =
            whole.min_split_multiplications.map(|default| options.split_from.unwrap_or(default));
        Self {
            has_backward: true,
            concurrent_micro_batches,
            min_fused_elements,
            min_split_multiplications,
            ..whole
        }
    }

    /// Returns a batch without micro-batches and without a backward pass.
    pub(in crate::model) fn without_micro_batches(config: &TrainingConfig) -> Self {
        Self {
            batch: config.batch,
            seq: config.seq,
            logit_rows: config.rows(),
            compute: config.precision.dtype,
            bf16_branches: true,
            lora: config.mode.lora(),
            has_backward: false,
            decodes: false,
            concurrent_micro_batches: 1,
            min_fused_elements: MIN_FUSED_ELEMENTS,
            min_split_multiplications: min_split_multiplications(config.precision),
        }
    }

    /// Returns `rows` tokens of each sequence; only the last token has logits.
    pub(in crate::model) fn generation(
        config: &InferenceConfig,
        batch: usize,
        rows: usize,
    ) -> Self {
        Self {
            batch,
            seq: rows,
            logit_rows: batch,
            compute: config.precision.dtype,
            // In decode, gemv and skinny products add to the f32 stream. Prefill was not measured.
            bf16_branches: false,
            lora: config.mode.lora(),
            has_backward: false,
            decodes: rows == 1,
            concurrent_micro_batches: 1,
            // Few rows are bound by reading weights and by launches.
            min_fused_elements: if batch * rows <= FEW_ROWS { 0 } else { MIN_FUSED_ELEMENTS },
            min_split_multiplications: min_split_multiplications(config.precision),
        }
    }

    /// Tokens of a micro-batch.
    pub(in crate::model) fn rows(&self) -> usize {
        self.batch * self.seq
    }

    /// Whether a product of this many multiplications is large enough to split its f32 operands
    /// into f16 terms before.
    pub(in crate::model) fn splits(&self, multiplications: usize) -> bool {
        self.min_split_multiplications.is_some_and(|min| multiplications >= min)
    }
}

fn min_split_multiplications(precision: Precision) -> Option<usize> {
    precision.splits_f16().then_some(MIN_SPLIT_MULTIPLICATIONS)
}
