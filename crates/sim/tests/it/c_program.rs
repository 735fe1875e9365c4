//! C programs built against NVIDIA's cuda.h and linked with `-lcuda`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{include, library, program, run, text};

/// Builds a program in the folder of the library.
fn build(name: &str, folder: &Path) -> Option<PathBuf> {
    let include = include()?;
    let output = folder.join(name);
    let mut command = Command::new("cc");
    command.args(["-std=c11", "-Wall", "-Werror"]).arg(program(&format!("{name}.c")));
    command.arg("-isystem").arg(include).arg("-L").arg(folder).args(["-lcuda", "-o"]).arg(&output);
    run(&mut command);
    Some(output)
}

fn start(path: &Path, folder: &Path, variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(path);
    command.env("LD_LIBRARY_PATH", folder).envs(variables.iter().copied());
    command
}

#[test]
fn saxpy_runs_at_once_and_as_a_captured_graph() {
    let library = library();
    let Some(path) = build("saxpy", library.path()) else { return };
    for seed in ["0", "1", "2"] {
        let variables = [("RETROGRAPH_SIM_SEED", seed), ("RETROGRAPH_SIM_MEMORY", "16M")];
        let output = run(start(&path, library.path(), &variables).arg(program("saxpy.ptx")));
        let said = text(&output);
        assert!(said.contains("correct"), "{said}");
        assert!(said.contains("SIMULATED CUDA driver: 1 device(s)"), "{said}");
        assert!(said.contains("with 16 MiB"), "{said}");
    }
}

#[test]
fn the_environment_configures_the_machine() {
    let library = library();
    let Some(path) = build("saxpy", library.path()) else { return };
    let variables = [("RETROGRAPH_SIM_DEVICES", "3"), ("RETROGRAPH_SIM_CAPABILITY", "8.6")];
    let said = text(&run(start(&path, library.path(), &variables).arg(program("saxpy.ptx"))));
    assert!(said.contains("3 device(s)") && said.contains("8.x: correct"), "{said}");

    let variables = [("RETROGRAPH_SIM_MEMORY", "a lot")];
    let output = start(&path, library.path(), &variables).output().expect("it starts");
    let said = text(&output);
    // The program gets no argument, and ends before its first driver call.
    assert!(!output.status.success(), "{said}");
    let output = start(&path, library.path(), &variables).arg("x").output().expect("it starts");
    let said = text(&output);
    assert!(said.contains("RETROGRAPH_SIM_MEMORY is \"a lot\"; set it to bytes"), "{said}");
}

#[test]
fn too_little_memory_is_an_error_of_the_program() {
    let library = library();
    let Some(path) = build("saxpy", library.path()) else { return };
    let variables = [("RETROGRAPH_SIM_MEMORY", "4K")];
    let mut command = start(&path, library.path(), &variables);
    let output = command.arg(program("saxpy.ptx")).output().expect("it starts");
    let said = text(&output);
    assert!(said.contains("CUDA_ERROR_OUT_OF_MEMORY (2)"), "{said}");
}

#[test]
fn an_unsimulated_call_returns_801_and_the_program_goes_on() {
    let library = library();
    let Some(path) = build("absent", library.path()) else { return };
    let kinds = ["texture", "table", "texture", "texture"];
    let output = run(start(&path, library.path(), &[]).args(kinds));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "801 801 801 801 0 no table\n");
    let said = text(&output);
    assert_eq!(said.matches("SIMULATED CUDA driver: cuTexObjectDestroy: ").count(), 1, "{said}");
    assert!(said.contains("4 call(s) were not simulated and returned 801:"), "{said}");
    assert!(said.contains("       3 cuTexObjectDestroy\n"), "{said}");
    let table = "       1 cuGetExportTable 01000000-0000-0000-0000-000000000000\n";
    assert!(said.contains(table), "{said}");

    let output = run(&mut start(&path, library.path(), &[]));
    assert!(!text(&output).contains("not simulated"), "nothing was refused");
}

#[test]
fn an_unsimulated_call_aborts_on_request() {
    let library = library();
    let Some(path) = build("absent", library.path()) else { return };
    let variables = [("RETROGRAPH_SIM_ON_UNSUPPORTED", "abort")];
    for (kind, name) in [("table", "cuGetExportTable"), ("texture", "cuTexObjectDestroy")] {
        let mut command = start(&path, library.path(), &variables);
        let output = command.arg(kind).output().expect("it starts");
        let said = text(&output);
        assert!(!output.status.success(), "{said}");
        assert!(said.contains(&format!("SIMULATED CUDA driver: {name}")), "{said}");
    }
}

#[test]
fn a_host_function_that_calls_the_driver_gets_an_error() {
    let library = library();
    let Some(path) = build("host", library.path()) else { return };
    let output = run(&mut start(&path, library.path(), &[]));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "800\n");
    let said = text(&output);
    assert!(said.contains("cuCtxSynchronize"), "{said}");
}

#[test]
fn a_profiler_starts_and_stops_where_a_context_is_current() {
    let library = library();
    let Some(path) = build("profiler", library.path()) else { return };
    let output = run(&mut start(&path, library.path(), &[]));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "201 0 0 0\n");
}

#[test]
fn a_program_for_per_thread_default_streams_runs() {
    let library = library();
    let Some(path) = build("per_thread", library.path()) else { return };
    for seed in ["0", "1", "2"] {
        let variables = [("RETROGRAPH_SIM_SEED", seed)];
        let output = run(&mut start(&path, library.path(), &variables));
        let said = text(&output);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "as expected\n", "{said}");
        assert!(!said.contains("not simulated"), "{said}");
    }
}
