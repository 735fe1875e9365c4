//! The layers of a pass: resolved once from the spec, then forward and backward as operations.

mod activation;
mod attention;
mod embedding;
mod gemv;
mod head;
mod kv_cache;
mod layer;
mod linear;
mod lora;
mod mlp;
mod norm;
mod residual;
mod rope;
mod self_attention;

use retrograph_kernels::ops::DType;
use retrograph_runtime::Slice;

use super::builder::Builder;
use super::passes::Division;
use crate::config::{InferenceConfig, LoraConfig, TrainingConfig};
use crate::error::Result;
use crate::spec::ModelSpec;

pub(super) use embedding::Embedding;
pub(super) use head::{Head, Objective, mean};
pub(super) use kv_cache::KvCache;
pub use kv_cache::{CacheConfig, LayerCache};
pub(super) use layer::{Layer, Saved as LayerSaved};
pub(super) use residual::Residual;
pub(super) use rope::RopeTables;

/// What a pass adds to the spec of its model.
#[derive(Clone, Copy, Debug)]
pub(super) struct PassConfig {
    /// Sequences of a micro-batch.
    pub(super) batch: usize,
    /// Tokens of a sequence.
    pub(super) seq: usize,
    /// Rows of which the pass computes logits.
    pub(super) logit_rows: usize,
    /// The type of the factors of matrix products.
    pub(super) compute: DType,
    /// The low-rank updates, if there are any.
    pub(super) lora: Option<LoraConfig>,
    /// Micro-batches that run concurrently.
    pub(super) concurrent_micro_batches: u32,
}

impl PassConfig {
    /// Returns the micro-batches of a training step.
    pub(super) fn training(config: &TrainingConfig, division: Division) -> Self {
        let concurrent_micro_batches = division.interleaved() as u32;
        let micro_batch = TrainingConfig { batch: division.size(), ..*config };
        Self { concurrent_micro_batches, ..Self::undivided(&micro_batch) }
    }

    /// Returns a batch that is computed as one.
    pub(super) fn undivided(config: &TrainingConfig) -> Self {
        Self {
            batch: config.batch,
            seq: config.seq,
            logit_rows: config.rows(),
            compute: config.precision.dtype.compute(),
            lora: config.mode.lora(),
            concurrent_micro_batches: 1,
        }
    }

    /// Returns `rows` tokens of one text, of which the last has logits.
    pub(super) fn generation(config: &InferenceConfig, rows: usize) -> Self {
        Self {
            batch: 1,
            seq: rows,
            logit_rows: 1,
            compute: config.precision.dtype.compute(),
            lora: config.mode.lora(),
            concurrent_micro_batches: 1,
        }
    }

    /// Tokens of a micro-batch.
    pub(super) fn rows(&self) -> usize {
        self.batch * self.seq
    }
}

/// A model whose weights are buffers of a pass.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) embedding: Embedding,
    pub(super) layers: Vec<Layer>,
    pub(super) head: Head,
}

impl Model {
    /// Resolves every layer of `spec`.
    pub(super) fn new(
        builder: &Builder,
        spec: &ModelSpec,
        config: &PassConfig,
        tables: RopeTables,
    ) -> Self {
        let mut layers: Vec<Layer> = Vec::with_capacity(spec.layers.len());
        for layer in &spec.layers {
            layers.push(Layer::new((builder, config, tables), layer, &layers));
        }
        let head = Head::new((builder, config), spec, layers.last());
        Self { embedding: Embedding::new(builder, spec), layers, head }
    }

    /// Appends the forward pass over `tokens`, up to the logits.
    pub(super) fn logits(&self, builder: &mut Builder, tokens: Slice<u32>) -> Result<Slice<f32>> {
        let mut x = Residual::from(self.embedding.forward(builder, tokens)?);
        for layer in &self.layers {
            x = layer.forward(builder, x)?.0;
        }
        Ok(self.head.forward(builder, x)?.logits)
    }
}
