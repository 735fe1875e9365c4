//! Programmatic dependent launch (PDL).
//!
//! From sm_90 on, a kernel may be launched while its predecessor still drains. Its threads must
//! then execute `griddepcontrol.wait` before they access memory that the predecessor writes; in an
//! ordinary launch the instruction does nothing. [`insert_waits`] puts it at the start of every
//! entry, except entries that call [`wait`] themselves in order to prefetch operands that no
//! earlier launch writes.
//!
//! [`insert_waits`]: retrograph_kernel_abi::pdl::insert_waits
//!
//! A kernel that calls [`launch_dependents`] lets its successor start at once. Only successors that
//! prefetch gain from this; others would occupy the SM while they wait.

use retrograph_ptx::SmTarget;
use retrograph_ptx::build::Kernel;

/// Lets the next kernel start (`griddepcontrol.launch_dependents`), if the target has PDL.
pub(crate) fn launch_dependents(k: &Kernel<'_>, target: SmTarget) {
    if target.features().pdl {
        k.griddepcontrol_launch_dependents();
    }
}

/// Waits until all preceding kernels are complete and their writes visible
/// (`griddepcontrol.wait`), if the target has PDL.
///
/// Every thread must execute it before its first store and before it returns.
pub(crate) fn wait(k: &Kernel<'_>, target: SmTarget) {
    if target.features().pdl {
        k.griddepcontrol_wait();
    }
}
