//! Modules and functions: PTX, cubins and fatbins, compiled and loaded.
//!
//! ```
//! # #[cfg(feature = "sim")] {
//! use retrograph_driver::{Context, DeviceIndex, Driver, Module};
//!
//! let ptx = "
//! .version 6.3
//! .target sm_75
//! .address_size 64
//! .visible .entry nothing() { ret; }
//! ";
//! let context = Context::new(&Driver::simulated(Default::default())?, DeviceIndex(0))?;
//! let module = Module::load_ptx(&context, ptx)?;
//! let function = module.function("nothing")?;
//! assert_eq!(function.parameter_sizes(), Some(&[][..]));
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The driver compiles PTX when a module is loaded, one image at a time, which takes from
//! milliseconds to a quarter of a second. [`compile_ptx`] returns the machine code instead, which
//! [`Module::load_code`] loads without compiling.

mod code;
mod compile;
mod function;
mod jit;
mod load;

pub use code::CodeError;
pub use compile::compile_ptx;
pub use function::{Function, Module};
pub use load::LoadError;

pub(crate) use function::parameter_sizes;
