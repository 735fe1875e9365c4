//! Launches: geometry is checked and parameter values are copied at the call.

use std::ffi::c_void;
use std::sync::Arc;

use retrograph_driver_sys::*;

use super::device::MULTIPROCESSORS;
use super::functions::most_threads;
use crate::argument::{Admit, Call, In, Out};
use crate::exec::Program;
use crate::memory::POISON;
use crate::refusal::{Refusal, invalid, refuse};
use crate::state::{Function, Route, State};
use crate::work::{Launch, Operation, Parameters};

/// Keys of the `extra` list: its end, the address of a parameter block, the address of its size.
const EXTRA_END: usize = 0;
const EXTRA_BLOCK: usize = 1;
const EXTRA_SIZE: usize = 2;

/// What a caller says of a launch.
pub(super) struct Request {
    pub(super) function: CUfunction,
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) shared_bytes: u32,
    pub(super) parameters: Out<*mut c_void>,
    pub(super) extra: Out<*mut c_void>,
    /// The cluster that an attribute asks for.
    pub(super) cluster: Option<[u32; 3]>,
}

impl Request {
    /// The launch that node parameters describe.
    pub(super) fn of_node(given: &CUDA_KERNEL_NODE_PARAMS) -> Self {
        // SAFETY: the pointers in node parameters obey the same contract as arguments: null, or
        // valid during the call for as many elements as the kernel has parameters.
        let (parameters, extra) = unsafe { (given.kernelParams.admit(), given.extra.admit()) };
        Self {
            function: given.func,
            grid: [given.gridDimX, given.gridDimY, given.gridDimZ],
            block: [given.blockDimX, given.blockDimY, given.blockDimZ],
            shared_bytes: given.sharedMemBytes,
            parameters,
            extra,
            cluster: None,
        }
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
        let request =
            Request { function, grid, block, shared_bytes, parameters, extra, cluster: None };
        self.launch_request(stream, &request)
    }

    /// Checks a launch and puts it on a stream.
    pub(super) fn launch_request(&mut self, stream: CUstream, request: &Request) -> Call {
        let launch = match self.launch_on(stream, request) {
            Ok(launch) => launch,
            Err(refusal) => return Err(self.fail_launch(stream, request, refusal)),
        };
        self.submit(stream, Operation::Launch(launch)).map(|_| ())
    }

    /// A launch that fails for another reason than its function or missing parameters breaks the
    /// capture of its stream.
    fn fail_launch(&mut self, stream: CUstream, request: &Request, refusal: Refusal) -> Refusal {
        const OF_PARAMETERS: [&str; 5] =
            ["argument.get_at", "launch.both", "launch.extra", "launch.key", "launch.long_block"];
        let is_parameters = OF_PARAMETERS.contains(&refusal.rule);
        let known = self.functions.contains(request.function) && refusal.stops.is_none();
        let known = known && !is_parameters;
        let route = if known { self.route(stream) } else { return refusal };
        match route {
            Ok(Route::Capture(_, capture)) => {
                let _ = self.break_capture(capture, refusal.code);
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
        // SAFETY: null is a valid list.
        let extra = unsafe { std::ptr::null_mut::<*mut c_void>().admit() };
        let request =
            Request { function, grid, block, shared_bytes, parameters, extra, cluster: None };
        self.resolve(stream)?;
        self.check_cooperative(&request)?;
        self.launch_request(stream, &request)
    }

    /// Refuses grids whose blocks do not all fit on the device at a time.
    pub(super) fn check_cooperative(&mut self, request: &Request) -> Call {
        let function = self.resolved(request.function)?;
        check_geometry(request)?;
        let found = self.functions.get(function)?;
        let threads = request.block.iter().product::<u32>();
        if threads > most_threads(found) {
            return Err(invalid("launch.bound"));
        }
        let resident = self.resident_blocks(found, threads, u64::from(request.shared_bytes));
        let most = u64::from(resident) * u64::from(MULTIPROCESSORS.unsigned_abs());
        let blocks: u64 = request.grid.iter().map(|&size| u64::from(size)).product();
        if blocks > most {
            let code = CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
            return Err(refuse(code, "launch.cooperative"));
        }
        Ok(())
    }

    /// Checks a launch on a stream, which must be of the function's context.
    pub(super) fn launch_on(
        &mut self,
        stream: CUstream,
        request: &Request,
    ) -> Result<Launch, Refusal> {
        let device = self.device_of_stream(stream)?;
        let function = self.resolved(request.function)?;
        if self.functions.get(function)?.device != device {
            return Err(refuse(CUresult::CUDA_ERROR_INVALID_HANDLE, "launch.foreign"));
        }
        self.launch_of(request)
    }

    /// Checks a launch and copies its parameter values.
    pub(super) fn launch_of(&mut self, request: &Request) -> Result<Launch, Refusal> {
        let function = self.resolved(request.function)?;
        check_geometry(request)?;
        let found = self.functions.get(function)?;
        let threads = request.block.iter().product::<u32>();
        if threads > most_threads(found) {
            return Err(invalid("launch.bound"));
        }
        let required = found.program.entry().limits.required_threads;
        if required.is_some_and(|required| required != request.block) {
            return Err(invalid("launch.required"));
        }
        check_own_cluster(request, found)?;
        if request.shared_bytes > found.dynamic_shared_limit {
            return Err(invalid("launch.shared"));
        }
        let program = Arc::clone(&found.program);
        let parameters = match parameters_of(request, &program) {
            Err(Refusal::UNDEFINED) => {
                return Err(self.undefined("the size of a parameter block is read through null"));
            }
            other => other?,
        };
        Ok(Launch {
            function,
            program,
            grid: request.grid,
            block: request.block,
            shared_bytes: request.shared_bytes,
            parameters,
        })
    }
}

/// The limits of every device that is simulated.
fn check_geometry(request: &Request) -> Call {
    let within = |sizes: [u32; 3], most: [u32; 3]| {
        sizes.iter().zip(most).all(|(size, most)| (1..=most).contains(size))
    };
    let threads: u64 = request.block.iter().map(|&size| u64::from(size)).product();
    let fits = within(request.grid, [i32::MAX as u32, 65535, 65535])
        && within(request.block, [1024, 1024, 64])
        && threads <= 1024;
    if fits { Ok(()) } else { Err(invalid("launch.geometry")) }
}

/// Refuses launches that do not fit the clusters which the function demands.
fn check_own_cluster(request: &Request, found: &Function) -> Call {
    let limits = found.program.entry().limits;
    let own = found.cluster.map(i32::cast_unsigned);
    let own = (own != [0; 3]).then_some(own.map(|size| size.max(1)));
    let blocks: u32 = request.cluster.unwrap_or([1; 3]).iter().product();
    let fits = match (own, request.cluster) {
        (Some(own), Some(asked)) => own == asked,
        (Some(own), None) => {
            request.grid.iter().zip(own).all(|(size, part)| size.is_multiple_of(part))
        }
        (None, asked) => asked.is_some() || !limits.explicit_cluster,
    };
    if !fits || limits.max_cluster_rank.is_some_and(|most| blocks > most) {
        let code = CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE;
        return Err(refuse(code, "launch.own_cluster"));
    }
    Ok(())
}

fn parameters_of(request: &Request, program: &Program) -> Result<Parameters, Refusal> {
    let layout = program.parameters();
    let size = program.parameter_bytes() as usize;
    if !request.parameters.is_null() && !request.extra.is_null() {
        return Err(invalid("launch.both"));
    }
    let block = if !request.extra.is_null() {
        block_of_extra(request.extra, size)?
    } else {
        let mut block = vec![0; size];
        for (index, (offset, bytes)) in layout.iter().enumerate() {
            let (start, bytes) = (*offset as usize, *bytes as usize);
            let value = request.parameters.values().get_at(index)?;
            block[start..start + bytes].copy_from_slice(&input(value).bytes(bytes)?);
        }
        block
    };
    let offsets = layout.iter().map(|(offset, _)| *offset as usize).collect();
    Ok(Parameters { block: block.into(), offsets })
}

/// The parameter block that an `extra` list names. What a block that is too short leaves open is
/// poisoned.
fn block_of_extra(extra: Out<*mut c_void>, size: usize) -> Result<Vec<u8>, Refusal> {
    let (mut block, mut given) = (None, None);
    for index in (0..).step_by(2) {
        let key = extra.values().get_at(index)?.addr();
        match key {
            EXTRA_END => break,
            EXTRA_BLOCK => block = Some(extra.values().get_at(index + 1)?),
            EXTRA_SIZE => {
                let place = extra.values().get_at(index + 1)?;
                if place.is_null() {
                    return Err(Refusal::UNDEFINED);
                }
                let bytes = input(place).bytes(size_of::<usize>())?;
                let bytes = bytes.try_into().map_err(|_| invalid("launch.extra"))?;
                given = Some(usize::from_ne_bytes(bytes));
            }
            _ => return Err(invalid("launch.key")),
        }
    }
    let (block, given) = block.zip(given).ok_or(invalid("launch.extra"))?;
    if given > size {
        let code = CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
        return Err(refuse(code, "launch.long_block"));
    }
    if given == 0 && size > 0 {
        return Err(invalid("launch.extra"));
    }
    let mut bytes = input(block).bytes(given)?;
    bytes.extend(POISON.to_le_bytes().iter().cycle().take(size - given));
    Ok(bytes)
}

/// A pointer inside the parameters of a launch, as an input.
fn input(pointer: *mut c_void) -> In<c_void> {
    // SAFETY: what a parameter list points to is valid during the call, as the list itself is.
    unsafe { pointer.cast_const().admit() }
}
