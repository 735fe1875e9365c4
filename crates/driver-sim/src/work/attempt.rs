//! Calls that wait for host functions.
//!
//! Other threads can call the driver while a host function runs, and the host function may wait for
//! them. A call that needs its completion is therefore suspended: it returns
//! [`Refusal::SUSPENDED`], the entry function releases the lock and waits, and then the call is
//! repeated from its beginning. So a call must not change state before the work that it waits for
//! is complete, except that it may queue one task.

use std::sync::Arc;
use std::time::Duration;

use super::{HostRun, TaskId};
use crate::refusal::Refusal;

/// How long a query waits for a host function that it has started. Most are short; others may need
/// the program to continue.
const QUERY_WAIT: Duration = Duration::from_millis(100);

/// How long a call waits for host functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Until they end.
    Synchronization,
    /// For a short time, and only once for each host function.
    Query,
}

/// A wait for a host function.
pub(crate) struct HostWait {
    host: Arc<HostRun>,
    patience: Patience,
}

impl HostWait {
    /// Waits. The caller must have released the lock of the world.
    pub(crate) fn wait(&self) {
        self.host.wait((self.patience == Patience::Query).then_some(QUERY_WAIT));
    }
}

/// The progress of a call that completes work, possibly several times.
#[derive(Default)]
pub(crate) struct Attempt {
    /// The number of completions begun since the call was made or last repeated.
    begun: usize,
    /// The number of the completion at which the call was suspended, and its targets. The call does
    /// not wait for work that other threads queue later.
    resumed: Option<(usize, Vec<TaskId>)>,
    wait: Option<HostWait>,
    /// The task that the call has queued and must not queue again.
    pub(super) queued: Option<TaskId>,
}

impl Attempt {
    /// The targets of the next completion. `None` if it ended before the call was suspended.
    pub(super) fn begin(&mut self, targets: Vec<TaskId>) -> Option<Vec<TaskId>> {
        let number = self.begun;
        self.begun += 1;
        match &mut self.resumed {
            Some((resumed, _)) if number < *resumed => None,
            Some((resumed, first)) if number == *resumed => Some(std::mem::take(first)),
            _ => Some(targets),
        }
    }

    /// Suspends the call until a host function ends or the wait times out.
    pub(super) fn suspend(
        &mut self,
        targets: Vec<TaskId>,
        host: Arc<HostRun>,
        patience: Patience,
    ) -> Refusal {
        self.resumed = Some((self.begun - 1, targets));
        self.wait = Some(HostWait { host, patience });
        Refusal::SUSPENDED
    }

    /// If the call was suspended, takes the wait after which it is repeated.
    pub(crate) fn take_wait(&mut self) -> Option<HostWait> {
        self.begun = 0;
        self.wait.take()
    }
}
