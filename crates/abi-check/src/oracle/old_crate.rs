//! `cuda-driver-sys` 0.3, which bindgen made from the cuda.h of CUDA 10.2. Its source is read as
//! text: naming one of its functions would link libcuda.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::generated::{self, Unreadable};
use crate::model::Description;

/// Why the crate could not be described.
#[derive(Debug, thiserror::Error)]
pub enum OldCrateError {
    /// cargo did not report the location of its sources.
    #[error("cargo metadata does not tell where cuda-driver-sys lies: {message}")]
    NotFound {
        /// What it said instead.
        message: String,
    },
    /// The source is not there.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The source cannot be read.
    #[error("the source of cuda-driver-sys: {0}")]
    Unreadable(#[from] Unreadable),
}

/// Describes the crate.
pub fn describe() -> Result<Description, OldCrateError> {
    let path = folder()?.join("src/cuda.rs");
    let text =
        std::fs::read_to_string(&path).map_err(|source| OldCrateError::Io { path, source })?;
    Ok(generated::read(&text)?)
}

fn folder() -> Result<PathBuf, OldCrateError> {
    let missing = |message: String| OldCrateError::NotFound { message };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // Without the filter, cargo would fetch what only other platforms need.
    let platform = env!("ABI_CHECK_TARGET");
    command.args(["metadata", "--format-version=1", "--locked", "--filter-platform", platform]);
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = command.output().map_err(|error| missing(error.to_string()))?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)
        .map_err(|_| missing(String::from_utf8_lossy(&output.stderr).into_owned()))?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages
        .filter(|package| package["name"] == "cuda-driver-sys")
        .find_map(|package| Path::new(package["manifest_path"].as_str()?).parent())
        .map(Path::to_owned)
        .ok_or_else(|| missing("it is no dependency".to_owned()))
}
