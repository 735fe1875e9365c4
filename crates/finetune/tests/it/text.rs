//! Text from a trained model.

use retrograph_finetune::{Mode, Sampling, TrainerOptions};

use crate::device::device;
use crate::models::{config, train, trainer};

#[test]
fn a_model_writes_what_it_has_learned() {
    let mut config = config(Mode::Full, 150);
    config.batch = 4;
    let mut trainer = trainer(&device(), &config, TrainerOptions::default());
    train(&mut trainer, 150);
    let model = trainer.into_model();
    let greedy = Sampling { temperature: 0.0, seed: 0 };
    let text = model.generate(b"the quick", 60, greedy).unwrap();
    let words = String::from_utf8_lossy(&text).into_owned();
    assert_eq!(text.len(), 60);
    assert!(
        ["fox", "the", "over", "dog", "lazy"].iter().any(|word| words.contains(word)),
        "{words}"
    );

    let drawn = |seed| model.generate(b"the", 40, Sampling { temperature: 1.0, seed }).unwrap();
    assert_eq!(drawn(1), drawn(1));
    assert_ne!(drawn(1), drawn(2));
}
