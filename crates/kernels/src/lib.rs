//! Training kernels as embedded PTX, with launch geometry and f64 references.

pub mod launch;
pub mod view;

pub use launch::{Access, Argument, BufferArgument, Cell, Dispatch, Kernel, Launch, Problem};
pub use launch::{Parameter, ParameterKind};
pub use retrograph_ptx::SmTarget;
pub use view::{Element, View};
