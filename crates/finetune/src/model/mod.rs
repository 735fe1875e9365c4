//! The transformer as a pass: training step, evaluation, and generation over a KV cache.
//!
//! A pass is described in three stages. A [`ModelSpec`](crate::spec::ModelSpec) is the
//! architecture. The layers are resolved from it once per pass: weights, shapes, dtypes, split-K.
//! Then each layer appends its operations.
//!
//! Every operation is named after its layer, so that
//! [`Pass::explain`](retrograph_runtime::Pass::explain) reads like the model. The backward pass
//! reads activations of the forward pass by their buffers; the memory plan keeps each until its
//! last use. A frozen weight has no gradient buffer, and no operation computes its gradient.

mod builder;
mod converted;
mod dora;
mod exchange;
mod gradient;
mod layers;
mod passes;
mod sequences;
mod squares;
mod targets;
mod value;

pub use builder::{ParameterBuffers, TrainableBuffers};
pub use gradient::Gradient;
pub use layers::{CacheConfig, LayerCache};
pub use passes::{
    ForwardPass, GenerationPass, GradientOwner, LossPass, METRICS, MetricsLayout, MicroBatching,
    SAMPLED, StepControls, StepInput, StepOptions, StepPass, TokenSource,
};
pub use sequences::Sequences;
pub use targets::Targets;
pub use value::Value;
