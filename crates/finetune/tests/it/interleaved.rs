//! Concurrent micro-batches have the bits of sequential ones, in a graph that is not much deeper
//! than for one micro-batch.

use retrograph_finetune::model::{StepOptions, StepPass};
use retrograph_finetune::{Mode, TrainerOptions};
use retrograph_kernels::Problem;
use retrograph_runtime::{Operation, OperationKind, Policy, Reuse};
use retrograph_test_support::with;

use crate::device::device;
use crate::models::trainer;
use crate::saving::{batch, gradients, lora, six};

fn interleave(parts: usize) -> StepOptions {
    with(StepOptions::default(), |it| it.interleave = Some(parts))
}

#[test]
fn concurrent_micro_batches_give_the_bits_of_sequential_ones() {
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
        let mut row = StepOptions::default();
        row.micro_batch = Some(size);
        assert!(bits(interleave(parts)) == bits(row), "{parts} micro-batches of {size}");
    }
    assert!(bits(interleave(1)) == bits(StepOptions::default()), "one micro-batch");
    assert!(bits(interleave(2)) != bits(interleave(1)), "micro-batches add in another order");
}

#[test]
fn micro_batches_depend_on_each_other_only_by_the_sums_of_gradients() {
    for mode in [Mode::Full, lora()] {
        let step = |parts| StepPass::new(&six(mode), interleave(parts)).unwrap().pass;
        let (whole, halves, sixths) = (step(1), step(2), step(6));
        let operations = [&whole, &halves, &sixths].map(|pass| pass.operations().len());
        assert!(operations[1] * 10 > operations[0] * 18, "{operations:?}");
        // Deeper only by the copies and sums of the last gradient.
        let depths = [&whole, &halves, &sixths].map(retrograph_runtime::Pass::depth);
        assert!(depths[1] <= depths[0] + 4 && depths[2] <= depths[0] + 20, "{depths:?}");
        // Concurrent operations share no memory.
        assert!(!interleave(2).saves_memory());
        let bytes =
            |pass: &retrograph_runtime::Pass| pass.plan_with(Reuse::WhenOrdered).peak_bytes();
        assert!(bytes(&halves) * 10 > bytes(&whole) * 9, "{mode:?}");
    }
}

#[test]
fn products_declare_how_many_run_concurrently() {
    let concurrent = |options, scope: &str| {
        let pass = StepPass::new(&six(lora()), options).unwrap().pass;
        let product = |operation: &Operation| match operation.kind() {
            OperationKind::Launch(launch) if operation.name().contains(scope) => {
                let Problem::Gemm(problem) = *launch.problem() else { return None };
                Some(problem.concurrent)
            }
            _ => None,
        };
        pass.operations().iter().find_map(product).unwrap()
    };
    let mut row = StepOptions::default();
    row.micro_batch = Some(2);
    for (options, alone, paired) in [(interleave(1), 0, 1), (row, 0, 1), (interleave(3), 2, 5)] {
        assert_eq!(concurrent(options, "layer 0/o/"), alone, "{options:?}");
        assert_eq!(concurrent(options, "layer 0/gate/"), paired, "{options:?}");
    }
}

#[test]
fn every_strategy_gives_their_bits() {
    let device = device();
    for policy in [Policy::Manual, Policy::Capture] {
        let mut options = TrainerOptions::default();
        options.step = interleave(2);
        options.build = policy.into();
        options.verify = true;
        let mut trainer = trainer(&device, &six(lora()), options);
        for _ in 0..3 {
            trainer.step(&batch(&six(lora()))).unwrap();
        }
        assert_eq!(trainer.verified_steps(), 3, "{policy:?}");
    }
}
