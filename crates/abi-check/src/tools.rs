//! Search for the headers and libclang.

use std::path::{Path, PathBuf};

/// The variable, set by CI, that turns a missing tool into a failure instead of a skip.
pub const REQUIRE: &str = "RETROGRAPH_REQUIRE_ABI_TOOLS";

/// Paths of the tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tools {
    /// The folder of cuda.h 13.0.
    pub include_13: PathBuf,
    /// The folder of cuda.h 12.9.
    pub include_12: PathBuf,
    /// The folder of the newest nccl.h.
    pub nccl_newest: PathBuf,
    /// The folder of the oldest supported nccl.h.
    pub nccl_least: PathBuf,
}

/// Finds the tools by `RETROGRAPH_CUDA_13`, `RETROGRAPH_CUDA_12`, `RETROGRAPH_NCCL_NEWEST`,
/// `RETROGRAPH_NCCL_LEAST` and `LIBCLANG_PATH`, or in the folder of `cargo xtask toolchain`. The
/// error names the missing tool.
pub fn find() -> Result<Tools, String> {
    let include_13 = folder("RETROGRAPH_CUDA_13", "runtime-13.0/nvidia/cu13/include", "cuda.h")?;
    let include_12 =
        folder("RETROGRAPH_CUDA_12", "runtime-12.9/nvidia/cuda_runtime/include", "cuda.h")?;
    let nccl_newest = folder("RETROGRAPH_NCCL_NEWEST", "nccl-2.32/nvidia/nccl/include", "nccl.h")?;
    let nccl_least = folder("RETROGRAPH_NCCL_LEAST", "nccl-2.18/nvidia/nccl/include", "nccl.h")?;
    let libclang = folder("LIBCLANG_PATH", "libclang-18.1/clang/native", "libclang.so")?;
    point_bindgen_at(&libclang);
    if std::process::Command::new("cc").arg("--version").output().is_err() {
        return Err("there is no C compiler `cc`".to_owned());
    }
    Ok(Tools { include_13, include_12, nccl_newest, nccl_least })
}

fn folder(variable: &str, below: &str, file: &str) -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os(variable) {
        return Ok(PathBuf::from(named));
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let folder = root.join(target).join("toolchain").join(below);
    match folder.join(file).exists() {
        true => Ok(folder),
        false => Err(format!("no {file}: set {variable}, or run `cargo xtask toolchain`")),
    }
}

/// bindgen finds libclang only through an environment variable.
fn point_bindgen_at(folder: &Path) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: threads of this program read the environment only through the standard library,
        // which takes a lock; libclang, which does not, is loaded after this.
        unsafe { std::env::set_var("LIBCLANG_PATH", folder) };
    });
}
