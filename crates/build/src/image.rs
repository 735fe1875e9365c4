//! One image to embed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use retrograph_ptx::SmTarget;

use crate::error::Error;

/// An image: PTX, or CUDA C++ that `nvcc` compiles to PTX.
#[derive(Clone, Debug)]
pub struct Image {
    pub(crate) name: String,
    pub(crate) source: Source,
    targets: Option<Vec<String>>,
    pub(crate) nvcc_arguments: Vec<OsString>,
}

/// The source of the PTX. Paths are relative to the package.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Ptx(String),
    PtxFile(PathBuf),
    CudaFile(PathBuf),
}

impl Image {
    /// The PTX in a file, a path relative to the package. The image has the file's name.
    pub fn ptx_file(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self::new(stem(&path), Source::PtxFile(path))
    }

    /// PTX from the build script.
    pub fn ptx(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self::new(name.into(), Source::Ptx(text.into()))
    }

    /// CUDA C++ in a file, a path relative to the package. The image has the file's name. `nvcc`
    /// compiles it to PTX for the lowest target of the image; `extern "C"` keeps the names of entry
    /// points.
    pub fn cuda_file(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self::new(stem(&path), Source::CudaFile(path))
    }

    fn new(name: String, source: Source) -> Self {
        Self { name, source, targets: None, nvcc_arguments: Vec::new() }
    }

    /// Sets another name. In upper case, it is the name of the constant with the PTX.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Sets the targets of only this image, such as `sm_90a`. They replace [`Images::targets`].
    ///
    /// [`Images::targets`]: crate::Images::targets
    #[must_use]
    pub fn targets<T: Into<String>>(self, targets: impl IntoIterator<Item = T>) -> Self {
        Self { targets: Some(targets.into_iter().map(Into::into).collect()), ..self }
    }

    /// Further arguments of `nvcc`, such as `-Iinclude` or `--use_fast_math`.
    #[must_use]
    pub fn nvcc_arguments<T: Into<OsString>>(
        mut self,
        arguments: impl IntoIterator<Item = T>,
    ) -> Self {
        self.nvcc_arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// The name of the constant with the PTX.
    pub(crate) fn constant(&self) -> Result<String, Error> {
        let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let name = self.name.replace(['-', '.', ' '], "_").to_ascii_uppercase();
        let starts = name.starts_with(|letter: char| letter.is_ascii_alphabetic());
        match starts && name.chars().all(is_word) {
            true => Ok(name),
            false => Err(Error::Name { name: self.name.clone() }),
        }
    }

    /// The targets of this image: its own ones, or else `common`. At least one, each once.
    pub(crate) fn parsed_targets(&self, common: &[String]) -> Result<Vec<SmTarget>, Error> {
        let image = || self.name.clone();
        let names = self.targets.as_deref().unwrap_or(common);
        let parsed = names.iter().map(|name| {
            let wrong = |source| Error::Target { image: image(), source };
            let target: SmTarget = name.parse().map_err(wrong)?;
            match target.is_known() {
                true => Ok(target),
                false => Err(Error::UnknownTarget { image: image(), target: name.clone() }),
            }
        });
        let mut targets = parsed.collect::<Result<Vec<_>, _>>()?;
        targets.sort_unstable();
        targets.dedup();
        if targets.is_empty() { Err(Error::NoTarget { image: image() }) } else { Ok(targets) }
    }
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}
