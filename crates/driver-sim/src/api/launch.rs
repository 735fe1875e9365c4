//! Kernel launches. The call checks the geometry and copies the parameter values.

use std::ffi::c_void;
use std::sync::Arc;

use retrograph_driver_sys::*;

use super::device::MULTIPROCESSORS;
use super::functions::max_threads_of;
use crate::argument::{Admit, Call, Out};
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::{Route, State};
use crate::work::{Launch, Operation};

/// The arguments of a launch.
pub(super) struct LaunchRequest {
    pub(super) function: CUfunction,
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) shared_bytes: u32,
    pub(super) parameters: Out<*mut c_void>,
    pub(super) extra: Out<*mut c_void>,
    /// The requested cluster size.
    pub(super) cluster: Option<[u32; 3]>,
    /// Whether the launch is cooperative: all blocks must be resident.
    pub(super) is_cooperative: bool,
}

impl LaunchRequest {
    /// A launch without parameters and attributes.
    pub(super) fn new(
        function: CUfunction,
        grid: [u32; 3],
        block: [u32; 3],
        shared_bytes: u32,
    ) -> Self {
        Self {
            function,
            grid,
            block,
            shared_bytes,
            parameters: Out::NULL,
            extra: Out::NULL,
            cluster: None,
            is_cooperative: false,
        }
    }

    /// The launch of kernel node parameters.
    pub(super) fn of_node(given: &CUDA_KERNEL_NODE_PARAMS) -> Self {
        // SAFETY: like arguments, the pointers in node parameters are null or valid during the call
        // for one element per kernel parameter.
        let (parameters, extra) = unsafe { (given.kernelParams.admit(), given.extra.admit()) };
        let grid = [given.gridDimX, given.gridDimY, given.gridDimZ];
        let block = [given.blockDimX, given.blockDimY, given.blockDimZ];
        Self { parameters, extra, ..Self::new(given.func, grid, block, given.sharedMemBytes) }
    }

    /// The geometry of a launch configuration, without function, parameters and attributes.
    pub(super) fn of_config(given: &CUlaunchConfig) -> Self {
        let grid = [given.gridDimX, given.gridDimY, given.gridDimZ];
        let block = [given.blockDimX, given.blockDimY, given.blockDimZ];
        Self::new(CUfunction::NULL, grid, block, given.sharedMemBytes)
    }
}

impl State {
    #[expect(clippy::too_many_arguments, reason = "the signature is the driver's")]
    pub(crate) fn cuLaunchKernel(
        &mut self,
        function: CUfunction,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        shared_bytes: u32,
        stream: CUstream,
        parameters: Out<*mut c_void>,
        extra: Out<*mut c_void>,
    ) -> Call {
        let grid = [grid_x, grid_y, grid_z];
        let block = [block_x, block_y, block_z];
        let request = LaunchRequest::new(function, grid, block, shared_bytes);
        let request = LaunchRequest { parameters, extra, ..request };
        self.launch_request(stream, &request)?;
        self.invalidate_legacy(function);
        Ok(())
    }

    /// Checks a launch and queues or captures it.
    pub(super) fn launch_request(&mut self, stream: CUstream, request: &LaunchRequest) -> Call {
        let launch = match self.launch_on(stream, request) {
            Ok(launch) => launch,
            Err(refusal) => return Err(self.fail_launch(stream, request, refusal)),
        };
        self.submit(stream, Operation::Launch(launch))?;
        self.keep_attributes(stream, request)
    }

    /// The node of the launch that was just captured; `None` if the stream does not capture.
    fn captured_launch(&mut self, stream: CUstream) -> Result<Option<CUgraphNode>, Refusal> {
        let Route::Capture(stream, _) = self.route(stream)? else { return Ok(None) };
        let member = self.streams.get(stream)?.member.as_ref();
        Ok(member.and_then(|member| member.dependencies.first().copied()))
    }

    /// Makes the edges from kernels to the node of a captured launch programmatic.
    ///
    /// Source: "Use in CUDA Graphs" of programmatic dependent launch in the CUDA programming guide,
    /// which does not say what becomes of edges from other nodes: they stay full dependencies.
    pub(super) fn keep_programmatic_edges(&mut self, stream: CUstream) -> Call {
        let Some(node) = self.captured_launch(stream)? else { return Ok(()) };
        let programmatic = CUgraphEdgeData {
            from_port: CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
            r#type: CUgraphDependencyType::CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC.0 as u8,
            ..CUgraphEdgeData::default()
        };
        for from in self.nodes.get(node)?.dependencies.clone() {
            if self.is_kernel(from)? {
                self.nodes.get_mut(node)?.edge_data.insert(from, programmatic);
            }
        }
        Ok(())
    }

    /// Gives the node of a captured launch the attributes of the launch.
    fn keep_attributes(&mut self, stream: CUstream, request: &LaunchRequest) -> Call {
        use CUlaunchAttributeID as A;
        let Some(node) = self.captured_launch(stream)? else { return Ok(()) };
        let attributes = &mut self.nodes.get_mut(node)?.attributes;
        let mut keep = |attribute: A, words: &[u32]| {
            let mut value = [0; 64];
            for (place, word) in value.chunks_exact_mut(4).zip(words) {
                place.copy_from_slice(&word.to_ne_bytes());
            }
            attributes.insert(attribute.0, value);
        };
        if request.is_cooperative {
            keep(A::CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &[1]);
        }
        if let Some(cluster) = request.cluster {
            keep(A::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &cluster);
        }
        Ok(())
    }

    /// Invalidates the capture of the stream of a failed launch, unless it failed for its function,
    /// its context or missing parameters.
    fn fail_launch(
        &mut self,
        stream: CUstream,
        request: &LaunchRequest,
        refusal: Refusal,
    ) -> Refusal {
        let keeps = refusal.rule.keeps_capture() || refusal.kind.is_some();
        let known = self.functions.contains(request.function) && !keeps;
        let route = if known { self.route(stream) } else { return refusal };
        match route {
            Ok(Route::Capture(_, capture)) => {
                let _ = self.invalidate_capture(capture, refusal.code);
                refusal
            }
            Ok(Route::Queue(_)) => refusal,
            Err(refusal) => refusal,
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the signature is the driver's")]
    pub(crate) fn cuLaunchCooperativeKernel(
        &mut self,
        function: CUfunction,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        shared_bytes: u32,
        stream: CUstream,
        parameters: Out<*mut c_void>,
    ) -> Call {
        let grid = [grid_x, grid_y, grid_z];
        let block = [block_x, block_y, block_z];
        let request = LaunchRequest::new(function, grid, block, shared_bytes);
        let request = LaunchRequest { parameters, is_cooperative: true, ..request };
        self.launch_request(stream, &request)
    }

    /// Refuses a launch that exceeds the limits of the function.
    fn check_needs(&self, function: CUfunction, request: &LaunchRequest) -> Call {
        let found = self.functions.get(function)?;
        let required = found.program.entry().limits.required_threads;
        if required.is_some_and(|required| required != request.block) {
            return Err(invalid(Rule::LaunchRequired));
        }
        if request.shared_bytes > found.dynamic_shared_limit {
            return Err(invalid(Rule::LaunchShared));
        }
        Ok(())
    }

    /// Refuses a cooperative launch whose blocks cannot all be resident.
    fn check_resident(&self, function: CUfunction, request: &LaunchRequest) -> Call {
        let found = self.functions.get(function)?;
        let threads = request.block.iter().product::<u32>();
        let resident = self.resident_blocks(found, threads, u64::from(request.shared_bytes));
        let most = u64::from(resident) * u64::from(MULTIPROCESSORS.unsigned_abs());
        let blocks: u64 = request.grid.iter().map(|&size| u64::from(size)).product();
        if request.is_cooperative && blocks > most {
            let code = CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
            return Err(refuse(code, Rule::LaunchCooperative));
        }
        Ok(())
    }

    /// Checks a launch on a stream. Stream and function must have the same context.
    pub(super) fn launch_on(
        &mut self,
        stream: CUstream,
        request: &LaunchRequest,
    ) -> Result<Launch, Refusal> {
        self.check_legacy_stream(stream)?;
        let device = self.device_of_stream(stream)?;
        let function = self.resolved(request.function)?;
        if self.functions.get(function)?.device != device {
            return Err(refuse(CUresult::CUDA_ERROR_INVALID_HANDLE, Rule::LaunchOtherContext));
        }
        let launch = self.described_launch(request)?;
        let cluster = self.check_cluster(function, request)?;
        self.check_resident(function, request)?;
        self.check_needs(function, request)?;
        Ok(Launch { cluster, ..launch })
    }

    /// Checks the launch of a kernel node.
    pub(super) fn launch_of(&mut self, request: &LaunchRequest) -> Result<Launch, Refusal> {
        let launch = self.described_launch(request)?;
        let cluster = self.check_cluster(launch.function, request)?;
        self.check_needs(launch.function, request)?;
        Ok(Launch { cluster, ..launch })
    }

    /// Refuses a launch on the legacy stream during a capture, before all other checks.
    pub(super) fn check_legacy_stream(&mut self, stream: CUstream) -> Call {
        let stream = self.resolve(stream)?;
        match self.is_legacy(stream) {
            true => self.refuse_legacy_stream(stream),
            false => Ok(()),
        }
    }

    /// The launch of a request without its cluster size, with its parameter values.
    fn described_launch(&mut self, request: &LaunchRequest) -> Result<Launch, Refusal> {
        let function = self.resolved(request.function)?;
        check_geometry(request)?;
        let found = self.functions.get(function)?;
        let threads = request.block.iter().product::<u32>();
        if threads > max_threads_of(found) {
            return Err(invalid(Rule::LaunchBound));
        }
        let program = Arc::clone(&found.program);
        let parameters = self.parameters_of(request, &program)?;
        Ok(Launch {
            function,
            program,
            grid: request.grid,
            block: request.block,
            cluster: [1; 3],
            is_cooperative: request.is_cooperative,
            shared_bytes: request.shared_bytes,
            parameters,
        })
    }
}

/// Checks a geometry against the limits of every simulated device.
pub(super) fn check_geometry(request: &LaunchRequest) -> Call {
    if !within(request.grid, [i32::MAX as u32, 65535, 65535]) {
        return Err(invalid(Rule::LaunchGeometry));
    }
    check_block(request.block)
}

/// Checks a block shape against the limits of every simulated device.
pub(super) fn check_block(block: [u32; 3]) -> Call {
    let threads: u64 = block.iter().map(|&size| u64::from(size)).product();
    let fits = within(block, [1024, 1024, 64]) && threads <= 1024;
    if fits { Ok(()) } else { Err(invalid(Rule::LaunchGeometry)) }
}

fn within(sizes: [u32; 3], most: [u32; 3]) -> bool {
    sizes.iter().zip(most).all(|(size, most)| (1..=most).contains(size))
}
