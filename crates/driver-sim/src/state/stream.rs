//! Streams and events.

use retrograph_driver_sys::{
    CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING, CUevent, CUgraphNode, CUstream,
    CUsynchronizationPolicy,
};

use super::thread::this_thread;
use super::{Device, State};
use crate::argument::Call;
use crate::current::is_default_per_thread;
use crate::refusal::Refusal;
use crate::timeline::Time;
use crate::work::{Task, TaskId, Work};

/// The membership of a stream in a capture.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// The capture.
    pub(crate) capture: u64,
    /// The dependencies of the stream's next node.
    pub(crate) dependencies: Vec<CUgraphNode>,
}

/// A stream.
pub(crate) struct Stream {
    pub(crate) device: usize,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    /// Synchronization policy and memory domain: hints without effect.
    pub(crate) policy: u32,
    pub(crate) domain: u32,
    /// The unique id, for `cuStreamGetId`.
    pub(crate) id: u64,
    /// The last task. It is complete once the table of tasks lacks it.
    pub(crate) tail: Option<TaskId>,
    /// Tasks of other streams that the next task waits for.
    pub(crate) waits: Vec<TaskId>,
    pub(crate) member: Option<Member>,
    /// The last task at the time of the last query. The first query of a task returns "not ready".
    pub(crate) queried: Option<TaskId>,
}

impl Stream {
    pub(crate) fn new(device: usize, flags: u32, priority: i32) -> Self {
        Self {
            device,
            flags,
            priority,
            policy: CUsynchronizationPolicy::CU_SYNC_POLICY_AUTO.0,
            domain: 0,
            id: 0,
            tail: None,
            waits: Vec::new(),
            member: None,
            queried: None,
        }
    }

    /// Whether the stream and the legacy stream wait for each other.
    pub(crate) fn is_blocking(&self) -> bool {
        self.flags & CU_STREAM_NON_BLOCKING == 0
    }
}

/// The last record of an event.
#[derive(Clone, Debug)]
pub(crate) enum Mark {
    /// Not recorded.
    Never,
    /// The end of a task.
    Task(TaskId),
    /// Nodes of a capture.
    Captured(Member),
}

/// An event.
pub(crate) struct Event {
    pub(crate) device: usize,
    pub(crate) flags: u32,
    pub(crate) mark: Mark,
    /// The simulated time of the record, once its task is complete.
    pub(crate) timestamp: Option<Time>,
    /// The recorded task at the time of the last query.
    pub(crate) queried: Option<TaskId>,
}

impl State {
    /// The stream of a handle. Null and `CU_STREAM_LEGACY` are the legacy stream of the current
    /// context, unless the call is made with per-thread default streams.
    pub(crate) fn resolve(&mut self, stream: CUstream) -> Result<CUstream, Refusal> {
        let is_default = stream == CUstream::NULL && is_default_per_thread();
        if is_default || stream == CUstream::PER_THREAD {
            let device = self.current()?;
            return Ok(self.per_thread(device));
        }
        if stream.is_legacy() {
            let device = self.current()?;
            // Every context has a legacy stream.
            return Ok(self.devices[device].legacy.unwrap_or(CUstream::NULL));
        }
        // A stream belongs to its context, whichever is current.
        match self.streams.get(stream) {
            Ok(_) => self.check_alive().map(|()| stream),
            Err(_) => Err(self.undefined("the stream does not exist or was destroyed")),
        }
    }

    /// The stream of a call without a stream argument. Such a call waits for its work, so that the
    /// stream may not be captured.
    pub(crate) fn default_stream(&mut self) -> Result<CUstream, Refusal> {
        let stream = self.resolve(CUstream::NULL)?;
        self.refuse_captured(stream)?;
        Ok(stream)
    }

    /// The per-thread default stream, a blocking stream. Created on first use by a thread.
    fn per_thread(&mut self, device: usize) -> CUstream {
        let key = (this_thread(), device);
        if let Some(stream) = self.per_thread.get(&key) {
            return *stream;
        }
        let (stream, id) = (self.handle(), self.number());
        self.streams.insert(stream, Stream { id, ..Stream::new(device, CU_STREAM_DEFAULT, 0) });
        self.per_thread.insert(key, stream);
        stream
    }

    /// Destroys the per-thread default streams of threads that have ended, unless they have work or
    /// that work ends later on the timeline.
    pub(super) fn forget_per_thread_streams(&mut self) {
        let now = self.timeline.now();
        let Self { streams, tasks, timeline, threads, per_thread, .. } = self;
        per_thread.retain(|(thread, _), handle| {
            let Ok(stream) = streams.get(*handle) else { return false };
            let last: Vec<_> = stream.waits.iter().chain(&stream.tail).copied().collect();
            let is_idle = stream.member.is_none()
                && !last.iter().any(|task| tasks.contains_key(task))
                && timeline.last_end(&last) <= now;
            let keep = threads.contains_key(thread) || !is_idle;
            if !keep {
                drop(streams.remove(*handle));
            }
            keep
        });
    }

    /// Whether this is a per-thread default stream.
    pub(crate) fn is_per_thread(&self, stream: CUstream) -> bool {
        self.per_thread.values().any(|own| *own == stream)
    }

    /// Whether this is the legacy stream of a device.
    pub(crate) fn is_legacy(&self, stream: CUstream) -> bool {
        self.devices.iter().any(|device| device.legacy == Some(stream))
    }

    /// Appends work to a stream.
    pub(crate) fn enqueue(&mut self, stream: CUstream, work: Work) -> Result<TaskId, Refusal> {
        let id = self.number();
        let legacy = self.is_legacy(stream);
        let device = self.streams.get(stream)?.device;
        let mut dependencies = self.legacy_dependencies(stream, device)?;
        dependencies.extend(&self.devices[device].waits);
        let found = self.streams.get_mut(stream)?;
        dependencies.append(&mut found.waits);
        dependencies.extend(found.tail.replace(id));
        if legacy {
            self.devices[device].legacy_tail = Some(id);
        }
        let submitted = self.timeline.now();
        self.tasks.insert(id, Task { device, dependencies, submitted, work });
        Ok(id)
    }

    /// Queues the mark of an event that all queued work of a context precedes.
    pub(crate) fn mark_context(&mut self, device: usize, event: CUevent) -> TaskId {
        let (id, submitted) = (self.number(), self.timeline.now());
        let of_context = self.tasks.iter().filter(|(_, task)| task.device == device);
        let queued = of_context.map(|(id, _)| *id);
        let streams = self.streams.values().filter(|stream| stream.device == device);
        // A stream may wait for other contexts before it has work.
        let waits = streams.flat_map(|stream| &stream.waits).chain(&self.devices[device].waits);
        let dependencies = queued.chain(waits.copied()).collect();
        self.tasks.insert(id, Task { device, dependencies, submitted, work: Work::Stamp(event) });
        id
    }

    /// Makes all later tasks of a context wait for a task.
    pub(crate) fn delay_context(&mut self, device: usize, task: TaskId) {
        let Self { devices, tasks, .. } = self;
        let waits = &mut devices[device].waits;
        waits.retain(|task| tasks.contains_key(task));
        waits.push(task);
    }

    /// Makes the next task of a stream wait for another task. That may be complete, and still end
    /// later on the timeline than the tasks of the stream.
    pub(crate) fn wait_for(&mut self, stream: CUstream, task: TaskId) -> Call {
        let Self { streams, tasks, timeline, .. } = self;
        let waits = &mut streams.get_mut(stream)?.waits;
        if !waits.contains(&task) {
            waits.push(task);
        }
        // A stream without own work would otherwise collect them without end.
        let is_complete = |task: &TaskId| !tasks.contains_key(task);
        let complete = waits.iter().copied().filter(is_complete);
        let last = complete.max_by_key(|task| timeline.last_end(&[*task]));
        waits.retain(|task| !is_complete(task) || Some(*task) == last);
        Ok(())
    }

    /// The dependencies of the next task of `stream` that the rules of the legacy stream add.
    fn legacy_dependencies(&self, stream: CUstream, device: usize) -> Result<Vec<TaskId>, Refusal> {
        if !self.streams.get(stream)?.is_blocking() {
            return Ok(Vec::new());
        }
        if !self.is_legacy(stream) {
            let Device { legacy, legacy_tail, .. } = &self.devices[device];
            // A wait of the legacy stream also delays later work of blocking streams.
            let legacy = legacy.and_then(|legacy| self.streams.get(legacy).ok());
            let waits = legacy.into_iter().flat_map(|legacy| &legacy.waits);
            return Ok(legacy_tail.iter().chain(waits).copied().collect());
        }
        let same = |other: &&Stream| other.device == device && other.is_blocking();
        let blocking = self.streams.values().filter(same);
        Ok(blocking.flat_map(|other| other.tail.iter().chain(&other.waits)).copied().collect())
    }

    /// The tasks that a synchronization with the stream waits for: its last task and its waits. For
    /// the legacy stream, also the last tasks and waits of every blocking stream. They may be
    /// complete.
    pub(crate) fn awaited(&self, stream: CUstream) -> Result<Vec<TaskId>, Refusal> {
        let found = self.streams.get(stream)?;
        match self.is_legacy(stream) {
            true => self.legacy_dependencies(stream, found.device),
            false => {
                let waits = found.waits.iter().chain(&self.devices[found.device].waits);
                Ok(waits.chain(&found.tail).copied().collect())
            }
        }
    }

    /// The recorded task of an event. It may be complete.
    pub(crate) fn recorded_task(&self, event: CUevent) -> Result<Option<TaskId>, Refusal> {
        Ok(match self.events.get(event)?.mark {
            Mark::Task(task) => Some(task),
            _ => None,
        })
    }

    /// The newest incomplete task of some tasks.
    pub(crate) fn newest_pending(&self, tasks: &[TaskId]) -> Option<TaskId> {
        tasks.iter().filter(|task| self.tasks.contains_key(task)).max().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn a_stream_that_only_waits_keeps_the_last_of_its_complete_waits() {
        let mut state = State::new(Config::default());
        state.create_context(0);
        let [working, waiting] = [(); 2].map(|()| {
            let stream = state.handle();
            state.streams.insert(stream, Stream::new(0, CU_STREAM_NON_BLOCKING, 0));
            stream
        });
        let mut last = None;
        for _ in 0..3000 {
            let task = state.enqueue(working, Work::Stamp(CUevent::NULL)).ok();
            let task = task.expect("the stream exists");
            assert!(state.wait_for(waiting, task).is_ok());
            assert!(state.complete(vec![task]).is_ok());
            last = Some(task);
        }
        assert!(state.streams.get(waiting).is_ok_and(|stream| stream.waits.len() <= 2));
        let awaited = state.awaited(waiting).unwrap_or_default();
        assert_eq!(awaited.iter().max().copied(), last);
        let end = state.timeline.last_end(&awaited);
        assert!(
            end > Time::ZERO && end == state.timeline.last_end(&last.map_or(vec![], |it| vec![it]))
        );
    }
}
