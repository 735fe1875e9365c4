//! Tests of the runtime, on the simulated driver or on a GPU: see `device`.

mod analysis;
mod bound;
mod broken_captures;
mod buffers;
mod capturing;
mod described;
mod device;
mod disturbed_captures;
mod disturbers;
mod executed;
mod failing_calls;
mod failing_programs;
mod fallbacks;
mod faults;
mod graphs;
mod lost_captures;
mod lost_context;
mod mlp;
mod pools;
mod programs;
mod ptx;
mod refusals;
mod scalars;
mod streams;
mod warm;
