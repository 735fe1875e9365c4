//! Injected faults.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use parking_lot::Mutex;
use retrograph_nccl_sys::{ncclResult_t, ncclUniqueId};

use crate::wire::Address;

/// What happens at a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// The call returns this code and enqueues nothing.
    Refuse(ncclResult_t),
    /// The operation waits before it takes part.
    Late(Duration),
    /// The operation announces one element more than it was asked for.
    OtherCount,
    /// The operation never takes part, and reports this asynchronous error.
    AsyncError(ncclResult_t),
    /// The operation never takes part, and reports nothing.
    Hang,
}

/// A fault of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The number of the collective, counted from 0: for [`FaultKind::Refuse`] among the calls, for
    /// others among those that run.
    pub at: u64,
    /// What happens.
    pub kind: FaultKind,
}

/// Faults by the nonce of the communicator and the rank.
type Faults = HashMap<(u64, i32), Vec<Fault>>;

static FAULTS: LazyLock<Mutex<Faults>> = LazyLock::new(Mutex::default);

/// Makes `rank` of the communicator that is made from `id` meet `fault`. Call it before the rank
/// joins.
pub fn inject(id: &ncclUniqueId, rank: i32, fault: Fault) {
    let Some(address) = Address::of(id) else { return };
    FAULTS.lock().entry((address.nonce, rank)).or_default().push(fault);
}

/// The faults of a rank.
pub(crate) fn of(address: Address, rank: i32) -> Vec<Fault> {
    FAULTS.lock().remove(&(address.nonce, rank)).unwrap_or_default()
}
