//! Long contractions, which are cut into parts, against PyTorch: an MLP that zeros make wider
//! computes what the narrow one does, so that the golden values hold for both.

use retrograph_finetune::model::{GradientHome, StepPass};
use retrograph_finetune::parameters::Parameter;
use retrograph_finetune::{Mode, Plan, Source, TrainerOptions};

use crate::device::device;
use crate::golden::{TOLERANCE, batch, close, config, distance, golden, weights};

/// Wide enough that down, and the input gradients of gate and up, are cut.
const WIDE: usize = 4096;

/// Where the element at `index` of a tensor of the narrow model lies in the wide one. The channels
/// of the narrow model are spread, so that no part has zeros alone.
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
fn contractions_in_parts_match_pytorch() {
    let (mut config, golden) = (config(Mode::Full), golden("full"));
    let narrow = std::mem::replace(&mut config.model.intermediate, WIDE);
    let sizes = [narrow, config.model.hidden];
    config.optimizer.max_norm = f32::MAX;
    let step = StepPass::new(&config, GradientHome::External.into()).unwrap();
    let sums = step.pass.operations().iter().filter(|op| op.name().ends_with("split_k_sum"));
    assert_eq!(sums.count(), 3 * config.model.layers, "nothing was cut");

    let mut values = |parameter: &Parameter| {
        let mut small = parameter.clone();
        small.shape.iter_mut().filter(|size| **size == WIDE).for_each(|size| *size = narrow);
        let mut wide = vec![0.0; parameter.len()];
        for (index, value) in weights(&small).into_iter().enumerate() {
            wide[place(&parameter.name, sizes, index)] = value;
        }
        Ok(wide)
    };
    let options =
        TrainerOptions { step: GradientHome::External.into(), ..TrainerOptions::default() };
    let plan = Plan::new(&config, options).unwrap();
    let source = Source::Values(&mut values);
    let mut trainer = plan.start(&device().modules(), source, &mut |_| ()).unwrap();
    let metrics = trainer.step(&batch(&config, 0)).unwrap();
    close("loss", f64::from(metrics.loss), golden["losses"][0]);
    close("norm", f64::from(metrics.norm), golden["norms"][0]);
    for (name, wide) in trainer.gradients().unwrap() {
        let expected = &golden[&format!("grad.{name}")];
        let places = (0..expected.len()).map(|index| place(&name, sizes, index));
        let found: Vec<f32> = places.map(|place| wide[place]).collect();
        let error = distance(&found, expected);
        assert!(error <= TOLERANCE, "the gradient of {name} is off by {error:.2e}");
    }
}
