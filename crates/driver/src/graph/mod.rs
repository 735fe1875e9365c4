//! Graphs: templates of nodes and edges, instantiated once and replayed many times.
//!
//! ```
//! # #[cfg(feature = "sim")] {
//! use retrograph_driver::{
//!     Context, DeviceBuffer, DeviceIndex, Driver, Graph, MemsetParams, Stream,
//! };
//!
//! let context = Context::new(&Driver::simulated(Default::default())?, DeviceIndex(0))?;
//! let stream = Stream::new(&context)?;
//! let buffer = DeviceBuffer::<u32>::zeroed(&context, 4)?;
//!
//! let mut graph = Graph::new(&context)?;
//! let fill = MemsetParams { dst: buffer.address(), value: 7, words: 4 };
//! // SAFETY: the range is in the buffer, which the graph keeps alive.
//! unsafe { graph.add_memset(&fill, &[]) }?;
//! graph.keep(buffer.owner());
//!
//! let mut exec = graph.instantiate()?;
//! exec.launch(&stream)?;
//! assert_eq!(buffer.download(&stream)?, [7; 4]);
//! # }
//! # Ok::<(), retrograph_driver::Error>(())
//! ```
//!
//! A [`Graph`], and each [`GraphExec`] made from it, keeps objects given to [`Graph::keep`] alive.
//! Adding a node is `unsafe`: the caller guarantees that it may run in every launch of the graph.
//! Launching is then safe.

mod attributes;
mod copy;
mod exec;
mod inspect;
mod node_params;
mod nodes;
mod owners;
mod profile;
mod report;
mod template;

pub use exec::{GraphExec, UpdateOutcome};
pub use inspect::{KernelNodeParams, NodeKind};
pub use node_params::{NodeParams, UnreadableParams};
pub use nodes::{MemcpyParams, MemsetParams};
pub use report::{GraphReport, Ordered};
pub use template::{Graph, Node};

pub(crate) use inspect::node_handles;
