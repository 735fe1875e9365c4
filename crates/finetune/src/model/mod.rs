//! The transformer as a pass: the whole training step, evaluation, and generating text over a
//! cache.
//!
//! Every operation is named with the part of the model that it belongs to, so that
//! [`Pass::explain`](retrograph_runtime::Pass::explain) reads like the model. Activations that the
//! backward pass needs simply stay named: the memory plan keeps them until their last use.
//!
//! Absent on purpose: gradients that nobody needs. A frozen weight has no gradient buffer, and what
//! has no buffer is not computed.

mod activation;
mod attention;
mod builder;
mod cached;
mod evaluation;
mod generation;
mod head;
mod inference;
mod layer;
mod linear;
mod low_rank;
mod mixing;
mod mlp;
mod norm;
mod optimizer;
mod options;
mod residual;
mod step;
mod value;
mod vector;

pub use builder::{ParameterBuffers, TrainableBuffers};
pub use cached::{CacheForm, LayerCache};
pub use evaluation::LossPass;
pub use generation::{GenerationPass, Intake, SAMPLED};
pub use inference::ForwardPass;
pub use options::{Division, GradientHome, StepOptions};
pub use step::{METRICS, StepControls, StepPass};
pub use value::Value;
