//! Runs on several devices: they learn the same as one device, with the same bits in each run.

use std::sync::atomic::{AtomicBool, Ordering};

use retrograph_finetune::checkpoint::{Checkpoint, CheckpointDirectory};
use retrograph_finetune::data::{Example, Examples, Layout, Lengths};
use retrograph_finetune::model::{GradientOwner, StepOptions, StepPass};
use retrograph_finetune::parameters::Parameter;
use retrograph_finetune::{
    Batch, Data, DpoConfig, Ending, Error, Evaluator, Event, HeldOut, HeldOutLoss, LoraConfig,
    LoraLayers, LoraPatterns, LoraTargets, Mode, Plan, Precision, Run, Source, Tokenizer, Trainer,
    TrainerOptions, TrainingConfig,
};
use retrograph_nccl_sys::NCCL_CTA_POLICY_ZERO;
use retrograph_runtime::{Ranks, Strategy};
use retrograph_test_support::with;

use crate::device::device;
use crate::dora::DORA;
use crate::models::{
    LORA, NAN_TOKEN, bits, config, config_with_nan, text, train, trainer, values_with_nan,
};
use crate::ranks::{Rank, Setup, on_ranks};

const STEPS: u32 = 6;
/// Steps whose losses and norms are compared.
const COMPARED: u32 = 3;

/// Prompts with completions of several lengths, some of which fill a third of a sequence.
fn examples(lengths: usize, packing: bool) -> Data {
    let tokenizer = Tokenizer::bytes();
    let one = |number: usize| {
        let length = [1, 1, 6, 1, 12, 3][number % 6];
        Example::completion("a:", &"bcdefg".repeat(3)[..length], &tokenizer).unwrap()
    };
    let layout = Layout { lengths: Lengths::new(9, lengths), packing, pad: 0 };
    Examples::new((0..20).map(one).collect(), layout).unwrap().into()
}

fn batch_of(mode: Mode, precision: Precision, batch: usize) -> TrainingConfig {
    TrainingConfig { precision, batch, ..config(mode, STEPS) }
}

/// Trains the first steps on `data`, and returns the losses and norms.
fn train_on(trainer: &mut Trainer, data: &Data) -> Vec<[f32; 2]> {
    let config = *trainer.config();
    let mut all = Vec::new();
    while trainer.next_step() < COMPARED {
        let shape = [config.batch, config.seq];
        let batch = data.batch(shape, config.seed, trainer.next_step()).unwrap();
        let metrics = trainer.step(&batch).unwrap();
        all.push([metrics.loss, metrics.grad_norm]);
    }
    all
}

#[track_caller]
fn assert_close(found: &[[f32; 2]], expected: &[[f32; 2]], most: f32) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
        let error = (found - expected).abs() / expected.abs();
        assert!(error < most, "{found} instead of {expected}: {error}");
    }
}

/// Losses and norms of a run on one device, and on `count` devices, which must have equal bits on
/// all ranks and in both of two runs.
fn on_one_and_many(
    config: &TrainingConfig,
    data: &Data,
    count: usize,
    options: TrainerOptions,
) -> [Vec<[f32; 2]>; 2] {
    let mut alone = trainer(&device(), config, options);
    let expected = train_on(&mut alone, data);
    let run = || {
        on_ranks(count, |rank| {
            let mut trainer = rank.trainer(config, options);
            let metrics = train_on(&mut trainer, data);
            assert_eq!(trainer.report().strategy, Strategy::Hybrid);
            assert_eq!(trainer.jit_after_warm(), 0);
            trainer.gather_parameters().unwrap();
            (metrics, values(&trainer))
        })
    };
    let found = run();
    for other in &found {
        assert!(other.0 == found[0].0, "{:?} and {:?}", other.0, found[0].0);
        assert!(other.1 == found[0].1, "ranks have other weights");
    }
    assert!(run() == found, "a second run has other bits");
    [found.into_iter().next().unwrap().0, expected]
}

/// The bits of all parameters, without moments, which are sharded.
fn values(trainer: &Trainer) -> Vec<(String, Vec<u32>)> {
    let all = bits(trainer);
    all.into_iter().filter(|(name, _)| !name.starts_with("adamw.")).collect()
}

/// LoRA of the last layer, with other ranks of queries and values.
fn one_layer() -> Mode {
    let patterns = LoraPatterns::new([("v_proj".to_owned(), 5)], []).unwrap();
    Mode::Lora(LoraConfig {
        layers: LoraLayers::of([1]).unwrap(),
        patterns,
        ..LORA.lora().unwrap()
    })
}

#[test]
fn two_devices_learn_what_one_learns_from_the_same_batch() {
    for (mode, precision, most) in [
        (LORA, Precision::F32, 1e-5),
        (Mode::Full, Precision::F32, 1e-5),
        (one_layer(), Precision::F32, 1e-5),
        (Mode::Lora(DORA), Precision::F32, 1e-5),
        (Mode::Lora(DORA), Precision::BF16, 5e-3),
        (LORA, Precision::BF16, 2e-3),
        (Mode::Full, Precision::BF16, 2e-3),
        (Mode::Full, Precision::BF16.bf16_gradients(), 1e-2),
    ] {
        let config = batch_of(mode, precision, 4);
        let data = Data::from(text());
        let options = TrainerOptions::default();
        let [found, expected] = on_one_and_many(&config, &data, 2, options);
        assert_close(&found, &expected, most);
    }
}

#[test]
fn two_devices_learn_preferences_as_one_does() {
    let mode = Mode::Lora(LoraConfig { norms: false, ..LORA.lora().unwrap() });
    let config = batch_of(mode, Precision::F32, 4);
    let preference = Some(DpoConfig::new(0.5));
    let mut options = TrainerOptions::default();
    options.step.preference = preference;
    let data = Data::from(text());
    let [found, expected] = on_one_and_many(&config, &data, 2, options);
    // Log-ratios are differences of sums, which magnifies the rounding.
    assert_close(&found, &expected, 1e-4);

    let batch = data.batch([config.batch, config.seq], config.seed, 0).unwrap();
    let first = |mut trainer: Trainer| {
        trainer.step(&batch).unwrap();
        trainer.step(&batch).unwrap().preference.unwrap()
    };
    let alone = first(trainer(&device(), &config, options));
    for found in on_ranks(2, |rank| first(rank.trainer(&config, options))) {
        for (found, expected) in [
            (found.chosen, alone.chosen),
            (found.rejected, alone.rejected),
            (found.accuracy, alone.accuracy),
        ] {
            assert!((found - expected).abs() < 1e-5, "{found} instead of {expected}");
        }
    }
    // Each rank has whole pairs.
    let odd = TrainingConfig { batch: 6, ..config };
    options.step.ranks = Ranks { rank: 0, world_size: 2 };
    let error = StepPass::new(&odd, options.step).unwrap_err().to_string();
    assert!(error.contains("even"), "{error}");
}

/// Four devices: parameters that have no four blocks are replicated, in buckets of several.
#[test]
fn four_devices_learn_what_one_learns() {
    for mode in [LORA, Mode::Full] {
        let config = batch_of(mode, Precision::F32, 4);
        let mut options = TrainerOptions::default();
        options.step.bucket_bytes = Some(2048);
        let data = Data::from(text());
        let [found, expected] = on_one_and_many(&config, &data, 4, options);
        assert_close(&found, &expected, 1e-5);
    }
}

/// Ignored targets are spread unevenly: the mean is over the targets of all devices.
#[test]
fn the_mean_is_over_the_targets_of_all_devices() {
    for (lengths, packing) in [(1, false), (3, false), (1, true)] {
        let config = batch_of(LORA, Precision::F32, 4);
        let data = examples(lengths, packing);
        let mut options = TrainerOptions::default();
        options.lengths = lengths;
        options.step.packed = packing;
        let [found, expected] = on_one_and_many(&config, &data, 2, options);
        assert_close(&found, &expected, 1e-5);
    }
}

#[test]
fn micro_batches_are_added_before_the_exchange() {
    for mode in [LORA, Mode::Full] {
        for (micro_batch, interleave) in [(Some(1), None), (None, Some(2))] {
            let config = batch_of(mode, Precision::F32, 8);
            let mut options = TrainerOptions::default();
            options.step.micro_batch = micro_batch;
            options.step.recompute = micro_batch.is_some();
            options.step.interleave = interleave;
            let data = Data::from(text());
            let expected = train_on(&mut trainer(&device(), &config, options), &data);
            let found = on_ranks(2, |rank| train_on(&mut rank.trainer(&config, options), &data));
            assert_close(&found[0], &expected, 1e-5);
        }
    }
}

/// Two devices, and two micro-batches on one, drop what one device drops.
#[test]
fn dropout_does_not_depend_on_the_division_of_a_batch() {
    let lora = LoraConfig { targets: LoraTargets::ALL, dropout: 0.3, ..LoraConfig::new(3, 6.0) };
    let config = batch_of(Mode::Lora(lora), Precision::F32, 4);
    let interleave = |count| with(TrainerOptions::default(), |it| it.step.interleave = Some(count));
    let data = Data::from(text());
    let alone = |count| train_on(&mut trainer(&device(), &config, interleave(count)), &data);
    let expected = alone(1);
    assert_close(&alone(2), &expected, 1e-5);
    for count in [1, 2] {
        let found = on_ranks(2, |rank| {
            let mut trainer = rank.trainer(&config, interleave(count));
            train_on(&mut trainer, &data)
        });
        assert_close(&found[0], &expected, 1e-5);
    }
}

/// Every replay equals an eager step on a copy of the model, with its own collectives.
#[test]
fn replays_of_every_rank_equal_eager_steps() {
    for mode in [LORA, Mode::Full] {
        let config = batch_of(mode, Precision::BF16, 4);
        on_ranks(2, |rank| {
            let mut options = TrainerOptions::default();
            options.verify = true;
            let mut trainer = rank.trainer(&config, options);
            train(&mut trainer, 3);
            assert_eq!(trainer.verified_steps(), 3);
            assert!(trainer.report().collectives.operations > 0);
        });
    }
}

#[test]
fn gradients_that_the_caller_keeps_are_sums_over_all_devices() {
    let config = batch_of(LORA, Precision::F32, 4);
    let mut options = TrainerOptions::default();
    options.step = GradientOwner::External.into();
    let batch = text().batch([config.batch, config.seq], config.seed, 0).unwrap();
    let mut alone = trainer(&device(), &config, options);
    alone.step(&batch).unwrap();
    let expected = alone.gradients().unwrap();
    let found = on_ranks(2, |rank| {
        let mut trainer = rank.trainer(&config, options);
        trainer.step(&batch).unwrap();
        trainer.gradients().unwrap()
    });
    assert!(found[0] == found[1]);
    for ((name, found), (expected_name, expected)) in found[0].iter().zip(&expected) {
        assert_eq!(name, expected_name);
        let largest = expected.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() <= 1e-5 * largest, "{name}: {found}, {expected}");
        }
    }
}

/// Each rank has only the moments of its blocks.
#[test]
fn the_optimizer_state_is_sharded() {
    let config = batch_of(Mode::Full, Precision::BF16, 4);
    let need = |count| {
        let ranks = Ranks { rank: 0, world_size: count };
        let mut options = TrainerOptions::default();
        options.step.ranks = ranks;
        options.step.shard_from = Some(0);
        Plan::new(&config, options).unwrap().memory().optimizer
    };
    let (one, two) = (need(1), need(2));
    // Norms of 16 elements, and biases of 16 and 8, are replicated.
    let replicated = 2 * 4 * (5 * 16 + 2 * (16 + 8 + 8));
    assert_eq!(two - replicated, (one - replicated) / 2);
}

#[test]
fn weights_that_are_exchanged_are_in_memory_of_the_communicator() {
    for (mode, windows) in [(Mode::Full, 1), (LORA, 0)] {
        let config = batch_of(mode, Precision::BF16, 4);
        // Only the simulated NCCL reports which memory is registered.
        Setup { simulated: true, ..Setup::of(2) }.run(|rank| {
            let _trainer = rank.trainer(&config, TrainerOptions::default());
            let states = retrograph_nccl_sim::ranks(&rank.id);
            let number = rank.ranks().rank as i32;
            let state = states.iter().find(|state| state.rank == number).unwrap();
            assert_eq!((state.windows, state.cta_policy), (windows, Some(NCCL_CTA_POLICY_ZERO)));
        });
    }
}

/// Weights are exchanged during the forward pass, and gradients during the backward pass.
#[test]
fn collectives_overlap_with_the_passes() {
    let config = batch_of(Mode::Full, Precision::F32, 4);
    let ranks = Ranks { rank: 1, world_size: 2 };
    let (shard_from, bucket_bytes) = (Some(0), Some(2048));
    let mut step = StepOptions::default();
    step.ranks = ranks;
    step.shard_from = shard_from;
    step.bucket_bytes = bucket_bytes;
    let pass = StepPass::new(&config, step).unwrap().pass;
    let is_collective = |at: usize| pass.operations()[at].collective_bytes().is_some();
    let numbers: Vec<usize> =
        (0..pass.operations().len()).filter(|&at| is_collective(at)).collect();
    assert!(numbers.len() > 4, "{numbers:?}");
    let names: Vec<&str> = numbers.iter().map(|&at| pass.operations()[at].name()).collect();
    let count = |start: &str| names.iter().filter(|name| name.starts_with(start)).count();
    assert!(count("weights/") > 2 && count("gradients ") > 2, "{names:?}");
    assert_eq!((count("clip/all_gather"), count("optimizer/all_gather")), (1, 1), "{names:?}");
    let edges = pass.edges();
    let waiting_for = |first: usize| {
        let mut waits = vec![false; pass.operations().len()];
        waits[first] = true;
        for at in first + 1..waits.len() {
            let incoming = edges.into_operation(edges.operation(at));
            waits[at] = incoming.iter().any(|edge| waits[edge.from.index()]);
        }
        waits
    };
    let named = |start: &str, part: &str| -> Vec<usize> {
        let all = numbers.iter().zip(&names);
        let found = all.filter(|(_, name)| name.starts_with(start) && name.contains(part));
        found.map(|(&at, _)| at).collect()
    };
    let (of_gradients, of_blocks) =
        (named("gradients ", ""), named("gradients ", "reduce_scatter"));
    let first = of_gradients[0];
    let rows = named("embedding backward/", "all_gather")[0];
    let after_rows = of_gradients.iter().filter(|&&at| at > rows).count();
    assert!(
        after_rows > 1,
        "the first layer exchanges its last gradients after the rows of tokens: {names:?}"
    );
    let during = waiting_for(first)[first..].iter().filter(|waits| !**waits).count();
    assert!(during > 20, "{during} operations can run during the first exchange of gradients");
    let last_of_weights = numbers[count("weights/") - 1];
    let waits = |at: usize| {
        let incoming = edges.into_operation(edges.operation(at));
        incoming.iter().any(|edge| edge.from.index() == last_of_weights)
    };
    let reader = (last_of_weights + 1..pass.operations().len()).find(|&at| waits(at)).unwrap();
    let head = pass.operations()[reader].name();
    assert!(head.starts_with("layer 1/"), "the forward pass runs meanwhile, until {head}");
    let all = |verb: &str| -> Vec<usize> {
        let found = pass.operations().iter().enumerate();
        found.filter(|(_, operation)| operation.verb() == verb).map(|(at, _)| at).collect()
    };
    let after_last = waiting_for(of_blocks[of_blocks.len() - 1]);
    let sums = all("grad_norm_partials");
    let early = sums.iter().filter(|&&at| !after_last[at]).count();
    assert!(early > 0 && early < sums.len(), "squares are summed during the last exchange");
    let updates = all("adamw");
    assert_eq!(updates.len(), 2, "of the token table, and of the rest");
    assert!(waiting_for(updates[0])[updates[1]], "the exchange of the table has time");
}

#[test]
fn a_batch_without_equal_parts_is_refused() {
    let config = batch_of(LORA, Precision::F32, 4);
    let mut options = TrainerOptions::default();
    options.step.ranks = Ranks { rank: 0, world_size: 3 };
    let text = Plan::new(&config, options).unwrap_err().to_string();
    assert!(text.contains("batch is 4, but it must be a multiple of the number of devices, 3"));
}

#[test]
fn several_ranks_need_a_group() {
    let config = batch_of(LORA, Precision::F32, 4);
    let mut options = TrainerOptions::default();
    options.step.ranks = Ranks { rank: 0, world_size: 2 };
    let plan = Plan::new(&config, options).unwrap();
    let error = plan.start(&device().modules(), Source::Seed, &mut |_| ()).unwrap_err();
    assert!(error.to_string().contains("the group of 2 processes has no communicator"));
}

/// The rows of a step on all ranks are those of the batch, each once.
#[test]
fn an_epoch_has_every_sequence_once_on_some_rank() {
    let data = examples(1, false);
    let Data::Examples(all) = &data else { panic!("examples are no text") };
    let sequences = all.tally().sequences;
    let rows = |batch: &Batch, ranks: Ranks| batch.tokens[ranks.block(batch.tokens.len())].to_vec();
    let mut seen: Vec<Vec<u32>> = Vec::new();
    for step in 0..sequences / 4 {
        let batch = data.batch([4, 9], 3, step as u32).unwrap();
        for rank in 0..2 {
            let rows = rows(&batch, Ranks { rank, world_size: 2 });
            seen.extend(rows.chunks(9).map(<[u32]>::to_vec));
        }
    }
    let whole = data.in_order([sequences, 9], 0).unwrap().unwrap();
    let mut expected: Vec<Vec<u32>> = whole.tokens.chunks(9).map(<[u32]>::to_vec).collect();
    expected.sort();
    seen.sort();
    assert_eq!(seen, expected);
}

fn run_with<'a>(trainer: Trainer, data: &'a Data, directory: &CheckpointDirectory) -> Run<'a> {
    let checkpoints = Some(directory.clone());
    Run { checkpoints, checkpoint_every: 3, ..Run::new(trainer, data) }
}

fn finish(run: &mut Run<'_>, until: u32) {
    let ending = run.train(until, &AtomicBool::new(false), &mut |_| ());
    assert_eq!(ending.unwrap(), Ending::Done);
}

fn resumed(rank: &Rank, directory: &CheckpointDirectory) -> Trainer {
    let mut checkpoint = directory.open_latest().unwrap();
    let plan = rank.plan(&checkpoint.header().config.clone(), TrainerOptions::default());
    rank.start(plan, Source::Checkpoint(&mut checkpoint))
}

/// A checkpoint of two devices continues on two, bit for bit, and on one and four.
#[test]
fn a_checkpoint_continues_on_any_number_of_devices() {
    for (mode, precision) in [(LORA, Precision::F32), (Mode::Full, Precision::BF16)] {
        let (config, data) = (batch_of(mode, precision, 4), Data::from(text()));
        let folder = tempfile::tempdir().unwrap();
        let directory = CheckpointDirectory::create(folder.path()).unwrap();
        let whole = on_ranks(2, |rank| {
            let trainer = rank.trainer(&config, TrainerOptions::default());
            let mut run = Run::new(trainer, &data);
            finish(&mut run, STEPS);
            (run.trainer.losses().to_vec(), bits(&run.trainer))
        });
        on_ranks(2, |rank| {
            let trainer = rank.trainer(&config, TrainerOptions::default());
            finish(&mut run_with(trainer, &data, &directory), 4);
        });
        let files = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(files, 3, "two checkpoints and `latest`, each written once");
        let kept = directory.open_latest().unwrap().path().to_owned();
        assert_eq!(Checkpoint::open(&kept).unwrap().header().ranks, 2);
        let again = on_ranks(2, |rank| {
            let mut run = Run::new(resumed(rank, &directory), &data);
            assert_eq!(run.trainer.next_step(), 4);
            finish(&mut run, STEPS);
            (run.trainer.losses().to_vec(), bits(&run.trainer))
        });
        assert!(again == whole, "a resumed run has other bits");
        let mut checkpoint = directory.open_latest().unwrap();
        let plan = Plan::new(&config, TrainerOptions::default()).unwrap();
        let source = Source::Checkpoint(&mut checkpoint);
        let alone = plan.start(&device().modules(), source, &mut |_| ()).unwrap();
        let mut alone = Run::new(alone, &data);
        finish(&mut alone, STEPS);
        let four = on_ranks(4, |rank| {
            let mut run = Run::new(resumed(rank, &directory), &data);
            finish(&mut run, STEPS);
            run.trainer.losses().to_vec()
        });
        for losses in [alone.trainer.losses(), &four[0]] {
            for (found, expected) in losses.iter().zip(&whole[0].0) {
                assert!((found - expected).abs() < 2e-3 * expected, "{losses:?}, {:?}", whole[0].0);
            }
        }
    }
}

/// A checkpoint has what a run on one device would have written.
#[test]
fn a_checkpoint_has_the_blocks_of_all_devices() {
    let (config, data) = (batch_of(Mode::Full, Precision::F32, 4), Data::from(text()));
    let write = |run: &mut Run<'_>| finish(run, STEPS);
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [one, two] =
        folders.each_ref().map(|folder| CheckpointDirectory::create(folder.path()).unwrap());
    write(&mut run_with(trainer(&device(), &config, TrainerOptions::default()), &data, &one));
    on_ranks(2, |rank| {
        let trainer = rank.trainer(&config, TrainerOptions::default());
        write(&mut run_with(trainer, &data, &two));
    });
    let [mut one, mut two] = [one, two].map(|directory| directory.open_latest().unwrap());
    for name in ["model.embed_tokens.weight", "model.layers.1.mlp.down_proj.weight"] {
        for name in [name.to_owned(), format!("adamw.first.{name}"), format!("adamw.second.{name}")]
        {
            let (found, expected) = (two.tensor(&name).unwrap(), one.tensor(&name).unwrap());
            let largest = expected.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
            assert!(largest > 0.0);
            let differs =
                |(found, expected): (&f32, &f32)| (found - expected).abs() > 1e-2 * largest;
            let count = found.iter().zip(&expected).filter(|pair| differs(*pair)).count();
            assert!(count < found.len() / 50, "{name}: {count} of {}", found.len());
        }
    }
}

/// The stop request of one rank stops all ranks after the same step.
#[test]
fn all_ranks_stop_after_the_same_step() {
    let (config, data) = (TrainingConfig { batch: 4, ..config(LORA, 40) }, Data::from(text()));
    let folder = tempfile::tempdir().unwrap();
    let directory = CheckpointDirectory::create(folder.path()).unwrap();
    let steps = on_ranks(2, |rank| {
        let trainer = rank.trainer(&config, TrainerOptions::default());
        let mut run = run_with(trainer, &data, &directory);
        let stop = AtomicBool::new(false);
        let ending = run.train(40, &stop, &mut |event| {
            if let Event::Step(metrics) = event {
                stop.store(!rank.is_first() && metrics.step >= 4, Ordering::Relaxed);
            }
        });
        assert_eq!(ending.unwrap(), Ending::Stopped);
        run.trainer.next_step()
    });
    assert_eq!(steps[0], steps[1]);
    assert!((5..14).contains(&steps[0]), "{steps:?}");
    assert_eq!(directory.open_latest().unwrap().header().next_step, steps[0]);
}

#[test]
fn held_out_losses_match_one_device() {
    held_out_losses_of(batch_of(LORA, Precision::F32, 4), 1e-5);
    // Steps leave only a block of each weight and of its copy current.
    held_out_losses_of(batch_of(Mode::Full, Precision::F32, 4), 1e-5);
    held_out_losses_of(batch_of(Mode::Full, Precision::BF16, 4), 1e-3);
}

fn held_out_losses_of(config: TrainingConfig, most: f32) {
    let (data, held_out) = (examples(1, false), examples(1, true));
    let planned = |plan: Plan| plan.with_held_out().unwrap();
    let measure = |trainer: Trainer| {
        let evaluator = Evaluator::of(&trainer).unwrap();
        let held_out = Some(HeldOut::new(&held_out, evaluator, 2));
        let mut run = Run { held_out, ..Run::new(trainer, &data) };
        finish(&mut run, STEPS);
        run.trainer.held_out().to_vec()
    };
    let plan = planned(Plan::new(&config, TrainerOptions::default()).unwrap());
    let alone = plan.start(&device().modules(), Source::Seed, &mut |_| ()).unwrap();
    let expected = measure(alone);
    let found = on_ranks(2, |rank| {
        let plan = planned(rank.plan(&config, TrainerOptions::default()));
        measure(rank.start(plan, Source::Seed))
    });
    assert_eq!(found[0], found[1]);
    assert_eq!(expected.len(), 3);
    for (found, expected) in found[0].iter().zip(&expected) {
        assert_eq!((found.steps, found.tokens), (expected.steps, expected.tokens));
        assert!((found.loss - expected.loss).abs() < most * expected.loss);
    }
}

/// All ranks end early after the same step, and the first one keeps the best checkpoint.
#[test]
fn ranks_end_early_together_and_keep_the_best_checkpoint() {
    let mut config = TrainingConfig { batch: 4, ..config(LORA, 40) };
    config.optimizer.peak_lr = 0.5;
    let (data, held_out) = (examples(1, false), examples(1, true));
    let folder = tempfile::tempdir().unwrap();
    let directory = CheckpointDirectory::create(folder.path()).unwrap();
    let found = on_ranks(2, |rank| {
        let plan = rank.plan(&config, TrainerOptions::default()).with_held_out().unwrap();
        let trainer = rank.start(plan, Source::Seed);
        let evaluator = Evaluator::of(&trainer).unwrap();
        let new = HeldOut::new(&held_out, evaluator, 1);
        let mut run = run_with(trainer, &data, &directory);
        run.held_out = Some(HeldOut { patience: Some(2), keep_best: true, ..new });
        let ending = run.train(40, &AtomicBool::new(false), &mut |_| ()).unwrap();
        assert_eq!(ending, Ending::EarlyStopped);
        run.trainer.held_out().to_vec()
    });
    assert_eq!(found[0], found[1]);
    let best = HeldOutLoss::best(&found[0]).unwrap();
    assert_eq!(directory.open_best().unwrap().header().next_step, best.steps);
    let last = directory.open_latest().unwrap().header().next_step;
    assert_eq!(last, best.steps + 2);
}

/// A token without a finite loss, in the rows of one rank, stops all and names that rank.
#[test]
fn a_loss_that_is_not_finite_names_step_and_rank() {
    let config = config_with_nan(batch_of(LORA, Precision::F32, 4));
    for culprit in [0, 1] {
        on_ranks(2, |rank| {
            let plan = rank.plan(&config, TrainerOptions::default());
            let values = &mut |parameter: &Parameter| Ok(values_with_nan(parameter));
            let mut trainer = rank.start(plan, Source::Values(values));
            train(&mut trainer, 3);
            let mut batch = text().batch([4, 9], 1, 3).unwrap();
            batch.tokens[18 * culprit + 4] = NAN_TOKEN;
            let Err(Error::NotFinite { step: 3, rank, .. }) = trainer.step(&batch) else {
                panic!("the step has a finite loss");
            };
            assert_eq!(rank, Some(culprit));
        });
    }
}
