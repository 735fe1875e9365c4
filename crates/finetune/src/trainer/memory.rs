//! The device memory of a run, planned before anything is uploaded.

use retrograph_kernels::Argument;
use retrograph_runtime::memory::PAGE_BYTES;
use retrograph_runtime::{
    BufferKind, Context, DriverOverhead, OperationKind, Pass, Policy, Requirements, Reuse,
};

use super::TrainerOptions;
use crate::error::{Error, Reduce, Result};
use crate::model::{LossPass, ParameterBuffers, StepPass};
use crate::parameters::Parameter;
use crate::state::pooled_bytes;

/// The device bytes of a run, by purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryNeed {
    /// The parameters.
    pub parameters: usize,
    /// Both moments of the trained parameters.
    pub optimizer: usize,
    /// The copy of the state for verification, and its step.
    pub verify: usize,
    /// Transients that share memory only if that adds no edges ([`Reuse::WhenOrdered`]).
    pub step: usize,
    /// Transients that share as much memory as possible ([`Reuse::Full`]).
    pub min_step: usize,
    /// The forward pass on held-out data.
    pub held_out: usize,
    /// The driver's own memory, in addition to these allocations.
    pub driver: DriverOverhead,
    /// Whether steps are graphs.
    graphs: bool,
}

impl MemoryNeed {
    /// Plans a run of `step`, and of the largest step with shorter sequences, if there are any:
    /// their programs share transients.
    pub fn of(step: &StepPass, shorter: Option<&StepPass>, options: &TrainerOptions) -> Self {
        let bytes = |held: &ParameterBuffers| held.parameter.bytes();
        let parameters: usize = step.parameters.iter().map(bytes).sum();
        let trained: usize = step.trained().map(bytes).sum();
        let len = |held: &ParameterBuffers| held.trained.as_ref().map_or(0, |it| it.block.len());
        let moments = 2 * size_of::<f32>() * step.trained().map(len).sum::<usize>();
        let fixed = fixed_bytes(&step.pass);
        let (ordered, full) = (Reuse::WhenOrdered, Reuse::Full);
        let peaks = |reuse| -> usize {
            let passes = std::iter::once(step).chain(shorter);
            passes.map(|step| step.pass.plan_with(reuse).peak_bytes() + fixed).sum()
        };
        let min_step = peaks(full);
        let all: Vec<Parameter> =
            step.parameters.iter().map(|held| held.parameter.clone()).collect();
        let driver = DriverOverhead::default()
            .with_allocation(pooled_bytes(&all))
            .with_allocation(moments)
            .with_allocation(min_step);
        let graphs = options.build.policy != Policy::Eager;
        let need = Self {
            parameters,
            optimizer: moments,
            verify: if options.verify { trained + moments + min_step } else { 0 },
            step: peaks(ordered),
            min_step,
            held_out: 0,
            driver,
            graphs,
        };
        std::iter::once(step).chain(shorter).fold(need, |need, step| need.with_graph(&step.pass))
    }

    /// Adds the code of all `required` kernels.
    pub(super) fn with_code(self, required: &Requirements) -> Self {
        Self { driver: self.driver.with_code(required), ..self }
    }

    fn with_graph(self, pass: &Pass) -> Self {
        Self {
            driver: if self.graphs { self.driver.with_graph(pass) } else { self.driver },
            ..self
        }
    }

    /// Adds the forward pass on held-out data.
    pub(super) fn with_held_out(self, pass: &LossPass) -> Self {
        let held_out = pass.pass.plan_with(Reuse::Full).peak_bytes() + fixed_bytes(&pass.pass);
        let driver = self.driver.with_graph(&pass.pass).with_allocation(held_out);
        Self { held_out, driver, ..self }
    }

    /// Returns the minimum bytes that a run can allocate.
    pub fn least(&self) -> usize {
        self.parameters + self.optimizer + self.verify + self.min_step + self.held_out
    }

    /// Returns the bytes that a run allocates with this `reuse` of transients.
    pub fn allocated(&self, reuse: Reuse) -> usize {
        let step = if reuse == Reuse::WhenOrdered { self.step } else { self.min_step };
        self.least() - self.min_step + step
    }

    /// Checks that the minimum memory of a run, including the driver's, fits in the free memory of
    /// the device. The kernels must already be loaded.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], or if the device fails.
    pub fn require(&self, context: &Context) -> Result<()> {
        let (free, total) = context.mem_get_info()?;
        let driver = self.driver.total() - self.driver.code;
        let planned = self.least() + driver;
        if planned <= free {
            return Ok(());
        }
        Err(Error::OutOfMemory {
            planned,
            free,
            total,
            parameters: self.parameters,
            optimizer: self.optimizer,
            verify: self.verify,
            step: self.min_step,
            held_out: self.held_out,
            driver,
            reduce: self.what_to_reduce(free.saturating_sub(driver)),
        })
    }

    /// Returns the smallest reduction that makes the run fit.
    fn what_to_reduce(&self, free: usize) -> Reduce {
        if self.least() - self.verify <= free {
            Reduce::Verification
        } else if self.least() - self.verify - self.held_out <= free {
            Reduce::HeldOut
        } else if self.parameters + self.optimizer <= free {
            Reduce::Batch
        } else if self.parameters <= free && self.optimizer > 0 {
            Reduce::Trained
        } else {
            Reduce::Model
        }
    }
}

/// Returns the bytes of controls and argument tables, and a page for small external buffers.
fn fixed_bytes(pass: &Pass) -> usize {
    let controls = pass.buffers().filter(|(_, buffer)| buffer.kind() == BufferKind::Control);
    let controls: usize = controls.map(|(_, buffer)| buffer.bytes().next_multiple_of(256)).sum();
    let launches = pass.operations().iter().filter_map(|operation| match operation.kind() {
        OperationKind::Launch(launch) => Some(launch),
        _ => None,
    });
    let cells = launches.flat_map(|launch| launch.arguments()).map(|argument| match argument {
        Argument::Table(cells) => (cells.len() * size_of::<u64>()).next_multiple_of(256),
        _ => 0,
    });
    controls + cells.sum::<usize>() + PAGE_BYTES
}
