//! What a program does with this crate, from the first call of the driver to the last.

use std::sync::Arc;

use retrograph_driver_sim::Simulator;
use retrograph_runtime::{
    Context, DeviceIndex, ModuleCache, Policy, Program, StepError, Stream, WarmModules,
};

use crate::device::driver_of;
use crate::tally::Tally;

/// Steps of a run.
pub(super) const STEPS: u32 = 3;

/// A device that is ready to build and run the pass.
pub(super) struct Client {
    pub(super) context: Context,
    stream: Stream,
    modules: WarmModules,
    tally: Tally,
}

impl Client {
    /// From the driver to warm modules.
    pub(super) fn new(simulator: &Arc<Simulator>) -> Result<Self, String> {
        let driver = driver_of(simulator).map_err(|error| error.to_string())?;
        let context = Context::new(&driver, DeviceIndex(0)).map_err(|error| error.to_string())?;
        let stream = Stream::new(&context).map_err(|error| error.to_string())?;
        let (tally, cache) = (Tally::new(), ModuleCache::new(&context));
        let warm = cache.prewarm(&tally.pass.requirements(), |_| ());
        let modules = warm.map_err(|error| error.to_string())?;
        Ok(Self { context, stream, modules, tally })
    }

    /// Builds, does [`STEPS`] steps and returns what they left. A step that did not start is tried
    /// once more, as its error allows.
    pub(super) fn run(&self, policy: Policy) -> Result<Vec<u32>, String> {
        let (tally, stream) = (&self.tally, &self.stream);
        let buffers = tally.buffers(&self.context)?;
        let bindings = tally.bindings(&buffers);
        let built = Program::build(stream, &self.modules, &tally.pass, &bindings, policy);
        let mut program = built.map_err(|error| error.to_string())?;
        for step in 0..STEPS {
            let controls = tally.controls(step);
            let outcome = program.step(stream, &controls).or_else(|error| match error {
                StepError::NotStarted { .. } => program.step(stream, &controls),
                other => Err(other),
            });
            let done = outcome.map_err(|error| error.to_string())?;
            assert_eq!(done.index, u64::from(step));
        }
        buffers.state(stream)
    }
}
