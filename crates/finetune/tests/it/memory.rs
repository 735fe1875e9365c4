//! Device memory: a run that does not fit is refused before anything is uploaded.

use retrograph_driver_sim::Config;
use retrograph_finetune::{
    Error, Mode, OptimizerConfig, Plan, Precision, Preset, Source, Stage, TrainerOptions,
    TrainingConfig,
};

use retrograph_runtime::memory::{GRAPH_NODE_BYTES, PAGE_BYTES};
use retrograph_runtime::{DriverOverhead, Policy, Reuse};
use retrograph_test_support::with;

use crate::device::simulated;
use crate::models::{LORA, config, train, trainer};

#[test]
fn a_model_that_is_too_large_is_refused_before_anything_is_uploaded() {
    let device = simulated(with(Config::default(), |it| it.memory_bytes = 64 << 20));
    let config = TrainingConfig {
        model: Preset::Qwen25Half.model(),
        mode: Mode::Full,
        precision: Precision::F32,
        batch: 1,
        seq: 8,
        optimizer: OptimizerConfig::new(1e-4, 10),
        seed: 0,
    };
    let plan = Plan::new(&config, TrainerOptions::default()).unwrap();
    let need = *plan.memory();
    let mut uploaded = false;
    let started = plan.start(&device.modules(), Source::Seed, &mut |stage| {
        uploaded |= matches!(stage, Stage::Uploading { .. } | Stage::Fits(..));
    });
    let error = started.unwrap_err();
    assert!(!uploaded);
    let Error::OutOfMemory { planned, free, parameters, optimizer, .. } = error else {
        panic!("{error}");
    };
    // Code is loaded by then.
    assert_eq!(planned, need.least() + need.driver.graphs + need.driver.rounding);
    assert_eq!((parameters, optimizer), (494_032_768 * 4, 494_032_768 * 8));
    assert!(free <= 64 << 20);
    assert!(error.to_string().contains("smaller model"), "{error}");
}

/// The plan is accurate: the run fits into a device with hardly more memory than planned.
#[test]
fn the_plan_is_close_to_what_the_run_takes() {
    for mode in [Mode::Full, LORA] {
        let config = config(mode, 2);
        let device = simulated(with(Config::default(), |it| it.memory_bytes = 256 << 20));
        let plan = Plan::new(&config, TrainerOptions::default()).unwrap();
        let planned = plan.memory().least();
        let modules = device.modules();
        let before = std::cell::Cell::new(0);
        let trainer = plan.start(&modules, Source::Seed, &mut |stage| {
            if let Stage::Fits(_, free) = stage {
                before.set(free);
            }
        });
        let trainer = trainer.unwrap();
        let taken = before.get() - trainer.context().mem_get_info().unwrap().0;
        assert!(taken <= planned, "{taken} bytes were taken, and {planned} planned");
        assert!(planned <= taken + (3 << 20), "{taken} bytes were taken, and {planned} planned");
    }
}

/// The simulated driver takes no memory, and the plan of the allocations is exact.
#[test]
fn a_run_reports_planned_and_used_memory() {
    for options in [
        TrainerOptions::default(),
        with(TrainerOptions::default(), |it| {
            it.build = Policy::Eager.into();
            it.verify = true;
        }),
    ] {
        let config = config(LORA, 2);
        let device = simulated(with(Config::default(), |it| it.memory_bytes = 256 << 20));
        let mut trainer = trainer(&device, &config, options);
        train(&mut trainer, 2);
        let found = trainer.memory_use().unwrap();
        assert_eq!(found.driver_bytes, DriverOverhead::default());
        assert_eq!(found.planned_bytes, found.allocated_bytes);
        assert!(found.measured_bytes <= found.planned_bytes, "{found:?}");
        // Each program has a page for small buffers.
        assert!(found.planned_bytes <= found.measured_bytes + (4 << 20), "{found:?}");
        let expected = found.measured_bytes as f64 / found.planned_bytes as f64;
        assert!((found.difference_percent / 100.0 + 1.0 - expected).abs() < 1e-9, "{found:?}");
    }
}

#[test]
fn the_share_of_the_driver_grows_with_the_nodes_of_graphs() {
    let config = config(LORA, 2);
    let need = |options| *Plan::new(&config, options).unwrap().memory();
    let plain = Plan::new(&config, TrainerOptions::default()).unwrap();
    let nodes = plain.step_pass().pass.operations().len();
    assert_eq!(plain.memory().driver.graphs, nodes * GRAPH_NODE_BYTES);
    let mut eager = TrainerOptions::default();
    eager.build = Policy::Eager.into();
    assert_eq!(need(eager).driver.graphs, 0);
    let code = plain.memory().driver.code;
    assert!(code > 0 && code.is_multiple_of(PAGE_BYTES));
    let held_out = plain.with_held_out().unwrap();
    let both = held_out.memory().driver;
    assert!(both.graphs > nodes * GRAPH_NODE_BYTES && both.code >= code, "{both:?}");
}

/// With full reuse, the transients of a training step need little more than the largest number of
/// live bytes, which is a lower bound for every plan.
#[test]
fn transients_of_a_training_step_are_packed_within_a_tenth_of_what_is_alive() {
    let large = TrainingConfig {
        model: Preset::Qwen25OneAndHalf.model(),
        mode: LORA,
        precision: Precision::F32,
        batch: 1,
        seq: 32,
        optimizer: OptimizerConfig::new(1e-4, 10),
        seed: 0,
    };
    for config in [large, config(LORA, 2), config(Mode::Full, 2)] {
        let plan = Plan::new(&config, TrainerOptions::default()).unwrap();
        let plan = plan.step_pass().pass.plan_with(Reuse::Full);
        let (peak, live) = (plan.peak_bytes(), plan.live_bytes());
        assert!(peak * 10 <= live * 11, "{peak} bytes for {live} that are alive");
    }
}
