//! The PTX instruction set as one table, with a writer, a parser and typed registers.
//!
//! | module | purpose |
//! |---|---|
//! | [`build`] | kernels written in Rust, with typed registers and operators |
//! | [`ast`] | a module as a value; [`Display`](std::fmt::Display) prints it as PTX |
//! | [`parse()`] | a module from PTX text |
//! | [`instructions`] | the table, and how to add an instruction |
//! | [`mod@validate`] | checks of a module against the table |
//! | [`target`] | SM targets and PTX ISA versions |
//! | [`TensorMapLayout`] | layouts of tensor maps, for drivers and kernels |
//!
//! ```
//! use retrograph_ptx::SmTarget;
//! use retrograph_ptx::build::{Kernel, ModuleBuilder};
//!
//! let saxpy = Kernel::build("saxpy", |k| {
//!     let (x, y) = (k.pointer::<f32>("x"), k.pointer::<f32>("y"));
//!     let (a, n) = (k.param::<f32>("a"), k.param::<u32>("n"));
//!     let i = k.ctaid_x() * k.ntid_x() + k.tid_x();
//!     k.when(i.lt(n), || y.store(i, a.fma(x.load(i), y.load(i))));
//! });
//! let module = ModuleBuilder::new(SmTarget::portable(75)).entry(saxpy).build();
//! let text = module.to_string();
//! assert_eq!(retrograph_ptx::parse(&text), Ok(module));
//! ```
//!
//! The crate needs no GPU and no CUDA installation.
//!
//! The parser reads the output of nvcc for ordinary kernels, including device functions,
//! asynchronous copies, packed half-precision arithmetic and tensor-core instructions:
//!
//! ```
//! let text = "
//! .version 7.0
//! .target sm_80
//! .address_size 64
//! .func (.param .b32 result) twice(.param .b32 a)
//! {
//!     .reg .b32 %r<2>;
//!     ld.param.b32 %r1, [a];
//!     fma.rn.f16x2 %r1, %r1, %r1, %r1;
//!     st.param.b32 [result], %r1;
//!     ret;
//! }
//! .visible .entry kernel(.param .u64 from)
//! {
//!     .shared .align 16 .b8 tile[16];
//!     .reg .b32 %r<4>;
//!     .reg .f32 %f<5>;
//!     .reg .b64 %rd<3>;
//!     ld.param.u64 %rd1, [from];
//!     mov.u64 %rd2, tile;
//!     cp.async.cg.shared.global [%rd2], [%rd1], 16;
//!     cp.async.wait_all;
//!     mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32
//!         {%f1, %f2, %f3, %f4}, {%r1, %r2}, {%r3}, {%f1, %f2, %f3, %f4};
//!     ret;
//! }";
//! let module = retrograph_ptx::parse(text)?;
//! assert_eq!((module.functions.len(), module.entries.len()), (1, 1));
//! // Textures are not in the table.
//! let texture = text.replace("cp.async.wait_all", "tex.1d.v4.f32.s32 {%f1}, [t, {%r1}]");
//! assert!(retrograph_ptx::parse(&texture).is_err());
//! # Ok::<(), retrograph_ptx::ParseError>(())
//! ```
//!
//! # Limits
//!
//! Textures, surfaces, 32-bit addressing and the tensor cores of sm_100 are not in the table. The
//! crate neither assembles nor optimizes: the driver does both when it loads PTX, and `ptxas` ahead
//! of time.

pub mod ast;
pub mod build;
mod features;
pub mod instructions;
mod parse;
mod print;
pub mod target;
mod tensor_map;
pub mod validate;
mod words;

pub use features::SmFeatures;
pub use parse::{ParseError, parse};
pub use target::{CannotRun, ImageForm, IsaVersion, Reach, SmTarget};
pub use tensor_map::{TensorMapLayout, TensorMapSwizzle, TensorMapType};
pub use validate::{ValidationError, validate};

/// Runs the examples of README.md as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
