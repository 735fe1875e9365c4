//! Streams: creation, destruction, synchronization, queries and waits for events.

use retrograph_driver_sys::*;

use crate::argument::{Call, Out};
use crate::diagnostic::DiagnosticKind;
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::{Mark, Member, NodeKind, Route, State, Stream};

/// The highest stream priority; 0 is the lowest.
pub(super) const GREATEST_PRIORITY: i32 = -5;

/// The value that the driver writes if no context is current.
const NO_STREAM: CUstream = CUstream(std::ptr::without_provenance_mut(usize::MAX));

impl State {
    pub(crate) fn cuStreamCreate(&mut self, stream: Out<CUstream>, flags: u32) -> Call {
        self.cuStreamCreateWithPriority(stream, flags, 0)
    }

    pub(crate) fn cuStreamCreateWithPriority(
        &mut self,
        stream: Out<CUstream>,
        flags: u32,
        priority: i32,
    ) -> Call {
        let device = match self.initialized_current() {
            Ok(device) => device,
            Err(refusal) => {
                stream.write_unless_null(NO_STREAM);
                return Err(refusal);
            }
        };
        if flags & !CU_STREAM_NON_BLOCKING != 0 {
            return Err(invalid(Rule::StreamFlags));
        }
        let handle = self.handle();
        stream.write(handle)?;
        let priority = priority.clamp(GREATEST_PRIORITY, 0);
        let id = self.number();
        self.streams.insert(handle, Stream { id, ..Stream::new(device, flags, priority) });
        Ok(())
    }

    /// The current device, for calls that check arguments before initialization.
    fn initialized_current(&mut self) -> Result<usize, Refusal> {
        match self.initialized {
            true => self.current(),
            false => Err(refuse(CUresult::CUDA_ERROR_NOT_INITIALIZED, Rule::Uninitialized)),
        }
    }

    /// Removes the stream from its capture. Destroying the origin of a capture ends it silently;
    /// the nodes of another stream must still be joined.
    pub(crate) fn cuStreamDestroy_v2(&mut self, stream: CUstream) -> Call {
        let special = refuse(CUresult::CUDA_ERROR_INVALID_HANDLE, Rule::StreamSpecial);
        if stream.is_legacy() {
            return Err(special);
        }
        let resolved = self.resolve(stream)?;
        if self.is_per_thread(resolved) {
            return Err(special);
        }
        if let Some(member) = self.streams.get(resolved)?.member.clone()
            && let Some(capture) = self.captures.get_mut(&member.capture)
        {
            capture.unjoined.extend(member.dependencies);
            if capture.origin == resolved {
                let message = "a stream was destroyed while it was captured; the capture is gone";
                self.diagnose(DiagnosticKind::Capture, message);
                self.discard_capture(member.capture)?;
            }
        }
        // Queued work stays queued.
        self.streams.remove(resolved).map(|_| ())
    }

    pub(crate) fn cuStreamSynchronize(&mut self, stream: CUstream) -> Call {
        let resolved = self.waitable(stream)?;
        let awaited = self.awaited(resolved)?;
        self.complete(awaited)?;
        self.check_alive()
    }

    pub(crate) fn cuStreamQuery(&mut self, stream: CUstream) -> Call {
        let resolved = self.waitable(stream)?;
        let awaited = self.awaited(resolved)?;
        let newest = self.newest_pending(&awaited);
        // The first query of a task returns "not ready"; the second one runs it.
        if newest.is_some() && self.streams.get(resolved)?.queried != newest {
            self.streams.get_mut(resolved)?.queried = newest;
            return Err(refuse(CUresult::CUDA_ERROR_NOT_READY, Rule::Pending));
        }
        self.finish_query(awaited)
    }

    /// The stream of a synchronization or query. Fails if it is captured or a capture forbids the
    /// call.
    fn waitable(&mut self, stream: CUstream) -> Result<CUstream, Refusal> {
        let resolved = self.resolve(stream)?;
        self.refuse_captured(resolved)?;
        if self.is_legacy(resolved) {
            self.refuse_legacy_stream(resolved)?;
        }
        self.refuse_unsafe()?;
        Ok(resolved)
    }

    pub(crate) fn cuStreamWaitEvent(
        &mut self,
        stream: CUstream,
        event: CUevent,
        flags: u32,
    ) -> Call {
        let resolved = self.resolve(stream)?;
        let event = self.known_event(event)?;
        match flags {
            CU_EVENT_WAIT_DEFAULT => {}
            CU_EVENT_WAIT_EXTERNAL => {
                return self.capture_external(resolved, NodeKind::Wait(event));
            }
            _ => return Err(invalid(Rule::EventWaitFlags)),
        }
        match self.events.get(event)?.mark.clone() {
            Mark::Captured(member) => self.wait_for_captured(resolved, member),
            Mark::Never => self.route(stream).map(|_| ()),
            Mark::Task(task) => match self.route(stream)? {
                Route::Queue(stream) => self.wait_for(stream, task),
                Route::Capture(_, capture) => {
                    Err(self
                        .invalidate_capture(capture, CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION))
                }
            },
        }
    }

    /// Captures an external event node (`CU_EVENT_RECORD_EXTERNAL`, `CU_EVENT_WAIT_EXTERNAL`).
    pub(super) fn capture_external(&mut self, stream: CUstream, node: NodeKind) -> Call {
        match self.route(stream)? {
            Route::Capture(stream, capture) => self.capture_node(stream, capture, node).map(|_| ()),
            Route::Queue(_) => {
                Err(refuse(CUresult::CUDA_ERROR_ILLEGAL_STATE, Rule::EventExternalEager))
            }
        }
    }

    /// Makes a stream wait for a captured event. A stream outside joins the capture.
    fn wait_for_captured(&mut self, stream: CUstream, event: Member) -> Call {
        let own = self.capture_of(stream)?;
        if self.captures.get(&event.capture).is_none_or(|capture| capture.invalidated_by.is_some())
        {
            // The event's capture ended. The wait also invalidates the stream's own capture.
            let refusal = invalid(Rule::EventCaptureOver);
            if let Some(own) = own {
                let _ = self.invalidate_capture(own, refusal.code);
            }
            return Err(refusal);
        }
        if self.is_legacy(stream) {
            let reason = CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
            return Err(self.invalidate_capture(event.capture, reason));
        }
        match own {
            Some(own) if own != event.capture => {
                let reason = CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE;
                // Invalidates both captures.
                let _ = self.invalidate_capture(own, reason);
                Err(self.invalidate_capture(event.capture, reason))
            }
            Some(_) => {
                let found = self.streams.get_mut(stream)?;
                let member = found.member.get_or_insert_with(|| event.clone());
                for node in event.dependencies {
                    if !member.dependencies.contains(&node) {
                        member.dependencies.push(node);
                    }
                }
                Ok(())
            }
            None => {
                self.streams.get_mut(stream)?.member = Some(event);
                Ok(())
            }
        }
    }
}
