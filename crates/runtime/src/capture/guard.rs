//! The guard that ends a capture whatever happens, and what follows a broken one.

use std::marker::PhantomData;

use retrograph_driver_sys::{CUgraph, CUresult, CUstreamCaptureStatus};

use super::{CaptureMode, Loss, window};
use crate::error::{Error, Result};
use crate::graph::{Graph, Node};
use crate::stream::Stream;

/// A begun capture, which ends when this is dropped.
pub(super) struct Guard<'a> {
    stream: &'a Stream,
    /// The graph that is captured into, unless the capture makes one of its own.
    given: Option<Graph>,
    not_send: PhantomData<*const ()>,
}

/// A graph to capture into, and the nodes that the first captured work waits for.
pub(super) struct Target<'a> {
    pub(super) graph: Graph,
    pub(super) after: &'a [Node],
}

/// How a capture ended.
pub(super) struct Ended {
    /// Why it was lost, which may be the end itself.
    pub(super) loss: Option<Loss>,
    /// The code of the end.
    pub(super) code: CUresult,
    /// What came back, if anything did.
    pub(super) graph: Option<Graph>,
}

impl<'a> Guard<'a> {
    pub(super) fn begin(
        stream: &'a Stream,
        mode: CaptureMode,
        target: Option<Target<'_>>,
    ) -> Result<Self> {
        let context = stream.context();
        context.bind_outside_capture("a second capture")?;
        stream.usable()?;
        context.releases().begin_capture(|| match &target {
            // SAFETY: the stream lives, and its context is current on this thread.
            None => unsafe { call!(context, cuStreamBeginCapture_v2(stream.raw(), mode.raw())) },
            Some(target) => begin_into(stream, mode, target),
        })?;
        window::open(context, stream.raw());
        Ok(Self { stream, given: target.map(|target| target.graph), not_send: PhantomData })
    }

    /// Ends the capture on its stream and thread.
    pub(super) fn end(self) -> Ended {
        let mut guard = std::mem::ManuallyDrop::new(self);
        guard.end_now()
    }

    fn end_now(&mut self) -> Ended {
        let context = self.stream.context();
        window::set_place_behind(context, "the end of the capture");
        // The library calls of the body may have made another context current. A failure shows in
        // the end itself.
        let _ = context.bind();
        // Nor must a capture that ended early look like one that ends here. The window keeps what
        // this finds.
        let _ = window::require_active(context);
        let (code, mut raw) = self.end_raw();
        // Noted if it is the first failure, and kept if it ends the context.
        let _ = context.check("cuStreamEndCapture", code);
        // A broken capture is over now. An end that failed for another reason may have done
        // nothing, and a capture that stays open would break whatever this thread does next.
        if !code.is_success() && raw.is_null() && self.stream.captures() == Ok(true) {
            raw = self.end_raw().1;
        }
        let loss = window::close(context);
        let graph = match self.given.take() {
            Some(given) if given.raw() == raw => Some(given),
            Some(given) => {
                given.taken_by_the_driver();
                None
            }
            // SAFETY: the driver gave the graph to us, and nobody else has it.
            None => (!raw.is_null()).then(|| unsafe { Graph::from_raw(context, raw) }),
        };
        context.capture_ended();
        Ended { loss, code, graph }
    }
}

impl Guard<'_> {
    fn end_raw(&self) -> (CUresult, CUgraph) {
        let (table, mut raw) = (self.stream.context().table(), CUgraph::NULL);
        // SAFETY: the stream lives, and this is the thread that began, since guards are not `Send`.
        let code = unsafe { (table.cuStreamEndCapture)(self.stream.raw(), &mut raw) };
        (code, raw)
    }
}

/// A lost capture takes the given graph with it: on an H200 (driver 580) later calls with its
/// handle return 1, as the scenarios of the crate `conformance` record.
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
    // SAFETY: stream and graph live, the nodes are of the graph, and no edge data means that all
    // dependencies are full ones.
    context.check(call, unsafe { begin(stream.raw(), graph, first, full, after.len(), mode.raw()) })
}

impl Drop for Guard<'_> {
    /// Reached only when the body panicked.
    fn drop(&mut self) {
        drop(self.end_now().graph);
        self.stream.recover();
    }
}

impl Stream {
    /// Finds out whether the stream can be used after its capture has failed, and retires it if it
    /// still captures.
    pub(super) fn recover(&self) -> bool {
        let captures = self.captures();
        if captures == Ok(true) {
            self.retire();
        }
        self.probe(captures)
    }

    /// Finds out whether the stream can be used after a capture could not begin. It may be another
    /// thread's capture that is in the way, and that one is left alone.
    pub(super) fn works(&self) -> bool {
        self.probe(self.captures())
    }

    fn probe(&self, captures: Result<bool>) -> bool {
        let outcome = match captures {
            Ok(true) => Err(Error::StreamRetired),
            Ok(false) => self.synchronize(),
            Err(error) => Err(error),
        };
        if let Err(error) = &outcome {
            tracing::warn!(%error, "the stream does not work after a failed capture");
        }
        outcome.is_ok()
    }

    fn captures(&self) -> Result<bool> {
        let context = self.context();
        context.bind()?;
        let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the stream lives, and the place is valid.
        unsafe { call!(context, cuStreamIsCapturing(self.raw(), &mut status)) }?;
        Ok(status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }
}
