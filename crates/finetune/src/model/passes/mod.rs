//! What each pass consists of: training step, evaluation, forward pass, prefill and decode.

mod evaluation;
mod forward;
mod generation;
mod optimizer;
mod options;
mod training;

pub use evaluation::LossPass;
pub use forward::ForwardPass;
pub use generation::{GenerationPass, SAMPLED, TokenSource};
pub use options::{Division, GradientHome, StepOptions};
pub use training::{METRICS, StepControls, StepPass};
