//! Loading: the errors if the driver is missing, too old or incomplete.

use std::ffi::{CStr, c_void};
use std::path::Path;

use retrograph_driver_sys::{CUresult, DriverTable, LIBRARY_NAMES, LoadError, MissingFunction};

unsafe extern "C" fn version_11_8(version: *mut i32) -> CUresult {
    // SAFETY: the loader passes a valid pointer.
    unsafe { *version = 11080 };
    CUresult::CUDA_SUCCESS
}

unsafe extern "C" fn version_12_0(version: *mut i32) -> CUresult {
    // SAFETY: the loader passes a valid pointer.
    unsafe { *version = 12000 };
    CUresult::CUDA_SUCCESS
}

unsafe extern "C" fn version_unknown(_: *mut i32) -> CUresult {
    CUresult::CUDA_ERROR_STUB_LIBRARY
}

type GetVersion = unsafe extern "C" fn(*mut i32) -> CUresult;

/// A driver whose every symbol is `get_version`, except for the `missing` ones. Only that function
/// may be called through the table.
fn load(get_version: GetVersion, missing: &[&str]) -> Result<DriverTable, LoadError> {
    let resolve = |symbol: &CStr| {
        let present = !missing.contains(&symbol.to_str().expect("symbols are ASCII"));
        if present { get_version as *const c_void } else { std::ptr::null() }
    };
    // SAFETY: only `cuDriverGetVersion`, which has the right signature, is called by these tests.
    unsafe { DriverTable::load_with("test", resolve) }
}

#[test]
fn a_missing_library_error_lists_the_tried_names() {
    // SAFETY: there is no such file, so nothing runs.
    let error = unsafe { DriverTable::load_from(Path::new("/nowhere/libcuda.so.1")) }.unwrap_err();
    assert!(matches!(&error, LoadError::NotFound { tried } if tried.len() == 1));
    assert!(error.to_string().contains("/nowhere/libcuda.so.1"), "{error}");
}

#[test]
fn each_tried_name_has_its_reason() {
    let one = ("libcuda.so.1".to_owned(), "libcuda.so.1: file too short".to_owned());
    let other = ("libcuda.so".to_owned(), "no such file".to_owned());
    let error = LoadError::NotFound { tried: vec![one, other] }.to_string();
    assert!(error.contains("(libcuda.so.1: file too short; libcuda.so: no such file)"), "{error}");
}

#[test]
fn a_chosen_file_that_cannot_be_loaded_says_why() {
    let file = std::env::temp_dir().join(format!("no-driver-{}.so", std::process::id()));
    std::fs::write(&file, "this is text").unwrap();
    // SAFETY: the file is no library, so nothing runs.
    let error = unsafe { DriverTable::load_from(&file) }.unwrap_err();
    std::fs::remove_file(&file).unwrap();
    let LoadError::NotFound { tried } = &error else { panic!("{error}") };
    let [(name, reason)] = &tried[..] else { panic!("{tried:?}") };
    assert_eq!(name, &file.display().to_string());
    assert!(error.to_string().contains(reason) && error.to_string().contains(name), "{error}");
    // The dynamic loader names the file.
    assert!(reason.contains(name), "{reason}");
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[test]
fn a_library_that_is_not_a_driver_is_named_with_the_missing_symbol() {
    // SAFETY: the C library is loaded already, and none of its functions has a driver's name.
    let error = unsafe { DriverTable::load_from(Path::new("libc.so.6")) }.unwrap_err();
    let LoadError::MissingSymbol { library, symbol, version: None } = &error else {
        panic!("{error}")
    };
    assert_eq!((library.as_str(), *symbol), ("libc.so.6", "cuDriverGetVersion"));
}

#[cfg(not(windows))]
#[test]
fn the_driver_of_wsl_is_tried_before_the_development_link() {
    assert_eq!(LIBRARY_NAMES[0], "libcuda.so.1");
    assert!(LIBRARY_NAMES[1].starts_with("/usr/lib/wsl/"));
    assert_eq!(LIBRARY_NAMES[2..], ["libcuda.so"]);
}

#[test]
fn this_machine_has_a_complete_driver_or_every_name_is_listed() {
    match DriverTable::load() {
        Ok(_) => {}
        Err(LoadError::NotFound { tried }) => {
            let names: Vec<_> = tried.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, LIBRARY_NAMES);
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn an_old_driver_is_refused_with_both_versions() {
    let error = load(version_11_8, &[]).unwrap_err();
    assert!(matches!(error, LoadError::TooOld { version: 11080, .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("CUDA 11.8") && text.contains("CUDA 12.0"), "{text}");
}

#[test]
fn a_missing_required_symbol_is_named() {
    let error = load(version_12_0, &["cuGraphAddKernelNode_v2"]).unwrap_err();
    assert!(error.to_string().contains("cuGraphAddKernelNode_v2"), "{error}");
    assert!(matches!(error, LoadError::MissingSymbol { version: Some(12000), .. }));
    let error = load(version_12_0, &["cuDriverGetVersion"]).unwrap_err();
    assert!(matches!(error, LoadError::MissingSymbol { version: None, .. }), "{error}");
}

#[test]
fn a_library_that_does_not_report_its_version_is_refused_with_the_code() {
    let error = load(version_unknown, &[]).unwrap_err();
    assert!(matches!(error, LoadError::NoVersion { code: CUresult(34), .. }), "{error}");
}

#[test]
fn missing_optional_symbols_are_known_by_name_and_the_rest_is_there() {
    let table = load(version_12_0, &["cuFuncGetParamInfo", "cuFuncGetName"]).unwrap();
    assert!(table.cuFuncGetParamInfo.is_none() && table.cuFuncGetName.is_none());
    assert!(table.cuGraphAddNode_v2.is_some() && table.cuGraphAddNode_v2().is_ok());
    let mut version = 0;
    // SAFETY: this field holds `version_12_0`.
    assert!(unsafe { (table.cuDriverGetVersion)(&mut version) }.is_success());
    assert_eq!((version, table.driver_version), (12000, 12000));
    let missing =
        MissingFunction { name: "cuFuncGetParamInfo", since: 12040, driver_version: 12000 };
    assert_eq!(table.cuFuncGetParamInfo().unwrap_err(), missing);
    let names: Vec<_> = table.missing().iter().map(|missing| missing.name).collect();
    assert_eq!(names, ["cuFuncGetName", "cuFuncGetParamInfo"]);
    assert!(table.missing().contains(&missing));
}

#[test]
fn a_driver_of_12_0_loads_without_any_optional_symbol() {
    let optional: Vec<_> = DriverTable::OPTIONAL.iter().map(|(name, _)| *name).collect();
    let table = load(version_12_0, &optional).unwrap();
    assert_eq!(table.missing().len(), optional.len());
    for missing in table.missing() {
        let text = missing.to_string();
        assert!(text.starts_with(missing.name) && text.contains("CUDA 12.0"), "{text}");
    }
}

#[test]
fn a_function_that_a_new_driver_lacks_is_not_blamed_on_its_version() {
    let missing = MissingFunction { name: "cuFuncLoad", since: 12040, driver_version: 13000 };
    let text = missing.to_string();
    assert!(text.contains("missing") && text.contains("12.4") && text.contains("13.0"), "{text}");
}

#[test]
fn every_required_symbol_is_asked_for_and_named_when_it_is_missing() {
    for &symbol in DriverTable::REQUIRED {
        let error = load(version_12_0, &[symbol]).unwrap_err();
        assert!(matches!(error, LoadError::MissingSymbol { symbol: named, .. } if named == symbol));
    }
}

#[test]
fn symbol_lists_name_each_function_once() {
    let mut names: Vec<_> = DriverTable::REQUIRED.to_vec();
    names.extend(DriverTable::OPTIONAL.iter().map(|(name, _)| *name));
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(names.iter().all(|name| name.starts_with("cu")));
    assert!(DriverTable::OPTIONAL.iter().all(|(_, since)| (12000..=13000).contains(since)));
}
