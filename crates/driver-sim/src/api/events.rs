//! Events.

use retrograph_driver_sys::*;

use crate::argument::{Call, Out};
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::{Event, Mark, NodeKind, Route, State};
use crate::work::{TaskId, Work};

impl State {
    pub(crate) fn cuEventCreate(&mut self, event: Out<CUevent>, flags: u32) -> Call {
        let device = self.current()?;
        const KNOWN: u32 = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
        // Interprocess events cannot measure time.
        let is_timed_elsewhere =
            flags & (CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING) == CU_EVENT_INTERPROCESS;
        if flags & !KNOWN != 0 || is_timed_elsewhere {
            return Err(invalid(Rule::EventFlags));
        }
        let handle = self.handle();
        event.write(handle)?;
        let mark = Mark::Never;
        self.events.insert(handle, Event { device, flags, mark, timestamp: None, queried: None });
        Ok(())
    }

    /// The event of a handle that the program passed. Fails if its context is lost.
    pub(super) fn known_event(&mut self, event: CUevent) -> Result<CUevent, Refusal> {
        match self.events.get(event) {
            Ok(_) => self.check_alive().map(|()| event),
            Err(_) if event.is_null() => {
                Err(refuse(CUresult::CUDA_ERROR_INVALID_HANDLE, Rule::EventNull))
            }
            Err(_) => Err(self.undefined("the event does not exist or was destroyed")),
        }
    }

    pub(crate) fn cuEventRecord(&mut self, event: CUevent, stream: CUstream) -> Call {
        self.cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_DEFAULT)
    }

    pub(crate) fn cuEventRecordWithFlags(
        &mut self,
        event: CUevent,
        stream: CUstream,
        flags: u32,
    ) -> Call {
        let event = self.known_event(event)?;
        match flags {
            CU_EVENT_RECORD_DEFAULT => self.record(event, stream),
            CU_EVENT_RECORD_EXTERNAL => self.capture_external(stream, NodeKind::Record(event)),
            _ => self.route(stream).and(Err(invalid(Rule::EventRecordFlags))),
        }
    }

    fn record(&mut self, event: CUevent, stream: CUstream) -> Call {
        let device = self.events.get(event)?.device;
        let route = self.route(stream)?;
        let (Route::Queue(stream) | Route::Capture(stream, _)) = route;
        if self.streams.get(stream)?.device != device {
            let code = CUresult::CUDA_ERROR_INVALID_HANDLE;
            return Err(refuse(code, Rule::EventOtherDevice));
        }
        let mark = match route {
            Route::Queue(stream) => Mark::Task(self.enqueue(stream, Work::Stamp(event))?),
            Route::Capture(stream, _) => {
                let member = self.streams.get(stream)?.member.clone();
                member.map_or(Mark::Never, Mark::Captured)
            }
        };
        let found = self.events.get_mut(event)?;
        (found.mark, found.timestamp) = (mark, None);
        Ok(())
    }

    pub(crate) fn cuCtxRecordEvent(&mut self, context: CUcontext, event: CUevent) -> Call {
        let (device, event) = (self.named_or_current(context)?, self.known_event(event)?);
        if self.events.get(event)?.device != device {
            return Err(refuse(CUresult::CUDA_ERROR_INVALID_HANDLE, Rule::EventOtherDevice));
        }
        self.refuse_context_wait(device)?;
        let task = self.mark_context(device, event);
        let found = self.events.get_mut(event)?;
        (found.mark, found.timestamp) = (Mark::Task(task), None);
        Ok(())
    }

    pub(crate) fn cuCtxWaitEvent(&mut self, context: CUcontext, event: CUevent) -> Call {
        let (device, event) = (self.named_or_current(context)?, self.known_event(event)?);
        self.refuse_context_wait(device)?;
        if self.captured_mark(event)?.is_some() {
            return Err(self.unsupported("a wait of a context for an event of a capture"));
        }
        if let Some(task) = self.recorded_task(event)? {
            self.delay_context(device, task);
        }
        Ok(())
    }

    /// The open capture in which an event was recorded. Fails if that capture ended or is
    /// invalidated.
    fn captured_mark(&self, event: CUevent) -> Result<Option<u64>, Refusal> {
        let Mark::Captured(member) = &self.events.get(event)?.mark else {
            return Ok(None);
        };
        match self.captures.get(&member.capture) {
            Some(capture) if capture.invalidated_by.is_none() => Ok(Some(member.capture)),
            _ => Err(invalid(Rule::EventCaptureOver)),
        }
    }

    /// Refuses to synchronize with or query an event that was recorded in a capture.
    fn waitable_event(&mut self, event: CUevent) -> Result<CUevent, Refusal> {
        let event = self.known_event(event)?;
        if let Some(capture) = self.captured_mark(event)? {
            let code = CUresult::CUDA_ERROR_CAPTURED_EVENT;
            return Err(self.invalidate_capture(capture, code));
        }
        self.refuse_unsafe()?;
        Ok(event)
    }

    pub(crate) fn cuEventQuery(&mut self, event: CUevent) -> Call {
        let event = self.waitable_event(event)?;
        let task = self.recorded_task(event)?;
        let pending = task.filter(|task| self.tasks.contains_key(task));
        let found = self.events.get_mut(event)?;
        // Like streams: the first query returns "not ready".
        if pending.is_some() && found.queried != pending {
            found.queried = pending;
            return Err(refuse(CUresult::CUDA_ERROR_NOT_READY, Rule::Pending));
        }
        self.finish_query(task.into_iter().collect())
    }

    /// Ends a query of tasks.
    pub(super) fn finish_query(&mut self, tasks: Vec<TaskId>) -> Call {
        match self.advance(tasks)? {
            // Other queries would have returned "not ready" until then.
            Some(end) => {
                self.timeline.wait_until(end);
                Ok(())
            }
            None => Err(refuse(CUresult::CUDA_ERROR_NOT_READY, Rule::Pending)),
        }
    }

    pub(crate) fn cuEventSynchronize(&mut self, event: CUevent) -> Call {
        let event = self.waitable_event(event)?;
        let task = self.recorded_task(event)?;
        self.complete(task.into_iter().collect())
    }

    pub(crate) fn cuEventElapsedTime(
        &mut self,
        milliseconds: Out<f32>,
        start: CUevent,
        end: CUevent,
    ) -> Call {
        let no_time = refuse(CUresult::CUDA_ERROR_INVALID_HANDLE, Rule::EventNoTime);
        let (start, end) = (self.known_event(start)?, self.known_event(end)?);
        if milliseconds.is_null() {
            return Err(refuse(CUresult::CUDA_ERROR_INVALID_HANDLE, Rule::EventNullTime));
        }
        let ordinals = [start, end].map(|event| self.ordinal_of_event(event));
        if ordinals[0] != ordinals[1] {
            return Err(refuse(CUresult::CUDA_ERROR_INVALID_HANDLE, Rule::EventOtherDevice));
        }
        for event in [start, end] {
            // `cuEventElapsedTime` does not invalidate the capture.
            if self.captured_mark(event)?.is_some() {
                return Err(refuse(CUresult::CUDA_ERROR_CAPTURED_EVENT, Rule::EventCaptured));
            }
            let found = self.events.get(event)?;
            let timed = found.flags & CU_EVENT_DISABLE_TIMING == 0;
            if !timed || matches!(found.mark, Mark::Never) {
                return Err(no_time);
            }
        }
        match (self.events.get(start)?.timestamp, self.events.get(end)?.timestamp) {
            (Some(start), Some(end)) => {
                let elapsed = end.saturating_sub(start);
                milliseconds.write(elapsed.as_secs_f32() * 1e3)
            }
            _ => Err(refuse(CUresult::CUDA_ERROR_NOT_READY, Rule::Pending)),
        }
    }

    /// The ordinal of the device of an event.
    fn ordinal_of_event(&self, event: CUevent) -> Result<usize, Refusal> {
        Ok(self.devices[self.events.get(event)?.device].ordinal)
    }

    pub(crate) fn cuEventElapsedTime_v2(
        &mut self,
        milliseconds: Out<f32>,
        start: CUevent,
        end: CUevent,
    ) -> Call {
        self.cuEventElapsedTime(milliseconds, start, end)
    }

    pub(crate) fn cuEventDestroy_v2(&mut self, event: CUevent) -> Call {
        let event = self.known_event(event)?;
        self.events.remove(event).map(|_| ())
    }
}
