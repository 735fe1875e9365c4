//! cuda.h and nccl.h by bindgen and libclang.

use std::path::PathBuf;

use super::generated::{self, Unreadable};
use super::include::Include;
use crate::model::Description;

/// A failure of bindgen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindgenError {
    /// libclang or the header failed.
    #[error("bindgen on {header}: {message}")]
    Failed {
        /// The header.
        header: PathBuf,
        /// The message.
        message: String,
    },
    /// The output of bindgen cannot be parsed.
    #[error("the output of bindgen on {header}: {source}")]
    Unreadable {
        /// The header.
        header: PathBuf,
        /// The parse error.
        source: Unreadable,
    },
}

/// Describes a header.
///
/// cuda.h declares earlier versions of functions only with the macro of the library itself, so it
/// is read with and without. Without takes precedence.
pub fn describe(include: &Include) -> Result<Description, BindgenError> {
    let mut all = read(include, false)?;
    let internal = read(include, true)?;
    for (name, function) in internal.functions {
        all.functions.entry(name).or_insert(function);
    }
    for (name, target) in internal.aliases {
        all.aliases.entry(name).or_insert(target);
    }
    for (name, definition) in internal.types {
        all.types.entry(name).or_insert(definition);
    }
    Ok(all)
}

fn read(include: &Include, internal: bool) -> Result<Description, BindgenError> {
    let header = include.folder.join(include.header);
    let mut builder = bindgen::Builder::default()
        .header(header.display().to_string())
        .clang_args(include.arguments())
        .default_enum_style(bindgen::EnumVariation::NewType {
            is_bitfield: false,
            is_global: false,
        })
        // All declarations of these headers, and the C library's types that they need.
        .allowlist_file(format!("{}/{}.*", include.folder.display(), include.family))
        .allowlist_type("CUstream")
        .generate_comments(false)
        .layout_tests(true)
        .formatter(bindgen::Formatter::None);
    if let Some(folder) = compiler_headers() {
        builder = builder.clang_arg(format!("-isystem{}", folder.display()));
    }
    if internal {
        builder = builder.clang_arg("-D__CUDA_API_VERSION_INTERNAL");
    }
    let bindings = builder.generate().map_err(|error| BindgenError::Failed {
        header: header.clone(),
        message: error.to_string(),
    })?;
    generated::read(&bindings.to_string())
        .map_err(|source| BindgenError::Unreadable { header, source })
}

/// The folder of `stddef.h` of `cc`, which the wheel of libclang lacks.
fn compiler_headers() -> Option<PathBuf> {
    let output = std::process::Command::new("cc").arg("-print-file-name=include").output().ok()?;
    let folder = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    folder.join("stddef.h").is_file().then_some(folder)
}
