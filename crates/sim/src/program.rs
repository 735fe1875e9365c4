//! The command: runs a program on the simulated libcuda, or writes the library to a folder.

use std::ffi::OsString;
use std::hash::{Hash, Hasher};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, Parser, Subcommand, ValueEnum};
use etcetera::BaseStrategy as _;
use retrograph_driver_sim::SimError;

use crate::settings::{BadSetting, Settings};

const FILE: &str = "libcuda.so.1";
/// The name that linkers, and some programs, look for.
const LINK: &str = "libcuda.so";

/// Runs CUDA programs without a GPU, on a simulated libcuda.so.1.
#[derive(Debug, Parser)]
#[command(name = "retrograph-sim", version)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run a program on the simulated driver. Its exit status is returned.
    Run(Run),
    /// Write libcuda.so.1, and libcuda.so for linkers, to a folder.
    Library {
        /// The folder; created if it does not exist.
        #[arg(long, value_name = "FOLDER")]
        out: PathBuf,
    },
}

#[derive(Debug, Args)]
struct Run {
    /// Append the report of each process to this file, as one line of JSON.
    #[arg(long, value_name = "FILE.json")]
    report: Option<PathBuf>,
    /// Number of devices.
    #[arg(long, value_name = "N")]
    devices: Option<String>,
    /// Memory of each device, such as 512M or 4G.
    #[arg(long, value_name = "BYTES")]
    memory: Option<String>,
    /// Compute capability, such as 8.6.
    #[arg(long, value_name = "X.Y")]
    capability: Option<String>,
    /// CUDA version of the driver, such as 12.9; at most 13.5.
    #[arg(long, value_name = "X.Y")]
    driver: Option<String>,
    /// Execution order: late and in an order by seed (adversarial), or before the call returns and
    /// in ascending order (prompt).
    #[arg(long)]
    order: Option<Order>,
    /// Seed of every order that CUDA leaves undefined.
    #[arg(long, value_name = "N")]
    seed: Option<String>,
    /// Detect data races: stop kernels whose threads race. Kernels run many times slower.
    #[arg(long)]
    races: bool,
    /// Number of host threads that run kernels.
    #[arg(long, value_name = "N")]
    threads: Option<String>,
    /// What a call that is not simulated does: return 801, or abort the process.
    #[arg(long)]
    on_unsupported: Option<OnUnsupported>,
    /// The program and its arguments.
    #[arg(required = true, last = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Order {
    Adversarial,
    Prompt,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OnUnsupported {
    Return,
    Abort,
}

/// Why the command failed.
#[derive(Debug, thiserror::Error)]
enum ProgramError {
    #[error("cannot write {path}: {source}")]
    Write { path: PathBuf, source: io::Error },
    #[error("{name} is {value:?}; set it to {wanted}")]
    Setting { name: String, value: OsString, wanted: &'static str },
    #[error(transparent)]
    Config(#[from] SimError),
    #[error("cannot start {program:?}: {source}")]
    Start { program: OsString, source: io::Error },
    #[error("{path} cannot be in the library path, because it contains a `:`; choose another path")]
    Colon { path: PathBuf },
    #[error("the folder for the library is not known: {0}")]
    Home(#[from] etcetera::HomeDirError),
    #[error("the path of this program is not known: {0}")]
    Itself(io::Error),
}

/// Runs the command of this process and returns its exit status.
#[expect(clippy::print_stderr, reason = "a program reports its errors")]
pub(crate) fn run() -> i32 {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return error.exit_code();
        }
    };
    let done = match cli.verb {
        Verb::Run(arguments) => start(&arguments),
        Verb::Library { out } => copy_to(&out),
    };
    match done {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("error: {error}");
            1
        }
    }
}

/// Replaces this process with the program. Returns only if that fails.
fn start(run: &Run) -> Result<(), ProgramError> {
    let variables = run.variables();
    check(&variables)?;
    let report = run.create_report()?;
    let variables = variables.into_iter().chain(report);
    let folder = etcetera::choose_base_strategy()?.cache_dir().join("retrograph/sim");
    let library = itself()?;
    let folder = folder.join(folder_name(&library));
    if folder.as_os_str().as_encoded_bytes().contains(&b':') {
        return Err(ProgramError::Colon { path: folder });
    }
    link_in(&folder, &library)?;
    // There is at least one word, or the command line would have been refused.
    let program = run.command.first().cloned().unwrap_or_default();
    let mut command = Command::new(&program);
    command.args(run.command.iter().skip(1)).env("LD_LIBRARY_PATH", search_path(&folder));
    for (name, value) in variables {
        command.env(name, value);
    }
    Err(ProgramError::Start { program, source: command.exec() })
}

/// Checks the settings that the program gets. The library could only abort the program.
fn check(options: &[(&'static str, OsString)]) -> Result<(), ProgramError> {
    let option = |name: &str| options.iter().find(|(known, _)| *known == name);
    let read = Settings::read(&|name| match option(name) {
        Some((_, value)) => Some(value.clone()),
        None => std::env::var_os(name),
    });
    let settings = read.map_err(|BadSetting { name, value, wanted }| {
        let name = match (option(name), name.strip_prefix("RETROGRAPH_SIM_")) {
            (Some(_), Some(word)) => format!("--{}", word.to_lowercase().replace('_', "-")),
            _ => name.to_owned(),
        };
        ProgramError::Setting { name, value, wanted }
    })?;
    Ok(settings.config.check()?)
}

/// Returns the folder followed by the previous search path.
fn search_path(folder: &Path) -> OsString {
    let mut path = folder.as_os_str().to_owned();
    if let Some(more) = std::env::var_os("LD_LIBRARY_PATH").filter(|more| !more.is_empty()) {
        path.push(":");
        path.push(more);
    }
    path
}

impl Run {
    /// The variables for the options that were given, without the path of the report.
    fn variables(&self) -> Vec<(&'static str, OsString)> {
        let order = self.order.map(|order| match order {
            Order::Adversarial => "adversarial",
            Order::Prompt => "prompt",
        });
        let on_unsupported = self.on_unsupported.map(|choice| match choice {
            OnUnsupported::Return => "return",
            OnUnsupported::Abort => "abort",
        });
        let options = [
            ("RETROGRAPH_SIM_DEVICES", self.devices.as_deref()),
            ("RETROGRAPH_SIM_MEMORY", self.memory.as_deref()),
            ("RETROGRAPH_SIM_CAPABILITY", self.capability.as_deref()),
            ("RETROGRAPH_SIM_DRIVER", self.driver.as_deref()),
            ("RETROGRAPH_SIM_ORDER", order),
            ("RETROGRAPH_SIM_SEED", self.seed.as_deref()),
            ("RETROGRAPH_SIM_RACES", self.races.then_some("1")),
            ("RETROGRAPH_SIM_THREADS", self.threads.as_deref()),
            ("RETROGRAPH_SIM_ON_UNSUPPORTED", on_unsupported),
        ];
        options
            .into_iter()
            .filter_map(|(name, value)| Some((name, OsString::from(value?))))
            .collect()
    }

    /// Creates the file of the report, if there is one, and returns its variable.
    fn create_report(&self) -> Result<Option<(&'static str, OsString)>, ProgramError> {
        let Some(path) = &self.report else { return Ok(None) };
        // Processes of the program may have other working directories, and append to the file.
        let failed = |source| ProgramError::Write { path: path.clone(), source };
        std::fs::File::create(path).map_err(failed)?;
        let path = path.canonicalize().map_err(failed)?;
        Ok(Some(("RETROGRAPH_SIM_REPORT", path.into())))
    }
}

/// Returns the file of this program, which is also the library.
fn itself() -> Result<PathBuf, ProgramError> {
    std::env::current_exe().map_err(ProgramError::Itself)
}

/// Returns the name of a folder for the links to a library. Concurrent programs that use different
/// files of the same version must not change each other's links.
fn folder_name(library: &Path) -> String {
    let mut hasher = std::hash::DefaultHasher::new();
    library.hash(&mut hasher);
    format!("{}-{:016x}", env!("CARGO_PKG_VERSION"), hasher.finish())
}

/// Creates the folder with links to `library` under both names.
fn link_in(folder: &Path, library: &Path) -> Result<(), ProgramError> {
    for name in [FILE, LINK] {
        let path = folder.join(name);
        let made = || {
            if std::fs::read_link(&path).is_ok_and(|target| target == library) {
                return Ok(());
            }
            std::fs::create_dir_all(folder)?;
            replace(folder, &path, |fresh| std::os::unix::fs::symlink(library, fresh))
        };
        made().map_err(|source| ProgramError::Write { path: path.clone(), source })?;
    }
    Ok(())
}

/// Writes a copy of the library into a folder.
fn copy_to(folder: &Path) -> Result<(), ProgramError> {
    let library = itself()?;
    let (file, link) = (folder.join(FILE), folder.join(LINK));
    let made = || {
        std::fs::create_dir_all(folder)?;
        replace(folder, &file, |fresh| std::fs::copy(&library, fresh).map(drop))?;
        replace(folder, &link, |fresh| std::os::unix::fs::symlink(FILE, fresh))
    };
    made().map_err(|source| ProgramError::Write { path: file.clone(), source })
}

/// Creates a file under a temporary name and renames it: programs that use the old file keep it,
/// and no program sees an incomplete file.
fn replace(
    folder: &Path,
    path: &Path,
    make: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let fresh = tempfile::tempdir_in(folder)?;
    let fresh = fresh.path().join("fresh");
    make(&fresh)?;
    std::fs::rename(&fresh, path)
}
