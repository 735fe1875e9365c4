//! The processes of a run, one per device.
//!
//! A [`Coordinator`] runs in one of them, or in the process that starts them. Each process [joins
//! its group](ProcessGroup::join) over TCP with its rank and keeps the connection, which carries
//! heartbeats and reports the failure of one rank to all others. Gradients are exchanged by NCCL,
//! over the [communicator](ProcessGroup::connect) of the group.
//!
//! ```
//! # #[cfg(feature = "sim")] {
//! use retrograph_finetune::group::{Coordinator, GroupOptions, ProcessGroup};
//! use retrograph_runtime::Ranks;
//!
//! let coordinator = Coordinator::listen("127.0.0.1:0", 2, GroupOptions::default())?;
//! let address = coordinator.address();
//! let rank = |rank| {
//!     let ranks = Ranks { rank, world_size: 2 };
//!     ProcessGroup::join(address, ranks, "the same run", GroupOptions::default())
//! };
//! let (first, second) = std::thread::scope(|scope| {
//!     let other = scope.spawn(|| rank(1));
//!     (rank(0), other.join().unwrap())
//! });
//! let (first, second) = (first?, second?);
//! second.fail("out of paper");
//! while first.check().is_ok() {}
//! let error = first.check().unwrap_err();
//! assert!(error.to_string().contains("rank 1 failed: out of paper"));
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Failures
//!
//! If a rank fails, ends without [leaving](ProcessGroup::leave), or sends nothing for
//! [`GroupOptions::heartbeat_timeout`], every other rank aborts its collectives and returns
//! [`GroupError::RankFailed`] from its next call. A collective that waits longer than
//! [`GroupOptions::collective_timeout`] fails the rank that waits.

mod coordinator;
mod error;
mod member;
mod message;
mod watch;

use std::time::Duration;

pub use coordinator::Coordinator;
pub use error::GroupError;
pub use member::{ProcessGroup, WeakGroup};

/// Limits of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupOptions {
    /// How long ranks wait for each other at the start.
    pub join_timeout: Duration,
    /// How long a rank tries to resolve the name of the coordinator's host.
    pub resolve_timeout: Duration,
    /// How long a rank may send nothing. Ranks send heartbeats eight times as often.
    pub heartbeat_timeout: Duration,
    /// How long a step may wait for other ranks.
    pub collective_timeout: Duration,
}

impl Default for GroupOptions {
    /// 5 minutes for the start, 5 seconds for a name, 8 seconds of silence, 10 minutes for a step.
    fn default() -> Self {
        let seconds = Duration::from_secs;
        let (join, resolve) = (seconds(300), seconds(5));
        Self {
            join_timeout: join,
            resolve_timeout: resolve,
            heartbeat_timeout: seconds(8),
            collective_timeout: seconds(600),
        }
    }
}

impl GroupOptions {
    /// Returns the interval between heartbeats.
    fn beat(&self) -> Duration {
        self.heartbeat_timeout / 8
    }
}

/// Returns an address without the quotes of a text.
fn shown(address: &impl std::fmt::Debug) -> String {
    format!("{address:?}").trim_matches('"').to_owned()
}
