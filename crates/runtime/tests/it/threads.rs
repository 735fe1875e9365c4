//! What may be sent to another thread, and what may be used from several: a promise of each type.

use std::collections::BTreeSet;

use retrograph_runtime::*;
use static_assertions::{assert_impl_all, assert_not_impl_any};

/// Asserts the promises when this is compiled, and lists the types by name.
macro_rules! promises {
    (
        shared { $($shared:ident $(<$of:tt>)?),* $(,)? }
        sent { $($sent:ident),* $(,)? }
        stay { $($stays:ident $(<$life:tt>)?),* $(,)? }
    ) => {
        $(assert_impl_all!($shared $(<$of>)?: Send, Sync);)*
        $(assert_impl_all!($sent: Send); assert_not_impl_any!($sent: Sync);)*
        $(assert_not_impl_any!($stays $(<$life>)?: Send, Sync);)*
        const NAMES: &[&str] =
            &[$(stringify!($shared),)* $(stringify!($sent),)* $(stringify!($stays),)*];
    };
}

promises! {
    // Any thread may use them, several at a time.
    shared {
        Admission, AdmitError, Bindings, Buffer, BufferId, BufferKind, BuildError, BuildOptions,
        CallError, CaptureError, CaptureMode, Context, ControlError, Controls, Cublas, CustomImage,
        CustomLaunch, DeviceBuffer<f32>, DeviceCopy, DeviceFill, DeviceIndex, DeviceInfo,
        DeviceRange, DeviceScalar<f32>, Driver, DriverVersion, EarlyStart, Edge, EdgeMode, Edges,
        Error, Event,
        FirstFailure, Function, GraphExec, GraphReport, Hazard, JitAfterWarm, KernelArguments,
        KernelLaunch<'static>, KernelTime, LaunchGeometry, LibraryCall, LibraryGemm,
        LibraryScope<'static>, Loss, MatrixShape, MemoryPlan, MemoryPool, ModuleCache, Node,
        NodeKind, OpId, Operation, OperationKind, OperationTime, Origin, Pass, PassError, PhaseTime,
        PinnedBuffer<f32>, Policy, PoolSeal, PoolUse, Prediction, PrewarmError, Profile,
        ProfileError, Progress<'static>, Rebound, Report, Requirements, Reuse, Rung, Slice<f32>,
        StepError, StepOutcome, Strategy, Stream, UpdateOutcome, WarmModules,
    }
    // The driver does not guard a template against use from two threads at once, and a program
    // keeps the one that its exec was made from.
    sent { Graph, Program }
    // Only the thread that began a capture may end it.
    stay { Capturing<'static> }
}

#[test]
fn every_public_type_says_what_threads_may_do_with_it() {
    let source = include_str!("../../src/lib.rs");
    let exported = source.split("pub use ").skip(1).filter_map(|rest| rest.split(';').next());
    let words = exported.flat_map(|list| list.split(|sign: char| !sign.is_alphanumeric()));
    // Modules have no capitals, and constants nothing else.
    let has = |word: &str, kind: fn(char) -> bool| word.contains(kind);
    let is_type = |word: &&str| has(word, char::is_uppercase) && has(word, char::is_lowercase);
    let exported: BTreeSet<&str> = words.filter(is_type).collect();
    let promised: BTreeSet<&str> = NAMES.iter().copied().collect();
    let missing: Vec<_> = exported.symmetric_difference(&promised).collect();
    assert!(missing.is_empty(), "add to the promises above, or remove: {missing:?}");
}
