//! Adapters: files round-trip bit for bit, and every mismatch is named.

use std::path::Path;

use retrograph_finetune::adapter::{Adapter, AdapterError, AdapterOutput};
use retrograph_finetune::parameters::{Parameter, inventory};
use retrograph_finetune::{
    Device, Error, LoraConfig, LoraLayers, LoraPatterns, LoraTargets, Mode, Plan, Source, Trainer,
    TrainerOptions, TrainingConfig, init,
};
use safetensors::tensor::{Dtype, SafeTensors};

use crate::device::{device, simulated};
use crate::models::{config, text, train, trainer};

/// Every projection, a rank that is not a multiple of any tile, the scale of rsLoRA, and norms.
fn lora() -> LoraConfig {
    let targets = LoraTargets::ALL;
    LoraConfig { targets, rslora: true, norms: true, ..LoraConfig::new(3, 4.0) }
}

fn trained(device: &Device, lora: LoraConfig) -> Trainer {
    let mut trainer = trainer(device, &config(Mode::Lora(lora), 6), TrainerOptions::default());
    train(&mut trainer, 4);
    trainer
}

fn output(folder: &Path) -> AdapterOutput<'_> {
    AdapterOutput { folder, base: Some("some/base") }
}

/// A trainer with the parameters of `values`.
fn start(
    device: &Device,
    config: &TrainingConfig,
    mut values: impl FnMut(&Parameter) -> Vec<f32>,
) -> Trainer {
    let plan = Plan::new(config, TrainerOptions::default()).unwrap();
    let values = &mut |parameter: &Parameter| Ok(values(parameter));
    plan.start(&device.modules(), Source::Values(values), &mut |_| ()).unwrap()
}

/// The loss of the next batch, which the step computes before it changes anything.
fn loss(trainer: &mut Trainer) -> f32 {
    let config = *trainer.config();
    let batch = text().batch([config.batch, config.seq], config.seed, 77).unwrap();
    trainer.step(&batch).unwrap().loss
}

#[test]
fn an_adapter_that_is_read_back_computes_the_same_bits() {
    let (device, folder) = (device(), tempfile::tempdir().unwrap());
    let mut first = trained(&device, lora());
    let place = folder.path().join("adapter");
    first.export_adapter(output(&place)).unwrap();
    let mut adapter = Adapter::open(&place).unwrap();
    assert_eq!((adapter.lora(), adapter.base()), (lora(), Some("some/base")));
    let config = *first.config();
    let parameters = inventory(&config.model, config.mode);
    adapter.require(&parameters).unwrap();
    let plan = Plan::new(&config, TrainerOptions::default()).unwrap();
    let source = Source::Adapter(&mut adapter);
    let mut second = plan.start(&device.modules(), source, &mut |_| ()).unwrap();
    for parameter in &parameters {
        let read = |trainer: &Trainer| {
            let values = trainer.state().values(trainer.stream(), &parameter.name);
            values.unwrap().unwrap().into_iter().map(f32::to_bits).collect::<Vec<_>>()
        };
        assert_eq!(read(&first), read(&second), "{}", parameter.name);
    }
    assert_eq!(loss(&mut first).to_bits(), loss(&mut second).to_bits());
}

/// Norms that multiply by 1 + w: files have w, the device has the sum.
#[test]
fn norms_with_an_offset_are_written_without_it_and_read_with_it() {
    let (device, folder) = (device(), tempfile::tempdir().unwrap());
    let mut config = config(Mode::Lora(lora()), 6);
    config.model.unit_offset_norms = true;
    let mut first = trainer(&device, &config, TrainerOptions::default());
    train(&mut first, 4);
    first.export_adapter(output(folder.path())).unwrap();
    let bytes = std::fs::read(folder.path().join("adapter_model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let mut adapter = Adapter::open(folder.path()).unwrap();
    let norms = first.state().trained_parameters();
    let norms: Vec<_> = norms.into_iter().filter(|one| one.name.contains("layernorm")).collect();
    assert_eq!(norms.len(), 2 * config.model.layers);
    for norm in norms {
        let gains = first.state().values(first.stream(), &norm.name).unwrap().unwrap();
        let found = tensors.iter().find(|(name, _)| name.ends_with(&*norm.name)).unwrap().1;
        let stored: Vec<f32> = found
            .data()
            .chunks_exact(4)
            .map(|four| f32::from_le_bytes(four.try_into().unwrap()))
            .collect();
        assert_eq!(stored, gains.iter().map(|gain| gain - 1.0).collect::<Vec<_>>());
        assert_eq!(adapter.values(norm).unwrap(), gains, "{}", norm.name);
    }
}

#[test]
fn names_and_shapes_match_peft() {
    let folder = tempfile::tempdir().unwrap();
    let targets = "q,down".parse().unwrap();
    let lora = LoraConfig { targets, ..LoraConfig::new(3, 6.0) };
    let trainer = trainer(
        &simulated(Default::default()),
        &config(Mode::Lora(lora), 1),
        TrainerOptions::default(),
    );
    trainer.export_adapter(output(folder.path())).unwrap();
    let bytes = std::fs::read(folder.path().join("adapter_model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(tensors.len(), 2 * 2 * 2);
    for (name, shape) in [
        ("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", [3, 16]),
        ("base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight", [16, 3]),
        ("base_model.model.model.layers.1.mlp.down_proj.lora_A.weight", [3, 24]),
        ("base_model.model.model.layers.1.mlp.down_proj.lora_B.weight", [16, 3]),
    ] {
        let tensor = tensors.tensor(name).unwrap();
        assert_eq!((tensor.dtype(), tensor.shape()), (Dtype::F32, shape.as_slice()), "{name}");
    }
    let text = std::fs::read_to_string(folder.path().join("adapter_config.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["peft_type"], "LORA");
    assert_eq!(json["target_modules"], serde_json::json!(["q_proj", "down_proj"]));
    assert_eq!((&json["r"], &json["lora_alpha"]), (&3.into(), &6.into()));
    assert_eq!(json["modules_to_save"], serde_json::Value::Null);
}

#[test]
fn training_all_weights_leaves_no_adapter() {
    let folder = tempfile::tempdir().unwrap();
    let device = simulated(Default::default());
    let trainer = trainer(&device, &config(Mode::Full, 1), TrainerOptions::default());
    let error = trainer.export_adapter(output(folder.path())).unwrap_err();
    assert!(error.to_string().contains("train with LoRA"), "{error}");
}

#[test]
fn every_mismatch_of_an_adapter_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let tuned = trained(&simulated(Default::default()), LoraConfig::new(3, 6.0));
    tuned.export_adapter(output(folder.path())).unwrap();
    let file = folder.path().join("adapter_model.safetensors");
    let whole = std::fs::read(&file).unwrap();
    let name = "base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight";
    // Each change keeps the length of the header.
    let refused = |from: &str, to: &str| {
        let place = whole.windows(from.len()).position(|part| part == from.as_bytes()).unwrap();
        let mut changed = whole.clone();
        changed[place..place + from.len()].copy_from_slice(to.as_bytes());
        std::fs::write(&file, changed).unwrap();
        Adapter::open(folder.path()).unwrap_err().to_string()
    };
    let error = refused(name, &name.replace("lora_B", "lora_C"));
    assert!(error.contains("lora_"), "{error}");
    let error = refused(name, &name.replace("v_proj", "k_proj"));
    assert!(error.contains("_proj") && error.contains("1.self_attn"), "{error}");
    let error = refused(name, &name.replace("base_model", "case_model"));
    assert!(error.contains("v_proj"), "{error}");
    let error = refused("[3,16]", "[6, 8]");
    assert!(error.contains("[6, 8]") && error.contains("[3, 8]"), "{error}");
    std::fs::write(&file, &whole[..whole.len() - 1]).unwrap();
    let error = Adapter::open(folder.path()).unwrap_err();
    assert!(matches!(error, AdapterError::Damaged { .. }), "{error}");

    std::fs::write(&file, &whole).unwrap();
    let adapter = Adapter::open(folder.path()).unwrap();
    adapter.require_options(LoraConfig::new(3, 6.0)).unwrap();
    let error = adapter.require_options(LoraConfig::new(4, 6.0)).unwrap_err().to_string();
    assert!(error.contains("rank: 3") && error.contains("rank: 4"), "{error}");
    let of = |change: &dyn Fn(&mut TrainingConfig)| {
        let mut config = *tuned.config();
        change(&mut config);
        adapter.require(&inventory(&config.model, config.mode)).unwrap_err()
    };
    let deeper = of(&|config| config.model.layers = 3);
    assert!(matches!(deeper, AdapterError::MissingTensor { .. }), "{deeper}");
    let shallower = of(&|config| config.model.layers = 1);
    assert!(matches!(shallower, AdapterError::UnexpectedTensor { .. }), "{shallower}");
    let wider = of(&|config| config.model.hidden = 32);
    assert!(matches!(wider, AdapterError::Shape { .. }), "{wider}");
}

#[test]
fn values_that_are_not_finite_are_no_adapter_and_replace_none() {
    let (device, folder) = (device(), tempfile::tempdir().unwrap());
    let place = folder.path().join("adapter");
    trained(&device, lora()).export_adapter(output(&place)).unwrap();
    let before = std::fs::read(place.join("adapter_model.safetensors")).unwrap();
    let config = config(Mode::Lora(lora()), 6);
    let broken = start(&device, &config, |parameter| {
        let mut values = init::initial_values(parameter, 3);
        if parameter.trainable {
            values[1] = f32::NAN;
        }
        values
    });
    let error = broken.export_adapter(output(&place)).unwrap_err();
    let found = matches!(error, Error::Adapter(AdapterError::TrainedNotFinite { .. }));
    assert!(found, "{error}");
    assert_eq!(std::fs::read(place.join("adapter_model.safetensors")).unwrap(), before);
}

/// A run of a model with fused projections and partly rotated heads.
fn fused(lora: LoraConfig) -> TrainingConfig {
    let mut config = config(Mode::Lora(lora), 6);
    let (head_dim, rotary_dim) = (Some(8), Some(6));
    let (qkv_bias, fused) = (false, true);
    config.model =
        retrograph_finetune::ModelConfig { qkv_bias, fused, head_dim, rotary_dim, ..config.model };
    config
}

/// Checks that `adapter` has the values of all trained parameters.
pub(crate) fn has_trained_values(adapter: &mut Adapter, trainer: &Trainer) {
    let config = trainer.config();
    let parameters = inventory(&config.model, config.mode);
    adapter.require(&parameters).unwrap();
    for parameter in parameters.iter().filter(|parameter| parameter.trainable) {
        let values = trainer.state().values(trainer.stream(), &parameter.name).unwrap().unwrap();
        assert_eq!(adapter.values(parameter).unwrap(), values, "{}", parameter.name);
    }
}

#[test]
fn updates_of_fused_projections_are_blocks_of_one_update_and_are_read_back() {
    let (device, folder) = (device(), tempfile::tempdir().unwrap());
    for (rslora, targets) in [(false, "all"), (true, "all"), (false, "q,v,o"), (true, "up,down")] {
        let targets = targets.parse().unwrap();
        let lora = LoraConfig { targets, rslora, ..LoraConfig::new(3, 4.0) };
        let config = fused(lora);
        let mut first = trainer(&device, &config, TrainerOptions::default());
        train(&mut first, 3);
        let place = folder.path().join(format!("{rslora} {targets}"));
        first.export_adapter(output(&place)).unwrap();
        let mut adapter = Adapter::open(&place).unwrap();
        assert_eq!(adapter.lora(), lora);
        has_trained_values(&mut adapter, &first);
    }
}

/// Rank and alpha of every update are read back, even if a fused matrix has a pattern.
#[test]
fn layers_and_patterns_are_written_and_read_back() {
    let (device, folder) = (device(), tempfile::tempdir().unwrap());
    let ranks = [("layers.1.mlp.down_proj", 5), (r".*1\..*qkv_proj|q_proj", 2), ("o_proj", 4)];
    let alphas = [(r"layers\.0\..*", 7.0), ("gate_up_proj", 2.5)];
    let own = |pattern: &str| pattern.to_owned();
    let patterns = LoraPatterns::new(
        ranks.map(|(pattern, rank)| (own(pattern), rank)),
        alphas.map(|(pattern, alpha)| (own(pattern), alpha)),
    );
    let lora = LoraConfig {
        targets: LoraTargets::ALL,
        patterns: patterns.unwrap(),
        ..LoraConfig::new(3, 4.0)
    };
    for (number, (fuses, layers, rslora)) in [
        (false, LoraLayers::ALL, false),
        (false, "1".parse().unwrap(), true),
        (true, LoraLayers::ALL, true),
        (true, "0".parse().unwrap(), false),
    ]
    .into_iter()
    .enumerate()
    {
        let lora = LoraConfig { layers, rslora, ..lora };
        let config = if fuses { fused(lora) } else { config(Mode::Lora(lora), 6) };
        let mut first = trainer(&device, &config, TrainerOptions::default());
        train(&mut first, 2);
        let place = folder.path().join(number.to_string());
        first.export_adapter(output(&place)).unwrap();
        let mut adapter = Adapter::open(&place).unwrap();
        let modules = lora.modules(&config.model);
        assert_eq!(adapter.lora().modules(&config.model), modules);
        for module in modules {
            let [found, expected] = [adapter.lora(), lora].map(|one| one.of(module).unwrap());
            // In a fused matrix, rsLoRA has alpha times a square root.
            let apart = (found.alpha - expected.alpha).abs();
            assert!(found.rank == expected.rank && apart <= 1e-6 * expected.alpha, "{module}");
        }
        has_trained_values(&mut adapter, &first);
    }
}

/// The product of the stored matrices, with rank and alpha of the stored patterns, is the update.
#[test]
fn the_stored_pair_of_a_fused_projection_is_the_update_of_its_parts() {
    let (device, folder) = (device(), tempfile::tempdir().unwrap());
    let lora = LoraConfig { targets: LoraTargets::ALL, ..LoraConfig::new(2, 3.0) };
    let config = fused(lora);
    let mut trainer = trainer(&device, &config, TrainerOptions::default());
    train(&mut trainer, 3);
    trainer.export_adapter(output(folder.path())).unwrap();
    let text = std::fs::read_to_string(folder.path().join("adapter_config.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let modules = ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"];
    assert_eq!(json["target_modules"], serde_json::json!(modules));
    assert_eq!(json["rank_pattern"], serde_json::json!({ "qkv_proj": 6, "gate_up_proj": 4 }));
    assert_eq!(json["alpha_pattern"], serde_json::json!({ "qkv_proj": 9, "gate_up_proj": 6 }));
    let stored = crate::golden::tensors(&folder.path().join("adapter_model.safetensors"));
    let name = |part: &str| format!("base_model.model.model.layers.1.self_attn.qkv_proj.{part}");
    let [a, b] = ["lora_A.weight", "lora_B.weight"].map(|part| &stored[&name(part)]);
    let (rank, inputs) = (6, config.model.hidden);
    for parameter in inventory(&config.model, config.mode) {
        let Some(module) = parameter.name.strip_suffix(".lora_B.weight") else { continue };
        if !module.contains("layers.1.self_attn") || module.ends_with("o_proj") {
            continue;
        }
        let values = |name: &str| trainer.state().values(trainer.stream(), name).unwrap().unwrap();
        let own = [values(&format!("{module}.lora_A.weight")), values(&parameter.name)];
        for row in 0..parameter.shape[0] {
            let (stored_row, first) = (&b[parameter.stored_row(row) * rank..][..rank], row * 2);
            for column in 0..inputs {
                let found: f64 = (0..rank).map(|at| stored_row[at] * a[at * inputs + column]).sum();
                let expected: f64 = (0..2)
                    .map(|at| f64::from(own[1][first + at] * own[0][at * inputs + column]))
                    .sum();
                assert!((found * 9.0 / 6.0 - expected * 3.0 / 2.0).abs() < 1e-7, "{module}");
            }
        }
    }
}

/// PEFT needs both names of a tied matrix, and the option that keeps it one.
#[test]
fn a_trained_table_of_a_tied_model_is_stored_twice_and_read_back() {
    let (device, folder) = (device(), tempfile::tempdir().unwrap());
    let lora = LoraConfig { embeddings: true, ..LoraConfig::new(3, 4.0) };
    let tuned = trained(&device, lora);
    tuned.export_adapter(output(folder.path())).unwrap();
    let stored = crate::golden::tensors(&folder.path().join("adapter_model.safetensors"));
    let [table, head] = ["model.embed_tokens", "lm_head"]
        .map(|module| &stored[&format!("base_model.model.{module}.weight")]);
    assert_eq!(table, head);
    let parameters = tuned.config().parameters();
    let values = tuned.state().values(tuned.stream(), &parameters[0].name).unwrap().unwrap();
    let mut adapter = Adapter::open(folder.path()).unwrap();
    assert_eq!(adapter.lora(), lora);
    adapter.require(&parameters).unwrap();
    assert_eq!(adapter.values(&parameters[0]).unwrap(), values);

    let path = folder.path().join("adapter_config.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let untied = text.replace("\"ensure_weight_tying\": true", "\"ensure_weight_tying\": false");
    assert_ne!(text, untied);
    std::fs::write(&path, untied).unwrap();
    let refused = match Adapter::open(folder.path()) {
        Err(error) => error,
        Ok(adapter) => adapter.require(&parameters).unwrap_err(),
    };
    assert!(refused.to_string().contains("lm_head") || refused.to_string().contains("tying"));
}
