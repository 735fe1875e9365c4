//! Images: identity, text, and required entry points.
//!
//! An embedded image is cut to one entry point, so only launched entry points are compiled, each as
//! its own module: another entry point of the image costs one more compilation.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use retrograph_bundle::{Bundle, Digest, digest_of};
use retrograph_driver::{Context, Function, Module, Result};
use retrograph_kernels::{ImageForm, Kernel, SmTarget, images};

use super::error::PrewarmError;
use super::target::image_target;
use crate::pass::{CustomImage, CustomRequirement, Requirements};

/// The identity of an image on one device: an embedded one by name, a custom one by content.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ImageKey {
    /// An image of `retrograph-kernels`.
    Embedded(&'static str),
    /// The caller's own PTX.
    Custom {
        /// SHA-256 of the text. The name is ignored: the same text is the same image.
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

/// The identity of a module on one device: an image, or one entry point of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ModuleKey {
    pub(super) image: ImageKey,
    /// The entry point to which the image is cut.
    entry: Option<&'static str>,
}

/// A module to load, and the entry points to look up.
#[derive(Clone, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) key: ModuleKey,
    /// The name of the image, or of the entry point to which it is cut, for messages.
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
    /// otherwise the driver is queried.
    pub(super) parameters: Option<Vec<usize>>,
}

impl<'a> WantedEntry<'a> {
    fn of_kernel(kernel: &Kernel, entry: &'a str) -> Self {
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

/// The PTX of a module.
#[derive(Clone, Copy, Debug)]
enum Text<'a> {
    /// Compressed in the program.
    Embedded(&'static str, SmTarget),
    /// The same, cut to an entry point.
    Entry(&'static str, &'static str, SmTarget),
    Custom(&'a str),
}

impl<'a> Wanted<'a> {
    /// Returns the PTX. This may decompress it, so only compilation calls it.
    pub(super) fn ptx(&self) -> Cow<'a, str> {
        let ptx = match self.text {
            Text::Embedded(image, target) => images::ptx(image, target).map(Cow::Borrowed),
            Text::Entry(image, entry, target) => {
                images::entry_ptx(image, entry, target).map(Cow::Owned)
            }
            Text::Custom(ptx) => Some(Cow::Borrowed(ptx)),
        };
        ptx.expect("an image with a digest has a text")
    }

    /// The whole image, or `None` if there is none of this name for `target`.
    fn embedded(
        image: &'static str,
        target: SmTarget,
        entries: &[(&'static Kernel, &'static str)],
    ) -> Option<Self> {
        let key = ModuleKey { image: ImageKey::Embedded(image), entry: None };
        let (name, text) = (image.to_owned(), Text::Embedded(image, target));
        let wanted = entries.iter().map(|(kernel, entry)| WantedEntry::of_kernel(kernel, entry));
        let entries = wanted.collect();
        Some(Self { key, name, text, digest: images::digest(image, target)?, entries })
    }

    /// The image of a kernel, cut to one entry point, or `None` without such an entry for `target`.
    fn entry(kernel: &'static Kernel, entry: &'static str, target: SmTarget) -> Option<Self> {
        let image = kernel.image;
        let key = ModuleKey { image: ImageKey::Embedded(image), entry: Some(entry) };
        let (name, text) = (entry.to_owned(), Text::Entry(image, entry, target));
        let digest = images::entry_digest(image, entry, target)?;
        Some(Self { key, name, text, digest, entries: vec![WantedEntry::of_kernel(kernel, entry)] })
    }

    fn custom(required: &'a CustomRequirement) -> Self {
        let CustomImage { name, ptx } = &required.image;
        let digest = digest_of(ptx);
        let entries = required.entries.iter().map(|entry| WantedEntry::of_custom(entry)).collect();
        let key = ModuleKey { image: ImageKey::Custom { hash: digest }, entry: None };
        Self { key, name: name.clone(), text: Text::Custom(ptx), digest, entries }
    }

    /// Returns the modules of all kernels, then the custom ones. Only images in a bundle are whole.
    ///
    /// # Errors
    /// [`PrewarmError::NoImage`], [`PrewarmError::WrongTarget`] or
    /// [`PrewarmError::UnsupportedDevice`].
    pub(super) fn all(
        requirements: &'a Requirements,
        context: &Context,
        bundles: &[Bundle],
    ) -> Result<Vec<Self>, PrewarmError> {
        let (target, device) = (image_target(context)?, context.device_target());
        let mut entries = requirements.entries(target);
        // Kernels may share an entry point.
        let mut seen = HashSet::new();
        entries.retain(|(kernel, entry)| seen.insert((kernel.image, *entry)));
        let mut all = Vec::new();
        for image in requirements.images() {
            let missing = |name: &str| PrewarmError::NoImage { image: name.to_owned(), target };
            let of_image = |(kernel, _): &&(&Kernel, &str)| kernel.image == image;
            let entries: Vec<_> = entries.iter().filter(of_image).copied().collect();
            let whole = Self::embedded(image, target, &entries).ok_or_else(|| missing(image))?;
            if bundles.iter().any(|bundle| bundle.find(&whole.digest, device).is_some()) {
                all.push(whole);
                continue;
            }
            for (kernel, entry) in entries {
                all.push(Self::entry(kernel, entry, target).ok_or_else(|| missing(entry))?);
            }
        }
        for required in requirements.custom() {
            let wanted = Self::custom(required);
            if let Some(target) = SmTarget::named_in(&wanted.ptx()) {
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
