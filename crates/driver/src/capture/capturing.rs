//! The handle to a capture in progress.

use std::marker::PhantomData;

use retrograph_driver_sys::{
    CU_STREAM_SET_CAPTURE_DEPENDENCIES, CUgraphNode, CUresult, CUstream, DriverTable,
};

use super::window;
use crate::error::{Error, Result};
use crate::graph::{Graph, Node};
use crate::launch::KernelLaunch;
use crate::owner::Owner;
use crate::stream::Stream;

/// A capture in progress. It stays on its thread, because only that thread may end it.
pub struct Capturing<'a> {
    stream: &'a Stream,
    /// The graph that is captured into, unless the capture creates one.
    graph: Option<&'a mut Graph>,
    owners: Vec<Owner>,
    not_send: PhantomData<*const ()>,
}

impl<'a> Capturing<'a> {
    pub(super) fn new(stream: &'a Stream, graph: Option<&'a mut Graph>) -> Self {
        Self { stream, graph, owners: Vec::new(), not_send: PhantomData }
    }

    pub(super) fn into_owners(self) -> Vec<Owner> {
        self.owners
    }

    /// The captured stream.
    pub fn stream(&self) -> &Stream {
        self.stream
    }

    /// The graph of [`Stream::capture_into`], to which nodes may be added during the capture;
    /// `None` in a capture that creates its graph. Captured work waits for manually added nodes
    /// only if [`Capturing::set_dependencies`] names them.
    ///
    /// # Safety
    /// The graph must not be replaced: the driver captures into it until the capture ends.
    pub unsafe fn graph(&mut self) -> Option<&mut Graph> {
        self.graph.as_deref_mut()
    }

    /// Makes the next captured work wait for `nodes`, and for nothing else.
    ///
    /// ```compile_fail,E0133
    /// fn unordered(capturing: &mut retrograph_driver::Capturing<'_>) {
    ///     let _ = capturing.set_dependencies(&[]);
    /// }
    /// ```
    ///
    /// # Safety
    /// This replaces the order of the stream: the next work must not conflict with earlier captured
    /// work unless `nodes` order it.
    ///
    /// # Errors
    /// [`Error::WrongGraph`] if a node belongs to another graph, or if the capture creates its
    /// graph; a lost capture, or a failed driver call.
    pub unsafe fn set_dependencies(&mut self, nodes: &[Node]) -> Result<()> {
        self.graph.as_deref().ok_or(Error::WrongGraph)?.check_nodes(nodes)?;
        self.stream.bind_to_enqueue()?;
        let mut raw: Vec<CUgraphNode> = nodes.iter().map(|node| node.raw()).collect();
        let (context, set) = (self.stream.context(), CU_STREAM_SET_CAPTURE_DEPENDENCIES);
        let (stream, first) = (self.stream.raw(), raw.as_mut_ptr());
        // SAFETY: the stream lives, and the nodes belong to the captured graph.
        unsafe { call!(context, cuStreamUpdateCaptureDependencies(stream, first, raw.len(), set)) }
    }

    /// Names the work that follows, for the error if one of its calls fails.
    pub fn at(&self, place: impl Into<String>) {
        window::set_place(self.stream.context().identity(), place.into());
    }

    /// Makes the graph keep `owner` alive. Required for all memory that the captured work accesses,
    /// except for buffers among the arguments of [`Capturing::launch`].
    pub fn keep(&mut self, owner: Owner) {
        self.owners.push(owner);
    }

    /// Captures a launch. The graph keeps the function's module, and the memory of
    /// [`KernelArguments::buffer`](crate::KernelArguments::buffer).
    ///
    /// # Safety
    /// As [`Stream::launch`], for every launch of the graph. Other memory that the kernel accesses
    /// must be given to [`Capturing::keep`], or outlive the graph.
    ///
    /// # Errors
    /// If the arguments do not match the function's parameters, or the driver fails.
    pub unsafe fn launch(&mut self, launch: &KernelLaunch<'_>) -> Result<()> {
        // SAFETY: the caller upholds the contract of a launch.
        unsafe { self.launch_on(self.stream, launch) }
    }

    /// Captures a launch on another stream of the capture: one that has waited for its events.
    ///
    /// # Safety
    /// As [`Capturing::launch`]. A stream that is not part of the capture runs the kernel at once.
    ///
    /// # Errors
    /// As [`Capturing::launch`].
    pub unsafe fn launch_on(&mut self, stream: &Stream, launch: &KernelLaunch<'_>) -> Result<()> {
        // SAFETY: the caller upholds the contract of a launch.
        unsafe { stream.launch(launch) }?;
        self.owners.extend(launch.owners());
        Ok(())
    }

    /// Captures the work that `call` enqueues on the stream through the driver. Errors name it
    /// `name`.
    ///
    /// # Safety
    /// As for the calls that it makes, for every launch of the graph. It must not end the capture.
    ///
    /// # Errors
    /// If `call` returns an error code, or leaves a stream that does not capture.
    pub unsafe fn library_call<F>(&mut self, name: &'static str, call: F) -> Result<()>
    where
        F: FnOnce(&DriverTable, CUstream) -> CUresult,
    {
        let context = self.stream.context();
        self.stream.bind_to_enqueue()?;
        context.check(name, call(context.table(), self.stream.raw()))?;
        // The library may have made another context current, and may have hidden a failure.
        self.stream.bind_to_enqueue()
    }
}
