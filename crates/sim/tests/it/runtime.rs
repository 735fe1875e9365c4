//! A program that `nvcc` compiles, with NVIDIA's CUDA runtime as a shared and as a static library.

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{library, program, run, text};

const SHARED: &str = "libcudart.so.13";

/// The variable with the key of the integrity check.
const KEY: &str = "RETROGRAPH_SIM_RUNTIME_KEY";
/// The output of the program.
const OUTPUT: &str = "devices: 2, 9.0, driver 13000\nlaunches\nkernels\nstreams\ngraphs\nerrors\n\
                      reset\n";

/// `nvcc` 13: the variable NVCC names it, or the path has it.
struct Compiler {
    nvcc: PathBuf,
    /// The folder of the CUDA runtime.
    libraries: PathBuf,
}

impl Compiler {
    /// The compiler. Without one, or with another version, reports the skip and returns `None`.
    fn find() -> Option<Self> {
        let nvcc = std::env::var_os("NVCC").map_or_else(|| "nvcc".into(), PathBuf::from);
        let output = match Command::new(&nvcc).arg("--version").output() {
            Err(error) if error.kind() == ErrorKind::NotFound => return skip("no nvcc"),
            output => output.expect("nvcc can be started"),
        };
        if !text(&output).contains("release 13.0") {
            return skip("nvcc is not version 13.0");
        }
        // Prints the commands of a compilation, and variables such as TOP.
        let mut command = Command::new(&nvcc);
        let dry = text(&run(command.args(["--dryrun", "-x", "cu", "/dev/null"])));
        let top = dry.lines().find_map(|line| line.strip_prefix("#$ TOP=")).map(PathBuf::from)?;
        let folders = ["lib64", "lib", "targets/x86_64-linux/lib"].map(|name| top.join(name));
        match folders.into_iter().find(|folder| folder.join(SHARED).exists()) {
            Some(libraries) => Some(Self { nvcc, libraries }),
            None => skip("no libcudart.so.13 next to nvcc"),
        }
    }

    /// Builds the program in a folder, which is also searched for libraries.
    fn build(&self, runtime: &str, folder: &Path) -> PathBuf {
        let output = folder.join(runtime);
        let mut command = Command::new(&self.nvcc);
        command.args(["-std=c++17", "-gencode", "arch=compute_90,code=compute_90"]);
        command.args(["-cudart", runtime]).arg("-L").arg(folder).arg("-L").arg(&self.libraries);
        run(command.arg(program("runtime.cu")).arg("-o").arg(&output));
        output
    }
}

fn skip<T>(why: &str) -> Option<T> {
    let required = std::env::var_os("RETROGRAPH_REQUIRE_TOOLS").is_some();
    assert!(!required, "no program of the CUDA runtime is built: {why}");
    report_skip(why);
    None
}

fn report_skip(why: &str) {
    // Writes to the stream directly, since the harness captures the output of passing tests.
    let line = format!("skipped: no program of the CUDA runtime is built: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).expect("standard error can be written");
}

#[test]
fn a_program_of_the_cuda_runtime_runs() {
    // The key is NVIDIA's, so CI has none.
    if std::env::var_os(KEY).is_none() {
        return report_skip(&format!("{KEY} is not set"));
    }
    let Some(compiler) = Compiler::find() else { return };
    let library = library();
    let folder = library.path();
    for name in [SHARED, "libcudart.so"] {
        std::os::unix::fs::symlink(compiler.libraries.join(SHARED), folder.join(name))
            .expect("links can be made");
    }
    for runtime in ["shared", "static"] {
        let path = compiler.build(runtime, folder);
        for seed in ["0", "1"] {
            let mut command = Command::new(&path);
            command.env("LD_LIBRARY_PATH", folder).env("RETROGRAPH_SIM_DEVICES", "2");
            let output = run(command.env("RETROGRAPH_SIM_SEED", seed));
            let said = text(&output);
            assert_eq!(String::from_utf8_lossy(&output.stdout), OUTPUT, "{runtime}: {said}");
            assert!(!said.contains("not simulated"), "{runtime}: {said}");
        }
    }
}
