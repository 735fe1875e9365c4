//! Errors of a group of processes.

use std::io;
use std::time::Duration;

/// Why a process cannot work with the others of its run.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The coordinator cannot listen.
    #[error(
        "rank 0 cannot listen on `{address}`: {reason}; give an address of this machine with a \
         free port"
    )]
    Listen {
        /// The address.
        address: String,
        /// Why.
        reason: String,
    },
    /// The coordinator cannot be reached.
    #[error(
        "rank {rank} cannot reach the coordinator at `{address}` within {} s: {reason}; check that \
         rank 0 runs there and that the port is open",
        waited.as_secs()
    )]
    Unreachable {
        /// The rank.
        rank: usize,
        /// The address.
        address: String,
        /// The last error.
        reason: String,
        /// How long it was tried.
        waited: Duration,
    },
    /// The name of the coordinator's host has no address.
    #[error(
        "rank {rank} cannot find the address of the coordinator's host in `{address}`: {reason}; \
         it tried for {} s; give a name that this host can resolve, or an address",
        waited.as_secs()
    )]
    Unresolved {
        /// The rank.
        rank: usize,
        /// Host and port.
        address: String,
        /// The last error.
        reason: String,
        /// How long it was tried.
        waited: Duration,
    },
    /// The coordinator refuses the rank.
    #[error("rank {rank} cannot join: {reason}")]
    Refused {
        /// The rank.
        rank: usize,
        /// Why, and what to do.
        reason: String,
    },
    /// Another rank failed.
    #[error(
        "rank {rank} failed: {reason}; the other ranks stopped; continue from the last checkpoint, \
         if there is one"
    )]
    RankFailed {
        /// The rank that failed first.
        rank: usize,
        /// Why.
        reason: String,
    },
    /// The connection to the coordinator was lost.
    #[error(
        "the coordinator is gone ({reason}): rank 0 or the process that started the ranks has \
         ended; continue from the last checkpoint"
    )]
    CoordinatorGone {
        /// What happened.
        reason: String,
    },
    /// The group has no communicator.
    #[error("the group of {count} processes has no communicator; connect it before training")]
    NotConnected {
        /// The number of ranks.
        count: usize,
    },
}

impl GroupError {
    pub(super) fn listen(address: String, error: &io::Error) -> Self {
        Self::Listen { address, reason: error.to_string() }
    }
}
