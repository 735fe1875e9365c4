//! This process as one of several ranks.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use retrograph_finetune::{
    Coordinator, Device, DeviceChoice, Error, GroupError, GroupOptions, ProcessGroup,
};
use retrograph_runtime::Ranks;

use super::environment::OURS;
use super::{Placement, library, waiting};
use crate::error::CliError;
use crate::screen::{self, fact};

/// Time after another rank's failure until this process ends itself.
const GRACE: Duration = Duration::from_secs(5);
/// Interval between checks of the group for failures.
const POLL: Duration = Duration::from_millis(200);
/// Time for which rank 0 waits for the others at the end.
const LEAVING: Duration = Duration::from_secs(10);

/// This process in its group.
pub(crate) struct Rank {
    placement: Placement,
    nccl: Option<PathBuf>,
    group: ProcessGroup,
    coordinator: Option<Coordinator>,
}

impl Rank {
    /// Joins the other ranks, which must have the same `run`.
    pub(crate) fn join(
        placement: Placement,
        run: &str,
        nccl: Option<PathBuf>,
    ) -> Result<Self, CliError> {
        let (ranks, options) = (placement.ranks, GroupOptions::default());
        let failed = |error: GroupError| CliError::from(Error::from(error));
        let coordinator = match placement.hosts {
            true => {
                let listen = placement.listen.as_str();
                Some(Coordinator::listen(listen, ranks.world_size, options).map_err(failed)?)
            }
            false => None,
        };
        let address = placement.address.as_str();
        let say = || say_that_it_waits(&placement, coordinator.as_ref(), options);
        let join = || ProcessGroup::join(address, ranks, run, options);
        let group = waiting::during(waiting::QUIET, say, join);
        let group = group.map_err(|error| unjoined(error, &placement))?;
        end_with(group.clone());
        let Ranks { world_size: count, .. } = ranks;
        fact("ranks", format!("{count} processes, started by {}", placement.starter));
        Ok(Self { placement, nccl, group, coordinator })
    }

    /// The group.
    pub(crate) fn group(&self) -> &ProcessGroup {
        &self.group
    }

    /// Opens the device of this rank.
    pub(crate) fn device(placement: &Placement, choice: DeviceChoice) -> Result<Device, CliError> {
        let choice = match choice {
            // A launcher may make only its own GPU visible to each process.
            DeviceChoice::Auto => match Device::open(choice)? {
                device if device.simulated => return Ok(device),
                device => {
                    let there = device.context.driver().device_count().map_err(Error::from)?;
                    let index = if there == 1 { 0 } else { placement.local_rank as u32 };
                    DeviceChoice::Cuda(index)
                }
            },
            DeviceChoice::Cuda(index) => {
                return Err(CliError::Ranks(format!(
                    "--device cuda:{index} names one GPU, but each process takes its own; leave it \
                     out, or set CUDA_VISIBLE_DEVICES"
                )));
            }
            other => other,
        };
        Ok(Device::open(choice)?)
    }

    /// Connects the group on the device of this rank.
    pub(crate) fn connect(&self, device: &Device) -> Result<(), CliError> {
        let nccl = library::nccl(device, self.nccl.as_deref())?;
        self.group.connect(&nccl, &device.context)?;
        let version = nccl.version();
        let (major, minor) = (version / 10_000, version / 100 % 100);
        let simulated = if device.simulated { "SIMULATED " } else { "" };
        fact("nccl", format!("{simulated}{major}.{minor}.{}", version % 100));
        Ok(())
    }

    /// Reports to the other ranks how this process ended.
    pub(crate) fn end<T>(self, outcome: Result<T, CliError>) -> Result<T, CliError> {
        let outcome =
            outcome.map_err(|error| cause(error, self.group.check(), self.placement.ranks.rank));
        match &outcome {
            // Other ranks stop for the same reason and report it themselves.
            Ok(_)
            | Err(CliError::Finetune(
                Error::NotFinite { .. } | Error::HeldOutNotFinite { .. } | Error::Group(_),
            )) => self.group.leave(),
            Err(error) => self.group.fail(&error.to_string()),
        }
        if let Some(coordinator) = self.coordinator {
            coordinator.finish(LEAVING);
        }
        outcome.map_err(|error| named(error, self.placement.ranks))
    }
}

/// Prints a notice that this rank waits. `--gpus` watches its processes and needs no notice.
fn say_that_it_waits(
    placement: &Placement,
    coordinator: Option<&Coordinator>,
    options: GroupOptions,
) {
    if placement.starter != OURS {
        let notice = waiting::notice(placement, coordinator, options.join_timeout);
        let _ = writeln!(std::io::stderr(), "{}", screen::printable(&notice));
    }
}

/// Adds the launcher's variable to the error that a host has no address.
fn unjoined(error: GroupError, placement: &Placement) -> CliError {
    match (&error, placement.host_variable) {
        (GroupError::Unresolved { .. }, Some(variable)) => {
            let host = placement.address.rsplit_once(':').map_or("", |(host, _)| host);
            CliError::Ranks(format!("{error}\nhint: the host `{host}` is from {variable}"))
        }
        _ => Error::from(error).into(),
    }
}

/// Returns the failure of a rank other than `own`, if there is one: it also causes later errors of
/// this rank, for example in a call to an aborted communicator. Output errors have other causes.
fn cause(error: CliError, group: Result<(), GroupError>, own: usize) -> CliError {
    match (error, group) {
        (error, Ok(())) => error,
        (error, Err(GroupError::RankFailed { rank, .. })) if rank == own => error,
        (CliError::Finetune(_), Err(failure)) => Error::Group(failure).into(),
        (error, Err(_)) => error,
    }
}

/// Adds the rank to an error of a rank other than 0, since the outputs of ranks look alike.
fn named(error: CliError, ranks: Ranks) -> CliError {
    match ranks.rank {
        0 => error,
        rank => CliError::OfRank(rank, Box::new(error)),
    }
}

/// Ends the process [`GRACE`] after another rank has failed, if it does not end by itself: NCCL and
/// driver calls may wait for that rank forever. Skips exit handlers, which may wait as well.
fn end_with(group: ProcessGroup) {
    let weak = group.downgrade();
    std::thread::spawn(move || {
        let failure = loop {
            match weak.upgrade().map(|group| group.check()) {
                None => return,
                Some(Err(error)) => break error,
                Some(Ok(())) => std::thread::sleep(POLL),
            }
        };
        std::thread::sleep(GRACE);
        let text = screen::printable(&failure.to_string());
        let _ = writeln!(std::io::stderr(), "error: {text}");
        signal_hook::low_level::exit(1);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_an_address_is_named_with_its_variable() {
        let error = || GroupError::Unresolved {
            rank: 1,
            address: "node7:4000".to_owned(),
            reason: "no such host".to_owned(),
            waited: Duration::from_secs(5),
        };
        let placement = |host_variable| Placement { host_variable, ..Placement::example() };
        let text = unjoined(error(), &placement(Some("MASTER_ADDR"))).to_string();
        assert!(text.contains("`node7:4000`: no such host"), "{text}");
        assert!(text.ends_with("hint: the host `node7` is from MASTER_ADDR"), "{text}");
        assert_eq!(unjoined(error(), &placement(None)).to_string(), error().to_string());
    }

    #[test]
    fn an_earlier_failure_of_another_rank_is_the_cause() {
        let failed = |rank| Err(GroupError::RankFailed { rank, reason: "killed".to_owned() });
        let text = |error: CliError, group| cause(error, group, 0).to_string();
        let aborted = || CliError::Finetune(Error::NoSimulator);
        let own = aborted().to_string();
        assert!(text(aborted(), failed(1)).starts_with("rank 1 failed: killed"));
        assert_eq!(text(aborted(), failed(0)), own);
        assert_eq!(text(aborted(), Ok(())), own);
        let output = || CliError::NothingToResume("there".into());
        assert_eq!(text(output(), failed(1)), output().to_string());
    }
}
