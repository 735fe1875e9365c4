//! Configuration of models and runs: dimensions, presets, mode, optimizer and schedule.
//!
//! These plain values are stored in checkpoints and compared on resume.

mod check;
mod choice;
mod inference;
mod long_rope;
mod lora;
mod mode;
mod model;
mod optimizer;
mod precision;
mod preference;
mod preset;
mod projection;
mod rope;
mod training;

pub(crate) use check::{require, require_rank};
pub use choice::UnknownChoice;
pub use inference::InferenceConfig;
pub use long_rope::{LongRope, RopeFactors};
pub use lora::{LoraConfig, LoraLayers, LoraModule, LoraPatterns, LoraTargets, PatternError};
pub use mode::Mode;
pub use model::{ModelConfig, SlidingWindow};
pub use optimizer::{LrSchedule, OptimizerConfig};
pub use precision::{F16Copies, F32Products, Precision, Quantization, parse_dtype};
pub(crate) use precision::{MIN_COPIED_ROWS, MIN_SPLIT_ROWS, dtype_name, is_bf16};
pub use preference::DpoConfig;
pub use preset::{BYTE_VOCABULARY, Preset};
pub use projection::Projection;
pub use retrograph_kernels::ops::GatedActivation;
pub use rope::{RopeScaling, Yarn};
pub use training::TrainingConfig;
