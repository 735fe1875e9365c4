//! Compares gradients with finite differences of the loss, which needs no second implementation.

use retrograph_finetune::model::GradientOwner;
use retrograph_finetune::parameters::Parameter;
use retrograph_finetune::{Mode, Plan, Source, Trainer, TrainerOptions};
use retrograph_runtime::ModuleCache;
use retrograph_test_support::with;

use crate::device::device;
use crate::golden::{batch, config, weights};
use crate::models::LORA;

/// Half the distance between the two losses, relative to the weights, which are up to 1/4.
const STEP: f32 = 0.02;

/// A direction for each trained parameter.
type Direction<'a> = &'a dyn Fn(&Parameter) -> Vec<f32>;

/// A trainer after one step with the weights of the golden test, moved by `by` along a
/// direction.
fn moved(modules: &ModuleCache, mode: Mode, direction: Direction<'_>, by: f32) -> Trainer {
    let mut config = config(mode);
    config.optimizer.max_norm = f32::MAX;
    let options = with(TrainerOptions::default(), |it| it.step = GradientOwner::External.into());
    let plan = Plan::new(&config, options).unwrap();
    let mut values = |parameter: &Parameter| {
        let mut values = weights(parameter);
        if parameter.trainable {
            let along = direction(parameter);
            values.iter_mut().zip(along).for_each(|(value, along)| *value += by * along);
        }
        Ok(values)
    };
    let source = Source::Values(&mut values);
    let mut trainer = plan.start(modules, source, &mut |_| ()).unwrap();
    trainer.step(&batch(&config, 0)).unwrap();
    trainer
}

/// For each trained tensor: moves it alone along its own gradient, where the loss changes most.
fn gradients_are_slopes(mode: Mode) {
    let modules = device().modules();
    let still = moved(&modules, mode, &|parameter| vec![0.0; parameter.len()], 0.0);
    for (name, gradient) in still.gradients().unwrap() {
        let length = gradient.iter().map(|&g| f64::from(g).powi(2)).sum::<f64>().sqrt();
        let unit: Vec<f32> = gradient.iter().map(|&g| (f64::from(g) / length) as f32).collect();
        let along = |parameter: &Parameter| {
            if parameter.name == name { unit.clone() } else { vec![0.0; parameter.len()] }
        };
        let loss = |by| f64::from(moved(&modules, mode, &along, by).losses()[0]);
        let slope = (loss(STEP) - loss(-STEP)) / (2.0 * f64::from(STEP));
        // Rounding of the losses, about 4e-7 each, and the curvature of third order.
        let allowed = 2e-5 + 0.02 * length;
        assert!((slope - length).abs() <= allowed, "{name}: slope {slope}, gradient {length}");
    }
}

#[test]
fn gradients_of_all_weights_are_slopes_of_the_loss() {
    gradients_are_slopes(Mode::Full);
}

#[test]
fn gradients_of_lora_are_slopes_of_the_loss() {
    gradients_are_slopes(LORA);
}
