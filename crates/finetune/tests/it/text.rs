//! Text from a trained model.

use retrograph_finetune::{Mode, Plan, Sampling, Source, Tokenizer, TrainerOptions};
use retrograph_kernels::ops::SAMPLE_PICK;

use crate::device::device;
use crate::models::{config, train};

#[test]
fn a_model_writes_what_it_has_learned() {
    let mut config = config(Mode::Full, 75);
    config.batch = 4;
    let plan = Plan::new(&config, TrainerOptions::default()).unwrap().with_sample().unwrap();
    let mut trainer = plan.start(&device().modules(), Source::Seed, &mut |_| ()).unwrap();
    train(&mut trainer, 75);
    let model = trainer.into_model();
    let tokenizer = Tokenizer::bytes();
    let (the, quick) = (tokenizer.encode("the").unwrap(), tokenizer.encode("the quick").unwrap());
    let text = model.generate(&quick, 60, Sampling::greedy()).unwrap();
    let words = tokenizer.decode(&text);
    assert_eq!(text.len(), 60);
    assert!(
        ["fox", "the", "over", "dog", "lazy"].iter().any(|word| words.contains(word)),
        "{words}"
    );

    let warm = Sampling { temperature: 1.0, ..Sampling::greedy() };
    let drawn = |seed| model.generate(&the, 40, Sampling { seed, ..warm }).unwrap();
    assert_eq!(drawn(1), drawn(1));
    assert_ne!(drawn(1), drawn(2));
}

#[test]
fn only_a_plan_with_a_sample_warms_kernels_of_generation() {
    let plan = Plan::new(&config(Mode::Full, 1), TrainerOptions::default()).unwrap();
    let samples = |plan: &Plan| {
        let kernels = plan.requirements().kernels();
        kernels.iter().any(|kernel| **kernel == SAMPLE_PICK)
    };
    assert!(!samples(&plan));
    assert!(samples(&plan.with_sample().unwrap()));
}
