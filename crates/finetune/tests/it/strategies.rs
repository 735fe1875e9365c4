//! Eager, hand-built graph and captured graph compute the same bits.

use retrograph_finetune::{Mode, TrainerOptions};
use retrograph_runtime::{Policy, Reuse, Strategy};
use retrograph_test_support::with;

use crate::device::device;
use crate::dora::DORA;
use crate::models::{LORA, bits, config, text, train, trainer};

const STEPS: u32 = 30;

fn options(policy: Policy) -> TrainerOptions {
    with(TrainerOptions::default(), |it| it.build = policy.into())
}

/// 30 steps of warm-up and cosine by each strategy: losses, parameters and both moments.
fn every_strategy_computes_the_same_bits(mode: Mode) {
    let device = device();
    let config = config(mode, STEPS);
    let run = |policy, strategy| {
        let mut trainer = trainer(&device, &config, options(policy));
        assert_eq!(trainer.report().strategy, strategy, "{}", trainer.report().reason);
        train(&mut trainer, STEPS);
        assert_eq!(trainer.jit_after_warm(), 0);
        let losses: Vec<u32> = trainer.losses().iter().map(|loss| loss.to_bits()).collect();
        (losses, bits(&trainer), trainer.losses().to_vec())
    };
    let eager = run(Policy::Eager, Strategy::Eager);
    assert!(eager.2[29] < eager.2[0] - 0.02, "nothing was learned: {:?}", eager.2);
    for (policy, strategy) in
        [(Policy::Manual, Strategy::Manual), (Policy::Capture, Strategy::Capture)]
    {
        let replayed = run(policy, strategy);
        assert_eq!(replayed.0, eager.0, "losses of {strategy}");
        for (replayed, eager) in replayed.1.iter().zip(&eager.1) {
            assert_eq!(replayed, eager, "{strategy}");
        }
    }
}

#[test]
fn every_strategy_trains_all_weights_to_the_same_bits() {
    every_strategy_computes_the_same_bits(Mode::Full);
}

#[test]
fn every_strategy_trains_lora_to_the_same_bits() {
    every_strategy_computes_the_same_bits(LORA);
}

#[test]
fn every_strategy_trains_dora_to_the_same_bits() {
    every_strategy_computes_the_same_bits(Mode::Lora(DORA));
}

/// The offsets of transients do not change the results.
#[test]
fn memory_plans_do_not_change_a_bit() {
    let device = device();
    let config = config(Mode::Full, 6);
    let run = |reuse, nan_transients| {
        let mut options = TrainerOptions::default();
        options.build.policy = Policy::Manual;
        options.build.reuse = reuse;
        options.build.nan_transients = nan_transients;
        let mut trainer = trainer(&device, &config, options);
        train(&mut trainer, 6);
        bits(&trainer)
    };
    let reference = run(None, false);
    assert!(run(Some(Reuse::Full), true) == reference);
    assert!(run(Some(Reuse::Never), true) == reference);
}

/// The check of `--verify` itself, in both modes.
#[test]
fn verification_compares_every_step() {
    let device = device();
    for mode in [Mode::Full, LORA] {
        let mut options = TrainerOptions::default();
        options.verify = true;
        let mut trainer = trainer(&device, &config(mode, 4), options);
        train(&mut trainer, 4);
        assert_eq!(trainer.verified_steps(), 4);
    }
}

/// The nodes of the graph hold no values that change from step to step, and a replayed step equals
/// an eager step with all transients NaN before.
#[test]
fn the_training_step_is_admitted() {
    let device = device();
    let config = config(Mode::Full, 10);
    for policy in [Policy::Manual, Policy::Capture] {
        let mut trainer = trainer(&device, &config, options(policy));
        let batch = text().batch([config.batch, config.seq], 1, 0).unwrap();
        let controls = trainer.controls(3, &batch).unwrap().clone();
        let (program, stream) = trainer.program_mut();
        program.admit(stream, &controls).unwrap();
    }
}
