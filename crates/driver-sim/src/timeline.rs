//! The simulated times of work, which events report.
//!
//! Work starts when it has been submitted and its dependencies have ended. Its duration follows
//! from its instructions or bytes, so work that can run concurrently overlaps, although the
//! simulator runs it one task after another.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::state::{Mark, State, this_thread};
use crate::work::{Task, TaskId};

/// The time of a kernel, copy or fill in addition to its instructions or bytes.
const OPERATION: Duration = Duration::from_micros(1);
/// The time of an instruction of a warp, about what one host thread needs. All blocks of a grid run
/// one after another.
const NANOSECONDS_PER_INSTRUCTION: u64 = 10;
/// The bytes that a copy or fill writes per nanosecond.
const BYTES_PER_NANOSECOND: u64 = 10;

/// The number of known ends below which none is forgotten.
const MIN_ENDS: usize = 1024;

/// A simulated time, since the machine was created.
pub(crate) type Time = Duration;

/// The duration of a kernel that executes this number of warp instructions.
pub(crate) fn kernel_duration(warp_instructions: u64) -> Duration {
    let nanoseconds = warp_instructions.saturating_mul(NANOSECONDS_PER_INSTRUCTION);
    OPERATION.saturating_add(Duration::from_nanos(nanoseconds))
}

/// The duration of a copy or fill.
pub(crate) fn transfer_duration(bytes: u64) -> Duration {
    OPERATION + Duration::from_nanos(bytes.div_ceil(BYTES_PER_NANOSECOND))
}

/// The clocks of host threads, and the ends of complete tasks.
///
/// The clock of a thread runs in real time. It stops while the simulator executes work, and jumps
/// to the end of the work for which the thread waits. Each thread has its own clock, so a wait of
/// one does not delay the work of others.
pub(crate) struct Timeline {
    created: Instant,
    /// The real time that the execution of work took.
    executing: Duration,
    /// The simulated time that each thread has waited for work.
    waited: BTreeMap<u64, Duration>,
    /// The longest of these times, with which new threads begin.
    longest: Duration,
    /// The ends of complete tasks, at least of those that are the dependency of a queued task, or
    /// may become one.
    ends: BTreeMap<TaskId, Time>,
    /// The number of known ends at which those that are not needed are forgotten.
    max_ends: usize,
}

impl Timeline {
    pub(crate) fn new() -> Self {
        Self {
            created: Instant::now(),
            executing: Duration::ZERO,
            waited: BTreeMap::new(),
            longest: Duration::ZERO,
            ends: BTreeMap::new(),
            max_ends: MIN_ENDS,
        }
    }

    /// The time that the calling thread has waited.
    fn waited(&mut self) -> &mut Duration {
        self.waited.entry(this_thread()).or_insert(self.longest)
    }

    /// Forgets threads that have ended. The longest wait stays known.
    pub(crate) fn retain_threads(&mut self, mut is_known: impl FnMut(u64) -> bool) {
        self.waited.retain(|thread, _| is_known(*thread));
    }

    /// The clock of the calling thread.
    pub(crate) fn now(&mut self) -> Time {
        (self.created.elapsed() + *self.waited()).saturating_sub(self.executing)
    }

    /// Excludes real time in which work was executed from the clocks.
    pub(crate) fn exclude(&mut self, executing: Duration) {
        self.executing += executing;
    }

    /// Advances the clock of the calling thread to `end`, unless it is later already.
    pub(crate) fn wait_until(&mut self, end: Time) {
        let left = end.saturating_sub(self.now());
        let waited = self.waited();
        *waited += left;
        let waited = *waited;
        self.longest = self.longest.max(waited);
    }

    /// The start of a task whose dependencies are complete.
    pub(crate) fn start(&self, task: &Task) -> Time {
        self.last_end(&task.dependencies).max(task.submitted)
    }

    /// The last known end of some tasks; 0 if there is none.
    pub(crate) fn last_end(&self, tasks: &[TaskId]) -> Time {
        let ends = tasks.iter().filter_map(|task| self.ends.get(task));
        ends.max().copied().unwrap_or_default()
    }
}

impl State {
    /// Records the end of a task.
    pub(crate) fn end_task(&mut self, task: TaskId, device: usize, end: Time) {
        self.timeline.ends.insert(task, end);
        let device = &mut self.devices[device];
        device.last_end = device.last_end.max(end);
    }

    /// Forgets the ends of tasks that no task can depend on.
    pub(crate) fn forget_ends(&mut self) {
        if self.timeline.ends.len() < self.timeline.max_ends {
            return;
        }
        let queued = self.tasks.values().flat_map(|task| &task.dependencies);
        let streams = self.streams.values();
        let streams = streams.flat_map(|stream| stream.waits.iter().chain(&stream.tail));
        let legacy = self.devices.iter().filter_map(|device| device.legacy_tail.as_ref());
        let launches = self.execs.values().filter_map(|exec| exec.last.as_ref());
        let recorded = self.events.values().filter_map(|event| match &event.mark {
            Mark::Task(task) => Some(task),
            _ => None,
        });
        let needed = queued.chain(streams).chain(legacy).chain(launches).chain(recorded);
        let needed: BTreeSet<TaskId> = needed.copied().collect();
        let Timeline { ends, max_ends, .. } = &mut self.timeline;
        ends.retain(|task, _| needed.contains(task));
        *max_ends = (2 * ends.len()).max(MIN_ENDS);
    }
}
