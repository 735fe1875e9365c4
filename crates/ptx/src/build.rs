//! Typed registers with operators: kernels written in Rust, once, and printed as PTX.
//!
//! [`Kernel::build`] runs a closure that describes one kernel. Rust's `if` and `for` run while the
//! kernel is built, so that a `for` unrolls; [`Kernel::when`], [`Kernel::range`] and
//! [`Kernel::while_loop`] are the branches and loops of the kernel itself.
//!
//! ```
//! use retrograph_ptx::SmTarget;
//! use retrograph_ptx::build::{Kernel, ModuleBuilder};
//!
//! let entry = Kernel::build("silu_forward", |k| {
//!     let x = k.pointer::<f32>("x");
//!     let y = k.pointer::<f32>("y");
//!     let n = k.param::<u32>("n");
//!     let i = k.ctaid_x() * k.ntid_x() + k.tid_x();
//!     k.when(i.lt(n), || {
//!         let v = x.load(i);
//!         y.store(i, v / (1.0 + (-v).exp()));
//!     });
//! });
//! let module = ModuleBuilder::new(SmTarget::portable(80)).entry(entry).build();
//! let text = module.to_string();
//! assert!(text.contains("div.rn.f32"));
//! ```
//!
//! What is written is what is printed: `a * b + c` is a multiplication and an addition, each
//! rounded, and only [`Value::fma`] fuses; nothing flushes denormals to zero. Integer arithmetic on
//! constants is done while building, and so is exact float arithmetic on two constants.
//!
//! A value belongs to its kernel by lifetime, so that a value of another kernel does not compile:
//!
//! ```compile_fail
//! use retrograph_ptx::build::Kernel;
//! Kernel::build("outer", |k| {
//!     let a = k.param::<u32>("a");
//!     Kernel::build("inner", |inner| {
//!         let b = inner.param::<u32>("b");
//!         let _ = a + b;
//!     });
//! });
//! ```
//!
//! Not supported: device functions (use Rust functions), strings of PTX, and any optimisation
//! beyond dropping copies and unused results, which is the business of `ptxas`.

mod atomics;
mod bulk_copy;
mod cluster;
mod control;
mod convert;
mod cp_async;
mod kernel;
mod math;
mod mbarrier;
mod memory;
mod mma;
mod module;
mod operators;
mod pointer;
mod predicate;
mod reduce;
mod scalar;
mod shared;
mod state;
mod stmatrix;
mod tidy;
mod value;
mod var;
mod warp;
mod wgmma;

pub use atomics::AtomicScalar;
pub use bulk_copy::TensorMapParam;
pub use control::NamedBarrier;
pub use kernel::Kernel;
pub use module::ModuleBuilder;
pub use pointer::{Index, Ptr};
pub use predicate::Pred;
pub use scalar::{Arg, Float, Integer, Scalar, Word};
pub use shared::Shared;
pub use value::Value;
pub use var::Var;
pub use wgmma::MatrixDescriptor;
