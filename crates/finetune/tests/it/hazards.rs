//! Silent errors of training with graphs; each test shows that one is impossible or detected.

use retrograph_finetune::checkpoint::CheckpointDirectory;
use retrograph_finetune::parameters::Parameter;
use retrograph_finetune::{
    Batch, Data, Device, Error, Evaluator, HeldOut, Kept, Mode, Plan, Run, Source, TextData,
    Trainer, TrainerOptions, TrainingConfig,
};
use retrograph_runtime::Policy;
use retrograph_test_support::with;

use crate::device::device;
use crate::models::{
    LORA, NAN_TOKEN, bits, config, config_with_nan, text, train, trainer, values_with_nan,
};

const GRAPHS: [Policy; 2] = [Policy::Manual, Policy::Capture];

fn options(policy: Policy) -> TrainerOptions {
    with(TrainerOptions::default(), |it| it.build = policy.into())
}

fn with_values(
    device: &Device,
    config: &TrainingConfig,
    values: &mut dyn FnMut(&Parameter) -> Vec<f32>,
) -> Trainer {
    let plan = Plan::new(config, options(Policy::Manual)).unwrap();
    let mut values = |parameter: &Parameter| Ok(values(parameter));
    plan.start(&device.modules(), Source::Values(&mut values), &mut |_| ()).unwrap()
}

/// Building a graph, also by capture, neither skips the first step nor runs it twice.
#[test]
fn the_step_for_which_a_graph_is_built_happens_once() {
    let device = device();
    let config = config(Mode::Full, 5);
    let mut eager = trainer(&device, &config, options(Policy::Eager));
    train(&mut eager, 1);
    for policy in GRAPHS {
        let mut graph = trainer(&device, &config, options(policy));
        let untouched = trainer(&device, &config, options(Policy::Eager));
        assert!(bits(&graph) == bits(&untouched), "building has run something");
        train(&mut graph, 1);
        assert!(bits(&graph) == bits(&eager));
    }
}

/// The learning rate of each step reaches the replay: with gradients of nearly the same direction,
/// a step at the top of the warm-up moves weights several times as far as the first.
#[test]
fn learning_rate_and_bias_correction_are_not_frozen() {
    let device = device();
    for policy in GRAPHS {
        let mut config = config(Mode::Full, 40);
        config.optimizer.warmup_steps = 10;
        let mut graph = trainer(&device, &config, options(policy));
        let text = text();
        // The same batch each time, so that only the step differs.
        let batch = text.batch([config.batch, config.seq], 0, 0).unwrap();
        let name = "model.layers.0.mlp.up_proj.weight";
        let read = |graph: &Trainer| graph.state().values(graph.stream(), name).unwrap().unwrap();
        let mut moved = Vec::new();
        let mut before = read(&graph);
        for _ in 0..8 {
            graph.step(&batch).unwrap();
            let after = read(&graph);
            let largest = after.iter().zip(&before).map(|(a, b)| (a - b).abs());
            moved.push(largest.fold(0.0f32, f32::max));
            before = after;
        }
        // Adam's first step is as long as the rate, whatever the gradient: 0.01 · 1/10.
        assert!((moved[0] - 0.001).abs() < 2e-5, "{moved:?}");
        assert!(moved[7] > 3.0 * moved[0], "{moved:?}");
    }
}

/// Tokens are controls: replays of the same graph see each batch.
#[test]
fn a_replay_sees_the_tokens_of_its_own_step() {
    let device = device();
    let mut config = config(Mode::Full, 5);
    (config.optimizer.peak_lr, config.optimizer.min_lr) = (0.0, 0.0);
    let batch = |token| Batch {
        tokens: vec![token; config.rows()],
        targets: vec![token + 1; config.rows()],
        positions: None,
    };
    for policy in GRAPHS {
        let mut graph = trainer(&device, &config, options(policy));
        let mut loss = |token| graph.step(&batch(token)).unwrap().loss;
        let (first, second, again) = (loss(10), loss(200), loss(10));
        assert_ne!(first, second);
        assert_eq!(first.to_bits(), again.to_bits());
    }
}

/// Programs for several sequence lengths coexist over the same modules; none remembers
/// the shape of another.
#[test]
fn sequence_lengths_do_not_mix() {
    let device = device();
    let modules = device.modules();
    let alone = |seq: usize| {
        let config = TrainingConfig { seq, ..config(Mode::Full, 5) };
        let mut trainer = trainer(&crate::device::device(), &config, options(Policy::Eager));
        train(&mut trainer, 2);
        bits(&trainer)
    };
    let mut together: Vec<Trainer> = [9, 5, 12]
        .map(|seq| {
            let config = TrainingConfig { seq, ..config(Mode::Full, 5) };
            let plan = Plan::new(&config, options(Policy::Manual)).unwrap();
            plan.start(&modules, Source::Seed, &mut |_| ()).unwrap()
        })
        .into();
    for until in [1, 2] {
        together.iter_mut().for_each(|trainer| train(trainer, until));
    }
    for trainer in &together {
        assert!(bits(trainer) == alone(trainer.config().seq), "seq {}", trainer.config().seq);
    }
}

/// Gradients are clipped by the norm of all of them, and the optimizer sees gradients
/// whose norm is the limit.
#[test]
fn clipping_is_global() {
    use retrograph_finetune::checkpoint::{StatePart, StateReader};
    use retrograph_finetune::model::GradientOwner;
    let device = device();
    let mut config = config(Mode::Full, 5);
    config.optimizer.max_norm = 0.01;
    let options = with(options(Policy::Manual), |it| it.step = GradientOwner::External.into());
    let mut graph = trainer(&device, &config, options);
    let batch = text().batch([config.batch, config.seq], 0, 0).unwrap();
    let metrics = graph.step(&batch).unwrap();
    assert!(metrics.grad_norm > 0.1, "{metrics:?}");
    let norm = |all: &[f32]| all.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
    let gradients = graph.gradients().unwrap();
    let all: Vec<f32> = gradients.into_iter().flat_map(|(_, gradient)| gradient).collect();
    assert!((norm(&all) - f64::from(metrics.grad_norm)).abs() < 1e-5, "{metrics:?}");
    let mut state = graph.state().reader(graph.stream());
    let count = graph.state().trained_parameters().len();
    let first = (0..count).flat_map(|index| state.read(index, StatePart::ExpAvg).unwrap());
    // The first moments were 0 before.
    let clipped = norm(&first.collect::<Vec<_>>()) / (1.0 - config.optimizer.beta1);
    assert!((clipped - 0.01).abs() < 1e-6, "{clipped}");
}

/// The same `eps` works in both directions: with an eps that dominates, the norm is nearly linear,
/// and a wrong eps in the backward pass would scale its gradient by a thousand.
#[test]
fn eps_is_the_same_forward_and_backward() {
    let device = device();
    let mut config = config(LORA, 5);
    config.model.rms_norm_eps = 100.0;
    config.optimizer.max_norm = f32::MAX;
    let name = "model.layers.1.post_attention_layernorm.weight";
    let run = |by: f32| {
        let values = |parameter: &Parameter| {
            let mut values = retrograph_finetune::init::initial_values(parameter, 3);
            // Large weights, so that the loss depends on the gain of the norm.
            values.iter_mut().for_each(|value| *value *= 30.0);
            if parameter.name == name {
                values[0] += by;
            }
            values
        };
        let mut options = options(Policy::Manual);
        options.step = retrograph_finetune::model::GradientOwner::External.into();
        let plan = Plan::new(&config, options).unwrap();
        let mut values = |parameter: &Parameter| Ok(values(parameter));
        let source = Source::Values(&mut values);
        let mut trainer = plan.start(&device.modules(), source, &mut |_| ()).unwrap();
        let batch = text().batch([config.batch, config.seq], 0, 0).unwrap();
        let loss = f64::from(trainer.step(&batch).unwrap().loss);
        let gradients = trainer.gradients().unwrap();
        let gradient = gradients.into_iter().find(|(held, _)| held == name).unwrap().1;
        (loss, f64::from(gradient[0]))
    };
    let (step, gradient) = (1.0, run(0.0).1);
    let slope = (run(step as f32).0 - run(-step as f32).0) / (2.0 * step);
    let close = (slope - gradient).abs() <= 1e-6 + 0.05 * gradient.abs();
    assert!(close, "slope {slope}, gradient {gradient}");
}

/// NaN does not pass the clipping: the run stops with the step and the value, and the state of the
/// step before.
#[test]
fn a_step_that_is_not_finite_changes_nothing_and_is_named() {
    let device = device();
    let config = config(Mode::Full, 20);
    for (what, broken) in [("NaN", f32::NAN), ("infinity", f32::INFINITY)] {
        let mut values = |parameter: &Parameter| {
            let mut values = retrograph_finetune::init::initial_values(parameter, 3);
            if parameter.name == "model.layers.1.mlp.down_proj.weight" {
                values[7] = broken;
            }
            values
        };
        let mut trainer = with_values(&device, &config, &mut values);
        let before = bits(&trainer);
        let batch = text().batch([config.batch, config.seq], 0, 0).unwrap();
        // Several steps are in flight before the results are read.
        trainer.enqueue(&batch).unwrap();
        trainer.enqueue(&batch).unwrap();
        let error = trainer.finished(true).unwrap_err();
        assert!(matches!(error, Error::NotFinite { step: 0, .. }), "{what}: {error}");
        assert!(bits(&trainer) == before, "{what} got into the state");
    }
}

/// A run with a checkpoint after each step, which fails.
fn fails(directory: &CheckpointDirectory, trainer: Trainer, text: TextData) -> Error {
    let (data, config) = (Data::from(text), *trainer.config());
    let checkpoints = Some(directory.clone());
    let mut run = Run { checkpoints, checkpoint_every: 1, ..Run::new(trainer, &data) };
    let stop = std::sync::atomic::AtomicBool::new(false);
    run.train(config.optimizer.total_steps, &stop, &mut |_| ()).unwrap_err()
}

/// A run does not return to weights whose loss was not finite: the checkpoint that `latest` names
/// afterwards was followed by a step with a finite loss.
#[test]
fn the_last_good_checkpoint_is_one_that_a_finite_loss_followed() {
    let folder = tempfile::tempdir().unwrap();
    let directory = CheckpointDirectory::create(folder.path()).unwrap();
    let config = config_with_nan(config(LORA, 40));
    let mut tokens: Vec<u32> = (0..400).map(|at| at % 97).collect();
    tokens[10] = NAN_TOKEN;
    let text = TextData::from_tokens(tokens);
    let bad = |step: &u32| {
        let batch = text.batch([config.batch, config.seq], config.seed, *step).unwrap();
        batch.tokens.contains(&NAN_TOKEN)
    };
    let first = (0..40).find(bad).unwrap();
    assert!(first >= 2, "the seed must leave steps before it: {first}");
    let trainer = with_values(&device(), &config, &mut values_with_nan);
    let error = fails(&directory, trainer, text.clone());
    let Error::NotFinite { step, kept: Kept::Checkpoint(path), .. } = error else {
        panic!("{error}");
    };
    assert_eq!(step, first);
    assert_eq!(directory.latest().unwrap(), Some(path));
    assert_eq!(directory.open_latest().unwrap().header().next_step, step - 1);
}

/// If the only checkpoint has the weights that failed, no checkpoint is called good.
#[test]
fn a_checkpoint_of_weights_that_exploded_is_not_called_good() {
    let folder = tempfile::tempdir().unwrap();
    let directory = CheckpointDirectory::create(folder.path()).unwrap();
    let mut config = config(Mode::Full, 40);
    // So large a rate overflows after a step.
    (config.optimizer.peak_lr, config.optimizer.min_lr) = (1e30, 0.0);
    config.optimizer.warmup_steps = 0;
    let trainer = trainer(&device(), &config, options(Policy::Manual));
    let error = fails(&directory, trainer, text());
    let found = matches!(&error, Error::NotFinite { step: 1, kept: Kept::Suspect(_), .. });
    assert!(found, "{error}");
    assert!(error.to_string().contains("no checkpoint is known to be good"), "{error}");
}

/// Frozen weights do not change, bit for bit.
#[test]
fn lora_does_not_change_the_base() {
    let device = device();
    let config = config(LORA, 4);
    let mut trainer = trainer(&device, &config, options(Policy::Manual));
    train(&mut trainer, 4);
    let state = trainer.state();
    for parameter in state.parameters() {
        let found = state.values(trainer.stream(), &parameter.name).unwrap().unwrap();
        let start = retrograph_finetune::init::initial_values(parameter, config.seed);
        assert_eq!(found == start, !parameter.trainable, "{}", parameter.name);
    }
}

/// More steps than can be in flight are refused, and those that are in flight end as usual.
#[test]
fn a_step_beyond_those_in_flight_is_refused() {
    let mut config = config(Mode::Full, 20);
    config.batch = 1;
    let mut trainer = trainer(&device(), &config, options(Policy::Manual));
    let batch = text().batch([config.batch, config.seq], config.seed, 0).unwrap();
    while !trainer.is_full() {
        trainer.enqueue(&batch).unwrap();
    }
    let started = trainer.next_step();
    for refused in [trainer.enqueue(&batch), trainer.step(&batch).map(|_| ())] {
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::StepsInFlight { most: 3 }), "{error}");
    }
    assert_eq!(trainer.next_step(), started);
    while trainer.finished(true).unwrap().is_some() {}
    assert_eq!(trainer.losses().len(), started as usize);
    trainer.step(&batch).unwrap();
}

/// A token that the model does not know is named before anything is computed.
#[test]
fn a_token_outside_the_vocabulary_is_refused_and_changes_nothing() {
    let config = config(Mode::Full, 20);
    let mut trainer = trainer(&device(), &config, options(Policy::Manual));
    let before = bits(&trainer);
    let good = text().batch([config.batch, config.seq], config.seed, 0).unwrap();
    for token in [256, u32::MAX - 1, u32::MAX] {
        let of_token = |change: fn(&mut Batch) -> &mut Vec<u32>| {
            let mut batch = good.clone();
            change(&mut batch)[3] = token;
            batch
        };
        let mut batches = vec![(of_token(|batch| &mut batch.tokens), "the batch")];
        // The largest number says that a target has no loss.
        if token != u32::MAX {
            batches.push((of_token(|batch| &mut batch.targets), "the targets of the batch"));
        }
        for (batch, part) in batches {
            let refusals = [
                trainer.enqueue(&batch).unwrap_err(),
                trainer.controls(0, &batch).map(|_| ()).unwrap_err(),
                trainer.profile(&batch, 1).map(|_| ()).unwrap_err(),
            ];
            for error in refusals {
                let said = error.to_string();
                let expected = format!("token 3 of {part} is {token}, but the vocabulary");
                assert!(said.starts_with(&expected), "{said}");
            }
        }
    }
    assert!(trainer.next_step() == 0 && bits(&trainer) == before);

    let outside = TextData::from_tokens((0..64).map(|at| at * 5).collect()).into();
    let inside = Data::from(text());
    for (training, held_out) in [(&outside, &inside), (&inside, &outside)] {
        let plan = Plan::new(&config, TrainerOptions::default()).unwrap();
        let plan = plan.with_held_out().unwrap();
        let trainer = plan.start(&device().modules(), Source::Seed, &mut |_| ()).unwrap();
        let held_out = HeldOut::new(held_out, Evaluator::of(&trainer).unwrap(), 0);
        let mut run = Run { held_out: Some(held_out), ..Run::new(trainer, training) };
        let stop = std::sync::atomic::AtomicBool::new(false);
        let error = run.train(2, &stop, &mut |_| ()).unwrap_err().to_string();
        assert!(error.starts_with("token 52 of the text is 260"), "{error}");
        assert_eq!(run.trainer.next_step(), 0);
    }
}
