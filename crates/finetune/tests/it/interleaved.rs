//! Batches in parts that run side by side: the bits of parts that follow each other, on a path that
//! is hardly longer than that of one part.

use retrograph_finetune::model::{StepOptions, StepPass};
use retrograph_finetune::{Mode, TrainerOptions};
use retrograph_kernels::Problem;
use retrograph_runtime::{Operation, OperationKind, Policy, Reuse};

use crate::device::device;
use crate::models::trainer;
use crate::saving::{batch, gradients, lora, six};

fn in_parts(parts: usize) -> StepOptions {
    StepOptions { interleave: Some(parts), ..StepOptions::default() }
}

#[test]
fn parts_side_by_side_give_the_bits_of_parts_in_a_row() {
    let device = device();
    let bits = |options| {
        let mut found = Vec::new();
        for mode in [Mode::Full, lora()] {
            let (loss, gradients) = gradients(&device, six(mode), options);
            found.push(vec![loss.to_bits()]);
            let values = gradients.iter().map(|(_, values)| values);
            found.extend(values.map(|values| values.iter().map(|it| it.to_bits()).collect()));
        }
        found
    };
    for (parts, size) in [(2, 3), (6, 1)] {
        let row = StepOptions { micro_batch: Some(size), ..StepOptions::default() };
        assert!(bits(in_parts(parts)) == bits(row), "{parts} parts of {size}");
    }
    assert!(bits(in_parts(1)) == bits(StepOptions::default()), "the batch as a whole");
    assert!(bits(in_parts(2)) != bits(in_parts(1)), "parts add in another order");
}

#[test]
fn parts_depend_on_each_other_only_where_their_gradients_are_added() {
    for mode in [Mode::Full, lora()] {
        let step = |parts| StepPass::new(&six(mode), in_parts(parts)).unwrap().pass;
        let (whole, halves, sixths) = (step(1), step(2), step(6));
        let operations = [&whole, &halves, &sixths].map(|pass| pass.operations().len());
        assert!(operations[1] * 10 > operations[0] * 18, "{operations:?}");
        // The copies and additions of the gradient that is ready last, and no part's own path.
        let depths = [&whole, &halves, &sixths].map(retrograph_runtime::Pass::depth);
        assert!(depths[1] <= depths[0] + 4 && depths[2] <= depths[0] + 20, "{depths:?}");
        // Nothing that could run at the same time shares memory, which the trainer leaves so.
        assert!(!in_parts(2).saves_memory());
        let bytes =
            |pass: &retrograph_runtime::Pass| pass.plan_with(Reuse::WhenOrdered).peak_bytes();
        assert!(bytes(&halves) * 10 > bytes(&whole) * 9, "{mode:?}");
    }
}

#[test]
fn products_know_how_many_run_concurrently() {
    let concurrent = |options, name: &str| {
        let pass = StepPass::new(&six(lora()), options).unwrap().pass;
        let named = |op: &&Operation| op.name().contains(name) && op.name().contains("gemm");
        let found = pass.operations().iter().find(named).unwrap();
        let OperationKind::Launch(launch) = found.kind() else { panic!("{name} is no launch") };
        let Problem::Gemm(problem) = launch.problem else { panic!("{name} is no product") };
        problem.concurrent
    };
    let row = StepOptions { micro_batch: Some(2), ..StepOptions::default() };
    for (options, alone, paired) in [(in_parts(1), 0, 1), (row, 0, 1), (in_parts(3), 2, 5)] {
        assert_eq!(concurrent(options, "layer 0/o/"), alone, "{options:?}");
        assert_eq!(concurrent(options, "layer 0/gate/"), paired, "{options:?}");
    }
}

#[test]
fn every_strategy_gives_their_bits() {
    let device = device();
    for policy in [Policy::Manual, Policy::Capture] {
        let options = TrainerOptions {
            step: in_parts(2),
            build: policy.into(),
            verify: true,
            ..TrainerOptions::default()
        };
        let mut trainer = trainer(&device, &six(lora()), options);
        for _ in 0..3 {
            trainer.step(&batch(&six(lora()))).unwrap();
        }
        assert_eq!(trainer.verified_steps(), 3, "{policy:?}");
    }
}
