//! Compares split-K products with PyTorch: an MLP padded with zeros computes the same as the narrow
//! MLP, so the golden values apply to both.

use retrograph_finetune::model::{GradientOwner, StepPass};
use retrograph_finetune::parameters::Parameter;
use retrograph_finetune::{Mode, Plan, Source, TrainerOptions};
use retrograph_kernels::ops::SPLIT_K_SUM;
use retrograph_runtime::{Operation, OperationKind};
use retrograph_test_support::with;

use crate::device::device;
use crate::golden::{TOLERANCE, batch, close, config, distance, golden, weights};

/// Wide enough for split-K in down and in the input gradients of gate and up.
const WIDE: usize = 4096;

/// The index in the wide model's tensor of element `index` of the narrow one's. The channels of the
/// narrow model are spread, so that no split has only zeros.
fn place(name: &str, [narrow, hidden]: [usize; 2], index: usize) -> usize {
    let spread = WIDE / narrow;
    if name.contains("down_proj") {
        index / narrow * WIDE + index % narrow * spread
    } else if name.contains("gate_proj") || name.contains("up_proj") {
        index / hidden * spread * hidden + index % hidden
    } else {
        index
    }
}

#[test]
fn split_contractions_match_pytorch() {
    let (mut config, golden) = (config(Mode::Full), golden("full"));
    let narrow = std::mem::replace(&mut config.model.intermediate, WIDE);
    let sizes = [narrow, config.model.hidden];
    config.optimizer.max_norm = f32::MAX;
    let step = StepPass::new(&config, GradientOwner::External.into()).unwrap();
    let split = |operation: &&Operation| {
        let OperationKind::Launch(launch) = operation.kind() else { return false };
        launch.kernel() == &SPLIT_K_SUM
    };
    let splits = step.pass.operations().iter().filter(split).count();
    assert_eq!(splits, 3 * config.model.layers);

    let mut values = |parameter: &Parameter| {
        let mut small = parameter.clone();
        small.shape.iter_mut().filter(|size| **size == WIDE).for_each(|size| *size = narrow);
        let mut wide = vec![0.0; parameter.len()];
        for (index, value) in weights(&small).into_iter().enumerate() {
            wide[place(&parameter.name, sizes, index)] = value;
        }
        Ok(wide)
    };
    let options = with(TrainerOptions::default(), |it| it.step = GradientOwner::External.into());
    let plan = Plan::new(&config, options).unwrap();
    let source = Source::Values(&mut values);
    let mut trainer = plan.start(&device().modules(), source, &mut |_| ()).unwrap();
    let metrics = trainer.step(&batch(&config, 0)).unwrap();
    close("loss", f64::from(metrics.loss), golden["losses"][0]);
    close("norm", f64::from(metrics.grad_norm), golden["norms"][0]);
    for (name, wide) in trainer.gradients().unwrap() {
        let expected = &golden[&format!("grad.{name}")];
        let places = (0..expected.len()).map(|index| place(&name, sizes, index));
        let found: Vec<f32> = places.map(|place| wide[place]).collect();
        let error = distance(&found, expected);
        assert!(error <= TOLERANCE, "the gradient of {name} is off by {error:.2e}");
    }
}
