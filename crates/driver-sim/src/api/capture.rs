//! Stream capture.

use retrograph_driver_sys::*;

use crate::argument::{Call, Out};
use crate::refusal::{Refusal, invalid, refuse};
use crate::state::{Capture, Member, Owner, State, this_thread};

const RELAXED: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;

impl State {
    pub(crate) fn cuStreamBeginCapture_v2(
        &mut self,
        stream: CUstream,
        mode: CUstreamCaptureMode,
    ) -> Call {
        let stream = self.resolve(stream)?;
        if mode.0 > RELAXED.0 {
            return Err(invalid("capture.cuStreamBeginCapture_v2"));
        }
        if self.is_legacy(stream) {
            return Err(refuse(
                CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                "capture.cuStreamBeginCapture_v2.2",
            ));
        }
        if self.streams.get(stream)?.member.is_some() {
            return Err(refuse(
                CUresult::CUDA_ERROR_ILLEGAL_STATE,
                "capture.cuStreamBeginCapture_v2.3",
            ));
        }
        let (capture, graph) = (self.number(), self.new_graph(Owner::Capture));
        let device = self.streams.get(stream)?.device;
        let found = Capture {
            device,
            origin: stream,
            thread: this_thread(),
            mode,
            graph,
            broken: None,
            shown: Vec::new(),
        };
        self.captures.insert(capture, found);
        self.streams.get_mut(stream)?.member = Some(Member { capture, dependencies: Vec::new() });
        Ok(())
    }

    pub(crate) fn cuStreamEndCapture(&mut self, stream: CUstream, graph: Out<CUgraph>) -> Call {
        let stream = self.resolve(stream)?;
        graph.put(CUgraph::NULL)?;
        let member = self.streams.get(stream)?.member.as_ref();
        let capture = member
            .ok_or(refuse(CUresult::CUDA_ERROR_ILLEGAL_STATE, "capture.cuStreamEndCapture"))?
            .capture;
        let found = self
            .captures
            .get(&capture)
            .ok_or(refuse(CUresult::CUDA_ERROR_ILLEGAL_STATE, "capture.cuStreamEndCapture.2"))?;
        if found.thread != this_thread() && found.mode != RELAXED {
            // The capture has ended with this call, and what is enqueued next runs at once:
            // inferred from the H200 run of 2026-11-20, where a fill after it did.
            let was_broken = found.broken.is_some();
            let reason = CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
            let code = self.break_capture(capture, reason);
            if !was_broken {
                self.discard(capture)?;
            }
            return Err(code);
        }
        if found.origin != stream {
            let reason = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
            return Err(self.break_capture(capture, reason));
        }
        if found.broken.is_none() && !self.is_joined(capture)? {
            let reason = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
            let code = self.break_capture(capture, reason);
            self.discard(capture)?;
            return Err(code);
        }
        if self.captures[&capture].broken.is_some() {
            self.discard(capture)?;
            return Err(refuse(
                CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                "capture.cuStreamEndCapture.3",
            ));
        }
        let found = self
            .leave_capture(capture)
            .ok_or(refuse(CUresult::CUDA_ERROR_UNKNOWN, "capture.cuStreamEndCapture.4"))?;
        self.graphs.get_mut(found.graph)?.owner = Owner::Program;
        graph.put(found.graph)
    }

    /// Ends a capture without a graph.
    fn discard(&mut self, capture: u64) -> Call {
        match self.leave_capture(capture) {
            Some(found) => self.drop_graph(found.graph),
            None => Ok(()),
        }
    }

    /// Whether a stream is captured, and in which capture.
    fn capture_status(
        &mut self,
        stream: CUstream,
    ) -> Result<(CUstreamCaptureStatus, u64), Refusal> {
        use CUstreamCaptureStatus as Status;
        let stream = self.resolve(stream)?;
        if self.is_legacy(stream) {
            // The question itself breaks nothing, but has no answer while a blocking stream is
            // captured.
            let mut blocking = self.streams.values().filter(|stream| stream.is_blocking());
            return match blocking.any(|stream| stream.member.is_some()) {
                true => Err(refuse(
                    CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                    "capture.capture_status",
                )),
                false => Ok((Status::CU_STREAM_CAPTURE_STATUS_NONE, 0)),
            };
        }
        let Some(member) = &self.streams.get(stream)?.member else {
            return Ok((Status::CU_STREAM_CAPTURE_STATUS_NONE, 0));
        };
        let broken = self.captures.get(&member.capture).is_some_and(|found| found.broken.is_some());
        let status = match broken {
            true => Status::CU_STREAM_CAPTURE_STATUS_INVALIDATED,
            false => Status::CU_STREAM_CAPTURE_STATUS_ACTIVE,
        };
        Ok((status, member.capture))
    }

    pub(crate) fn cuStreamIsCapturing(
        &mut self,
        stream: CUstream,
        status: Out<CUstreamCaptureStatus>,
    ) -> Call {
        let (found, _) = self.capture_status(stream)?;
        status.put(found)
    }

    pub(crate) fn cuStreamGetCaptureInfo_v2(
        &mut self,
        stream: CUstream,
        status: Out<CUstreamCaptureStatus>,
        id: Out<u64>,
        graph: Out<CUgraph>,
        dependencies: Out<*const CUgraphNode>,
        count: Out<usize>,
    ) -> Call {
        let (found, capture) = self.capture_status(stream)?;
        status.put(found)?;
        if found != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE {
            return Ok(());
        }
        let stream = self.resolve(stream)?;
        let member = self.streams.get(stream)?.member.clone();
        id.offer(capture);
        if let (Some(open), Some(member)) = (self.captures.get_mut(&capture), member) {
            open.shown = member.dependencies;
            graph.offer(open.graph);
            dependencies.offer(open.shown.as_ptr());
            count.offer(open.shown.len());
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "the signature is the driver's")]
    pub(crate) fn cuStreamGetCaptureInfo_v3(
        &mut self,
        stream: CUstream,
        status: Out<CUstreamCaptureStatus>,
        id: Out<u64>,
        graph: Out<CUgraph>,
        dependencies: Out<*const CUgraphNode>,
        edges: Out<*const CUgraphEdgeData>,
        count: Out<usize>,
    ) -> Call {
        // Null means that every edge is a full dependency, the only kind that is simulated.
        edges.offer(std::ptr::null());
        self.cuStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, count)
    }

    pub(crate) fn cuThreadExchangeStreamCaptureMode(
        &mut self,
        mode: Out<CUstreamCaptureMode>,
    ) -> Call {
        let new = mode.get()?;
        if new.0 > RELAXED.0 {
            return Err(invalid("capture.cuThreadExchangeStreamCaptureMode"));
        }
        let old = std::mem::replace(&mut self.thread().capture_mode, new);
        mode.put(old)
    }
}
