//! Ignored targets do not change loss and gradients.

use retrograph_finetune::model::GradientOwner;
use retrograph_finetune::parameters::Parameter;
use retrograph_finetune::{
    Batch, IGNORED_TARGET, Mode, Plan, Source, StepMetrics, TrainerOptions, TrainingConfig,
};

use crate::device::device;
use crate::golden::{batch, config, distance, weights};

/// Loss, norm and gradients of a step of the golden model on `batch`.
fn step(config: &TrainingConfig, batch: &Batch) -> (StepMetrics, Vec<(String, Vec<f32>)>) {
    let options =
        TrainerOptions { step: GradientOwner::External.into(), ..TrainerOptions::default() };
    let plan = Plan::new(config, options).unwrap();
    let mut values = |parameter: &Parameter| Ok(weights(parameter));
    let source = Source::Values(&mut values);
    let mut trainer = plan.start(&device().modules(), source, &mut |_| ()).unwrap();
    let metrics = trainer.step(batch).unwrap();
    (metrics, trainer.gradients().unwrap())
}

/// The golden model without clipping, so that the gradients are unchanged.
fn unclipped(batch: usize) -> TrainingConfig {
    let mut config = TrainingConfig { batch, ..config(Mode::Full) };
    config.optimizer.max_norm = f32::MAX;
    config
}

#[test]
fn a_sequence_without_targets_changes_neither_loss_nor_gradients() {
    let one = batch(&unclipped(1), 0);
    let seq = one.tokens.len();
    let mut two = batch(&unclipped(2), 0);
    assert_eq!(two.tokens[..seq], one.tokens);
    two.targets[seq..].fill(IGNORED_TARGET);
    assert_eq!((one.counted(), two.counted()), (seq as u32, seq as u32));
    let (expected, gradients) = step(&unclipped(1), &one);
    let (found, with_more) = step(&unclipped(2), &two);
    let close = |a: f32, b: f32| (a - b).abs() <= 1e-6 * b.abs();
    assert!(close(found.loss, expected.loss), "{found:?} and {expected:?}");
    assert!(close(found.grad_norm, expected.grad_norm), "{found:?} and {expected:?}");
    for ((name, found), (_, expected)) in with_more.iter().zip(&gradients) {
        let expected: Vec<f64> = expected.iter().copied().map(f64::from).collect();
        let error = distance(found, &expected);
        assert!(error < 1e-5, "the gradient of {name} is off by {error:.2e}");
    }
}

/// The mean over a part of the tokens is larger than their share of the mean over all.
#[test]
fn the_mean_is_over_what_counts() {
    let config = unclipped(3);
    let all = batch(&config, 0);
    let kept = |keep: &dyn Fn(usize) -> bool| {
        let mut some = all.clone();
        let dropped = some.targets.iter_mut().enumerate().filter(|(at, _)| !keep(*at));
        dropped.for_each(|(_, target)| *target = IGNORED_TARGET);
        (f64::from(some.counted()), f64::from(step(&config, &some).0.loss))
    };
    let (few, few_loss) = kept(&|at| at % 5 == 2);
    let (rest, rest_loss) = kept(&|at| at % 5 != 2);
    let whole = f64::from(step(&config, &all).0.loss);
    let together = (few * few_loss + rest * rest_loss) / (few + rest);
    assert!((together - whole).abs() < 1e-6 * whole, "{together} and {whole}");
    assert!((few_loss - rest_loss).abs() > 1e-3, "{few_loss} and {rest_loss}");
}

#[test]
fn without_targets_there_is_no_loss_and_no_gradient() {
    let config = unclipped(2);
    let mut batch = batch(&config, 0);
    batch.targets.fill(IGNORED_TARGET);
    let (metrics, gradients) = step(&config, &batch);
    assert_eq!((metrics.loss, metrics.grad_norm), (0.0, 0.0));
    assert!(gradients.iter().all(|(_, gradient)| gradient.iter().all(|value| *value == 0.0)));
}
