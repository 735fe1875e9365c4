//! The guard that ends a capture on every path out of its body.

use std::marker::PhantomData;

use retrograph_driver_sys::{CUgraph, CUresult};

use super::invalidation::CaptureInvalidation;
use super::mode::CaptureMode;
use super::window;
use crate::error::{Error, Result};
use crate::graph::{Graph, Node};
use crate::stream::Stream;

/// A capture that ends when this is dropped.
pub(super) struct Guard<'a> {
    stream: &'a Stream,
    /// The graph that is captured into, unless the capture creates one.
    pub(super) given: Option<Graph>,
    not_send: PhantomData<*const ()>,
}

/// A graph to capture into, and the nodes that the first captured work waits for.
pub(super) struct Target<'a> {
    pub(super) graph: Graph,
    pub(super) after: &'a [Node],
}

/// How a capture ended.
pub(super) struct Ended {
    /// The reason of a loss, possibly the end itself.
    pub(super) loss: Option<CaptureInvalidation>,
    /// The code of the end.
    pub(super) code: CUresult,
    /// The captured graph, if the driver returned one.
    pub(super) graph: Option<Graph>,
}

impl<'a> Guard<'a> {
    pub(super) fn begin(
        stream: &'a Stream,
        mode: CaptureMode,
        target: Option<Target<'_>>,
    ) -> Result<Self> {
        let context = stream.context();
        if window::is_open_in(context.identity()) {
            return Err(Error::RefusedDuringCapture { operation: "a second capture" });
        }
        if context.releases().is_held_here() {
            return Err(Error::CaptureExcluded { operation: "beginning a capture" });
        }
        stream.usable()?;
        context.bind()?;
        context.releases().begin_capture(|| match &target {
            // SAFETY: the stream lives, and its context is current on this thread.
            None => unsafe { call!(context, cuStreamBeginCapture_v2(stream.raw(), mode.raw())) },
            Some(target) => begin_into(stream, mode, target),
        })?;
        window::open(context.identity(), stream.raw());
        Ok(Self { stream, given: target.map(|target| target.graph), not_send: PhantomData })
    }

    /// Ends the capture on its stream and thread.
    pub(super) fn end(self) -> Ended {
        let mut guard = std::mem::ManuallyDrop::new(self);
        guard.end_now()
    }

    fn end_now(&mut self) -> Ended {
        let context = self.stream.context();
        window::set_place_after(context.identity(), "the end of the capture");
        // The body's library calls may have made another context current. A failure shows in the
        // end itself.
        let _ = context.bind();
        // Records a capture that ended early, so that it is not taken for one that ends here.
        let _ = context.require_active_capture();
        let (code, mut raw) = self.end_raw();
        // Records a first failure, and a lost context.
        let _ = context.check("cuStreamEndCapture", code);
        // Ending a broken capture succeeds even though it returns an error. An end that failed for
        // another reason may have had no effect, and an open capture would break later calls of
        // this thread.
        if !code.is_success() && raw.is_null() && self.stream.captures() == Ok(true) {
            raw = self.end_raw().1;
        }
        let loss = window::close(context.identity());
        let graph = match self.given.take() {
            Some(given) if given.raw() == raw => Some(given),
            Some(given) => {
                given.destroyed_by_driver();
                None
            }
            // SAFETY: the driver returned the graph to us, and nobody else has it.
            None => (!raw.is_null()).then(|| unsafe { Graph::from_raw(context, raw) }),
        };
        context.capture_ended();
        window::captures_ended();
        Ended { loss, code, graph }
    }
}

impl Guard<'_> {
    fn end_raw(&self) -> (CUresult, CUgraph) {
        let (table, mut raw) = (self.stream.context().table(), CUgraph::NULL);
        // SAFETY: the stream lives, and this thread began the capture: guards are not `Send`.
        let code = unsafe { (table.cuStreamEndCapture)(self.stream.raw(), &mut raw) };
        (code, raw)
    }
}

/// Begins a capture into a graph. A lost capture destroys the given graph: on an H200 (driver 580)
/// later calls with its handle return 1, as the scenarios of the crate `conformance` record.
fn begin_into(stream: &Stream, mode: CaptureMode, target: &Target<'_>) -> Result<()> {
    let (context, call) = (stream.context(), "cuStreamBeginCaptureToGraph");
    context.same(target.graph.context(), "the graph to capture into")?;
    target.graph.check_nodes(target.after)?;
    let Some(begin) = context.table().cuStreamBeginCaptureToGraph else {
        return Err(Error::NotInDriver { call, operation: "capturing into a graph" });
    };
    let after: Vec<_> = target.after.iter().map(|node| node.raw()).collect();
    let first = if after.is_empty() { std::ptr::null() } else { after.as_ptr() };
    let (graph, full) = (target.graph.raw(), std::ptr::null());
    // SAFETY: stream and graph live, the nodes belong to the graph, and null edge data makes every
    // dependency a full one.
    context.check(call, unsafe { begin(stream.raw(), graph, first, full, after.len(), mode.raw()) })
}

impl Drop for Guard<'_> {
    /// Reached only if the body panicked.
    fn drop(&mut self) {
        drop(self.end_now().graph);
        self.stream.recover();
    }
}
