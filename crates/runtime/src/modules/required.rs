//! The modules that requirements need on a device.

use retrograph_ptx::{ImageForm, SmTarget};

use super::cache::ModuleCache;
use super::error::PrewarmError;
use super::image::Wanted;
#[cfg(feature = "kernels")]
use super::kernel_images;
use super::target::code_target;
use crate::pass::{CustomRequirement, ImageCode, Requirements};

/// Returns the modules of all kernels, then the custom ones. Only images in a bundle are whole.
///
/// # Errors
/// [`PrewarmError::NoImage`], [`PrewarmError::WrongTarget`] or
/// [`PrewarmError::UnsupportedDevice`].
pub(super) fn modules<'a>(
    requirements: &'a Requirements,
    cache: &ModuleCache,
) -> Result<Vec<Wanted<'a>>, PrewarmError> {
    let context = cache.context();
    let mut all = Vec::new();
    #[cfg(feature = "kernels")]
    all.extend(kernel_images::required(requirements, cache)?);
    if requirements.fetches_parameters() {
        all.push(Wanted::step_parameters(code_target(context)));
    }
    for required in requirements.custom() {
        check_target(required, context.device_target())?;
        let wanted = Wanted::custom(required);
        // Two names for the same code are one image.
        match all.iter_mut().find(|held: &&mut Wanted<'_>| held.key == wanted.key) {
            Some(held) => held.entries.extend(wanted.entries),
            None => all.push(wanted),
        }
    }
    Ok(all)
}

/// Checks that PTX names a target that runs on `device`. The driver checks machine code.
fn check_target(required: &CustomRequirement, device: SmTarget) -> Result<(), PrewarmError> {
    let ImageCode::Ptx(ptx) = &required.image.code else { return Ok(()) };
    let Some(target) = SmTarget::named_in(ptx) else { return Ok(()) };
    let image = &required.image.name;
    target
        .require(ImageForm::Ptx, device)
        .map_err(|source| PrewarmError::WrongTarget { image: image.clone(), source })
}
