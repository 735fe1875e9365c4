//! Training kernels as embedded PTX, with launch geometry and f64 references.
//!
//! Every operation is a struct with public fields. Its `launch` checks the lengths of the operands
//! and returns a [`Launch`]: the kernel, its problem and its arguments, before any device is known.
//! Operands are [`View`]s, which are generic over the buffer type.
//!
//! ```
//! use retrograph_kernels::ops::{Fprop, GemmShape};
//! use retrograph_kernels::{SmTarget, View, images};
//!
//! // Here a buffer is a device address; with the runtime it is a buffer of a pass.
//! let view = View::<u64, f32>::new;
//! let (x, y) = (view(0x1000, 6), view(0x3000, 8));
//! let w = view(0x2000, 12); // Or bf16, or NF4.
//! let shape = GemmShape { rows: 2, inputs: 3, outputs: 4 };
//! let fprop = Fprop { x, w, bias: None, y, shape, alpha: 1.0, accumulate: false };
//! let launch = fprop.launch()?;
//!
//! let target = SmTarget::arch_specific(90);
//! let dispatch = launch.dispatch(target);
//! let ptx = images::ptx(launch.kernel().image, target).unwrap();
//! assert!(ptx.contains(dispatch.entry));
//! # Ok::<(), retrograph_kernels::KernelError>(())
//! ```
//!
//! All tensors are contiguous and row-major, and f32 unless an operation says otherwise. Every
//! kernel is deterministic: the same operands give the same bits, whatever else runs on the device.
//! Kernels keep no state, allocate nothing and access only their operands.
//!
//! Each family of kernels is a module with typed launches and, in `reference`, its formulas in f64
//! on the CPU. [`ops`] has all launches under one path. Any driver binding can load
//! the images and launch the kernels.

pub mod attention;
mod checks;
pub mod elementwise;
pub mod embedding;
pub mod error;
pub mod gemm;
pub mod gemv;
mod geometry;
pub mod images;
pub mod launch;
pub mod lora;
pub mod loss;
pub mod nf4;
pub mod norm;
pub mod ops;
pub mod optimizer;
pub mod problem;
pub mod rope;
pub mod sampling;
pub mod tensor;
mod tensor_list;

/// Typed views of buffers, generic over the buffer type.
pub mod view {
    pub use retrograph_kernel_abi::{Element, View};
}

pub use error::{FoundSizes, KernelError};
pub use launch::{
    Access, Argument, BufferArgument, Cell, Dispatch, Kernel, Launch, PersistentBlocks,
    TensorMapArgument,
};
pub use ops::all;
pub use problem::Problem;
pub use retrograph_kernel_abi::{DType, Parameter, ParameterKind};
pub use retrograph_ptx::{
    CannotRun, ImageForm, Reach, SmTarget, TensorMapLayout, TensorMapSwizzle, TensorMapType,
};
pub use tensor::{Nf4, Nf4Scales, Output, TensorView};
pub use view::{Element, View};

/// The crate of the element types bf16 and f16.
pub use half;

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
