//! Programs: a pass bound to memory and to a strategy.
//!
//! [`Program::build`] binds external buffers, allocates everything else, takes warm functions,
//! chooses a strategy and prepares it. [`Program::step`] runs the operations of the pass once.
//!
//! ```
//! # #[cfg(feature = "sim")] {
//! use retrograph_runtime::{
//!     Bindings, Context, DeviceBuffer, DeviceIndex, Driver, ModuleCache, Pass, Policy, Program,
//!     Stream,
//! };
//!
//! let mut pass = Pass::new("double copy");
//! let input = pass.external::<f32>("input", 4);
//! let output = pass.external::<f32>("output", 4);
//! let scratch = pass.transient::<f32>("scratch", 4);
//! pass.copy(input, scratch)?;
//! pass.copy(scratch, output)?;
//!
//! let context = Context::new(&Driver::simulated(Default::default())?, DeviceIndex(0))?;
//! let modules = ModuleCache::new(&context).prewarm(&pass.requirements(), |_| ())?;
//! let stream = Stream::new(&context)?;
//! let from = DeviceBuffer::from_slice(&stream, &[1.0, 2.0, 3.0, 4.0_f32])?;
//! let to = DeviceBuffer::zeroed(&context, 4)?;
//! let mut bindings = Bindings::new();
//! bindings.bind(input, &from).bind(output, &to);
//!
//! let mut program = Program::build(&stream, &modules, &pass, &bindings, Policy::Auto)?;
//! assert_eq!(program.report().nodes, 2);
//! program.step(&stream, &pass.controls())?;
//! assert_eq!(to.download(&stream)?, [1.0, 2.0, 3.0, 4.0]);
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A step happens once
//!
//! Building never runs an operation: nodes are added or captured, not executed. A call of
//! [`Program::step`] runs the step exactly once, whatever the strategy, or returns an error that
//! says whether any of it ran.
//!
//! # What changes between steps
//!
//! Only the control block. The host writes the controls of a step into pinned memory, and the
//! step's first operation fetches them ([`crate::OperationKind::FetchStepParameters`]). No varying
//! value is part of a node; [`Program::admit`] checks this on request.
//!
//! # Ownership
//!
//! A program keeps its functions, bound buffers, device memory and pinned memory alive until its
//! last launch has finished.

mod admit;
mod arena;
mod assembly;
mod bindings;
mod blueprint;
mod buckets;
mod cache;
mod command;
mod control_ring;
mod error;
mod fallback;
mod graphs;
mod last;
mod library_call;
mod memory;
mod moved;
mod options;
mod policy;
mod profile;
mod reason;
mod rebind;
mod relocations;
mod replay;
mod report;
mod resolver;
mod retired;
mod retries;
mod ring_counter;
mod run;
mod sequence;
mod shape;
mod update;

use std::sync::Arc;
use std::time::Instant;

use retrograph_driver::memory::Staging;
use retrograph_driver::{Context, Stream, nvtx};

use crate::modules::WarmModules;
use crate::pass::{ControlLayout, Pass};
pub use admit::{Admission, AdmitError};
use arena::Share;
pub use bindings::Bindings;
use bindings::Wanted;
use blueprint::Blueprint;
pub use buckets::{Bucket, Buckets, ShapeError};
pub use cache::{CacheError, CacheOptions, CacheStatistics, Cached, Described, ProgramCache};
use control_ring::ControlRing;
use error::is_lost;
pub use error::{BuildError, StepError};
use last::LastUse;
use memory::Memory;
pub use options::{BuildOptions, PdlMode};
pub use policy::{Choice, Facts, Policy, QUIRKS, Quirk, Strategy, choose};
pub use profile::ProfileError;
pub use reason::{GraphFailure, Reason};
pub use rebind::Rebound;
use replay::Replay;
pub use report::Report;
use resolver::Resolver;
use retired::Retired;
pub use retries::RETRY_AFTER;
use retries::Retries;
pub use run::StepOutcome;
pub use sequence::Collectives;
use sequence::Sequence;
pub use update::UpdateStrategy;

/// A pass that is ready to run. Steps of one program run one after another: `step` borrows it
/// exclusively, so no two threads launch the same graph.
///
/// Fields of the hot path come first (see [`retrograph_driver::hot_path`]). Fields are dropped in
/// this order: a graph before the memory that its nodes access.
#[repr(C, align(64))]
pub struct Program {
    steps: u64,
    last: LastUse,
    controls: Arc<ControlLayout>,
    context: Context,
    /// The failure that ended the program, if any.
    failed: Option<Box<StepError>>,
    retries: Retries,
    options: BuildOptions,
    replay: Option<Replay>,
    /// Controls on their way to the device; `None` without controls.
    ring: Option<ControlRing>,
    retired: Retired,
    memory: Memory,
    sequence: Sequence,
    /// Uploads rewritten tables after rebinding.
    table_staging: Staging,
    report: Report,
    wanted: Wanted,
}

impl Program {
    /// Binds `pass` to memory and prepares its strategy, given by a [`Policy`] or by
    /// [`BuildOptions`]. No operation runs.
    ///
    /// # Errors
    /// See [`BuildError`]. With [`Policy::Auto`], a graph that cannot be built is no error: the
    /// program is then eager, the report names the cause, and the graph is retried after
    /// [`RETRY_AFTER`] steps.
    pub fn build(
        stream: &Stream,
        modules: &WarmModules,
        pass: &Pass,
        bindings: &Bindings,
        options: impl Into<BuildOptions>,
    ) -> Result<Self, BuildError> {
        let options = options.into();
        Self::assemble(stream, modules, &Blueprint { pass, bindings, options, sharing: None })
    }

    fn assemble(
        stream: &Stream,
        modules: &WarmModules,
        blueprint: &Blueprint<'_>,
    ) -> Result<Self, BuildError> {
        let _range = nvtx::range(c"retrograph: build");
        let started = Instant::now();
        let &Blueprint { pass, bindings, options, .. } = blueprint;
        let context = stream.context().clone();
        stream.require_outside_capture("building a program")?;
        context.same(modules.context(), "the warm modules")?;
        if let Some(cublas) = bindings.cublas_handle() {
            context.same(cublas.context(), "the handle of cuBLAS")?;
        }
        if let Some(communicator) = bindings.held_communicator() {
            context.same(communicator.context(), "the communicator")?;
        }
        let wanted = Wanted::by(pass);
        let externals = bindings.resolve(&wanted, &[], &context)?;
        let memory = Memory::new(blueprint, externals, stream)?;
        let controls = Arc::clone(pass.control_layout());
        let ring = match controls.block_bytes() {
            0 => None,
            bytes => Some(ControlRing::new(&context, bytes / 4)?),
        };
        let resolver = Resolver { modules, memory: &memory, bindings, ring: ring.as_ref() };
        let sequence = Sequence::new(pass, &resolver)?;
        let mut program = Self {
            ring,
            table_staging: Staging::default(),
            report: Report::eager(pass, &memory, &sequence),
            replay: None,
            last: LastUse::default(),
            failed: None,
            steps: 0,
            options,
            retries: Retries::default(),
            controls,
            wanted,
            context,
            sequence,
            memory,
            retired: Retired::default(),
        };
        program.prepare(stream)?;
        let replay_time = program.report.instantiate_time + program.report.upload_time;
        program.report.build_time = started.elapsed().saturating_sub(replay_time);
        Ok(program)
    }

    /// Facts about the built program.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// The share in an arena of several programs, if any.
    fn share(&self) -> Option<&Share> {
        self.memory.share()
    }

    /// Returns the device bytes outside a shared arena.
    fn own_bytes(&self) -> usize {
        self.memory.own_bytes()
    }

    /// Number of steps enqueued so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Whether a failure ended the program, so that no later step runs. Build it again.
    pub fn is_given_up(&self) -> bool {
        self.failed.is_some()
    }

    /// Enqueues a fill of every transient with NaN, to expose reads of unwritten transients.
    /// [`BuildOptions::nan_transients`] does this before each step.
    ///
    /// # Errors
    /// [`retrograph_driver::Error::RefusedDuringCapture`], or if the driver fails.
    pub fn fill_transients_with_nan(
        &mut self,
        stream: &Stream,
    ) -> retrograph_driver::error::Result<()> {
        let stream = stream.outside_capture("filling the transients")?;
        self.after_last_step(&stream)?;
        self.memory.fill_transients_with_nan(&stream)?;
        self.mark(&stream);
        Ok(())
    }

    /// Records that work on `stream` uses the program's memory; a step on another stream waits for
    /// it.
    fn mark(&mut self, stream: &Stream) {
        self.last.on(stream);
        if let Some(share) = self.share() {
            share.used(stream);
        }
    }
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Report { pass, strategy, nodes, .. } = &self.report;
        write!(f, "Program({pass}: {strategy}, {nodes} nodes, {} steps)", self.steps)
    }
}

impl Drop for Program {
    /// Waits for the last step before its memory is freed. In a lost context nothing runs any
    /// more. After another failure, such as a wait that a capture refuses, the step may still run,
    /// so a release waits for it before it drops what the step accesses.
    fn drop(&mut self) {
        match self.last.wait() {
            Ok(()) => debug_assert!(
                self.failed.is_some() || self.ring.as_ref().is_none_or(ControlRing::is_in_step),
                "the device has taken other values than it was given"
            ),
            Err(error) if is_lost(&error) => tracing::debug!(%error, "the last step is lost"),
            Err(error) => {
                tracing::debug!(%error, "the last step is waited for later");
                let owners = self.memory.owners().chain(self.sequence.all_owners());
                self.last.release_after(owners.chain(self.retired.owners()).collect());
            }
        }
    }
}
