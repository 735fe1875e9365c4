//! Typed registers with operators, to write kernels in Rust and print them as PTX.
//!
//! [`Kernel::build`] runs a closure that describes one kernel. Rust's `if` and `for` run at build
//! time, so a `for` unrolls. [`Kernel::when`], [`Kernel::range`] and [`Kernel::while_loop`] emit
//! branches and loops.
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
//! Methods that emit one instruction have its PTX name: `shfl_bfly`, `cp_async_wait_group`,
//! `wgmma_fence`. The builder never reorders or fuses: `a * b + c` is a multiplication and an
//! addition, each rounded; only [`Value::fma`] fuses. Nothing flushes denormals to zero. Integer
//! arithmetic on constants, and exact float arithmetic on two constants, is folded.
//!
//! A value carries the lifetime of its kernel, so using a value of another kernel does not compile:
//!
//! ```compile_fail,E0521
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
//! Not supported: device functions (use Rust functions), strings of PTX, and optimizations other
//! than dropping copies and unused results. `ptxas` optimizes.

mod atomics;
mod bulk_copy;
mod cluster;
mod control;
mod convert;
mod cp_async;
mod index;
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
pub use cluster::ClusterShared;
pub use control::NamedBarrier;
pub use index::Index;
pub use kernel::Kernel;
pub use module::ModuleBuilder;
pub use pointer::Ptr;
pub use predicate::Pred;
pub use scalar::{Arg, Float, Integer, Scalar, Word};
pub use shared::Shared;
pub use value::Value;
pub use var::Var;
pub use wgmma::{HalfType, MatrixA, MatrixDescriptor, ScaleD};
