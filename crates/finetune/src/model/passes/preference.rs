//! The DPO objective: the reference model, which is the model without its adapter, and the loss of
//! pairs of sequences.

use std::ops::Range;

use retrograph_kernels::ops::{LogRatios, Preference};
use retrograph_runtime::Slice;

use crate::config::DpoConfig;
use crate::error::Result;
use crate::model::builder::Builder;
use crate::model::layers::{Model, Objective, PassConfig, RopeTables};
use crate::spec::ModelSpec;

/// Number of metrics that a step with preferences adds: the mean rewards of chosen and of rejected
/// sequences, and the fraction of pairs whose chosen reward is larger.
pub(super) const PREFERENCE_METRICS: usize = 3;

/// The objective of the pairs of a batch.
#[derive(Debug)]
pub(super) struct Preferences {
    reference: Model,
    config: DpoConfig,
    seq: usize,
    /// Of each pair.
    losses: Slice<f32>,
    rewards: [Slice<f32>; 2],
    correct: Slice<f32>,
}

impl Preferences {
    /// Declares the results of all pairs of `rows` tokens, and resolves the reference for
    /// micro-batches of `config`.
    pub(super) fn new(
        builder: &mut Builder,
        spec: &ModelSpec,
        config: &PassConfig,
        tables: RopeTables,
        preference: DpoConfig,
        losses: Slice<f32>,
    ) -> Self {
        let without_adapter = PassConfig { lora: None, ..*config };
        let reference = Model::new(builder, spec, &without_adapter, tables);
        builder.scope("preference");
        let pairs = losses.len();
        let rewards = ["chosen", "rejected"].map(|name| builder.transient(name, pairs));
        let correct = builder.transient("correct", pairs);
        Self { reference, config: preference, seq: config.seq, losses, rewards, correct }
    }

    /// Appends the reference model's losses of the tokens of a micro-batch.
    pub(super) fn reference(
        &self,
        builder: &mut Builder,
        tokens: Slice<u32>,
        objective: Objective,
    ) -> Result<Slice<f32>> {
        let before = builder.prefix(String::new());
        builder.prefix(format!("{before}reference "));
        let losses = builder.transient("per_token", objective.losses.len());
        self.reference.losses(builder, tokens, Objective { losses, ..objective })?;
        builder.prefix(before);
        Ok(losses)
    }

    /// Appends loss and rewards of the pairs in the rows `rows` of the step, from the token losses
    /// of the trained model and of the reference. Returns for each sequence the factor of the
    /// gradients of its losses.
    pub(super) fn pairs(
        &self,
        builder: &mut Builder,
        [policy, reference]: [Slice<f32>; 2],
        rows: Range<usize>,
    ) -> Result<Slice<f32>> {
        let (seq, two) = (self.seq, 2 * self.seq);
        let pairs = rows.start / two..rows.end / two;
        builder.scope("preference");
        let ratios = builder.transient_of::<f64>("ratios", 2 * pairs.len());
        let weights = builder.transient("weights", 2 * pairs.len());
        builder.launch(LogRatios { policy, reference, ratios, seq }.launch())?;
        let part = |all: Slice<f32>| all.slice(pairs.clone());
        let DpoConfig { beta, label_smoothing } = self.config;
        let preference = Preference {
            ratios,
            losses: part(self.losses),
            rewards: self.rewards.map(part),
            correct: part(self.correct),
            weights,
            beta,
            label_smoothing,
        };
        builder.launch(preference.launch())?;
        Ok(weights)
    }

    /// The losses of all pairs, then the values whose means are the [`PREFERENCE_METRICS`].
    pub(super) fn results(&self) -> [Slice<f32>; 1 + PREFERENCE_METRICS] {
        let [chosen, rejected] = self.rewards;
        [self.losses, chosen, rejected, self.correct]
    }
}
