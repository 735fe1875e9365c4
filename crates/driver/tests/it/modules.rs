//! Loading of images, and lookups of entry points.

use retrograph_driver::sys::CUresult;
use retrograph_driver::{
    DeviceBuffer, Error, KernelArguments, KernelLaunch, LaunchGeometry, Module, compile_ptx,
};
use retrograph_driver_sim::Config;

use crate::device::{Device, device, device_of, simulated};
use crate::fatbin::{EntryKind, empty_cubin, fatbin};
use crate::ptx::SCALE;

#[test]
fn a_missing_entry_point_is_named() {
    let Device { context, .. } = device();
    let module = Module::load_ptx(&context, SCALE).unwrap();
    for missing in ["scales", "", "scale\0"] {
        let error = module.function(missing).unwrap_err();
        let Error::NoEntryPoint { name, .. } = &error else { panic!("{error}") };
        assert_eq!(name, missing);
        assert!(error.to_string().contains(&format!("`{missing}`")), "{error}");
    }
    assert_eq!(module.function("scale").unwrap().name(), "scale");
}

#[test]
fn zero_bytes_at_the_end_of_ptx_are_ignored() {
    let Device { context, .. } = device();
    for zeros in ["\0", "\0\0"] {
        let ptx = format!("{SCALE}{zeros}");
        Module::load_ptx(&context, &ptx).unwrap().function("scale").unwrap();
        let code = compile_ptx(&context, &ptx).unwrap();
        Module::load_code(&context, &code).unwrap().function("scale").unwrap();
    }
    let ptx = format!("{SCALE}\0{SCALE}");
    for error in [
        Module::load_ptx(&context, &ptx).map(|_| ()).unwrap_err(),
        compile_ptx(&context, &ptx).map(|_| ()).unwrap_err(),
    ] {
        assert!(matches!(error.error, Error::BadImage { .. }), "{error}");
    }
}

#[test]
fn a_fatbin_with_ptx_is_loaded() {
    let Device { context, stream } = device();
    let fatbin = fatbin(EntryKind::Ptx, SCALE.as_bytes());
    let function = Module::load_code(&context, &fatbin).unwrap().function("scale").unwrap();
    let buffer = DeviceBuffer::from_slice(&stream, &[1.0_f32, 2.0, 3.0]).unwrap();
    let arguments = KernelArguments::new().buffer(&buffer).u32(3).f32(2.0);
    let launch = KernelLaunch::new(&function, LaunchGeometry::linear(1, 32), &arguments);
    // SAFETY: the arguments match the function, and the download waits.
    unsafe { stream.launch(&launch) }.unwrap();
    assert_eq!(buffer.download(&stream).unwrap(), [2.0, 4.0, 6.0]);
}

#[test]
fn a_simulated_driver_refuses_machine_code_itself() {
    let fatbin = fatbin(EntryKind::MachineCode, &empty_cubin());
    let (of_fatbin, unsupported) =
        ("it has machine code for sm_75", CUresult::CUDA_ERROR_NOT_SUPPORTED);
    for (compute_capability, code, reason, expected) in [
        ((7, 5), empty_cubin().to_vec(), "cubins cannot be simulated", unsupported),
        ((7, 5), fatbin.clone(), of_fatbin, unsupported),
        // As on hardware.
        ((9, 0), fatbin, of_fatbin, CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU),
    ] {
        let mut config = Config::default();
        config.compute_capability = compute_capability;
        let Device { context, .. } = device_of(&simulated(config));
        let error = Module::load_code(&context, &code).unwrap_err();
        let Error::Call(call) = &error.error else { panic!("{error}") };
        assert_eq!(call.code, expected);
        assert!(error.is_of_image() && error.log.contains(reason), "{error}");
    }
}

#[test]
fn code_that_is_cut_off_or_unknown_does_not_reach_the_driver() {
    let Device { context, .. } = device();
    let bad = |code: &[u8]| {
        let error = Module::load_code(&context, code).unwrap_err().error;
        assert!(matches!(error, Error::BadImage { .. }), "{error}");
    };
    let fatbin = fatbin(EntryKind::Ptx, SCALE.as_bytes());
    bad(&fatbin[..fatbin.len() - 1]);
    bad(&fatbin[..10]);
    bad(b"\x7fELF");
    bad(b"no code");
    bad(b"");
}
