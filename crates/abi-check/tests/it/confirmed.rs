//! Every declaration of driver-sys is confirmed.

use std::io::Write as _;

use retrograph_abi_check::model::Kind;
use retrograph_abi_check::{exceptions, ours};

#[test]
fn everything_that_driver_sys_declares_is_confirmed() {
    let ours = ours::describe().unwrap_or_else(|error| panic!("{error}"));
    let Some(oracles) = crate::oracles() else { return };
    let differences = oracles.compare(&ours).unwrap_or_else(|error| panic!("{error}"));
    let (left, idle) = exceptions::apply(exceptions::DRIVER, differences);
    let mut lines: Vec<String> = left.iter().map(ToString::to_string).collect();
    lines.extend(idle.iter().map(|one| format!("the exception for {} is not needed", one.item)));
    assert!(lines.is_empty(), "{} differences:\n{}", lines.len(), lines.join("\n"));
    // Writes to the stream directly, since the harness captures the output of passing tests.
    let (types, constants) = (ours.types.len() + ours.aliases.len(), ours.constants.len());
    let functions = ours.functions.len();
    let line = format!("confirmed: {types} types, {constants} constants, {functions} functions\n");
    std::io::stderr().write_all(line.as_bytes()).expect("standard error can be written");
}

#[test]
fn the_lists_of_constants_and_layouts_are_complete() {
    let ours = ours::describe().unwrap_or_else(|error| panic!("{error}"));
    let listed = retrograph_driver_sys::constants::all().count();
    let unlisted: Vec<_> = ours
        .constants
        .iter()
        .filter(|(name, one)| {
            retrograph_driver_sys::constants::value(name).map(i128::from) != Some(one.value)
        })
        .map(|(name, _)| name.as_str())
        .collect();
    // These are handles, not numbers.
    assert_eq!(unlisted, ["CU_STREAM_LEGACY", "CU_STREAM_PER_THREAD"]);
    assert_eq!(listed + unlisted.len(), ours.constants.len());
    let layouts = retrograph_driver_sys::layouts::all().count();
    let structs = ours.types.values().filter(|one| matches!(one.kind, Kind::Struct | Kind::Union));
    assert_eq!(layouts, structs.count());
}

#[test]
fn the_description_holds_what_the_crate_is_known_to_declare() {
    let ours = ours::describe().unwrap_or_else(|error| panic!("{error}"));
    let known = [
        ours.types.contains_key("CUDA_MEMCPY3D"),
        ours.types.contains_key("CUstream"),
        ours.types.contains_key("CUstreamCaptureMode"),
        ours.aliases.contains_key("CUdeviceptr"),
        ours.constants.contains_key("CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"),
        ours.constants.contains_key("CU_STREAM_LEGACY"),
        ours.constants.contains_key("CU_EVENT_DISABLE_TIMING"),
        ours.functions.contains_key("cuLaunchKernel"),
        ours.functions["cuStreamGetCaptureInfo_v3"].since == Some(12030),
    ];
    assert_eq!(known, [true; 9]);
    let required = retrograph_driver_sys::DriverTable::REQUIRED.len();
    let optional = retrograph_driver_sys::DriverTable::OPTIONAL.len();
    assert_eq!(ours.functions.len(), required + optional);
}

#[test]
fn the_listed_layouts_are_the_declared_ones() {
    let ours = ours::describe().unwrap_or_else(|error| panic!("{error}"));
    for layout in retrograph_driver_sys::layouts::all() {
        let declared = &ours.types[layout.name];
        let size = (declared.size, declared.align);
        assert_eq!(size, (Some(layout.size as u64), Some(layout.align as u64)), "{}", layout.name);
        assert_eq!(layout.fields.len(), declared.fields.len(), "{}", layout.name);
        for (field, place) in layout.fields.iter().zip(&declared.fields) {
            assert_eq!(field.name.trim_start_matches("r#"), place.name, "{}", layout.name);
            assert_eq!(Some(field.offset as u64), place.offset, "{}.{}", layout.name, field.name);
        }
    }
}
