//! Between the queue and the executor: a launch runs, and a fault becomes a code.

use retrograph_driver_sys::CUresult;

use crate::config::Config;
use crate::exec::{self, Fault, FaultKind};
use crate::memory::Memory;
use crate::work::{Failure, Launch};

/// Runs a launch to its end.
pub(crate) fn run(
    launch: &Launch,
    memory: &Memory,
    config: &Config,
    seed: u64,
) -> Result<(), Failure> {
    let request = exec::Launch {
        grid: launch.grid,
        block: launch.block,
        shared_bytes: launch.shared_bytes,
        parameters: &launch.parameters.block,
        threads: config.threads,
        races: config.detect_races,
        seed,
        ..exec::Launch::default()
    };
    exec::launch(&launch.program, &request, memory).map(|_| ()).map_err(|fault| failure(&fault))
}

/// The code that hardware gives for a fault.
fn failure(fault: &Fault) -> Failure {
    let (code, undefined) = match fault.kind {
        FaultKind::OutOfBounds { .. } => (CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, false),
        FaultKind::Misaligned { .. } => (CUresult::CUDA_ERROR_MISALIGNED_ADDRESS, false),
        FaultKind::Trap => (CUresult::CUDA_ERROR_LAUNCH_FAILED, false),
        // Hardware would hang until a watchdog or a person ends the process; a sticky code is the
        // nearest thing that a program can meet.
        FaultKind::StepLimit { .. } => (CUresult::CUDA_ERROR_LAUNCH_FAILED, true),
        FaultKind::BarrierDivergence | FaultKind::Race { .. } | FaultKind::Undefined { .. } => {
            (CUresult::CUDA_ERROR_LAUNCH_FAILED, true)
        }
    };
    Failure { code, message: fault.to_string(), undefined }
}
