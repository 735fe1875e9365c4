//! CUDA arrays: memory in a layout of the driver, which copies fill and read.

use crate::enumeration::{enumerations, flags};
use crate::structure::{structures, zeroed};

enumerations! {
    /// The type of a channel of an array's elements.
    CUarray_format: u32 {
        /// An unsigned integer of 8 bits.
        CU_AD_FORMAT_UNSIGNED_INT8 = 1;
        /// An unsigned integer of 16 bits.
        CU_AD_FORMAT_UNSIGNED_INT16 = 2;
        /// An unsigned integer of 32 bits.
        CU_AD_FORMAT_UNSIGNED_INT32 = 3;
        /// A signed integer of 8 bits.
        CU_AD_FORMAT_SIGNED_INT8 = 8;
        /// A signed integer of 16 bits.
        CU_AD_FORMAT_SIGNED_INT16 = 9;
        /// A signed integer of 32 bits.
        CU_AD_FORMAT_SIGNED_INT32 = 10;
        /// f16.
        CU_AD_FORMAT_HALF = 16;
        /// f32.
        CU_AD_FORMAT_FLOAT = 32;
        /// Unsigned normalized integers of 10, 10, 10 and 2 bits, four channels.
        CU_AD_FORMAT_UNORM_INT_101010_2 = 0x50;
        /// An unsigned normalized integer of 8 bits, one channel.
        CU_AD_FORMAT_UNORM_INT8X1 = 0xc0;
        /// An unsigned normalized integer of 8 bits, two channels.
        CU_AD_FORMAT_UNORM_INT8X2 = 0xc1;
        /// An unsigned normalized integer of 8 bits, four channels.
        CU_AD_FORMAT_UNORM_INT8X4 = 0xc2;
        /// An unsigned normalized integer of 16 bits, one channel.
        CU_AD_FORMAT_UNORM_INT16X1 = 0xc3;
        /// An unsigned normalized integer of 16 bits, two channels.
        CU_AD_FORMAT_UNORM_INT16X2 = 0xc4;
        /// An unsigned normalized integer of 16 bits, four channels.
        CU_AD_FORMAT_UNORM_INT16X4 = 0xc5;
        /// A signed normalized integer of 8 bits, one channel.
        CU_AD_FORMAT_SNORM_INT8X1 = 0xc6;
        /// A signed normalized integer of 8 bits, two channels.
        CU_AD_FORMAT_SNORM_INT8X2 = 0xc7;
        /// A signed normalized integer of 8 bits, four channels.
        CU_AD_FORMAT_SNORM_INT8X4 = 0xc8;
        /// A signed normalized integer of 16 bits, one channel.
        CU_AD_FORMAT_SNORM_INT16X1 = 0xc9;
        /// A signed normalized integer of 16 bits, two channels.
        CU_AD_FORMAT_SNORM_INT16X2 = 0xca;
        /// A signed normalized integer of 16 bits, four channels.
        CU_AD_FORMAT_SNORM_INT16X4 = 0xcb;
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
        /// A depth texture; only arrays of graphics libraries have it.
        CUDA_ARRAY3D_DEPTH_TEXTURE = 0x10;
        /// A color target of graphics libraries.
        CUDA_ARRAY3D_COLOR_ATTACHMENT = 0x20;
        /// The program maps memory to parts of the array.
        CUDA_ARRAY3D_SPARSE = 0x40;
        /// The program maps memory to the whole array.
        CUDA_ARRAY3D_DEFERRED_MAPPING = 0x80;
        /// Video encoders and decoders can use the array.
        CUDA_ARRAY3D_VIDEO_ENCODE_DECODE = 0x100;
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
