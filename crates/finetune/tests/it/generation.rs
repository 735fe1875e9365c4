//! Compares text from a model with a KV cache with the same model without a cache, in f64 on the
//! host.

use retrograph_finetune::parameters::{Parameter, inventory};
use retrograph_finetune::{
    Device, Error, GenerationPlan, Generator, GeneratorOptions, Mode, ModelConfig, Precision,
    Request, RopeScaling, Sampling, SlidingWindow, Source, StopReason, TextRequest, Tokenizer,
    TrainingConfig,
};
use retrograph_kernels::DType;
use retrograph_kernels::nf4::{self, Nested};
use retrograph_runtime::{BuildOptions, Policy};
use retrograph_test_support::{numbers, with};

use crate::device::device;
use crate::golden::{config, distance, weights};
use crate::models::LORA;
use crate::reference::{Reference, Weights};

fn model(change: impl Fn(&mut ModelConfig), mode: Mode) -> TrainingConfig {
    let mut config = config(mode);
    change(&mut config.model);
    config
}

pub(crate) fn qwen3(model: &mut ModelConfig) {
    (model.head_dim, model.qkv_bias, model.qk_norm, model.tie_word_embeddings) =
        (Some(10), false, true, false);
}

pub(crate) fn llama3(model: &mut ModelConfig) {
    let scaling = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 27.0,
    };
    (model.qkv_bias, model.rope_theta, model.rope_scaling) = (false, 20.0, Some(scaling));
}

/// A window in the second layer of two.
pub(crate) fn windowed(model: &mut ModelConfig) {
    model.sliding_window = Some(SlidingWindow::new(7, 1));
}

pub(crate) fn generator_on(
    device: &Device,
    config: &TrainingConfig,
    options: GeneratorOptions,
) -> Generator {
    let mut values = |parameter: &Parameter| Ok(weights(parameter));
    let plan = GenerationPlan::new(&config.into(), options).unwrap();
    plan.start(&device.modules(), Source::Values(&mut values), &mut |_| ()).unwrap()
}

fn generator(config: &TrainingConfig, capacity: usize) -> Generator {
    generator_on(&device(), config, GeneratorOptions::new(capacity))
}

fn tokens(generator: &mut Generator, request: &Request<'_>) -> Vec<u32> {
    generator.tokens(request).unwrap().collect::<Result<_, _>>().unwrap()
}

fn greedy(generator: &mut Generator, prompt: &[u32], max_tokens: usize) -> Vec<u32> {
    tokens(generator, &Request { max_tokens, ..Request::new(prompt, Sampling::greedy()) })
}

/// A text in which nothing repeats early.
pub(crate) fn prompt(len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| (i * i + 7 * i + 3) % 256).collect()
}

/// The values of a parameter as a model in `precision` stores them.
fn stored(precision: Precision, parameter: &Parameter) -> Vec<f32> {
    let values = weights(parameter);
    let bf16 = precision.dtype == Precision::BF16.dtype;
    if precision.quantize.is_some() && parameter.name.contains("_proj.weight") {
        let quantized = nf4::quantize(&values).unwrap();
        let nested = Nested::new(&quantized.absmax).scales();
        let scales = if bf16 { nested } else { quantized.absmax };
        return nf4::dequantize(&quantized.codes, &scales, values.len());
    }
    let rounded = |value| half::bf16::from_f32(value).to_f32();
    let matrix = bf16 && parameter.shape.len() == 2;
    if matrix { values.into_iter().map(rounded).collect() } else { values }
}

/// Each token is the likeliest one by a model without a KV cache.
pub(crate) fn is_greedy(config: &TrainingConfig, prompt: &[u32], text: &[u32]) {
    is_nearly_greedy(config, prompt, text, 1e-5);
}

/// The logit of each token is at most `slack` below the largest one by a model without a KV cache.
pub(crate) fn is_nearly_greedy(config: &TrainingConfig, prompt: &[u32], text: &[u32], slack: f64) {
    let all: Weights = inventory(&config.model, config.mode)
        .iter()
        .map(|one| (one.name.clone(), numbers::doubles(&stored(config.precision, one))))
        .collect();
    let reference = Reference { config, weights: &all };
    let whole = [prompt, text].concat();
    // Attention is causal, so one run gives the logits of all positions.
    let logits = reference.logits(&whole);
    for (index, &token) in text.iter().enumerate() {
        let row = &logits[prompt.len() + index - 1];
        let best = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let found = row[token as usize];
        assert!(found > best - slack, "token {index} of {}: {found} and {best}", text.len());
    }
}

#[test]
fn greedy_tokens_match_the_model_without_a_cache() {
    let plain = |_: &mut ModelConfig| ();
    for config in [
        model(plain, Mode::Full),
        model(qwen3, Mode::Full),
        model(llama3, Mode::Full),
        model(plain, LORA),
        model(qwen3, LORA),
        model(windowed, Mode::Full),
        model(windowed, LORA),
    ] {
        let prompt = prompt(5);
        let mut generator = generator(&config, 69);
        let text = greedy(&mut generator, &prompt, 64);
        assert_eq!(text.len(), 64);
        is_greedy(&config, &prompt, &text);
        assert_eq!(generator.jit_after_warm(), 0);
    }
}

#[test]
fn prompts_of_any_length_are_taken_in_whole() {
    let config = config(Mode::Full);
    let mut generator = generator(&config, 600);
    // One token, a bucket of rows and one more; then across a bucket of lengths, and in two pieces.
    for len in [1, 2, 16, 17, 255, 256, 257, 530] {
        let prompt = prompt(len);
        let text = greedy(&mut generator, &prompt, 4);
        assert_eq!(text.len(), 4, "after {len}");
        is_greedy(&config, &prompt, &text);
    }
}

#[test]
fn a_window_holds_in_prompts_and_after_them() {
    let mut config = config(Mode::Full);
    // Narrower than a split of the cache, wider than one, and wider than the bucket of a prompt.
    for size in [1, 30, 100, 300] {
        config.model.sliding_window = Some(SlidingWindow::new(size, 0));
        let mut generator = generator(&config, 600);
        for len in [1, 17, 257, 530] {
            let prompt = prompt(len);
            let text = greedy(&mut generator, &prompt, 4);
            is_greedy(&config, &prompt, &text);
        }
    }
}

#[test]
fn a_text_that_outgrows_its_program_continues_in_the_next() {
    let config = model(llama3, Mode::Full);
    let prompt = prompt(250);
    let text = greedy(&mut generator(&config, 600), &prompt, 12);
    is_greedy(&config, &prompt, &text);
    // The capacity changes the programs, but no token.
    assert_eq!(greedy(&mut generator(&config, 262), &prompt, 12), text);
}

#[test]
fn every_strategy_gives_the_same_tokens_and_the_bits_of_eager_steps() {
    let config = model(qwen3, Mode::Full);
    let sampling = Sampling { temperature: 0.9, top_k: 40, top_p: 0.95, ..Sampling::greedy() };
    let mut all = Vec::new();
    for policy in [Policy::Auto, Policy::Manual, Policy::Capture, Policy::Eager] {
        let mut build = BuildOptions::default();
        build.policy = policy;
        let mut options = GeneratorOptions::new(40);
        options.build = build;
        options.verify = true;
        let mut generator = generator_on(&device(), &config, options);
        let request = Request { max_tokens: 10, ..Request::new(&[1, 2, 3], sampling) };
        all.push(tokens(&mut generator, &request));
        assert_eq!(generator.verified_steps(), 10);
        let report = generator.report().unwrap();
        assert_eq!(report.nodes == 0, policy == Policy::Eager, "{policy:?}");
    }
    assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "{all:?}");
}

/// A generator of weights that are given, and the logits after a prompt and four tokens.
fn logits_of(config: &TrainingConfig, values: &dyn Fn(&Parameter) -> Vec<f32>) -> Vec<f32> {
    let mut options = GeneratorOptions::new(32);
    options.verify = true;
    let plan = GenerationPlan::new(&config.into(), options).unwrap();
    let source = &mut |parameter: &Parameter| Ok(values(parameter));
    let source = Source::Values(source);
    let mut generator = plan.start(&device().modules(), source, &mut |_| ()).unwrap();
    assert_eq!(greedy(&mut generator, &prompt(9), 5).len(), 5);
    assert_eq!(generator.jit_after_warm(), 0);
    generator.logits().unwrap()
}

#[test]
fn weights_of_fewer_bits_give_the_same_results_as_their_values_in_f32() {
    let config = config(Mode::Frozen);
    for precision in [Precision::BF16, Precision::F32.nf4(false), Precision::BF16.nf4(true)] {
        let bf16 = precision.dtype == Precision::BF16.dtype;
        let expected = logits_of(&config, &|parameter: &Parameter| stored(precision, parameter));
        let expected: Vec<f64> = expected.into_iter().map(f64::from).collect();
        let found = logits_of(&TrainingConfig { precision, ..config }, &weights);
        let error = distance(&found, &expected);
        // Prompts are computed in bf16 if requested, tokens in f32.
        let allowed = if bf16 { 0.02 } else { 1e-4 };
        assert!(error <= allowed, "{precision:?}: the logits are off by {error:.2e}");
    }
}

#[test]
fn earlier_generations_change_nothing() {
    let config = config(Mode::Full);
    let penalty = Sampling { repetition_penalty: 1.3, ..Sampling::greedy() };
    let request = |prompt| Request { max_tokens: 8, ..Request::new(prompt, penalty) };
    let (long, short) = (prompt(30), prompt(3));
    let expected = tokens(&mut generator(&config, 64), &request(&short));
    let mut used = generator(&config, 64);
    tokens(&mut used, &request(&long));
    // Stopped while a step is in flight.
    let first = used.tokens(&request(&long)).unwrap().next();
    assert!(first.unwrap().is_ok());
    assert_eq!(tokens(&mut used, &request(&short)), expected);
}

#[test]
fn a_sequence_does_not_depend_on_nan_in_the_cache_of_the_last_one() {
    let bad = 200;
    // Prefill attention is one kernel for these heads.
    let untied =
        |model: &mut ModelConfig| (model.tie_word_embeddings, model.head_dim) = (false, Some(16));
    let capped = |model: &mut ModelConfig| {
        untied(model);
        model.attention_softcap = Some(0.75);
    };
    let configs = [model(untied, Mode::Full), model(capped, Mode::Full)];
    let in_bf16 = configs.map(|it| TrainingConfig { precision: Precision::BF16, ..it });
    for config in configs.into_iter().chain(in_bf16) {
        let device = device();
        let mut values = |parameter: &Parameter| {
            let mut values = weights(parameter);
            if parameter.name == "model.embed_tokens.weight" {
                let width = config.model.hidden;
                values[bad * width..][..width].fill(f32::NAN);
            }
            Ok(values)
        };
        let mut start = || {
            let plan = GenerationPlan::new(&(&config).into(), GeneratorOptions::new(200)).unwrap();
            plan.start(&device.modules(), Source::Values(&mut values), &mut |_| ()).unwrap()
        };
        let short = prompt(3);
        let expected = greedy(&mut start(), &short, 8);
        let mut used = start();
        let refused: Vec<_> = std::iter::repeat_n(bad as u32, 150).collect();
        let request = Request { max_tokens: 2, ..Request::new(&refused, Sampling::greedy()) };
        let error = used.tokens(&request).unwrap().next().unwrap().unwrap_err();
        assert!(matches!(error, Error::LogitsNotFinite { position: 150 }), "{error}");
        assert_eq!(greedy(&mut used, &short, 8), expected, "{config:?}");
    }
}

#[test]
fn samples_depend_on_the_seed_and_the_settings() {
    let config = config(Mode::Full);
    let mut generator = generator(&config, 64);
    let prompt = prompt(4);
    let drawn = |generator: &mut Generator, sampling| {
        tokens(generator, &Request { max_tokens: 24, ..Request::new(&prompt, sampling) })
    };
    let warm = Sampling { temperature: 1.5, ..Sampling::greedy() };
    let one = drawn(&mut generator, warm);
    assert_eq!(drawn(&mut generator, warm), one);
    assert_ne!(drawn(&mut generator, Sampling { seed: 1, ..warm }), one);
    let likeliest = greedy(&mut generator, &prompt, 24);
    assert_ne!(one, likeliest);
    assert_eq!(drawn(&mut generator, Sampling { top_k: 1, ..warm }), likeliest);
    assert_eq!(drawn(&mut generator, Sampling { top_p: 0.0, ..warm }), likeliest);
    // With a very large penalty, no token is repeated, nor one of the prompt.
    let never = Sampling { repetition_penalty: 1e30, ..Sampling::greedy() };
    let mut seen = [drawn(&mut generator, never), prompt.clone()].concat();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 24 + prompt.len());
}

#[test]
fn a_text_ends_by_token_by_length_and_by_capacity() {
    let config = config(Mode::Full);
    let mut generator = generator(&config, 20);
    let prompt = prompt(5);
    let whole = greedy(&mut generator, &prompt, usize::MAX);
    assert_eq!(whole.len(), 15, "prompt and text fill the capacity");
    assert!(greedy(&mut generator, &prompt, 0).is_empty());
    let end = *whole.last().unwrap();
    let at = whole.iter().position(|&token| token == end).unwrap();
    let ends = [9999, end];
    let request = Request { eos: &ends, ..Request::new(&prompt, Sampling::greedy()) };
    let mut tokens = generator.tokens(&request).unwrap();
    let text: Vec<u32> = tokens.by_ref().collect::<Result<_, _>>().unwrap();
    assert_eq!((text.as_slice(), tokens.ended_by()), (&whole[..at], Some(end)));
    assert!(tokens.next().is_none(), "nothing follows the end");
}

#[test]
fn prompts_that_cannot_be_continued_are_refused() {
    let config = config(Mode::Full);
    let mut generator = generator(&config, 8);
    let refused = |generator: &mut Generator, prompt: &[u32]| {
        generator.tokens(&Request::new(prompt, Sampling::greedy())).unwrap_err()
    };
    assert!(matches!(refused(&mut generator, &[]), Error::EmptyPrompt));
    let long = refused(&mut generator, &[1; 8]);
    assert!(matches!(long, Error::PromptTooLong { tokens: 8, capacity: 8 }), "{long}");
    let unknown = refused(&mut generator, &[1, 256]);
    let named = matches!(unknown, Error::TokenOutside { index: 1, token: 256, vocab: 256 });
    assert!(named, "{unknown}");
    let wrong = Sampling { temperature: f32::INFINITY, ..Sampling::greedy() };
    let error = generator.tokens(&Request::new(&[1], wrong)).unwrap_err();
    assert!(error.to_string().contains("temperature"), "{error}");
    // It works on afterwards.
    assert_eq!(greedy(&mut generator, &[1; 7], 9).len(), 1);
    let error = GenerationPlan::new(&(&config).into(), GeneratorOptions::new(1)).unwrap_err();
    assert!(error.to_string().contains("max_length is 1"), "{error}");
}

#[test]
fn weights_that_are_not_numbers_are_an_error_and_no_token() {
    let config = config(Mode::Full);
    let device = device();
    let mut values = |parameter: &Parameter| {
        let mut values = weights(parameter);
        if parameter.name == "model.layers.1.mlp.down_proj.weight" {
            values[3] = f32::NAN;
        }
        Ok(values)
    };
    let plan = GenerationPlan::new(&(&config).into(), GeneratorOptions::new(16)).unwrap();
    let source = Source::Values(&mut values);
    let mut generator = plan.start(&device.modules(), source, &mut |_| ()).unwrap();
    let prompt = prompt(5);
    let mut tokens = generator.tokens(&Request::new(&prompt, Sampling::greedy())).unwrap();
    let error = tokens.next().unwrap().unwrap_err();
    assert!(matches!(error, Error::LogitsNotFinite { position: 5 }), "{error}");
    assert!(tokens.next().is_none());
}

#[test]
fn the_memory_that_is_planned_is_enough() {
    let config = config(Mode::Full);
    let plan = GenerationPlan::new(&(&config).into(), GeneratorOptions::new(300)).unwrap();
    let need = plan.memory();
    let mut generator = generator(&config, 300);
    greedy(&mut generator, &prompt(280), 10);
    let (planned, found) = (need.cache + need.step, generator.bytes());
    // Control blocks and the arenas of smaller programs come on top.
    assert!(found <= planned + (256 << 10), "{found} bytes, planned {planned}");
    assert!(planned <= found + (1 << 20), "{found} bytes, planned {planned}");
}

#[test]
fn a_cache_in_bf16_takes_half_the_bytes_and_changes_logits_by_its_rounding() {
    let config = config(LORA);
    let prompt = prompt(37);
    let run = |cache| {
        let options = with(GeneratorOptions::new(300), |it| {
            it.cache = Some(cache);
            it.verify = true;
        });
        let need = GenerationPlan::new(&(&config).into(), options).unwrap().memory().cache;
        let mut generator = generator_on(&device(), &config, options);
        assert_eq!(generator.cache_dtype(), cache);
        let request = Request { max_tokens: 1, ..Request::new(&prompt, Sampling::greedy()) };
        let first = tokens(&mut generator, &request);
        let prefilled = generator.logits().unwrap();
        // The next logits come from a pass over one token, which reads the cache of the first pass.
        let two = tokens(&mut generator, &Request { max_tokens: 2, ..request });
        assert_eq!(two[0], first[0]);
        assert!(generator.verified_steps() >= 3);
        (need, first, [prefilled, generator.logits().unwrap()], generator.bytes())
    };
    let (single, rounded) = (run(DType::F32), run(DType::Bf16));
    let elements = 2 * config.model.layers * 300 * config.model.kv_width();
    assert_eq!(single.0 - rounded.0, elements * 2);
    // A page more or less, as arenas differ.
    assert!(single.3 - rounded.3 >= elements * 2 - 4096, "{} and {} bytes", single.3, rounded.3);
    assert_eq!(single.1, rounded.1, "the likeliest token is far ahead of the next");
    for (rounded, single) in rounded.2.iter().zip(&single.2) {
        let single: Vec<f64> = single.iter().map(|&logit| f64::from(logit)).collect();
        let apart = distance(rounded, &single);
        // Keys, values, queries and probabilities have a relative error of at most 2⁻⁹.
        assert!(apart > 0.0 && apart < 0.01, "{apart}");
    }
}

#[test]
fn a_cache_has_the_dtype_of_the_products_by_default() {
    let single = generator(&config(LORA), 20);
    assert_eq!(single.cache_dtype(), DType::F32);
    let rounded = TrainingConfig { precision: Precision::BF16, ..config(LORA) };
    assert_eq!(generator(&rounded, 20).cache_dtype(), DType::Bf16);
    let mut options = GeneratorOptions::new(20);
    options.cache = Some(DType::F32);
    assert_eq!(generator_on(&device(), &rounded, options).cache_dtype(), DType::F32);
}

#[test]
fn a_text_ends_before_a_stop_string_that_several_tokens_make_up() {
    let mut generator = generator(&config(Mode::Full), 100);
    let (tokenizer, sampling) =
        (Tokenizer::bytes(), Sampling { temperature: 1.5, ..Sampling::greedy() });
    let request =
        TextRequest { max_tokens: 80, ..TextRequest::new(&tokenizer, "abc", sampling).unwrap() };
    let mut pieces = String::new();
    let whole = generator
        .text(&tokenizer, &request, &mut |piece| {
            pieces.push_str(piece);
            true
        })
        .unwrap();
    assert_eq!((whole.tokens.len(), whole.stop_reason), (80, StopReason::MaxTokens));
    assert_eq!((&pieces, &tokenizer.decode(&whole.tokens)), (&whole.text, &whole.text));

    // Two tokens in a row that are letters by themselves.
    let pair = whole.tokens.windows(2).position(|two| two.iter().all(|&token| token < 128));
    let at = pair.expect("two of eighty");
    let stop = tokenizer.decode(&whole.tokens[at..at + 2]);
    let stops = ["not in it".to_owned(), stop.clone()];
    let stopped = TextRequest { stop_strings: &stops, ..request.clone() };
    let stopped = generator.text(&tokenizer, &stopped, &mut |_| true).unwrap();
    assert_eq!((stopped.stop_reason, stopped.tokens.len()), (StopReason::StopString, at + 2));
    assert_eq!(stopped.text, whole.text[..whole.text.find(&stop).unwrap()]);

    let mut left = 5;
    let watched = generator.text(&tokenizer, &request, &mut |_| {
        left -= 1;
        left > 0
    });
    let watched = watched.unwrap();
    assert_eq!((watched.stop_reason, watched.tokens.len()), (StopReason::Callback, 5));
}
