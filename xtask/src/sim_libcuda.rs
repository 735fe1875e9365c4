//! Builds the simulated driver as a shared library that replaces libcuda.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::workspace::{check, command, target_dir};

/// The package of the library.
pub(crate) const PACKAGE: &str = "retrograph-sim-libcuda";
/// The library in the build directory.
pub(crate) const BUILT: &str = "libretrograph_sim_libcuda.so";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The folder that gets `libcuda.so.1`, and `libcuda.so` for linkers.
    #[arg(long)]
    out: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    check(command("cargo", &["build", "--release", "--locked", "-p", PACKAGE]))?;
    install(&target_dir().join("release").join(BUILT), &arguments.out)?;
    println!("LD_LIBRARY_PATH={} runs a program on it", arguments.out.display());
    Ok(())
}

/// Copies the library to `out` under the driver's names.
pub(crate) fn install(built: &Path, out: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    // A program that has the old file open keeps it.
    let name = out.join("libcuda.so.1");
    let fresh = out.join(".libcuda.so.1.new");
    fs::copy(built, &fresh).with_context(|| format!("cannot copy {}", built.display()))?;
    fs::rename(&fresh, &name)?;
    let link = out.join("libcuda.so");
    if link.symlink_metadata().is_ok() {
        fs::remove_file(&link)?;
    }
    make_link(&link).with_context(|| format!("cannot make {}", link.display()))
}

#[cfg(unix)]
fn make_link(link: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink("libcuda.so.1", link)
}

#[cfg(not(unix))]
fn make_link(_link: &Path) -> std::io::Result<()> {
    Err(std::io::Error::other("the library takes the place of libcuda on Linux only"))
}
