//! Rebinding: binds a program to other buffers without building it again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use retrograph_driver::Stream;
use retrograph_driver::memory::Staging;

use super::Program;
use super::bindings::{Bindings, External};
use super::error::{BuildError, StepError};
use super::moved::Moved;
use super::policy::Strategy;
use super::update::{UpdateStrategy, Updated};
use crate::library::Cublas;

/// The outcome of a rebind.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Rebound {
    /// The update strategy that succeeded.
    pub update: UpdateStrategy,
    /// The strategy of later steps.
    pub strategy: Strategy,
    /// External buffers whose memory changed.
    pub buffers: usize,
    /// Nodes whose parameters changed.
    pub nodes: usize,
    /// Whether the cuBLAS handle changed.
    pub handle: bool,
    /// Bytes of tables that are rewritten on the device, in stream order.
    pub table_bytes: usize,
    /// Update strategies that failed before, with the cause.
    pub failed: Vec<(UpdateStrategy, Arc<BuildError>)>,
    /// Host time of the rebind.
    pub time: Duration,
}

impl Program {
    /// Binds the program to other memory for later steps. Buffers that `bindings` does not name
    /// stay bound. Steps in flight use the old memory, which is kept alive until they have
    /// finished.
    ///
    /// A cuBLAS handle in `bindings` replaces the previous one for later products. The products are
    /// captured again, since another handle may choose other kernels; results are bitwise equal
    /// only for the same handle.
    ///
    /// The graph is updated by the first [`UpdateStrategy`] that can make the change, and by the
    /// next one if it fails. Only [`UpdateStrategy::Rebuild`] waits for steps in flight. Edges do
    /// not change: they are inferred by buffer, so two buffers may not be bound to the same memory.
    ///
    /// # Errors
    /// See [`BuildError`]. The program then keeps its old bindings. If the device accepted neither
    /// all new addresses nor the old ones, every later step fails with [`StepError::GivenUp`]. With
    /// [`Policy::Auto`](super::Policy::Auto), a graph that cannot be updated is no error: steps are
    /// eager with the new memory until the graph is retried.
    pub fn rebind(&mut self, stream: &Stream, bindings: &Bindings) -> Result<Rebound, BuildError> {
        self.rebind_from(UpdateStrategy::KeepGraph, stream, bindings)
    }

    /// Like [`Program::rebind`], but starts with the update strategy `least`, for tests and
    /// measurements. A program without a graph only uses [`UpdateStrategy::KeepGraph`].
    ///
    /// # Errors
    /// As [`Program::rebind`].
    pub fn rebind_from(
        &mut self,
        least: UpdateStrategy,
        stream: &Stream,
        bindings: &Bindings,
    ) -> Result<Rebound, BuildError> {
        let started = Instant::now();
        if let Some(failed) = &self.failed {
            return Err(BuildError::GivenUp { cause: failed.clone() });
        }
        stream.require_outside_capture("rebinding a program")?;
        let handle = bindings.cublas_handle();
        if let Some(handle) = handle {
            self.context.same(handle.context(), "the handle of cuBLAS")?;
        }
        let externals = bindings.resolve(&self.wanted, &self.memory.externals, &self.context)?;
        self.after_last_step(&stream.outside_capture("rebinding a program")?)?;
        let mut moved = self.move_to(externals, handle);
        let updated = match self.follow(least, stream, &mut moved) {
            Ok(updated) => updated,
            Err(error) => return Err(self.move_back(stream, moved, error)),
        };
        let (buffers, handle) = (moved.before.len(), moved.handle.is_some());
        let owners = moved.before.into_iter().map(|external| external.owner);
        let owners = owners.chain(moved.handle.map(|handle| handle.owner())).collect();
        self.retired.release_finished();
        self.retired.retire(stream, owners);
        let table_bytes = if moved.tables { size_of_val(self.memory.tables().1) } else { 0 };
        let Updated { update, nodes, failed } = updated;
        let (strategy, time) = (self.report.strategy, started.elapsed());
        Ok(Rebound { update, strategy, buffers, nodes, handle, table_bytes, failed, time })
    }

    /// Updates addresses in commands and tables, and the handle of products, on the host.
    fn move_to(&mut self, externals: Vec<External>, handle: Option<&Cublas>) -> Moved {
        let (mut commands, mut tables, mut before) = (Vec::new(), false, Vec::new());
        let mut refused = None;
        for to in externals {
            if self.memory.external(to.id).is_some_and(|held| held.address == to.address) {
                continue;
            }
            let (moved, outcome) = self.sequence.move_external(self.context.driver(), &to);
            commands.extend(moved);
            refused = refused.or(outcome.err());
            let (old, in_tables) = self.memory.move_external(to);
            tables |= in_tables;
            before.push(old);
        }
        let used = handle.and_then(|handle| self.sequence.use_handle(handle));
        let handle = used.map(|(before, products)| {
            commands.extend(products);
            before
        });
        commands.sort_unstable();
        commands.dedup();
        Moved { commands, tables, before, handle, refused, mixed: false }
    }

    /// Updates the device: its tables, and the graph.
    fn follow(
        &mut self,
        least: UpdateStrategy,
        stream: &Stream,
        moved: &mut Moved,
    ) -> Result<Updated, BuildError> {
        if let Some(error) = moved.refused.take() {
            return Err(error.into());
        }
        if moved.tables {
            moved.mixed = true;
            self.upload_tables(stream)?;
        }
        self.update_graph(least, stream, moved)
    }

    /// Rewrites the tables after all enqueued steps and before the next one.
    fn upload_tables(&mut self, stream: &Stream) -> Result<(), BuildError> {
        let (target, words) = self.memory.tables();
        if self.table_staging.is_empty() {
            self.table_staging = Staging::new(&self.context, size_of_val(words))?;
        }
        let outside = stream.outside_capture("rebinding a program")?;
        // SAFETY: the tables belong to the program, and the stream is ordered after its last step.
        let outcome =
            unsafe { self.table_staging.upload(&outside, target, bytemuck::cast_slice(words)) };
        // A step on another stream waits for this one.
        self.mark(stream);
        Ok(outcome?)
    }

    /// Restores the old bindings after `error`, or gives the program up.
    fn move_back(&mut self, stream: &Stream, moved: Moved, error: BuildError) -> BuildError {
        let mut back = self.move_to(moved.before, moved.handle.as_ref());
        if !moved.mixed && back.refused.is_none() {
            return error;
        }
        let Err(second) = self.follow(UpdateStrategy::KeepGraph, stream, &mut back) else {
            return error;
        };
        tracing::error!(%error, %second, "the program is given up: rebinding failed half-way");
        // Dropping the new buffers is safe: steps in flight use only the old ones.
        let failed = StepError::HalfRebound { cause: Arc::new(error) };
        self.failed = Some(Box::new(failed.clone()));
        BuildError::GivenUp { cause: Box::new(failed) }
    }
}
