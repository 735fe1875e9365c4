//! Arrays.

use retrograph_driver_sys::{CUDA_ARRAY3D_DESCRIPTOR, CUarray, CUarray_format};

use super::State;

/// An array. Its rows are contiguous in device memory; programs cannot get their address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Array {
    /// The index among the devices of its context.
    pub(crate) device: usize,
    pub(crate) address: u64,
    pub(crate) descriptor: CUDA_ARRAY3D_DESCRIPTOR,
}

/// Bytes of an element, if the simulator has arrays of the format with this number of channels.
pub(crate) fn element_bytes(format: CUarray_format, channels: u32) -> Option<usize> {
    use CUarray_format as F;
    // Other formats determine the number of channels.
    let (bytes, expected) = match format {
        F::CU_AD_FORMAT_UNSIGNED_INT8 | F::CU_AD_FORMAT_SIGNED_INT8 => (1, None),
        F::CU_AD_FORMAT_UNSIGNED_INT16 | F::CU_AD_FORMAT_SIGNED_INT16 | F::CU_AD_FORMAT_HALF => {
            (2, None)
        }
        F::CU_AD_FORMAT_UNSIGNED_INT32 | F::CU_AD_FORMAT_SIGNED_INT32 | F::CU_AD_FORMAT_FLOAT => {
            (4, None)
        }
        F::CU_AD_FORMAT_UNORM_INT_101010_2 => (1, Some(4)),
        F::CU_AD_FORMAT_UNORM_INT8X1 | F::CU_AD_FORMAT_SNORM_INT8X1 => (1, Some(1)),
        F::CU_AD_FORMAT_UNORM_INT8X2 | F::CU_AD_FORMAT_SNORM_INT8X2 => (1, Some(2)),
        F::CU_AD_FORMAT_UNORM_INT8X4 | F::CU_AD_FORMAT_SNORM_INT8X4 => (1, Some(4)),
        F::CU_AD_FORMAT_UNORM_INT16X1 | F::CU_AD_FORMAT_SNORM_INT16X1 => (2, Some(1)),
        F::CU_AD_FORMAT_UNORM_INT16X2 | F::CU_AD_FORMAT_SNORM_INT16X2 => (2, Some(2)),
        F::CU_AD_FORMAT_UNORM_INT16X4 | F::CU_AD_FORMAT_SNORM_INT16X4 => (2, Some(4)),
        _ => return None,
    };
    let is_allowed = match expected {
        Some(expected) => channels == expected,
        None => matches!(channels, 1 | 2 | 4),
    };
    is_allowed.then_some(bytes * channels as usize)
}

impl Array {
    /// Bytes of an element.
    pub(crate) fn element_bytes(&self) -> usize {
        element_bytes(self.descriptor.Format, self.descriptor.NumChannels).unwrap_or(1)
    }

    /// Bytes of a row, rows of a slice, and slices.
    pub(crate) fn extent(&self) -> [usize; 3] {
        let CUDA_ARRAY3D_DESCRIPTOR { Width, Height, Depth, .. } = self.descriptor;
        [Width * self.element_bytes(), Height.max(1), Depth.max(1)]
    }

    /// Bytes of the whole array.
    pub(crate) fn bytes(&self) -> u64 {
        self.extent().into_iter().product::<usize>() as u64
    }
}

impl State {
    /// Frees the memory of an array and forgets it.
    pub(crate) fn remove_array(&mut self, array: CUarray) {
        if let Ok(Array { device, address, .. }) = self.arrays.remove(array) {
            // Only the array uses the address.
            let _ = self.devices[device].memory.free(address);
        }
    }

    /// Frees the memory of all arrays of a context.
    pub(crate) fn free_arrays(&mut self, device: usize) {
        let memory = self.devices[device].memory.clone();
        self.arrays.retain(|array| array.device != device || memory.free(array.address).is_err());
    }
}
