//! The layers of a pass: resolved once from the spec, then forward and backward as operations.

mod activation;
mod attention;
mod block_output;
mod embedding;
mod gemv;
mod head;
mod kv_cache;
mod layer;
mod linear;
mod lora;
mod mlp;
mod norm;
mod pass_config;
mod residual;
mod rope;
mod self_attention;
mod skinny;

use retrograph_kernels::DType;
use retrograph_runtime::Slice;

use super::builder::Builder;
use crate::error::Result;
use crate::spec::ModelSpec;

pub(super) use embedding::Embedding;
pub(super) use head::{Head, Objective};
pub(super) use kv_cache::KvCache;
pub use kv_cache::{CacheConfig, LayerCache};
pub(super) use layer::{LastToken, Layer, Saved as LayerSaved};
pub(super) use pass_config::PassConfig;
pub(super) use residual::Residual;
pub(super) use rope::RopeTables;

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
            layers.push(Layer::new(builder, config, tables, layer, &layers));
        }
        let head = Head::new(builder, config, spec, layers.last());
        Self { embedding: Embedding::new(builder, spec), layers, head }
    }

    /// Appends the forward pass over `tokens`, up to the logits in f32, without their cap.
    pub(super) fn logits(&self, builder: &mut Builder, tokens: Slice<u32>) -> Result<Slice<f32>> {
        let x = self.residual(builder, tokens)?;
        self.head.forward(builder, x, DType::F32, None)?.logits.f32()
    }

    /// Appends the forward pass over `tokens`, up to the loss of each.
    pub(super) fn losses(
        &self,
        builder: &mut Builder,
        tokens: Slice<u32>,
        objective: Objective,
    ) -> Result<()> {
        let x = self.residual(builder, tokens)?;
        let head = &self.head;
        let saved = head.forward(builder, x, head.logits_dtype(), Some(objective.targets.rows))?;
        head.loss_alone(builder, saved.logits, objective)
    }

    /// Appends the embedding of `tokens` and all layers.
    fn residual(&self, builder: &mut Builder, tokens: Slice<u32>) -> Result<Residual> {
        let mut x = Residual::from(self.embedding.forward(builder, tokens)?);
        for layer in &self.layers {
            x = layer.forward(builder, x)?.0;
        }
        Ok(x)
    }
}
