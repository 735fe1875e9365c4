//! The simulated driver as a program sees it: through the table of functions.

#![expect(non_snake_case, reason = "fields of node parameters are named as in cuda.h")]

mod arrays;
mod attributes;
mod capture;
mod capture_into;
mod capture_modes;
mod conditional;
mod copies;
mod coredump;
mod default_streams;
mod fatbins;
mod faults;
mod graph_nodes;
mod graph_update;
mod graphs;
mod host_functions;
mod launches;
mod legacy_launches;
mod links;
mod machine;
mod managed;
mod memory;
mod modules;
mod nvcc;
mod objects;
mod of_driver;
mod ordering;
mod peers;
mod pools;
mod ptx;
mod refusals;
mod resets;
mod residency;
mod resources;
mod symbols;
mod tensor_maps;
mod times;
mod worlds;
