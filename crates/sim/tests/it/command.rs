//! The command `retrograph-sim`. The started programs are this test binary again.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use cudarc::driver::{CudaContext, DriverError, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use serde_json::Value;

use crate::client::CLIENT;
use crate::text;

/// Each thread stores its index at an address that the parameter gives, `step` bytes apart.
const STORE: &str = r#"
.version 7.0
.target sm_80
.address_size 64
.visible .entry store(.param .u64 base, .param .u32 step)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<4>;
    .loc 1 3 5
    ld.param.u64 %rd1, [base];
    cvta.to.global.u64 %rd1, %rd1;
    ld.param.u32 %r1, [step];
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %rd2, %r1, %r2;
    add.s64 %rd3, %rd1, %rd2;
    .loc 1 4 9
    st.global.u32 [%rd3], %r2;
    ret;
}
.file 1 "/src/store.cu"
"#;

/// Runs the ignored test `name` of this binary under `retrograph-sim run` with options.
fn run_client(folder: &Path, options: &[&str], name: &str) -> Output {
    let mut command = command(folder);
    command.arg("run").args(options).arg("--").arg(std::env::current_exe().expect("a path"));
    command.args(["--exact", name, "--ignored", "--nocapture"]).env(CLIENT, "1");
    command.output().expect("it starts")
}

fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_retrograph-sim"));
    command.env("XDG_CACHE_HOME", folder.join("cache"));
    command
}

#[test]
fn an_invalid_option_or_variable_is_named_before_the_program_starts() {
    let folder = tempfile::tempdir().expect("a folder");
    let said = |command: &mut Command| {
        let output = command.args(["--", "echo", "started"]).output().expect("it starts");
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let option = said(command(folder.path()).args(["run", "--memory", "1.5G"]));
    assert!(option.contains(r#"--memory is "1.5G"; set it to bytes"#), "{option}");
    let range = said(command(folder.path()).args(["run", "--devices", "65"]));
    assert!(range.contains("devices = 65; it must be at most 64"), "{range}");
    let variable = said(command(folder.path()).env("RETROGRAPH_SIM_RACES", "yes").arg("run"));
    assert!(variable.contains(r#"RETROGRAPH_SIM_RACES is "yes"; set it to 0 or 1"#), "{variable}");
}

/// The reports in a file, one a line.
fn reports(path: &Path) -> Vec<Value> {
    let lines = std::fs::read_to_string(path).expect("there is a report");
    lines.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// A folder, and the option for a report in it.
fn report_in(folder: &Path) -> (PathBuf, String) {
    let path = folder.join("report.json");
    let option = format!("--report={}", path.display());
    (path, option)
}

#[test]
fn a_program_runs_with_options_and_its_report_counts_kernels() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, report) = report_in(folder.path());
    std::fs::write(&path, "of an earlier run").expect("it can be written");
    let options = [
        "--devices=2",
        "--memory=64M",
        "--capability=8.6",
        "--driver=12.9",
        "--order=prompt",
        "--seed=7",
        "--threads=1",
        "--on-unsupported=abort",
        &report,
    ];
    let output = run_client(folder.path(), &options, "client::process");
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("2 device(s) of compute capability 8.6 with 64 MiB, driver 12.9"));
    assert!(said.contains("SIMULATED CUDA driver: 5 launch(es) of 1 kernel(s)\n"), "{said}");
    assert!(said.contains("SIMULATED CUDA driver:        5 saxpy\n"), "{said}");
    let [report] = &reports(&path)[..] else { panic!("one process: {said}") };
    assert_eq!(report["simulated"], true);
    assert_eq!(report["kernels"], serde_json::json!([{ "name": "saxpy", "launches": 5 }]));
    assert_eq!(report["diagnostics"], serde_json::json!([]));
    assert_eq!(report["not_simulated"], serde_json::json!({}));
    assert_eq!(report["live"]["allocations"], 0);
    let machine = &report["machine"];
    assert_eq!(machine["compute_capability"], "8.6");
    assert_eq!(machine["driver"], 12090);
    assert_eq!((&machine["order"], &machine["seed"]), (&"prompt".into(), &7.into()));
}

#[test]
fn a_fault_is_reported_with_thread_and_source_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, report) = report_in(folder.path());
    let output = run_client(folder.path(), &[&report], "command::out_of_bounds");
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    let [report] = &reports(&path)[..] else { panic!("one process: {said}") };
    let finding = &report["diagnostics"][0];
    assert_eq!(finding["kind"], "fault");
    let site = &finding["site"];
    assert_eq!(site["kernel"], "store");
    assert_eq!(site["block"], serde_json::json!([0, 0, 0]));
    assert_eq!(site["thread"], serde_json::json!([2, 0, 0]));
    assert_eq!((&site["file"], &site["line"]), (&"/src/store.cu".into(), &4.into()));
    assert_eq!(site["instruction"], "st.global.u32 [%rd3], %r2;");
    assert!(said.contains("from /src/store.cu:4): st.global.u32"), "{said}");
    // The client leaks its allocation, so that the report lists it.
    assert_eq!(report["live"]["allocated_bytes"], 8);
    assert!(said.contains("not released at exit: "), "{said}");
}

#[test]
fn races_are_reported_on_request() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, report) = report_in(folder.path());
    for (option, findings) in [(None, 0), (Some("--races"), 1)] {
        let options: Vec<_> = [Some(&*report), option].into_iter().flatten().collect();
        let output = run_client(folder.path(), &options, "command::race");
        let [report] = &reports(&path)[..] else { panic!("one process: {}", text(&output)) };
        let diagnostics = report["diagnostics"].as_array().expect("a list");
        assert_eq!(diagnostics.len(), findings, "{report}");
        assert_eq!(report["machine"]["detect_races"], option.is_some());
    }
}

#[test]
fn the_command_returns_the_exit_status_of_the_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let failing = command(folder.path()).args(["run", "--", "sh", "-c", "exit 7"]).status();
    assert_eq!(failing.expect("it starts").code(), Some(7));
    let output = command(folder.path())
        .args(["run", "--", "sh", "-c", "echo $LD_LIBRARY_PATH"])
        .env("LD_LIBRARY_PATH", "/else")
        .output()
        .expect("it starts");
    let cache = folder.path().join("cache/retrograph/sim").join(env!("CARGO_PKG_VERSION"));
    let searched = String::from_utf8_lossy(&output.stdout);
    assert!(searched.starts_with(&cache.display().to_string()), "{searched}");
    assert!(searched.ends_with(":/else\n"), "what was searched before is searched still");
}

#[test]
fn another_file_of_the_same_version_has_its_own_links() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |mut command: Command| {
        command.args(["run", "--", "sh", "-c", "echo $LD_LIBRARY_PATH"]);
        let output = loop {
            match command.output() {
                // A process that another test has just forked still has the copy open.
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                output => break output.expect("it starts"),
            }
        };
        String::from_utf8(output.stdout).expect("a path")
    };
    let first = path(command(folder.path()));
    let copy = folder.path().join("copy");
    std::fs::copy(env!("CARGO_BIN_EXE_retrograph-sim"), &copy).expect("a copy");
    let mut other = Command::new(&copy);
    other.env("XDG_CACHE_HOME", folder.path().join("cache"));
    let second = path(other);
    assert_ne!(first, second);
    for (links, file) in [(first, Path::new(env!("CARGO_BIN_EXE_retrograph-sim"))), (second, &copy)]
    {
        let links = links.split(':').next().expect("a folder").trim();
        let library = std::fs::read_link(Path::new(links).join("libcuda.so.1")).expect("a link");
        assert_eq!(library, file.canonicalize().expect("it exists"));
    }
}

#[test]
fn a_host_function_may_end_the_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = run_client(folder.path(), &[], "command::exit_in_host_function");
    let said = text(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("no report: the process exits during a call of the driver"), "{said}");
}

#[test]
fn kernels_print_to_standard_output() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = run_client(folder.path(), &[], "command::print");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains("hello\n"), "{}", text(&output));
}

#[test]
fn a_forked_child_gets_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, report) = report_in(folder.path());
    let output = run_client(folder.path(), &[&report], "command::fork_and_call");
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    assert_eq!(reports(&path).len(), 1, "the child has no machine to report: {said}");
}

#[test]
fn a_program_that_cannot_start_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = command(folder.path()).args(["run", "--", "/no/program"]).output().unwrap();
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("error: cannot start \"/no/program\": No such file"), "{said}");
    let options = ["run", "--report=/no/report.json", "--", "true"];
    let said = text(&command(folder.path()).args(options).output().unwrap());
    assert!(said.contains("error: cannot write /no/report.json: No such file"), "{said}");
    let output = command(folder.path()).args(["run"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "no program is a wrong use");
}

#[test]
fn the_library_is_written_into_a_folder_and_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("a/b");
    for _ in 0..2 {
        let done = command(folder.path()).arg("library").arg("--out").arg(&out).status().unwrap();
        assert!(done.success());
    }
    let mut names: Vec<_> =
        out.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["libcuda.so", "libcuda.so.1"]);
    let mut client = Command::new(std::env::current_exe().expect("a path"));
    client.args(["--exact", "client::process", "--ignored"]).env(CLIENT, "1");
    let output = client.env("LD_LIBRARY_PATH", &out).output().expect("it starts");
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
#[ignore = "a process of its own, started by a test of the command"]
fn out_of_bounds() {
    let code = store(4, 3).expect_err("two words are there");
    assert_eq!(code.0 as i32, 700);
}

#[test]
#[ignore = "a process of its own, started by a test of the command"]
fn race() {
    // Every thread stores to the same word. Races are not errors unless they are detected.
    let _ = store(0, 64);
}

#[test]
#[ignore = "a process of its own, started by a test of the command"]
fn exit_in_host_function() {
    unsafe extern "C" fn exit(_: *mut std::ffi::c_void) {
        std::process::exit(3);
    }
    let stream = CudaContext::new(0).and_then(|context| context.new_stream()).expect("a stream");
    // SAFETY: the stream is valid, and the function ignores its data.
    let code = unsafe {
        cudarc::driver::sys::cuLaunchHostFunc(stream.cu_stream(), Some(exit), std::ptr::null_mut())
    };
    assert_eq!(code as i32, 0);
    let _ = stream.synchronize();
    panic!("the host function has not run");
}

/// Prints "hello" and the end of a line.
const PRINT: &str = r#"
.version 7.0
.target sm_80
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 l);
.global .align 1 .b8 format[7] = {104, 101, 108, 108, 111, 10, 0};
.visible .entry print()
{
    .reg .b64 %rd<2>;
    .param .b64 f; .param .b64 l; .param .b32 r;
    mov.u64 %rd0, format;
    cvta.global.u64 %rd1, %rd0;
    st.param.b64 [f], %rd1;
    st.param.b64 [l], 0;
    call.uni (r), vprintf, (f, l);
    ret;
}
"#;

#[test]
#[ignore = "a process of its own, started by a test of the command"]
fn print() {
    assert!(std::env::var_os(CLIENT).is_some(), "it needs the library in its path");
    let context = CudaContext::new(0).expect("a context");
    let stream = context.new_stream().expect("a stream");
    let module = context.load_module(Ptx::from_src(PRINT)).expect("a module");
    let function = module.load_function("print").expect("a kernel");
    let config = LaunchConfig { block_dim: (1, 1, 1), ..LaunchConfig::for_num_elems(1) };
    // SAFETY: the kernel has no parameters.
    unsafe { stream.launch_builder(&function).launch(config) }.expect("a launch");
    stream.synchronize().expect("it runs");
}

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
}

#[test]
#[ignore = "a process of its own, started by a test of the command"]
fn fork_and_call() {
    assert!(std::env::var_os(CLIENT).is_some(), "it needs the library in its path");
    let context = CudaContext::new(0).expect("a context");
    // SAFETY: the child calls the driver and exits; no lock of this process is held.
    let child = unsafe { fork() };
    if child == 0 {
        // SAFETY: `cuInit` takes no pointer.
        let code = unsafe { cudarc::driver::sys::cuInit(0) };
        // SAFETY: the context was valid in the parent.
        let again = unsafe { cudarc::driver::sys::cuCtxSetCurrent(context.cu_ctx()) };
        let mut version = 0;
        // SAFETY: the place is valid.
        let needs_nothing = unsafe { cudarc::driver::sys::cuDriverGetVersion(&mut version) };
        let known = needs_nothing as i32 == 0 && version >= 13_000;
        std::process::exit(if known { 16 * code as i32 + again as i32 } else { 255 });
    }
    let mut status = 0;
    // SAFETY: the place is valid.
    assert_eq!(unsafe { waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, (16 * 3 + 3) << 8, "what needs cuInit is \"not initialized\"");
    context.synchronize().expect("the parent goes on");
}

/// Stores from `threads` threads, `step` bytes apart, to memory of two words, which leaks.
fn store(step: u32, threads: u32) -> Result<(), DriverError> {
    assert!(std::env::var_os(CLIENT).is_some(), "it needs the library in its path");
    let context = CudaContext::new(0)?;
    let stream = context.new_stream()?;
    let function = context.load_module(Ptx::from_src(STORE))?.load_function("store")?;
    let words = std::mem::ManuallyDrop::new(stream.alloc_zeros::<u32>(2)?);
    let mut launch = stream.launch_builder(&function);
    launch.arg(&*words).arg(&step);
    let config = LaunchConfig { block_dim: (threads, 1, 1), ..LaunchConfig::for_num_elems(1) };
    // SAFETY: the simulator checks every access.
    unsafe { launch.launch(config) }?;
    stream.synchronize()
}
