//! A simulated machine with a current context, and short forms of common calls.

use std::ffi::{CStr, c_void};

use retrograph_driver_sim::{Config, DiagnosticKind, Simulator};
use retrograph_driver_sys::*;

use crate::ptx;

/// Calls a function of the driver.
macro_rules! cu {
    ($machine:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        let driver = $machine.simulator.table();
        // SAFETY: every pointer that the tests pass is valid during its call.
        unsafe { (driver.$name)($($argument),*) }
    }};
}
pub(crate) use cu;

/// Calls an optional function of the driver.
macro_rules! cu_optional {
    ($machine:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        let function = $machine.simulator.table().$name().expect("a function of this driver");
        // SAFETY: every pointer that the tests pass is valid during its call.
        unsafe { function($($argument),*) }
    }};
}
pub(crate) use cu_optional;

/// A machine whose context is current on its creating thread.
pub(crate) struct Machine {
    pub(crate) simulator: Simulator,
    pub(crate) context: CUcontext,
    pub(crate) module: CUmodule,
}

/// Returns `config` after `change`.
pub(crate) fn with(mut config: Config, change: impl FnOnce(&mut Config)) -> Config {
    change(&mut config);
    config
}

/// The configuration of a small machine.
fn small() -> Config {
    with(Config::default(), |it| {
        it.memory_bytes = 1 << 24;
        it.threads = 1;
    })
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self::with(small())
    }

    pub(crate) fn seeded(seed: u64) -> Self {
        Self::with(with(small(), |it| it.seed = seed))
    }

    /// Errors need no recorded trace.
    pub(crate) fn trusting() -> Self {
        Self::with(with(small(), |it| it.attested_only = false))
    }

    pub(crate) fn with(config: Config) -> Self {
        let simulator = Simulator::new(config).expect("a valid configuration");
        let (context, module) = (CUcontext::NULL, CUmodule::NULL);
        let mut machine = Self { simulator, context, module };
        let mut context = CUcontext::NULL;
        assert_eq!(cu!(machine, cuInit(0)), CUresult::CUDA_SUCCESS);
        assert_eq!(cu!(machine, cuDevicePrimaryCtxRetain(&mut context, 0)), CUresult::CUDA_SUCCESS);
        machine.context = context;
        machine.enter();
        let image = ptx::module();
        machine.module = machine.load(&image).expect("the kernels of the tests load");
        machine
    }

    /// Makes the context current on the calling thread.
    pub(crate) fn enter(&self) {
        assert_eq!(cu!(self, cuCtxSetCurrent(self.context)), CUresult::CUDA_SUCCESS);
    }

    pub(crate) fn load(&self, image: &CStr) -> Result<CUmodule, CUresult> {
        let mut module = CUmodule::NULL;
        cu!(self, cuModuleLoadData(&mut module, image.as_ptr().cast())).ok()?;
        Ok(module)
    }

    pub(crate) fn function(&self, name: &CStr) -> CUfunction {
        let mut function = CUfunction::NULL;
        let code = cu!(self, cuModuleGetFunction(&mut function, self.module, name.as_ptr()));
        assert_eq!(code, CUresult::CUDA_SUCCESS, "{name:?}");
        function
    }

    /// A non-blocking stream.
    pub(crate) fn stream(&self) -> CUstream {
        self.stream_with(CU_STREAM_NON_BLOCKING)
    }

    pub(crate) fn stream_with(&self, flags: u32) -> CUstream {
        let mut stream = CUstream::NULL;
        assert_eq!(cu!(self, cuStreamCreate(&mut stream, flags)), CUresult::CUDA_SUCCESS);
        stream
    }

    pub(crate) fn event(&self) -> CUevent {
        let mut event = CUevent::NULL;
        assert_eq!(cu!(self, cuEventCreate(&mut event, 0)), CUresult::CUDA_SUCCESS);
        event
    }

    /// Device words with given values.
    pub(crate) fn words(&self, values: &[u32]) -> CUdeviceptr {
        let mut address = 0;
        let bytes = size_of_val(values);
        assert_eq!(cu!(self, cuMemAlloc_v2(&mut address, bytes)), CUresult::CUDA_SUCCESS);
        let code = cu!(self, cuMemcpyHtoD_v2(address, values.as_ptr().cast(), bytes));
        assert_eq!(code, CUresult::CUDA_SUCCESS);
        assert_eq!(cu!(self, cuStreamSynchronize(CUstream::NULL)), CUresult::CUDA_SUCCESS);
        address
    }

    /// One device word that holds 0.
    pub(crate) fn zero(&self) -> CUdeviceptr {
        self.words(&[0])
    }

    /// The current word in memory, without waiting for non-blocking streams.
    pub(crate) fn peek(&self, address: CUdeviceptr) -> u32 {
        let mut word = 0u32;
        let code = cu!(self, cuMemcpyDtoH_v2((&raw mut word).cast(), address, 4));
        assert_eq!(code, CUresult::CUDA_SUCCESS);
        word
    }

    /// Pinned words with given values.
    pub(crate) fn pinned(&self, values: &[u32]) -> *mut u32 {
        let mut pointer: *mut c_void = std::ptr::null_mut();
        let code = cu!(self, cuMemAllocHost_v2(&mut pointer, size_of_val(values)));
        assert_eq!(code, CUresult::CUDA_SUCCESS);
        let words = pointer.cast::<u32>();
        for (index, value) in values.iter().enumerate() {
            // SAFETY: the allocation holds all values.
            unsafe { words.add(index).write(*value) };
        }
        words
    }

    /// Launches one thread of a kernel with parameters address and word.
    pub(crate) fn launch(
        &self,
        kernel: &CStr,
        address: CUdeviceptr,
        word: u32,
        stream: CUstream,
    ) -> CUresult {
        let function = self.function(kernel);
        let (mut address, mut word) = (address, word);
        let mut list = [(&raw mut address).cast::<c_void>(), (&raw mut word).cast()];
        let (list, none) = (list.as_mut_ptr(), std::ptr::null_mut());
        cu!(self, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, list, none))
    }

    pub(crate) fn append(&self, address: CUdeviceptr, digit: u32, stream: CUstream) -> CUresult {
        self.launch(c"append", address, digit, stream)
    }

    pub(crate) fn sync(&self, stream: CUstream) -> CUresult {
        cu!(self, cuStreamSynchronize(stream))
    }

    pub(crate) fn begin(&self, stream: CUstream) -> CUresult {
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        cu!(self, cuStreamBeginCapture_v2(stream, mode))
    }

    /// Ends a capture. Returns the code and the graph.
    pub(crate) fn end(&self, stream: CUstream) -> (CUresult, CUgraph) {
        // Not null, to detect a call that writes nothing.
        let mut graph = CUgraph(std::ptr::without_provenance_mut(1));
        let code = cu!(self, cuStreamEndCapture(stream, &mut graph));
        (code, graph)
    }

    pub(crate) fn status(&self, stream: CUstream) -> CUstreamCaptureStatus {
        let mut status = CUstreamCaptureStatus(u32::MAX);
        let code = cu!(self, cuStreamIsCapturing(stream, &mut status));
        assert_eq!(code, CUresult::CUDA_SUCCESS);
        status
    }

    pub(crate) fn instantiate(&self, graph: CUgraph) -> Result<CUgraphExec, CUresult> {
        let mut exec = CUgraphExec::NULL;
        cu!(self, cuGraphInstantiateWithFlags(&mut exec, graph, 0)).ok()?;
        Ok(exec)
    }

    pub(crate) fn diagnostics(&self, kind: DiagnosticKind) -> Vec<String> {
        let all = self.simulator.diagnostics().into_iter();
        all.filter(|diagnostic| diagnostic.kind == kind).map(|d| d.to_string()).collect()
    }
}
