//! The symbols that the library exports and imports.

use std::collections::BTreeSet;
use std::process::Command;

use retrograph_driver_sys::DriverTable;

use crate::{include, library, run};

/// The dynamic symbols, as `nm` lists them with a filter.
fn dynamic(filter: &str) -> Vec<String> {
    let library = library();
    let mut command = Command::new("nm");
    command.args(["-D", filter]).arg(library.path().join("libcuda.so.1"));
    let output = run(&mut command);
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    lines.lines().filter_map(|line| Some(line.split_whitespace().last()?.to_owned())).collect()
}

#[test]
fn every_function_of_the_table_is_exported_under_its_symbol_and_nothing_else_is() {
    let exported: BTreeSet<String> = dynamic("--defined-only").into_iter().collect();
    let optional = DriverTable::OPTIONAL.iter().map(|(name, _)| *name);
    for name in DriverTable::REQUIRED.iter().copied().chain(optional) {
        assert!(exported.contains(name), "{name} is not exported");
    }
    for name in &exported {
        assert!(name.starts_with("cu"), "{name} is exported");
    }
}

#[test]
fn nothing_is_needed_but_versioned_symbols_of_the_c_library() {
    let needed = dynamic("--undefined-only");
    assert!(needed.iter().any(|name| name.starts_with("memcpy@")), "{needed:?}");
    let weak = ["__cxa_finalize", "__gmon_start__", "_ITM_deregisterTMCloneTable"];
    let weak = |name: &str| weak.contains(&name) || name == "_ITM_registerTMCloneTable";
    for name in &needed {
        let versioned = name.contains("@GLIBC") || name.contains("@GCC");
        assert!(versioned || weak(name), "{name} has no version, or is not of the C library");
    }
}

#[test]
fn the_library_calls_itself_as_the_driver_does() {
    let library = library();
    let mut command = Command::new("readelf");
    command.arg("-d").arg(library.path().join("libcuda.so.1"));
    let output = run(&mut command);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("soname: [libcuda.so.1]"), "{text}");
}

/// PyCUDA links to them.
#[test]
fn functions_of_the_header_of_the_profiler_are_exported() {
    let exported = dynamic("--defined-only");
    for name in ["cuProfilerInitialize", "cuProfilerStart", "cuProfilerStop"] {
        assert!(exported.iter().any(|held| held == name), "{name} is not exported");
    }
}

#[test]
fn every_function_that_the_header_declares_is_exported() {
    let Some(include) = include() else { return };
    let exported: BTreeSet<String> = dynamic("--defined-only").into_iter().collect();
    for internal in ["-DORDINARY", "-D__CUDA_API_VERSION_INTERNAL"] {
        let mut command = Command::new("cc");
        command.args(["-E", "-w", internal, "-include", "cuda.h", "-x", "c", "/dev/null", "-I"]);
        let output = run(command.arg(&include));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut count = 0;
        for declared in text.split("CUresult cu").skip(1).filter_map(|rest| rest.split_once('(')) {
            let name = format!("cu{}", declared.0.trim());
            assert!(exported.contains(&name), "{name} is not exported");
            count += 1;
        }
        assert!(count > 400, "the header declares more than {count} functions");
    }
}
