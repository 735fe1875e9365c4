//! Stream capture.

use retrograph_driver_sys::*;

use crate::argument::{Call, Out};
use crate::refusal::{Refusal, invalid, refuse};
use crate::state::{Owner, State, Target, this_thread};

const RELAXED: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;

impl State {
    pub(crate) fn cuStreamBeginCapture_v2(
        &mut self,
        stream: CUstream,
        mode: CUstreamCaptureMode,
    ) -> Call {
        let stream = self.capturable(stream, mode)?;
        let graph = self.new_graph(Owner::Capture);
        self.begin_capture(stream, mode, Target { graph, is_given: false, dependencies: vec![] })
    }

    /// The stream behind a handle, if it can be captured in this mode.
    pub(super) fn capturable(
        &mut self,
        stream: CUstream,
        mode: CUstreamCaptureMode,
    ) -> Result<CUstream, Refusal> {
        let stream = self.resolve(stream)?;
        if mode.0 > RELAXED.0 {
            return Err(invalid("capture.mode"));
        }
        if self.is_legacy(stream) {
            let code = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
            return Err(refuse(code, "capture.of_legacy"));
        }
        if self.streams.get(stream)?.member.is_some() {
            return Err(refuse(CUresult::CUDA_ERROR_ILLEGAL_STATE, "capture.begun"));
        }
        Ok(stream)
    }

    pub(crate) fn cuStreamEndCapture(&mut self, stream: CUstream, graph: Out<CUgraph>) -> Call {
        let stream = self.resolve(stream)?;
        graph.put(CUgraph::NULL)?;
        let none = refuse(CUresult::CUDA_ERROR_ILLEGAL_STATE, "capture.none");
        let capture = self.streams.get(stream)?.member.as_ref().ok_or(none)?.capture;
        let found = self.captures.get(&capture).ok_or(none)?;
        if found.thread != this_thread() && found.mode != RELAXED {
            // The capture has ended with this call, and what is enqueued next runs at once:
            // inferred from the H200 run of 2026-11-20, where a fill after it did.
            let was_broken = found.broken.is_some();
            let reason = CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
            let code = self.break_capture(capture, reason);
            if !was_broken {
                self.discard_capture(capture)?;
            }
            return Err(code);
        }
        if found.origin != stream {
            let reason = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
            return Err(self.break_capture(capture, reason));
        }
        if found.broken.is_some() {
            self.discard_capture(capture)?;
            let code = CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
            return Err(refuse(code, "capture.invalidated"));
        }
        if !self.is_joined(capture)? {
            let reason = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
            let code = self.break_capture(capture, reason);
            self.discard_capture(capture)?;
            return Err(code);
        }
        let found = self.leave_capture(capture).ok_or(none)?;
        self.graphs.get_mut(found.graph)?.owner = Owner::Program;
        graph.put(found.graph)
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
                    "capture.status_of_legacy",
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
            return Err(invalid("capture.mode"));
        }
        let old = std::mem::replace(&mut self.thread().capture_mode, new);
        mode.put(old)
    }
}
