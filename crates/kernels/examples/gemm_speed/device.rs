//! The benchmarked device, through its driver functions.
//!
//! As in a training step, the launches of a measurement are nodes of one graph, with programmatic
//! edges where the device has them.
//!
//! If the folder `RETROGRAPH_PTX_DIR` has a file `<image>.ptx`, it replaces the embedded image, to
//! time changes of a kernel source without rebuilding this program.

#[path = "argument_bytes.rs"]
mod argument_bytes;

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_void};
use std::fmt;
use std::path::Path;

use retrograph_driver_sim::{Config, Simulator};
use retrograph_driver_sys::{
    CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, CU_GREEN_CTX_DEFAULT_STREAM, CUDA_KERNEL_NODE_PARAMS,
    CUcontext, CUdevResource, CUdevResourceDesc, CUdevResourceType, CUdevice, CUdevice_attribute,
    CUevent, CUfunction, CUfunction_attribute, CUgraph, CUgraphDependencyType, CUgraphEdgeData,
    CUgraphExec, CUgraphNode, CUgreenCtx, CUmodule, CUresult, CUstream, DriverTable,
};
use retrograph_kernels::{Dispatch, Launch, SmTarget, images};

/// Bytes of operands on a GPU: enough for the LM head of a large vocabulary.
const POOL: usize = 1200 << 20;
/// Bytes filled before each sample: this flushes the cache and lets the host enqueue ahead.
const SCRATCH: usize = 1 << 30;

/// A device with a pool of memory for operands.
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) target: SmTarget,
    /// SMs that launches use.
    pub(crate) multiprocessors: u32,
    pub(crate) pool: u64,
    pub(crate) pool_bytes: usize,
    scratch: (u64, usize),
    pub(crate) table: DriverTable,
    stream: CUstream,
    events: [CUevent; 2],
    modules: RefCell<HashMap<&'static str, CUmodule>>,
    /// Keeps the simulated machine alive.
    _simulator: Option<Simulator>,
}

/// The work of one measurement.
pub(crate) struct Work<'a> {
    pub(crate) launches: &'a [Launch<u64>],
    pub(crate) dispatch: Dispatch,
    /// Launches in the graph, which cycle through the operands.
    pub(crate) batch: usize,
    pub(crate) samples: usize,
    /// Runs the same launches for half of this many seconds before timing, so that clocks settle at
    /// the power limit.
    pub(crate) sustained: Option<f64>,
}

/// Calls a driver function and panics with its code if it fails.
macro_rules! call {
    ($table:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: every pointer is valid for the duration of the call, which has completed or
        // copied its operands when it returns; handles are live.
        let code = unsafe { ($table.$function)($($argument),*) };
        assert_eq!(code, CUresult::CUDA_SUCCESS, stringify!($function));
    }};
}

/// A context with at least `count` SMs, which lives as long as the process.
fn green_context(
    table: &DriverTable,
    device: CUdevice,
    count: u32,
) -> Result<CUcontext, Box<dyn std::error::Error>> {
    const MISSING: &str = "green contexts need CUDA 12.4 or newer";
    let (mut all, mut part) = (CUdevResource::default(), CUdevResource::default());
    let (mut groups, mut description) = (1, CUdevResourceDesc::NULL);
    let (mut green, mut context) = (CUgreenCtx::NULL, CUcontext::NULL);
    let of_device = table.cuDeviceGetDevResource.ok_or(MISSING)?;
    let split = table.cuDevSmResourceSplitByCount.ok_or(MISSING)?;
    let describe = table.cuDevResourceGenerateDesc.ok_or(MISSING)?;
    let create = table.cuGreenCtxCreate.ok_or(MISSING)?;
    let convert = table.cuCtxFromGreenCtx.ok_or(MISSING)?;
    let (none, kind) = (std::ptr::null_mut(), CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM);
    // SAFETY: all pointers are valid, and each call succeeds before its result is used.
    unsafe {
        of_device(device, &mut all, kind).ok()?;
        split(&mut part, &mut groups, &all, none, 0, count).ok()?;
        describe(&mut description, &mut part, 1).ok()?;
        create(&mut green, description, device, CU_GREEN_CTX_DEFAULT_STREAM).ok()?;
        convert(&mut context, green).ok()?;
    }
    Ok(context)
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, multiprocessors, target, .. } = self;
        write!(f, "{name}, {multiprocessors} SMs, images for {target}")
    }
}

impl Device {
    /// The first GPU or about `multiprocessors` SMs of it, or a simulated one.
    pub(crate) fn open(
        simulate: bool,
        multiprocessors: Option<u32>,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let simulator = if simulate { Some(Simulator::new(Config::default())?) } else { None };
        let table = match &simulator {
            Some(simulator) => *simulator.table(),
            None => DriverTable::load()?,
        };
        let (mut device, mut context, mut name) = (0, CUcontext::NULL, [0; 128]);
        let (mut major, mut minor) = (0, 0);
        call!(table, cuInit(0));
        call!(table, cuDeviceGet(&mut device, 0));
        call!(table, cuDeviceGetName(name.as_mut_ptr(), name.len() as i32, device));
        let [of_major, of_minor] = [
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        ];
        call!(table, cuDeviceGetAttribute(&mut major, of_major, device));
        call!(table, cuDeviceGetAttribute(&mut minor, of_minor, device));
        match multiprocessors {
            None => call!(table, cuDevicePrimaryCtxRetain(&mut context, device)),
            Some(count) => context = green_context(&table, device, count)?,
        }
        call!(table, cuCtxSetCurrent(context));
        let of_context = table.cuCtxGetDevResource.ok_or("CUDA 12.4 or newer is needed")?;
        let mut resource = CUdevResource::default();
        // SAFETY: the context is live, and the out pointer is valid.
        unsafe { of_context(context, &mut resource, CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM) }
            .ok()?;
        // SAFETY: the resource has this type.
        let multiprocessors = unsafe { resource.anonymous.sm }.smCount;
        let mut stream = CUstream::NULL;
        // 1: CU_STREAM_NON_BLOCKING.
        call!(table, cuStreamCreate(&mut stream, 1));
        let events = [CUevent::NULL; 2].map(|mut event| {
            call!(table, cuEventCreate(&mut event, 0));
            event
        });
        let bytes = if simulate { [1 << 20; 2] } else { [POOL, SCRATCH] };
        let [pool, scratch] = bytes.map(|bytes| {
            let mut address = 0;
            call!(table, cuMemAlloc_v2(&mut address, bytes));
            address
        });
        // SAFETY: the call terminated the name with a NUL.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        let target = SmTarget::for_device(major as u32, minor as u32)
            .ok_or_else(|| format!("no images for compute capability {major}.{minor}"))?;
        let device = Self {
            name,
            target,
            multiprocessors,
            pool,
            pool_bytes: bytes[0],
            scratch: (scratch, bytes[1]),
            table,
            stream,
            events,
            modules: RefCell::default(),
            _simulator: simulator,
        };
        device.fill(false);
        Ok(device)
    }

    /// Fills the pool with numbers between −1 and 1, as f32 or as bf16. Power, and thus clocks,
    /// depend on the bits: zeros or arbitrary bits would distort times.
    pub(crate) fn fill(&self, bf16: bool) {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        let block: Vec<u32> = (0..self.pool_bytes.min(16 << 20) / 4)
            .map(|_| match bf16 {
                false => next().to_bits(),
                true => {
                    let [low, high] =
                        [next(), next()].map(|v| u32::from(half::bf16::from_f32(v).to_bits()));
                    low | high << 16
                }
            })
            .collect();
        for at in (0..self.pool_bytes).step_by(block.len() * 4) {
            let (to, bytes) = (self.pool + at as u64, (block.len() * 4).min(self.pool_bytes - at));
            call!(self.table, cuMemcpyHtoDAsync_v2(to, block.as_ptr().cast(), bytes, self.stream));
        }
        call!(self.table, cuStreamSynchronize(self.stream));
    }

    /// Returns the seconds that a launch takes: the median over samples.
    pub(crate) fn time(&self, work: &Work<'_>) -> f64 {
        let (graph, exec) = self.graph(work);
        let median = |replays, samples: usize| {
            let sample = |sample| self.sample(exec, replays, sample) / work.batch as f64;
            // The first two are warm-up.
            let mut seconds: Vec<f64> = (0..samples + 2).map(sample).skip(2).collect();
            seconds.sort_by(f64::total_cmp);
            seconds[seconds.len() / 2]
        };
        let mut seconds = median(1, work.samples);
        if let Some(sustained) = work.sustained {
            let launches = sustained / (2 * work.samples) as f64 / seconds;
            let replays = (launches / work.batch as f64).ceil() as u32;
            median(replays * work.samples as u32, 1);
            seconds = median(replays, work.samples);
        }
        call!(self.table, cuGraphExecDestroy(exec));
        call!(self.table, cuGraphDestroy(graph));
        seconds
    }

    /// Builds a graph of the launches, one after the other.
    fn graph(&self, work: &Work<'_>) -> (CUgraph, CUgraphExec) {
        let kernel = work.launches[0].kernel();
        let function = self.function(kernel.image, work.dispatch.entry);
        let (table, mut graph, mut exec) = (&self.table, CUgraph::NULL, CUgraphExec::NULL);
        call!(table, cuGraphCreate(&mut graph, 0));
        let mut previous = None;
        for launch in work.launches.iter().cycle().take(work.batch) {
            let node = self.add_node(graph, function, launch, work.dispatch);
            if let Some(previous) = previous.replace(node) {
                self.add_edge(graph, previous, node);
            }
        }
        call!(table, cuGraphInstantiateWithFlags(&mut exec, graph, 0));
        (graph, exec)
    }

    fn add_node(
        &self,
        graph: CUgraph,
        function: CUfunction,
        launch: &Launch<u64>,
        dispatch: Dispatch,
    ) -> CUgraphNode {
        let value = |argument| {
            argument_bytes::bytes(&self.table, argument, |_| unreachable!("GEMMs take no tables"))
        };
        let mut values: Vec<_> = launch.arguments().iter().map(value).collect();
        let mut pointers: Vec<*mut c_void> =
            values.iter_mut().map(|value| std::ptr::from_mut(value).cast()).collect();
        let ([gx, gy, gz], [bx, by, bz]) = (dispatch.grid, dispatch.block);
        let parameters = CUDA_KERNEL_NODE_PARAMS {
            func: function,
            gridDimX: gx,
            gridDimY: gy,
            gridDimZ: gz,
            blockDimX: bx,
            blockDimY: by,
            blockDimZ: bz,
            sharedMemBytes: dispatch.shared_bytes,
            kernelParams: pointers.as_mut_ptr(),
            ..CUDA_KERNEL_NODE_PARAMS::default()
        };
        let mut node = CUgraphNode::NULL;
        let none = std::ptr::null();
        call!(
            self.table,
            cuGraphAddKernelNode_v2(&mut node, graph, none, 0, &raw const parameters)
        );
        node
    }

    /// Adds an edge, a programmatic one if kernels for the device support PDL.
    fn add_edge(&self, graph: CUgraph, from: CUgraphNode, to: CUgraphNode) {
        let mut data = CUgraphEdgeData::default();
        if images::supports_pdl(self.target) {
            data.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
            data.r#type = CUgraphDependencyType::CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC.0 as u8;
        }
        let add = self.table.cuGraphAddDependencies_v2.expect("a driver of CUDA 12.3 or newer");
        // SAFETY: the nodes are of this graph; kernels wait for their predecessor on such devices.
        let code = unsafe { add(graph, &raw const from, &raw const to, &raw const data, 1) };
        assert_eq!(code, CUresult::CUDA_SUCCESS, "cuGraphAddDependencies_v2");
    }

    /// Returns the seconds that some replays of a graph take.
    fn sample(&self, exec: CUgraphExec, replays: u32, sample: usize) -> f64 {
        let (table, [start, end]) = (&self.table, self.events);
        let (scratch, bytes) = self.scratch;
        call!(table, cuMemsetD32Async(scratch, sample as u32, bytes / 4, self.stream));
        call!(table, cuEventRecord(start, self.stream));
        for _ in 0..replays {
            call!(table, cuGraphLaunch(exec, self.stream));
        }
        call!(table, cuEventRecord(end, self.stream));
        call!(table, cuEventSynchronize(end));
        let mut milliseconds = 0.0;
        call!(table, cuEventElapsedTime(&mut milliseconds, start, end));
        f64::from(milliseconds) / 1e3 / f64::from(replays)
    }

    /// The text of an image.
    fn ptx(&self, image: &str) -> String {
        let replaced = std::env::var_os("RETROGRAPH_PTX_DIR")
            .map(|dir| Path::new(&dir).join(format!("{image}.ptx")))
            .filter(|path| path.exists());
        match replaced {
            Some(path) => std::fs::read_to_string(path).expect("a readable PTX file"),
            None => images::ptx(image, self.target).expect("an image for every kernel").to_string(),
        }
    }

    fn function(&self, image: &'static str, entry: &str) -> CUfunction {
        let mut modules = self.modules.borrow_mut();
        let module = *modules.entry(image).or_insert_with(|| {
            let text = CString::new(self.ptx(image)).expect("PTX has no zero byte");
            let mut module = CUmodule::NULL;
            call!(self.table, cuModuleLoadData(&mut module, text.as_ptr().cast()));
            module
        });
        let (name, mut function) =
            (CString::new(entry).expect("names have no zero byte"), CUfunction::NULL);
        call!(self.table, cuModuleGetFunction(&mut function, module, name.as_ptr()));
        let shared = images::dynamic_shared(entry, self.target) as i32;
        if shared > 0 {
            let limit = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            call!(self.table, cuFuncSetAttribute(function, limit, shared));
        }
        function
    }
}
