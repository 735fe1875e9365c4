//! A generator with an adapter that shares the base weights of another generator.

use super::{GenerationPlan, Generator};
use crate::adapter::Adapter;
use crate::config::{InferenceConfig, Mode};
use crate::error::{Error, Result};
use crate::stage::Stage;
use crate::state::Source;

impl Generator {
    /// Returns a generator of the same model with `adapter`. Both share the weights on the device,
    /// and each has its own KV cache and programs. The new generator has the options of this one.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] if this generator has an adapter itself; an adapter that does not
    /// fit; [`Error::OutOfMemory`]; or when the device fails.
    pub fn with_adapter(
        &self,
        adapter: &mut Adapter,
        on: &mut dyn FnMut(Stage<'_>),
    ) -> Result<Self> {
        if self.config.mode != Mode::Frozen {
            let (field, value) = ("mode", format!("{:?}", self.config.mode));
            let rule = "Frozen: start from a generator without an adapter".to_owned();
            return Err(Error::InvalidConfig { field, value, rule });
        }
        let config = InferenceConfig { mode: Mode::Lora(adapter.lora()), ..self.config };
        let plan = GenerationPlan::new(&config, self.options)?;
        let parameters = config.parameters();
        adapter.require(&parameters)?;
        let state = &self.programs.replayed().workload().state;
        let values = &mut |parameter: &_| Ok(adapter.values(parameter)?);
        let state = state.with_trained(&self.stream, &parameters, values)?;
        plan.start(&self.cache, Source::State(state), on)
    }
}
