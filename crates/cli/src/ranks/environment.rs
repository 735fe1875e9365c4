//! The rank and coordinator address of this process, from the environment variables of its
//! launcher.

use retrograph_runtime::Ranks;

use crate::error::CliError;

/// The name in messages of this program as a launcher.
pub(super) const OURS: &str = "--gpus";
/// The first port for runs whose launcher names none.
const FIRST_PORT: u64 = 20_000;
/// The number of such ports.
const PORTS: u64 = 20_000;

/// The rank of a process in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) ranks: Ranks,
    /// The index among the processes of this host.
    pub(crate) local_rank: usize,
    /// The address of the coordinator.
    pub(crate) address: String,
    /// The variable that names the host of the coordinator, if there is one.
    pub(crate) host_variable: Option<&'static str>,
    /// The address on which rank 0 listens.
    pub(crate) listen: String,
    /// Whether this process runs the coordinator: true for rank 0, unless the launcher runs it.
    pub(crate) hosts: bool,
    /// The name of the launcher.
    pub(crate) starter: &'static str,
}

#[cfg(test)]
impl Placement {
    /// Rank 0 of three, on several hosts.
    pub(super) fn example() -> Self {
        Self {
            ranks: Ranks { rank: 0, world_size: 3 },
            local_rank: 0,
            address: "node7:4000".to_owned(),
            host_variable: Some("MASTER_ADDR"),
            listen: "0.0.0.0:4000".to_owned(),
            hosts: true,
            starter: TORCHRUN.name,
        }
    }
}

type Get<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The environment variables of a launcher.
struct Launcher {
    name: &'static str,
    count: &'static str,
    rank: &'static str,
    local_rank: &'static str,
    /// Number of processes on this host.
    local_count: &'static str,
}

const TORCHRUN: Launcher = Launcher {
    name: "torchrun",
    count: "WORLD_SIZE",
    rank: "RANK",
    local_rank: "LOCAL_RANK",
    local_count: "LOCAL_WORLD_SIZE",
};
const OPEN_MPI: Launcher = Launcher {
    name: "Open MPI",
    count: "OMPI_COMM_WORLD_SIZE",
    rank: "OMPI_COMM_WORLD_RANK",
    local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
    local_count: "OMPI_COMM_WORLD_LOCAL_SIZE",
};
const MPICH: Launcher = Launcher {
    name: "MPI",
    count: "PMI_SIZE",
    rank: "PMI_RANK",
    local_rank: "MPI_LOCALRANKID",
    local_count: "MPI_LOCALNRANKS",
};
// srun sets the `SLURM_STEP` variables. The variables of the job are also set outside srun.
const SLURM: Launcher = Launcher {
    name: "Slurm",
    count: "SLURM_STEP_NUM_TASKS",
    rank: "SLURM_PROCID",
    local_rank: "SLURM_LOCALID",
    local_count: "SLURM_STEP_TASKS_ON_THIS_NODE",
};

/// Returns the placement of this process; `None` if it is the only process.
pub(super) fn placement(get: Get<'_>) -> Result<Option<Placement>, CliError> {
    if let Some(address) = get("RETROGRAPH_COORDINATOR") {
        return ours(get, address).map(Some);
    }
    for launcher in [TORCHRUN, OPEN_MPI, MPICH, SLURM] {
        // Other programs set some of these variables, so both must be set.
        if get(launcher.count).is_none() || get(launcher.rank).is_none() {
            continue;
        }
        let count = launcher.number(get, launcher.count)?;
        // Also checks the rank of a single process.
        let rank = launcher.number(get, launcher.rank)?;
        ranks(launcher.name, rank, count)?;
        return if count > 1 { launcher.placement(get, count).map(Some) } else { Ok(None) };
    }
    Ok(None)
}

/// The placement that [`super::launch()`] gives.
fn ours(get: Get<'_>, address: String) -> Result<Placement, CliError> {
    let number = |name| number(OURS, name, &required(OURS, get, name)?);
    let (rank, count) = (number("RETROGRAPH_RANK")?, number("RETROGRAPH_RANKS")?);
    let (ranks, listen) = (ranks(OURS, rank, count)?, address.clone());
    let host_variable = Some("RETROGRAPH_COORDINATOR");
    let (local_rank, starter) = (rank, OURS);
    Ok(Placement { ranks, local_rank, address, host_variable, listen, hosts: false, starter })
}

impl Launcher {
    fn placement(&self, get: Get<'_>, count: usize) -> Result<Placement, CliError> {
        let rank = self.number(get, self.rank)?;
        let local_rank = self.number(get, self.local_rank)?;
        let ranks = ranks(self.name, rank, count)?;
        let one_host = match get(self.local_count) {
            Some(text) => {
                let local_count = number(self.name, self.local_count, &text)?;
                self.check_local(local_rank, local_count, count)?;
                local_count == count
            }
            None => get("SLURM_STEP_NUM_NODES").is_some_and(|nodes| nodes == "1"),
        };
        let port = self.port(get)?;
        let (host, host_variable) = match one_host {
            true => ("127.0.0.1".to_owned(), None),
            false => self.host(get)?,
        };
        let listen = if one_host { "127.0.0.1" } else { "0.0.0.0" };
        Ok(Placement {
            ranks,
            local_rank,
            address: format!("{host}:{port}"),
            host_variable,
            listen: format!("{listen}:{port}"),
            hosts: rank == 0,
            starter: self.name,
        })
    }

    /// Fails if the launcher contradicts itself. Ranks would wait for others that never come.
    fn check_local(&self, rank: usize, local: usize, count: usize) -> Result<(), CliError> {
        if rank < local && local <= count {
            return Ok(());
        }
        let Self { name, local_rank, local_count, count: all, .. } = self;
        Err(CliError::Ranks(format!(
            "{name} contradicts itself: {local_rank} is {rank}, {local_count} is {local} and {all} \
             is {count}; local ranks are counted from 0, and a host has at most all ranks; correct \
             them"
        )))
    }

    fn number(&self, get: Get<'_>, name: &'static str) -> Result<usize, CliError> {
        number(self.name, name, &required(self.name, get, name)?)
    }

    /// The host of rank 0, and the variable that names it.
    fn host(&self, get: Get<'_>) -> Result<(String, Option<&'static str>), CliError> {
        let named = |variable| Some((get(variable)?, Some(variable)));
        let listed = |variable| named(variable).map(|(nodes, from)| (first_host(&nodes), from));
        let of_slurm = || listed("SLURM_STEP_NODELIST").or_else(|| listed("SLURM_JOB_NODELIST"));
        let slurm = self.name == SLURM.name;
        let host = named("MASTER_ADDR").or_else(|| if slurm { of_slurm() } else { None });
        host.ok_or_else(|| {
            CliError::Ranks(format!(
                "{} does not say where rank 0 runs; set MASTER_ADDR to the name of its host, and \
                 MASTER_PORT to a free port there",
                self.name
            ))
        })
    }

    /// The port of the coordinator: the same on all ranks, but usually another one in other runs.
    fn port(&self, get: Get<'_>) -> Result<u16, CliError> {
        let Some(text) = get("MASTER_PORT") else {
            let job = ["SLURM_JOB_ID", "SLURM_STEP_ID", "PMIX_NAMESPACE", "PMI_JOBID"];
            let text: String = job.iter().filter_map(|name| get(name)).collect();
            let sum = text
                .bytes()
                .fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
            return Ok((FIRST_PORT + sum % PORTS) as u16);
        };
        let port = number(self.name, "MASTER_PORT", &text)?;
        // The torchrun agent itself listens on this port, for its store.
        let taken = get("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|used| used == "True");
        let port = Some(port).filter(|&port| port != 0);
        let port = port.and_then(|port| port.checked_add(usize::from(taken)));
        port.and_then(|port| u16::try_from(port).ok()).ok_or_else(|| {
            CliError::Ranks(format!("MASTER_PORT is `{text}`, not a port; set it to a free port"))
        })
    }
}

fn required(launcher: &str, get: Get<'_>, name: &str) -> Result<String, CliError> {
    get(name).ok_or_else(|| {
        CliError::Ranks(format!(
            "{launcher} started this process, but {name} is not set; set it, or unset the \
             other variables of {launcher}"
        ))
    })
}

fn number(launcher: &str, name: &str, text: &str) -> Result<usize, CliError> {
    text.trim().parse().map_err(|_| {
        CliError::Ranks(format!("{name} of {launcher} is `{text}`, not a number; correct it"))
    })
}

fn ranks(launcher: &str, rank: usize, count: usize) -> Result<Ranks, CliError> {
    if rank < count {
        return Ok(Ranks { rank, world_size: count });
    }
    Err(CliError::Ranks(format!(
        "{launcher} says that this is rank {rank} of {count}; ranks are counted from 0"
    )))
}

/// Returns the first host of a Slurm host list, such as `gpu[012-014,020],cpu1`.
fn first_host(list: &str) -> String {
    let Some((name, rest)) = list.split_once('[') else {
        return list.split(',').next().unwrap_or(list).to_owned();
    };
    if let Some((first, _)) = name.split_once(',') {
        return first.to_owned();
    }
    let number = rest.split(['-', ',', ']']).next().unwrap_or_default();
    format!("{name}{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Result<Option<Placement>, String> {
        let get = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        placement(&get).map_err(|error| error.to_string())
    }

    const TORCH: [(&str, &str); 6] = [
        ("RANK", "3"),
        ("WORLD_SIZE", "4"),
        ("LOCAL_RANK", "1"),
        ("LOCAL_WORLD_SIZE", "2"),
        ("MASTER_ADDR", "node7"),
        ("MASTER_PORT", "29500"),
    ];

    #[test]
    fn torchrun_places_ranks_and_its_store_keeps_its_port() {
        let placement = found(&TORCH).unwrap().unwrap();
        assert_eq!(placement.ranks, Ranks { rank: 3, world_size: 4 });
        assert_eq!((placement.local_rank, placement.hosts), (1, false));
        assert_eq!(placement.address, "node7:29500");
        assert_eq!(placement.host_variable, Some("MASTER_ADDR"));
        let store = [&TORCH[..], &[("TORCHELASTIC_USE_AGENT_STORE", "True")]].concat();
        assert_eq!(found(&store).unwrap().unwrap().address, "node7:29501");
    }

    #[test]
    fn ranks_of_one_host_connect_over_loopback() {
        let variables = [("LOCAL_WORLD_SIZE", "4"), ("RANK", "0"), ("LOCAL_RANK", "0")];
        let variables = [&variables[..], &TORCH].concat();
        let placement = found(&variables).unwrap().unwrap();
        assert_eq!(placement.address, "127.0.0.1:29500");
        assert_eq!((placement.listen.as_str(), placement.hosts), ("127.0.0.1:29500", true));
    }

    #[test]
    fn a_single_process_has_no_placement() {
        assert_eq!(found(&[]), Ok(None));
        assert_eq!(found(&[("WORLD_SIZE", "1"), ("RANK", "0")]), Ok(None));
        // A shell in a Slurm allocation, outside srun.
        assert_eq!(found(&[("SLURM_NTASKS", "4"), ("SLURM_PROCID", "0")]), Ok(None));
    }

    #[test]
    fn slurm_coordinates_ranks_on_its_first_host() {
        let step = [
            ("SLURM_STEP_NUM_TASKS", "8"),
            ("SLURM_PROCID", "5"),
            ("SLURM_LOCALID", "1"),
            ("SLURM_STEP_NUM_NODES", "2"),
            ("SLURM_STEP_NODELIST", "gpu[012-013]"),
            ("SLURM_JOB_ID", "4711"),
            ("SLURM_STEP_ID", "0"),
        ];
        let placement = found(&step).unwrap().unwrap();
        assert_eq!((placement.ranks.rank, placement.local_rank), (5, 1));
        let (host, port) = placement.address.split_once(':').unwrap();
        assert_eq!((host, placement.host_variable), ("gpu012", Some("SLURM_STEP_NODELIST")));
        assert!((20_000..40_000).contains(&port.parse::<u16>().unwrap()));
        let other = [&[("SLURM_JOB_ID", "4712")], &step[..]].concat();
        assert_ne!(found(&other).unwrap().unwrap().address, placement.address);
        let list = |text: &str| first_host(text);
        assert_eq!(list("a-1,b"), "a-1");
        assert_eq!(list("a,b[1-2]"), "a");
        assert_eq!(list("n[7]"), "n7");
    }

    #[test]
    fn mpi_needs_an_address_on_several_hosts() {
        let mpi = [
            ("OMPI_COMM_WORLD_SIZE", "4"),
            ("OMPI_COMM_WORLD_RANK", "2"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "0"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        ];
        let error = found(&mpi).unwrap_err();
        assert!(error.contains("Open MPI does not say where rank 0 runs; set MASTER_ADDR"));
        let named = [&mpi[..], &[("MASTER_ADDR", "head"), ("MASTER_PORT", "4000")]].concat();
        assert_eq!(found(&named).unwrap().unwrap().address, "head:4000");
    }

    #[test]
    fn mpich_places_ranks() {
        let variables = [
            ("PMI_SIZE", "4"),
            ("PMI_RANK", "2"),
            ("MPI_LOCALRANKID", "2"),
            ("MPI_LOCALNRANKS", "4"),
        ];
        let placement = found(&variables).unwrap().unwrap();
        assert_eq!(placement.ranks, Ranks { rank: 2, world_size: 4 });
        assert_eq!((placement.local_rank, placement.starter), (2, "MPI"));
        assert!(placement.address.starts_with("127.0.0.1:"), "{}", placement.address);
    }

    #[test]
    fn invalid_variables_are_named() {
        let with = |name: &'static str, value: &'static str| {
            found(&[&[(name, value)], &TORCH[..]].concat()).unwrap_err()
        };
        assert!(with("LOCAL_RANK", "x").contains("LOCAL_RANK of torchrun is `x`"));
        assert!(with("RANK", "4").contains("rank 4 of 4"));
        for port in ["70000", "0", "18446744073709551615"] {
            let variables = [("MASTER_PORT", port), ("TORCHELASTIC_USE_AGENT_STORE", "True")];
            let error = found(&[&variables[..], &TORCH].concat()).unwrap_err();
            assert!(error.contains(&format!("MASTER_PORT is `{port}`")), "{error}");
        }
        let contradiction = with("LOCAL_RANK", "2");
        assert!(
            contradiction.contains("LOCAL_RANK is 2, LOCAL_WORLD_SIZE is 2"),
            "{contradiction}"
        );
        assert!(with("LOCAL_WORLD_SIZE", "5").contains("WORLD_SIZE is 4"));
        let error = found(&[("RANK", "0"), ("WORLD_SIZE", "2")]).unwrap_err();
        assert!(error.contains("LOCAL_RANK is not set"), "{error}");
    }
}
