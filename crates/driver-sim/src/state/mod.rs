//! The state of a simulated machine: devices, threads, and every object by its handle.

mod array;
mod capture;
mod conditional;
mod core_dumps;
mod device;
mod graph;
mod graph_memory;
mod host;
mod link;
mod managed;
mod module;
mod object;
mod pool;
mod stream;
mod thread;
mod user_object;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use retrograph_driver_sys::*;

pub(crate) use array::{Array, element_bytes};
pub(crate) use capture::{Capture, CaptureTarget, Route};
pub(crate) use conditional::Conditional;
pub(crate) use core_dumps::CoreDumps;
pub(crate) use device::{Allocation, Device, memory_refusal};
pub(crate) use graph::{Node, NodeKind, Owner};
pub(crate) use graph_memory::{Reserved, Usage};
pub(crate) use host::Pinned;
pub(crate) use link::Link;
pub(crate) use managed::{Advice, AdvisedRanges};
pub(crate) use module::{Function, Kernel, Library, Module};
use object::is_numbered;
pub(crate) use object::{Handle, Table};
pub(crate) use pool::{Location, Pool, PoolKind};
pub(crate) use stream::{Event, Mark, Member, Stream};
pub(crate) use thread::{Thread, this_thread};
pub(crate) use user_object::{PendingRelease, UserObject};

use crate::config::Config;
use crate::diagnostic::{Diagnostic, DiagnosticKind, Finding};
use crate::live::LiveObjects;
use crate::random::Random;
use crate::refusal::{Refusal, Refused};
use crate::timeline::Timeline;
use crate::work::{Attempt, Exec, Hosting, Task, TaskId};

/// The state of one simulated machine.
pub(crate) struct State {
    pub(crate) config: Config,
    pub(crate) initialized: bool,
    /// The name of the current call, for diagnostics.
    pub(crate) call: &'static str,
    /// The progress of the current call.
    pub(crate) attempt: Attempt,
    /// The devices of the machine, then one entry per context of `cuCtxCreate`.
    pub(crate) devices: Vec<Device>,
    /// The sticky code of the first fault, after which calls on every device return it. The loss is
    /// permanent for the process.
    pub(crate) lost: Option<CUresult>,
    pub(crate) threads: BTreeMap<u64, Thread>,
    /// The number of threads at which those that have ended are forgotten.
    max_threads: usize,
    pub(crate) streams: Table<CUstream, Stream>,
    pub(crate) events: Table<CUevent, Event>,
    pub(crate) modules: Table<CUmodule, Module>,
    pub(crate) functions: Table<CUfunction, Function>,
    pub(crate) libraries: Table<CUlibrary, Library>,
    pub(crate) kernels: Table<CUkernel, Kernel>,
    pub(crate) links: Table<CUlinkState, Link>,
    pub(crate) graphs: Table<CUgraph, graph::Graph>,
    pub(crate) nodes: Table<CUgraphNode, Node>,
    pub(crate) execs: Table<CUgraphExec, Exec>,
    pub(crate) user_objects: Table<CUuserObject, UserObject>,
    /// References of destroyed graphs whose last launch has not run yet.
    pub(crate) pending_releases: Vec<PendingRelease>,
    /// Reservations of allocation nodes by address.
    pub(crate) graph_memory: BTreeMap<u64, Reserved>,
    /// Counters of graph memory by device ordinal.
    pub(crate) graph_usage: BTreeMap<usize, Usage>,
    pub(crate) captures: BTreeMap<u64, Capture>,
    /// Per-thread streams by thread and device.
    pub(crate) per_thread: BTreeMap<(u64, usize), CUstream>,
    pub(crate) tasks: BTreeMap<TaskId, Task>,
    pub(crate) timeline: Timeline,
    pub(crate) arrays: Table<CUarray, Array>,
    pub(crate) pools: Table<CUmemoryPool, Pool>,
    /// The default pool of each location, created on first use.
    pub(crate) default_pools: BTreeMap<PoolKind, CUmemoryPool>,
    /// The current pool of a location, if the program set one.
    pub(crate) current_pools: BTreeMap<PoolKind, CUmemoryPool>,
    /// `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS` by the address of the allocation, if the program set it.
    pub(crate) sync_memops: BTreeMap<u64, bool>,
    /// Device ordinals by context, of destroyed contexts too.
    pub(crate) context_ordinals: BTreeMap<u64, usize>,
    /// Device allocations by address.
    pub(crate) allocations: BTreeMap<u64, Allocation>,
    /// Pinned host memory by address.
    pub(crate) pinned: BTreeMap<usize, Pinned>,
    /// The settings of core dumps of the process.
    pub(crate) core_dumps: CoreDumps,
    pub(crate) random: Random,
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// Output of kernels that the program has not read yet.
    pub(crate) output: Mutex<String>,
    /// The number of launches of each kernel.
    pub(crate) launches: BTreeMap<String, u64>,
    /// The code that every call returns after the simulator stopped.
    pub(crate) stopped: Option<CUresult>,
    /// The distinct errors returned so far.
    pub(crate) refused: BTreeSet<Refused>,
    /// Detects driver calls from inside host functions.
    pub(crate) hosting: Arc<Hosting>,
    /// The table of this machine, and the substitute for missing functions, once a slot is
    /// assigned.
    pub(crate) table: Option<(DriverTable, unsafe extern "C" fn() -> CUresult)>,
    /// The last number issued to a handle, task or capture. Numbers are never reused.
    last_number: u64,
}

// SAFETY: the state holds raw pointers to pinned memory, which it owns, and to parameter values,
// whose blocks the same node owns. Only the holder of the state's lock uses them.
unsafe impl Send for State {}

impl State {
    /// A machine before `cuInit`.
    pub(crate) fn new(config: Config) -> Self {
        Self {
            initialized: false,
            call: "",
            attempt: Attempt::default(),
            devices: (0..config.devices).map(|ordinal| Device::new(ordinal, &config)).collect(),
            lost: None,
            threads: BTreeMap::new(),
            max_threads: thread::MIN_THREADS,
            streams: Table::default(),
            events: Table::default(),
            modules: Table::default(),
            functions: Table::default(),
            libraries: Table::default(),
            kernels: Table::default(),
            links: Table::default(),
            graphs: Table::default(),
            nodes: Table::default(),
            execs: Table::default(),
            user_objects: Table::default(),
            pending_releases: Vec::new(),
            graph_memory: BTreeMap::new(),
            graph_usage: BTreeMap::new(),
            captures: BTreeMap::new(),
            per_thread: BTreeMap::new(),
            tasks: BTreeMap::new(),
            timeline: Timeline::new(),
            arrays: Table::default(),
            pools: Table::default(),
            default_pools: BTreeMap::new(),
            current_pools: BTreeMap::new(),
            sync_memops: BTreeMap::new(),
            context_ordinals: BTreeMap::new(),
            allocations: BTreeMap::new(),
            pinned: BTreeMap::new(),
            core_dumps: CoreDumps::default(),
            random: Random::of(&config),
            diagnostics: Vec::new(),
            output: Mutex::default(),
            launches: BTreeMap::new(),
            stopped: None,
            refused: BTreeSet::new(),
            hosting: Arc::default(),
            table: None,
            last_number: 0,
            config,
        }
    }

    /// A new number.
    pub(crate) fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// A new handle.
    pub(crate) fn handle<H: Handle>(&mut self) -> H {
        H::from_number(self.number())
    }

    /// Whether this machine issued a handle. Its object may be destroyed.
    pub(crate) fn was_issued<H: Handle>(&self, handle: H) -> bool {
        is_numbered(handle, self.last_number)
    }

    /// Records a diagnostic.
    pub(crate) fn diagnose(&mut self, kind: DiagnosticKind, finding: impl Into<Finding>) {
        let Finding { message, site } = finding.into();
        self.diagnostics.push(Diagnostic { kind, call: self.call, message, site });
    }

    /// Refuses a call that the simulator does not implement. The caller has changed nothing.
    pub(crate) fn unsupported(&mut self, message: impl Into<String>) -> Refusal {
        self.diagnose(DiagnosticKind::Unsupported, message);
        Refusal::UNSUPPORTED
    }

    /// Reports undefined behaviour and stops the machine.
    pub(crate) fn undefined(&mut self, finding: impl Into<Finding>) -> Refusal {
        self.diagnose(DiagnosticKind::Undefined, finding);
        Refusal::UNDEFINED
    }

    /// Applies an injected failure: a sticky code loses all contexts.
    pub(crate) fn inject(&mut self, code: CUresult) {
        if code.is_sticky() && self.current().is_ok() {
            self.lose(code, "an injected failure");
        }
    }

    /// Reports a panic of the simulator itself and stops, since the state may be damaged.
    pub(crate) fn internal_error(&mut self, panic: &(dyn Any + Send)) -> CUresult {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        self.diagnose(DiagnosticKind::Internal, text.unwrap_or("a panic").to_owned());
        self.stop(CUresult::CUDA_ERROR_UNKNOWN)
    }

    /// References to primary contexts plus created contexts.
    fn references(&self) -> usize {
        let (primary, created) = self.devices.split_at(self.config.devices);
        let created = created.iter().filter(|device| device.context.is_some()).count();
        primary.iter().map(|device| device.references).sum::<usize>() + created
    }

    /// Counts of the live objects.
    pub(crate) fn live(&self) -> LiveObjects {
        let legacy = self.devices.iter().filter(|device| device.legacy.is_some()).count();
        let hidden = legacy + self.per_thread.len();
        let of_graphs = self.graph_memory.values().filter(|found| found.is_live);
        let allocated = self.allocations.values().map(|allocation| allocation.bytes);
        let allocated = allocated.chain(of_graphs.map(|found| found.bytes));
        let is_managed = |pinned: &&Pinned| pinned.advice.is_some();
        let is_variable = |pinned: &&Pinned| pinned.is_variable;
        let variables = self.pinned.values().filter(is_variable).count();
        let managed = self.pinned.values().filter(is_managed).filter(|pinned| !pinned.is_variable);
        let managed = managed.map(|found| found.bytes() as u64);
        let pinned = self.pinned.len() - managed.clone().count() - variables;
        let arrays: Vec<_> = self.arrays.values().map(Array::bytes).collect();
        let allocated = allocated.chain(managed).chain(arrays);
        LiveObjects {
            contexts: self.references(),
            allocations: allocated.clone().count(),
            allocated_bytes: allocated.sum(),
            pinned,
            streams: self.streams.len() - hidden,
            events: self.events.len(),
            modules: self.modules.len(),
            graphs: self.graphs.values().filter(|graph| !graph.is_owned()).count(),
            graph_execs: self.execs.len(),
            captures: self.captures.len(),
        }
    }
}
