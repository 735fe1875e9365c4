//! The contract between kernel sources and kernel launches.
//!
//! A kernel is written twice: as PTX source and as a typed launch. Both need the same element
//! types, parameters, flag bits, block sizes, tile shapes and entry names. This crate declares each
//! of them once, in one module per family of kernels.
//!
//! The macro `parameters!` defines a parameter list as a struct. The source declares all its fields
//! through [`Declarations`]; the launch fills them with values of [`ArgumentTypes`]. Both therefore
//! have the same list. A launch that omits a parameter, and a source that reads one that does not
//! exist, do not compile. A [`Signature`] joins the list with the image and
//! the entry points.
//!
//! The values of a launch are [`Argument`]s, which name buffers by [`View`]s and declare how the
//! kernel accesses them. They do not depend on any kernel, so the arguments of your own kernels
//! have the same types.
//!
//! ```
//! use retrograph_kernel_abi::gemm::{GemmFlags, GemmParameters, NT};
//!
//! assert_eq!(NT.entries[0], "gemm_f32_nt_128x128");
//! assert_eq!(NT.tiles[0].threads(), 256);
//! assert_eq!(GemmParameters::<()>::LIST[0].name, "a");
//! assert_eq!(GemmFlags::NONE.with(GemmFlags::ACCUMULATE, true).bits(), 1);
//!
//! use retrograph_kernel_abi::rope::ROPE;
//!
//! assert_eq!((ROPE.image, ROPE.entry(), ROPE.parameters[8].name), ("rope", "rope", "cos"));
//! ```

mod argument;
pub mod attention;
mod declarations;
mod dtype;
pub mod elementwise;
pub mod embedding;
pub mod gemm;
pub mod gemv;
pub mod lora;
pub mod loss;
pub mod nf4;
pub mod norm;
pub mod optimizer;
mod parameters;
pub mod pdl;
mod pointer;
pub mod rope;
pub mod sampling;
mod signature;
pub mod step_parameters;
mod view;

pub use argument::{
    Access, Argument, ArgumentValue, BoxSizes, BufferArgument, Cell, TensorMapArgument,
};
pub use declarations::{Declarations, FlagSet};
pub use dtype::DType;
pub use parameters::{
    Any, Arguments, Bf16, Declare, F16, Flags, Parameter, ParameterKind, ParameterTypes,
};
pub use pointer::{ArgumentTypes, Pointer};
pub use signature::{RowKernel, Signature};
pub use view::{Element, View};

/// The crate of the trait `Pod`, for arguments and elements.
pub use bytemuck;
/// The crate of SM targets, and of the builder with which sources declare parameters.
pub use retrograph_ptx as ptx;

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
