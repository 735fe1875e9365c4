//! Images: identity, text, and required entry points.

use std::borrow::Cow;
use std::fmt;

use retrograph_bundle::{Digest, digest_of};
use retrograph_driver::{Function, Module, Result};
use retrograph_kernel_abi::step_parameters::{self, FETCH_STEP_PARAMETERS};
use retrograph_kernel_abi::{Parameter, Signature};
use retrograph_ptx::SmTarget;

#[cfg(feature = "kernels")]
use super::kernel_text::KernelText;
use crate::pass::{CustomImage, CustomRequirement, ImageCode};

/// The identity of an image on one device: an embedded one by name, a custom one by content.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ImageKey {
    /// An image of `retrograph-kernels`, or the kernel that fetches step parameters.
    Embedded(&'static str),
    /// The caller's own image.
    Custom {
        /// SHA-256 of the code. The name is ignored: the same code is the same image.
        hash: Digest,
    },
}

impl From<&'static str> for ImageKey {
    fn from(name: &'static str) -> Self {
        Self::Embedded(name)
    }
}

impl From<&CustomImage> for ImageKey {
    fn from(image: &CustomImage) -> Self {
        Self::Custom { hash: digest_of(image.code.bytes()) }
    }
}

impl fmt::Display for ImageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded(name) => f.write_str(name),
            Self::Custom { hash } => {
                f.write_str("custom image ")?;
                hash[..6].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

/// The identity of a module on one device: an image, or one entry point of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ModuleKey {
    pub(super) image: ImageKey,
    /// The entry point to which the image is cut.
    pub(super) entry: Option<&'static str>,
}

/// A module to load, and the entry points to look up.
#[derive(Clone, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) key: ModuleKey,
    /// The name of the image, or of the entry point to which it is cut, for messages.
    pub(super) name: String,
    pub(super) code: Code<'a>,
    /// The SHA-256 of the code.
    pub(super) digest: Digest,
    pub(super) entries: Vec<WantedEntry<'a>>,
}

/// An entry point to look up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WantedEntry<'a> {
    pub(super) name: Cow<'a, str>,
    /// The parameter sizes from the kernel's descriptor, which is tested against the image;
    /// otherwise the driver is queried.
    pub(super) parameters: Option<Vec<usize>>,
}

impl<'a> WantedEntry<'a> {
    pub(super) fn of_parameters(parameters: &[Parameter], entry: &'a str) -> Self {
        let sizes = parameters.iter().map(|parameter| parameter.kind.bytes());
        Self { name: Cow::Borrowed(entry), parameters: Some(sizes.collect()) }
    }

    /// The function of this name in `module`.
    pub(super) fn look_up(&self, module: &Module) -> Result<Function> {
        match &self.parameters {
            Some(sizes) => module.function_with(&self.name, sizes),
            None => module.function(&self.name),
        }
    }

    fn of_custom(entry: &'a str) -> Self {
        Self { name: Cow::Borrowed(entry), parameters: None }
    }
}

/// The code of a module.
#[derive(Clone, Debug)]
pub(super) enum Code<'a> {
    /// Compressed in the program.
    #[cfg(feature = "kernels")]
    Kernel(KernelText),
    /// The kernel that fetches step parameters.
    StepParameters(String),
    Custom(&'a ImageCode),
}

impl<'a> Wanted<'a> {
    /// The machine code, if the caller gave it.
    pub(super) fn machine_code(&self) -> Option<&'a [u8]> {
        match self.code {
            Code::Custom(ImageCode::MachineCode(code)) => Some(code),
            _ => None,
        }
    }

    /// Returns the PTX. This may decompress it, so only compilation calls it.
    ///
    /// # Panics
    /// If the caller gave machine code.
    pub(super) fn ptx(&self) -> Cow<'a, str> {
        match &self.code {
            #[cfg(feature = "kernels")]
            Code::Kernel(text) => text.ptx(),
            Code::StepParameters(ptx) => Cow::Owned(ptx.clone()),
            Code::Custom(ImageCode::Ptx(ptx)) => Cow::Borrowed(ptx),
            Code::Custom(ImageCode::MachineCode(_)) => unreachable!("it needs no compilation"),
        }
    }

    /// The image of the kernel that fetches step parameters. `retrograph-kernels` embeds the same
    /// text under the same name, so bundles with all kernels have its code.
    pub(super) fn step_parameters(target: SmTarget) -> Self {
        let Signature { image, parameters, .. } = FETCH_STEP_PARAMETERS;
        let key = ModuleKey { image: ImageKey::Embedded(image), entry: None };
        let (name, ptx) = (image.to_owned(), step_parameters::module(target).to_string());
        let entries = vec![WantedEntry::of_parameters(parameters, FETCH_STEP_PARAMETERS.entry())];
        Self { key, name, digest: digest_of(&ptx), code: Code::StepParameters(ptx), entries }
    }

    pub(super) fn custom(required: &'a CustomRequirement) -> Self {
        let CustomImage { name, code } = &required.image;
        let digest = digest_of(code.bytes());
        let entries = required.entries.iter().map(|entry| WantedEntry::of_custom(entry)).collect();
        let key = ModuleKey { image: ImageKey::Custom { hash: digest }, entry: None };
        Self { key, name: name.clone(), code: Code::Custom(code), digest, entries }
    }
}
