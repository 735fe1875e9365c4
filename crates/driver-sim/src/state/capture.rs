//! Stream capture: what it records, and what breaks it.
//!
//! A capture that was broken stays until it is ended on the stream that began it, or until that
//! stream is destroyed. The call that broke it returned the reason. Until the end, work on its
//! streams is refused with 901, and calls that it forbids are refused with the reason as before.
//! Ends that fail by themselves, on another thread (908) or without a join (904), end it at once.

use retrograph_driver_sys::{
    CUgraph, CUgraphEdgeData, CUgraphNode, CUresult, CUstream, CUstreamCaptureMode,
};

use super::thread::this_thread;
use super::{Member, NodeKind, State};
use crate::diagnostic::DiagnosticKind;
use crate::refusal::{Refusal, Rule, refuse};
use crate::work::Operation;

/// What every call returns that meets a capture which another one broke.
const INVALIDATED: Refusal =
    refuse(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, Rule::CaptureInvalidated);
const RELAXED: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
const GLOBAL: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;

/// A capture that was begun and not ended.
pub(crate) struct Capture {
    pub(crate) device: usize,
    /// The stream on which it was begun.
    pub(crate) origin: CUstream,
    /// The thread that began it.
    pub(crate) thread: u64,
    pub(crate) mode: CUstreamCaptureMode,
    pub(crate) graph: CUgraph,
    /// Whether the program gave the graph, so that it stays when the capture is lost.
    pub(crate) is_given: bool,
    /// The code of the call that broke it.
    pub(crate) broken: Option<CUresult>,
    /// Work of streams that were destroyed; it has to be joined all the same.
    pub(crate) orphans: Vec<CUgraphNode>,
    /// What the next node depends on and how, kept for callers who ask.
    pub(crate) shown: (Vec<CUgraphNode>, Vec<CUgraphEdgeData>),
}

/// Where a capture puts its nodes.
pub(crate) struct Target {
    pub(crate) graph: CUgraph,
    /// Whether the program gave the graph.
    pub(crate) is_given: bool,
    /// What the first node depends on.
    pub(crate) dependencies: Vec<CUgraphNode>,
}

/// What happens to an operation on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// It is queued.
    Queue(CUstream),
    /// It becomes a node.
    Capture(CUstream, u64),
}

impl State {
    /// Begins to capture a stream.
    pub(crate) fn begin_capture(
        &mut self,
        stream: CUstream,
        mode: CUstreamCaptureMode,
        target: Target,
    ) -> Result<(), Refusal> {
        let Target { graph, is_given, dependencies } = target;
        let capture = self.number();
        let found = Capture {
            device: self.streams.get(stream)?.device,
            origin: stream,
            thread: this_thread(),
            mode,
            graph,
            is_given,
            broken: None,
            orphans: Vec::new(),
            shown: Default::default(),
        };
        self.captures.insert(capture, found);
        self.streams.get_mut(stream)?.member = Some(Member { capture, dependencies });
        Ok(())
    }

    /// Ends a capture without a graph. One that the program gave is lost to it.
    pub(crate) fn discard_capture(&mut self, capture: u64) -> Result<(), Refusal> {
        match self.leave_capture(capture) {
            Some(found) if found.is_given => self.lose_graph(found.graph),
            Some(found) => self.drop_graph(found.graph),
            None => Ok(()),
        }
    }

    /// Whether a graph is built by a capture that is open.
    pub(crate) fn is_captured_into(&self, graph: CUgraph) -> bool {
        self.captures.values().any(|capture| capture.graph == graph)
    }

    /// Breaks a capture for a reason, which the call returns. A capture is broken once; later
    /// calls that would have broken it return their reason all the same.
    pub(crate) fn break_capture(&mut self, capture: u64, reason: CUresult) -> Refusal {
        if let Some(found) = self.captures.get_mut(&capture)
            && found.broken.is_none()
        {
            found.broken = Some(reason);
            let meaning = reason.meaning().unwrap_or_default();
            self.diagnose(DiagnosticKind::Capture, format!("{reason}: {meaning}"));
        }
        refuse(reason, Rule::CaptureBreaks)
    }

    /// Where an operation on a stream goes. Fails when the stream's capture is broken, and breaks
    /// the captures that the legacy stream would wait for.
    pub(crate) fn route(&mut self, stream: CUstream) -> Result<Route, Refusal> {
        let stream = self.resolve(stream)?;
        if let Some(capture) = self.capture_of(stream)? {
            return Ok(Route::Capture(stream, capture));
        }
        if self.is_legacy(stream) {
            self.legacy_use(stream)?;
        }
        Ok(Route::Queue(stream))
    }

    /// The capture that a stream is part of. Fails with 901 when that capture is broken.
    pub(crate) fn capture_of(&self, stream: CUstream) -> Result<Option<u64>, Refusal> {
        let Some(member) = &self.streams.get(stream)?.member else {
            return Ok(None);
        };
        match self.captures.get(&member.capture) {
            Some(capture) if capture.broken.is_some() => Err(INVALIDATED),
            Some(_) => Ok(Some(member.capture)),
            None => Ok(None),
        }
    }

    /// Refuses what cannot be done to a captured stream: waiting for it and asking about it.
    pub(crate) fn refuse_captured(&mut self, stream: CUstream) -> Result<(), Refusal> {
        let member = self.streams.get(stream)?.member.as_ref();
        let reason = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        match member.map(|member| member.capture) {
            None => Ok(()),
            Some(capture) => Err(self.break_capture(capture, reason)),
        }
    }

    /// Refuses to wait for a context in which anything is captured, in whatever mode.
    pub(crate) fn refuse_context_wait(&mut self, device: usize) -> Result<(), Refusal> {
        let open = self.captures.iter().filter(|(_, capture)| capture.device == device);
        let captures = open.map(|(id, _)| *id).collect();
        self.break_all(captures, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Refuses use of the legacy stream while a stream that waits for it is captured.
    pub(crate) fn legacy_use(&mut self, legacy: CUstream) -> Result<(), Refusal> {
        let device = self.streams.get(legacy)?.device;
        let same = |stream: &&super::Stream| stream.device == device && stream.is_blocking();
        let blocking = self.streams.values().filter(same);
        let captures: Vec<u64> =
            blocking.filter_map(|stream| Some(stream.member.as_ref()?.capture)).collect();
        self.break_all(captures, CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    }

    /// Refuses a call that is unsafe while a capture is open, by the rules of capture modes: of
    /// this thread those that are not relaxed count, of other threads those that are global, and
    /// the mode of the calling thread decides which of the two are looked at.
    pub(crate) fn refuse_unsafe(&mut self) -> Result<(), Refusal> {
        let (thread, mode) = (this_thread(), self.thread().capture_mode);
        if mode.0 > RELAXED.0 && !self.captures.is_empty() {
            return Err(self.undefined("the thread is in a capture mode that does not exist"));
        }
        let forbids = |capture: &Capture| {
            let own = capture.thread == thread && capture.mode != RELAXED;
            let other = capture.thread != thread && capture.mode == GLOBAL && mode == GLOBAL;
            mode != RELAXED && (own || other)
        };
        let forbidding = self.captures.iter().filter(|(_, capture)| forbids(capture));
        let captures = forbidding.map(|(id, _)| *id).collect();
        self.break_all(captures, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    }

    fn break_all(&mut self, captures: Vec<u64>, reason: CUresult) -> Result<(), Refusal> {
        let refusals = captures.into_iter().map(|capture| self.break_capture(capture, reason));
        refusals.last().map_or(Ok(()), Err)
    }

    /// Adds an operation on a captured stream to the graph.
    pub(crate) fn capture_operation(
        &mut self,
        captured: (CUstream, u64),
        operation: Operation,
    ) -> Result<(), Refusal> {
        self.capture_node(captured, NodeKind::Operation(operation)).map(|_| ())
    }

    /// Adds a node after the dependencies of a captured stream, and makes it the new dependency.
    pub(crate) fn capture_node(
        &mut self,
        (stream, capture): (CUstream, u64),
        kind: NodeKind,
    ) -> Result<CUgraphNode, Refusal> {
        let graph = self.captures[&capture].graph;
        let member = self.streams.get(stream)?.member.as_ref().ok_or(INVALIDATED)?;
        let node = self.add_node(graph, member.dependencies.clone(), kind)?;
        self.streams.get_mut(stream)?.member = Some(Member { capture, dependencies: vec![node] });
        Ok(node)
    }

    /// Ends a capture: no stream and no event has a part in it any more.
    pub(crate) fn leave_capture(&mut self, capture: u64) -> Option<Capture> {
        for stream in self.streams.values_mut() {
            if stream.member.as_ref().is_some_and(|member| member.capture == capture) {
                stream.member = None;
            }
        }
        self.captures.remove(&capture)
    }

    /// Whether every stream that was forked into a capture was joined back into its origin.
    pub(crate) fn is_joined(&self, capture: u64) -> Result<bool, Refusal> {
        let origin = self.captures[&capture].origin;
        let member = self.streams.get(origin)?.member.as_ref();
        let reached = self.ancestors(member.map_or(&[], |member| &member.dependencies));
        let members = self.streams.values().filter_map(|stream| stream.member.as_ref());
        let members = members.filter(|member| member.capture == capture);
        let orphans = &self.captures[&capture].orphans;
        let mut nodes = members.flat_map(|member| &member.dependencies).chain(orphans);
        Ok(nodes.all(|node| reached.contains(node)))
    }
}
