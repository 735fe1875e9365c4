//! The forms of arrays, and the extents that each can have.
//!
//! Source: the documentation of `cuArray3DCreate` in cuda.h 13.0.

use retrograph_driver_sys::CUdevice_attribute as A;
use retrograph_driver_sys::{
    CUDA_ARRAY3D_CUBEMAP, CUDA_ARRAY3D_DESCRIPTOR, CUDA_ARRAY3D_LAYERED, CUDA_ARRAY3D_SURFACE_LDST,
    CUDA_ARRAY3D_TEXTURE_GATHER,
};

use super::attributes::recorded;

/// Faces of a cube.
const FACES: usize = 6;

/// A form of arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    OneD,
    TwoD,
    ThreeD,
    OneDLayered,
    TwoDLayered,
    Cubemap,
    CubemapLayered,
}

impl Form {
    /// The form of a descriptor, if its extents match its flags.
    fn of(given: &CUDA_ARRAY3D_DESCRIPTOR) -> Option<Self> {
        let is = |flag| given.Flags & flag != 0;
        let is_cube = given.Width == given.Height && given.Depth.is_multiple_of(FACES);
        Some(match (is(CUDA_ARRAY3D_CUBEMAP), is(CUDA_ARRAY3D_LAYERED)) {
            _ if given.Width == 0 => return None,
            (false, false) if given.Depth > 0 && given.Height > 0 => Self::ThreeD,
            (false, false) if given.Depth > 0 => return None,
            (false, false) if given.Height > 0 => Self::TwoD,
            (false, false) => Self::OneD,
            (_, true) | (true, _) if given.Depth == 0 => return None,
            (false, true) if given.Height > 0 => Self::TwoDLayered,
            (false, true) => Self::OneDLayered,
            (true, _) if !is_cube => return None,
            (true, false) if given.Depth == FACES => Self::Cubemap,
            (true, false) => return None,
            (true, true) => Self::CubemapLayered,
        })
    }

    /// The attributes with the largest width, height and depth of textures. An extent that the form
    /// lacks or that follows from another extent has the attribute of the width.
    fn textures(self) -> [A; 3] {
        use Form as F;
        const ROW: A = A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH;
        const PLANE: A = A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH;
        const ROWS: A = A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH;
        const CUBE: A = A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH;
        const CUBES: A = A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH;
        match self {
            F::OneD => [ROW, ROW, ROW],
            F::TwoD => [PLANE, A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT, PLANE],
            F::ThreeD => [
                A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH,
                A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT,
                A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH,
            ],
            F::OneDLayered => [ROWS, ROWS, A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS],
            F::TwoDLayered => [
                A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH,
                A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT,
                A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS,
            ],
            F::Cubemap => [CUBE, CUBE, CUBE],
            F::CubemapLayered => {
                [CUBES, CUBES, A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS]
            }
        }
    }

    /// The attributes with the largest width, height and depth of surfaces.
    fn surfaces(self) -> [A; 3] {
        use Form as F;
        const ROW: A = A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH;
        const PLANE: A = A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH;
        const ROWS: A = A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH;
        const CUBE: A = A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH;
        const CUBES: A = A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH;
        match self {
            F::OneD => [ROW, ROW, ROW],
            F::TwoD => [PLANE, A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT, PLANE],
            F::ThreeD => [
                A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH,
                A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT,
                A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH,
            ],
            F::OneDLayered => [ROWS, ROWS, A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS],
            F::TwoDLayered => [
                A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH,
                A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT,
                A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS,
            ],
            F::Cubemap => [CUBE, CUBE, CUBE],
            F::CubemapLayered => {
                [CUBES, CUBES, A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS]
            }
        }
    }
}

/// The alternative largest extents of textures of three dimensions.
const ALTERNATE: [A; 3] = [
    A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE,
    A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE,
    A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE,
];

/// The largest extents of arrays of two dimensions for texture gather.
const GATHER: [A; 3] = [
    A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH,
    A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT,
    A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH,
];

/// Whether a device can have an array of these extents and flags.
pub(super) fn is_possible(given: &CUDA_ARRAY3D_DESCRIPTOR) -> bool {
    let Some(form) = Form::of(given) else { return false };
    let extents = [given.Width, given.Height, given.Depth];
    let fits = |limits: [A; 3]| {
        let most = |limit| recorded(limit).and_then(|most| usize::try_from(most).ok());
        let mut pairs = extents.iter().zip(limits);
        pairs.all(|(extent, limit)| most(limit).is_some_and(|most| *extent <= most))
    };
    let is = |flag| given.Flags & flag != 0;
    (fits(form.textures()) || (form == Form::ThreeD && fits(ALTERNATE)))
        && (!is(CUDA_ARRAY3D_SURFACE_LDST) || fits(form.surfaces()))
        && (!is(CUDA_ARRAY3D_TEXTURE_GATHER) || (form == Form::TwoD && fits(GATHER)))
}
