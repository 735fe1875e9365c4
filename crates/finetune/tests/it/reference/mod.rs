//! The model in f64 on the host, written for reading: the loss of a batch, from weights by name.
//!
//! It follows the model cards and not the pass: head by head, sequence by sequence.

use std::collections::BTreeMap;
use std::f64::consts::FRAC_2_PI;

use retrograph_finetune::{
    Batch, GatedActivation, IGNORED_TARGET, LoraModule, Mode, ModelConfig, TrainingConfig,
};
use retrograph_test_support::reference::{dot, product};

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
    /// The mean cross-entropy of `batch`, document by document.
    pub(crate) fn loss(&self, batch: &Batch) -> f64 {
        let mut losses = Vec::new();
        for (tokens, targets) in self.documents(batch) {
            for (row, target) in self.logits(&tokens).into_iter().zip(targets) {
                if target != IGNORED_TARGET {
                    let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let sum: f64 = row.iter().map(|logit| (logit - largest).exp()).sum();
                    losses.push(largest + sum.ln() - row[target as usize]);
                }
            }
        }
        losses.iter().sum::<f64>() / losses.len() as f64
    }

    /// Tokens and targets of each document: a sequence, or less if the batch is packed.
    fn documents(&self, batch: &Batch) -> Vec<(Vec<u32>, Vec<u32>)> {
        let mut documents: Vec<(Vec<u32>, Vec<u32>)> = Vec::new();
        for (index, (&token, &target)) in batch.tokens.iter().zip(&batch.targets).enumerate() {
            let starts = match &batch.positions {
                Some(positions) => positions[index] == 0,
                None => index % self.config.seq == 0,
            };
            if starts {
                documents.push((Vec::new(), Vec::new()));
            }
            let (tokens, targets) = documents.last_mut().expect("the first position is 0");
            tokens.push(token);
            targets.push(target);
        }
        documents
    }

    /// The logits of each position of one document.
    pub(crate) fn logits(&self, tokens: &[u32]) -> Vec<Row> {
        let model = self.model();
        let table = &self.weights["model.embed_tokens.weight"];
        let scale = if model.scaled_embedding { (model.hidden as f64).sqrt() } else { 1.0 };
        let row = |&token: &u32| -> Row {
            let row = &table[token as usize * model.hidden..][..model.hidden];
            row.iter().map(|value| scale * value).collect()
        };
        let mut stream: Vec<Row> = tokens.iter().map(row).collect();
        for layer in 0..model.layers {
            let at = format!("model.layers.{layer}.");
            let normed = self.norm_all(&stream, &format!("{at}input_layernorm.weight"));
            let after_attention = format!("{at}post_attention_layernorm.weight");
            let mut branch = self.attention(layer, &normed);
            let mut before_mlp = after_attention.clone();
            if model.post_norms {
                branch = self.norm_all(&branch, &after_attention);
                before_mlp = format!("{at}pre_feedforward_layernorm.weight");
            }
            add(&mut stream, &branch);
            let normed = self.norm_all(&stream, &before_mlp);
            let mut branch: Vec<Row> = normed.iter().map(|x| self.mlp(&at, x)).collect();
            if model.post_norms {
                branch = self.norm_all(&branch, &format!("{at}post_feedforward_layernorm.weight"));
            }
            add(&mut stream, &branch);
        }
        let head = if model.tie_word_embeddings { table } else { &self.weights["lm_head.weight"] };
        let normed = self.norm_all(&stream, "model.norm.weight");
        let capped = |x: &Row| -> Row {
            product(head, x).into_iter().map(|logit| cap(logit, model.logit_softcap)).collect()
        };
        normed.iter().map(capped).collect()
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

    /// A projection with its bias and low-rank update, if it has them.
    fn project(&self, name: &str, x: &[f64]) -> Row {
        let mut y = product(&self.weights[&format!("{name}.weight")], x);
        if let Some(bias) = self.weights.get(&format!("{name}.bias")) {
            y.iter_mut().zip(bias).for_each(|(y, bias)| *y += bias);
        }
        let low = |kind: &str| self.weights.get(&format!("{name}.lora_{kind}.weight"));
        if let (Mode::Lora(lora), Some(a), Some(b)) = (self.config.mode, low("A"), low("B")) {
            let update = product(b, &product(a, x));
            let modules = lora.modules(self.model());
            let is_named =
                |one: &LoraModule| LoraModule { fused: false, ..*one }.to_string() == name;
            let module = modules.into_iter().find(is_named).unwrap();
            let scale = f64::from(lora.of(module).unwrap().scale());
            y.iter_mut().zip(update).for_each(|(y, update)| *y += scale * update);
        }
        y
    }

    fn mlp(&self, at: &str, x: &[f64]) -> Row {
        let gate = self.project(&format!("{at}mlp.gate_proj"), x);
        let up = self.project(&format!("{at}mlp.up_proj"), x);
        let activation = |x: f64| match self.model().activation {
            GatedActivation::Silu => x / (1.0 + (-x).exp()),
            GatedActivation::GeluTanh => {
                0.5 * x * (1.0 + (FRAC_2_PI.sqrt() * (x + 0.044715 * x.powi(3))).tanh())
            }
        };
        let inner: Row = gate.iter().zip(up).map(|(&gate, up)| activation(gate) * up).collect();
        self.project(&format!("{at}mlp.down_proj"), &inner)
    }

    fn attention(&self, layer: usize, rows: &[Row]) -> Vec<Row> {
        let (model, at) = (self.model(), format!("model.layers.{layer}."));
        let window = model.sliding_window.filter(|window| window.covers(layer));
        let local = model.local_rope_theta.filter(|_| window.is_some());
        let rotate = |position: usize, x: &[f64]| self.rotate((position, local), x);
        let width = model.head_dim();
        let rotates = model.no_rope_interval.is_none_or(|every| !(layer + 1).is_multiple_of(every));
        let heads = |part: &str| -> Vec<Vec<Row>> {
            let name = format!("{at}self_attn.{part}_proj");
            let gain = format!("{at}self_attn.{part}_norm.weight");
            let head = |(position, head): (usize, &[f64])| match part {
                "v" => head.to_vec(),
                _ if !rotates => head.to_vec(),
                _ if model.qk_norm => rotate(position, &self.norm(head, &gain)),
                _ => rotate(position, head),
            };
            let token = |(position, x): (usize, &Row)| {
                let y = self.project(&name, x);
                y.chunks(width).map(|one| head((position, one))).collect()
            };
            rows.iter().enumerate().map(token).collect()
        };
        let (q, k, v) = (heads("q"), heads("k"), heads("v"));
        let group = model.heads / model.kv_heads;
        let scalar = model.query_pre_attn_scalar.unwrap_or(width as f64);
        let mixed = (0..rows.len()).map(|position| {
            let head = |head: usize| {
                let seen = match window {
                    Some(window) => {
                        (position + 1).saturating_sub(window.size as usize)..position + 1
                    }
                    None => 0..position + 1,
                };
                let products =
                    seen.clone().map(|past| dot(&q[position][head], &k[past][head / group]));
                let scores: Row = products
                    .map(|score| cap(score / scalar.sqrt(), model.attention_softcap))
                    .collect();
                let sum: f64 = scores.iter().map(|score| score.exp()).sum();
                let mut out = vec![0.0; width];
                for (past, score) in seen.zip(&scores) {
                    let value = v[past][head / group].iter();
                    out.iter_mut().zip(value).for_each(|(o, v)| *o += score.exp() / sum * v);
                }
                out
            };
            (0..model.heads).flat_map(head).collect::<Row>()
        });
        mixed.map(|x| self.project(&format!("{at}self_attn.o_proj"), &x)).collect()
    }

    /// The rotation of pairs (i, i + half) by the angles of `position`, with a base of its own if
    /// there is one.
    fn rotate(&self, (position, theta): (usize, Option<f64>), x: &[f64]) -> Row {
        let half = x.len() / 2;
        let angles = match theta {
            Some(theta) => (0..half).map(|i| theta.powf(-(i as f64) / half as f64)).collect(),
            None => self.model().rope_frequencies(self.config.seq),
        };
        let turned = |i: usize| {
            // Pairs without a frequency stay as they are.
            let angle = angles.get(i % half).map_or(0.0, |angle| position as f64 * angle);
            let (sin, cos) = angle.sin_cos();
            let other = if i < half { -x[i + half] } else { x[i - half] };
            x[i] * cos + other * sin
        };
        (0..x.len()).map(turned).collect()
    }
}

fn cap(x: f64, cap: Option<f32>) -> f64 {
    let Some(cap) = cap.map(f64::from) else { return x };
    cap * (x / cap).tanh()
}

fn add(stream: &mut [Row], branch: &[Row]) {
    for (row, branch) in stream.iter_mut().zip(branch) {
        row.iter_mut().zip(branch).for_each(|(x, y)| *x += y);
    }
}
