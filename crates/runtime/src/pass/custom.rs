//! Images of the caller, and their launches.

use std::fmt;
use std::sync::Arc;

use retrograph_kernel_abi::Argument;

use super::buffer::BufferId;

/// The caller's own image, prewarmed with all kernels of a pass.
///
/// ```no_run
/// use retrograph_runtime::CustomImage;
///
/// let image = CustomImage::ptx("scale", std::fs::read_to_string("scale.ptx")?);
/// let image = CustomImage::machine_code("scale", std::fs::read("scale.cubin")?);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomImage {
    /// The name, unique among the custom images of a pass.
    pub name: String,
    /// The code.
    pub code: ImageCode,
}

/// The code of a [`CustomImage`].
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImageCode {
    /// PTX, which is compiled unless a bundle or the cache on disk has its machine code.
    Ptx(Arc<str>),
    /// Machine code that [`Module::load_code`] accepts: a cubin or a fatbin. It is loaded without
    /// compilation and is never cached. The device must be one that it was made for. A simulated
    /// driver loads only fatbins with PTX.
    ///
    /// [`Module::load_code`]: crate::Module::load_code
    MachineCode(Arc<[u8]>),
}

impl CustomImage {
    /// The image `name` of PTX. Zero bytes at its end, such as the one after NVRTC's output, are
    /// removed.
    pub fn ptx(name: impl Into<String>, ptx: impl Into<Arc<str>>) -> Self {
        let ptx = ptx.into();
        let text = ptx.trim_end_matches('\0');
        let ptx = if text.len() == ptx.len() { ptx } else { text.into() };
        Self { name: name.into(), code: ImageCode::Ptx(ptx) }
    }

    /// The image `name` of machine code.
    pub fn machine_code(name: impl Into<String>, code: impl Into<Arc<[u8]>>) -> Self {
        Self { name: name.into(), code: ImageCode::MachineCode(code.into()) }
    }
}

impl ImageCode {
    /// The bytes of the text or machine code.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Ptx(ptx) => ptx.as_bytes(),
            Self::MachineCode(code) => code,
        }
    }
}

impl fmt::Debug for ImageCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ptx(ptx) => f.debug_tuple("Ptx").field(ptx).finish(),
            Self::MachineCode(code) => write!(f, "MachineCode({} bytes)", code.len()),
        }
    }
}

/// A launch of an entry point of the caller's own image.
#[derive(Clone, Debug, PartialEq)]
pub struct CustomLaunch {
    /// The image that holds the entry point.
    pub image: CustomImage,
    /// The entry point.
    pub entry: String,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads per block in x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
    /// The arguments in the order of the entry's parameters.
    pub arguments: Vec<Argument<BufferId>>,
}
