//! Compares direct preference optimization with PEFT and TRL's formula in float64
//! (`golden/make_preference.py`); reading of pairs, and invalid runs.

use std::fs;
use std::sync::atomic::AtomicBool;

use retrograph_finetune::data::{IGNORED_TARGET, read_preferences};
use retrograph_finetune::model::{GradientOwner, StepOptions, StepPass};
use retrograph_finetune::{
    Batch, Data, DataFile, DpoConfig, Evaluator, Event, HeldOut, LoraConfig, Mode, Plan, Run,
    Source, SplitOptions, Tokenizer, Trainer, TrainerOptions, TrainingConfig,
};
use retrograph_test_support::with;
use serde_json::json;

use crate::data::Place;
use crate::device::device;
use crate::dora::DORA;
use crate::golden::{TOLERANCE, close, distance, tensors};
use crate::models::{LORA, config};
use crate::transformers;

const SEQUENCES: usize = 4;
const SEQ: usize = 11;
const STEPS: usize = 10;

const PREFERENCE: DpoConfig = DpoConfig { beta: 0.3, label_smoothing: 0.1 };

fn golden() -> std::collections::BTreeMap<String, Vec<f64>> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    tensors(&folder.join("preference.safetensors"))
}

fn batch(golden: &std::collections::BTreeMap<String, Vec<f64>>, step: usize) -> Batch {
    let rows = SEQUENCES * SEQ;
    let part = |name: &str| {
        let values = golden[name][step * rows..][..rows].iter();
        values.map(|&value| if value < 0.0 { IGNORED_TARGET } else { value as u32 }).collect()
    };
    Batch { tokens: part("tokens"), targets: part("targets"), positions: None }
}

fn start(step: StepOptions, verify: bool) -> Trainer {
    let preference = Some(PREFERENCE);
    let mut options = TrainerOptions::default();
    options.step = with(step, |it| it.preference = preference);
    options.verify = verify;
    transformers::adapted("llama3", SEQUENCES, options)
}

#[test]
fn loss_rewards_and_gradients_are_those_of_trl() {
    let golden = golden();
    for step in [
        StepOptions::default(),
        with(StepOptions::default(), |it| it.micro_batch = Some(2)),
        with(StepOptions::default(), |it| {
            it.interleave = Some(2);
            it.recompute = true;
        }),
    ] {
        let mut trainer = start(with(step, |it| it.gradients = GradientOwner::External), false);
        let metrics = trainer.step(&batch(&golden, 0)).unwrap();
        close("loss", f64::from(metrics.loss), golden["loss"][0]);
        let rewards = &golden["rewards"];
        let mean = |first: usize| rewards.iter().skip(first).step_by(2).sum::<f64>() / 2.0;
        let found = metrics.preference.unwrap();
        close("chosen", f64::from(found.chosen), mean(0));
        close("rejected", f64::from(found.rejected), mean(1));
        let gradients = trainer.gradients().unwrap();
        let expected = golden.keys().filter(|name| name.starts_with("grad.")).count();
        assert_eq!(gradients.len(), expected);
        for (name, gradient) in gradients {
            let error = distance(&gradient, &golden[&format!("grad.{name}")]);
            assert!(error <= TOLERANCE, "the gradient of {name} is off by {error:.2e}");
        }
    }
}

#[test]
fn training_follows_trl_and_replays_have_the_bits_of_eager_steps() {
    let golden = golden();
    let mut trainer = start(StepOptions::default(), true);
    for step in 0..STEPS {
        let metrics = trainer.step(&batch(&golden, step)).unwrap();
        close("loss", f64::from(metrics.loss), golden["losses"][step]);
        let found = metrics.preference.unwrap();
        for (name, found) in [("chosen", found.chosen), ("rejected", found.rejected)] {
            let error = (f64::from(found) - golden[name][step]).abs();
            assert!(error < 1e-4, "step {step}: {name} {found}, expected {}", golden[name][step]);
        }
        assert_eq!(f64::from(found.accuracy), golden["accuracy"][step], "step {step}");
        assert!((found.margin() - (found.chosen - found.rejected)).abs() < 1e-6);
    }
    assert_eq!(trainer.verified_steps(), STEPS as u64);
}

fn step_pass(config: &TrainingConfig, preference: DpoConfig) -> Result<(), String> {
    let mut options = StepOptions::default();
    options.preference = Some(preference);
    StepPass::new(config, options).map(|_| ()).map_err(|error| error.to_string())
}

#[test]
fn only_an_adapter_is_trained_by_pairs() {
    let error = |mode, preference| step_pass(&config(mode, 2), preference).unwrap_err();
    let dpo = DpoConfig::new(0.1);
    assert!(error(Mode::Full, dpo).contains("mode is full"));
    let norms = Mode::Lora(LoraConfig { norms: true, ..LoraConfig::new(2, 4.0) });
    assert!(error(norms, dpo).contains("lora without norms"));
    let lora = Mode::Lora(LoraConfig { norms: false, ..LORA.lora().unwrap() });
    assert!(error(lora, DpoConfig::new(0.0)).contains("beta is 0"));
    let wrong = DpoConfig { label_smoothing: 0.5, ..dpo };
    assert!(error(lora, wrong).contains("label_smoothing is 0.5"));
    let odd = TrainingConfig { batch: 3, ..config(lora, 2) };
    assert!(step_pass(&odd, dpo).unwrap_err().contains("even"));
    step_pass(&TrainingConfig { batch: 2, ..odd }, dpo).unwrap();
}

/// The text of both examples of a line, with brackets around tokens with loss.
fn marked(place: &Place, line: &serde_json::Value) -> Result<[String; 2], String> {
    let path = place.0.path().join("pairs.jsonl");
    fs::write(&path, line.to_string()).unwrap();
    let pairs = read_preferences(&path, &place.tokenizer(), &mut |_, _| ());
    let pair = pairs.map_err(|error| error.to_string())?.remove(0);
    Ok(pair.map(|example| place.shown(&example)))
}

#[test]
fn a_prompt_is_shared_and_answers_have_loss() {
    let place = Place::chatml();
    let texts = json!({ "prompt": "a: ", "chosen": "the cat", "rejected": "x" });
    let pair = marked(&place, &texts).unwrap();
    assert_eq!(pair, ["a: [the cat<|im_end|>]", "a: [x<|im_end|>]"]);
    let message = |role: &str, content: &str| json!({ "role": role, "content": content });
    let (user, again) = (message("user", "a"), message("user", "b"));
    let [said, good, bad] = ["cat", "the", "x"].map(|text| message("assistant", text));
    let prompt = json!([user, said, again]);
    let explicit = json!({ "prompt": prompt, "chosen": [good], "rejected": [bad] });
    let pair = marked(&place, &explicit).unwrap();
    assert!(pair[0].ends_with("[the<|im_end|>]\n") || pair[0].ends_with("[the<|im_end|>]"));
    assert_eq!(pair[0].matches('[').count(), 1, "earlier answers have no loss: {}", pair[0]);
    assert!(pair[1].contains("[x<|im_end|>]"), "{}", pair[1]);
    let whole = json!({
        "prompt": "a", "chosen": [user, said, again, good], "rejected": [user, said, again, bad],
    });
    assert_eq!(marked(&place, &whole).unwrap(), pair);

    for (line, reason) in [
        (json!({ "prompt": "a", "chosen": "b" }), "no `chosen` or no `rejected`"),
        (json!({ "prompt": "a", "chosen": "b", "rejected": [] }), "must all be texts"),
        (json!({ "chosen": [good], "rejected": [bad] }), "no common prompt messages"),
        (json!({ "chosen": [user], "rejected": [user, bad] }), "no message after the prompt"),
        (json!({ "prompt": [user], "chosen": [again], "rejected": [bad] }), "no assistant message"),
    ] {
        let error = marked(&place, &line).unwrap_err();
        assert!(error.contains(reason), "`{reason}` is not in: {error}");
        let forms = "object with `chosen` and `rejected`, both texts";
        assert!(error.contains(forms), "`{forms}` is not in: {error}");
    }
    let path = place.0.path().join("lists.jsonl");
    fs::write(&path, format!("{texts}\n[\"a\", \"b\", \"c\", null]")).unwrap();
    let error = read_preferences(&path, &place.tokenizer(), &mut |_, _| ()).unwrap_err();
    assert!(error.to_string().contains("line 2: it is not an object"), "{error}");
    let error = place.read(&[texts]).unwrap_err().to_string();
    assert!(error.contains("only preference training reads"), "{error}");
}

/// Pairs stay together in every order, and their held-out loss falls.
#[test]
fn pairs_are_trained_and_held_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pairs.jsonl");
    let line = |number: usize| {
        let prompt = format!("{number}");
        json!({ "prompt": prompt, "chosen": "yes", "rejected": "no!" }).to_string()
    };
    let lines: Vec<String> = (0..7).map(line).collect();
    fs::write(&path, lines.join("\n")).unwrap();
    let lengths = retrograph_finetune::data::Lengths::new(8, 1);
    let mut options = SplitOptions::new(lengths);
    options.holdout = 0.4;
    options.seed = 1;
    let split =
        options.preferences(DataFile::new(&path, &Tokenizer::bytes()), &mut |_, _| ()).unwrap();
    let (training, held_out) = (&split.training, split.held_out.as_ref().unwrap());
    assert!(training.has_pairs() && held_out.has_pairs());
    assert_eq!((training.sequences(8), held_out.sequences(8)), (8, 6));
    for step in 0..9 {
        let batch = training.batch([4, 8], 3, step).unwrap();
        for pair in batch.tokens.chunks(16) {
            assert_eq!(pair[0], pair[8], "a pair has one prompt");
            assert_eq!((pair[1], pair[9]), (u32::from(b'y'), u32::from(b'n')));
        }
    }
    for lora in [LoraConfig { norms: false, ..LoraConfig::new(4, 8.0) }, DORA] {
        losses_fall(lora, training, held_out);
    }
}

fn losses_fall(lora: LoraConfig, training: &Data, held_out: &Data) {
    let mut config = TrainingConfig { batch: 4, seq: 8, ..config(Mode::Lora(lora), 12) };
    config.optimizer.peak_lr = 0.01;
    let preference = Some(DpoConfig::new(0.5));
    let mut options = TrainerOptions::default();
    options.step.preference = preference;
    let plan = Plan::new(&config, options).unwrap().with_held_out().unwrap();
    let trainer = plan.start(&device().modules(), Source::Seed, &mut |_| ()).unwrap();
    let evaluator = Evaluator::of(&trainer).unwrap();
    let held = HeldOut::new(held_out, evaluator, 6);
    let mut run = Run { held_out: Some(held), ..Run::new(trainer, training) };
    let (mut first, mut found) = (None, Vec::new());
    run.train(12, &AtomicBool::new(false), &mut |event| match event {
        Event::Step(metrics) => {
            let _ = first.get_or_insert(metrics);
        }
        Event::HeldOut(one) => found.push((one.loss, one.tokens)),
        other => panic!("{other:?}"),
    })
    .unwrap();
    // Before training, the model is its reference.
    let first = first.unwrap();
    assert!((first.loss - std::f32::consts::LN_2).abs() < 1e-5, "{first:?}");
    assert_eq!(found.iter().map(|one| one.1).collect::<Vec<_>>(), [3, 3]);
    assert!(found[1].0 < found[0].0 && found[0].0 < first.loss, "{found:?}");
}
