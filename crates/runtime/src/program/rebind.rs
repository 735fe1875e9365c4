//! Binding a program to other memory without building it again: the update ladder.

use std::sync::Arc;
use std::time::{Duration, Instant};

use retrograph_driver::Stream;
use retrograph_driver::memory::Staging;

use super::Program;
use super::bindings::{Bindings, External};
use super::error::{BuildError, StepError};
use super::moved::Moved;
use super::policy::Strategy;
use super::update::Updated;
use super::update_strategy::UpdateStrategy;
use crate::library::Cublas;

/// What a rebind did.
#[derive(Clone, Debug, PartialEq)]
pub struct Rebound {
    /// The rung that made the change.
    pub update: UpdateStrategy,
    /// How steps reach the device from now on.
    pub strategy: Strategy,
    /// External buffers that are somewhere else than before.
    pub buffers: usize,
    /// Nodes whose parameters were set.
    pub nodes: usize,
    /// Whether another handle of cuBLAS does the products from now on.
    pub handle: bool,
    /// Bytes of tables that are rewritten on the device, in the order of the stream.
    pub table_bytes: usize,
    /// Rungs that were tried before and failed, with the cause.
    pub failed: Vec<(UpdateStrategy, String)>,
    /// Host time of all of it.
    pub time: Duration,
}

impl Program {
    /// Binds the program to other memory, for the steps from now on. What `bindings` does not name
    /// stays where it is. Steps in flight use the old memory, which is kept until they have run.
    ///
    /// A handle of cuBLAS that `bindings` name does the products from now on, and the one before is
    /// kept like memory. The products are captured again, since another handle may choose other
    /// kernels; equal bits are promised for one handle alone.
    ///
    /// The graph follows by the cheapest [`UpdateStrategy`], and by the next one when a rung fails. Only the
    /// last one, [`UpdateStrategy::Rebuild`], waits for steps in flight. Edges do not change, since they are
    /// inferred by buffer; that is why two buffers may not be moved to the same memory.
    ///
    /// # Errors
    /// See [`BuildError`]. The program then does the old step as before; where it cannot, because
    /// the device neither took the new addresses nor the old ones back, each later step fails with
    /// [`StepError::GivenUp`]. With [`Policy::Auto`](super::Policy::Auto), a graph that does not
    /// follow is no error: steps are eager then, with the new memory, until a graph is tried again.
    pub fn rebind(&mut self, stream: &Stream, bindings: &Bindings) -> Result<Rebound, BuildError> {
        self.rebind_from(UpdateStrategy::KeepGraph, stream, bindings)
    }

    /// As [`Program::rebind`], but no lower rung than `least` is taken: for tests, and to measure
    /// what each costs. A program without a graph has no rungs but the first.
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
        stream.bind_outside_capture("rebinding a program")?;
        let handle = bindings.cublas_handle();
        if let Some(handle) = handle {
            self.context.same(handle.context(), "the handle of cuBLAS")?;
        }
        let externals = bindings.resolve(&self.wanted, &self.memory.externals, &self.context)?;
        self.after_last_step(stream)?;
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

    /// Puts the addresses into commands and tables, and the handle into products, on the host.
    fn move_to(&mut self, externals: Vec<External>, handle: Option<&Cublas>) -> Moved {
        let (mut commands, mut tables, mut before) = (Vec::new(), false, Vec::new());
        for to in externals {
            if self.memory.external(to.id).is_some_and(|held| held.address == to.address) {
                continue;
            }
            commands.extend(self.sequence.move_external(&to));
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
        Moved { commands, tables, before, handle, mixed: false }
    }

    /// Makes the device follow: its tables, and the graph.
    fn follow(
        &mut self,
        least: UpdateStrategy,
        stream: &Stream,
        moved: &mut Moved,
    ) -> Result<Updated, BuildError> {
        if moved.tables {
            moved.mixed = true;
            self.upload_tables(stream)?;
        }
        self.update_graph(least, stream, moved)
    }

    /// Rewrites the tables behind all steps that are enqueued and in front of the next one.
    fn upload_tables(&mut self, stream: &Stream) -> Result<(), BuildError> {
        let (target, words) = self.memory.tables();
        if self.table_staging.is_empty() {
            self.table_staging = Staging::new(&self.context, size_of_val(words))?;
        }
        // SAFETY: the tables are the program's own, and no step reads them meanwhile: the stream
        // is behind the last one.
        let outcome =
            unsafe { self.table_staging.upload(stream, target, bytemuck::cast_slice(words)) };
        // The next step may be on another stream, and then waits for this one.
        self.mark(stream);
        Ok(outcome?)
    }

    /// Makes the program do the old step again after `error`, or gives it up.
    fn move_back(&mut self, stream: &Stream, moved: Moved, error: BuildError) -> BuildError {
        let mut back = self.move_to(moved.before, moved.handle.as_ref());
        if !moved.mixed {
            return error;
        }
        let Err(second) = self.follow(UpdateStrategy::KeepGraph, stream, &mut back) else {
            return error;
        };
        tracing::error!(%error, %second, "the program is given up: it is bound to two memories");
        // What it was to be bound to is dropped here, but steps in flight name only the old one.
        let failed = StepError::HalfRebound { cause: Arc::new(error) };
        self.failed = Some(Box::new(failed.clone()));
        BuildError::GivenUp { cause: Box::new(failed) }
    }
}
