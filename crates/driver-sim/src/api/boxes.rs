//! Copies of rows and of boxes.

use retrograph_driver_sys::*;

use super::copies::{LEGACY, Wait};
use crate::argument::{Call, In};
use crate::refusal::{Refusal, invalid};
use crate::state::State;

/// Rows as a box of one slice.
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

/// Refuses boxes whose rows overlap, and fills in pitches that are not needed.
fn check(mut given: CUDA_MEMCPY3D) -> Result<CUDA_MEMCPY3D, Refusal> {
    if given.srcLOD != 0 || given.dstLOD != 0 {
        return Err(invalid("box.level"));
    }
    let ends = [(&mut given.srcPitch, given.srcXInBytes), (&mut given.dstPitch, given.dstXInBytes)];
    for (pitch, x) in ends {
        let row = x.checked_add(given.WidthInBytes).ok_or(invalid("box.row"))?;
        if *pitch == 0 && given.Height <= 1 && given.Depth <= 1 {
            *pitch = row;
        }
        if *pitch < row {
            return Err(invalid("box.pitch"));
        }
    }
    if given.Depth > 1 && (given.srcHeight < given.Height || given.dstHeight < given.Height) {
        return Err(invalid("box.height"));
    }
    Ok(given)
}

impl State {
    fn submit_box(&mut self, given: CUDA_MEMCPY3D, stream: CUstream, wait: Wait) -> Call {
        self.current()?;
        if given.WidthInBytes == 0 || given.Height == 0 || given.Depth == 0 {
            return self.route(stream).map(|_| ());
        }
        self.submit_copy(check(given)?, stream, wait)
    }

    pub(crate) fn cuMemcpy2D_v2(&mut self, given: In<CUDA_MEMCPY2D>) -> Call {
        let given = slice_of(&given.get()?);
        self.refuse_blocking_copy()?;
        self.submit_box(given, LEGACY, Wait::Complete)
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
        self.refuse_blocking_copy()?;
        self.submit_box(given, LEGACY, Wait::Complete)
    }

    pub(crate) fn cuMemcpy3DAsync_v2(
        &mut self,
        given: In<CUDA_MEMCPY3D>,
        stream: CUstream,
    ) -> Call {
        self.submit_box(given.get()?, stream, Wait::AsDocumented)
    }
}
