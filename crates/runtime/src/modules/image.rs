//! Images: identity, text, and required entry points.

use std::borrow::Cow;
use std::fmt;

use retrograph_driver::{Context, Function, Module, Result};
use retrograph_kernels::{ImageForm, Kernel, SmTarget, images};

use super::digest::{Digest, digest_of};
use super::error::PrewarmError;
use super::target::image_target;
use crate::pass::{CustomImage, CustomRequirement, Requirements};

/// The identity of an image on one device: an embedded one by name, a custom one by content.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ImageKey {
    /// An image of `retrograph-kernels`.
    Embedded(&'static str),
    /// PTX of the caller's own.
    Custom {
        /// SHA-256 of the text. The name does not count: the same text is the same image.
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
        Self::Custom { hash: digest_of(&image.ptx) }
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

/// An image to load, and the entry points to look up.
#[derive(Clone, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) key: ImageKey,
    /// The name, for messages.
    pub(super) name: String,
    text: Text<'a>,
    /// The SHA-256 of the PTX.
    pub(super) digest: Digest,
    pub(super) entries: Vec<WantedEntry<'a>>,
}

/// An entry point to look up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WantedEntry<'a> {
    pub(super) name: Cow<'a, str>,
    /// The parameter sizes from the kernel's descriptor, which is tested against the image;
    /// otherwise the driver is asked.
    pub(super) parameters: Option<Vec<usize>>,
}

impl<'a> WantedEntry<'a> {
    fn of_kernel((kernel, entry): (&Kernel, &'a str)) -> Self {
        let sizes = kernel.parameters.iter().map(|parameter| parameter.kind.bytes());
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

/// The PTX of an image.
#[derive(Clone, Copy, Debug)]
enum Text<'a> {
    /// Compressed in the program.
    Embedded(&'static str, SmTarget),
    Custom(&'a str),
}

impl<'a> Wanted<'a> {
    /// The PTX. Getting it may decompress it, so only compilation does.
    pub(super) fn ptx(&self) -> &'a str {
        match self.text {
            Text::Embedded(image, target) => {
                images::ptx(image, target).expect("an image with a digest has a text")
            }
            Text::Custom(ptx) => ptx,
        }
    }

    /// The image of this name for `target`, with the entry points that launches choose there, or
    /// `None` if there is no such image.
    fn embedded(
        image: &'static str,
        requirements: &Requirements,
        target: SmTarget,
    ) -> Option<Self> {
        let of_image = |(kernel, _): &(&Kernel, &str)| kernel.image == image;
        let entries = requirements.entries(target).into_iter().filter(of_image);
        let mut entries: Vec<_> = entries.map(WantedEntry::of_kernel).collect();
        // Kernels may share an entry point.
        entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        entries.dedup_by(|one, other| one.name == other.name);
        let (key, name) = (ImageKey::Embedded(image), image.to_owned());
        let digest = images::digest(image, target)?;
        Some(Self { key, name, text: Text::Embedded(image, target), digest, entries })
    }

    fn custom(required: &'a CustomRequirement) -> Self {
        let CustomImage { name, ptx } = &required.image;
        let digest = digest_of(ptx);
        let entries = required.entries.iter().map(|entry| WantedEntry::of_custom(entry)).collect();
        let (key, text) = (ImageKey::Custom { hash: digest }, Text::Custom(ptx));
        Self { key, name: name.clone(), text, digest, entries }
    }

    /// The images of all kernels, then the custom ones.
    ///
    /// # Errors
    /// [`PrewarmError::NoImage`], [`PrewarmError::WrongTarget`] or
    /// [`PrewarmError::UnsupportedDevice`].
    pub(super) fn all(
        requirements: &'a Requirements,
        context: &Context,
    ) -> Result<Vec<Self>, PrewarmError> {
        let (target, device) = (image_target(context)?, context.device_target());
        let mut all = Vec::new();
        for image in requirements.images() {
            let found = Self::embedded(image, requirements, target);
            let missing = || PrewarmError::NoImage { image: image.to_owned(), target };
            all.push(found.ok_or_else(missing)?);
        }
        for required in requirements.custom() {
            let wanted = Self::custom(required);
            if let Some(target) = SmTarget::named_in(wanted.ptx()) {
                let wrong =
                    |source| PrewarmError::WrongTarget { image: wanted.name.clone(), source };
                target.require(ImageForm::Ptx, device).map_err(wrong)?;
            }
            // Two names for the same text are one image.
            match all.iter_mut().find(|held: &&mut Self| held.key == wanted.key) {
                Some(held) => held.entries.extend(wanted.entries),
                None => all.push(wanted),
            }
        }
        Ok(all)
    }
}
