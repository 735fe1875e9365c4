//! The PTX instruction set as one table, with a writer, a parser and typed registers.
//!
//! | module | what it is for |
//! |---|---|
//! | [`build`] | kernels written in Rust, with typed registers and operators |
//! | [`ast`] | a module as a value; [`Display`](std::fmt::Display) prints it as PTX |
//! | [`parse()`] | PTX text to such a value |
//! | [`instructions`] | the table, and how to add an instruction |
//! | [`mod@validate`] | checks of a module against the table |
//! | [`target`] | SM targets and PTX ISA versions |
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
//! Absent on purpose: assembling, which the driver does when it loads PTX and `ptxas` ahead of
//! time; optimisation, which is theirs as well; device functions, textures and surfaces, 32-bit
//! addressing, tensor-core and asynchronous-copy instructions, and arithmetic on half-precision
//! registers.

pub mod ast;
pub mod build;
mod features;
pub mod instructions;
mod parse;
mod print;
pub mod target;
pub mod validate;
mod words;

pub use features::SmFeatures;
pub use parse::{ParseError, parse};
pub use target::{CannotRun, ImageForm, IsaVersion, Reach, SmTarget};
pub use validate::{ValidationError, validate};

/// The examples of README.md, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
