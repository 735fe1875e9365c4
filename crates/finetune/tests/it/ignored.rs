//! Ignored targets do not change loss and gradients.

use retrograph_finetune::model::{GradientOwner, StepOptions};
use retrograph_finetune::parameters::Parameter;
use retrograph_finetune::{
    Batch, IGNORED_TARGET, Mode, ModelConfig, Plan, Precision, Source, StepMetrics, TrainerOptions,
    TrainingConfig,
};
use retrograph_test_support::numbers::same_bits;
use retrograph_test_support::with;

use crate::device::device;
use crate::golden::{batch, config, distance, weights};
use crate::models::LORA;
use crate::packing::losses;
use crate::split::launches;

/// Loss, norm and gradients of a step of the golden model on `batch`.
fn step(config: &TrainingConfig, batch: &Batch) -> (StepMetrics, Vec<(String, Vec<f32>)>) {
    step_with(config, batch, StepOptions::default())
}

fn step_with(
    config: &TrainingConfig,
    batch: &Batch,
    mut step: StepOptions,
) -> (StepMetrics, Vec<(String, Vec<f32>)>) {
    step.gradients = GradientOwner::External;
    let mut options = TrainerOptions::default();
    (options.step, options.verify) = (step, true);
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

/// More rows than a tile, and columns of the vocabulary that no tile divides.
fn wide(mode: Mode) -> TrainingConfig {
    let config = unclipped(4);
    let model = ModelConfig { vocab: 328, hidden: 32, intermediate: 48, ..config.model };
    TrainingConfig { model, mode, seq: 41, ..config }
}

fn capped(mut config: TrainingConfig) -> TrainingConfig {
    config.model.logit_softcap = Some(1.5);
    config
}

/// Models whose logits are computed by every kind of product, except products of f16 terms.
fn configs() -> Vec<TrainingConfig> {
    let (full, lora) = (wide(Mode::Full), wide(LORA));
    let mut tied = full;
    tied.model.tie_word_embeddings = !tied.model.tie_word_embeddings;
    let in_bf16 = |config| TrainingConfig { precision: Precision::BF16, ..config };
    let qlora = TrainingConfig { precision: Precision::BF16.nf4(false), ..lora };
    vec![full, capped(full), tied, lora, in_bf16(capped(full)), in_bf16(tied), in_bf16(lora), qlora]
}

/// The batch with only the targets at which `keep` holds.
fn kept(all: &Batch, keep: impl Fn(usize) -> bool) -> Batch {
    let mut some = all.clone();
    let dropped = some.targets.iter_mut().enumerate().filter(|(at, _)| !keep(*at));
    dropped.for_each(|(_, target)| *target = IGNORED_TARGET);
    some
}

#[test]
fn the_loss_of_a_token_has_the_same_bits_whichever_others_have_targets() {
    for config in configs() {
        let all = batch(&config, 0);
        let whole = losses(&config, &all);
        assert!(whole.iter().all(|loss| loss.is_finite() && *loss > 0.0));
        let keeps: [&dyn Fn(usize) -> bool; 4] =
            [&|at| at % 5 == 2, &|at| at >= 150, &|at| at == 163, &|_| false];
        for keep in keeps {
            let expected = whole.iter().enumerate();
            let expected = expected.map(|(at, loss)| if keep(at) { *loss } else { 0.0 });
            let found = losses(&config, &kept(&all, keep));
            same_bits(&expected.collect::<Vec<_>>(), &found, &format!("{}", config.precision));
        }
    }
}

/// Checks that the gradient of the mean over all targets is the mean of those over two parts,
/// weighted with the numbers of targets.
fn parts_add_up(config: &TrainingConfig, options: StepOptions, tolerance: f64) {
    let all = batch(config, 0);
    // The first sequence and the end of the last one have no target.
    let part = |at: usize| at >= config.seq && at % 7 < 5 && at < 4 * config.seq - 9;
    let step = |batch: &Batch| step_with(config, batch, options).1;
    let (some, rest) = (kept(&all, part), kept(&all, |at| !part(at)));
    let [few, others, total] = [&some, &rest, &all].map(|batch| f64::from(batch.counted()));
    let sums = step(&some).into_iter().zip(step(&rest));
    for ((name, whole), ((_, some), (_, rest))) in step(&all).into_iter().zip(sums) {
        let weighted = some
            .iter()
            .zip(&rest)
            .map(|(some, rest)| (few * f64::from(*some) + others * f64::from(*rest)) / total);
        let error = distance(&whole, &weighted.collect::<Vec<_>>());
        let what = format!("{name} in {} with {options:?}", config.precision);
        assert!(error < tolerance, "the gradient of {what} is off by {error:.2e}");
    }
}

#[test]
fn gradients_of_parts_add_up_to_the_gradient_of_all() {
    let default = StepOptions::default();
    let options = [
        with(default, |it| it.micro_batch = Some(1)),
        with(default, |it| it.interleave = Some(2)),
        with(default, |it| it.fuse_from = Some(0)),
    ];
    for (config, other) in configs().into_iter().zip(options.into_iter().cycle()) {
        let tolerance = if config.precision == Precision::F32 { 1e-4 } else { 0.03 };
        for options in [default, other] {
            parts_add_up(&config, options, tolerance);
        }
    }
}

/// Cross-entropy splits the gradient of the logits, or a separate launch does.
#[test]
fn gradients_of_parts_add_up_if_products_read_f16_terms() {
    let options = with(StepOptions::default(), |it| it.split_from = Some(1));
    for (config, fused) in
        [(wide(LORA), true), (capped(wide(LORA)), false), (wide(Mode::Full), false)]
    {
        // A third tile, and at least 256 rows.
        let config = TrainingConfig { seq: 67, ..config };
        let kernels = launches(&config, options);
        assert!(kernels.contains(&"gemm_dgrad_split"), "{kernels:?}");
        assert_eq!(kernels.contains(&"split_f16_cross_entropy"), fused, "{kernels:?}");
        parts_add_up(&config, options, 1e-5);
    }
}
