//! Where compiled kernels come from.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use clap::Args;
use retrograph_finetune::{Device, DeviceChoice};
use retrograph_runtime::ModuleCache;
use retrograph_runtime::modules::{
    Bundle, CacheDir, CacheOptions, CompileOptions, Compiler, WorkerCommand,
};

use super::up_to;
use crate::error::CliError;
use crate::screen::fact;

#[derive(Debug, Args)]
pub(crate) struct CacheArguments {
    /// Directory for compiled kernels, or none for no disk cache [default: the user's cache
    /// directory; none on the simulated driver].
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<DirChoice>,
    /// Load compiled kernels from this bundle, which `cargo xtask prewarm --bundle` writes.
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
    /// How to compile kernels that are not cached: processes (the driver, in parallel processes),
    /// driver (in this process only), or ptxas=PATH [default: processes; driver on the simulated
    /// driver].
    #[arg(long, value_name = "HOW")]
    compile: Option<CompileChoice>,
    /// Maximum number of compiler processes, including this one, up to 1024; 0 means one per CPU
    /// core, but at most 4 with --compile processes.
    #[arg(long, default_value_t = 0, value_parser = up_to::<usize>(1024))]
    compile_workers: usize,
}

/// A directory, or none.
#[derive(Clone, Debug)]
pub(crate) enum DirChoice {
    Nowhere,
    At(PathBuf),
}

impl DirChoice {
    /// The directory, if there is one.
    pub(crate) fn path(&self) -> Option<&Path> {
        if let Self::At(path) = self { Some(path) } else { None }
    }
}

impl FromStr for DirChoice {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(if text == "none" { Self::Nowhere } else { Self::At(text.into()) })
    }
}

#[derive(Clone, Debug)]
enum CompileChoice {
    Driver,
    Processes,
    Ptxas(PathBuf),
}

impl FromStr for CompileChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match (text, text.strip_prefix("ptxas=")) {
            ("driver", _) => Ok(Self::Driver),
            ("processes", _) => Ok(Self::Processes),
            (_, Some(path)) if !path.is_empty() => Ok(Self::Ptxas(path.into())),
            _ => Err(format!("`{text}` is not driver, processes or ptxas=PATH")),
        }
    }
}

impl CacheArguments {
    /// Returns the directory given for compiled kernels, if any.
    pub(crate) fn dir(&self) -> Option<&Path> {
        self.cache_dir.as_ref().and_then(DirChoice::path)
    }

    /// Checks that the bundle can be read and the compiler started.
    pub(crate) fn require(&self) -> Result<(), CliError> {
        self.bundle.as_ref().map(Bundle::open).transpose()?;
        match &self.compile {
            Some(CompileChoice::Ptxas(path)) => require_compiler(path),
            _ => Ok(()),
        }
    }

    /// The module cache of `device`, which was opened for `choice`.
    pub(crate) fn modules(
        &self,
        device: &Device,
        choice: DeviceChoice,
    ) -> Result<ModuleCache, CliError> {
        let disk = match &self.cache_dir {
            Some(DirChoice::Nowhere) => None,
            Some(DirChoice::At(path)) => Some(CacheDir::at(path)),
            None if device.simulated => None,
            None => CacheDir::user().inspect_err(|error| fact("cache", error)).ok(),
        };
        let bundles = self.bundle.iter().map(Bundle::open);
        // A simulated driver executes no machine code.
        #[cfg(feature = "embedded-bundle")]
        let bundles = bundles.chain((!device.simulated).then(Bundle::embedded));
        let bundles = bundles.collect::<Result<_, _>>()?;
        let choice = if device.simulated { DeviceChoice::Simulated } else { choice };
        let mut options = CacheOptions::default();
        options.bundles = bundles;
        options.disk = disk;
        options.compile = self.warming(choice)?;
        Ok(ModuleCache::with(&device.context, options))
    }

    /// Fails if compiler processes are requested and the path of this program is unknown, or if
    /// the requested compiler cannot be started.
    fn warming(&self, device: DeviceChoice) -> Result<CompileOptions, CliError> {
        let mut options = CompileOptions::default();
        options.workers = self.compile_workers;
        options.compiler = match &self.compile {
            None if device == DeviceChoice::Simulated => Compiler::Driver,
            None => processes(device).unwrap_or_default(),
            Some(CompileChoice::Driver) => Compiler::Driver,
            Some(CompileChoice::Ptxas(path)) => {
                require_compiler(path)?;
                Compiler::Ptxas(path.clone())
            }
            Some(CompileChoice::Processes) => processes(device).map_err(CliError::OwnProgram)?,
        };
        Ok(options)
    }
}

/// Starts the compiler to ask for its version.
fn require_compiler(path: &Path) -> Result<(), CliError> {
    let asked = Command::new(path).arg("--version").output();
    asked.map(drop).map_err(|source| CliError::Compiler { path: path.to_owned(), source })
}

/// This program as the compiler, for the same device.
fn processes(device: DeviceChoice) -> std::io::Result<Compiler> {
    let program = std::env::current_exe()?;
    let arguments = ["compile-worker", "--device", &device.to_string()].map(Into::into).to_vec();
    Ok(Compiler::Processes(WorkerCommand { program, arguments }))
}

/// The arguments of a process that compiles for another one.
#[derive(Debug, Args)]
pub(crate) struct WorkerArguments {
    /// The device of the process that started this one.
    #[arg(long)]
    device: DeviceChoice,
}

impl WorkerArguments {
    /// Compiles until standard input ends.
    pub(crate) fn run(&self) -> Result<crate::Outcome, CliError> {
        let device = Device::open(self.device)?;
        let (input, output) = (std::io::stdin().lock(), std::io::stdout().lock());
        retrograph_runtime::modules::serve_compiler(&device.context, input, output)
            .map_err(CliError::Worker)?;
        Ok(crate::Outcome::Done)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        cache: CacheArguments,
    }

    fn warming(line: &[&str], device: &str) -> CompileOptions {
        let line = Line::parse_from([&["program"], line].concat());
        line.cache.warming(device.parse().unwrap()).unwrap()
    }

    #[test]
    fn compiler_processes_are_the_default_only_on_a_gpu() {
        let CompileOptions { compiler, workers, .. } = warming(&[], "cuda:1");
        let Compiler::Processes(command) = compiler else { panic!("{compiler:?}") };
        assert_eq!(command.arguments, ["compile-worker", "--device", "cuda:1"]);
        assert_eq!(workers, 0, "the default number");
        assert_eq!(warming(&[], "sim").compiler, Compiler::Driver);
        assert_eq!(warming(&["--compile", "driver"], "cuda:0").compiler, Compiler::Driver);
        let asked = warming(&["--compile", "processes", "--compile-workers", "2"], "sim");
        assert!(matches!(asked.compiler, Compiler::Processes(_)));
        assert_eq!(asked.workers, 2);
    }
}
