//! `Send` and `Sync` of every public type.

use retrograph_driver::*;

use crate::support::thread_safety::{assert_complete, assert_threads};

assert_threads! {
    // Any thread may use them, several at a time.
    shared {
        CallError, CaptureError, CaptureInvalidation, CaptureMode, CapturedNodes, Context,
        DeviceBuffer<f32>, DeviceIndex, DeviceInfo, DeviceScalar<f32>, Driver, DriverVersion, Error,
        Event, FirstFailure, Function, GraphExec, GraphReport, KernelArguments,
        KernelLaunch<'static>, KernelTime, LaunchAttributes, LaunchGeometry, LoadError,
        MemcpyParams, MemoryPool, MemsetParams, Module, Node, NodeKind, OperationTime, Origin,
        Owner, PhaseTime, PinnedBuffer<f32>, PoolSeal, PoolUse, Profile, Result<u8>, Stream,
        TensorMap, TensorMapLayout, TensorMapSwizzle, TensorMapType, UpdateOutcome,
    }
    // The driver does not guard a template against concurrent use.
    sent { Graph }
    // Only the thread that began a capture may end it; a lock stays on its thread. An energy
    // counter holds a handle of NVML.
    stay { Capturing<'static>, EnergyCounter, OutsideCapture<'static> }
}

#[test]
fn every_public_type_is_checked_for_send_and_sync() {
    assert_complete(include_str!("../../src/lib.rs"), NAMES);
}
