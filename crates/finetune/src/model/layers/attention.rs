//! The attention block: projections, norms of heads, RoPE, attention and output projection.

use retrograph_kernels::ops::{
    DType, LoraUpdate, QkNormRope, QkvProjection, QkvRopeFprop, TensorView,
};
use retrograph_runtime::{BufferId, Slice};

use super::activation::{Activation, Dtypes, Input, OutputGradient};
use super::block_output::{self, BlockOutput};
use super::kv_cache::{LayerKv, NewTokens};
use super::linear::{self, Backward, Forward, Linear, Output};
use super::norm::{self, GradInput, Norm};
use super::residual::Residual;
use super::rope::{RopeTables, RotaryEmbedding, Rotation};
use super::self_attention::{self, GradDtypes, Operands, SelfAttention};
use super::{Builder, PassConfig, gemv};
use crate::config::Projection;
use crate::error::Result;
use crate::parameters::{K_NORM, POST_ATTENTION_NORM, Q_NORM, layer_name};
use crate::spec::LayerSpec;

/// The attention block of a layer.
#[derive(Debug)]
pub(super) struct Attention {
    /// The scope of the layer, for example `layer 3`.
    scope: String,
    q: Linear,
    k: Linear,
    v: Linear,
    o: BlockOutput,
    /// The norms of query and key heads, if the model has them.
    norms: [Option<Norm>; 2],
    /// The `eps` of both.
    eps: f32,
    rope: RotaryEmbedding,
    core: SelfAttention,
    rows: usize,
    compute: DType,
}

/// Tensors saved for the backward pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saved {
    q: linear::Saved,
    k: linear::Saved,
    v: linear::Saved,
    o: block_output::Saved,
    norms: [Option<norm::Saved>; 2],
    core: self_attention::Saved,
}

/// Queries, keys and values of several tokens, and the tensors saved for their backward pass.
struct ProjectedTokens {
    operands: Operands,
    saved: [linear::Saved; 3],
    norms: [Option<norm::Saved>; 2],
}

/// The weights that a decode step prefetches to the L2 cache while it runs the attention block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prefetch {
    /// While attention reads the KV cache.
    pub(super) during_attention: TensorView<BufferId>,
    /// During the output projection.
    pub(super) during_output: TensorView<BufferId>,
}

impl Attention {
    pub(super) fn new(
        builder: &Builder,
        config: &PassConfig,
        tables: RopeTables,
        spec: &LayerSpec,
        number: usize,
    ) -> Self {
        let linear = |it| Linear::new(builder, config, spec, number, it);
        let attention = &spec.attention;
        let norm =
            |name| attention.qk_norm.map(|it| Norm::new(builder, &layer_name(number, name), it));
        let post_norm = spec
            .post_norm
            .map(|it| Norm::new(builder, &layer_name(number, POST_ATTENTION_NORM), it));
        let scopes = ["o", "post-attention norm"].map(|part| format!("layer {number}/{part}"));
        Self {
            scope: format!("layer {number}"),
            q: linear(Projection::Q),
            k: linear(Projection::K),
            v: linear(Projection::V),
            o: BlockOutput::new(config, linear(Projection::O), post_norm, scopes),
            norms: [norm(Q_NORM), norm(K_NORM)],
            eps: attention.qk_norm.unwrap_or(spec.attention_norm).eps,
            rope: RotaryEmbedding::new(config, tables, attention),
            core: SelfAttention::new(config, attention),
            rows: config.rows(),
            compute: config.compute,
        }
    }

    /// Rows of the pass.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// The dtypes in which the block reads its input.
    pub(super) fn dtypes(&self) -> Dtypes {
        self.q.dtypes.and(self.k.dtypes).and(self.v.dtypes)
    }

    /// The layer that reads the gradient of the output of the block; `None` if it is a norm.
    pub(super) fn grad_reader(&self) -> Option<&Linear> {
        self.o.grad_reader()
    }

    /// The weight that the block reads first.
    pub(super) fn first_weight(&self) -> TensorView<BufferId> {
        self.q.weight.value
    }

    fn scope(&self, part: &str) -> String {
        format!("{}/{part}", self.scope)
    }

    /// Appends the block over whole sequences and adds it to `residual`.
    pub(super) fn forward(
        &self,
        builder: &mut Builder,
        x: Input,
        residual: Slice<f32>,
    ) -> Result<(Residual, Saved)> {
        let ProjectedTokens { operands, saved: [q, k, v], norms } =
            self.project(builder, x, self.core.dtypes())?;
        builder.scope(self.scope("attention"));
        let (mixed, core) = self.core.forward(builder, operands, self.o.projection.dtypes)?;
        let (out, o) = self.o.forward(builder, mixed.into(), residual)?;
        Ok((out, Saved { q, k, v, o, norms, core }))
    }

    /// Appends the attention of the tokens of a prompt, up to the output projection. The control
    /// `count` is the number of rows that are tokens; without it, all rows are tokens.
    pub(super) fn prefill(
        &self,
        builder: &mut Builder,
        x: Input,
        cache: &LayerKv,
        count: Option<Slice<u32>>,
    ) -> Result<Activation> {
        let ProjectedTokens { operands, .. } = self.project(builder, x, cache.prefill_dtypes())?;
        builder.scope(self.scope("attention"));
        let new = NewTokens { operands, rows: self.rows, count };
        cache.prefill(builder, new, self.compute, self.o.projection.dtypes)
    }

    /// Appends the output projection of `mixed`, the output of attention, and adds it to
    /// `residual`.
    pub(super) fn project_output(
        &self,
        builder: &mut Builder,
        mixed: Input,
        residual: Slice<f32>,
    ) -> Result<Residual> {
        Ok(self.o.forward(builder, mixed, residual)?.0)
    }

    /// Appends the block over one token of each sequence and adds it to `residual`.
    ///
    /// One launch computes q, k and v of one sequence, and of several sequences if these layers use
    /// skinny products; otherwise there are three. The attention kernel fuses the norms of heads
    /// and RoPE. For one sequence it also fuses the second LoRA products, if all have the same rank
    /// and scale and no DoRA.
    pub(super) fn decode(
        &self,
        builder: &mut Builder,
        input: Input,
        residual: Slice<f32>,
        cache: &LayerKv,
        prefetch: Prefetch,
    ) -> Result<Residual> {
        builder.scope(self.scope("q, k and v"));
        let layers = [&self.q, &self.k, &self.v];
        let outputs = layers.map(|layer| layer.decode_output(builder));
        let input = Input { prefetch: Some(prefetch.during_attention), ..input };
        let updates = match self.rows == 1 && self.updates_are_alike() {
            true => {
                let calls: [_; 3] = std::array::from_fn(|at| layers[at].gemv(outputs[at]));
                gemv::project(builder, input, &calls)?
            }
            false => {
                let scopes = ["q", "k", "v"].map(|part| self.scope(part));
                let is_one_launch = self.rows == 1 || layers.iter().all(|layer| layer.is_skinny());
                let calls = std::array::from_fn(|at| Forward {
                    scope: (!is_one_launch).then_some(&*scopes[at]),
                    output: Output::Into(outputs[at]),
                    ..layers[at].call()
                });
                linear::forward::<3>(builder, input, calls)?;
                vec![None; layers.len()]
            }
        };
        let projected = std::array::from_fn(|at| {
            let update = layers[at].lora.zip(updates[at]);
            let update = update.map(|(lora, saved)| LoraUpdate {
                t: saved.t,
                b: lora.b.value,
                scale: lora.scale,
            });
            QkvProjection { x: outputs[at], lora: update }
        });
        builder.scope(self.scope("attention"));
        let dtypes = self.o.projection.dtypes;
        let mixed = Activation::transient(builder, "out", outputs[0].len(), dtypes);
        cache.decode(builder, projected, self.qk_norm_rope(), mixed)?;
        let mixed = Input { prefetch: Some(prefetch.during_output), ..mixed.into() };
        self.project_output(builder, mixed, residual)
    }

    /// Returns the norms of heads and RoPE for the one-token attention kernel.
    fn qk_norm_rope(&self) -> QkNormRope<BufferId> {
        let RopeTables { cos, sin, .. } = self.rope.tables;
        QkNormRope {
            gammas: self.norms.map(|norm| norm.map(|norm| norm.gamma())),
            eps: self.eps,
            tables: [cos, sin],
            positions: self.rope.positions(),
        }
    }

    /// Whether the LoRA updates of queries, keys and values have the same rank and scale and do not
    /// use DoRA.
    fn updates_are_alike(&self) -> bool {
        let layers = [&self.q, &self.k, &self.v];
        if layers.iter().any(|layer| layer.has_dora_scales()) {
            return false;
        }
        let updates = layers.map(|layer| layer.lora);
        let mut sizes = updates.iter().flatten().map(|lora| (lora.rank, lora.scale.to_bits()));
        sizes.next().is_none_or(|first| sizes.all(|other| other == first))
    }

    /// Whether one launch computes the projections and RoPE for operands that are read in `dtypes`.
    fn has_qkv_rope(&self, dtypes: Dtypes) -> bool {
        let layers = [&self.q, &self.k, &self.v];
        let outputs = layers.iter().map(|layer| layer.outputs()).sum();
        dtypes == DType::Bf16.into()
            && self.norms.iter().all(Option::is_none)
            && QkvRopeFprop::HEAD_DIMS.contains(&self.core.shape().head_dim)
            && layers.iter().all(|layer| layer.joins_qkv_rope(outputs))
    }

    /// Returns the calls of the projections in these scopes, with new transients as outputs.
    fn calls<'a>(&'a self, scopes: &'a [String; 3], outputs: [DType; 3]) -> [Forward<'a>; 3] {
        let layers = [&self.q, &self.k, &self.v];
        std::array::from_fn(|at| {
            let (scope, output) = (Some(&*scopes[at]), Output::Transient(outputs[at]));
            Forward { scope, output, ..layers[at].call() }
        })
    }

    /// Appends projections and RoPE as one launch.
    fn project_in_one_launch(
        &self,
        builder: &mut Builder,
        x: Activation,
    ) -> Result<ProjectedTokens> {
        let scopes = ["q", "k", "v"].map(|part| self.scope(part));
        let calls = self.calls(&scopes, [DType::Bf16; 3]);
        let (rope, shape) = (self.rope.of_attention(builder), self.core.shape());
        let scope = self.scope("q, k and v");
        let [q, k, v] = linear::forward_qkv_rope(builder, x, &scope, calls, rope, shape)?;
        let saved = [q.saved, k.saved, v.saved];
        let operands = Operands { q: q.y, k: k.y, v: v.y };
        Ok(ProjectedTokens { operands, saved, norms: [None, None] })
    }

    /// Appends projections, norms of heads and RoPE of several tokens. The operands are in
    /// `dtypes`.
    fn project(&self, builder: &mut Builder, x: Input, dtypes: Dtypes) -> Result<ProjectedTokens> {
        if self.has_qkv_rope(dtypes) {
            return self.project_in_one_launch(builder, x.x);
        }
        let scopes = ["q", "k", "v"].map(|part| self.scope(part));
        let calls = self.calls(&scopes, [DType::F32, DType::F32, self.v.output_dtype(dtypes)]);
        let [q, k, v] = linear::forward(builder, x, calls)?;
        builder.scope(&*scopes[0]);
        let (q_out, q_norm) = norm_heads(builder, self.norms[0], q.y.f32()?)?;
        builder.scope(&*scopes[1]);
        let (k_out, k_norm) = norm_heads(builder, self.norms[1], k.y.f32()?)?;
        builder.scope(self.scope("rotation"));
        let heads = [q_out, k_out];
        let [rotated_q, rotated_k] =
            self.rope.rotate(builder, heads, [dtypes; 2], Rotation::Forward)?;
        let v_out = v.y.in_dtypes(builder, dtypes)?;
        let operands = Operands { q: rotated_q, k: rotated_k, v: v_out };
        let saved = [q.saved, k.saved, v.saved];
        Ok(ProjectedTokens { operands, saved, norms: [q_norm, k_norm] })
    }

    /// Appends the gradients of the weights and of the input. Returns gradients of the input whose
    /// sum is the gradient.
    pub(super) fn backward(
        &self,
        builder: &mut Builder,
        saved: Saved,
        grad_out: OutputGradient,
    ) -> Result<Vec<Activation>> {
        let (scope, dtypes) = (None, self.core.dtypes());
        let grad_out = self.o.backward(builder, saved.o, grad_out)?;
        builder.scope(self.scope("o backward"));
        let (layer, projection) = (&self.o.projection, saved.o.projection);
        let dtype = layer.grad_input_dtype(dtypes);
        let output = Backward { layer, scope, saved: projection, grad_out, dtype };
        let grad_mixed = linear::backward(builder, &[output])?[0];
        let grad_mixed = grad_mixed.in_dtypes(builder, dtypes)?;
        builder.scope(self.scope("attention backward"));
        // The norms of heads read f32.
        let dtypes = [self.q.grad_dtypes, self.k.grad_dtypes];
        let [q, k] = [0, 1].map(|at| self.norms[at].map_or(dtypes[at], |_| Dtypes::F32));
        let read = GradDtypes { q, k, v: self.v.grad_dtypes };
        let grads = self.core.backward(builder, saved.core, grad_mixed, read, &self.rope)?;
        let scopes = ["q", "k", "v"].map(|part| self.scope(&format!("{part} backward")));
        builder.scope(&*scopes[0]);
        let grad_q = self.norm_heads_backward(builder, saved, 0, grads.q, dtypes[0])?;
        builder.scope(&*scopes[1]);
        let grad_k = self.norm_heads_backward(builder, saved, 1, grads.k, dtypes[1])?;
        let layers =
            [(&self.q, saved.q, grad_q), (&self.k, saved.k, grad_k), (&self.v, saved.v, grads.v)];
        let calls: [_; 3] = std::array::from_fn(|at| {
            let (layer, saved, grad_out) = layers[at];
            let (scope, dtype) = (Some(&*scopes[at]), DType::Bf16);
            Backward { layer, scope, saved, grad_out: grad_out.into(), dtype }
        });
        linear::backward(builder, &calls)
    }

    /// Appends the gradient of the heads before their norm, in the `dtypes` in which it is read.
    /// Without a norm, `grad_out` has these dtypes already.
    fn norm_heads_backward(
        &self,
        builder: &mut Builder,
        saved: Saved,
        at: usize,
        grad_out: Activation,
        dtypes: Dtypes,
    ) -> Result<Activation> {
        let Some((norm, saved)) = self.norms[at].zip(saved.norms[at]) else { return Ok(grad_out) };
        let grad_out = grad_out.f32()?;
        let to = Activation::transient(builder, "grad_unnormed", grad_out.len(), dtypes);
        let grad_input = GradInput { to, accumulate: false, terms: None };
        norm.backward(builder, saved, &[grad_out.into()], grad_input)?;
        Ok(to)
    }
}

/// Appends the norm of every head of `x`, if the model has it.
fn norm_heads(
    builder: &mut Builder,
    norm: Option<Norm>,
    x: Slice<f32>,
) -> Result<(Slice<f32>, Option<norm::Saved>)> {
    let Some(norm) = norm else { return Ok((x, None)) };
    let (y, saved) = norm.forward(builder, x.into(), Dtypes::F32)?;
    Ok((y.x.f32()?, Some(saved)))
}
