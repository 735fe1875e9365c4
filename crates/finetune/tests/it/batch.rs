//! Batched generation: each sequence has the same tokens as alone.

use retrograph_driver_sim::Config;
use retrograph_finetune::generate::{Advance, Event, GenerationBatch};
use retrograph_finetune::parameters::Parameter;
use retrograph_finetune::{
    Error, GatedActivation, GenerationPlan, GeneratorOptions, InferenceConfig, Mode, ModelConfig,
    Precision, Preset, Request, Sampling, Source, Stage, TrainingConfig,
};
use retrograph_kernels::DType;
use retrograph_runtime::{BuildOptions, Policy};
use retrograph_test_support::with;

use crate::device::{device, simulated};
use crate::dora::DORA;
use crate::generation::{
    generator_on, is_greedy, is_nearly_greedy, llama3, prompt, qwen3, windowed,
};
use crate::golden::{config, weights};
use crate::models::LORA;

fn options(batch: usize, max_length: usize) -> GeneratorOptions {
    with(GeneratorOptions::new(max_length), |it| it.batch = batch)
}

fn batch(config: &TrainingConfig, options: GeneratorOptions) -> GenerationBatch {
    GenerationBatch::new(generator_on(&device(), config, options)).unwrap()
}

/// A request with its own prompt.
#[derive(Clone)]
struct Asked {
    prompt: Vec<u32>,
    max_tokens: usize,
    sampling: Sampling,
    ends: Vec<u32>,
}

impl Asked {
    fn request(&self) -> Request<'_> {
        let Self { prompt, max_tokens, sampling, ends } = self;
        Request { prompt, max_tokens: *max_tokens, sampling: *sampling, eos: ends }
    }
}

/// Greedy and sampled sequences of several lengths, more sequences than slots.
fn asked() -> Vec<Asked> {
    let drawn = Sampling {
        temperature: 0.8,
        top_k: 30,
        repetition_penalty: 1.3,
        seed: 11,
        ..Sampling::greedy()
    };
    let of = |len: usize, max_tokens, sampling| Asked {
        prompt: prompt(len + 3).split_off(3),
        max_tokens,
        sampling,
        ends: Vec::new(),
    };
    let greedy = Sampling::greedy();
    vec![
        of(5, 12, greedy),
        of(1, 3, drawn),
        of(19, 9, greedy),
        of(7, 1, greedy),
        of(2, 0, greedy),
        of(30, 8, Sampling { seed: 12, ..drawn }),
        of(3, 10, Sampling { repetition_penalty: 1.5, ..greedy }),
    ]
}

/// The tokens of all requests, each started as soon as a slot is free.
fn run(batch: &mut GenerationBatch, asked: &[Asked]) -> Vec<Vec<u32>> {
    let mut sequences = vec![Vec::new(); asked.len()];
    let mut of_slot = vec![None; batch.slots()];
    let mut waiting = asked.iter().enumerate();
    let mut left = asked.len();
    while left > 0 {
        while batch.free_slot().is_some() {
            let Some((number, one)) = waiting.next() else { break };
            of_slot[batch.start(&one.request()).unwrap()] = Some(number);
        }
        for Advance { slot, event } in batch.step().unwrap() {
            let number = of_slot[slot].expect("the slot has a sequence");
            match event {
                Event::Token(token) => sequences[number].push(token),
                Event::EndedBy(_) | Event::Full => {
                    of_slot[slot] = None;
                    left -= 1;
                }
                Event::NotFinite { position } => panic!("no logits at {position}"),
            }
        }
    }
    sequences
}

fn alone(batch: &mut GenerationBatch, asked: &[Asked]) -> Vec<Vec<u32>> {
    asked.iter().map(|one| run(batch, std::slice::from_ref(one)).remove(0)).collect()
}

#[test]
fn sequences_have_the_same_tokens_as_alone() {
    let asked = asked();
    let windowed_llama3 = |model: &mut ModelConfig| {
        llama3(model);
        windowed(model);
    };
    let capped = |model: &mut ModelConfig| model.attention_softcap = Some(0.75);
    for (change, mode) in [
        (qwen3 as fn(&mut ModelConfig), Mode::Full),
        (windowed_llama3, LORA),
        (capped, LORA),
        (|_| (), Mode::Lora(DORA)),
    ] {
        let mut config = config(mode);
        change(&mut config.model);
        let mut batch = batch(&config, options(3, 64));
        let together = run(&mut batch, &asked);
        assert_eq!(together, alone(&mut batch, &asked));
        for (one, sequence) in asked.iter().zip(&together) {
            assert_eq!(sequence.len(), one.max_tokens);
            // The reference has no DoRA.
            let dora = mode.lora().is_some_and(|lora| lora.dora);
            if one.sampling == Sampling::greedy() && !dora {
                is_greedy(&config, &one.prompt, sequence);
            }
        }
        assert_eq!(batch.generator().jit_after_warm(), 0);
    }
}

#[test]
fn sequences_in_low_precision_have_the_same_tokens_as_alone() {
    let asked = asked();
    for precision in [Precision::BF16, Precision::F32.nf4(false), Precision::BF16.nf4(true)] {
        let config = TrainingConfig { precision, ..config(LORA) };
        let mut batch = batch(&config, options(4, 64));
        let together = run(&mut batch, &asked);
        assert_eq!(together, alone(&mut batch, &asked), "{precision:?}");
    }
}

/// The products of several sequences read weights and inputs in bf16.
#[test]
fn greedy_sequences_in_bf16_are_near_the_likeliest_tokens() {
    let greedy: Vec<_> =
        asked().into_iter().filter(|one| one.sampling == Sampling::greedy()).collect();
    for (change, mode) in [
        ((|_| ()) as fn(&mut ModelConfig), Mode::Full),
        (|_| (), LORA),
        (qwen3, Mode::Full),
        (|model| model.activation = GatedActivation::GeluTanh, Mode::Full),
    ] {
        let mut config = config(mode);
        change(&mut config.model);
        let rounded = TrainingConfig { precision: Precision::BF16, ..config };
        let sequences = run(&mut batch(&rounded, options(4, 64)), &greedy);
        for (one, sequence) in greedy.iter().zip(&sequences) {
            is_nearly_greedy(&config, &one.prompt, sequence, 0.05);
        }
    }
}

/// `count` requests with prompts and lengths of their own, so that sequences start and end at
/// different steps. Every second one is greedy.
fn many(count: usize) -> Vec<Asked> {
    let of = |number: usize| {
        let drawn = Sampling {
            temperature: 0.9,
            top_k: [0, 40][number / 2 % 2],
            top_p: 0.95,
            repetition_penalty: 1.2,
            seed: number as u64,
        };
        let start = number * 11 % 200;
        Asked {
            prompt: prompt(start + 1 + number * 7 % 19).split_off(start),
            max_tokens: 1 + number * 5 % 7,
            sampling: if number.is_multiple_of(2) { Sampling::greedy() } else { drawn },
            ends: Vec::new(),
        }
    };
    (0..count).map(of).collect()
}

/// Runs requests on a batch of `slots` in two orders, and some of them alone. Greedy tokens are at
/// most `slack` below the largest logit of the f64 model with the stored weights.
fn many_are_as_alone(config: &TrainingConfig, cache: DType, slots: usize, slack: f64) {
    let options = with(options(slots, 40), |it| it.cache = Some(cache));
    let (asked, mut batch) = (many(slots + 3), batch(config, options));
    let together = run(&mut batch, &asked);
    let what = format!("{slots} slots, {:?}, cache {cache:?}", config.precision);
    let backwards: Vec<_> = asked.iter().rev().cloned().collect();
    let mut found = run(&mut batch, &backwards);
    found.reverse();
    assert_eq!(found, together, "{what}, in reverse order");
    for number in [0, slots / 2, slots - 1, slots + 2] {
        let alone = run(&mut batch, &asked[number..=number]).remove(0);
        assert_eq!(alone, together[number], "{what}: sequence {number}");
    }
    for (one, sequence) in asked.iter().zip(&together) {
        assert_eq!(sequence.len(), one.max_tokens, "{what}");
        if one.sampling == Sampling::greedy() {
            is_nearly_greedy(config, &one.prompt, sequence, slack);
        }
    }
    assert_eq!(batch.generator().jit_after_warm(), 0, "{what}");
}

#[test]
fn more_than_eight_sequences_in_f32_have_the_same_tokens_as_alone() {
    for (mode, slots, cache) in [
        (Mode::Full, 9, DType::F32),
        (LORA, 16, DType::F32),
        (LORA, 33, DType::Bf16),
        (Mode::Frozen, 64, DType::F32),
    ] {
        let slack = if cache == DType::F32 { 1e-5 } else { 0.02 };
        many_are_as_alone(&config(mode), cache, slots, slack);
    }
}

/// A model whose rows are whole blocks of NF4, so that products use multistage kernels.
fn wide(mode: Mode, precision: Precision) -> TrainingConfig {
    let config = TrainingConfig { precision, ..config(mode) };
    let model = ModelConfig { hidden: 64, intermediate: 128, ..config.model };
    TrainingConfig { model, ..config }
}

#[test]
fn more_than_eight_sequences_in_bf16_have_the_same_tokens_as_alone() {
    for (mode, slots, cache) in [
        (LORA, 9, DType::Bf16),
        (Mode::Frozen, 16, DType::Bf16),
        (Mode::Frozen, 33, DType::F32),
        (LORA, 64, DType::Bf16),
    ] {
        many_are_as_alone(&wide(mode, Precision::BF16), cache, slots, 0.05);
    }
}

#[test]
fn more_than_eight_sequences_in_nf4_have_the_same_tokens_as_alone() {
    for (precision, slots, cache) in [
        (Precision::BF16.nf4(true), 9, DType::Bf16),
        (Precision::F32.nf4(false), 16, DType::F32),
        (Precision::BF16.nf4(true), 33, DType::Bf16),
    ] {
        let slack = if precision.dtype == DType::F32 { 1e-4 } else { 0.05 };
        many_are_as_alone(&wide(LORA, precision), cache, slots, slack);
    }
}

#[test]
fn more_than_eight_sequences_have_the_bits_of_eager_steps() {
    let mut options = options(33, 40);
    options.verify = true;
    let mut batch = batch(&wide(LORA, Precision::BF16), options);
    run(&mut batch, &many(35));
    assert!(batch.generator().verified_steps() > 35);
}

#[test]
fn a_batch_of_one_is_the_generator() {
    let (asked, config) = (asked(), config(LORA));
    let sequences = run(&mut batch(&config, options(1, 64)), &asked);
    let mut generator = generator_on(&device(), &config, options(1, 64));
    for (one, sequence) in asked.iter().zip(sequences) {
        let tokens = generator.tokens(&one.request()).unwrap();
        assert_eq!(tokens.collect::<Result<Vec<_>, _>>().unwrap(), sequence);
    }
}

#[test]
fn every_strategy_gives_the_same_tokens_and_the_bits_of_eager_steps() {
    let (asked, config) = (&asked()[..4], config(LORA));
    let mut all = Vec::new();
    for policy in [Policy::Auto, Policy::Manual, Policy::Capture, Policy::Eager] {
        let mut build = BuildOptions::default();
        build.policy = policy;
        let mut options = options(2, 40);
        options.build = build;
        options.verify = true;
        let mut batch = batch(&config, options);
        all.push(run(&mut batch, asked));
        assert!(batch.generator().verified_steps() > 12);
    }
    assert!(all.iter().all(|sequences| *sequences == all[0]), "{all:?}");
}

#[test]
fn a_text_that_outgrows_its_program_continues_beside_a_short_one() {
    let config = config(Mode::Full);
    let mut asked = asked();
    asked.truncate(3);
    asked[1] = Asked { prompt: prompt(250), max_tokens: 12, ..asked[0].clone() };
    let mut batch = batch(&config, options(2, 600));
    let together = run(&mut batch, &asked);
    assert_eq!(together, alone(&mut batch, &asked));
    is_greedy(&config, &asked[1].prompt, &together[1]);
}

#[test]
fn a_token_that_ends_a_text_frees_its_slot() {
    let (config, asked) = (config(Mode::Full), asked());
    let mut batch = batch(&config, options(2, 64));
    let whole = alone(&mut batch, &asked[5..6]).remove(0);
    let end = *whole.iter().find(|token| **token != whole[0]).unwrap();
    let at = whole.iter().position(|token| *token == end).unwrap();
    let one = Asked { ends: vec![end], ..asked[5].clone() };
    let slot = batch.start(&one.request()).unwrap();
    let mut events = Vec::new();
    while batch.is_active() {
        events.extend(batch.step().unwrap());
    }
    assert!(events.iter().all(|advance| advance.slot == slot));
    let events: Vec<_> = events.into_iter().map(|advance| advance.event).collect();
    let mut expected: Vec<_> = whole[..at].iter().map(|&token| Event::Token(token)).collect();
    expected.push(Event::EndedBy(end));
    assert_eq!(events, expected);
}

#[test]
fn a_stopped_text_leaves_no_trace_in_the_next_one() {
    let (config, asked) = (config(LORA), asked());
    let mut batch = batch(&config, options(2, 64));
    let expected = alone(&mut batch, &asked[2..3]).remove(0);
    let neighbour = batch.start(&asked[0].request()).unwrap();
    let stopped = batch.start(&asked[5].request()).unwrap();
    let full = batch.start(&asked[2].request()).unwrap_err();
    assert!(matches!(full, Error::NoFreeSlot { slots: 2 }), "{full}");
    let advances = batch.step().unwrap();
    assert!(!advances.is_empty());
    batch.stop(stopped);
    // Its steps in flight come first.
    let mut found = Vec::new();
    while batch.free_slot().is_none() {
        found.extend(batch.step().unwrap());
    }
    assert!(found.iter().all(|advance| advance.slot == neighbour), "{found:?}");
    assert_eq!(batch.start(&asked[2].request()).unwrap(), stopped);
    let mut sequence = Vec::new();
    while batch.is_active() {
        for Advance { slot, event } in batch.step().unwrap() {
            match event {
                Event::Token(token) if slot == stopped => sequence.push(token),
                _ => (),
            }
        }
    }
    assert_eq!(sequence, expected);
}

#[test]
fn batch_sizes_that_cannot_be_decoded_are_refused() {
    let config = config(Mode::Full);
    let refused = |config: &TrainingConfig, batch| {
        GenerationPlan::new(&config.into(), options(batch, 16)).unwrap_err().to_string()
    };
    for batch in [0, 65, usize::MAX] {
        let error = refused(&config, batch);
        assert_eq!(error, format!("batch is {batch}, but it must be from 1 to 64"));
    }
}

#[test]
fn a_text_without_logits_ends_and_says_where() {
    let config = config(Mode::Full);
    let mut values = |parameter: &Parameter| {
        let mut values = weights(parameter);
        if parameter.name == "model.layers.1.mlp.down_proj.weight" {
            values[3] = f32::NAN;
        }
        Ok(values)
    };
    let plan = GenerationPlan::new(&(&config).into(), options(2, 16)).unwrap();
    let source = Source::Values(&mut values);
    let generator = plan.start(&device().modules(), source, &mut |_| ()).unwrap();
    let mut batch = GenerationBatch::new(generator).unwrap();
    let asked = &asked()[0];
    batch.start(&Asked { max_tokens: 4, ..asked.clone() }.request()).unwrap();
    let events = batch.step().unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].event, Event::NotFinite { position: asked.prompt.len() });
    while batch.is_active() {
        assert!(batch.step().unwrap().is_empty());
    }
}

#[test]
fn profiles_leave_the_state_as_it_is() {
    let config = wide(Mode::Frozen, Precision::BF16);
    let asked = Asked { max_tokens: 6, ..asked()[1].clone() };
    let tokens = |is_profiled: bool| {
        let mut batch = batch(&config, options(2, 16));
        if is_profiled {
            let capacity = batch.generator().capacity();
            let error = batch.profile(capacity, 1).unwrap_err();
            assert!(matches!(error, Error::PromptTooLong { .. }), "{error}");
            let profile = batch.profile(capacity - 1, 1).unwrap();
            assert!(profile.operations.iter().any(|one| one.kernel.starts_with("decode_")));
        }
        batch.start(&asked.request()).unwrap();
        let mut tokens = Vec::new();
        while batch.is_active() {
            tokens.extend(batch.step().unwrap().into_iter().map(|advance| advance.event));
        }
        tokens
    };
    assert_eq!(tokens(true), tokens(false));
}

#[test]
fn one_launch_computes_gate_up_and_swiglu_of_many_sequences() {
    let config = wide(Mode::Frozen, Precision::BF16);
    let profile = batch(&config, options(16, 16)).profile(5, 1).unwrap();
    let count = |kernel| profile.operations.iter().filter(|one| one.kernel == kernel).count();
    assert_eq!([count("gemm_swiglu_fprop"), count("swiglu")], [config.model.layers, 0]);
}

#[test]
fn a_text_without_logits_leaves_the_others_as_they_are() {
    let bad = 255;
    let mut config = wide(Mode::Frozen, Precision::BF16);
    config.model.tie_word_embeddings = false;
    let mut values = |parameter: &Parameter| {
        let mut values = weights(parameter);
        if parameter.name == "model.embed_tokens.weight" {
            values[bad * config.model.hidden] = f32::NAN;
        }
        Ok(values)
    };
    let plan = GenerationPlan::new(&(&config).into(), options(12, 40)).unwrap();
    let source = Source::Values(&mut values);
    let generator = plan.start(&device().modules(), source, &mut |_| ()).unwrap();
    let mut batch = GenerationBatch::new(generator).unwrap();
    let mut events = |asked: &[Asked]| {
        let slots: Vec<_> = asked.iter().map(|one| batch.start(&one.request()).unwrap()).collect();
        let mut events: Vec<_> = asked.iter().map(|_| Vec::new()).collect();
        while batch.is_active() {
            for Advance { slot, event } in batch.step().unwrap() {
                events[slots.iter().position(|used| *used == slot).unwrap()].push(event);
            }
        }
        events
    };
    let mut asked = many(12);
    for one in &mut asked {
        one.prompt.retain(|token| *token != bad as u32);
        one.prompt.push(1);
    }
    let mut expected = events(&asked);
    asked[5].prompt = vec![9, bad as u32, 7];
    expected[5] = vec![Event::NotFinite { position: 3 }];
    assert_eq!(events(&asked), expected);
}

#[test]
fn all_memory_of_a_batch_is_planned() {
    let config = config(LORA);
    let mut options = options(3, 300);
    options.cache = Some(DType::Bf16);
    let plan = GenerationPlan::new(&(&config).into(), options).unwrap();
    let need = plan.memory();
    let mut batch = batch(&config, options);
    run(&mut batch, &asked());
    let long = Asked { prompt: prompt(290), ..asked()[0].clone() };
    run(&mut batch, &[Asked { max_tokens: 4, ..long }]);
    let (planned, taken) = (need.cache + need.step, batch.generator().bytes());
    assert!(taken >= need.cache && taken <= planned + planned / 4, "{taken} of {planned}");
}

#[test]
fn a_batch_that_does_not_fit_is_refused_before_anything_is_uploaded() {
    let config = InferenceConfig::frozen(Preset::Qwen25Half.model(), Precision::F32);
    let fits = |batch| {
        let need = GenerationPlan::new(&config, options(batch, 4096)).unwrap().memory();
        need.total() + need.driver.total()
    };
    // Most of a batch is its caches.
    let [eight, most] = [8, GeneratorOptions::MAX_BATCH].map(fits);
    let caches = 56 * 2 * 24 * 4096 * 128 * 4;
    assert!(most - eight > caches && most - eight < caches + caches / 8, "{eight} {most}");
    let device = simulated(with(Config::default(), |it| it.memory_bytes = eight as u64));
    let plan = GenerationPlan::new(&config, options(64, 4096)).unwrap();
    let mut uploaded = false;
    let started = plan.start(&device.modules(), Source::Seed, &mut |stage| {
        uploaded |= matches!(stage, Stage::Uploading { .. });
    });
    let error = started.unwrap_err();
    assert!(!uploaded && matches!(error, Error::OutOfMemory { .. }), "{error}");
    assert!(error.to_string().contains("or the number of texts"), "{error}");
}
