//! Generators with adapters that share the weights of one model.

use std::path::{Path, PathBuf};

use retrograph_finetune::{
    Adapter, Error, GenerationPlan, Generator, GeneratorOptions, InferenceConfig, Mode,
    ModelDirectory, Precision, Request, Sampling, Source,
};

use crate::device::device;

const PROMPT: [u32; 5] = [3, 14, 15, 92, 6];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/models").join(name)
}

fn logits(generator: &mut Generator) -> (Vec<u32>, Vec<u32>) {
    let request = Request { max_tokens: 8, ..Request::new(&PROMPT, Sampling::greedy()) };
    let tokens: Vec<u32> = generator.tokens(&request).unwrap().collect::<Result<_, _>>().unwrap();
    (tokens, generator.logits().unwrap().into_iter().map(f32::to_bits).collect())
}

/// Logits have the bits of a generator that uploaded base and adapter itself.
#[test]
fn a_shared_model_computes_the_same_bits_with_and_without_an_adapter() {
    let device = device();
    for name in ["qwen2", "qwen3", "by_layer"] {
        for precision in [Precision::F32, Precision::BF16] {
            let base = ModelDirectory::open(&folder(name)).unwrap();
            let mut adapter = Adapter::open(&folder(name).join("adapter")).unwrap();
            let frozen = InferenceConfig::frozen(*base.config(), precision);
            let lora = InferenceConfig { mode: Mode::Lora(adapter.lora()), ..frozen };
            let start = |config: &InferenceConfig, source: Source<'_>| {
                let plan = GenerationPlan::new(config, GeneratorOptions::new(40)).unwrap();
                let plan = plan.with_base(base.clone()).unwrap();
                plan.start(&device.modules(), source, &mut |_| ()).unwrap()
            };
            let expected = logits(&mut start(&lora, Source::Adapter(&mut adapter)));
            let mut plain = start(&frozen, Source::Seed);
            let without = logits(&mut plain);
            let mut adapted = plain.with_adapter(&mut adapter, &mut |_| ()).unwrap();
            assert_ne!(without, expected, "{name}, {precision}: the adapter changes nothing");
            for _ in 0..2 {
                assert_eq!(logits(&mut adapted), expected, "{name}, {precision}");
                assert_eq!(logits(&mut plain), without, "{name}, {precision}");
            }
            // The weights live as long as one generator.
            drop(plain);
            assert_eq!(logits(&mut adapted), expected, "{name}, {precision}");
            let again = adapted.with_adapter(&mut adapter, &mut |_| ());
            assert!(matches!(again, Err(Error::InvalidConfig { field: "mode", .. })));
        }
    }
}
