//! `Send` and `Sync` of every public type.

use retrograph_runtime::*;

use crate::support::thread_safety::{assert_complete, assert_threads};

assert_threads! {
    // Any thread may use them, several at a time.
    shared {
        Access, Admission, AdmitError, Argument<BufferId>, ArgumentValue, Bindings, Buffer,
        BufferArgument<BufferId>, BufferId, BufferKind, BuildError, BuildOptions, CallError,
        CaptureError, CaptureInvalidation, CaptureMode, CapturedNodes, Cell<BufferId>,
        CollectiveGroup, CollectiveKind, Collectives, Communicator, Context, ControlError, Controls,
        Cublas, CustomImage, CustomLaunch, DType, DeviceBuffer<f32>, DeviceIndex, DeviceInfo,
        DeviceRange, DeviceScalar<f32>, Driver, DriverOverhead, DriverVersion, Edge, Edges, Error,
        Event, Explanation<'static>, FirstFailure, Function, GraphExec, GraphFailure, GraphReport,
        Hazard, ImageCode, JitAfterWarm, KernelArguments, KernelLaunch<'static>, KernelTime,
        LaunchAttributes, LaunchGeometry, LibraryCall, LibraryGemm, LibraryScope<'static>,
        LoadError, MatrixShape, MemcpyParams, MemoryPlan, MemoryPool, MemsetParams, Module,
        ModuleCache, Nccl, Node, NodeKind, OpId, Operation, OperationKind, OperationTime, Origin,
        Owner, Pass, PassError, PdlMode, PhaseTime, PinnedBuffer<f32>, Policy, PoolSeal, PoolUse,
        PrewarmError, Profile, ProfileError, Progress<'static>, Ranks, Reason, Rebound, Report,
        Requirements, Reuse, Slice<f32>, SmTarget, StepError, StepOutcome, Strategy, Stream,
        TensorMap, TensorMapArgument<BufferId>, TensorMapLayout, TensorMapSwizzle, TensorMapType,
        UniqueId, UpdateOutcome, UpdateStrategy, WarmModules,
    }
    // The driver does not guard a template against use from two threads at once, and a program
    // keeps the one that its exec was made from.
    sent { Graph, Program }
    // Only the thread that began a capture may end it. An energy counter holds a handle of NVML.
    stay { Capturing<'static>, EnergyCounter }
}

/// The types that only modules export.
mod more {
    pub(super) mod modules {
        use crate::support::thread_safety::assert_threads;
        use retrograph_runtime::modules::*;

        assert_threads! {
            shared {
                AssembleError, Assembler, Bundle, BundleBuildError, BundleEntry, BundleError,
                BundleImage, CacheDir, CacheOptions, CodeError, Compiler,
                Digest, DiskError, Function, ImageKey, ImageReport, JitAfterWarm, KernelReport,
                ModuleCache, PrewarmError, PrewarmReport, Progress<'static>, Source,
                UnsupportedDevice, CompileOptions, Warning, WarmModules, WorkerCommand,
            }
            sent {}
            stay {}
        }
    }

    pub(super) mod program {
        use crate::support::thread_safety::assert_threads;
        use retrograph_runtime::program::*;

        assert_threads! {
            shared {
                Admission, AdmitError, Bindings, Bucket<1>, Buckets, BuildError, BuildOptions,
                CacheError<u8>, CacheOptions, CacheStatistics, Choice, Described, PdlMode,
                Facts, GraphFailure, Policy, ProfileError, Quirk, Reason, Rebound,
                Collectives, Report, UpdateStrategy, ShapeError, StepError, StepOutcome, Strategy,
            }
            // They hold programs.
            sent { Cached1, ProgramCache1 }
            stay {}
        }

        type Cached1 = Cached<'static, 1, u8>;
        type ProgramCache1 = ProgramCache<1, u8>;
    }
}

#[test]
fn every_public_type_is_checked_for_send_and_sync() {
    for (source, names) in [
        (include_str!("../../src/lib.rs"), NAMES),
        (include_str!("../../src/modules/mod.rs"), more::modules::NAMES),
        (include_str!("../../src/program/mod.rs"), more::program::NAMES),
    ] {
        assert_complete(source, names);
    }
}
