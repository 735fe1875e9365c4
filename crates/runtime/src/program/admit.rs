//! Admission: checks that a graph has its operations, and that replay equals eager.

use std::ops::Range;

use retrograph_driver::graph::{KernelNodeParams, NodeParams, UnreadableParams};
use retrograph_driver::{Error, MemcpyParams, Result, Stream};

use super::Program;
use super::bindings::External;
use super::command::{BoundLaunch, Command};
use super::error::{BuildError, StepError};
use super::policy::Strategy;
use super::replay::Template;
use super::sequence::Step;
use crate::pass::{ControlError, Controls};

/// The checks of an admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Admission {
    /// Nodes whose parameters were read back from the driver, in each of two builds.
    pub nodes: usize,
    /// Bytes that were equal after a replayed and an eager step.
    pub bytes: usize,
}

/// Why a program failed admission, or could not be checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdmitError {
    /// A control has no value, or the controls belong to another pass.
    #[error(transparent)]
    Controls(#[from] ControlError),

    /// The parameters of a node differ from its operation: the graph contains a varying value. Or
    /// its launch attributes differ.
    #[error(
        "the node of `{operation}` has other parameters or launch attributes than its operation"
    )]
    NodeDiffers {
        /// The operation.
        operation: String,
    },

    /// Two captures of a library call differ: the call bakes in a varying value.
    #[error(
        "the nodes of the library call `{operation}` differ between two captures: it bakes in a \
         varying value; run it eagerly, or let it read a control on the device"
    )]
    LibraryVaries {
        /// The operation.
        operation: String,
    },

    /// The nodes of a library call cannot be read back and compared.
    #[error("the nodes of the library call `{operation}` cannot be compared: {reason}")]
    Unreadable {
        /// The operation.
        operation: String,
        /// The unreadable part.
        reason: UnreadableParams,
    },

    /// The step did not run with the strategy of the program: with [`super::Policy::Auto`], a graph
    /// fell back to an eager step, or its retry succeeded. See [`super::Report::last_failure`].
    #[error(
        "the strategy of the program is {expected}, but its step ran as {found}, so nothing was \
         compared; see the report for a failure of the graph, and admit the program again"
    )]
    StrategyChanged {
        /// The strategy before the step.
        expected: Strategy,
        /// The strategy of the step.
        found: Strategy,
    },

    /// A replayed and an eager step from the same state differ.
    #[error("after a replay bytes {bytes:?} of `{buffer}` differ from an eager step")]
    ReplayDiffers {
        /// The buffer.
        buffer: String,
        /// The first run of bytes that differ.
        bytes: Range<usize>,
    },

    /// The second graph could not be built.
    #[error(transparent)]
    Build(#[from] BuildError),

    /// A step failed.
    #[error(transparent)]
    Step(#[from] StepError),

    /// The device side failed.
    #[error(transparent)]
    Device(#[from] Error),
}

impl Program {
    /// Checks that no varying value is part of a node, and that replay equals eager, bit for bit.
    ///
    /// The graph is built twice, the second time with every bit of the control block flipped. The
    /// parameters and launch attributes of each node are read back and compared with its operation;
    /// nodes of library calls are compared between the two builds. The preferred carve-out is not
    /// compared, since it affects no results. Then one step runs with the program's own
    /// strategy and one eagerly, from the same state and with all transients NaN, and all results
    /// are compared bit for bit. The state is restored afterwards.
    ///
    /// # Errors
    /// See [`AdmitError`].
    pub fn admit(&mut self, stream: &Stream, controls: &Controls) -> Result<Admission, AdmitError> {
        let layout = std::sync::Arc::clone(&self.controls);
        let bytes = controls.complete(&layout)?.to_vec();
        self.after_last_step(&stream.outside_capture("admitting a program")?)?;
        let nodes = match self.report.strategy {
            Strategy::Eager => 0,
            strategy => {
                let flipped: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
                let first = self.built_with(strategy, stream, &bytes)?;
                let second = self.built_with(strategy, stream, &flipped)?;
                self.check_nodes(&first)?;
                self.check_nodes(&second)?;
                self.check_libraries(&first, &second)?;
                second.groups.iter().map(Vec::len).sum()
            }
        };
        let before = self.snapshot(stream)?;
        let outcome = self.compare(stream, controls, &bytes, &before);
        let restored = self.restore(stream, &before);
        match (outcome, restored) {
            (Ok(bytes), Ok(())) => Ok(Admission { nodes, bytes }),
            (Ok(_), Err(error)) => Err(error.into()),
            (Err(cause), restored) => {
                if let Err(error) = restored {
                    tracing::warn!(%error, "the state was not restored after a failed admission");
                }
                Err(cause)
            }
        }
    }

    /// Builds the graph while the control block holds `controls`.
    fn built_with(
        &mut self,
        strategy: Strategy,
        stream: &Stream,
        controls: &[u8],
    ) -> Result<Template, AdmitError> {
        let outside = stream.outside_capture("admitting a program")?;
        self.mark(stream);
        self.with_controls(&outside, controls, Self::fetch_parameters)?;
        outside.synchronize()?;
        // The graph may be captured.
        drop(outside);
        Ok(self.template(strategy, stream)?)
    }

    /// Checks the parameters and launch attributes of each node except library calls.
    fn check_nodes(&self, template: &Template) -> Result<(), AdmitError> {
        for (step, group) in self.sequence.steps.iter().zip(&template.groups) {
            let (Some(expected), [node]) = (expected_of(step), group.as_slice()) else { continue };
            let has_attributes = match &step.command {
                Command::Launch(launch) => {
                    template.graph.launch_attributes(*node)? == launch.attributes.of_nodes()
                }
                _ => true,
            };
            if !has_attributes || !holds(&expected, &template.graph.node_params(*node)?) {
                return Err(AdmitError::NodeDiffers { operation: step.name.clone() });
            }
        }
        Ok(())
    }

    /// Compares the nodes of library calls between two builds.
    fn check_libraries(&self, one: &Template, other: &Template) -> Result<(), AdmitError> {
        let groups = one.groups.iter().zip(&other.groups);
        for (step, (first, second)) in self.sequence.steps.iter().zip(groups) {
            if !step.is_library_call() {
                continue;
            }
            let varies = || AdmitError::LibraryVaries { operation: step.name.clone() };
            if first.len() != second.len() {
                return Err(varies());
            }
            for (first, second) in first.iter().zip(second) {
                let contents = [one.graph.node_params(*first)?, other.graph.node_params(*second)?];
                match contents {
                    [Ok(NodeParams::Kernel(a)), Ok(NodeParams::Kernel(b))] if a == b => {
                        let attributes = one.graph.launch_attributes(*first)?;
                        if attributes != other.graph.launch_attributes(*second)? {
                            return Err(varies());
                        }
                    }
                    [Ok(first), Ok(second)] if first == second => {}
                    [Ok(_), Ok(_)] => return Err(varies()),
                    [Err(reason), _] | [_, Err(reason)] => {
                        let operation = step.name.clone();
                        return Err(AdmitError::Unreadable { operation, reason });
                    }
                }
            }
        }
        Ok(())
    }

    /// Runs a step with the program's strategy and one eagerly from the same state, and compares
    /// them. Returns the number of compared bytes.
    fn compare(
        &mut self,
        stream: &Stream,
        controls: &Controls,
        bytes: &[u8],
        before: &[Vec<u8>],
    ) -> Result<usize, AdmitError> {
        self.fill_transients_with_nan(stream)?;
        let (steps, expected) = (self.steps, self.report.strategy);
        let outcome = self.step(stream, controls);
        self.steps = steps;
        let found = outcome?.strategy;
        if found != expected {
            return Err(AdmitError::StrategyChanged { expected, found });
        }
        let replayed = self.snapshot(stream)?;
        self.restore(stream, before)?;
        self.fill_transients_with_nan(stream)?;
        let outside = stream.outside_capture("admitting a program")?;
        self.with_controls(&outside, bytes, |program, stream| program.enqueue_all(stream))?;
        let eager = self.snapshot(stream)?;
        for (at, external) in self.written().enumerate() {
            if let Some(bytes) = first_difference(&replayed[at], &eager[at]) {
                return Err(AdmitError::ReplayDiffers { buffer: external.name.clone(), bytes });
            }
        }
        Ok(eager.iter().map(Vec::len).sum())
    }

    fn written(&self) -> impl Iterator<Item = &External> {
        self.memory.externals.iter().filter(|external| external.written)
    }

    /// The contents of all external buffers that a step writes.
    pub(super) fn snapshot(&self, stream: &Stream) -> Result<Vec<Vec<u8>>> {
        // Held until the copies have finished, so that the waits are not refused.
        let stream = stream.outside_capture("copying the state of a program")?;
        let download = |external: &External| {
            let mut bytes = vec![0; external.bytes];
            if !bytes.is_empty() {
                // SAFETY: the program keeps the buffer, and `bytes` outlives the wait below.
                unsafe { stream.memcpy_dtoh(bytes.as_mut_ptr(), external.address, bytes.len()) }?;
            }
            stream.synchronize()?;
            Ok(bytes)
        };
        self.written().map(download).collect()
    }

    pub(super) fn restore(&self, stream: &Stream, snapshot: &[Vec<u8>]) -> Result<()> {
        let stream = stream.outside_capture("restoring the state of a program")?;
        for (external, bytes) in self.written().zip(snapshot).filter(|(_, held)| !held.is_empty()) {
            // SAFETY: as above; the snapshot is only read.
            unsafe { stream.memcpy_htod(external.address, bytes.as_ptr(), bytes.len()) }?;
            stream.synchronize()?;
        }
        Ok(())
    }
}

/// The expected parameters of an operation's node; `None` for a library call.
fn expected_of(step: &Step) -> Option<NodeParams> {
    Some(match &step.command {
        Command::Launch(BoundLaunch { function, geometry, arguments, .. }) => {
            let bytes = (0..arguments.len()).map(|at| arguments.bytes(at).to_vec());
            let (function, geometry) = (function.raw(), *geometry);
            let arguments = Some(bytes.collect());
            NodeParams::Kernel(KernelNodeParams { function, geometry, arguments })
        }
        &Command::Copy { target, source, bytes } => {
            NodeParams::Memcpy(MemcpyParams { dst: target, src: source, bytes })
        }
        &Command::Fill { target, pattern, words } => {
            NodeParams::Memset { dst: target, value: pattern, bytes: words * 4 }
        }
        Command::Library(_) => return None,
    })
}

/// Whether a node has the expected parameters. Drivers before 12.4 do not report arguments; then
/// only function and geometry are compared.
fn holds(expected: &NodeParams, held: &Result<NodeParams, UnreadableParams>) -> bool {
    match (expected, held) {
        (NodeParams::Kernel(expected), Err(UnreadableParams::Arguments(held))) => {
            (held.function, held.geometry) == (expected.function, expected.geometry)
        }
        (expected, Ok(held)) => held == expected,
        (_, Err(_)) => false,
    }
}

fn first_difference(one: &[u8], other: &[u8]) -> Option<Range<usize>> {
    let differs = |at: &usize| one[*at] != other[*at];
    let start = (0..one.len()).find(differs)?;
    let end = (start..one.len()).find(|at| !differs(at)).unwrap_or(one.len());
    Some(start..end)
}
