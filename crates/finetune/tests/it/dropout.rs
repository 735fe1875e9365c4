//! Dropout on the inputs of LoRA updates: compares gradients with differences of the loss with the
//! same elements dropped, and replays with eager steps; evaluation has no dropout.

use retrograph_finetune::model::{GradientOwner, StepOptions, StepPass};
use retrograph_finetune::parameters::Parameter;
use retrograph_finetune::{
    Device, LoraConfig, LoraTargets, Mode, Plan, Source, TrainerOptions, TrainingConfig,
};
use retrograph_kernels::Argument;
use retrograph_kernels::ops::DROPOUT;
use retrograph_runtime::{BufferId, Operation, OperationKind};
use retrograph_test_support::with;

use crate::device::device;
use crate::golden::{batch, config, distance, weights};
use crate::models::{bits, train, trainer};

fn lora(dropout: f32) -> Mode {
    let targets = LoraTargets::ALL;
    Mode::Lora(LoraConfig { targets, dropout, ..LoraConfig::new(3, 6.0) })
}

/// A number that is added to an element of a parameter.
struct Change<'a> {
    name: &'a str,
    at: usize,
    by: f32,
}

/// Loss and gradients of the first step, after the change, if there is one.
fn first_step(
    device: &Device,
    config: &TrainingConfig,
    mut step: StepOptions,
    change: Option<Change<'_>>,
) -> (f32, Vec<(String, Vec<f32>)>) {
    step.gradients = GradientOwner::External;
    let plan = Plan::new(config, with(TrainerOptions::default(), |it| it.step = step)).unwrap();
    let mut values = |parameter: &Parameter| {
        let mut values = weights(parameter);
        if let Some(Change { name, at, by }) = change
            && parameter.name == name
        {
            values[at] += by;
        }
        Ok(values)
    };
    let source = Source::Values(&mut values);
    let mut trainer = plan.start(&device.modules(), source, &mut |_| ()).unwrap();
    let metrics = trainer.step(&batch(config, 0)).unwrap();
    (metrics.loss, trainer.gradients().unwrap())
}

#[test]
fn gradients_are_those_of_the_loss_with_the_same_elements_left_out() {
    let (device, mut config) = (device(), config(lora(0.4)));
    config.optimizer.max_norm = f32::MAX;
    let options = StepOptions::default();
    let (_, gradients) = first_step(&device, &config, options, None);
    for name in [
        "model.layers.0.self_attn.q_proj.lora_A.weight",
        "model.layers.0.mlp.down_proj.lora_A.weight",
        "model.layers.1.self_attn.v_proj.lora_B.weight",
    ] {
        let gradient = &gradients.iter().find(|(found, _)| found == name).unwrap().1;
        // The largest element, so that the difference of two f32 losses is precise enough.
        let at =
            (0..gradient.len()).max_by(|&a, &b| gradient[a].abs().total_cmp(&gradient[b].abs()));
        let at = at.unwrap();
        let loss = |by| {
            let change = Change { name, at, by };
            f64::from(first_step(&device, &config, options, Some(change)).0)
        };
        let slope = (loss(0.01) - loss(-0.01)) / 0.02;
        let found = f64::from(gradient[at]);
        assert!((found - slope).abs() <= 0.02 * slope.abs(), "{name}: {found} and {slope}");
    }
}

#[test]
fn recomputed_layers_drop_the_same_elements() {
    let (device, config) = (device(), config(lora(0.4)));
    let of = |recompute, micro_batch| {
        let mut step = StepOptions::default();
        step.recompute = recompute;
        step.micro_batch = micro_batch;
        first_step(&device, &config, step, None)
    };
    assert_eq!(of(false, None), of(true, None));
    assert_eq!(of(false, Some(1)), of(true, Some(1)));
    // A micro-batch drops what the whole batch drops in these rows.
    let ((_, whole), (_, parts)) = (of(false, None), of(false, Some(1)));
    for ((name, whole), (_, parts)) in whole.iter().zip(&parts) {
        let expected: Vec<f64> = whole.iter().copied().map(f64::from).collect();
        let error = distance(parts, &expected);
        assert!(error < 1e-4, "{name} is off by {error:.2e}");
    }
}

#[test]
fn each_projection_and_micro_batch_draws_once_for_forward_and_backward() {
    let mut options = StepOptions::default();
    options.micro_batch = Some(1);
    let config = config(lora(0.4));
    let step = StepPass::new(&config, options).unwrap();
    let stream = |operation: &Operation| match operation.kind() {
        OperationKind::Launch(launch) if launch.kernel() == &DROPOUT => {
            // Sequence and first group.
            Some(launch.arguments()[6..8].to_vec())
        }
        _ => None,
    };
    let mut draws = Vec::<(Vec<Argument<BufferId>>, usize)>::new();
    for drawn in step.pass.operations().iter().filter_map(stream) {
        match draws.iter_mut().find(|(known, _)| *known == drawn) {
            Some((_, count)) => *count += 1,
            None => draws.push((drawn, 1)),
        }
    }
    assert_eq!(draws.len(), config.batch * config.model.layers * 7);
    assert!(draws.iter().all(|(_, count)| *count == 2), "{draws:?}");
}

#[test]
fn replays_draw_new_masks_equal_to_eager_steps() {
    let device = device();
    let run = |dropout, seed| {
        let config = TrainingConfig { seed, ..crate::models::config(lora(dropout), 3) };
        let mut options = TrainerOptions::default();
        options.verify = true;
        let mut trainer = trainer(&device, &config, options);
        train(&mut trainer, 3);
        assert_eq!(trainer.verified_steps(), 3);
        (trainer.losses().to_vec(), bits(&trainer))
    };
    let with = run(0.2, 11);
    assert_eq!(with, run(0.2, 11));
    assert_ne!(with.1, run(0.0, 11).1);
}
