//! A trained model.

use retrograph_runtime::{ModuleCache, Stream, WarmModules};

use crate::config::TrainingConfig;
use crate::state::ModelState;

/// The parameters of a model on a device, with stream and kernels.
#[derive(Debug)]
pub struct TrainedModel {
    pub(crate) config: TrainingConfig,
    pub(crate) state: ModelState,
    pub(crate) stream: Stream,
    pub(crate) modules: WarmModules,
    pub(crate) cache: ModuleCache,
}
