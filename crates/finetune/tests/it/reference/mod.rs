//! The model in f64 on the host, written for reading: the loss of a batch, from weights by name.
//!
//! It follows the model cards and not the pass: head by head, sequence by sequence.

use std::collections::BTreeMap;

use retrograph_finetune::{
    Batch, GatedActivation, IGNORED_TARGET, LoraModule, Mode, ModelConfig, TrainingConfig,
};
use retrograph_test_support::model::{
    Head, Row, add_rows, add_to_rows, cap, cross_entropy, gated, gelu_tanh, products, rms_norm,
    rotated, silu,
};

/// Weights by name.
pub(crate) type Weights = BTreeMap<String, Vec<f64>>;

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
            for (row, target) in self.logits(&tokens).iter().zip(targets) {
                if target != IGNORED_TARGET {
                    losses.push(cross_entropy(row, target as usize));
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
            add_rows(&mut stream, 1.0, &branch);
            let normed = self.norm_all(&stream, &before_mlp);
            let mut branch = self.mlp(&at, &normed);
            if model.post_norms {
                branch = self.norm_all(&branch, &format!("{at}post_feedforward_layernorm.weight"));
            }
            add_rows(&mut stream, 1.0, &branch);
        }
        let head = if model.tie_word_embeddings { table } else { &self.weights["lm_head.weight"] };
        let normed = self.norm_all(&stream, "model.norm.weight");
        let mut logits = products(head, &normed);
        if let Some(softcap) = model.logit_softcap {
            let capped = |logit: &mut f64| *logit = cap(*logit, Some(softcap.into()));
            logits.iter_mut().flatten().for_each(capped);
        }
        logits
    }

    fn model(&self) -> &ModelConfig {
        &self.config.model
    }

    fn norm_all(&self, rows: &[Row], gain: &str) -> Vec<Row> {
        rows.iter().map(|row| self.norm(row, gain)).collect()
    }

    fn norm(&self, x: &[f64], gain: &str) -> Row {
        rms_norm(x, &self.weights[gain], self.model().rms_norm_eps.into())
    }

    /// A projection with its bias and low-rank update, if it has them.
    fn project(&self, name: &str, rows: &[Row]) -> Vec<Row> {
        let mut y = products(&self.weights[&format!("{name}.weight")], rows);
        if let Some(bias) = self.weights.get(&format!("{name}.bias")) {
            add_to_rows(&mut y, bias);
        }
        let low = |kind: &str| self.weights.get(&format!("{name}.lora_{kind}.weight"));
        if let (Mode::Lora(lora), Some(a), Some(b)) = (self.config.mode, low("A"), low("B")) {
            let modules = lora.modules(self.model());
            let is_named =
                |one: &LoraModule| LoraModule { fused: false, ..*one }.to_string() == name;
            let module = modules.into_iter().find(is_named).unwrap();
            let scale = f64::from(lora.of(module).unwrap().scale());
            add_rows(&mut y, scale, &products(b, &products(a, rows)));
        }
        y
    }

    fn mlp(&self, at: &str, rows: &[Row]) -> Vec<Row> {
        let gate = self.project(&format!("{at}mlp.gate_proj"), rows);
        let up = self.project(&format!("{at}mlp.up_proj"), rows);
        let activation = match self.model().activation {
            GatedActivation::Silu => silu,
            GatedActivation::GeluTanh => gelu_tanh,
        };
        self.project(&format!("{at}mlp.down_proj"), &gated(&gate, &up, activation))
    }

    fn attention(&self, layer: usize, rows: &[Row]) -> Vec<Row> {
        let (model, at) = (self.model(), format!("model.layers.{layer}."));
        let window = model.sliding_window.filter(|window| window.covers(layer));
        let frequencies = self.frequencies(model.local_rope_theta.filter(|_| window.is_some()));
        let width = model.head_dim();
        let rotates = model.no_rope_interval.is_none_or(|every| !(layer + 1).is_multiple_of(every));
        let project = |part: &str| self.project(&format!("{at}self_attn.{part}_proj"), rows);
        // Queries or keys, head by head.
        let heads = |part: &str| -> Vec<Row> {
            let gain = format!("{at}self_attn.{part}_norm.weight");
            let head = |position: usize, head: &[f64]| match model.qk_norm {
                _ if !rotates => head.to_vec(),
                true => rotated(&self.norm(head, &gain), position, &frequencies),
                false => rotated(head, position, &frequencies),
            };
            let token = |(position, y): (usize, Row)| {
                y.chunks(width).flat_map(|one| head(position, one)).collect()
            };
            project(part).into_iter().enumerate().map(token).collect()
        };
        let (q, k, v) = (heads("q"), heads("k"), project("v"));
        let group = model.heads / model.kv_heads;
        let scale = 1.0 / model.query_pre_attn_scalar.unwrap_or(width as f64).sqrt();
        let softcap = model.attention_softcap.map(f64::from);
        let mixed = q.iter().enumerate().map(|(position, queries)| {
            let seen = match window {
                Some(window) => (position + 1).saturating_sub(window.size as usize)..position + 1,
                None => 0..position + 1,
            };
            let head = |(number, query): (usize, &[f64])| {
                let head = Head { scale, cap: softcap, start: number / group * width };
                head.attend(query, &k[seen.clone()], &v[seen.clone()])
            };
            queries.chunks(width).enumerate().flat_map(head).collect::<Row>()
        });
        self.project(&format!("{at}self_attn.o_proj"), &mixed.collect::<Vec<_>>())
    }

    /// The angles between neighboring positions, with a base of its own if there is one.
    fn frequencies(&self, theta: Option<f64>) -> Vec<f64> {
        let half = self.model().head_dim() / 2;
        match theta {
            Some(theta) => (0..half).map(|i| theta.powf(-(i as f64) / half as f64)).collect(),
            None => self.model().rope_frequencies(self.config.seq),
        }
    }
}
