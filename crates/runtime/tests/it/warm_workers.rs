//! Cold images compiled by other processes. On the simulated driver, which executes PTX, a program
//! that copies its input replaces the assembler.
#![cfg(unix)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, thread};

use retrograph_runtime::modules::{
    CacheOptions, CompileOptions, Compiler, Source, Warning, WorkerCommand, serve_compiler,
};
use retrograph_runtime::{ModuleCache, PrewarmError, Requirements, WarmModules};

use crate::device::{Device, device_of, simulated};
use crate::ptx::{BROKEN, SCALE, image, requirements};
use crate::support::with;
use crate::warm_places::{assert_warm, on_disk, sources, two, warm_two, with_workers};

fn bench() -> Device {
    device_of(&simulated(Default::default()))
}

/// A program of these lines.
fn program(folder: &Path, lines: &str) -> PathBuf {
    let path = folder.join("program");
    fs::write(&path, format!("#!/bin/sh\n{lines}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Images with enough text for several processes. The first one takes this process so long to parse
/// that another process starts meanwhile and is given an image.
fn large(count: usize) -> Requirements {
    let mut requirements = Requirements::default();
    for index in 0..count {
        let lines = if index == 0 { 200_000 } else { 5_000 };
        let lines = "    mul.rn.f32 %f1, %f1, %f2;\n".repeat(lines);
        let ptx = SCALE.replace("    ret;\n}", &format!("{lines}    ret;\n}} // {index}"));
        requirements.insert_custom(&image(&format!("large {index}"), &ptx), "scale");
    }
    requirements
}

fn warm_large(count: usize, warming: CompileOptions) -> WarmModules {
    let cache = ModuleCache::with(&bench().context, with_workers(warming));
    let warm = cache.prewarm(&large(count), |_| ()).unwrap();
    assert_eq!((cache.loaded(), warm.len()), (count, count));
    warm
}

fn processes(program: PathBuf, workers: usize) -> CompileOptions {
    let compiler = Compiler::Processes(WorkerCommand { program, arguments: Vec::new() });
    with(CompileOptions::default(), |it| {
        it.compiler = compiler;
        it.workers = workers;
    })
}

/// An assembler whose code is its source: arguments are `-arch=… source -o code`.
const COPY: &str = r#"
for word; do
    case "$word" in -*) ;; *) source="${source:-$word}"; code="$word";; esac
done
cat "$source" > "$code"; printf '\0' >> "$code""#;

fn ptxas(path: PathBuf, workers: usize) -> CacheOptions {
    with_workers(with(CompileOptions::default(), |it| {
        it.compiler = Compiler::Ptxas(path);
        it.workers = workers;
    }))
}

#[test]
fn an_assembler_compiles_and_the_cache_keeps_what_it_made() {
    let folder = tempfile::tempdir().unwrap();
    let device = bench();
    let options = ptxas(program(folder.path(), COPY), 2);
    let warm = warm_two(&device, options.clone()).unwrap();
    assert_warm(&warm, Source::Worker, &[]);
    let disk = on_disk(&folder.path().join("cache")).disk;
    let mut options = options;
    options.disk = disk;
    assert_eq!(sources(&device, options.clone()), "2 worker");
    assert_eq!(sources(&device, options), "2 disk");
}

#[test]
fn the_driver_compiles_if_the_assembler_fails_in_any_way() {
    let folder = tempfile::tempdir().unwrap();
    let device = bench();
    for (lines, word) in [
        ("echo not today >&2; exit 3", "not today"),
        ("exit 0", "wrote no code"),
        (r#"for code; do :; done; echo nonsense > "$code""#, "not machine code"),
    ] {
        let path = program(folder.path(), lines);
        let warm = warm_two(&device, ptxas(path, 2)).unwrap();
        assert_warm(&warm, Source::Jit, &[word]);
    }
    let warm = warm_two(&device, ptxas(folder.path().join("absent"), 2)).unwrap();
    assert_warm(&warm, Source::Jit, &["absent"]);
}

#[test]
fn processes_that_are_not_workers_are_detected_and_the_driver_compiles() {
    let folder = tempfile::tempdir().unwrap();
    let of_another_driver = r#"printf '\001\003\000\000\000\000\000\000\000abc'; cat > /dev/null"#;
    for (lines, word) in [
        ("exit 1", "program: "),
        ("echo hello; cat", "not an answer"),
        (of_another_driver, "is for `abc`, not for `SIMULATED driver"),
    ] {
        let warm = warm_large(3, processes(program(folder.path(), lines), 3));
        let report = warm.report();
        assert_eq!(report.sources(), "3 jit");
        // This process is one of the three.
        let [first, second] = &report.warnings[..] else { panic!("{:?}", report.warnings) };
        for warning in [first, second].map(ToString::to_string) {
            assert!(warning.contains("a compiler process failed"), "{warning}");
            assert!(warning.contains(word), "{warning}");
        }
    }
}

#[test]
fn processes_are_started_only_for_large_texts() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let started = |warm: fn(CompileOptions), workers| {
        fs::write(&log, "").unwrap();
        let lines = format!("echo x >> {}", log.display());
        warm(processes(program(folder.path(), &lines), workers));
        fs::read_to_string(&log).unwrap().lines().count()
    };
    let two = |warming| drop(warm_two(&bench(), with_workers(warming)).unwrap());
    assert_eq!(started(two, 8), 0, "two small images");
    let large = |warming| drop(warm_large(1, warming));
    assert_eq!(started(large, 8), 0, "one image");
    let large = |warming| drop(warm_large(4, warming));
    assert_eq!(started(large, 8), 3, "a process for each image, of which this is one");
    assert_eq!(started(large, 2), 1, "as many as there may be");
}

/// Asserts that a process that does not end is reported, with its image if it had one.
fn assert_ended(warm: &WarmModules, limit: Duration, with_image: bool, count: usize) {
    let report = warm.report();
    assert_eq!(report.count(Source::Jit), report.images.len(), "{report:?}");
    assert_eq!(report.warnings.len(), count, "{report:?}");
    for warning in &report.warnings {
        let Warning::TooSlow { image, timeout: held } = warning else { panic!("{warning}") };
        assert_eq!((*held, image.is_some()), (limit, with_image), "{warning}");
        let text = warning.to_string();
        assert!(text.contains("took longer than 200ms"), "{text}");
        assert!(text.contains("the driver compiles in this"), "{text}");
    }
}

#[test]
fn a_process_that_takes_too_long_is_ended_and_the_driver_compiles() {
    let folder = tempfile::tempdir().unwrap();
    let (started, limit) = (Instant::now(), Duration::from_millis(200));
    let of =
        |lines: &str| with(processes(program(folder.path(), lines), 2), |it| it.timeout = limit);
    // Its child processes keep the pipes open even after it has ended.
    assert_ended(&warm_large(2, of("sleep 60")), limit, false, 1);
    // It sends its identity, and then reads no request, or a part of one.
    let device = bench();
    let mut identity = Vec::new();
    serve_compiler(&device.context, &[][..], &mut identity).unwrap();
    drop(device);
    fs::write(folder.path().join("identity"), identity).unwrap();
    let hello = format!("cat {}/identity", folder.path().display());
    assert_ended(&warm_large(2, of(&format!("{hello}; sleep 60"))), limit, true, 1);
    let compiler = Compiler::Ptxas(program(folder.path(), "sleep 60"));
    let mut warming = CompileOptions::default();
    warming.compiler = compiler;
    warming.workers = 2;
    warming.timeout = limit;
    let warm = warm_two(&bench(), with_workers(warming)).unwrap();
    assert_ended(&warm, limit, true, 2);
    assert!(started.elapsed() < Duration::from_secs(30), "nobody waits for it");
}

#[test]
fn an_error_in_the_text_is_the_drivers_error_whoever_compiled_first() {
    let folder = tempfile::tempdir().unwrap();
    let broken = image("broken", BROKEN);
    let options = ptxas(program(folder.path(), COPY), 2);
    let cache = ModuleCache::with(&bench().context, options);
    let error = cache.prewarm(&requirements(&broken, "broken"), |_| ()).unwrap_err();
    let PrewarmError::Load { image, log, .. } = &error else { panic!("{error}") };
    assert!(image == "broken" && log.contains("7:5"), "{error}");
    assert!(cache.prewarm(&two(), |_| ()).is_ok(), "the failure leaves nothing claimed");
}

#[test]
fn threads_that_want_the_same_images_have_each_compiled_once() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let lines = format!("echo x >> {}; sleep 0.1; {COPY}", log.display());
    let options = ptxas(program(folder.path(), &lines), 2);
    let cache = ModuleCache::with(&bench().context, options);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| cache.prewarm(&two(), |_| ()).unwrap());
        }
    });
    assert_eq!(fs::read_to_string(&log).unwrap().lines().count(), 2);
    assert_eq!(cache.loaded(), 2);
}

/// One request to a worker, as bytes.
fn request(ptx: &str) -> Vec<u8> {
    let length = (ptx.len() as u64).to_le_bytes();
    [&length, ptx.as_bytes()].concat()
}

#[test]
fn a_worker_identifies_itself_and_answers_until_end_of_input() {
    let input = [request(SCALE), request(BROKEN)].concat();
    let mut output = Vec::new();
    serve_compiler(&bench().context, &input[..], &mut output).unwrap();
    let mut rest = &output[..];
    let mut answer = || {
        let length = u64::from_le_bytes(rest[1..9].try_into().unwrap()) as usize;
        let (one, others) = rest.split_at(9 + length);
        rest = others;
        (one[0], String::from_utf8_lossy(&one[9..]).into_owned())
    };
    let (status, identity) = answer();
    assert!(status == 1 && identity.starts_with("SIMULATED driver for CUDA"), "{identity}");
    let (status, code) = answer();
    assert!(status == 1 && code.contains(".entry scale") && code.ends_with('\0'), "{code}");
    let (status, message) = answer();
    assert!(status == 0 && message.contains("218") && message.contains("7:5"), "{message}");
    assert!(rest.is_empty());

    let cut = &input[..input.len() - 1];
    assert!(serve_compiler(&bench().context, cut, &mut Vec::new()).is_err());
}
