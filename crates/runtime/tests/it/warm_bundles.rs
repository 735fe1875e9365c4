//! Bundles: code for several devices in one file, found by content and verified.

use std::fs;
use std::path::PathBuf;

use retrograph_driver_sim::Config;
use retrograph_kernels::ops::{MEAN, SOFTMAX};
use retrograph_kernels::{SmTarget, images};
use retrograph_runtime::modules::{
    Bundle, BundleEntry, BundleError, CacheOptions, Source, Warning, image_target,
};
use retrograph_runtime::{ModuleCache, PrewarmError, Requirements};
use sha2::{Digest, Sha256};

use crate::device::{Device, device, simulated};
use crate::ptx::{SCALE, STORE, image, requirements};
use crate::support::fatbin::empty_cubin;
use crate::support::with;
use crate::warm_places::{assert_warm, on_disk, two, warm_two};

/// A simulated device: its linker's output is text, which the tests can make themselves.
fn bench() -> Device {
    crate::device::device_of(&simulated(Default::default()))
}

fn entry(name: &str, ptx: &str, code: &str) -> BundleEntry {
    let target = "sm_90".parse().unwrap();
    let (image, maker) = (Sha256::digest(ptx).into(), "a test".to_owned());
    let code = format!("{code}\0").into_bytes();
    BundleEntry { name: name.to_owned(), image, target, producer: maker, code }
}

fn bundle(entries: &[BundleEntry]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("images.bundle");
    Bundle::write(&path, entries).unwrap();
    (folder, path)
}

fn both() -> [BundleEntry; 2] {
    [entry("scale", SCALE, SCALE), entry("store", STORE, STORE)]
}

fn from(path: &PathBuf) -> CacheOptions {
    with(CacheOptions::default(), |it| it.bundles = vec![Bundle::open(path).unwrap()])
}

#[test]
fn everything_is_loaded_from_a_bundle() {
    let (_folder, path) = bundle(&both());
    let device = bench();
    let warm = warm_two(&device, from(&path)).unwrap();
    assert_warm(&warm, Source::Bundle, &[]);
    let bundle = Bundle::open(&path).unwrap();
    assert_eq!((bundle.len(), bundle.targets().len()), (2, 1));
}

#[test]
fn a_bundle_can_be_part_of_the_program() {
    let (_folder, path) = bundle(&both());
    let bytes: &'static [u8] = fs::read(&path).unwrap().leak();
    let options = |bytes| {
        Bundle::from_static(bytes)
            .map(|bundle| with(CacheOptions::default(), |it| it.bundles = vec![bundle]))
    };
    assert_warm(&warm_two(&bench(), options(bytes).unwrap()).unwrap(), Source::Bundle, &[]);
    for length in [9, 60, bytes.len() - 1] {
        let error = options(&bytes[..length]).unwrap_err();
        assert!(matches!(error, BundleError::Truncated { .. }), "{error}");
    }
    let damaged: &mut [u8] = bytes.to_vec().leak();
    damaged[bytes.len() - 9] ^= 1;
    let error = warm_two(&bench(), options(damaged).unwrap()).unwrap_err().to_string();
    assert!(error.contains("a bundle in the program") && error.contains("the code of"), "{error}");
}

#[test]
fn images_in_a_bundle_are_not_decompressed() {
    // No other test in this process needs images of this target, or this image.
    let target: SmTarget = "sm_75".parse().unwrap();
    let compute_capability = (7, 5);
    let device = crate::device::device_of(&simulated(with(Config::default(), |it| {
        it.compute_capability = compute_capability
    })));
    let mut wanted = Requirements::default();
    wanted.insert(&MEAN);
    let image = MEAN.image;
    let digest = images::digest(image, target).unwrap();
    let other = images::ptx(image, "sm_80".parse().unwrap()).unwrap();
    let code = format!("{}\0", other.replace(".target sm_80", ".target sm_75")).into_bytes();
    let name = image.to_owned();
    let entry = BundleEntry { name, image: digest, target, producer: "a test".to_owned(), code };
    let (_folder, path) = bundle(&[entry]);

    let warm = ModuleCache::with(&device.context, from(&path)).prewarm(&wanted, |_| ()).unwrap();
    assert_eq!(warm.report().sources(), "1 bundle");
    assert!(!images::is_unpacked(image, target));
    let warm = ModuleCache::new(&device.context).prewarm(&wanted, |_| ()).unwrap();
    assert_eq!(warm.report().sources(), "1 jit");
    assert!(images::is_unpacked(image, target));
}

#[test]
fn an_image_of_a_bundle_is_whole_and_loaded_once_for_all_its_entry_points() {
    let device = bench();
    let mut wanted = Requirements::default();
    wanted.insert(&SOFTMAX);
    let target = image_target(&device.context).unwrap();
    let ptx = images::ptx(SOFTMAX.image, target).unwrap();
    let (_folder, path) = bundle(&[entry(SOFTMAX.image, ptx, ptx)]);
    let cache = ModuleCache::with(&device.context, from(&path));
    let warm = cache.prewarm(&wanted, |_| ()).unwrap();
    assert_eq!((warm.report().sources().as_str(), warm.len()), ("1 bundle", 2));
    assert_eq!(cache.loaded(), 1);
    SOFTMAX.entries.iter().for_each(|entry| drop(warm.function(SOFTMAX.image, entry).unwrap()));
}

#[test]
fn of_several_targets_the_newest_that_runs_is_taken() {
    let for_target = |target: &str| {
        let code = format!("{SCALE}// for {target}");
        BundleEntry { target: target.parse().unwrap(), ..entry("scale", SCALE, &code) }
    };
    let targets = ["sm_80", "sm_86", "sm_90", "sm_90a", "sm_100"];
    let (_folder, path) = bundle(&targets.map(for_target));
    let bundle = Bundle::open(&path).unwrap();
    let taken = |device: &str| {
        let code = bundle.code(&Sha256::digest(SCALE).into(), device.parse().unwrap()).unwrap()?;
        let text = String::from_utf8(code).unwrap();
        Some(text.rsplit("for ").next()?.trim_end_matches('\0').to_owned())
    };
    assert_eq!(taken("sm_90").as_deref(), Some("sm_90a"));
    assert_eq!(taken("sm_89").as_deref(), Some("sm_86"));
    assert_eq!(taken("sm_103").as_deref(), Some("sm_100"));
    assert_eq!(taken("sm_75"), None, "code for a newer device does not run");
    assert_eq!(taken("sm_110"), None, "code for another major number does not run");
}

#[test]
fn an_image_that_the_bundle_lacks_is_compiled_and_named() {
    let (_folder, path) = bundle(&[entry("scale", SCALE, SCALE)]);
    let warm = warm_two(&bench(), from(&path)).unwrap();
    assert_eq!(warm.report().sources(), "1 bundle, 1 jit");
    let [Warning::NotInBundle { image, .. }] = &warm.report().warnings[..] else {
        panic!("{:?}", warm.report().warnings)
    };
    assert_eq!(image, "store");
}

#[test]
fn a_text_that_was_changed_since_is_not_found() {
    let (_folder, path) = bundle(&both());
    let cache = ModuleCache::with(&bench().context, from(&path));
    let changed = image("scale", &SCALE.replace("mul.rn", "add.rn"));
    let warm = cache.prewarm(&requirements(&changed, "scale"), |_| ()).unwrap();
    assert_eq!(warm.report().sources(), "1 jit");
}

#[test]
fn code_that_the_driver_refuses_is_compiled_from_ptx() {
    for (code, reason) in [
        (b"\x7fELF\x02 and so on".to_vec(), "but its header requires"),
        (empty_cubin().to_vec(), "cubins cannot be simulated"),
    ] {
        let cubin = BundleEntry { code, ..entry("store", STORE, "") };
        let (_folder, path) = bundle(&[entry("scale", SCALE, "this is no image"), cubin]);
        let warm = warm_two(&bench(), from(&path)).unwrap();
        assert_warm(&warm, Source::Jit, &["`scale` from bundle was refused", reason]);
    }
}

#[test]
fn the_next_bundle_is_tried_if_the_driver_refuses_the_code_of_one() {
    let (_refused_folder, refused) = bundle(&[entry("scale", SCALE, "this is no image")]);
    let (_good_folder, good) = bundle(&both());
    let bundles = [refused, good].map(|path| Bundle::open(path).unwrap()).to_vec();
    let warm =
        warm_two(&bench(), with(CacheOptions::default(), |it| it.bundles = bundles)).unwrap();
    assert_warm(&warm, Source::Bundle, &["`scale` from bundle was refused"]);
}

#[test]
fn a_refused_bundle_does_not_keep_the_disk_from_being_asked() {
    let (_folder, path) = bundle(&[entry("scale", SCALE, "this is no image")]);
    let cache = tempfile::tempdir().unwrap();
    let device = bench();
    warm_two(&device, on_disk(&cache.path().join("c"))).unwrap();
    let mut options = on_disk(&cache.path().join("c"));
    options.bundles = from(&path).bundles;
    assert_eq!(warm_two(&device, options).unwrap().report().sources(), "2 disk");
}

#[test]
fn each_kind_of_damage_is_an_error_of_its_own() {
    let (_folder, path) = bundle(&both());
    let good = fs::read(&path).unwrap();
    let opened = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        Bundle::open(&path)
    };
    let error = |bytes: &[u8]| opened(bytes).unwrap_err();
    assert!(matches!(error(b""), BundleError::NotABundle { .. }));
    assert!(matches!(error(b"\x7fELF"), BundleError::NotABundle { .. }));
    for length in 8..good.len() {
        let error = error(&good[..length]);
        assert!(matches!(error, BundleError::Truncated { .. }), "{length}: {error}");
    }
    let changed = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 4;
        bytes
    };
    assert!(matches!(error(&changed(8)), BundleError::Format { found: 6, .. }));
    assert!(matches!(error(&changed(20)), BundleError::Corrupt { .. }));
    assert!(matches!(error(&changed(70)), BundleError::Corrupt { .. }));
    fs::remove_file(&path).unwrap();
    assert!(matches!(Bundle::open(&path).unwrap_err(), BundleError::Io { .. }));
}

#[test]
fn damaged_code_of_a_bundle_ends_prewarming() {
    let (_folder, path) = bundle(&both());
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.len() - 9;
    bytes[at] ^= 1;
    fs::write(&path, bytes).unwrap();
    let error = warm_two(&bench(), from(&path)).unwrap_err();
    let PrewarmError::Bundle { image, source } = &error else { panic!("{error}") };
    assert_eq!(image, "store");
    assert!(matches!(source, BundleError::Corrupt { .. }), "{source}");
}

#[test]
fn an_image_for_another_device_is_refused_before_the_driver_is_asked() {
    let device = device();
    let far = image("far", &SCALE.replace("sm_75", "sm_120a"));
    let cache = ModuleCache::new(&device.context);
    let error = cache.prewarm(&requirements(&far, "scale"), |_| ()).unwrap_err();
    let PrewarmError::WrongTarget { image, source } = &error else { panic!("{error}") };
    assert_eq!((image.as_str(), source.target.to_string().as_str()), ("far", "sm_120a"));
    let text = error.to_string();
    assert!(text.contains(&device.context.device_target().to_string()), "{text}");
    assert!(cache.prewarm(&two(), |_| ()).is_ok());
}

#[test]
fn lengths_that_no_bundle_has_are_refused_before_memory_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("huge.bundle");
    let head = [b"RTGCODE\n".as_slice(), &2_u32.to_le_bytes(), &u32::MAX.to_le_bytes()].concat();
    fs::write(&path, head).unwrap();
    // A file with a hole: it has the length that its head says, and takes no place on disk.
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(5 << 30).unwrap();
    let error = Bundle::open(&path).unwrap_err().to_string();
    assert!(error.contains("the length of the index, 4294967295 bytes"), "{error}");
}

#[cfg(unix)]
#[test]
fn a_pipe_is_not_a_bundle() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let error = Bundle::open(&path).unwrap_err().to_string();
    assert!(error.contains("not a regular file"), "{error}");
}
