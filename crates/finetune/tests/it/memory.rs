//! A run that does not fit is refused before anything is uploaded.

use retrograph_driver_sim::Config;
use retrograph_finetune::{
    Error, Mode, OptimizerConfig, Plan, Precision, Preset, Source, Stage, TrainerOptions,
    TrainingConfig,
};

use retrograph_runtime::Reuse;

use crate::device::simulated;
use crate::models::{LORA, config};

#[test]
fn a_model_that_is_too_large_is_refused_before_anything_is_uploaded() {
    let device = simulated(Config { memory_bytes: 64 << 20, ..Config::default() });
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
    let planned_before = plan.memory().least();
    let mut uploaded = false;
    let started = plan.start(&device.modules(), Source::Seed, &mut |stage| {
        uploaded |= matches!(stage, Stage::Uploading { .. } | Stage::Fits(..));
    });
    let error = started.unwrap_err();
    assert!(!uploaded);
    let Error::OutOfMemory { planned, free, parameters, optimizer, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(planned, planned_before);
    assert_eq!((parameters, optimizer), (494_032_768 * 4, 494_032_768 * 8));
    assert!(free <= 64 << 20);
    assert!(error.to_string().contains("--preset"), "{error}");
}

/// What is planned is what is taken: the run fits into a device with that much and little more.
#[test]
fn the_plan_is_close_to_what_the_run_takes() {
    for mode in [Mode::Full, LORA] {
        let config = config(mode, 2);
        let device = simulated(Config { memory_bytes: 256 << 20, ..Config::default() });
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
        let taken = before.get() - trainer.context().memory().unwrap().0;
        assert!(taken <= planned, "{taken} bytes were taken, and {planned} planned");
        assert!(planned <= taken + (3 << 20), "{taken} bytes were taken, and {planned} planned");
    }
}

/// With full reuse the transients of a whole training step lie in little more than the largest sum
/// that is in use at once, which no plan can undercut.
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
