//! Stream capture.

use retrograph_driver_sys::*;

use crate::argument::{Call, Out};
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::{CaptureTarget, Owner, State, this_thread};

const RELAXED: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;

impl State {
    pub(crate) fn cuStreamBeginCapture_v2(
        &mut self,
        stream: CUstream,
        mode: CUstreamCaptureMode,
    ) -> Call {
        let stream = self.capturable(stream, mode)?;
        let graph = self.new_graph(Owner::Capture);
        self.begin_capture(
            stream,
            mode,
            CaptureTarget { graph, is_program_graph: false, dependencies: vec![] },
        )
    }

    /// The stream of a handle, if a capture can begin on it in this mode.
    pub(super) fn capturable(
        &mut self,
        stream: CUstream,
        mode: CUstreamCaptureMode,
    ) -> Result<CUstream, Refusal> {
        let stream = self.resolve(stream)?;
        if mode.0 > RELAXED.0 {
            return Err(invalid(Rule::CaptureMode));
        }
        if self.is_legacy(stream) {
            self.refuse_legacy_stream(stream)?;
            let code = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
            return Err(refuse(code, Rule::CaptureOfLegacy));
        }
        if self.streams.get(stream)?.member.is_some() {
            return Err(refuse(CUresult::CUDA_ERROR_ILLEGAL_STATE, Rule::CaptureBegun));
        }
        Ok(stream)
    }

    pub(crate) fn cuStreamEndCapture(&mut self, stream: CUstream, graph: Out<CUgraph>) -> Call {
        graph.write_unless_null(CUgraph::NULL);
        let stream = self.resolve(stream)?;
        if self.is_legacy(stream) {
            self.refuse_legacy_stream(stream)?;
        }
        let none = refuse(CUresult::CUDA_ERROR_ILLEGAL_STATE, Rule::CaptureNone);
        let capture = self.streams.get(stream)?.member.as_ref().ok_or(none)?.capture;
        let found = self.captures.get(&capture).ok_or(none)?;
        if found.origin != stream {
            let reason = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
            return Err(self.invalidate_capture(capture, reason));
        }
        // From here on the capture has ended, even if the call fails.
        let is_elsewhere = found.thread != this_thread() && found.mode != RELAXED;
        if found.invalidated_by.is_some() {
            self.discard_capture(capture)?;
            let code = CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
            return Err(refuse(code, Rule::CaptureInvalidated));
        }
        if !self.is_joined(capture)? {
            return Err(self.fail_end(capture, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED));
        }
        if is_elsewhere {
            return Err(self.fail_end(capture, CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD));
        }
        let found = self.remove_capture(capture).ok_or(none)?;
        self.graphs.get_mut(found.graph)?.owner = Owner::Program;
        graph.write_unless_null(found.graph);
        Ok(())
    }

    /// Ends a capture without a graph and returns the refusal.
    fn fail_end(&mut self, capture: u64, reason: CUresult) -> Refusal {
        let refusal = self.invalidate_capture(capture, reason);
        self.discard_capture(capture).err().unwrap_or(refusal)
    }

    /// The capture status of a stream, and its capture.
    fn capture_status(
        &mut self,
        stream: CUstream,
    ) -> Result<(CUstreamCaptureStatus, u64), Refusal> {
        use CUstreamCaptureStatus as Status;
        let stream = self.resolve(stream)?;
        if self.is_legacy(stream) {
            // The query invalidates no capture, but fails while a blocking stream is captured.
            let mut blocking = self.streams.values().filter(|stream| stream.is_blocking());
            return match blocking.any(|stream| stream.member.is_some()) {
                true => Err(refuse(
                    CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                    Rule::CaptureStatusOfLegacy,
                )),
                false => Ok((Status::CU_STREAM_CAPTURE_STATUS_NONE, 0)),
            };
        }
        let Some(member) = &self.streams.get(stream)?.member else {
            return Ok((Status::CU_STREAM_CAPTURE_STATUS_NONE, 0));
        };
        let broken =
            self.captures.get(&member.capture).is_some_and(|found| found.invalidated_by.is_some());
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
        status.write(found)
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
        status.write(found)?;
        if found != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE {
            return Ok(());
        }
        let stream = self.resolve(stream)?;
        let member = self.streams.get(stream)?.member.clone();
        if let (Some(open), Some(member)) = (self.captures.get_mut(&capture), member) {
            id.write_unless_null(self.graphs.get(open.graph)?.capture_number.unwrap_or(capture));
            let edges = vec![CUgraphEdgeData::default(); member.dependencies.len()];
            open.reported = (member.dependencies, edges);
            graph.write_unless_null(open.graph);
            dependencies.write_unless_null(first(&open.reported.0));
            count.write_unless_null(open.reported.0.len());
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
        self.cuStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, count)?;
        let stream = self.resolve(stream)?;
        let member = self.streams.get(stream)?.member.as_ref();
        let open = member.and_then(|member| self.captures.get(&member.capture));
        if let Some(open) = open.filter(|open| open.invalidated_by.is_none()) {
            edges.write_unless_null(first(&open.reported.1));
        }
        Ok(())
    }

    /// The driver accepts any number as a mode. The meaning of an unknown one is undefined.
    pub(crate) fn cuThreadExchangeStreamCaptureMode(
        &mut self,
        mode: Out<CUstreamCaptureMode>,
    ) -> Call {
        if mode.is_null() {
            return Err(self.undefined("the capture mode to exchange is read without a check"));
        }
        let new = mode.get()?;
        let old = std::mem::replace(&mut self.thread().capture_mode, new);
        mode.write(old)
    }
}

/// The address of a list, or null if it is empty.
fn first<T>(list: &[T]) -> *const T {
    if list.is_empty() { std::ptr::null() } else { list.as_ptr() }
}
