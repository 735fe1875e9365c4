//! `Send` and `Sync` of every public type.

use std::collections::BTreeSet;

use retrograph_driver::*;
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
        CallError, CaptureError, CaptureMode, CapturedNodes, Context, DeviceBuffer<f32>, DeviceCopy,
        DeviceFill, DeviceIndex, DeviceInfo, DeviceScalar<f32>, Driver, DriverVersion, Error, Event,
        FirstFailure, Function, GraphExec, GraphReport, KernelArguments, KernelLaunch<'static>,
        KernelTime, LaunchGeometry, LoadError, Loss, MemoryPool, Module, Node, NodeKind,
        OperationTime, Origin, Owner, PhaseTime, PinnedBuffer<f32>, PoolSeal, PoolUse, Profile,
        Result<u8>, Stream, UpdateOutcome,
    }
    // The driver does not guard a template against concurrent use.
    sent { Graph }
    // Only the thread that began a capture may end it; a lock stays on its thread.
    stay { Capturing<'static>, NoCaptureBegins<'static> }
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
    let promised: BTreeSet<&str> = NAMES.iter().copied().collect();
    let exported = exported(include_str!("../../src/lib.rs"));
    let missing: Vec<_> = exported.symmetric_difference(&promised).collect();
    assert!(missing.is_empty(), "add to the promises above, or remove: {missing:?}");
}
