//! Checks that a program does what it should, on request: they cost a second graph and two steps.

use std::ops::Range;

use retrograph_driver_sys::{CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS};

use super::Program;
use super::bindings::External;
use super::error::{BuildError, StepError};
use super::graphs::Template;
use super::policy::Strategy;
use super::sequence::{Command, Step};
use crate::error::{Error, Result};
use crate::pass::{ControlError, Controls};
use crate::stream::Stream;

/// What was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Nodes whose parameters were read back from the driver, in each of two builds.
    pub nodes: usize,
    /// Bytes of buffers that were equal after a replayed and an eager step.
    pub bytes: usize,
}

/// A program that does not do what it should, or could not be checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdmitError {
    /// A control has no value, or the controls belong to another pass.
    #[error(transparent)]
    Controls(#[from] ControlError),

    /// A node does not hold what its operation asks for: something that varies was baked in.
    #[error("the node of `{operation}` does not hold the parameters of its operation")]
    NodeDiffers {
        /// The operation.
        operation: String,
    },

    /// A replay and an eager step from the same state differ.
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
    /// Checks that nothing which varies is part of a node, and that replay equals eager.
    ///
    /// The graph is built twice more, the second time with every bit of the control block flipped,
    /// and both times the parameters of each node are read back from the driver and compared byte
    /// by byte with those of its operation. Then one step is done by the program's own strategy and
    /// one eagerly, from the same state, with all transients NaN before, and everything that the
    /// step writes is compared bit for bit. The state is afterwards what it was before.
    ///
    /// # Errors
    /// See [`AdmitError`].
    pub fn admit(&mut self, stream: &Stream, controls: &Controls) -> Result<Admission, AdmitError> {
        let layout = std::sync::Arc::clone(&self.controls);
        let bytes = controls.complete(&layout)?.to_vec();
        self.after_last_step(stream)?;
        let nodes = match self.report.strategy {
            Strategy::Eager => 0,
            strategy => {
                let flipped: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
                self.check_nodes(strategy, stream, &bytes)?;
                self.check_nodes(strategy, stream, &flipped)?
            }
        };
        let before = self.snapshot(stream)?;
        let outcome = self.compare(stream, controls, &before);
        self.restore(stream, &before)?;
        outcome.map(|bytes| Admission { nodes, bytes })
    }

    /// Builds the graph while the control block holds `controls`.
    fn check_nodes(
        &mut self,
        strategy: Strategy,
        stream: &Stream,
        controls: &[u8],
    ) -> Result<usize, AdmitError> {
        let target = self.memory.control_address();
        // SAFETY: the control block is the program's own, and no step is in flight behind it.
        unsafe { self.staging.upload(stream, target, controls) }?;
        stream.synchronize()?;
        let template = self.template(strategy, stream)?;
        for (at, step) in self.sequence.steps.iter().enumerate() {
            if !holds(&template, at, step)? {
                return Err(AdmitError::NodeDiffers { operation: step.name.clone() });
            }
        }
        Ok(template.nodes.len())
    }

    /// One step each way from the same state; the bytes that were compared.
    fn compare(
        &mut self,
        stream: &Stream,
        controls: &Controls,
        before: &[Vec<u8>],
    ) -> Result<usize, AdmitError> {
        self.fill_transients_with_nan(stream)?;
        let steps = self.steps;
        let outcome = self.step(stream, controls);
        self.steps = steps;
        outcome?;
        let replayed = self.snapshot(stream)?;
        self.restore(stream, before)?;
        self.fill_transients_with_nan(stream)?;
        self.enqueue_all(stream)?;
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

    /// Everything that a step writes and that outlives it.
    fn snapshot(&self, stream: &Stream) -> Result<Vec<Vec<u8>>> {
        let download = |external: &External| {
            let mut bytes = vec![0; external.bytes];
            if !bytes.is_empty() {
                // SAFETY: the program keeps the buffer, and `bytes` outlives the wait below.
                unsafe { stream.copy_to_host(bytes.as_mut_ptr(), external.address, bytes.len()) }?;
            }
            stream.synchronize()?;
            Ok(bytes)
        };
        self.written().map(download).collect()
    }

    fn restore(&self, stream: &Stream, snapshot: &[Vec<u8>]) -> Result<()> {
        for (external, bytes) in self.written().zip(snapshot).filter(|(_, held)| !held.is_empty()) {
            // SAFETY: as above; the snapshot is only read.
            unsafe { stream.copy_to_device(external.address, bytes.as_ptr(), bytes.len()) }?;
            stream.synchronize()?;
        }
        Ok(())
    }
}

/// Whether the driver holds for a node what its operation asks for.
fn holds(template: &Template, at: usize, step: &Step) -> Result<bool> {
    let (graph, node) = (&template.graph, template.nodes[at]);
    let context = graph.context();
    match &step.command {
        Command::Launch { function, geometry, arguments } => {
            let held = graph.kernel_params(node)?;
            let expected: Vec<&[u8]> = (0..arguments.len()).map(|at| arguments.bytes(at)).collect();
            let same_arguments = held.arguments.is_none_or(|held| held == expected);
            let same_launch = held.function == function.raw() && held.geometry == *geometry;
            Ok(same_launch && same_arguments)
        }
        Command::Copy { target, source, bytes } => {
            let mut held = CUDA_MEMCPY3D::device_to_device(0, 0, 0);
            // SAFETY: the node belongs to a live graph, and the place is valid.
            unsafe { call!(context, cuGraphMemcpyNodeGetParams(node.raw(), &mut held)) }?;
            let addresses = (held.dstDevice, held.srcDevice) == (*target, *source);
            Ok(addresses && held.WidthInBytes == *bytes)
        }
        Command::Fill { target, pattern, words } => {
            let mut held = CUDA_MEMSET_NODE_PARAMS::default();
            // SAFETY: as above.
            unsafe { call!(context, cuGraphMemsetNodeGetParams(node.raw(), &mut held)) }?;
            let filled = held.width * held.height.max(1) * held.elementSize as usize;
            Ok(held.dst == *target && held.value == *pattern && filled == words * 4)
        }
    }
}

fn first_difference(one: &[u8], other: &[u8]) -> Option<Range<usize>> {
    let differs = |at: &usize| one[*at] != other[*at];
    let start = (0..one.len()).find(differs)?;
    let end = (start..one.len()).find(|at| !differs(at)).unwrap_or(one.len());
    Some(start..end)
}
