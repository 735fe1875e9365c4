//! The cache on disk: filled once, read afterwards, and always verified.

use std::fs;
use std::path::{Path, PathBuf};

use retrograph_runtime::modules::Source;

use crate::device::device;
use crate::warm_places::{assert_warm, files, on_disk, sources, warm_two};

/// A private directory that does not exist yet.
fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("some/cache");
    (folder, path)
}

#[test]
fn compiled_code_is_loaded_from_disk_by_the_next_process() {
    let (_folder, path) = place();
    let device = device();
    assert_eq!(sources(&device, on_disk(&path)), "2 jit");
    assert_eq!(files(&path).len(), 2);
    assert_eq!(sources(&device, on_disk(&path)), "2 disk");
    let warm = warm_two(&device, on_disk(&path)).unwrap();
    assert_warm(&warm, Source::Disk, &[]);
    assert!(warm.report().images.iter().all(|image| image.kernels.len() == 1));
}

/// The damage to a good file.
type Damage<'a> = &'a dyn Fn(&[u8]) -> Vec<u8>;

#[test]
fn a_truncated_altered_or_unknown_file_is_never_loaded() {
    let (_folder, path) = place();
    let device = device();
    warm_two(&device, on_disk(&path)).unwrap();
    let good: Vec<Vec<u8>> = files(&path).iter().map(|file| fs::read(file).unwrap()).collect();
    let damages: [(&str, Damage<'_>); 6] = [
        ("is not a bundle", &|_| Vec::new()),
        ("is not a bundle", &|_| b"something else".to_vec()),
        ("ends after 20 of 48 bytes", &|good| good[..20].to_vec()),
        ("bytes; copy it again", &|good| good[..good.len() - 1].to_vec()),
        ("the code of", &|good| changed(good, good.len() - 2)),
        ("checksum of the index", &|good| changed(good, 60)),
    ];
    for (word, damage) in damages {
        for (file, good) in files(&path).iter().zip(&good) {
            fs::write(file, damage(good)).unwrap();
        }
        let warm = warm_two(&device, on_disk(&path)).unwrap();
        assert_warm(&warm, Source::Jit, &[word]);
        assert_eq!(warm.report().warnings.len(), 2);
        assert_eq!(sources(&device, on_disk(&path)), "2 disk", "damage is repaired: {word}");
    }
}

fn changed(good: &[u8], at: usize) -> Vec<u8> {
    let mut bytes = good.to_vec();
    bytes[at] ^= 1;
    bytes
}

#[test]
fn a_file_under_the_name_of_another_is_not_taken() {
    let (_folder, path) = place();
    let device = device();
    warm_two(&device, on_disk(&path)).unwrap();
    let [first, second] = &files(&path)[..] else { panic!("two files were written") };
    fs::copy(first, second).unwrap();
    let warm = warm_two(&device, on_disk(&path)).unwrap();
    let report = warm.report();
    assert_eq!(report.sources(), "1 disk, 1 jit");
    assert!(report.warnings[0].to_string().contains("another image than its name"));
}

#[cfg(unix)]
#[test]
fn a_directory_that_others_can_write_is_refused() {
    use std::os::unix::fs::PermissionsExt;

    let (_folder, path) = place();
    let device = device();
    warm_two(&device, on_disk(&path)).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    assert!(files(&path).iter().all(|file| mode(file) & 0o077 == 0));

    fs::set_permissions(&path, fs::Permissions::from_mode(0o770)).unwrap();
    let warm = warm_two(&device, on_disk(&path)).unwrap();
    assert_warm(&warm, Source::Jit, &["may be changed by others", "chmod 700"]);

    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(&files(&path)[0], fs::Permissions::from_mode(0o666)).unwrap();
    let warm = warm_two(&device, on_disk(&path)).unwrap();
    assert_eq!(warm.report().sources(), "1 disk, 1 jit");
}

#[cfg(unix)]
#[test]
fn a_link_to_a_directory_is_no_private_directory() {
    let (_folder, path) = place();
    let device = device();
    warm_two(&device, on_disk(&path)).unwrap();
    let link = path.with_extension("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let warm = warm_two(&device, on_disk(&link)).unwrap();
    assert_warm(&warm, Source::Jit, &["no directory"]);
}

#[test]
fn a_directory_that_cannot_be_made_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "not a directory").unwrap();
    let warm = warm_two(&device(), on_disk(&file.join("cache"))).unwrap();
    assert_warm(&warm, Source::Jit, &["cannot be accessed"]);
}

#[test]
fn several_caches_use_one_directory_at_the_same_time() {
    let (_folder, path) = place();
    let device = device();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let warm = warm_two(&device, on_disk(&path)).unwrap();
                assert!(warm.report().warnings.is_empty(), "{:?}", warm.report().warnings);
            });
        }
    });
    assert_eq!(files(&path).len(), 2, "nothing temporary is left");
    assert_eq!(sources(&device, on_disk(&path)), "2 disk");
}

#[test]
fn a_driver_that_does_not_link_loads_and_nothing_is_kept() {
    use retrograph_driver_sim::{Config, Simulator};
    use retrograph_driver_sys::CUresult;
    use retrograph_runtime::{Driver, Origin};
    use std::sync::Arc;

    let (_folder, path) = place();
    let simulator = Arc::new(Simulator::new(Config::default()).unwrap());
    let (table, keep) = (*simulator.table(), Some(Arc::clone(&simulator) as _));
    // SAFETY: the simulator implements the driver's functions and is kept by the driver.
    let driver = unsafe { Driver::from_table(table, Origin::Simulated, keep) }.unwrap();
    let device = crate::device::device_of(&driver);
    for call in ["cuLinkCreate_v2", "cuLinkComplete"] {
        simulator.fail(call, 1, CUresult::CUDA_ERROR_NOT_SUPPORTED).unwrap();
        let warm = warm_two(&device, on_disk(&path)).unwrap();
        let (report, linked) = (warm.report(), "did not link");
        assert_eq!(report.warnings.len(), 1, "{:?}", report.warnings);
        assert!(report.warnings[0].to_string().contains(linked), "{:?}", report.warnings);
        assert_eq!(files(&path).len(), 1);
        std::fs::remove_dir_all(&path).unwrap();
    }
}

#[test]
fn code_of_another_driver_is_not_taken() {
    use retrograph_driver_sim::Config;

    let (_folder, path) = place();
    let on = |driver_version| {
        let mut config = Config::default();
        config.driver_version = driver_version;
        let device = crate::device::device_of(&crate::device::simulated(config));
        sources(&device, on_disk(&path))
    };
    assert_eq!((on(13000).as_str(), on(13000).as_str()), ("2 jit", "2 disk"));
    assert_eq!((on(12080).as_str(), on(13000).as_str()), ("2 jit", "2 disk"));
    assert_eq!(files(&path).len(), 4);
}

#[cfg(unix)]
#[test]
fn a_cache_entry_that_is_not_a_regular_file_is_compiled_again() {
    let (_folder, path) = place();
    let device = device();
    warm_two(&device, on_disk(&path)).unwrap();
    let [pipe, directory] = &files(&path)[..] else { panic!("two files were written") };
    fs::remove_file(pipe).unwrap();
    let made = std::process::Command::new("mkfifo").args(["-m", "600"]).arg(pipe).status();
    assert!(made.unwrap().success());
    fs::remove_file(directory).unwrap();
    fs::create_dir(directory).unwrap();
    let warm = warm_two(&device, on_disk(&path)).unwrap();
    assert_eq!(warm.report().sources(), "2 jit");
    let warnings: Vec<String> = warm.report().warnings.iter().map(ToString::to_string).collect();
    for entry in [pipe, directory] {
        let entry = entry.display().to_string();
        let told = |text: &&String| text.contains(&entry) && text.contains("not a regular file");
        assert_eq!(warnings.iter().filter(told).count(), 1, "{warnings:?}");
    }
    assert_eq!(sources(&device, on_disk(&path)), "1 disk, 1 jit", "the pipe was replaced");
}
