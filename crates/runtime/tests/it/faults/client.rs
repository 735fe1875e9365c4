//! A complete use of this crate, from the first driver call to the last.

use std::fmt::Display;
use std::sync::Arc;

use retrograph_driver_sim::Simulator;
use retrograph_runtime::{
    Context, DeviceIndex, ModuleCache, Policy, Program, StepError, Stream, UpdateStrategy,
    WarmModules,
};

use crate::device::driver_of;
use crate::tally::{Tally, TallyBuffers};

/// Steps of a run.
pub(super) const STEPS: u32 = 3;

/// A client's use of a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    pub(super) policy: Policy,
    /// Whether part of the pass is a library call.
    pub(super) library: bool,
    /// Whether the program is rebound before each step except the first, and the first update
    /// strategy to try.
    pub(super) rebinds: Option<UpdateStrategy>,
}

impl From<Policy> for Life {
    fn from(policy: Policy) -> Self {
        Self { policy, library: false, rebinds: None }
    }
}

impl Life {
    pub(super) fn with_library(policy: Policy) -> Self {
        Self { library: true, ..policy.into() }
    }

    pub(super) fn rebinding(self, least: UpdateStrategy) -> Self {
        Self { rebinds: Some(least), ..self }
    }
}

/// A device that is ready to build and run the pass.
pub(super) struct Client {
    pub(super) context: Context,
    stream: Stream,
    modules: WarmModules,
    life: Life,
    tally: Tally,
}

impl Client {
    /// From the driver to warm modules.
    pub(super) fn new(simulator: &Arc<Simulator>, life: Life) -> Result<Self, String> {
        let driver = driver_of(simulator).map_err(|error| error.to_string())?;
        let context = Context::new(&driver, DeviceIndex(0)).map_err(|error| error.to_string())?;
        let stream = Stream::new(&context).map_err(|error| error.to_string())?;
        let tally = if life.library { Tally::with_library() } else { Tally::new() };
        let cache = ModuleCache::new(&context);
        let warm = cache.prewarm(&tally.pass.requirements(), |_| ());
        let modules = warm.map_err(|error| error.to_string())?;
        Ok(Self { context, stream, modules, life, tally })
    }

    /// Builds, does [`STEPS`] steps and returns the state after them. A step that did not start is
    /// retried once, as its error allows.
    pub(super) fn run(&self) -> Result<Vec<u32>, String> {
        let (tally, stream, policy) = (&self.tally, &self.stream, self.life.policy);
        let mut buffers = tally.buffers(&self.context)?;
        let bindings = tally.bindings(&buffers);
        let built = Program::build(stream, &self.modules, &tally.pass, &bindings, policy);
        let mut program = built.map_err(|error| error.to_string())?;
        for step in 0..STEPS {
            let old = match self.life.rebinds {
                Some(least) if step > 0 => {
                    let state = buffers.state(stream)?;
                    let new = self.rebind(&mut program, least, &state)?;
                    Some((std::mem::replace(&mut buffers, new), state))
                }
                _ => None,
            };
            let controls = tally.controls(step);
            let outcome = program.step(stream, &controls).or_else(|error| match error {
                StepError::NotStarted { .. } => program.step(stream, &controls),
                other => Err(other),
            });
            let done = outcome.map_err(|error| error.to_string())?;
            assert_eq!(done.index, u64::from(step));
            if let Some((old, state)) = old {
                assert_eq!(old.state(stream)?, state, "a step wrote into memory of before");
            }
        }
        buffers.state(stream)
    }

    /// Binds `program` to other memory that holds `state`. When that fails the old step stays, so
    /// that it can be tried once more.
    fn rebind(
        &self,
        program: &mut Program,
        least: UpdateStrategy,
        state: &[u32],
    ) -> Result<TallyBuffers, String> {
        let new = twice(|| self.tally.holding(&self.stream, state))?;
        let bindings = self.tally.bindings(&new);
        twice(|| program.rebind_from(least, &self.stream, &bindings))?;
        Ok(new)
    }
}

fn twice<T, E: Display>(mut attempt: impl FnMut() -> Result<T, E>) -> Result<T, String> {
    attempt().or_else(|_| attempt()).map_err(|error| error.to_string())
}
