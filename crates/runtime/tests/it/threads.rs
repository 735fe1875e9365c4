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
        pub(crate) const NAMES: &[&str] =
            &[$(stringify!($shared),)* $(stringify!($sent),)* $(stringify!($stays),)*];
    };
}

promises! {
    // Any thread may use them, several at a time.
    shared {
        Admission, AdmitError, Bindings, Buffer, BufferId, BufferKind, BuildError, BuildOptions,
        CallError, CaptureError, CaptureMode, CapturedNodes, Context, ControlError, Controls,
        Cublas, CustomImage, CustomLaunch, DeviceBuffer<f32>, DeviceCopy, DeviceFill, DeviceIndex,
        DeviceInfo, DeviceRange, DeviceScalar<f32>, Driver, DriverShare, DriverVersion, PdlMode,
        Edge, Edges, Error, Event, Explanation<'static>, FirstFailure, Function,
        GraphExec, GraphReport, Hazard, JitAfterWarm, KernelArguments, KernelLaunch<'static>,
        KernelTime, LaunchGeometry, LibraryCall, LibraryGemm, LibraryScope<'static>, LoadError,
        Loss, MatrixShape, MemoryPlan, MemoryPool, Module, ModuleCache, Node, NodeKind, OpId,
        Operation, OperationKind, OperationTime, Origin, Owner, Pass, PassError, PhaseTime,
        PinnedBuffer<f32>, Policy, PoolSeal, PoolUse, PrewarmError, Profile,
        ProfileError, Progress<'static>, Rebound, Report, Requirements, Reuse, UpdateStrategy,
        Slice<f32>, StepError, StepOutcome, Strategy, Stream, UpdateOutcome, WarmModules,
    }
    // The driver does not guard a template against use from two threads at once, and a program
    // keeps the one that its exec was made from.
    sent { Graph, Program }
    // Only the thread that began a capture may end it.
    stay { Capturing<'static> }
}

/// What the modules export beyond that.
mod more {
    pub(super) mod modules {
        use retrograph_runtime::modules::*;
        use static_assertions::assert_impl_all;

        promises! {
            shared {
                Bundle, BundleEntry, BundleError, CacheDir, CacheOptions, CodeError, Compiler,
                Digest, DiskError, Function, ImageKey, ImageReport, JitAfterWarm, KernelReport,
                ModuleCache, PrewarmError, PrewarmReport, Progress<'static>, Source,
                UnsupportedDevice, Warming, Warning, WarmModules, WorkerCommand,
            }
            sent {}
            stay {}
        }
    }

    pub(super) mod program {
        use retrograph_runtime::program::*;
        use static_assertions::{assert_impl_all, assert_not_impl_any};

        promises! {
            shared {
                Admission, AdmitError, Bindings, Bucket<1>, Buckets, BuildError, BuildOptions,
                CacheError<u8>, CacheOptions, CacheStatistics, Choice, Described, PdlMode,
                Facts, Policy, ProfileError, Quirk, Rebound,
                Report, UpdateStrategy, ShapeError, StepError, StepOutcome, Strategy,
            }
            // They hold programs.
            sent { Cached1, ProgramCache1 }
            stay {}
        }

        type Cached1 = Cached<'static, 1, u8>;
        type ProgramCache1 = ProgramCache<1, u8>;
    }
}

/// The types that a file exports, by name.
fn exported(source: &str) -> BTreeSet<&str> {
    let lists = source.split("\npub use ").skip(1).filter_map(|rest| rest.split(';').next());
    let words = lists.flat_map(|list| list.split(|sign: char| !sign.is_alphanumeric()));
    // Modules have no capitals, and constants nothing else.
    let has = |word: &str, kind: fn(char) -> bool| word.contains(kind);
    let is_type = |word: &&str| has(word, char::is_uppercase) && has(word, char::is_lowercase);
    words.filter(is_type).collect()
}

#[test]
fn every_public_type_says_what_threads_may_do_with_it() {
    for (source, names) in [
        (include_str!("../../src/lib.rs"), NAMES),
        (include_str!("../../src/modules/mod.rs"), more::modules::NAMES),
        (include_str!("../../src/program/mod.rs"), more::program::NAMES),
    ] {
        let promised: BTreeSet<&str> =
            names.iter().map(|name| name.trim_end_matches('1')).collect();
        let exported = exported(source);
        let missing: Vec<_> = exported.symmetric_difference(&promised).collect();
        assert!(missing.is_empty(), "add to the promises above, or remove: {missing:?}");
    }
}
