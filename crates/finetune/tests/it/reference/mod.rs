//! The model in f64 on the host, written for reading: the loss of a batch, from weights by name.
//!
//! It follows the model cards and not the pass: every head by itself, every sequence by itself.

use std::collections::BTreeMap;

use retrograph_finetune::{Batch, Mode, ModelConfig, TrainingConfig};

/// Weights by name.
pub(crate) type Weights = BTreeMap<String, Vec<f64>>;

/// A token's vector.
type Row = Vec<f64>;

/// The model with its weights.
pub(crate) struct Reference<'a> {
    pub(crate) config: &'a TrainingConfig,
    pub(crate) weights: &'a Weights,
}

impl Reference<'_> {
    /// The mean cross-entropy of `batch`.
    pub(crate) fn loss(&self, batch: &Batch) -> f64 {
        let seq = self.config.seq;
        let sequences = batch.tokens.chunks(seq).zip(batch.targets.chunks(seq));
        let losses = sequences.flat_map(|(tokens, targets)| {
            let logits = self.logits(tokens);
            let loss = |(row, &target): (Row, &u32)| {
                let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = row.iter().map(|logit| (logit - largest).exp()).sum();
                largest + sum.ln() - row[target as usize]
            };
            logits.into_iter().zip(targets).map(loss).collect::<Vec<_>>()
        });
        losses.sum::<f64>() / self.config.rows() as f64
    }

    /// The logits of each position of one sequence.
    pub(crate) fn logits(&self, tokens: &[u32]) -> Vec<Row> {
        let model = self.model();
        let table = &self.weights["model.embed_tokens.weight"];
        let row = |&token: &u32| table[token as usize * model.hidden..][..model.hidden].to_vec();
        let mut stream: Vec<Row> = tokens.iter().map(row).collect();
        for layer in 0..model.layers {
            let at = format!("model.layers.{layer}.");
            let normed = self.norm_all(&stream, &format!("{at}input_layernorm.weight"));
            add(&mut stream, &self.attention(&at, &normed));
            let normed = self.norm_all(&stream, &format!("{at}post_attention_layernorm.weight"));
            let branch: Vec<Row> = normed.iter().map(|x| self.mlp(&at, x)).collect();
            add(&mut stream, &branch);
        }
        let head = if model.tied { table } else { &self.weights["lm_head.weight"] };
        let normed = self.norm_all(&stream, "model.norm.weight");
        normed.iter().map(|x| product(head, x)).collect()
    }

    fn model(&self) -> &ModelConfig {
        &self.config.model
    }

    fn norm_all(&self, rows: &[Row], gain: &str) -> Vec<Row> {
        rows.iter().map(|row| self.norm(row, gain)).collect()
    }

    fn norm(&self, x: &[f64], gain: &str) -> Row {
        let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        let root = (mean + f64::from(self.model().rms_norm_eps)).sqrt();
        x.iter().zip(&self.weights[gain]).map(|(x, gain)| x / root * gain).collect()
    }

    /// A projection with its bias and low-rank update, where it has them.
    fn project(&self, name: &str, x: &[f64]) -> Row {
        let mut y = product(&self.weights[&format!("{name}.weight")], x);
        if let Some(bias) = self.weights.get(&format!("{name}.bias")) {
            y.iter_mut().zip(bias).for_each(|(y, bias)| *y += bias);
        }
        let low = |kind: &str| self.weights.get(&format!("{name}.lora_{kind}.weight"));
        if let (Mode::Lora(lora), Some(a), Some(b)) = (self.config.mode, low("A"), low("B")) {
            let update = product(b, &product(a, x));
            let scale = f64::from(lora.scale());
            y.iter_mut().zip(update).for_each(|(y, update)| *y += scale * update);
        }
        y
    }

    fn mlp(&self, at: &str, x: &[f64]) -> Row {
        let gate = self.project(&format!("{at}mlp.gate_proj"), x);
        let up = self.project(&format!("{at}mlp.up_proj"), x);
        let inner: Row = gate.iter().zip(up).map(|(g, up)| g / (1.0 + (-g).exp()) * up).collect();
        self.project(&format!("{at}mlp.down_proj"), &inner)
    }

    fn attention(&self, at: &str, rows: &[Row]) -> Vec<Row> {
        let model = self.model();
        let width = model.head_dim();
        let heads = |part: &str| -> Vec<Vec<Row>> {
            let name = format!("{at}self_attn.{part}_proj");
            let gain = format!("{at}self_attn.{part}_norm.weight");
            let head = |(position, head): (usize, &[f64])| match part {
                "v" => head.to_vec(),
                _ if model.qk_norm => self.rotate(position, &self.norm(head, &gain)),
                _ => self.rotate(position, head),
            };
            let token = |(position, x): (usize, &Row)| {
                let y = self.project(&name, x);
                y.chunks(width).map(|one| head((position, one))).collect()
            };
            rows.iter().enumerate().map(token).collect()
        };
        let (q, k, v) = (heads("q"), heads("k"), heads("v"));
        let group = model.heads / model.kv_heads;
        let mixed = (0..rows.len()).map(|position| {
            let head = |head: usize| {
                let seen =
                    (0..=position).map(|past| dot(&q[position][head], &k[past][head / group]));
                let scores: Row = seen.map(|score| score / (width as f64).sqrt()).collect();
                let sum: f64 = scores.iter().map(|score| score.exp()).sum();
                let mut out = vec![0.0; width];
                for (past, score) in scores.iter().enumerate() {
                    let value = v[past][head / group].iter();
                    out.iter_mut().zip(value).for_each(|(o, v)| *o += score.exp() / sum * v);
                }
                out
            };
            (0..model.heads).flat_map(head).collect::<Row>()
        });
        mixed.map(|x| self.project(&format!("{at}self_attn.o_proj"), &x)).collect()
    }

    /// The rotation of pairs (i, i + half) by the angles of `position`.
    fn rotate(&self, position: usize, x: &[f64]) -> Row {
        let half = x.len() / 2;
        let angles = self.model().rope_frequencies();
        let turned = |i: usize| {
            let (sin, cos) = (position as f64 * angles[i % half]).sin_cos();
            let other = if i < half { -x[i + half] } else { x[i - half] };
            x[i] * cos + other * sin
        };
        (0..x.len()).map(turned).collect()
    }
}

fn add(stream: &mut [Row], branch: &[Row]) {
    for (row, branch) in stream.iter_mut().zip(branch) {
        row.iter_mut().zip(branch).for_each(|(x, y)| *x += y);
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// A matrix `[outputs, inputs]` times a vector.
fn product(w: &[f64], x: &[f64]) -> Row {
    w.chunks(x.len()).map(|row| dot(row, x)).collect()
}
