//! The functions of the driver, by area of cuda.h.
//!
//! Each is a method of [`State`](crate::state::State) with the exported name of the driver
//! function. The trampoline holds the lock of the state, has counted the call and has checked that
//! the driver is initialized. A refusal names the [`Rule`](crate::rule::Rule) that the call breaks.

// Methods carry the names of the driver's functions.
#![allow(non_snake_case)]

mod array_forms;
mod arrays;
mod attributes;
mod boxes;
mod capture;
mod capture_into;
mod conditional;
mod context;
mod copies;
mod coredump;
mod device;
mod device_runtime;
mod dot;
mod edges;
mod errors;
mod events;
mod exec;
mod fatbin;
mod fills;
mod functions;
mod generic_nodes;
mod graph_info;
mod graph_memory;
mod graphs;
mod host;
mod host_functions;
mod images;
mod join;
mod kernels;
mod launch;
mod launch_attributes;
mod launch_parameters;
mod legacy_launch;
mod library;
mod limits;
mod link;
mod managed;
mod memory;
mod modules;
mod node_attributes;
mod node_kinds;
mod node_parameters;
mod nodes;
mod occupancy;
mod ordered;
mod parameters;
mod peers;
mod pointers;
mod pools;
mod primary;
mod resources;
mod stream_attributes;
mod stream_identity;
mod streams;
mod symbols;
mod tensor_maps;
mod update;
mod user_objects;

pub(crate) use images::LoadFailure;
pub(crate) use legacy_launch::LegacyLaunch;

use crate::argument::{Call, Out};

/// Writes a list as the driver does. Without a buffer, only `count` is written. Otherwise up to
/// `count` elements are written, and the rest of the buffer is filled with `filler`.
fn put_list<T: Copy>(list: &[T], output: Out<T>, count: Out<usize>, filler: T) -> Call {
    if output.is_null() {
        return count.write(list.len());
    }
    let capacity = count.get()?;
    for index in 0..capacity {
        output.write_at(index, list.get(index).copied().unwrap_or(filler))?;
    }
    count.write(list.len().min(capacity))
}
