//! Grouped-query attention with rotary positions: projections, what turns them, and what mixes
//! them.

use retrograph_kernels::ops::{
    LoraUpdate, QkNormRope, QkvProjection, Rope, RopeTensor, TensorView,
};
use retrograph_runtime::{BufferId, Slice};

use super::activation::{Activation, Forms};
use super::builder::{Builder, Gradient};
use super::cached::{self, Cache};
use super::linear::{self, Linear};
use super::mixing::{self, Operands};
use super::mlp;
use super::norm;
use super::residual::Residual;
use super::vector;
use crate::error::Result;
use crate::parameters::layer_name;

/// The rotary tables, `[positions, head_dim / 2]` each: the positions of a sequence, or those of
/// the cache where there is one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rotary {
    pub(super) cos: Slice<f32>,
    pub(super) sin: Slice<f32>,
}

impl Rotary {
    /// Declares the tables as external buffers.
    pub(super) fn declare(builder: &mut Builder) -> Self {
        let positions = builder.cache.as_ref().map_or(builder.config.seq, |cache| cache.form.room);
        let len = positions * builder.config.model.head_dim() / 2;
        let cos = builder.pass.external("rope.cos", len);
        let sin = builder.pass.external("rope.sin", len);
        Self { cos, sin }
    }

    /// Appends the rotation of queries and keys, or its inverse, which is its gradient. They are
    /// written in the forms in which they are read.
    fn rotate(
        self,
        builder: &mut Builder,
        [q, k]: [(Slice<f32>, Forms); 2],
        inverse: bool,
    ) -> Result<[Activation; 2]> {
        let config = &builder.config;
        let (batch, seq, head_dim) = (config.batch, config.seq, config.model.head_dim());
        let names = if inverse { ["grad_q", "grad_k"] } else { ["q", "k"] };
        let rotated = [(names[0], q), (names[1], k)]
            .map(|(name, (x, forms))| Activation::transient(builder, (name, x.len()), forms));
        let turn = |(x, _): (Slice<f32>, Forms), out: Activation| RopeTensor {
            x,
            out: out.written(),
            heads: x.len() / (batch * seq * head_dim),
        };
        let tensors = &[turn(q, rotated[0]), turn(k, rotated[1])];
        let Self { cos, sin } = self;
        let start = builder.cache.as_ref().map(|cache| cache.position);
        let positions = cos.len() / (head_dim / 2);
        let rope = Rope { tensors, cos, sin, start, positions, batch, seq, head_dim, inverse };
        builder.launch(rope.launch())?;
        Ok(rotated)
    }
}

/// What the backward pass needs from the forward pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saved {
    projections: [(Linear, linear::Saved); 4],
    /// Of the query and the key heads, where the model has norms there.
    norms: [Option<norm::Saved>; 2],
    /// `None` where a cache was attended to, which has no backward pass.
    mixing: Option<mixing::Saved>,
}

/// The projection `part` of `layer`.
fn projection(builder: &Builder, layer: usize, part: &str) -> Linear {
    let model = builder.config.model;
    let shape = match part {
        "q" => [model.hidden, model.q_width()],
        "o" => [model.q_width(), model.hidden],
        _ => [model.hidden, model.kv_width()],
    };
    Linear::new(builder, &layer_name(layer, &format!("self_attn.{part}_proj")), shape)
}

/// What the attention of `layer` reads first.
pub(super) fn first_weight(builder: &Builder, layer: usize) -> TensorView<BufferId> {
    projection(builder, layer, "q").weight.value.stored()
}

/// In which forms the attention of `layer` reads its input.
pub(super) fn forms(builder: &Builder, layer: usize) -> Forms {
    let forms = ["q", "k", "v"].map(|part| projection(builder, layer, part).forms(builder));
    forms.into_iter().fold(Forms::default(), Forms::and)
}

/// In which forms the gradient of what the attention of `layer` gives is read.
pub(super) fn grad_forms(builder: &Builder, layer: usize) -> Forms {
    projection(builder, layer, "o").forms(builder)
}

/// Appends the attention of `layer`, which is to be added to `residual`.
pub(super) fn forward(
    builder: &mut Builder,
    layer: usize,
    (x, residual): (Activation, Slice<f32>),
    rotary: Rotary,
) -> Result<(Residual, Option<Saved>)> {
    let o = projection(builder, layer, "o");
    if let Some(cache) = builder.cache.clone().filter(|_| builder.rows() == 1) {
        // While attention looks into the cache, memory has time for more than the output needs.
        let [gate, up] = mlp::first_weights(builder, layer);
        builder.upcoming = Some(up);
        let mixed = attend_alone(builder, (&cache, layer), x, rotary)?;
        builder.upcoming = Some(gate);
        builder.scope(format!("layer {layer}/o"));
        return Ok((o.forward_onto(builder, mixed.into(), residual)?.0, None));
    }
    let [q_layer, k_layer, v_layer] = ["q", "k", "v"].map(|part| projection(builder, layer, part));
    let names = ["q", "k", "v"].map(|part| format!("layer {layer}/{part}"));
    let layers = [(&q_layer, &*names[0]), (&k_layer, &*names[1]), (&v_layer, &*names[2])];
    let [(q, q_saved), (k, k_saved), (v, v_saved)] = linear::forward_each(builder, layers, x)?;
    builder.scope(&*names[0]);
    let (q, q_norm) = norm_heads(builder, &layer_name(layer, "self_attn.q_norm.weight"), q)?;
    builder.scope(&*names[1]);
    let (k, k_norm) = norm_heads(builder, &layer_name(layer, "self_attn.k_norm.weight"), k)?;
    builder.scope(format!("layer {layer}/rotation"));
    let whole = [(q, Forms::F32), (k, Forms::F32)];
    let [q, k] = rotary.rotate(builder, whole, false)?.map(Activation::floats);
    builder.scope(format!("layer {layer}/attention"));
    let (mixed, mixing) = match builder.cache.clone() {
        None => mixing::forward(builder, Operands { q, k, v }, o.forms(builder))
            .map(|(mixed, saved)| (mixed, Some(saved)))?,
        Some(cache) => {
            let scale = mixing::scale(builder.config.attention());
            let mixed = cached::attend(builder, (&cache, layer), [q, k, v], scale)?;
            (Activation::of(builder, mixed, o.forms(builder))?, None)
        }
    };
    builder.scope(format!("layer {layer}/o"));
    let (out, o_saved) = o.forward_onto(builder, mixed, residual)?;
    let projections = [(q_layer, q_saved), (k_layer, k_saved), (v_layer, v_saved), (o, o_saved)];
    let norms = [q_norm, k_norm];
    Ok((out, Some(Saved { projections, norms, mixing })))
}

/// Appends what one token mixes of a cache. Its projections are one launch, and attention does all
/// that is behind them.
fn attend_alone(
    builder: &mut Builder,
    (cache, layer): (&Cache, usize),
    x: Activation,
    rotary: Rotary,
) -> Result<Slice<f32>> {
    builder.scope(format!("layer {layer}/q, k and v"));
    let layers = ["q", "k", "v"].map(|part| projection(builder, layer, part));
    let parts: Vec<_> = layers.iter().map(|layer| layer.vector(builder, "out")).collect();
    let low_ranks = vector::project(builder, x, &parts)?;
    let projected = std::array::from_fn(|at| {
        let low = low_ranks[at].map(|low_rank| low_rank.t);
        let update = layers[at].low_rank_up().zip(low);
        let update = update.map(|((up, scale), low)| LoraUpdate { t: low, b: up, scale });
        QkvProjection { x: parts[at].y, lora: update }
    });
    let gamma = |part: &str| {
        let weight =
            builder.weight_if_any(&layer_name(layer, &format!("self_attn.{part}_norm.weight")));
        weight.map(|weight| weight.floats())
    };
    let (gammas, Rotary { cos, sin }) = (["q", "k"].map(gamma), rotary);
    let turned = QkNormRope {
        gammas,
        eps: builder.config.model.rms_norm_eps,
        tables: [cos, sin],
        positions: cos.len() / (builder.config.model.head_dim() / 2),
    };
    let scale = mixing::scale(builder.config.attention());
    builder.scope(format!("layer {layer}/attention"));
    cached::attend_alone(builder, (cache, layer), (projected, turned), scale)
}

/// Appends the norm of every head of `x` by the gain `name`, where the model has it.
fn norm_heads(
    builder: &mut Builder,
    name: &str,
    x: Slice<f32>,
) -> Result<(Slice<f32>, Option<norm::Saved>)> {
    let Some(gamma) = builder.weight_if_any(name) else { return Ok((x, None)) };
    let (y, saved) = norm::forward(builder, (x.into(), gamma), Forms::F32)?;
    Ok((y.floats(), Some(saved)))
}

/// Appends the gradient of what [`norm_heads`] took, in the forms in which it is read. Where there
/// is no norm, `grad_out` has these forms already.
fn norm_heads_backward(
    builder: &mut Builder,
    saved: Option<norm::Saved>,
    (grad_out, forms): (Activation, Forms),
) -> Result<Activation> {
    let Some(saved) = saved else { return Ok(grad_out) };
    let grad_out = grad_out.floats();
    let to = Activation::transient(builder, ("grad_unnormed", grad_out.len()), forms);
    norm::backward(builder, saved, &[grad_out], Gradient { to, accumulate: false })?;
    Ok(to)
}

/// Appends the gradients of the input of the attention of `layer`, which are to be added, and those
/// of its weights.
pub(super) fn backward(
    builder: &mut Builder,
    layer: usize,
    (saved, rotary): (Saved, Rotary),
    grad_out: Activation,
) -> Result<[Slice<f32>; 3]> {
    let [q, k, v, o] = saved.projections;
    builder.scope(format!("layer {layer}/o backward"));
    let grad_mixed = o.0.backward(builder, o.1, grad_out)?;
    builder.scope(format!("layer {layer}/attention backward"));
    let mixing = saved.mixing.expect("a pass that trains has no cache");
    let given = (grad_mixed, v.0.forms(builder));
    let (grads, grad_v) = mixing::backward(builder, mixing, given)?;
    let names = ["q", "k", "v"].map(|part| format!("layer {layer}/{part} backward"));
    let forms = [q.0.forms(builder), k.0.forms(builder)];
    let read = [0, 1].map(|at| (grads[at], saved.norms[at].map_or(forms[at], |_| Forms::F32)));
    builder.scope(format!("layer {layer}/rotation backward"));
    let [grad_q, grad_k] = rotary.rotate(builder, read, true)?;
    builder.scope(&*names[0]);
    let grad_q = norm_heads_backward(builder, saved.norms[0], (grad_q, forms[0]))?;
    builder.scope(&*names[1]);
    let grad_k = norm_heads_backward(builder, saved.norms[1], (grad_k, forms[1]))?;
    let layers = [(q, grad_q, &*names[0]), (k, grad_k, &*names[1]), (v, grad_v, &*names[2])];
    let [from_q, from_k, from_v] = linear::backward_each(builder, layers)?;
    Ok([from_k, from_v, from_q])
}
