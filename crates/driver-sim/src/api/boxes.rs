//! 2D and 3D copies: `cuMemcpy2D*`, `cuMemcpy3D*`.

use retrograph_driver_sys::*;

use super::copies::{LEGACY, Wait};
use crate::argument::{Call, In};
use crate::refusal::{Refusal, Rule, invalid};
use crate::state::State;

/// A 2D copy as a 3D copy of one slice.
fn slice_of(given: &CUDA_MEMCPY2D) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcXInBytes: given.srcXInBytes,
        srcY: given.srcY,
        srcMemoryType: given.srcMemoryType,
        srcHost: given.srcHost,
        srcArray: given.srcArray,
        srcPitch: given.srcPitch,
        srcHeight: given.Height,
        dstXInBytes: given.dstXInBytes,
        dstY: given.dstY,
        dstMemoryType: given.dstMemoryType,
        dstHost: given.dstHost,
        dstArray: given.dstArray,
        dstPitch: given.dstPitch,
        dstHeight: given.Height,
        Height: given.Height,
        ..CUDA_MEMCPY3D::device_to_device(given.dstDevice, given.srcDevice, given.WidthInBytes)
    }
}

/// The largest pitch (`CU_DEVICE_ATTRIBUTE_MAX_PITCH`).
const MAX_PITCH: usize = i32::MAX as usize;

/// Refuses copies whose rows overlap. A pitch or height of 0 means rows without gaps. An array
/// determines its own pitch and height.
fn check(mut given: CUDA_MEMCPY3D) -> Result<CUDA_MEMCPY3D, Refusal> {
    let ends = [
        (given.srcMemoryType, &mut given.srcPitch, &mut given.srcHeight, given.srcXInBytes),
        (given.dstMemoryType, &mut given.dstPitch, &mut given.dstHeight, given.dstXInBytes),
    ];
    for (kind, pitch, height, x) in ends {
        if kind == CUmemorytype::CU_MEMORYTYPE_ARRAY {
            continue;
        }
        // Saturates: a row that ends beyond the last address exceeds every pitch.
        let row = x.saturating_add(given.WidthInBytes);
        *pitch = if *pitch == 0 { row } else { *pitch };
        *height = if *height == 0 { given.Height } else { *height };
        if *pitch < row || *pitch > MAX_PITCH {
            return Err(invalid(Rule::BoxPitch));
        }
        if *height < given.Height {
            return Err(invalid(Rule::BoxHeight));
        }
    }
    Ok(given)
}

impl State {
    fn submit_box(&mut self, given: CUDA_MEMCPY3D, stream: CUstream, wait: Wait) -> Call {
        let route = self.route(stream)?;
        if given.WidthInBytes == 0 || given.Height == 0 || given.Depth == 0 {
            return Ok(());
        }
        self.copy_along(route, check(given)?, wait)
    }

    pub(crate) fn cuMemcpy2D_v2(&mut self, given: In<CUDA_MEMCPY2D>) -> Call {
        self.submit_box(slice_of(&given.get()?), LEGACY, Wait::Complete)
    }

    pub(crate) fn cuMemcpy2DUnaligned_v2(&mut self, given: In<CUDA_MEMCPY2D>) -> Call {
        self.cuMemcpy2D_v2(given)
    }

    pub(crate) fn cuMemcpy2DAsync_v2(
        &mut self,
        given: In<CUDA_MEMCPY2D>,
        stream: CUstream,
    ) -> Call {
        self.submit_box(slice_of(&given.get()?), stream, Wait::AsDocumented)
    }

    pub(crate) fn cuMemcpy3D_v2(&mut self, given: In<CUDA_MEMCPY3D>) -> Call {
        self.submit_box(given.get()?, LEGACY, Wait::Complete)
    }

    pub(crate) fn cuMemcpy3DAsync_v2(
        &mut self,
        given: In<CUDA_MEMCPY3D>,
        stream: CUstream,
    ) -> Call {
        self.submit_box(given.get()?, stream, Wait::AsDocumented)
    }
}
