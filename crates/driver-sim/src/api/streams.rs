//! Streams.

use retrograph_driver_sys::*;

use crate::argument::{Call, Out};
use crate::refusal::{Refusal, invalid, refuse};
use crate::state::{Mark, Member, Route, State, Stream};

/// The most urgent priority of a stream; 0 is the least urgent.
pub(super) const GREATEST_PRIORITY: i32 = -5;

const CAPTURED: CUresult = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;

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
        let device = self.current()?;
        if flags & !CU_STREAM_NON_BLOCKING != 0 {
            return Err(invalid("stream.flags"));
        }
        let handle = self.handle();
        stream.put(handle)?;
        let priority = priority.clamp(GREATEST_PRIORITY, 0);
        let id = self.number();
        self.streams.insert(handle, Stream { id, ..Stream::new(device, flags, priority) });
        Ok(())
    }

    pub(crate) fn cuStreamDestroy_v2(&mut self, stream: CUstream) -> Call {
        let resolved = self.resolve(stream)?;
        if self.is_legacy(resolved) || self.is_per_thread(resolved) {
            return Err(refuse(CUresult::CUDA_ERROR_INVALID_HANDLE, "stream.special"));
        }
        if let Some(member) = self.streams.get(resolved)?.member.clone() {
            let code = self.break_capture(member.capture, CAPTURED);
            // With its origin gone nobody can end the capture any more.
            if self.captures.get(&member.capture).is_some_and(|found| found.origin == resolved) {
                self.discard_capture(member.capture)?;
            }
            self.streams.remove(resolved)?;
            return Err(code);
        }
        // Its queued work stays queued: destroying a stream does not wait for it.
        self.streams.remove(resolved).map(|_| ())
    }

    pub(crate) fn cuStreamSynchronize(&mut self, stream: CUstream) -> Call {
        let resolved = self.settled(stream)?;
        let pending = self.pending(resolved)?;
        self.complete(pending)?;
        self.current().map(|_| ())
    }

    pub(crate) fn cuStreamQuery(&mut self, stream: CUstream) -> Call {
        let resolved = self.settled(stream)?;
        let pending = self.pending(resolved)?;
        let newest = pending.iter().max().copied();
        // Work that is asked about for the first time is not ready; when it is asked about again,
        // it was given the time to run.
        if newest.is_some() && self.streams.get(resolved)?.asked != newest {
            self.streams.get_mut(resolved)?.asked = newest;
            return Err(refuse(CUresult::CUDA_ERROR_NOT_READY, "pending"));
        }
        self.complete(pending)
    }

    /// A stream that may be waited for or asked about: not captured, and no capture forbids it.
    fn settled(&mut self, stream: CUstream) -> Result<CUstream, Refusal> {
        let resolved = self.resolve(stream)?;
        self.refuse_captured(resolved)?;
        if self.is_legacy(resolved) {
            self.legacy_use(resolved)?;
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
        if flags != CU_EVENT_WAIT_DEFAULT {
            return Err(self.unsupported("external event waits are not simulated"));
        }
        let resolved = self.resolve(stream)?;
        match self.events.get(event)?.mark.clone() {
            Mark::Captured(member) => self.wait_for_captured(resolved, member),
            Mark::Never => self.route(stream).map(|_| ()),
            Mark::Task(task) => match self.route(stream)? {
                Route::Queue(stream) => {
                    if self.tasks.contains_key(&task) {
                        self.streams.get_mut(stream)?.waits.push(task);
                    }
                    Ok(())
                }
                Route::Capture(_, capture) => {
                    Err(self.break_capture(capture, CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION))
                }
            },
        }
    }

    /// Makes a stream wait for captured work: it joins the capture, or waits inside it.
    fn wait_for_captured(&mut self, stream: CUstream, event: Member) -> Call {
        let Some(capture) = self.captures.get(&event.capture) else {
            // The capture ended, and what the event stood for is a node of a graph.
            return Err(refuse(CUresult::CUDA_ERROR_CAPTURED_EVENT, "event.capture_ended"));
        };
        if capture.broken.is_some() {
            let code = CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
            return Err(refuse(code, "capture.invalidated"));
        }
        if self.is_legacy(stream) {
            let reason = CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
            return Err(self.break_capture(event.capture, reason));
        }
        match self.capture_of(stream)? {
            Some(own) if own != event.capture => {
                let reason = CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE;
                // Both captures are lost, for the same reason.
                let _ = self.break_capture(own, reason);
                Err(self.break_capture(event.capture, reason))
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
