//! Runs on several GPUs: one process per GPU, started by this program or by a launcher.

mod environment;
mod launch;
mod library;
mod rank;
mod waiting;

use std::fmt;

pub(crate) use self::environment::Placement;
pub(crate) use self::launch::launch;
pub(crate) use self::rank::Rank;
use crate::args::RankArguments;
use crate::error::CliError;

/// The role of this process in a run.
pub(crate) enum Role {
    /// Trains alone.
    Alone,
    /// Trains as one of several ranks.
    Rank(Placement),
    /// Starts this many ranks.
    Launcher(usize),
}

impl Role {
    /// Returns the role of this process, by its arguments and its environment.
    pub(crate) fn of(arguments: &RankArguments) -> Result<Self, CliError> {
        let get = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self::with(arguments.gpus, &get)
    }

    fn with(gpus: Option<usize>, get: &dyn Fn(&str) -> Option<String>) -> Result<Self, CliError> {
        match (environment::placement(get)?, gpus) {
            (Some(placement), Some(gpus)) if placement.starter != environment::OURS => {
                Err(CliError::Ranks(format!(
                    "--gpus {gpus} starts processes, but {} has started {} already; leave out \
                     --gpus",
                    placement.starter, placement.ranks.world_size
                )))
            }
            (Some(placement), _) => Ok(Self::Rank(placement)),
            (None, None | Some(1)) => Ok(Self::Alone),
            (None, Some(gpus)) => Ok(Self::Launcher(gpus)),
        }
    }
}

/// The exit status of a run in other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(pub(crate) u8);

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(gpus: Option<usize>, variables: &[(&str, &str)]) -> Result<Role, String> {
        let get = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Role::with(gpus, &get).map_err(|error| error.to_string())
    }

    #[test]
    fn a_launcher_starts_ranks_and_ranks_start_none() {
        assert!(matches!(role(None, &[]), Ok(Role::Alone)));
        assert!(matches!(role(Some(1), &[]), Ok(Role::Alone)));
        assert!(matches!(role(Some(4), &[]), Ok(Role::Launcher(4))));
        let ours = [
            ("RETROGRAPH_COORDINATOR", "127.0.0.1:4000"),
            ("RETROGRAPH_RANK", "1"),
            ("RETROGRAPH_RANKS", "4"),
        ];
        let Ok(Role::Rank(placement)) = role(Some(4), &ours) else { panic!("it is a rank") };
        assert_eq!((placement.ranks.rank, placement.local_rank, placement.hosts), (1, 1, false));
    }

    #[test]
    fn two_launchers_contradict_each_other() {
        let torchrun = [
            ("RANK", "0"),
            ("WORLD_SIZE", "2"),
            ("LOCAL_RANK", "0"),
            ("MASTER_ADDR", "host"),
            ("MASTER_PORT", "29500"),
        ];
        let Err(error) = role(Some(2), &torchrun) else { panic!("it is an error") };
        assert!(error.contains("torchrun has started 2 already; leave out --gpus"), "{error}");
    }
}
