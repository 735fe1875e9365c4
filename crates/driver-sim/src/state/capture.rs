//! Stream capture: its state, its nodes and its invalidation.
//!
//! The call that invalidates a capture returns the reason. The capture stays open until its origin
//! stream ends it or is destroyed. Until then, work on its streams fails with 901; calls that
//! captures forbid fail with their own reason. An end on another thread (908) or without a join
//! (904) removes the capture immediately.

use retrograph_driver_sys::{
    CUgraph, CUgraphEdgeData, CUgraphNode, CUresult, CUstream, CUstreamCaptureMode,
};

use super::thread::this_thread;
use super::{Member, NodeKind, State};
use crate::diagnostic::DiagnosticKind;
use crate::refusal::{Refusal, Rule, refuse};
use crate::work::Operation;

/// The refusal of every call on a stream whose capture was invalidated earlier.
const INVALIDATED: Refusal =
    refuse(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, Rule::CaptureInvalidated);
const RELAXED: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
const GLOBAL: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;

/// An open capture.
pub(crate) struct Capture {
    pub(crate) device: usize,
    /// The stream on which it began.
    pub(crate) origin: CUstream,
    /// The thread that began it.
    pub(crate) thread: u64,
    pub(crate) mode: CUstreamCaptureMode,
    pub(crate) graph: CUgraph,
    /// Whether the program passed the graph (`cuStreamBeginCaptureToGraph`), which then outlives
    /// the capture.
    pub(crate) is_program_graph: bool,
    /// The reason of the invalidation.
    pub(crate) invalidated_by: Option<CUresult>,
    /// Last nodes of destroyed streams; they must still be joined.
    pub(crate) unjoined: Vec<CUgraphNode>,
    /// Storage of the dependencies that `cuStreamGetCaptureInfo` returned last.
    pub(crate) reported: (Vec<CUgraphNode>, Vec<CUgraphEdgeData>),
}

/// The graph that a capture adds nodes to.
pub(crate) struct CaptureTarget {
    pub(crate) graph: CUgraph,
    /// Whether the program passed the graph.
    pub(crate) is_program_graph: bool,
    /// The dependencies of the first node.
    pub(crate) dependencies: Vec<CUgraphNode>,
}

/// The destination of an operation on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The queue of the stream.
    Queue(CUstream),
    /// The graph of the stream's capture.
    Capture(CUstream, u64),
}

impl State {
    /// Begins a capture on a stream.
    pub(crate) fn begin_capture(
        &mut self,
        stream: CUstream,
        mode: CUstreamCaptureMode,
        target: CaptureTarget,
    ) -> Result<(), Refusal> {
        let CaptureTarget { graph, is_program_graph, dependencies } = target;
        let capture = self.number();
        self.graphs.get_mut(graph)?.capture_number.get_or_insert(capture);
        let found = Capture {
            device: self.streams.get(stream)?.device,
            origin: stream,
            thread: this_thread(),
            mode,
            graph,
            is_program_graph,
            invalidated_by: None,
            unjoined: Vec::new(),
            reported: Default::default(),
        };
        self.captures.insert(capture, found);
        self.streams.get_mut(stream)?.member = Some(Member { capture, dependencies });
        Ok(())
    }

    /// Ends a capture without a result. The program can no longer use a graph that it passed.
    pub(crate) fn discard_capture(&mut self, capture: u64) -> Result<(), Refusal> {
        match self.remove_capture(capture) {
            Some(found) if found.is_program_graph => self.orphan_graph(found.graph),
            Some(found) => self.drop_graph(found.graph),
            None => Ok(()),
        }
    }

    /// Whether an open capture adds nodes to a graph.
    pub(crate) fn is_captured_into(&self, graph: CUgraph) -> bool {
        self.captures.values().any(|capture| capture.graph == graph)
    }

    /// Invalidates a capture and returns the refusal of the call. The first reason is kept; a later
    /// call that is forbidden returns its own reason.
    pub(crate) fn invalidate_capture(&mut self, capture: u64, reason: CUresult) -> Refusal {
        if let Some(found) = self.captures.get_mut(&capture)
            && found.invalidated_by.is_none()
        {
            found.invalidated_by = Some(reason);
            let meaning = reason.meaning().unwrap_or_default();
            self.diagnose(DiagnosticKind::Capture, format!("{reason}: {meaning}"));
        }
        refuse(reason, Rule::CaptureBreaks)
    }

    /// The destination of an operation on a stream.
    ///
    /// Fails if the stream's capture is invalidated. An operation on the legacy stream invalidates
    /// the captures of blocking streams, which it would wait for.
    pub(crate) fn route(&mut self, stream: CUstream) -> Result<Route, Refusal> {
        let stream = self.resolve(stream)?;
        if let Some(capture) = self.capture_of(stream)? {
            return Ok(Route::Capture(stream, capture));
        }
        if self.is_legacy(stream) {
            self.refuse_legacy_stream(stream)?;
        }
        Ok(Route::Queue(stream))
    }

    /// The capture that a stream belongs to. Fails with 901 if that capture is invalidated.
    pub(crate) fn capture_of(&self, stream: CUstream) -> Result<Option<u64>, Refusal> {
        let Some(member) = &self.streams.get(stream)?.member else {
            return Ok(None);
        };
        match self.captures.get(&member.capture) {
            Some(capture) if capture.invalidated_by.is_some() => Err(INVALIDATED),
            Some(_) => Ok(Some(member.capture)),
            None => Ok(None),
        }
    }

    /// Refuses calls that a captured stream does not allow: synchronizing with it and querying it.
    /// They invalidate its capture.
    pub(crate) fn refuse_captured(&mut self, stream: CUstream) -> Result<(), Refusal> {
        let member = self.streams.get(stream)?.member.as_ref();
        let reason = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        match member.map(|member| member.capture) {
            None => Ok(()),
            Some(capture) => Err(self.invalidate_capture(capture, reason)),
        }
    }

    /// Refuses to synchronize with a context that has an open capture of any mode.
    pub(crate) fn refuse_context_wait(&mut self, device: usize) -> Result<(), Refusal> {
        let open = self.captures.iter().filter(|(_, capture)| capture.device == device);
        let captures = open.map(|(id, _)| *id).collect();
        self.invalidate_all(captures, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Refuses use of the legacy stream while a blocking stream of its device is captured (906).
    pub(crate) fn refuse_legacy_stream(&mut self, legacy: CUstream) -> Result<(), Refusal> {
        let device = self.streams.get(legacy)?.device;
        let same = |stream: &&super::Stream| stream.device == device && stream.is_blocking();
        let blocking = self.streams.values().filter(same);
        let captures: Vec<u64> =
            blocking.filter_map(|stream| Some(stream.member.as_ref()?.capture)).collect();
        self.invalidate_all(captures, CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    }

    /// Refuses potentially unsafe calls during a capture, by the rules of
    /// `cuThreadExchangeStreamCaptureMode`.
    ///
    /// A thread in relaxed mode may make them. In thread-local mode, captures of this thread forbid
    /// them unless they are relaxed; in global mode, global captures of other threads do so, too.
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
        self.invalidate_all(captures, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    }

    fn invalidate_all(&mut self, captures: Vec<u64>, reason: CUresult) -> Result<(), Refusal> {
        let refusals = captures.into_iter().map(|capture| self.invalidate_capture(capture, reason));
        refusals.last().map_or(Ok(()), Err)
    }

    /// Adds an operation on a captured stream to the graph.
    pub(crate) fn capture_operation(
        &mut self,
        stream: CUstream,
        capture: u64,
        operation: Operation,
    ) -> Result<(), Refusal> {
        self.capture_node(stream, capture, NodeKind::Operation(operation)).map(|_| ())
    }

    /// Adds a node with the dependencies of a captured stream. It becomes the stream's only
    /// dependency.
    pub(crate) fn capture_node(
        &mut self,
        stream: CUstream,
        capture: u64,
        kind: NodeKind,
    ) -> Result<CUgraphNode, Refusal> {
        let graph = self.captures[&capture].graph;
        let member = self.streams.get(stream)?.member.as_ref().ok_or(INVALIDATED)?;
        let node = self.add_node(graph, member.dependencies.clone(), kind)?;
        self.streams.get_mut(stream)?.member = Some(Member { capture, dependencies: vec![node] });
        Ok(node)
    }

    /// Removes a capture and its streams' membership.
    pub(crate) fn remove_capture(&mut self, capture: u64) -> Option<Capture> {
        for stream in self.streams.values_mut() {
            if stream.member.as_ref().is_some_and(|member| member.capture == capture) {
                stream.member = None;
            }
        }
        self.captures.remove(&capture)
    }

    /// Whether every stream that was forked into a capture is joined into its origin.
    pub(crate) fn is_joined(&self, capture: u64) -> Result<bool, Refusal> {
        let origin = self.captures[&capture].origin;
        let member = self.streams.get(origin)?.member.as_ref();
        let reached = self.ancestors(member.map_or(&[], |member| &member.dependencies));
        let members = self.streams.values().filter_map(|stream| stream.member.as_ref());
        let members = members.filter(|member| member.capture == capture);
        let unjoined = &self.captures[&capture].unjoined;
        let mut nodes = members.flat_map(|member| &member.dependencies).chain(unjoined);
        Ok(nodes.all(|node| reached.contains(node)))
    }
}
