//! Fused attention in training: the head sizes it supports; equal steps in both precisions, with
//! recomputed layers and with micro-batches.

use retrograph_finetune::model::{GradientOwner, StepOptions, StepPass};
use retrograph_finetune::parameters::Parameter;
use retrograph_finetune::{
    Mode, ModelConfig, Plan, Precision, Source, TrainerOptions, TrainingConfig,
};
use retrograph_kernels::ops::SOFTMAX;
use retrograph_runtime::Reuse;
use retrograph_test_support::with;

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

const BOTH: [Precision; 2] = [Precision::F32, Precision::BF16];

#[test]
fn a_step_holds_no_probabilities() {
    for precision in BOTH {
        // The fused kernels do not support heads of 6 elements.
        let [fused, stored] = [8, 6].map(|width| {
            let config = with_heads(width, precision);
            TrainingConfig { seq: 160, ..config }
        });
        let scores = fused.batch * fused.model.heads * fused.seq * fused.seq;
        let holds_scores = |config: &TrainingConfig| {
            step(config).pass.buffers().any(|(_, buffer)| buffer.len() >= scores)
        };
        assert!(holds_scores(&stored), "no other buffer is as long as the scores");
        assert!(!holds_scores(&fused));
        let bytes = |config| step(config).pass.plan_with(Reuse::Full).peak_bytes();
        assert!(bytes(&fused) < bytes(&stored) / 2, "{} and {}", bytes(&fused), bytes(&stored));
    }
}

#[test]
fn unsupported_head_sizes_store_probabilities() {
    // In f32 and in bf16: heads are whole vectors of 16 bytes.
    for (width, fused) in [
        (4, [true, false]),
        (6, [false; 2]),
        (8, [true; 2]),
        (64, [true; 2]),
        (128, [true; 2]),
        (130, [false; 2]),
    ] {
        for (precision, fused) in BOTH.into_iter().zip(fused) {
            let config = with_heads(width, precision);
            assert_eq!(config.fuses_attention(), fused, "{width}");
            let requirements = step(&config).pass.requirements();
            assert_eq!(requirements.kernels().contains(&&SOFTMAX), !fused, "{width}");
        }
    }
}

#[test]
fn sequences_are_as_long_as_activations_allow() {
    for precision in BOTH {
        let long = |width| {
            let config = with_heads(width, precision);
            TrainingConfig { batch: 1, seq: 1 << 16, ..config }
        };
        long(8).validate().unwrap();
        long(6).validate().unwrap_err();
    }
}

/// The gradients by name, of one step without clipping.
fn gradients(mut config: TrainingConfig, mut step: StepOptions) -> Vec<(String, Vec<f32>)> {
    config.optimizer.max_norm = f32::MAX;
    step.gradients = GradientOwner::External;
    let plan = Plan::new(&config, with(TrainerOptions::default(), |it| it.step = step)).unwrap();
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
        let [rounded, single] = [Precision::BF16, Precision::F32]
            .map(|precision| gradients(with_heads(width, precision), StepOptions::default()));
        let (furthest, name) = furthest(&rounded, &single);
        // A factor has a relative error of at most 2⁻⁸, and the errors of a dozen consecutive
        // products are independent. Gradients of biases are sums over tokens that cancel in part.
        assert!(furthest < 0.05, "heads of {width}: {name} is {furthest} away");
        assert!(furthest > 1e-4, "nothing was rounded");
    }
}

#[test]
fn recomputation_and_micro_batches_change_no_bit() {
    // Sums over the batch are rounded in another order, so their bf16 values may also differ.
    for (precision, most) in [(Precision::F32, 1e-5), (Precision::BF16, 1e-3)] {
        let trained = |recompute, verify| {
            let mut options = TrainerOptions::default();
            options.step.recompute = recompute;
            options.verify = verify;
            let mut trainer = trainer(&device(), &long(precision), options);
            train(&mut trainer, 3);
            assert_eq!(trainer.verified_steps(), if verify { 3 } else { 0 });
            (trainer.losses().to_vec(), bits(&trainer))
        };
        assert_eq!(trained(false, false), trained(true, true));
        let whole = gradients(long(precision), StepOptions::default());
        let mut step = StepOptions::default();
        step.micro_batch = Some(1);
        step.recompute = true;
        let (furthest, name) = furthest(&gradients(long(precision), step), &whole);
        assert!(furthest < most, "{name} in parts is {furthest} away");
    }
}
