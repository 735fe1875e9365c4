//! Execution of work: only the awaited work and its dependencies run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use retrograph_driver_sys::{CUevent, CUresult, CUstream};
use retrograph_ptx_exec::memory::MemoryError;
use retrograph_ptx_exec::{self as exec, ConditionalValues};

use super::{Copy, End, GraphRun, HostRun, Launch, Operation, Patience, Task, TaskId, Work};
use crate::argument::Call;
use crate::diagnostic::Finding;
use crate::kernel;
use crate::refusal::{Refusal, Rule, refuse};
use crate::state::{Mark, State};
use crate::timeline::{Time, transfer_duration};

/// Why queued work failed.
pub(crate) enum Failure {
    /// The code with which the context is lost, and the cause.
    Fault(CUresult, Finding),
    /// Undefined behaviour.
    Undefined(Finding),
}

/// The progress of an operation or a graph.
pub(crate) enum Progress {
    /// It ended after this simulated duration.
    Ended(Duration),
    /// A host function started, which must end first.
    Hosting(Arc<HostRun>),
}

impl State {
    /// Completes tasks and their dependencies, in one of the legal orders. The clock of the calling
    /// thread advances to their end, also if they are complete already.
    pub(crate) fn complete(&mut self, targets: Vec<TaskId>) -> Call {
        let end = self.run_needed(targets, Patience::Synchronization)?;
        self.timeline.wait_until(end.unwrap_or_default());
        Ok(())
    }

    /// Runs tasks and their dependencies, except tasks that depend on long host functions, which
    /// may wait for the querying thread. Returns the end of the tasks if all have ended.
    pub(crate) fn advance(&mut self, targets: Vec<TaskId>) -> Result<Option<Time>, Refusal> {
        self.run_needed(targets, Patience::Query)
    }

    fn run_needed(
        &mut self,
        targets: Vec<TaskId>,
        patience: Patience,
    ) -> Result<Option<Time>, Refusal> {
        let Some(targets) = self.attempt.begin(targets) else { return Ok(Some(Time::ZERO)) };
        let started = Instant::now();
        let result = self.run_in_order(&targets, patience);
        self.timeline.exclude(started.elapsed());
        let has_ended = result?;
        let end = self.timeline.last_end(&targets);
        self.forget_ends();
        self.release_completed();
        Ok(has_ended.then_some(end))
    }

    /// Runs tasks and their dependencies. Returns whether all have ended.
    fn run_in_order(&mut self, targets: &[TaskId], patience: Patience) -> Result<bool, Refusal> {
        let ids = self.needed(targets.to_vec());
        let index_of: BTreeMap<_, _> = ids.iter().enumerate().map(|(at, id)| (*id, at)).collect();
        let indices = |id: &TaskId| {
            let dependencies = self.tasks[id].dependencies.iter();
            dependencies.filter_map(|id| index_of.get(id).copied()).collect()
        };
        let dependencies: Vec<Vec<usize>> = ids.iter().map(indices).collect();
        // Tasks depend only on earlier ones, so an order always exists.
        let order = self.random.order(&dependencies).unwrap_or_default();
        let mut held = BTreeSet::new();
        for index in order {
            if dependencies[index].iter().any(|other| held.contains(other)) {
                held.insert(index);
                continue;
            }
            let Some(task) = self.tasks.remove(&ids[index]) else { continue };
            match self.run_task(ids[index], task)? {
                None => {}
                Some(host) if patience == Patience::Query && host.is_long() => {
                    held.insert(index);
                }
                Some(host) => return Err(self.attempt.suspend(targets.to_vec(), host, patience)),
            }
        }
        Ok(held.is_empty())
    }

    /// Queues work and completes it. A call does this at most once.
    pub(crate) fn run_now(&mut self, stream: CUstream, work: Work) -> Call {
        let task = match self.attempt.queued {
            Some(task) => task,
            None => self.enqueue(stream, work)?,
        };
        self.attempt.queued = Some(task);
        self.complete(vec![task])
    }

    /// Completes all queued work, as a call with the prompt order does before it returns. The next
    /// call returns the code of a fault, as on hardware.
    pub(crate) fn complete_promptly(&mut self) -> Call {
        let all = self.tasks.keys().copied().collect();
        match self.advance(all) {
            Err(Refusal::SUSPENDED) => return Err(Refusal::SUSPENDED),
            Err(refusal) if refusal.rule != Rule::Fault => drop(self.conclude(refusal)),
            _ => {}
        }
        Ok(())
    }

    /// Completes all work of a device. A fault is dropped, because no later call can report it.
    pub(crate) fn complete_last(&mut self, device: usize) -> Call {
        match self.complete_device(device) {
            Err(Refusal::SUSPENDED) => Err(Refusal::SUSPENDED),
            _ => Ok(()),
        }
    }

    /// Completes all work of a device.
    pub(crate) fn complete_device(&mut self, device: usize) -> Call {
        let all = self.tasks.iter().filter(|(_, task)| task.device == device);
        let all = all.map(|(id, _)| *id).collect();
        self.complete(all)?;
        self.timeline.wait_until(self.devices[device].last_end);
        self.check_alive()
    }

    /// The targets and all queued tasks that they depend on.
    pub(super) fn needed(&self, mut unvisited: Vec<TaskId>) -> Vec<TaskId> {
        let mut needed = BTreeSet::new();
        while let Some(id) = unvisited.pop() {
            if let (Some(task), true) = (self.tasks.get(&id), !needed.contains(&id)) {
                needed.insert(id);
                unvisited.extend(&task.dependencies);
            }
        }
        needed.into_iter().collect()
    }

    /// Runs a task that is no longer queued. If it must wait for a host function, queues the rest
    /// of the task again and returns the function.
    fn run_task(&mut self, id: TaskId, task: Task) -> Result<Option<Arc<HostRun>>, Refusal> {
        let (device, start) = (task.device, self.timeline.start(&task));
        let mut graph = None::<Box<GraphRun>>;
        let result = match task.work {
            Work::Operation(operation) => self.run_operation(device, &operation, None),
            Work::Graph(plan) => {
                self.run_graph(device, graph.insert(Box::new(GraphRun::new(plan, start))), id)
            }
            Work::Hosting(host, rest) => match (host.outcome(), rest) {
                (None, rest) => {
                    graph = rest;
                    Ok(Progress::Hosting(host))
                }
                (Some(Err(said)), _) => Err(Failure::Undefined(said.into())),
                (Some(Ok(duration)), None) => Ok(Progress::Ended(duration)),
                (Some(Ok(duration)), Some(mut rest)) => {
                    rest.end_host_function(duration);
                    self.run_graph(device, graph.insert(rest), id)
                }
            },
            Work::Free(address) => {
                self.run_free(device, address).map(|()| Progress::Ended(Duration::ZERO))
            }
            Work::Stamp(event) => {
                self.stamp(event, id, start);
                Ok(Progress::Ended(Duration::ZERO))
            }
        };
        match result {
            Ok(Progress::Ended(duration)) => {
                self.end_task(id, device, start + duration);
                Ok(None)
            }
            Ok(Progress::Hosting(host)) => {
                let work = Work::Hosting(Arc::clone(&host), graph);
                let rest = Task { device, dependencies: Vec::new(), submitted: start, work };
                self.tasks.insert(id, rest);
                Ok(Some(host))
            }
            Err(Failure::Fault(code, finding)) => {
                self.lose(code, finding);
                Err(refuse(code, Rule::Fault))
            }
            Err(Failure::Undefined(finding)) => Err(self.undefined(finding)),
        }
    }

    /// Records the time of an event if the task completes it.
    pub(super) fn stamp(&mut self, event: CUevent, task: TaskId, time: Time) {
        if let Ok(event) = self.events.get_mut(event)
            && matches!(event.mark, Mark::Task(marked) if marked == task)
        {
            event.timestamp = Some(time);
        }
    }

    /// Allocates graph memory on the device that the node names. `device` is the device of the
    /// launch.
    pub(super) fn run_alloc(&mut self, device: usize, address: u64) -> Result<(), Failure> {
        let found = self.graph_memory.get(&address);
        let (device, bytes) = found.map_or((device, 0), |found| (found.device, found.bytes));
        let made = self.devices[device].memory.alloc_at(address, bytes);
        made.map_err(|error| {
            let message = "memory of a graph could not be had when it was launched";
            Failure::Undefined(format!("{message}: {error}").into())
        })
    }

    /// Runs an operation; a host function only starts. An operation of a graph gets the conditional
    /// values of that graph. Kernels and fills run on the device of their context.
    pub(super) fn run_operation(
        &mut self,
        device: usize,
        operation: &Operation,
        conditions: Option<&ConditionalValues>,
    ) -> Result<Progress, Failure> {
        let device = match operation {
            Operation::Launch(launch) => self.count_launch(launch)?,
            _ => device,
        };
        let memory = &self.devices[device].memory;
        let result = match operation {
            Operation::Launch(launch) => {
                let base = exec::Launch {
                    threads: self.config.threads,
                    races: self.config.detect_races,
                    seed: self.random.seed(),
                    output: Some(&self.output),
                    conditions,
                    resident_blocks: Some(self.most_resident_blocks(launch)),
                    ..exec::Launch::default()
                };
                return kernel::run(launch, memory, base).map(Progress::Ended);
            }
            Operation::Copy(copy) if !self.pinned_ends_live(copy) => return Err(pinned_freed()),
            Operation::Copy(copy) => self.run_copy(device, copy).map(|()| copy.bytes()),
            Operation::Fill(fill) => {
                fill.run(&self.devices[fill.device].memory).map(|()| fill.bytes())
            }
            Operation::Host(call) => {
                return Ok(Progress::Hosting(HostRun::start(&self.hosting, *call)));
            }
        };
        let progress = result.map(|bytes| Progress::Ended(transfer_duration(bytes)));
        progress.map_err(|error| match operation {
            // On hardware, a failed fill has a different code than a failed copy.
            Operation::Fill(_) => {
                let message = format!("a queued fill failed: {error}");
                Failure::Fault(CUresult::CUDA_ERROR_LAUNCH_FAILED, message.into())
            }
            _ => failed_copy(&error),
        })
    }

    /// Moves the bytes of a copy. The addresses determine the devices, of which neither needs
    /// access to the other.
    pub(crate) fn run_copy(&self, device: usize, copy: &Copy) -> Result<(), MemoryError> {
        let memory_of = |end: &End| {
            let owner = end.device_address().and_then(|address| self.device_at(device, address));
            &*self.devices[owner.unwrap_or(device)].memory
        };
        copy.run_between(memory_of(&copy.source), memory_of(&copy.target))
    }

    /// Counts a launch by its kernel, whose module must be loaded. Returns the device of the
    /// kernel, which in a graph may differ from the device of the launch.
    fn count_launch(&mut self, launch: &Launch) -> Result<usize, Failure> {
        let name = launch.program.name();
        let found = self.functions.get(launch.function).map(|function| function.device);
        let device = found.map_err(|_| unloaded(name))?;
        match self.launches.get_mut(name) {
            Some(count) => *count += 1,
            None => drop(self.launches.insert(name.to_owned(), 1)),
        }
        Ok(device)
    }

    fn pinned_ends_live(&self, copy: &Copy) -> bool {
        let Some((source, target)) = Copy::extent(&copy.given) else {
            return false;
        };
        let live = |end: &End, bytes| match end {
            End::Host(address) => self.pinned_at(*address, bytes).is_some(),
            _ => true,
        };
        live(&copy.source, source) && live(&copy.target, target)
    }

    /// Frees memory on the device that owns it. `device` is the device of the stream.
    pub(super) fn run_free(&mut self, device: usize, address: u64) -> Result<(), Failure> {
        if self.pinned.contains_key(&(address as usize)) {
            self.unpin(address as usize);
            return Ok(());
        }
        self.return_to_pool(address);
        let owner = self.allocations.remove(&address).map(|found| found.device);
        let owner = owner.or(self.graph_memory.get(&address).map(|found| found.device));
        let device = owner.unwrap_or(device);
        let freed = self.devices[device].memory.free(address);
        freed
            .map(|_| ())
            .map_err(|error| Failure::Undefined(format!("a queued free failed: {error}").into()))
    }
}

fn failed_copy(error: &MemoryError) -> Failure {
    let message = format!("a queued copy failed: {error}");
    Failure::Fault(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, message.into())
}

fn unloaded(kernel: &str) -> Failure {
    Failure::Undefined(format!("the module of kernel `{kernel}` was unloaded before it ran").into())
}

fn pinned_freed() -> Failure {
    let message = "a copy names pinned host memory that was freed before the copy ran";
    Failure::Undefined(message.into())
}
