//! Injected faults.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use parking_lot::Mutex;
use retrograph_nccl_sys::{ncclResult_t, ncclUniqueId};

use crate::wire::Address;

/// The kind of an injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// The call returns this code and enqueues nothing.
    Refuse(ncclResult_t),
    /// The operation waits before it takes part.
    Late(Duration),
    /// The operation announces one element more than requested.
    OtherCount,
    /// The operation never takes part, and reports this asynchronous error.
    AsyncError(ncclResult_t),
    /// The operation never takes part, and reports nothing.
    Hang,
}

/// A fault of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The index of the collective, from 0: among the calls for [`FaultKind::Refuse`], among the
    /// running operations for the others.
    pub at: u64,
    /// The kind.
    pub kind: FaultKind,
}

/// Faults by the nonce of the communicator and the rank.
type Faults = HashMap<(u64, i32), Vec<Fault>>;

static FAULTS: LazyLock<Mutex<Faults>> = LazyLock::new(Mutex::default);

/// Injects `fault` into `rank` of the communicator of `id`. Call it before the rank joins.
pub fn inject(id: &ncclUniqueId, rank: i32, fault: Fault) {
    let Some(address) = Address::of(id) else { return };
    FAULTS.lock().entry((address.nonce, rank)).or_default().push(fault);
}

/// The faults of a rank.
pub(crate) fn of(address: Address, rank: i32) -> Vec<Fault> {
    FAULTS.lock().remove(&(address.nonce, rank)).unwrap_or_default()
}
