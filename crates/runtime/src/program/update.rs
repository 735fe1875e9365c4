//! Updates a graph to the current addresses of its commands, trying one update strategy after
//! another.

use std::fmt;
use std::sync::Arc;

use retrograph_driver::{GraphExec, MemcpyParams, MemsetParams, Node, Result, Stream};

use super::Program;
use super::command::Command;
use super::error::BuildError;
use super::moved::Moved;
use super::policy::Policy;
use super::reason::GraphFailure;
use super::sequence::Step;

/// A way to change the addresses of a graph, cheapest first. One that fails is followed by the
/// next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum UpdateStrategy {
    /// Leaves the graph unchanged. Address tables in device memory are rewritten in stream order.
    KeepGraph,
    /// Sets the parameters of the nodes that use a moved buffer, one by one, in the exec.
    SetNodeParams,
    /// Builds and instantiates a new template.
    Rebuild,
}

impl fmt::Display for UpdateStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::KeepGraph => "keep graph",
            Self::SetNodeParams => "set node params",
            Self::Rebuild => "rebuild",
        })
    }
}

/// The update that succeeded, and earlier updates that failed.
pub(super) struct Updated {
    pub(super) update: UpdateStrategy,
    /// Nodes whose parameters were set.
    pub(super) nodes: usize,
    pub(super) failed: Vec<(UpdateStrategy, Arc<BuildError>)>,
}

impl Program {
    /// Applies the first update strategy from `least` on that can make the change, and the next
    /// one after each that fails.
    pub(super) fn update_graph(
        &mut self,
        least: UpdateStrategy,
        stream: &Stream,
        moved: &mut Moved,
    ) -> Result<Updated, BuildError> {
        let first = match self.replay {
            Some(_) => self.first_update(moved).max(least),
            None => UpdateStrategy::KeepGraph,
        };
        let mut updated = Updated { update: first, nodes: 0, failed: Vec::new() };
        loop {
            let error = match self.apply(updated.update, stream, moved) {
                Ok(nodes) => return Ok(Updated { nodes, ..updated }),
                Err(error) => error,
            };
            tracing::debug!(update = %updated.update, %error, "an update of the graph failed");
            let last = updated.update == UpdateStrategy::Rebuild;
            if error.is_fatal() || last && self.options.policy != Policy::Auto {
                return Err(error);
            }
            let cause = Arc::new(error);
            updated.failed.push((updated.update, Arc::clone(&cause)));
            if last {
                self.fall_back(GraphFailure::Rebind { cause });
                return Ok(Updated { update: UpdateStrategy::KeepGraph, ..updated });
            }
            updated.update = UpdateStrategy::Rebuild;
        }
    }

    /// The cheapest update strategy that can make the change.
    fn first_update(&self, moved: &Moved) -> UpdateStrategy {
        // Which nodes of a library call hold an address is unknown.
        let library = |&at: &usize| self.sequence.steps[at].is_library_call();
        match &moved.commands[..] {
            [] => UpdateStrategy::KeepGraph,
            commands if commands.iter().any(library) => UpdateStrategy::Rebuild,
            _ => UpdateStrategy::SetNodeParams,
        }
    }

    /// Applies one update strategy, and returns the number of changed nodes.
    fn apply(
        &mut self,
        update: UpdateStrategy,
        stream: &Stream,
        moved: &mut Moved,
    ) -> Result<usize, BuildError> {
        let strategy = self.report.strategy;
        let Some(replay) = &mut self.replay else { return Ok(0) };
        match update {
            UpdateStrategy::KeepGraph => Ok(0),
            UpdateStrategy::SetNodeParams => {
                for &at in &moved.commands {
                    let (step, group) =
                        (&self.sequence.steps[at], &replay.made.template.groups[at]);
                    let ([node], false) = (&group[..], step.is_library_call()) else {
                        return Err(BuildError::NotManual { operation: step.name.clone() });
                    };
                    let fail =
                        |cause| BuildError::Operation { operation: step.name.clone(), cause };
                    set_params(&mut replay.exec, *node, step).map_err(fail)?;
                    // A failed call leaves its node unchanged; earlier nodes are already updated.
                    moved.mixed = true;
                }
                Ok(moved.commands.len())
            }
            UpdateStrategy::Rebuild => {
                let replay = self.build_replay(strategy, stream)?;
                self.report.graph(&replay);
                let nodes = replay.made.template.shape.nodes;
                self.replay = Some(replay);
                Ok(nodes)
            }
        }
    }
}

/// Sets the parameters of a node from its command.
fn set_params(exec: &mut GraphExec, node: Node, step: &Step) -> Result<()> {
    match &step.command {
        Command::Launch(launch) => {
            // SAFETY: the program keeps the template and the buffers alive, the launch differs from
            // the node's only in addresses of buffers of the same size, and edges order
            // conflicting operations: no two buffers share written memory.
            unsafe { exec.set_kernel_params(node, &launch.kernel()) }
        }
        &Command::Copy { target, source, bytes } => {
            // SAFETY: as above.
            unsafe {
                exec.set_memcpy_params(node, &MemcpyParams { dst: target, src: source, bytes })
            }
        }
        &Command::Fill { target, pattern, words } => {
            // SAFETY: as above.
            unsafe {
                exec.set_memset_params(node, &MemsetParams { dst: target, value: pattern, words })
            }
        }
        Command::Library(_) => unreachable!("nodes of library calls are not settable"),
    }
}
