//! The arguments for several GPUs.

use std::path::PathBuf;

use clap::Args;
use clap::builder::RangedU64ValueParser;
use retrograph_runtime::Ranks;

use super::parse_size;
use crate::error::CliError;

#[derive(Clone, Debug, Args)]
pub(crate) struct RankArguments {
    /// Train on this many GPUs of this host, up to 1024, with one process per GPU. --batch is the
    /// total for all GPUs. Under torchrun, Slurm or MPI, start one process per GPU instead.
    #[arg(
        long, value_name = "N",
        value_parser = RangedU64ValueParser::<usize>::new().range(1..=1024)
    )]
    pub(crate) gpus: Option<usize>,
    /// NCCL library [default: RETROGRAPH_NCCL, else libnccl.so.2 of the system or of the active
    /// Python environment].
    #[arg(long, value_name = "FILE")]
    pub(crate) nccl: Option<PathBuf>,
    /// Size of the buckets in which GPUs exchange gradients, such as 64MiB [default: 512MiB].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) bucket_size: Option<u64>,
    /// The rank of this process, from the environment.
    #[arg(skip)]
    pub(crate) ranks: Ranks,
}

impl RankArguments {
    /// Requires that the library of `--nccl` exists, also if no device needs it. The dynamic loader
    /// searches for a name without a folder.
    pub(crate) fn require_nccl(&self) -> Result<(), CliError> {
        let in_folder = |path: &&PathBuf| path.components().nth(1).is_some();
        let Some(path) = self.nccl.as_ref().filter(in_folder) else { return Ok(()) };
        let read = |reason| CliError::Read { what: "NCCL", path: path.clone(), reason };
        std::fs::metadata(path).map_err(read)?;
        Ok(())
    }
}
