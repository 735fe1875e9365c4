//! 2D and 3D copies: `cuMemcpy2D*`, `cuMemcpy3D*`.

use retrograph_driver_sys::*;

use super::copies::Wait;
use crate::argument::{Call, In};
use crate::refusal::{Rule, invalid};
use crate::state::State;
use crate::work::Strides;

/// A 2D copy as a 3D copy of one slice.
fn slice_of(given: &CUDA_MEMCPY2D) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcXInBytes: given.srcXInBytes,
        srcY: given.srcY,
        srcMemoryType: given.srcMemoryType,
        srcHost: given.srcHost,
        srcArray: given.srcArray,
        srcPitch: given.srcPitch,
        srcHeight: 0,
        dstXInBytes: given.dstXInBytes,
        dstY: given.dstY,
        dstMemoryType: given.dstMemoryType,
        dstHost: given.dstHost,
        dstArray: given.dstArray,
        dstPitch: given.dstPitch,
        dstHeight: 0,
        Height: given.Height,
        ..CUDA_MEMCPY3D::device_to_device(given.dstDevice, given.srcDevice, given.WidthInBytes)
    }
}

/// The largest pitch (`CU_DEVICE_ATTRIBUTE_MAX_PITCH`).
const MAX_PITCH: usize = i32::MAX as usize;

/// Refuses copies whose rows or slices overlap. An array determines its own pitch and height.
fn check(given: &CUDA_MEMCPY3D) -> Call {
    let ends = [
        (given.srcMemoryType, Strides::of_source(given), [given.srcXInBytes, given.srcY]),
        (given.dstMemoryType, Strides::of_target(given), [given.dstXInBytes, given.dstY]),
    ];
    for (kind, Strides { pitch, height }, [x, y]) in ends {
        if kind == CUmemorytype::CU_MEMORYTYPE_ARRAY {
            continue;
        }
        if pitch < x.saturating_add(given.WidthInBytes) || pitch > MAX_PITCH {
            return Err(invalid(Rule::BoxPitch));
        }
        if height < y.saturating_add(given.Height) {
            return Err(invalid(Rule::BoxHeight));
        }
    }
    Ok(())
}

impl State {
    /// Queues or captures a copy of a box.
    pub(super) fn submit_box(
        &mut self,
        given: CUDA_MEMCPY3D,
        stream: CUstream,
        wait: Wait,
    ) -> Call {
        let route = self.route(stream)?;
        if given.WidthInBytes == 0 || given.Height == 0 || given.Depth == 0 {
            return Ok(());
        }
        check(&given)?;
        self.copy_along(route, given, wait)
    }

    pub(crate) fn cuMemcpy2D_v2(&mut self, given: In<CUDA_MEMCPY2D>) -> Call {
        let given = slice_of(&given.get()?);
        let stream = self.default_stream()?;
        self.submit_box(given, stream, Wait::Complete)
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
        let given = given.get()?;
        let stream = self.default_stream()?;
        self.submit_box(given, stream, Wait::Complete)
    }

    pub(crate) fn cuMemcpy3DAsync_v2(
        &mut self,
        given: In<CUDA_MEMCPY3D>,
        stream: CUstream,
    ) -> Call {
        self.submit_box(given.get()?, stream, Wait::AsDocumented)
    }
}
