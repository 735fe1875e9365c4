//! The functions that a table points to.
//!
//! CUDA calls carry no user data, so only the address of a function can identify its simulator.
//! Every driver function is instantiated once per world slot (`const W: usize`); each instance only
//! forwards its slot to a shared function.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

use parking_lot::MutexGuard;
use retrograph_driver_sys::{CUresult, DriverTable};

use crate::argument::{Admit, Call};
use crate::config::Order;
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::State;
use crate::work::Attempt;
use crate::world;

macro_rules! trampolines {
    (
        required { $($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?);)* }
        optional {
            $($(#[$o_doc:meta])* fn $o_name:ident($($o_arg:ident: $o_type:ty),* $(,)?)
                since $since:literal;)*
        }
    ) => {
        /// A function of the driver.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(non_camel_case_types, clippy::enum_variant_names)]
        pub(crate) enum Function {
            $($name,)*
            $($o_name,)*
        }

        impl Function {
            /// Every function.
            pub(crate) const ALL: &'static [Self] =
                &[$(Self::$name,)* $(Self::$o_name,)*];

            /// The exported symbol.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                    $(Self::$o_name => stringify!($o_name),)*
                }
            }
        }

        /// The default implementation of driver functions that the simulator lacks. A method of
        /// [`State`] with the same name takes precedence.
        #[allow(dead_code, non_snake_case, clippy::too_many_arguments)]
        trait Fallback {
            /// Reports the missing function.
            fn lacks(&mut self, function: Function) -> Call;

            $(fn $name(&mut self, $($arg: <$type as Admit>::Admitted),*) -> Call {
                $(let _ = $arg;)*
                self.lacks(Function::$name)
            })*
            $(fn $o_name(&mut self, $($o_arg: <$o_type as Admit>::Admitted),*) -> Call {
                $(let _ = $o_arg;)*
                self.lacks(Function::$o_name)
            })*
        }

        impl Fallback for State {
            fn lacks(&mut self, function: Function) -> Call {
                Err(self.unsupported(format!("{} is not simulated", function.name())))
            }
        }

        /// One function for all slots.
        // A call without arguments has nothing to convert.
        #[allow(non_snake_case, unused_unsafe, clippy::too_many_arguments)]
        mod shared {
            use super::*;
            $(pub(super) unsafe fn $name(slot: usize, $($arg: $type),*) -> CUresult {
                // SAFETY: the caller of the driver function guarantees valid arguments.
                enter(slot, Function::$name, &|state| unsafe { state.$name($($arg.admit()),*) })
            })*
            $(pub(super) unsafe fn $o_name(slot: usize, $($o_arg: $o_type),*) -> CUresult {
                // SAFETY: the caller of the driver function guarantees valid arguments.
                enter(slot, Function::$o_name, &|state| unsafe {
                    state.$o_name($($o_arg.admit()),*)
                })
            })*
        }

        /// One function for each slot, with the signature of the driver.
        #[allow(non_snake_case, clippy::too_many_arguments)]
        mod slots {
            use super::*;
            $(pub(super) unsafe extern "C" fn $name<const W: usize>($($arg: $type),*) -> CUresult {
                // SAFETY: passed on from the caller.
                unsafe { shared::$name(W, $($arg),*) }
            })*
            $(pub(super) unsafe extern "C" fn $o_name<const W: usize>(
                $($o_arg: $o_type),*
            ) -> CUresult {
                // SAFETY: passed on from the caller.
                unsafe { shared::$o_name(W, $($o_arg),*) }
            })*
        }

        /// The table of slot `W` for a driver of this version.
        fn table_of<const W: usize>(version: i32) -> DriverTable {
            DriverTable {
                driver_version: version,
                $($name: slots::$name::<W>,)*
                $($o_name: if version >= $since { Some(slots::$o_name::<W>) } else { None },)*
            }
        }

        /// The address of a function of a table.
        pub(crate) fn address(table: &DriverTable, symbol: &str) -> Option<*const c_void> {
            match symbol {
                $(stringify!($name) => Some(table.$name as *const c_void),)*
                $(stringify!($o_name) => table.$o_name.map(|function| function as *const c_void),)*
                _ => None,
            }
        }
    };
}

retrograph_driver_sys::driver_functions!(trampolines);

macro_rules! tables {
    ($($slot:literal)*) => {
        /// The maximum number of worlds in a process at a time.
        pub(crate) const SLOTS: usize = [$($slot),*].len();

        /// The table of a slot.
        pub(crate) fn table(slot: usize, version: i32) -> DriverTable {
            const TABLES: [fn(i32) -> DriverTable; SLOTS] = [$(table_of::<$slot>),*];
            TABLES[slot](version)
        }

        /// Returns a slot's substitute for missing functions.
        pub(crate) fn lacking(slot: usize) -> unsafe extern "C" fn() -> CUresult {
            const LACKING: [unsafe extern "C" fn() -> CUresult; SLOTS] = [$(lacking_in::<$slot>),*];
            LACKING[slot]
        }
    };
}

tables! { 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 }

/// Substitute for every function that a program can look up by name but that the table lacks. A C
/// function may be passed more arguments than it has parameters.
unsafe extern "C" fn lacking_in<const W: usize>() -> CUresult {
    let Some(world) = world::in_slot(W) else {
        return CUresult::CUDA_ERROR_DEINITIALIZED;
    };
    if world.hosting.is_here() {
        world.hosting.note(Function::cuGetProcAddress_v2 as usize);
        return CUresult::CUDA_ERROR_NOT_PERMITTED;
    }
    let mut state = world.state.lock();
    if let Some(stop) = state.stopped {
        return stop;
    }
    state.call = "a function by name";
    let refusal = state.unsupported("a function from cuGetProcAddress is not simulated");
    state.conclude(refusal)
}

impl Function {
    /// Whether the function works before `cuInit`.
    const fn works_uninitialized(self) -> bool {
        matches!(
            self,
            Self::cuInit
                | Self::cuDriverGetVersion
                | Self::cuGetErrorName
                | Self::cuGetErrorString
                | Self::cuGetProcAddress_v2
                | Self::cuStreamCreate
                | Self::cuStreamCreateWithPriority
                | Self::cuModuleGetFunctionCount
                | Self::cuModuleEnumerateFunctions
                | Self::cuArrayGetDescriptor_v2
                | Self::cuArray3DGetDescriptor_v2
                | Self::cuCoredumpGetAttribute
                | Self::cuCoredumpGetAttributeGlobal
                | Self::cuCoredumpSetAttribute
                | Self::cuCoredumpSetAttributeGlobal
        )
    }
}

impl Function {
    /// Whether the function works after undefined behaviour, because it does not access the
    /// machine.
    const fn works_stopped(self) -> bool {
        matches!(
            self,
            Self::cuDriverGetVersion
                | Self::cuGetErrorName
                | Self::cuGetErrorString
                | Self::cuGetProcAddress_v2
        )
    }
}

/// The name of the function with this number.
pub(crate) fn function_name(number: usize) -> &'static str {
    Function::ALL.get(number).map_or("the driver", |function| function.name())
}

impl Function {
    /// Whether the function clears its results before any check, and then checks itself that the
    /// driver is initialized.
    const fn clears_its_results(self) -> bool {
        matches!(
            self,
            Self::cuDeviceTotalMem_v2
                | Self::cuMemGetInfo_v2
                | Self::cuMemAlloc_v2
                | Self::cuMemAllocAsync
                | Self::cuMemAllocPitch_v2
                | Self::cuMemAllocHost_v2
                | Self::cuMemHostAlloc
                | Self::cuMemAllocFromPoolAsync
                | Self::cuMemGetAddressRange_v2
                | Self::cuMemHostGetDevicePointer_v2
                | Self::cuModuleGetGlobal_v2
                | Self::cuStreamEndCapture
                | Self::cuStreamDestroy_v2
                | Self::cuEventDestroy_v2
        )
    }
}

impl Function {
    /// Whether the function checks its arguments before it checks that the driver is initialized.
    const fn checks_arguments_first(self) -> bool {
        matches!(
            self,
            Self::cuGraphAddDependencies
                | Self::cuGraphRemoveDependencies
                | Self::cuGraphDebugDotPrint
                | Self::cuUserObjectCreate
                | Self::cuUserObjectRetain
                | Self::cuUserObjectRelease
                | Self::cuGraphRetainUserObject
                | Self::cuGraphReleaseUserObject
                | Self::cuGraphAddDependencies_v2
                | Self::cuGraphRemoveDependencies_v2
                | Self::cuGraphKernelNodeGetParams_v2
                | Self::cuGraphKernelNodeSetParams_v2
                | Self::cuGraphMemcpyNodeSetParams
                | Self::cuGraphMemsetNodeSetParams
                | Self::cuGraphAddHostNode
                | Self::cuGraphHostNodeGetParams
                | Self::cuGraphHostNodeSetParams
                | Self::cuGraphAddEmptyNode
                | Self::cuGraphAddEventRecordNode
                | Self::cuGraphEventRecordNodeGetEvent
                | Self::cuGraphEventRecordNodeSetEvent
                | Self::cuGraphAddEventWaitNode
                | Self::cuGraphEventWaitNodeGetEvent
                | Self::cuGraphEventWaitNodeSetEvent
                | Self::cuGraphMemAllocNodeGetParams
                | Self::cuGraphMemFreeNodeGetParams
                | Self::cuGraphAddBatchMemOpNode
                | Self::cuGraphBatchMemOpNodeGetParams
                | Self::cuGraphBatchMemOpNodeSetParams
                | Self::cuGraphAddNode
                | Self::cuGraphAddNode_v2
                | Self::cuGraphNodeSetParams
                | Self::cuGraphConditionalHandleCreate
                | Self::cuGraphInstantiateWithParams
                | Self::cuGraphExecKernelNodeSetParams_v2
                | Self::cuGraphExecMemcpyNodeSetParams
                | Self::cuGraphExecMemsetNodeSetParams
                | Self::cuGraphExecHostNodeSetParams
                | Self::cuGraphExecChildGraphNodeSetParams
                | Self::cuGraphExecEventRecordNodeSetEvent
                | Self::cuGraphExecEventWaitNodeSetEvent
                | Self::cuGraphExecBatchMemOpNodeSetParams
                | Self::cuGraphNodeSetEnabled
                | Self::cuGraphNodeGetEnabled
                | Self::cuGraphExecNodeSetParams
        )
    }
}

/// Runs one call in the world of `slot`. The body is not a generic parameter, to avoid a copy of
/// this function per driver function.
fn enter(slot: usize, function: Function, body: &dyn Fn(&mut State) -> Call) -> CUresult {
    let Some(world) = world::in_slot(slot) else {
        return CUresult::CUDA_ERROR_DEINITIALIZED;
    };
    if world.hosting.is_here() {
        // The call that runs the host function reports the violation.
        world.hosting.note(function as usize);
        return CUresult::CUDA_ERROR_NOT_PERMITTED;
    }
    crate::current::note_call(slot);
    let injected = world.count(function);
    let mut state = world.state.lock();
    state.enter_thread();
    if let Some(stop) = state.stopped.filter(|_| !function.works_stopped()) {
        return stop;
    }
    state.call = function.name();
    if let Some(code) = injected {
        state.inject(code);
        return code;
    }
    if !state.initialized && !function.works_uninitialized() && !function.clears_its_results() {
        if function.checks_arguments_first() {
            // Before initialization there are no contexts, so no argument of these functions can be
            // valid.
            return state.conclude(invalid(Rule::UninitializedArgument));
        }
        return state.conclude(refuse(CUresult::CUDA_ERROR_NOT_INITIALIZED, Rule::Uninitialized));
    }
    // A panic must not cross into a caller that may not be Rust.
    let call = catch_unwind(AssertUnwindSafe(|| {
        let result = run_call(&mut state, body);
        if state.config.order == Order::Prompt && state.stopped.is_none() {
            // Later calls report failures.
            let _ = run_call(&mut state, &State::complete_promptly);
        }
        result
    }));
    match call {
        Ok(Ok(())) => CUresult::CUDA_SUCCESS,
        Ok(Err(refusal)) => state.conclude(refusal),
        Err(panic) => state.internal_error(&*panic),
    }
}

/// Executes a call, repeating it after each wait for host functions. Other threads can make calls
/// during the wait.
fn run_call(state: &mut MutexGuard<'_, State>, body: &dyn Fn(&mut State) -> Call) -> Call {
    let name = state.call;
    state.attempt = Attempt::default();
    loop {
        let result = body(state);
        let Some(wait) = state.attempt.take_wait() else { return result };
        let attempt = std::mem::take(&mut state.attempt);
        MutexGuard::unlocked(state, || wait.wait());
        (state.call, state.attempt) = (name, attempt);
        if state.stopped.is_some() {
            return Err(Refusal::UNDEFINED);
        }
    }
}
