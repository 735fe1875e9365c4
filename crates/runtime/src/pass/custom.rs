//! Images of the caller, and their launches.

use std::fmt;
use std::sync::Arc;

use retrograph_driver::{LaunchAttributes, LaunchGeometry};
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
///
/// ```
/// use retrograph_runtime::{Argument, CustomImage, CustomLaunch, LaunchAttributes, LaunchGeometry};
/// # let image = CustomImage::ptx("scale", "");
/// # let mut pass = retrograph_runtime::Pass::new("scale");
/// # let x = pass.external::<f32>("x", 1024);
///
/// let geometry = LaunchGeometry::linear(8, 128);
/// let arguments = vec![Argument::update(x), Argument::f32(0.5)];
/// let mut launch = CustomLaunch::new(image, "scale", geometry, arguments);
/// launch.attributes = LaunchAttributes::new().cluster([2, 1, 1]);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CustomLaunch {
    /// The image that holds the entry point.
    pub image: CustomImage,
    /// The entry point.
    pub entry: String,
    /// Grid, block and shared memory.
    pub geometry: LaunchGeometry,
    /// The arguments in the order of the entry's parameters.
    pub arguments: Vec<Argument<BufferId>>,
    /// Clusters, cooperation, the preferred carve-out and PDL, with every strategy. A device that
    /// does not have them is refused when a program is built.
    ///
    /// With [`LaunchAttributes::programmatic_stream_serialization`], edges in graphs built by hand
    /// are programmatic if all operations that the launch depends on are kernels. PDL speeds up
    /// small kernels, but slows down graphs in which many waiting blocks occupy the device
    /// (`docs/graphs.md`). [`PdlMode::Never`](crate::PdlMode::Never) disables it.
    pub attributes: LaunchAttributes,
}

impl CustomLaunch {
    /// The launch of `entry` without attributes.
    pub fn new(
        image: CustomImage,
        entry: impl Into<String>,
        geometry: LaunchGeometry,
        arguments: Vec<Argument<BufferId>>,
    ) -> Self {
        let (entry, attributes) = (entry.into(), LaunchAttributes::new());
        Self { image, entry, geometry, arguments, attributes }
    }
}
