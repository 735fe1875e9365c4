//! Trains transformers; the whole training step is one replayable CUDA graph.
//!
//! The model is a decoder-only transformer of the Qwen2, Qwen3, Llama, Mistral, Phi-3, SmolLM3 or
//! Gemma architecture. Its weights come from a seed or from a [`ModelDirectory`].
//! [`model::StepPass`] describes one training step (forward, backward, clipping, AdamW) as a pass.
//! A [`Trainer`] runs it on a device. A [`Run`] feeds a trainer with data and writes
//! [checkpoints](checkpoint). A [`Generator`] generates text.
//!
//! ```
//! # #[cfg(feature = "sim")] {
//! use std::sync::atomic::AtomicBool;
//!
//! use retrograph_finetune::{
//!     Data, Device, DeviceChoice, Ending, Mode, ModelConfig, OptimizerConfig, Plan, Precision,
//!     Preset, Run, Source, TextData, TrainerOptions, TrainingConfig,
//! };
//!
//! let text = TextData::from_bytes(b"to be or not to be, that is the question. ".repeat(4));
//! let data = Data::from(text);
//! let model = ModelConfig { hidden: 16, intermediate: 32, layers: 1, ..Preset::Tiny.model() };
//! let optimizer = OptimizerConfig::new(1e-2, 3);
//! let (mode, precision) = (Mode::Full, Precision::F32);
//! let config = TrainingConfig { model, mode, precision, batch: 2, seq: 8, optimizer, seed: 0 };
//!
//! let plan = Plan::new(&config, TrainerOptions::default())?;          // no device is needed
//! let device = Device::open(DeviceChoice::Simulated)?;
//! let trainer = plan.start(&device.modules(), Source::Seed, &mut |_| ())?;
//! let mut run = Run::new(trainer, &data);
//! let ending = run.train(3, &AtomicBool::new(false), &mut |event| println!("{event:?}"))?;
//! assert_eq!(ending, Ending::Done);
//! assert_eq!(run.trainer.losses().len(), 3);
//! # }
//! # Ok::<(), retrograph_finetune::Error>(())
//! ```
//!
//! A run may use several devices, with one process or thread per device: see [`group`].

pub mod adapter;
pub mod bench;
pub mod checkpoint;
pub mod config;
pub mod data;
pub mod device;
mod digest;
pub mod error;
pub mod evaluate;
pub mod export;
pub mod files;
pub mod generate;
pub mod group;
pub mod hub;
pub mod init;
mod json_file;
pub mod model;
pub mod parameters;
mod programs;
pub mod report;
pub mod run;
mod sample;
pub mod spec;
pub mod stage;
pub mod state;
mod tensor_file;
pub mod tokenizer;
pub mod trainer;
mod verify;
mod weight_file;

pub use adapter::{Adapter, AdapterError, AdapterOutput};
pub use checkpoint::{CheckpointError, HeldOutLoss, Kept};
pub use config::{
    DpoConfig, F16Copies, F32Products, GatedActivation, InferenceConfig, LongRope, LoraConfig,
    LoraLayers, LoraModule, LoraPatterns, LoraTargets, LrSchedule, Mode, ModelConfig,
    OptimizerConfig, Precision, Preset, Projection, Quantization, RopeFactors, RopeScaling,
    SlidingWindow, TrainingConfig, UnknownChoice, Yarn, parse_dtype,
};
pub use data::{
    Batch, CacheState, CacheUse, Data, DataError, DataFile, IGNORED_TARGET, Split, SplitOptions,
    TextData, TokenCache,
};
pub use device::{Device, DeviceChoice};
pub use error::{Error, Reduce, Result};
pub use evaluate::{Evaluation, Evaluator};
pub use export::{ExportError, ModelOutput, ModelWeights, WeightType};
pub use files::FileError;
pub use generate::{
    Generated, GenerationBatch, GenerationNeed, GenerationPlan, Generator, GeneratorOptions,
    Request, Sampling, StopReason, StopStrings, TextRequest, TextStream, Tokens,
};
pub use group::{Coordinator, GroupError, GroupOptions, ProcessGroup};
pub use hub::{HubError, ModelDirectory};
pub use parameters::Chunk;
pub use report::RunReport;
pub use retrograph_kernels::DType;
pub use run::{Ending, Event, HeldOut, Run};
pub use spec::ModelSpec;
pub use stage::Stage;
pub use state::Source;
pub use tokenizer::{
    ChatTemplate, Conversation, Encoder, GenerationConfig, TokenStream, Tokenizer,
};
pub use trainer::{DpoMetrics, Plan, StepMetrics, TrainedModel, Trainer, TrainerOptions};

/// The crate of the element types bf16 and f16.
pub use half;
/// The crate of launches and their operands.
pub use retrograph_kernels as kernels;
/// The crate of devices, passes, programs and module caches.
pub use retrograph_runtime as runtime;
/// The crate of the dtypes of model files.
pub use safetensors;
/// The crate of the values in conversations.
pub use serde_json;

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
