//! Errors of a build script.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use retrograph_bundle::BundleBuildError;
use retrograph_ptx::target::ParseSmTargetError;
use retrograph_ptx::{CannotRun, ParseError};

/// Images that could not be embedded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Cargo sets `OUT_DIR` for build scripts, and it is absent.
    #[error("OUT_DIR is not set; call this from a build script, or `build` with a folder")]
    NoOutDir,
    /// The name of the Rust file is not a file name.
    #[error("`{name}` cannot name a Rust file; use letters, digits and `_`")]
    Module {
        /// The name.
        name: String,
    },
    /// The name of an image cannot become the name of a constant.
    #[error("`{name}` cannot name a constant; name the image with letters, digits and `_`")]
    Name {
        /// The name.
        name: String,
    },
    /// Two images have the same constant.
    #[error("two images have the constant `{constant}`; give one of them another name")]
    Duplicate {
        /// The constant.
        constant: String,
    },
    /// An image has no target.
    #[error("the image `{image}` has no SM target; name at least one, such as sm_80")]
    NoTarget {
        /// The image.
        image: String,
    },
    /// The name of a target cannot be read.
    #[error("the image `{image}` has an invalid target: {source}")]
    Target {
        /// The image.
        image: String,
        /// The name, and the format of names.
        #[source]
        source: ParseSmTargetError,
    },
    /// No PTX ISA version supports the target.
    #[error("the image `{image}` has the target {target}, which no PTX ISA version supports")]
    UnknownTarget {
        /// The image.
        image: String,
        /// The target.
        target: String,
    },
    /// A file cannot be read.
    #[error("{} cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("{} cannot be written: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// There is no `nvcc` for a CUDA C++ file.
    #[error(
        "{} needs nvcc, which is neither in PATH nor in CUDA_HOME or CUDA_PATH; install the CUDA \
         toolkit, set NVCC to the path of nvcc, or keep the output of `nvcc -ptx` beside the \
         source and embed it as a PTX file", source_file.display()
    )]
    NoNvcc {
        /// The CUDA C++ file.
        source_file: PathBuf,
    },
    /// There is no `ptxas`, which [`Assembly::Required`](crate::Assembly::Required) needs.
    #[error(
        "there is no ptxas, which makes the machine code: it is neither beside nvcc, nor in PATH, \
         CUDA_HOME or CUDA_PATH; install the CUDA toolkit, set RETROGRAPH_PTXAS to the path of \
         ptxas, or choose `Assembly::IfFound`, by which the driver compiles the images when the \
         program prewarms them"
    )]
    NoPtxas,
    /// A variable names a tool that does not exist.
    #[error("{variable} names {}, which is not a file; correct or unset it", path.display())]
    ToolAbsent {
        /// The variable.
        variable: &'static str,
        /// Its value.
        path: PathBuf,
    },
    /// `nvcc` cannot be started.
    #[error("{} cannot be started: {source}", nvcc.display())]
    StartNvcc {
        /// The compiler.
        nvcc: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// `nvcc` refused a file.
    #[error("nvcc refused {} ({status}):\n{log}", source_file.display())]
    Nvcc {
        /// The CUDA C++ file.
        source_file: PathBuf,
        /// The exit status of `nvcc`.
        status: ExitStatus,
        /// Its messages.
        log: String,
    },
    /// The parser refused PTX that no `ptxas` could check. `ptxas` knows more instructions.
    #[error("the image `{image}` cannot be checked without ptxas: {source}")]
    Parse {
        /// The image.
        image: String,
        /// Line, column and cause.
        #[source]
        source: ParseError,
    },
    /// An image does not run on devices of one of its targets.
    #[error("the image `{image}` does not run on one of its targets: {source}")]
    WrongTarget {
        /// The image.
        image: String,
        /// Both targets and a remedy.
        #[source]
        source: CannotRun,
    },
    /// The bundle cannot be created.
    #[error(transparent)]
    Bundle(#[from] BundleBuildError),
}
