//! Finds the NCCL library of this machine.

use std::path::{Path, PathBuf};

use retrograph_finetune::{Device, Error};
use retrograph_runtime::Nccl;

use crate::error::CliError;

/// The variable that names the library.
const VARIABLE: &str = "RETROGRAPH_NCCL";
/// The variables that name an active Python environment.
const ENVIRONMENTS: [&str; 2] = ["VIRTUAL_ENV", "CONDA_PREFIX"];
/// The path of the library in a Python environment.
const IN_PACKAGES: &str = "site-packages/nvidia/nccl/lib/libnccl.so.2";

/// Loads NCCL for `device`: the simulated one for a simulated device.
pub(super) fn nccl(device: &Device, named: Option<&Path>) -> Result<Nccl, CliError> {
    if device.simulated {
        return simulated();
    }
    let named = named.map(Path::to_owned).or_else(|| std::env::var_os(VARIABLE).map(Into::into));
    if let Some(path) = named {
        // SAFETY: the user named this library as NCCL.
        return unsafe { Nccl::load_from(&path) }.map_err(|error| Error::from(error).into());
    }
    Nccl::load().or_else(|error| {
        let found = in_python().ok_or_else(|| CliError::from(Error::from(error)))?;
        // SAFETY: a library of this name and location is NCCL.
        unsafe { Nccl::load_from(&found) }.map_err(|error| Error::from(error).into())
    })
}

#[cfg(feature = "sim")]
fn simulated() -> Result<Nccl, CliError> {
    Ok(Nccl::simulated())
}

#[cfg(not(feature = "sim"))]
fn simulated() -> Result<Nccl, CliError> {
    Err(Error::NoSimulator.into())
}

/// Returns the library of the active Python environment.
fn in_python() -> Option<PathBuf> {
    let environments = ENVIRONMENTS.iter().filter_map(std::env::var_os);
    environments.map(|root| Path::new(&root).join("lib")).find_map(|lib| {
        let versions = std::fs::read_dir(lib).ok()?.flatten().map(|entry| entry.path());
        let is_python =
            |path: &PathBuf| path.file_name()?.to_str()?.starts_with("python").then_some(());
        let found = versions.filter(|path| is_python(path).is_some());
        found.map(|path| path.join(IN_PACKAGES)).find(|path| path.is_file())
    })
}
