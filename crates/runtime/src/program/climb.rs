//! Making a graph use the addresses that its commands have now, by one rung after the other.

use retrograph_driver::{
    DeviceCopy, DeviceFill, GraphExec, KernelLaunch, Node, Result, Stream, UpdateOutcome,
};

use super::Program;
use super::error::BuildError;
use super::ladder::{Change, LadderCosts, Rung, cheapest_rung};
use super::policy::Policy;
use super::rebind::Moved;
use super::sequence::{Command, Step};

/// Where a climb ended, and what failed on the way.
pub(super) struct Climb {
    pub(super) rung: Rung,
    /// Nodes whose parameters were set.
    pub(super) nodes: usize,
    pub(super) failed: Vec<(Rung, String)>,
}

impl Program {
    /// Takes the cheapest rung that is not below `least`, and the next one after each that fails.
    pub(super) fn climb(
        &mut self,
        least: Rung,
        stream: &Stream,
        moved: &mut Moved,
    ) -> Result<Climb, BuildError> {
        let Some(replay) = &self.replay else {
            return Ok(Climb { rung: Rung::Control, nodes: 0, failed: Vec::new() });
        };
        let (strategy, nodes) = (self.report.strategy, replay.made.template.shape.nodes);
        // Which of the nodes that a library has added hold an address is not known.
        let settable = !moved.commands.iter().any(|&at| self.sequence.steps[at].is_foreign());
        let change = Change { strategy, nodes, changed: moved.commands.len(), settable };
        let first = cheapest_rung(&change, &LadderCosts::RECORDED).max(least);
        let mut climb = Climb { rung: first, nodes: 0, failed: Vec::new() };
        loop {
            let error = match self.take(climb.rung, stream, moved) {
                Ok(nodes) => return Ok(Climb { nodes, ..climb }),
                Err(error) => error,
            };
            tracing::debug!(rung = %climb.rung, %error, "a rung of the ladder failed");
            climb.failed.push((climb.rung, error.to_string()));
            climb.rung = match climb.rung {
                Rung::Control | Rung::SetParams if !error.is_fatal() => Rung::ExecUpdate,
                Rung::ExecUpdate if !error.is_fatal() => Rung::Rebuild,
                _ if self.options.policy != Policy::Auto || error.is_fatal() => return Err(error),
                _ => {
                    self.fall_back(format!(
                        "the graph could not be bound to other memory: {error}"
                    ));
                    climb.rung = Rung::Control;
                    return Ok(climb);
                }
            };
        }
    }

    /// Makes the graph follow by one rung, and returns how many nodes were set.
    fn take(
        &mut self,
        rung: Rung,
        stream: &Stream,
        moved: &mut Moved,
    ) -> Result<usize, BuildError> {
        let strategy = self.report.strategy;
        let Some(replay) = &mut self.replay else { return Ok(0) };
        match rung {
            Rung::Control => Ok(0),
            Rung::SetParams => {
                for &at in &moved.commands {
                    let (step, group) =
                        (&self.sequence.steps[at], &replay.made.template.groups[at]);
                    let ([node], false) = (&group[..], step.is_foreign()) else {
                        return Err(BuildError::NotManual { operation: step.name.clone() });
                    };
                    let fail =
                        |cause| BuildError::Operation { operation: step.name.clone(), cause };
                    set_params(&mut replay.exec, *node, step).map_err(fail)?;
                    // A call that fails leaves its node as it was, but not those before it.
                    moved.mixed = true;
                }
                Ok(moved.commands.len())
            }
            Rung::ExecUpdate => {
                if moved.handle.is_some() {
                    self.warm_libraries(stream)?;
                }
                let template = self.template(strategy, stream)?;
                let replay = self.replay.as_mut().expect("there is a graph");
                match replay.exec.update(&template.graph) {
                    Ok(UpdateOutcome::Updated) => Ok(template.shape.nodes),
                    Ok(UpdateOutcome::Refused { reason }) => {
                        Err(BuildError::UpdateRefused { reason })
                    }
                    Err(error) => {
                        moved.mixed = true;
                        Err(error.into())
                    }
                }
            }
            Rung::Rebuild => {
                let replay = self.build_replay(strategy, stream)?;
                self.report.graph(&replay);
                let nodes = replay.made.template.shape.nodes;
                self.replay = Some(replay);
                Ok(nodes)
            }
        }
    }
}

/// Gives a node of an exec the parameters of its command.
fn set_params(exec: &mut GraphExec, node: Node, step: &Step) -> Result<()> {
    match &step.command {
        Command::Launch { function, geometry, arguments } => {
            let launch = KernelLaunch { function, geometry: *geometry, arguments };
            // SAFETY: the program keeps the template and what the addresses name, the launch is
            // that of the node but for addresses of buffers of the same size, and the edges order
            // all that conflict, since no two buffers share memory that is written.
            unsafe { exec.set_kernel_params(node, &launch) }
        }
        &Command::Copy { target, source, bytes } => {
            // SAFETY: as above.
            unsafe { exec.set_copy_params(node, &DeviceCopy { target, source, bytes }) }
        }
        &Command::Fill { target, pattern, words } => {
            // SAFETY: as above.
            unsafe { exec.set_fill_params(node, &DeviceFill { target, pattern, words }) }
        }
        Command::Library(_) => unreachable!("work of libraries makes nodes that are not settable"),
    }
}
