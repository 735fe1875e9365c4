//! Runs queued launches in the executor and converts faults to result codes.

use std::time::Duration;

use retrograph_driver_sys::CUresult;
use retrograph_ptx_exec::memory::Memory;
use retrograph_ptx_exec::{self as exec, Fault, FaultKind};

use crate::diagnostic::Finding;
use crate::timeline::kernel_duration;
use crate::work::{Failure, Launch};

/// Runs a launch to completion and returns its duration. `base` has the arguments that do not come
/// from the launch.
pub(crate) fn run(
    launch: &Launch,
    memory: &Memory,
    base: exec::Launch<'_>,
) -> Result<Duration, Failure> {
    let request = exec::Launch {
        grid: launch.grid,
        block: launch.block,
        cluster: launch.cluster,
        is_cooperative: launch.is_cooperative,
        shared_bytes: launch.shared_bytes,
        parameters: &launch.parameters.block,
        ..base
    };
    match exec::launch(&launch.program, &request, memory) {
        Ok(stats) => Ok(kernel_duration(stats.warp_instructions)),
        Err(fault) => Err(failure(&fault)),
    }
}

/// Returns the failure that a fault causes on hardware.
fn failure(fault: &Fault) -> Failure {
    let code = match fault.kind {
        FaultKind::OutOfBounds { .. } | FaultKind::OutsideGraph => {
            CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
        }
        FaultKind::OtherBlock { .. } => CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION,
        FaultKind::Misaligned { .. } => CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
        FaultKind::Trap => CUresult::CUDA_ERROR_LAUNCH_FAILED,
        FaultKind::Assertion { .. } => CUresult::CUDA_ERROR_ASSERT,
        // Undefined behaviour. At a step limit hardware would hang until a watchdog or a person
        // ends the process.
        _ => return Failure::Undefined(Finding::of(fault)),
    };
    Failure::Fault(code, Finding::of(fault))
}
