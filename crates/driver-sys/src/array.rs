//! CUDA arrays: memory in a layout of the driver, which copies fill and read.

use crate::enumeration::{enumerations, flags};
use crate::structure::{structures, zeroed};

enumerations! {
    /// The type of a channel of an array's elements.
    CUarray_format: u32 {
        /// An integer of 8 bits without a sign.
        CU_AD_FORMAT_UNSIGNED_INT8 = 1;
        /// An integer of 16 bits without a sign.
        CU_AD_FORMAT_UNSIGNED_INT16 = 2;
        /// An integer of 32 bits without a sign.
        CU_AD_FORMAT_UNSIGNED_INT32 = 3;
        /// An integer of 8 bits.
        CU_AD_FORMAT_SIGNED_INT8 = 8;
        /// An integer of 16 bits.
        CU_AD_FORMAT_SIGNED_INT16 = 9;
        /// An integer of 32 bits.
        CU_AD_FORMAT_SIGNED_INT32 = 10;
        /// f16.
        CU_AD_FORMAT_HALF = 16;
        /// f32.
        CU_AD_FORMAT_FLOAT = 32;
    }
}

flags! {
    /// Flags in [`CUDA_ARRAY3D_DESCRIPTOR`].
    CUDA_ARRAY3D: u32 {
        /// The depth counts layers.
        CUDA_ARRAY3D_LAYERED = 1;
        /// Kernels can write the array as a surface.
        CUDA_ARRAY3D_SURFACE_LDST = 2;
        /// The layers are the six faces of cubes.
        CUDA_ARRAY3D_CUBEMAP = 4;
        /// Textures of the array can gather.
        CUDA_ARRAY3D_TEXTURE_GATHER = 8;
    }
}

structures! {
    /// An array of one or two dimensions.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CUDA_ARRAY_DESCRIPTOR {
        /// Elements of a row.
        pub Width: usize,
        /// Rows, or 0 for an array of one dimension.
        pub Height: usize,
        /// The type of a channel.
        pub Format: CUarray_format,
        /// Channels of an element: 1, 2 or 4.
        pub NumChannels: u32,
    }

    /// An array of one, two or three dimensions.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CUDA_ARRAY3D_DESCRIPTOR {
        /// Elements of a row.
        pub Width: usize,
        /// Rows, or 0 for an array of one dimension.
        pub Height: usize,
        /// Slices or layers, or 0 for an array of one or two dimensions.
        pub Depth: usize,
        /// The type of a channel.
        pub Format: CUarray_format,
        /// Channels of an element: 1, 2 or 4.
        pub NumChannels: u32,
        /// Flags `CUDA_ARRAY3D_…`.
        pub Flags: u32,
    }
}

zeroed!(CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR);
