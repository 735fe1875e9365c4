//! Attention in bf16, which stores no probabilities: what it takes, and that steps agree with
//! those in f32, with layers that are computed again, and in parts.

use retrograph_finetune::model::{GradientHome, StepOptions, StepPass};
use retrograph_finetune::parameters::Parameter;
use retrograph_finetune::{
    Mode, ModelConfig, Plan, Precision, Source, TrainerOptions, TrainingConfig,
};
use retrograph_runtime::Reuse;

use crate::device::device;
use crate::golden::{self, distance, weights};
use crate::models::{bits, config, train, trainer};

/// Sequences of more than one tile of 64 tokens, with two query heads for each key head.
fn long(precision: Precision) -> TrainingConfig {
    TrainingConfig { precision, seq: 70, ..config(Mode::Full, 3) }
}

/// Heads of `width` elements.
fn with_heads(width: usize, precision: Precision) -> TrainingConfig {
    let config = long(precision);
    TrainingConfig { model: ModelConfig { head_dim: Some(width), ..config.model }, ..config }
}

fn step(config: &TrainingConfig) -> StepPass {
    StepPass::new(config, StepOptions::default()).unwrap()
}

#[test]
fn a_step_in_bf16_holds_no_probabilities() {
    let config = |precision| TrainingConfig { seq: 160, ..long(precision) };
    let (brain, single) = (config(Precision::BF16), config(Precision::F32));
    let scores = brain.batch * brain.model.heads * brain.seq * brain.seq;
    let holds_scores = |config: &TrainingConfig| {
        step(config).pass.buffers().any(|(_, buffer)| buffer.len() >= scores)
    };
    assert!(holds_scores(&single), "the sizes of this test tell scores from the rest");
    assert!(!holds_scores(&brain));
    let bytes = |config| step(config).pass.plan_with(Reuse::Full).peak_bytes();
    assert!(bytes(&brain) < bytes(&single) / 2, "{} and {}", bytes(&brain), bytes(&single));
}

#[test]
fn heads_that_no_kernel_fits_keep_their_probabilities() {
    for (width, fused) in [(4, true), (6, false), (64, true), (128, true), (130, false)] {
        let config = with_heads(width, Precision::BF16);
        assert_eq!(config.fuses_attention(), fused, "{width}");
        assert!(!with_heads(width, Precision::F32).fuses_attention());
        let pass = step(&config).pass;
        let probs = pass.buffers().any(|(_, buffer)| buffer.name().ends_with("/probs"));
        assert_eq!(probs, !fused, "{width}");
    }
}

#[test]
fn sequences_are_as_long_as_activations_allow() {
    let long = TrainingConfig { batch: 1, seq: 1 << 16, ..long(Precision::BF16) };
    long.validate().unwrap();
    TrainingConfig { precision: Precision::F32, ..long }.validate().unwrap_err();
}

/// The gradients by name, of one step without clipping.
fn gradients(mut config: TrainingConfig, step: StepOptions) -> Vec<(String, Vec<f32>)> {
    config.optimizer.max_norm = f32::MAX;
    let step = StepOptions { gradients: GradientHome::External, ..step };
    let plan = Plan::new(&config, TrainerOptions { step, ..TrainerOptions::default() }).unwrap();
    let mut values = |parameter: &Parameter| Ok(weights(parameter));
    let source = Source::Values(&mut values);
    let mut trainer = plan.start(&device().modules(), source, &mut |_| ()).unwrap();
    trainer.step(&golden::batch(&config, 0)).unwrap();
    trainer.gradients().unwrap()
}

/// The largest distance of the gradients of a parameter, by its name.
fn furthest(found: &[(String, Vec<f32>)], expected: &[(String, Vec<f32>)]) -> (f64, String) {
    let pairs = found.iter().zip(expected).map(|((name, found), (_, expected))| {
        let expected: Vec<f64> = expected.iter().map(|&value| value.into()).collect();
        (distance(found, &expected), name.clone())
    });
    pairs.max_by(|(a, _), (b, _)| a.total_cmp(b)).expect("there are parameters")
}

#[test]
fn gradients_in_bf16_stay_near_those_in_f32() {
    for width in [4, 20] {
        let [brain, single] = [Precision::BF16, Precision::F32]
            .map(|precision| gradients(with_heads(width, precision), StepOptions::default()));
        let (furthest, name) = furthest(&brain, &single);
        // A factor is off by at most 2⁻⁸ of itself, and the errors of a dozen products behind each
        // other are independent. Gradients of biases are sums over tokens that cancel in part.
        assert!(furthest < 0.05, "heads of {width}: {name} is {furthest} away");
        assert!(furthest > 1e-4, "nothing was rounded");
    }
}

#[test]
fn layers_are_computed_again_and_batches_cut_without_a_difference() {
    let trained = |recompute, verify| {
        let step = StepOptions { recompute, ..StepOptions::default() };
        let options = TrainerOptions { step, verify, ..TrainerOptions::default() };
        let mut trainer = trainer(&device(), &long(Precision::BF16), options);
        train(&mut trainer, 3);
        assert_eq!(trainer.verified_steps(), if verify { 3 } else { 0 });
        (trainer.losses().to_vec(), bits(&trainer))
    };
    assert_eq!(trained(false, false), trained(true, true));
    let whole = gradients(long(Precision::BF16), StepOptions::default());
    let step = StepOptions { micro_batch: Some(1), recompute: true, ..StepOptions::default() };
    let (furthest, name) = furthest(&gradients(long(Precision::BF16), step), &whole);
    // Sums over the batch are rounded elsewhere, and so may be what bf16 makes of them.
    assert!(furthest < 1e-3, "{name} in parts is {furthest} away");
}
