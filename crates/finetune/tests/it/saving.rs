//! Steps that take less memory: recomputed layers give the same bits, and micro-batches the same
//! gradients up to rounding.

use retrograph_finetune::model::{GradientOwner, StepOptions, StepPass};
use retrograph_finetune::parameters::Parameter;
use retrograph_finetune::{
    Batch, Device, Error, LoraConfig, LoraTargets, Mode, Plan, Source, TrainerOptions,
    TrainingConfig,
};
use retrograph_kernels::ops::IGNORED_TARGET;
use retrograph_runtime::Reuse;
use retrograph_test_support::with;

use crate::device::device;
use crate::golden::weights;
use crate::models::{bits, config, train, trainer};

/// Every projection and the norms.
pub(crate) fn lora() -> Mode {
    let targets = LoraTargets::ALL;
    Mode::Lora(LoraConfig { targets, norms: true, ..LoraConfig::new(3, 6.0) })
}

pub(crate) fn six(mode: Mode) -> TrainingConfig {
    TrainingConfig { batch: 6, ..config(mode, 4) }
}

/// Six sequences; some have few targets, and one has none.
pub(crate) fn batch(config: &TrainingConfig) -> Batch {
    let vocab = config.model.vocab as u32;
    let tokens = (0..config.rows() as u32).map(|at| at * 37 % vocab).collect();
    let counts = |at: u32| at / config.seq as u32 != 2 && at % 7 < 1 + at / config.seq as u32;
    let target = |at: u32| if counts(at) { at * 53 % vocab } else { IGNORED_TARGET };
    Batch { tokens, targets: (0..config.rows() as u32).map(target).collect(), positions: None }
}

/// The loss, and the gradients by name, of one step without clipping.
pub(crate) fn gradients(
    device: &Device,
    mut config: TrainingConfig,
    mut step: StepOptions,
) -> (f32, Vec<(String, Vec<f32>)>) {
    config.optimizer.max_norm = f32::MAX;
    step.gradients = GradientOwner::External;
    let plan = Plan::new(&config, with(TrainerOptions::default(), |it| it.step = step)).unwrap();
    // From the seed, one of each pair of matrices would be zero.
    let mut values = |parameter: &Parameter| Ok(weights(parameter));
    let source = Source::Values(&mut values);
    let mut trainer = plan.start(&device.modules(), source, &mut |_| ()).unwrap();
    let metrics = trainer.step(&batch(&config)).unwrap();
    (metrics.loss, trainer.gradients().unwrap())
}

fn bytes(config: &TrainingConfig, step: StepOptions) -> usize {
    StepPass::new(config, step).unwrap().pass.plan_with(Reuse::Full).peak_bytes()
}

#[test]
fn recomputed_layers_give_the_same_bits() {
    let device = device();
    for mode in [Mode::Full, lora()] {
        let trained = |recompute, verify| {
            let mut options = TrainerOptions::default();
            options.step.recompute = recompute;
            options.verify = verify;
            let mut trainer = trainer(&device, &config(mode, 3), options);
            train(&mut trainer, 3);
            assert_eq!(trainer.verified_steps(), if verify { 3 } else { 0 });
            (trainer.losses().to_vec(), bits(&trainer))
        };
        assert_eq!(trained(false, false), trained(true, true));
    }
}

#[test]
fn micro_batches_have_the_gradients_of_the_batch() {
    let device = device();
    for mode in [Mode::Full, lora()] {
        let whole = gradients(&device, six(mode), StepOptions::default());
        for (micro_batch, recompute) in [(1, false), (2, true), (3, false), (6, false)] {
            let step = with(StepOptions::default(), |it| {
                it.micro_batch = Some(micro_batch);
                it.recompute = recompute;
            });
            let (loss, found) = gradients(&device, six(mode), step);
            assert!((loss - whole.0).abs() <= 1e-6 * whole.0, "{loss} and {}", whole.0);
            assert_eq!(found.len(), whole.1.len());
            for ((name, found), (_, whole)) in found.iter().zip(&whole.1) {
                let square = |values: &mut dyn Iterator<Item = f32>| {
                    values.map(|value| f64::from(value).powi(2)).sum::<f64>().sqrt()
                };
                let error = square(&mut found.iter().zip(whole).map(|(a, b)| a - b));
                let length = square(&mut whole.iter().copied());
                assert!(length > 0.0, "{name} has no gradient");
                assert!(error <= 2e-6 * length, "{name} in parts of {micro_batch}: {error:.1e}");
            }
        }
    }
}

#[test]
fn replayed_micro_batches_equal_eager_ones() {
    let device = device();
    let mut options = TrainerOptions::default();
    options.step.micro_batch = Some(2);
    options.step.recompute = true;
    options.verify = true;
    let mut trainer = trainer(&device, &six(lora()), options);
    for _ in 0..3 {
        trainer.step(&batch(&six(lora()))).unwrap();
    }
    assert_eq!(trainer.verified_steps(), 3);
}

#[test]
fn both_take_less_memory() {
    let config = TrainingConfig { batch: 8, seq: 32, ..config(lora(), 1) };
    let of = |micro_batch, recompute| {
        bytes(
            &config,
            with(StepOptions::default(), |it| {
                it.micro_batch = micro_batch;
                it.recompute = recompute;
            }),
        )
    };
    let (whole, again, parts) = (of(None, false), of(None, true), of(Some(1), false));
    assert!(again < whole * 3 / 4, "{again} of {whole} bytes");
    assert!(parts < whole / 4, "{parts} of {whole} bytes");
    assert!(of(Some(1), true) < parts, "both together");
}

#[test]
fn micro_batches_must_divide_the_batch() {
    for size in [0, 4, 7] {
        let mut step = StepOptions::default();
        step.micro_batch = Some(size);
        let error = StepPass::new(&six(lora()), step).unwrap_err();
        assert!(matches!(error, Error::InvalidConfig { field: "micro-batch", .. }), "{error}");
    }
}
