//! Parameters of batches of copies.

use crate::enumeration::{enumerations, flags};
use crate::handle::CUarray;
use crate::location::CUmemLocation;
use crate::memory::CUdeviceptr;
use crate::structure::{structures, zeroed};

flags! {
    /// Flags of one copy of a batch.
    CUmemcpyFlags: u32 {
        /// Default.
        CU_MEMCPY_FLAG_DEFAULT = 0 since 12080;
        /// Prefer overlap with kernels to copy speed.
        CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE = 1 since 12080;
    }
}

enumerations! {
    /// When the source of a copy may be read.
    CUmemcpySrcAccessOrder: u32 {
        /// Not filled in.
        CU_MEMCPY_SRC_ACCESS_ORDER_INVALID = 0 since 12080;
        /// In stream order.
        CU_MEMCPY_SRC_ACCESS_ORDER_STREAM = 1 since 12080;
        /// Out of stream order, but before the call returns.
        CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL = 2 since 12080;
        /// At any time, also out of stream order and after the call.
        CU_MEMCPY_SRC_ACCESS_ORDER_ANY = 3 since 12080;
    }

    /// The kind of source or destination of a copy.
    CUmemcpy3DOperandType: u32 {
        /// Addressable memory.
        CU_MEMCPY_OPERAND_TYPE_POINTER = 1 since 12080;
        /// An array.
        CU_MEMCPY_OPERAND_TYPE_ARRAY = 2 since 12080;
    }
}

structures! {
    /// Attributes of one copy of a batch and of the following copies. Since driver 12080.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CUmemcpyAttributes {
        /// When the source may be read.
        pub srcAccessOrder: CUmemcpySrcAccessOrder,
        /// The location of the source, for managed memory.
        pub srcLocHint: CUmemLocation,
        /// The location of the destination, for managed memory.
        pub dstLocHint: CUmemLocation,
        /// Flags `CU_MEMCPY_FLAG_…`.
        pub flags: u32,
    }

    /// An offset in an array, in elements. Since driver 12080.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CUoffset3D {
        /// Along a row.
        pub x: usize,
        /// Rows.
        pub y: usize,
        /// Slices.
        pub z: usize,
    }

    /// The size of a box: in bytes, or in elements if source or destination is an array. Since
    /// driver 12080.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CUextent3D {
        /// Along a row.
        pub width: usize,
        /// Rows.
        pub height: usize,
        /// Slices.
        pub depth: usize,
    }

    /// A source or destination in addressable memory. Since driver 12080.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CUmemcpy3DOperand_op_ptr {
        /// The first address.
        pub ptr: CUdeviceptr,
        /// Bytes from one row to the next; 0 for no gap.
        pub rowLength: usize,
        /// Rows from one slice to the next; 0 for no gap.
        pub layerHeight: usize,
        /// Its location, for managed memory.
        pub locHint: CUmemLocation,
    }

    /// A source or destination in an array. Since driver 12080.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CUmemcpy3DOperand_op_array {
        /// The array.
        pub array: CUarray,
        /// The offset in the array.
        pub offset: CUoffset3D,
    }

    /// A source or destination; the type selects the field. Since driver 12080.
    #[derive(Clone, Copy)]
    pub union CUmemcpy3DOperand_op {
        /// Addressable memory.
        pub ptr: CUmemcpy3DOperand_op_ptr,
        /// An array.
        pub array: CUmemcpy3DOperand_op_array,
    }

    /// The source or destination of one copy of a batch of boxes. Since driver 12080.
    #[derive(Clone, Copy)]
    pub struct CUmemcpy3DOperand {
        /// The kind of memory.
        pub r#type: CUmemcpy3DOperandType,
        /// The source or destination.
        pub op: CUmemcpy3DOperand_op,
    }

    /// One copy of a batch of boxes. Since driver 12080.
    #[derive(Clone, Copy)]
    pub struct CUDA_MEMCPY3D_BATCH_OP {
        /// The source.
        pub src: CUmemcpy3DOperand,
        /// The destination.
        pub dst: CUmemcpy3DOperand,
        /// The size.
        pub extent: CUextent3D,
        /// When the source may be read.
        pub srcAccessOrder: CUmemcpySrcAccessOrder,
        /// Flags `CU_MEMCPY_FLAG_…`.
        pub flags: u32,
    }
}

zeroed! {
    CUmemcpyAttributes, CUmemcpy3DOperand_op_ptr, CUmemcpy3DOperand, CUDA_MEMCPY3D_BATCH_OP,
}
