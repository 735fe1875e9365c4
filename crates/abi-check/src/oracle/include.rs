//! A header, and what a compiler needs to read it.

use std::path::{Path, PathBuf};

/// An NVIDIA header.
#[derive(Clone, Debug)]
pub struct Include {
    /// The folder of the header.
    pub folder: PathBuf,
    /// Its file name.
    pub header: &'static str,
    /// The prefix of the names of all headers whose declarations count.
    pub family: &'static str,
    /// Folders of headers that it includes.
    others: Vec<PathBuf>,
}

impl Include {
    /// The cuda.h of a folder.
    pub fn cuda(folder: &Path) -> Self {
        let (folder, others) = (folder.to_owned(), Vec::new());
        Self { folder, header: "cuda.h", family: "cuda", others }
    }

    /// The cudaTypedefs.h of a folder.
    pub fn typedefs(folder: &Path) -> Self {
        Self { header: "cudaTypedefs.h", ..Self::cuda(folder) }
    }

    /// The nccl.h of a folder. It includes the CUDA runtime header only for the stream type, which
    /// the folder `include` of this crate declares from the cuda.h of the folder `cuda`.
    pub fn nccl(folder: &Path, cuda: &Path) -> Self {
        let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
        let (folder, others) = (folder.to_owned(), vec![ours, cuda.to_owned()]);
        Self { folder, header: "nccl.h", family: "nccl", others }
    }

    /// The arguments of a compiler.
    pub fn arguments(&self) -> Vec<String> {
        let folders = std::iter::once(&self.folder).chain(&self.others);
        let mut arguments: Vec<_> =
            folders.map(|folder| format!("-I{}", folder.display())).collect();
        // nccl.h declares bf16 only if cuda_bf16.h is there.
        arguments.push("-D__CUDA_BF16_TYPES_EXIST__".to_owned());
        arguments
    }
}
