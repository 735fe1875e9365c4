//! Profiles a program: device time by phase and by operation.

use std::sync::Arc;

use retrograph_driver::profile::{MAX_REPLAYS, Timed, median, scope_of};
use retrograph_driver::{Error, Event, Node, OperationTime, PhaseTime, Profile, Result, Stream};

use super::Program;
use super::error::{BuildError, StepError};
use super::options::PdlMode;
use super::policy::Strategy;
use super::sequence::Step;
use crate::pass::{ControlError, Controls};

/// Why a program could not be profiled. Its state is restored unless the context is lost.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// A control has no value, or the controls belong to another pass.
    #[error(transparent)]
    Controls(#[from] ControlError),

    /// A graph with event records could not be built.
    #[error("the graph with event records could not be built: {0}")]
    Build(#[from] BuildError),

    /// A step failed.
    #[error(transparent)]
    Step(#[from] StepError),

    /// The driver failed.
    #[error(transparent)]
    Device(#[from] Error),
}

impl Program {
    /// Measures the device time of a step by phase and by operation; see
    /// [`retrograph_driver::profile`].
    ///
    /// Real steps run with `controls` on the program's own memory: `replays` steps with the
    /// program's strategy and with each of two graphs with event records, after one warm-up each.
    /// `replays` is clamped to 1 to [`MAX_REPLAYS`]. The steps are not counted, and all memory that
    /// a step writes is restored afterwards.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] {
    /// use retrograph_runtime::{
    ///     Bindings, Context, DeviceBuffer, DeviceIndex, Driver, ModuleCache, Pass, Policy,
    ///     Program, Stream,
    /// };
    ///
    /// let mut pass = Pass::new("two phases");
    /// let (input, output) = (pass.external::<f32>("input", 8), pass.external::<f32>("output", 8));
    /// let scratch = pass.transient::<f32>("scratch", 8);
    /// pass.set_scope("there");
    /// pass.copy(input, scratch)?;
    /// pass.set_scope("and back");
    /// pass.copy(scratch, output)?;
    ///
    /// let context = Context::new(&Driver::simulated(Default::default())?, DeviceIndex(0))?;
    /// let modules = ModuleCache::new(&context).prewarm(&pass.requirements(), |_| ())?;
    /// let stream = Stream::new(&context)?;
    /// let from = DeviceBuffer::from_slice(&stream, &[1.0_f32; 8])?;
    /// let to = DeviceBuffer::zeroed(&context, 8)?;
    /// let mut bindings = Bindings::new();
    /// bindings.bind(input, &from).bind(output, &to);
    /// let mut program = Program::build(&stream, &modules, &pass, &bindings, Policy::Auto)?;
    ///
    /// let profile = program.profile(&stream, &pass.controls(), 5)?;
    /// let phases: Vec<_> = profile.phases.iter().map(|phase| phase.name.as_str()).collect();
    /// assert_eq!(phases, ["there", "and back"]);
    /// assert_eq!(program.steps(), 0);
    /// assert_eq!(to.download(&stream)?, [0.0; 8], "the state is as before");
    /// assert!(profile.to_string().contains("SIMULATED"));
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`ProfileError`].
    pub fn profile(
        &mut self,
        stream: &Stream,
        controls: &Controls,
        replays: usize,
    ) -> Result<Profile, ProfileError> {
        let layout = Arc::clone(&self.controls);
        controls.complete(&layout)?;
        self.after_last_step(&stream.outside_capture("profiling a program")?)?;
        let before = self.snapshot(stream)?;
        let steps = self.steps;
        let outcome = self.measure(stream, controls, replays.clamp(1, MAX_REPLAYS));
        self.steps = steps;
        // The first failure is more informative than a failed restore.
        let restored = self.restore(stream, &before);
        let profile = outcome?;
        restored?;
        Ok(profile)
    }

    fn measure(
        &mut self,
        stream: &Stream,
        controls: &Controls,
        replays: usize,
    ) -> Result<Profile, ProfileError> {
        let mut profile = Profile::of(&self.report.pass, &self.context, replays)?;
        // These steps leave the control block in the state that the graphs with events need.
        profile.step_ms = self.time_steps(stream, controls, replays)?;
        profile.strategy = self.report.strategy.to_string();
        let runs = runs(&self.sequence.steps);
        let (_, times) = self.time_groups(stream, replays, &runs)?;
        for (run, ms) in runs.iter().zip(times) {
            add(&mut profile.phases, scope_of(&self.sequence.steps[run.start].name), run.len(), ms);
        }
        let single: Vec<_> = (0..self.sequence.steps.len()).map(|at| at..at + 1).collect();
        let (idle, times) = self.time_groups(stream, replays, &single)?;
        profile.record_ms = idle;
        for (step, ms) in self.sequence.steps.iter().zip(times) {
            let kernel = step.name.rsplit('/').next().unwrap_or_default().to_owned();
            let (operation, name) = (step.operation.index(), step.name.clone());
            profile.operations.push(OperationTime { operation, name, kernel, ms });
        }
        Ok(profile)
    }

    /// Returns the median time of steps with the program's own strategy, between events on the
    /// stream.
    fn time_steps(
        &mut self,
        stream: &Stream,
        controls: &Controls,
        replays: usize,
    ) -> Result<f32, ProfileError> {
        let (start, end) = (Event::new(&self.context)?, Event::new(&self.context)?);
        self.step(stream, controls)?;
        let mut times = Vec::new();
        for _ in 0..replays {
            start.record(stream)?;
            self.step(stream, controls)?;
            end.record(stream)?;
            stream.synchronize()?;
            times.push(end.elapsed_ms(&start)?);
        }
        Ok(median(times))
    }

    /// The medians between back-to-back records, and of each of `groups`, which are runs of steps.
    fn time_groups(
        &self,
        stream: &Stream,
        replays: usize,
        groups: &[std::ops::Range<usize>],
    ) -> Result<(f32, Vec<f32>), ProfileError> {
        let strategy = match self.report.strategy {
            // Library calls are captured between nodes added by hand.
            Strategy::Eager => Strategy::Hybrid,
            graph => graph,
        };
        // Programmatic edges cannot start at an event record.
        let template = self.template_with(strategy, stream, PdlMode::Never)?;
        let nodes = |group: &std::ops::Range<usize>| template.groups[group.clone()].concat();
        let groups: Vec<Vec<Node>> = groups.iter().map(nodes).collect();
        Ok(Timed::new(template.graph, &groups)?.measure(stream, replays)?)
    }
}

/// Runs of consecutive steps of the same scope.
fn runs(steps: &[Step]) -> Vec<std::ops::Range<usize>> {
    let mut start = 0;
    let same = |one: &Step, other: &Step| scope_of(&one.name) == scope_of(&other.name);
    let ends = steps.chunk_by(same).map(|run| {
        let range = start..start + run.len();
        start = range.end;
        range
    });
    ends.collect()
}

/// Adds a run of `operations` operations to the phase of this name.
fn add(phases: &mut Vec<PhaseTime>, name: &str, operations: usize, ms: f32) {
    match phases.iter_mut().find(|phase| phase.name == name) {
        Some(phase) => {
            phase.entries += 1;
            phase.operations += operations;
            phase.ms += ms;
        }
        None => phases.push(PhaseTime { name: name.to_owned(), entries: 1, operations, ms }),
    }
}
