//! Compiles the CUDA kernels of the simulator's tests with `nvcc` to PTX in the same folder.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::{toolchain, workspace};

/// The folder of the sources and the PTX.
const FOLDER: &str = "crates/driver-sim/tests/nvcc";
/// The oldest virtual architecture that the kernels support.
const ARCHITECTURE: &str = "compute_80";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The compiler [default: the pinned one from Python wheels].
    #[arg(long)]
    nvcc: Option<PathBuf>,
    /// Write nothing; fail if the committed PTX is not current.
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let nvcc = match &arguments.nvcc {
        Some(path) => path.clone(),
        None => toolchain::nvcc()?,
    };
    let folder = workspace::root().join(FOLDER);
    let mut sources: Vec<PathBuf> = std::fs::read_dir(&folder)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "cu"))
        .collect();
    sources.sort();
    let mut stale = Vec::new();
    for source in &sources {
        let text = compile(&nvcc, source)?;
        let target = source.with_extension("ptx");
        if arguments.check {
            if std::fs::read_to_string(&target).unwrap_or_default() != text {
                stale.push(target.display().to_string());
            }
        } else {
            std::fs::write(&target, text)?;
        }
    }
    if !stale.is_empty() {
        bail!("stale PTX: {}; run `cargo xtask nvcc-kernels`", stale.join(", "));
    }
    println!("nvcc-kernels: {} kernels", sources.len());
    Ok(())
}

/// The PTX of a source.
fn compile(nvcc: &Path, source: &Path) -> anyhow::Result<String> {
    let folder = workspace::target_dir().join("nvcc-kernels");
    std::fs::create_dir_all(&folder)?;
    let name = source.file_stem().context("a source has no name")?;
    let output = folder.join(name).with_extension("ptx");
    let mut command = std::process::Command::new(nvcc);
    command.args(["-ptx", "-arch", ARCHITECTURE]).arg(source).arg("-o").arg(&output);
    workspace::check(command).with_context(|| format!("nvcc of {}", source.display()))?;
    Ok(std::fs::read_to_string(&output)?)
}
