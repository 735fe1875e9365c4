//! Causal attention of the tokens of a document to each other, after RoPE.
//!
//! One fused kernel (FlashAttention-2) computes it for supported head dimensions. Other dimensions
//! and capped scores in f32 use matrix products around a softmax, which store the `seq × seq`
//! probabilities.

use retrograph_kernels::attention::supports_softcap;
use retrograph_kernels::ops::{
    AttentionBackwardInputs, AttentionBackwardPreprocess, AttentionGradK, AttentionGradProbs,
    AttentionGradQ, AttentionGradV, AttentionRope, AttentionScores, AttentionShape,
    AttentionValues, DType, FusedAttention, FusedAttentionGradKv, FusedAttentionGradQ, Softcap,
    SoftcapBackward, Softmax, SoftmaxBackward, SoftmaxMask, SplitKSum, SplitMatrix,
};
use retrograph_runtime::{BufferId, Slice};

use super::activation::{Activation, Dtypes};
use super::rope::{RotaryEmbedding, Rotation};
use super::{Builder, PassConfig, linear};
use crate::config::MIN_SPLIT_ROWS;
use crate::error::Result;
use crate::spec::AttentionSpec;

/// Attention of a layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct SelfAttention {
    shape: AttentionShape,
    compute: DType,
    /// Whether f32 operands are read as f16 terms.
    in_terms: bool,
    /// Maximum tokens that a token attends to, including itself.
    window: Option<u32>,
    /// The factor of the scores.
    scale: f32,
    /// The cap of the scores.
    softcap: Option<f32>,
}

/// Queries and keys after RoPE, and values, in [`SelfAttention::dtypes`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Operands {
    pub(super) q: Activation,
    pub(super) k: Activation,
    pub(super) v: Activation,
}

/// Tensors saved for the backward pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saved {
    operands: Operands,
    probabilities: Probabilities,
}

#[derive(Clone, Copy, Debug)]
enum Probabilities {
    /// `[batch, heads, seq, seq]`, and the scores if they have a cap.
    Stored { probs: Slice<f32>, capped: Option<Slice<f32>> },
    /// Recomputed from the output and the log-sum-exp of each row.
    Recomputed { out: Activation, lse: Slice<f32> },
}

/// The gradients of queries and keys before RoPE, and of values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gradients {
    pub(super) q: Activation,
    pub(super) k: Activation,
    pub(super) v: Activation,
}

/// The dtypes in which the gradients are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct GradDtypes {
    pub(super) q: Dtypes,
    pub(super) k: Dtypes,
    pub(super) v: Dtypes,
}

/// Tensors of the forward pass that the fused backward pass reads.
struct FusedForward {
    operands: Operands,
    out: Activation,
    lse: Slice<f32>,
}

impl SelfAttention {
    pub(super) fn new(config: &PassConfig, spec: &AttentionSpec) -> Self {
        let AttentionSpec { heads, kv_heads, head_dim, window, scale, softcap, .. } = *spec;
        let &PassConfig { batch, seq, .. } = config;
        let shape = AttentionShape { batch, seq, heads, kv_heads, head_dim };
        let in_terms = shape.reads_split_f16()
            && batch * seq >= MIN_SPLIT_ROWS
            && config.splits(batch * heads * seq * seq * head_dim);
        Self { shape, compute: config.compute, in_terms, window, scale, softcap }
    }

    /// The sizes.
    pub(super) fn shape(&self) -> AttentionShape {
        self.shape
    }

    fn is_fused(&self) -> bool {
        let caps = self.softcap.is_none() || supports_softcap(self.compute);
        caps && self.shape.can_be_fused(self.compute)
    }

    /// The dtypes in which the operands and the gradient of the output are read: the dtype of the
    /// products if they are fused.
    pub(super) fn dtypes(&self) -> Dtypes {
        if self.is_fused() { self.compute.into() } else { Dtypes::F32 }
    }

    /// The mask of unfused attention.
    fn mask(&self, builder: &Builder) -> SoftmaxMask<BufferId> {
        let bounds = builder.sequences.bounds(self.window);
        bounds.map_or(SoftmaxMask::Causal, |bounds| SoftmaxMask::From(bounds.first_keys))
    }

    /// Appends `softmax(softcap(scale · q·kᵀ))·v`, in the `dtypes` in which it is read.
    pub(super) fn forward(
        &self,
        builder: &mut Builder,
        operands: Operands,
        dtypes: Dtypes,
    ) -> Result<(Activation, Saved)> {
        let (out, probabilities) = if self.is_fused() {
            self.fused(builder, operands, dtypes)?
        } else {
            let (out, probabilities) = self.unfused(builder, operands)?;
            (Activation::cast(builder, out, dtypes)?, probabilities)
        };
        Ok((out, Saved { operands, probabilities }))
    }

    fn fused(
        &self,
        builder: &mut Builder,
        Operands { q, k, v }: Operands,
        dtypes: Dtypes,
    ) -> Result<(Activation, Probabilities)> {
        let Self { shape, scale, softcap, .. } = *self;
        let terms = self.split(builder, [("q", q), ("k", k), ("v", v)])?;
        let [q, k, v] = [q, k, v].map(Activation::narrowest);
        let result = Activation::transient(builder, "out", q.len(), dtypes);
        let lse = builder.transient("lse", shape.batch * shape.heads * shape.seq);
        let bounds = builder.sequences.bounds(self.window);
        let attention = FusedAttention {
            q,
            k,
            v,
            out: result.written(),
            lse,
            split_f16: terms,
            bounds,
            shape,
            scale,
            softcap,
        };
        builder.launch(attention.launch())?;
        Ok((result, Probabilities::Recomputed { out: result, lse }))
    }

    /// Returns the output, and the probabilities.
    fn unfused(
        &self,
        builder: &mut Builder,
        Operands { q, k, v }: Operands,
    ) -> Result<(Slice<f32>, Probabilities)> {
        let Self { shape, compute, scale, .. } = *self;
        let (q, k, v) = (q.f32()?, k.f32()?, v.f32()?);
        let AttentionShape { batch, seq, heads, .. } = shape;
        let (rows, width) = (batch * heads * seq, seq);
        let scores = builder.transient("scores", rows * width);
        let product = AttentionScores { q, k, scores, shape, scale };
        builder.launch(product.launch_in(compute))?;
        let (scores, capped) = softcap(builder, self.softcap, scores)?;
        let probs = builder.transient("probs", rows * width);
        let mask = self.mask(builder);
        let softmax = Softmax { input: scores, output: probs, rows, width, mask };
        builder.launch(softmax.launch())?;
        let out = builder.transient("out", q.len());
        builder.launch(AttentionValues { probs, v, out, shape }.launch_in(compute))?;
        Ok((out, Probabilities::Stored { probs, capped }))
    }

    /// Appends the gradients of values, and of queries and keys before `rope`.
    pub(super) fn backward(
        &self,
        builder: &mut Builder,
        Saved { operands, probabilities }: Saved,
        grad_out: Activation,
        dtypes: GradDtypes,
        rope: &RotaryEmbedding,
    ) -> Result<Gradients> {
        match probabilities {
            Probabilities::Stored { probs, capped } => {
                let grad_out = grad_out.f32()?;
                let [q, k, v] =
                    self.unfused_backward(builder, operands, probs, capped, grad_out)?;
                let read = [dtypes.q, dtypes.k];
                let [q, k] = rope.rotate(builder, [q, k], read, Rotation::Inverse)?;
                Ok(Gradients { q, k, v: Activation::cast(builder, v, dtypes.v)? })
            }
            Probabilities::Recomputed { out, lse } => {
                let forward = FusedForward { operands, out, lse };
                self.fused_backward(builder, forward, grad_out, dtypes, rope)
            }
        }
    }

    /// Appends the fused backward pass. The bf16 kernels also rotate the gradients of queries and
    /// keys back; f32 needs a separate launch.
    fn fused_backward(
        &self,
        builder: &mut Builder,
        forward: FusedForward,
        grad_out: Activation,
        dtypes: GradDtypes,
        rope: &RotaryEmbedding,
    ) -> Result<Gradients> {
        let FusedForward { operands: Operands { q, k, v }, out, lse } = forward;
        let shape = self.shape;
        let terms = self.split(builder, [("q", q), ("k", k), ("v", v), ("grad_out", grad_out)])?;
        let [q, k, v, out, grad_out] = [q, k, v, out, grad_out].map(Activation::narrowest);
        let lse_delta = builder.transient("rows", shape.lse_delta_len());
        let preprocess = AttentionBackwardPreprocess { out, grad_out, lse, lse_delta, shape };
        builder.launch(preprocess.launch())?;
        let Self { scale, softcap, window, .. } = *self;
        let bounds = builder.sequences.bounds(window);
        let inputs = AttentionBackwardInputs {
            q,
            k,
            v,
            grad_out,
            lse_delta,
            split_f16: terms,
            bounds,
            shape,
            scale,
            softcap,
        };
        let in_kernels = self.compute == DType::Bf16;
        let (undone, written) = if in_kernels {
            (rope.of_attention(builder), dtypes)
        } else {
            (None, GradDtypes { q: Dtypes::F32, k: Dtypes::F32, ..dtypes })
        };
        let grad_q = Activation::transient(builder, "grad_q", q.len(), written.q);
        let gradient = FusedAttentionGradQ { inputs, grad_q: grad_q.written(), rope: undone };
        builder.launch(gradient.launch())?;
        let [grad_k, v] = self.grad_kv(builder, inputs, undone, written.k.and(written.v))?;
        if in_kernels {
            return Ok(Gradients { q: grad_q, k: grad_k, v });
        }
        let (heads, read) = ([grad_q.f32()?, grad_k.f32()?], [dtypes.q, dtypes.k]);
        let [q, k] = rope.rotate(builder, heads, read, Rotation::Inverse)?;
        Ok(Gradients { q, k, v })
    }

    /// Appends the launches that split operands, if they are read in terms.
    fn split<const N: usize>(
        &self,
        builder: &mut Builder,
        operands: [(&str, Activation); N],
    ) -> Result<Option<[SplitMatrix<BufferId>; N]>> {
        if !self.in_terms {
            return Ok(None);
        }
        let rows = self.shape.batch * self.shape.seq;
        let mut terms = Vec::with_capacity(N);
        for (name, operand) in operands {
            let x = operand.f32()?;
            terms.push(linear::split(builder, name, x, [rows, x.len() / rows], None)?);
        }
        Ok(terms.try_into().ok())
    }

    /// Appends the gradients of keys and values, which are read in `dtypes`.
    fn grad_kv(
        &self,
        builder: &mut Builder,
        inputs: AttentionBackwardInputs<BufferId>,
        rope: Option<AttentionRope<BufferId>>,
        dtypes: Dtypes,
    ) -> Result<[Activation; 2]> {
        let (splits, len) = (self.shape.grad_kv_splits(), inputs.k.len());
        let grads = Activation::transient(builder, "grad_kv", 2 * len, dtypes);
        let launch = |grads| FusedAttentionGradKv { inputs, grads, splits, rope }.launch();
        if splits == 1 {
            builder.launch(launch(grads.written()))?;
        } else {
            let partials = builder.transient("grad_kv partials", splits * 2 * len);
            builder.launch(launch(partials.into()))?;
            builder.launch(SplitKSum { partials, out: grads.written(), splits }.launch())?;
        }
        Ok([grads.slice(0..len), grads.slice(len..2 * len)])
    }

    fn unfused_backward(
        &self,
        builder: &mut Builder,
        Operands { q, k, v }: Operands,
        probs: Slice<f32>,
        capped: Option<Slice<f32>>,
        grad_out: Slice<f32>,
    ) -> Result<[Slice<f32>; 3]> {
        let Self { shape, compute, scale, .. } = *self;
        let (q, k, v) = (q.f32()?, k.f32()?, v.f32()?);
        let AttentionShape { batch, seq, heads, .. } = shape;
        let (rows, width) = (batch * heads * seq, seq);
        let grad_probs = builder.transient("grad_probs", probs.len());
        builder.launch(AttentionGradProbs { grad_out, v, grad_probs, shape }.launch_in(compute))?;
        let grad_v = builder.transient("grad_v", v.len());
        builder.launch(AttentionGradV { probs, grad_out, grad_v, shape }.launch_in(compute))?;
        let mut grad_scores = builder.transient("grad_scores", probs.len());
        let softmax = SoftmaxBackward {
            probs,
            grad_out: grad_probs,
            grad_input: grad_scores,
            rows,
            width,
            mask: self.mask(builder),
        };
        builder.launch(softmax.launch())?;
        if let Some((y, cap)) = capped.zip(self.softcap) {
            let grad_input = builder.transient("grad_uncapped", grad_scores.len());
            let grad_out = grad_scores;
            builder.launch(SoftcapBackward { y, grad_out, grad_input, cap }.launch())?;
            grad_scores = grad_input;
        }
        let grad_q = builder.transient("grad_q", q.len());
        let product = AttentionGradQ { grad_scores, k, grad_q, shape, scale };
        builder.launch(product.launch_in(compute))?;
        let grad_k = builder.transient("grad_k", k.len());
        let product = AttentionGradK { grad_scores, q, grad_k, shape, scale };
        builder.launch(product.launch_in(compute))?;
        Ok([grad_q, grad_k, grad_v])
    }
}

/// Appends the cap of attention scores, if there is one. Returns the scores, and, if they are
/// capped, the capped scores for the backward pass.
pub(super) fn softcap(
    builder: &mut Builder,
    cap: Option<f32>,
    x: Slice<f32>,
) -> Result<(Slice<f32>, Option<Slice<f32>>)> {
    let Some(cap) = cap else { return Ok((x, None)) };
    let y = builder.transient("capped", x.len());
    builder.launch(Softcap { x, y, cap }.launch())?;
    Ok((y, Some(y)))
}
