//! Finds `nvcc` and `ptxas`.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::error::Error;

/// The variable that names `nvcc`.
pub(crate) const NVCC: &str = "NVCC";
/// The variable that names `ptxas`.
pub(crate) const PTXAS: &str = "RETROGRAPH_PTXAS";
/// The variables that name the folder of the CUDA toolkit.
const TOOLKITS: [&str; 2] = ["CUDA_HOME", "CUDA_PATH"];

/// All variables that affect the search for tools.
pub(crate) const VARIABLES: [&str; 5] = [NVCC, PTXAS, TOOLKITS[0], TOOLKITS[1], "PATH"];

/// The values of variables.
pub(crate) type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Finds `nvcc`: named by `NVCC`, in the toolkit, or in `PATH`.
pub(crate) fn nvcc(variables: Variables<'_>) -> Result<Option<PathBuf>, Error> {
    Ok(named(NVCC, variables)?.or_else(|| in_folders("nvcc", folders(variables))))
}

/// Finds `ptxas`: named by `RETROGRAPH_PTXAS`, next to `nvcc`, in the toolkit, or in `PATH`.
pub(crate) fn ptxas(variables: Variables<'_>) -> Result<Option<PathBuf>, Error> {
    if let Some(ptxas) = named(PTXAS, variables)? {
        return Ok(Some(ptxas));
    }
    let nvcc = nvcc(variables)?;
    let beside = nvcc.iter().filter_map(|nvcc| nvcc.parent()).map(PathBuf::from);
    Ok(in_folders("ptxas", beside.chain(folders(variables))))
}

/// Returns the tool that a variable names. An invalid value is an error, because the search would
/// find another tool than the intended one.
fn named(variable: &'static str, variables: Variables<'_>) -> Result<Option<PathBuf>, Error> {
    let Some(value) = variables(variable).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let path = PathBuf::from(value);
    // A bare name is never the file of that name in the working directory: starting it would
    // search `PATH` as well.
    if path.components().count() == 1 {
        let name = path.to_string_lossy().into_owned();
        let found = in_folders(&name, folders(variables));
        return found.map(Some).ok_or(Error::ToolAbsent { variable, path });
    }
    if path.is_file() { Ok(Some(path)) } else { Err(Error::ToolAbsent { variable, path }) }
}

/// The folders to search: `bin` of each toolkit, then `PATH`.
fn folders(variables: Variables<'_>) -> impl Iterator<Item = PathBuf> {
    let toolkits = TOOLKITS.into_iter().filter_map(variables).filter(|value| !value.is_empty());
    let toolkits: Vec<_> = toolkits.map(|home| PathBuf::from(home).join("bin")).collect();
    let path = variables("PATH").unwrap_or_default();
    let path: Vec<_> = std::env::split_paths(&path).collect();
    toolkits.into_iter().chain(path)
}

fn in_folders(name: &str, folders: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    let file = format!("{name}{}", std::env::consts::EXE_SUFFIX);
    folders.map(|folder| folder.join(&file)).find(|path| path.is_file())
}
